//! VSCode's extension-host RPC: recorded messages against this project's codec, values and machines.

mod calls;
mod frames;
mod ipc_net;
mod machines;
mod values;

use breakbulk_message::vscode::ipc::{Frame as IpcFrame, IpcReader};
use breakbulk_message::vscode::{
    Body, DecodeErrorKind, EncodeError, Limits, MessageType, Passed, ReadError, Thrown, decode,
};
use bytes::Bytes;
use serde_json::Value as Json;

use super::{Rule, Tally, Verdict};
use calls::{Call, transformers};
use frames::{Frame, frames, is_lone_surrogate};
use ipc_net::Sessions;
use values::{bytes_of, passed_same, same};

const LENGTHS_WRAP: Rule = Rule {
    name: "lengths-wrap",
    reason: "a method over 255 bytes, over 255 mixed arguments or an rpc id outside 1..=255 is an encoder error; the original wraps it around and calls something else",
};
const REF_COLLISION: Rule = Rule {
    name: "ref-collision",
    reason: "a numeric $$ref$$ of the user's inside an object-with-buffers is an encoder error; the original's receiver takes it for a buffer",
};
const SILENT_NULL: Rule = Rule {
    name: "silent-null",
    reason: "a result or error that cannot be serialized gets an error reply; the original sends null, with the buffers it found on the way",
};
const NEVER_SETTLES: Rule = Rule {
    name: "never-settles",
    reason: "every request is answered; the original leaves this caller waiting",
};
const INHERITED_METHOD: Rule = Rule {
    name: "inherited-method",
    reason: "methods come from an explicit table, so this one gets an error reply; the original runs what every object inherits",
};
const ARGS_NOT_ARRAY: Rule = Rule {
    name: "args-not-array",
    reason: "arguments that are no array get an ack and an error reply; the original takes anything array-like",
};
const BAD_ARGUMENT: Rule = Rule {
    name: "bad-argument",
    reason: "an argument of unknown type or a reference to no buffer gets an ack and an error reply; the original makes undefined of it",
};
const UNDECODABLE: Rule = Rule {
    name: "undecodable-request",
    reason: "a request that cannot be read but has a good header gets an ack and an error reply; the original is silent, or goes on with what it could read",
};
const REQUEST_ZERO: Rule = Rule {
    name: "request-zero",
    reason: "request ids wrap past 0 and skip those in use; the original uses 0 and never finds its reply",
};
const SILENT_AFTER_DISPOSE: Rule = Rule {
    name: "silent-after-dispose",
    reason: "after dispose nothing more is sent; the original still sends replies of running handlers",
};
const NO_DEFLATE: Rule = Rule {
    name: "no-deflate",
    reason: "permessage-deflate is not offered, so that nobody compresses towards us",
};

pub(crate) const RULES: &[Rule] = &[
    LENGTHS_WRAP,
    REF_COLLISION,
    SILENT_NULL,
    NEVER_SETTLES,
    INHERITED_METHOD,
    ARGS_NOT_ARRAY,
    BAD_ARGUMENT,
    UNDECODABLE,
    REQUEST_ZERO,
    SILENT_AFTER_DISPOSE,
    NO_DEFLATE,
];

type Deviation = Option<&'static Rule>;

pub(crate) fn run(file: &str, value: &Json, tally: &mut Tally) -> Option<()> {
    match file {
        "rpc.json" => run_cases(file, value, tally, call_case),
        "rpc-inject.json" => run_cases(file, value, tally, inject_case),
        "ipc-net.json" => run_ipc(file, value, tally),
        "rpc-timers.json" => run_timers(file, value, tally),
        _ => None,
    }
}

fn run_cases(
    file: &str,
    value: &Json,
    tally: &mut Tally,
    check: fn(&Json) -> Verdict,
) -> Option<()> {
    for case in value.as_array()? {
        let name = case["name"].as_str().unwrap_or("(no name)");
        tally.check(file, name, check(case));
    }
    Some(())
}

// ---- rpc.json: calls through two real endpoints

