//! Recorded calls, injected bytes and timers against our RPC machine.

use std::time::{Duration, Instant};

use breakbulk_message::vscode::{Args, Body, Reply, Request, RpcId, SerializedError, Text, Thrown};
use breakbulk_vscode::machine::rpc::{CallFailed, Config, Event, Packet, RequestId, Rpc};
use bytes::Bytes;
use serde_json::Value as Json;

use super::frames::Frame;
use super::values::bytes_of;
use super::{Deviation, REQUEST_ZERO, SILENT_AFTER_DISPOSE, Verdict};

/// How many milliseconds a recorded timer may have been late.
const LATE: u64 = 100;

fn sent(rpc: &mut Rpc) -> Vec<Bytes> {
    let packets = std::iter::from_fn(|| rpc.poll_transmit());
    packets.map(|packet: Packet| packet.to_bytes()).collect()
}

/// Replays a call with a machine at both ends: each must send the recorded frames.
pub(super) fn replay(case: &Json) -> Result<Deviation, String> {
    let now = Instant::now();
    let mut ends = [Rpc::new(Config::default()), Rpc::new(Config::default())];
    let mut running: Vec<RequestId> = Vec::new();
    let mut first = true;
    for recorded in case["frames"].as_array().into_iter().flatten() {
        let frame = Frame::read(recorded)?;
        let Some(message) = frame.message() else {
            return Ok(None); // not recorded whole
        };
        let (from, to) = match recorded["dir"].as_str() {
            Some("A>B") => (0, 1),
            _ => (1, 0),
        };
        let id = running.iter().position(|id| id.req() == message.req);
        match (message.body, id) {
            (Body::Request(request), _) => {
                if std::mem::take(&mut first) {
                    ends[from].set_last_id(message.req.wrapping_sub(1));
                }
                let req = ends[from].call(now, request);
                if message.req == 0 {
                    return Ok(Some(&REQUEST_ZERO));
                }
                if req != Ok(message.req) {
                    return Err(format!("the call has number {req:?}"));
                }
            }
            (Body::Cancel, _) => {
                ends[from].cancel(message.req);
            }
            (Body::Acknowledged, Some(at)) => ends[from].acknowledge(running[at]),
            (Body::Reply(reply), Some(at)) => {
                let replied = ends[from].reply(running.remove(at), reply);
                replied.map_err(|error| error.to_string())?;
            }
            (body, None) => return Err(format!("nothing runs for {body:?}")),
        }
        match &sent(&mut ends[from])[..] {
            [bytes] if frame.bytes == bytes => ends[to].handle_message(now, bytes.clone()),
            other => return Err(format!("our machine sends {other:?}")),
        }
        while let Some(event) = ends[to].poll_event() {
            if let Event::Request { id, .. } = event {
                running.push(id);
            }
        }
    }
    let [a, b] = ends;
    match (a.pending_calls(), a.unacknowledged(), b.running_requests()) {
        (0, 0, 0) => Ok(None),
        left => Err(format!("at the end {left:?} are left")),
    }
}

/// What our machine answers, with the recorded handler: `$m` of object 2 returns "r".
pub(super) fn answers(injected: &[Bytes]) -> Vec<Bytes> {
    let mut rpc = Rpc::new(Config::default());
    let mut replies = Vec::new();
    for message in injected {
        rpc.handle_message(Instant::now(), message.clone());
        while let Some(event) = rpc.poll_event() {
            if let Event::Request { id, request } = event {
                rpc.acknowledge(id);
                replies.push((id, handled(&request)));
            }
        }
    }
    for (id, reply) in replies {
        // If the machine refuses the reply, it sends an error, which is compared like any other answer.
        let _ = rpc.reply(id, reply);
    }
    sent(&mut rpc)
}

fn handled(request: &Request) -> Reply {
    let error = |text: &str| {
        let thrown = Thrown::from(SerializedError::new("Error", text));
        Reply::write_err(&thrown).unwrap_or(Reply::ErrEmpty)
    };
    let known = request.rpc_id.get() == 2 && request.method == "$m";
    match request.args.read(None) {
        _ if !known => error("Unknown method"),
        Err(why) if !super::is_lone_surrogate(&why) => error(&why.to_string()),
        _ => Reply::OkJson(Text::from_static("\"r\"")),
    }
}

/// Whether the answers are the recorded ones; the texts of errors may differ.
pub(super) fn same_answers(ours: &[Bytes], recorded: &[Frame]) -> bool {
    let is_error = |bytes: &Bytes| bytes.first() == Some(&11);
    let mut pairs = ours.iter().zip(recorded);
    ours.len() == recorded.len()
        && pairs.all(|(ours, recorded)| {
            let head = is_error(ours) && recorded.bytes.get(..5) == ours.get(..5);
            head || recorded.bytes == ours
        })
}

/// Whether every request that the machine answers has one acknowledgement and one reply.
pub(super) fn all_settled(ours: &[Bytes]) -> bool {
    let count = |wanted: fn(u8) -> bool| {
        let of_type = |bytes: &&Bytes| bytes.first().is_some_and(|kind| wanted(*kind));
        ours.iter().filter(of_type).count()
    };
    count(|kind| kind == 5) == count(|kind| kind >= 7)
}