fn call_case(case: &Json) -> Verdict {
    let mut frames = frames(&case["frames"])?;
    let first_request = frames.iter_mut().find(|frame| frame.is_request());
    let mut req = None;
    if let Some(sent) = first_request {
        req = Some(sent.req);
        if let Some(rule) = check_call(case, sent)? {
            return Ok(Some(rule));
        }
    }
    let mut deviation = None;
    for frame in &frames {
        deviation = frame.check()?.or(deviation);
    }
    check_received(case, &frames)?;
    if case["outcome"]["pending"] == true {
        return Ok(Some(&NEVER_SETTLES));
    }
    if let (None, Some(req)) = (deviation, req) {
        check_outcome(case, &frames, req)?;
        return machines::replay(case);
    }
    Ok(deviation)
}

/// Builds the request from the described call, and compares it with the recorded frame.
fn check_call(case: &Json, sent: &mut Frame) -> Result<Deviation, String> {
    let sent_args = sent.message().and_then(|message| match message.body {
        Body::Request(request) => Some(request.args.read(None)),
        _ => None,
    });
    let model = match sent_args {
        Some(Err(error)) if is_lone_surrogate(&error) => return Ok(None), // no string of ours holds it
        Some(args) => args.ok(),
        None => None,
    };
    let mut differing = None;
    for uris in transformers(case) {
        let Some(call) = Call::read(&case["call"], model.as_deref()) else {
            return Ok(None); // not data: a circular object, a function among mixed arguments
        };
        match call.build(sent.req, uris.as_ref().map(|uris| uris as _)) {
            Err(EncodeError::RefCollision) => return Ok(Some(&REF_COLLISION)),
            Err(EncodeError::TooDeep { .. }) => return Err("call nests too deep".into()),
            Err(_) => return Ok(Some(&LENGTHS_WRAP)),
            Ok(None) => return Ok(None),
            Ok(Some(bytes)) if sent.is(&bytes) => return Ok(None),
            Ok(Some(bytes)) => differing = differing.or(Some(bytes)),
        }
    }
    let built = String::from_utf8_lossy(&differing.unwrap_or_default()).into_owned();
    Err(format!(
        "the request built from the call differs: {built:?}"
    ))
}

/// Checks that the handler got the last request's arguments.
fn check_received(case: &Json, frames: &[Frame]) -> Result<(), String> {
    let requests = frames.iter().filter(|frame| frame.is_request());
    let last = requests.last().and_then(Frame::message);
    let (Some(received), Some(message)) = (case["received"].as_array(), last) else {
        return Ok(());
    };
    let Body::Request(request) = message.body else {
        return Ok(());
    };
    for uris in transformers(case) {
        match request.args.read(uris.as_ref().map(|uris| uris as _)) {
            Ok(args) if received_same(received, &args, request.cancellation) => return Ok(()),
            Ok(_) => {}
            Err(error) if is_lone_surrogate(&error) => return Ok(()),
            Err(error) => return Err(error.to_string()),
        }
    }
    Err("the handler received other arguments".into())
}

fn received_same(received: &[Json], args: &[Passed], cancellation: bool) -> bool {
    let received = match received.split_last() {
        Some((last, rest)) if cancellation && last.get("@cancellationToken").is_some() => rest,
        _ if cancellation => return false,
        _ => received,
    };
    let mut pairs = received.iter().zip(args);
    received.len() == args.len() && pairs.all(|(recorded, arg)| passed_same(recorded, arg))
}

/// Checks that the caller got what the reply says.
fn check_outcome(case: &Json, frames: &[Frame], req: u32) -> Result<(), String> {
    let reply = frames.iter().find_map(|frame| match frame.message()?.body {
        Body::Reply(reply) if frame.req == req => Some(reply),
        _ => None,
    });
    let outcome = &case["outcome"];
    let Some(reply) = reply else {
        // The reply was too large to be recorded whole, or the caller gave up without one.
        let answered = |frame: &Frame| frame.req == req && frame.message_type.is_reply();
        return match outcome.get("ok").is_none() || frames.iter().any(answered) {
            true => Ok(()),
            false => Err("a result without a reply".into()),
        };
    };
    for uris in transformers(case) {
        let same = match reply.read(uris.as_ref().map(|uris| uris as _)) {
            Ok(Ok(passed)) => outcome.get("ok").is_some_and(|ok| passed_same(ok, &passed)),
            Ok(Err(thrown)) => outcome
                .get("err")
                .is_some_and(|err| thrown_same(err, &thrown)),
            Err(error) if is_lone_surrogate(&error) => true,
            Err(error) => return Err(error.to_string()),
        };
        if same {
            return Ok(());
        }
    }
    Err(format!("the caller got {outcome}, our reading differs"))
}

fn thrown_same(recorded: &Json, thrown: &Thrown) -> bool {
    let said = |key, ours: &Option<String>| {
        let ours = ours.as_deref();
        ours.is_none() || recorded["@error"][key].as_str() == ours
    };
    match thrown {
        Thrown::Error(error) => said("name", &error.name) && said("message", &error.message),
        Thrown::Other(value) if value.get("$isError").is_some() => true, // odd, and carried as it is
        Thrown::Other(value) => same(recorded, value),
    }
}

// ---- rpc-inject.json: hand-made bytes, and what the original sent back

fn inject_case(case: &Json) -> Verdict {
    let sent = frames(&case["sentByB"])?;
    for frame in &sent {
        frame.check()?;
    }
    let injected = match &case["injectedAtB"] {
        Json::Array(messages) => messages.iter().map(bytes_of).collect::<Result<_, _>>()?,
        message => vec![bytes_of(message)?],
    };
    let answers = machines::answers(&injected);
    let verdict = judge_injected(case, &sent, injected);
    match &verdict {
        Ok(None) if !machines::same_answers(&answers, &sent) => {
            Err(format!("our machine answers {answers:?}"))
        }
        Ok(Some(_)) if !machines::all_settled(&answers) => {
            Err(format!("our machine leaves somebody waiting: {answers:?}"))
        }
        _ => verdict,
    }
}

fn judge_injected(case: &Json, sent: &[Frame], injected: Vec<Bytes>) -> Verdict {
    let mut requests = Vec::new();
    let mut last_args = None;
    for message in injected {
        match outcome_of(message)? {
            Injected::Request(req, args) => {
                requests.push(req);
                last_args = args;
            }
            Injected::Refused(req, rule) => {
                if !is_refusal(sent, req) {
                    return Ok(Some(rule));
                }
                requests.push(req);
            }
            Injected::Quiet => {}
        }
    }
    let of = |wanted: fn(MessageType) -> bool| {
        let frames = sent.iter().filter(move |frame| wanted(frame.message_type));
        frames.map(|frame| frame.req).collect::<Vec<_>>()
    };
    if of(|kind| kind == MessageType::Acknowledged) != requests {
        return Err("not one ack for each request".into());
    }
    if of(MessageType::is_reply).len() < requests.len() {
        return Ok(Some(&NEVER_SETTLES));
    }
    match (case["received"].as_array(), last_args) {
        (Some(received), Some((args, cancellation))) => {
            match received_same(received, &args, cancellation) {
                true => Ok(None),
                false => Err("the handler received other arguments".into()),
            }
        }
        (None, Some(_)) if sent.iter().any(Frame::is_ok_reply) => Ok(Some(&INHERITED_METHOD)),
        _ => Ok(None),
    }
}