/// `rpc-timers.json`
pub(super) fn timer_case(name: &str, entry: &Json) -> Option<Verdict> {
    Some(match name {
        "responsive" => responsive(entry),
        "dispose_callee" => dispose_callee(entry),
        "dispose_caller" => dispose_caller(entry),
        "id_after_throw" => id_after_throw(entry),
        _ => return None,
    })
}

fn request() -> Result<Request, String> {
    Ok(Request {
        rpc_id: RpcId::new(1).map_err(|error| error.to_string())?,
        method: Text::from_static("$m"),
        args: Args::Json(Text::from_static("[1]")),
        cancellation: false,
    })
}

fn call(rpc: &mut Rpc, now: Instant) -> Result<u32, String> {
    rpc.call(now, request()?).map_err(|error| error.to_string())
}

fn expected_bytes(entry: &Json) -> Result<Vec<Bytes>, String> {
    let sent = entry["sent"].as_array().into_iter().flatten();
    sent.map(bytes_of).collect()
}

/// One call, acknowledged late; then two, of which one is acknowledged after 2.5 s.
fn responsive(entry: &Json) -> Verdict {
    let recorded: Vec<(u64, String)> = entry["events"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|event| Some((event["t"].as_u64()?, event["s"].as_str()?.to_owned())))
        .collect();
    let back_at = recorded.last().ok_or("no events")?.0;
    let start = Instant::now();
    let mut rpc = Rpc::new(Config::default());
    let mut told = Vec::new();
    for millis in 0..back_at + 3000 {
        let now = start + Duration::from_millis(millis);
        let calls = match millis {
            0 => 1,
            _ if millis == back_at + 1 => 2,
            _ => 0,
        };
        for _ in 0..calls {
            call(&mut rpc, now)?;
        }
        if millis == back_at || millis == back_at + 2501 {
            rpc.handle_message(now, Bytes::from_static(&[5, 0, 0, 0, 1]));
        }
        if rpc.poll_timeout().is_some_and(|(at, _)| now >= at) {
            rpc.handle_timeout(now);
        }
        while let Some(event) = rpc.poll_event() {
            told.push((millis, format!("{event:?}")));
        }
    }
    let same = told.len() == recorded.len()
        && told
            .iter()
            .zip(&recorded)
            .all(|((ours, what), (theirs, said))| what == said && theirs.abs_diff(*ours) <= LATE);
    match same && entry["unacked"] == rpc.unacknowledged() {
        true => Ok(None),
        false => Err(format!(
            "our machine tells {told:?}, and {} are owed",
            rpc.unacknowledged()
        )),
    }
}

/// A handler that ends after the dispose: the original still sends its reply.
fn dispose_callee(entry: &Json) -> Verdict {
    let recorded = expected_bytes(entry)?;
    let now = Instant::now();
    let (mut caller, mut callee) = (Rpc::new(Config::default()), Rpc::new(Config::default()));
    call(&mut caller, now)?;
    for bytes in sent(&mut caller) {
        callee.handle_message(now, bytes);
    }
    let Some(Event::Request { id, .. }) = callee.poll_event() else {
        return Err("the request did not arrive".into());
    };
    callee.acknowledge(id);
    let mut ours = sent(&mut callee);
    callee.dispose();
    let late = Reply::OkJson(Text::from_static("\"late\""));
    if callee.reply(id, late).is_ok() {
        return Err("a reply was taken after the dispose".into());
    }
    ours.extend(sent(&mut callee));
    match recorded.split_last() {
        Some((_, before)) if ours == before => Ok(Some(&SILENT_AFTER_DISPOSE)),
        _ => Err(format!("our machine sends {ours:?}")),
    }
}

fn dispose_caller(entry: &Json) -> Verdict {
    let now = Instant::now();
    let mut rpc = Rpc::new(Config::default());
    let req = call(&mut rpc, now)?;
    let mut ours = sent(&mut rpc);
    rpc.dispose();
    let canceled = Some(Event::Reply {
        req,
        outcome: Err(CallFailed::Canceled),
    });
    if rpc.poll_event() != canceled {
        return Err("the pending call is not cancelled".into());
    }
    let later = call(&mut rpc, now);
    if later != Err("Canceled".to_owned()) {
        return Err(format!("a later call gives {later:?}"));
    }
    ours.extend(sent(&mut rpc));
    match ours == expected_bytes(entry)? {
        true => Ok(None),
        false => Err(format!("our machine sends {ours:?}")),
    }
}

/// A call that cannot be encoded uses up no request number.
fn id_after_throw(entry: &Json) -> Verdict {
    let now = Instant::now();
    let mut rpc = Rpc::new(Config::default());
    let unwritable = Request {
        method: "m".repeat(256).as_str().into(),
        ..request()?
    };
    if rpc.call(now, unwritable).is_ok() {
        return Err("a call that cannot be written was taken".into());
    }
    call(&mut rpc, now)?;
    let ours = sent(&mut rpc);
    match ours == expected_bytes(entry)? {
        true => Ok(None),
        false => Err(format!("our machine sends {ours:?}")),
    }
}