/// What this project's endpoint does with a message.
enum Injected {
    /// Runs a request, with these arguments unless Rust's strings cannot hold them.
    Request(u32, Option<(Vec<Passed>, bool)>),
    /// Sends an acknowledgement and an error reply.
    Refused(u32, &'static Rule),
    /// Sends nothing.
    Quiet,
}

fn outcome_of(message: Bytes) -> Result<Injected, String> {
    let decoded = match decode(message, &Limits::default()) {
        Ok(decoded) => decoded,
        Err(error) => {
            let request = error
                .header
                .filter(|header| header.message_type.is_request());
            let rule = match error.kind {
                DecodeErrorKind::ArgsNotArray => &ARGS_NOT_ARRAY,
                DecodeErrorKind::UnknownArgType(_) => &BAD_ARGUMENT,
                _ => &UNDECODABLE,
            };
            return Ok(request.map_or(Injected::Quiet, |header| {
                Injected::Refused(header.req, rule)
            }));
        }
    };
    let Body::Request(request) = decoded.body else {
        return Ok(Injected::Quiet);
    };
    match request.args.read(None) {
        Ok(args) => {
            let args = Some((args, request.cancellation));
            Ok(Injected::Request(decoded.req, args))
        }
        Err(ReadError::BadRef { .. }) => Ok(Injected::Refused(decoded.req, &BAD_ARGUMENT)),
        Err(error) if is_lone_surrogate(&error) => Ok(Injected::Request(decoded.req, None)),
        Err(error) => Err(error.to_string()),
    }
}

/// Whether the original, too, sent an acknowledgement and an error reply.
fn is_refusal(sent: &[Frame], req: u32) -> bool {
    let about = sent.iter().filter(|frame| frame.req == req);
    let types: Vec<_> = about.map(|frame| frame.message_type).collect();
    types == [MessageType::Acknowledged, MessageType::ReplyErrError]
}

// ---- ipc-net.json and rpc-timers.json: the bytes, and the behaviour of our machines

fn run_ipc(file: &str, value: &Json, tally: &mut Tally) -> Option<()> {
    let mut sessions = Sessions::default();
    for (name, entry) in value.as_object()? {
        let mut recorded = Vec::new();
        collect_frames(entry, &mut recorded);
        let bytes = ipc_entry(&recorded);
        let verdict = match sessions.check(name, entry) {
            Some(verdict) => bytes.and(verdict),
            None => Err("no session of that name is known".into()),
        };
        tally.check(file, name, verdict);
    }
    Some(())
}

fn collect_frames<'a>(value: &'a Json, found: &mut Vec<&'a Json>) {
    match value {
        Json::Object(entries)
            if ["hex", "type", "id"]
                .iter()
                .all(|&key| entries.contains_key(key)) =>
        {
            found.push(value)
        }
        Json::Object(entries) => entries
            .values()
            .for_each(|value| collect_frames(value, found)),
        Json::Array(items) => items.iter().for_each(|value| collect_frames(value, found)),
        _ => {}
    }
}

/// Reads all frames of an entry as one stream, whole and in chunks of several sizes.
fn ipc_entry(recorded: &[&Json]) -> Verdict {
    let mut stream = Vec::new();
    for frame in recorded {
        stream.extend_from_slice(&bytes_of(&frame["hex"])?);
    }
    for cut in [1, 5, 13, stream.len().max(1)] {
        let mut reader = IpcReader::new(1 << 20);
        let mut found = Vec::new();
        for chunk in stream.chunks(cut) {
            let mut input = Bytes::copy_from_slice(chunk);
            while let Some(frame) = reader.read(&mut input).map_err(|error| error.to_string())? {
                found.push(frame);
            }
        }
        if found.len() != recorded.len() || reader.is_inside_frame() {
            return Err(format!("{} frames in cuts of {cut}", found.len()));
        }
        for (frame, recorded) in found.iter().zip(recorded) {
            check_ipc_frame(frame, recorded)?;
        }
    }
    Ok(None)
}

fn check_ipc_frame(frame: &IpcFrame, recorded: &Json) -> Result<(), String> {
    let mut bytes = Vec::new();
    frame.write(&mut bytes).map_err(|error| error.to_string())?;
    let same = recorded["type"] == frame.frame_type.to_u8()
        && recorded["id"] == frame.id
        && recorded["ack"] == frame.ack
        && recorded["len"] == frame.payload.len()
        && bytes_of(&recorded["hex"])? == bytes;
    match same {
        true => Ok(()),
        false => Err(format!("{frame:?} is not {recorded}")),
    }
}

fn run_timers(file: &str, value: &Json, tally: &mut Tally) -> Option<()> {
    for (name, entry) in value.as_object()? {
        let verdict = machines::timer_case(name, entry);
        let verdict = verdict.unwrap_or_else(|| Err("no timer of that name is known".into()));
        tally.check(file, name, verdict);
    }
    Some(())
}
