//! tywrap: the lines that both writers write, how any line is read, and what a bridge and a host do.

mod bridge;
mod host;

use std::time::Instant;

use breakbulk_link::{
    Budget, Cap, Config, Event, Frame, Limits, Link, PeerLimits, PeerSupport, Received, SendError,
    Wire,
};
use breakbulk_wire::{Stream, Style, Tywrap};
use serde_json::{Value, json};

use super::drive::{expect, frames, link};
use super::{Rule, Tally, Verdict};

const PYTHON_OPTIONS: Rule = Rule {
    name: "python-options",
    reason: "a bad stream or id is refused as the TypeScript writer does, not let pass or named otherwise",
};
const LONE_SURROGATES: Rule = Rule {
    name: "lone-surrogates",
    reason: "half a character is FRAME_INVALID_UTF8 when it comes in and NotUtf8 when it should go out: it cannot be kept",
};
const PLAIN_INTEGERS: Rule = Rule {
    name: "plain-integers",
    reason: "1.0 and 1e3 are FRAME_MALFORMED as in Python: numbers on the wire are plain integer tokens",
};
const OVERRUN_AT_ONCE: Rule = Rule {
    name: "overrun-at-once",
    reason: "bytes past totalBytes fail with FRAME_BYTES_MISMATCH when they come, not once memory was spent on the rest",
};

pub(crate) const RULES: &[Rule] = &[
    PYTHON_OPTIONS,
    LONE_SURROGATES,
    PLAIN_INTEGERS,
    OVERRUN_AT_ONCE,
    bridge::OWN_WORDS,
    bridge::BOTH_HANDSHAKES,
    bridge::NO_CRASH,
    bridge::NOT_UTF8,
    bridge::OWN_TRACEBACK,
    bridge::TABLE,
    host::EXITED,
    host::UNNAMED,
    host::FRAME_IDS,
    host::NESTED,
    host::SURROGATES,
    host::RAW_UTF8,
];

pub(crate) fn run(file: &str, value: &Value, tally: &mut Tally) -> Option<()> {
    match file {
        "split_ts.json" => split(file, Style::Compact, value, tally),
        "split_py.json" => split(file, Style::Ascii, value, tally),
        "reassembly.json" => {
            for case in value["cases"].as_array()? {
                tally.check(file, case["name"].as_str()?, reassemble(case));
            }
            Some(())
        }
        "bridge_transcripts.json" => bridge::run(file, value, tally),
        "ts_host_behaviour.json" => host::run(file, value, tally),
        // Values of Python, which the tests of the bridges run.
        "values.json" => {
            tally.leave_to_tests(value["cases"].as_array()?.len());
            Some(())
        }
        _ => None,
    }
}

fn split(file: &str, style: Style, value: &Value, tally: &mut Tally) -> Option<()> {
    for case in value["cases"].as_array()? {
        let name = format!("{} at {}", case["name"], case["maxFrameBytes"]);
        let verdict = case["message"].as_str().ok_or("no message".to_owned());
        tally.check(
            file,
            &name,
            verdict.and_then(|message| split_case(case, style, message)),
        );
    }
    for case in value["loneSurrogates"].as_array()? {
        tally.check(
            file,
            &format!("{} (surrogates)", case["name"]),
            surrogates(case, style),
        );
    }
    for case in value["badOptions"].as_array()? {
        tally.check(
            file,
            &format!("options {}", case["opts"]),
            bad_options(case, style),
        );
    }
    Some(())
}

fn split_case(case: &Value, style: Style, message: &str) -> Verdict {
    let lines: Vec<&str> = case["lines"]
        .as_array()
        .ok_or("no lines")?
        .iter()
        .filter_map(Value::as_str)
        .collect();
    expect(case["totalBytes"].as_u64(), Some(message.len() as u64))?;
    let written = write(
        &case["stream"],
        &case["id"],
        &case["maxFrameBytes"],
        style,
        message.as_bytes(),
    );
    let written = written.map_err(|code| format!("refused with {code}"))?;
    let written: Vec<_> = written
        .iter()
        .map(|frame| String::from_utf8_lossy(frame))
        .collect();
    expect(lines.len(), written.len())?;
    lines
        .iter()
        .zip(&written)
        .try_for_each(|(line, frame)| expect(*line, frame))?;
    // The recorded lines read back as the message.
    let mut receiver = receiver(None, None);
    let last = lines.iter().map(|line| accept(&mut receiver, line)).last();
    expect(Some(json!({ "value": message })), last)?;
    Ok(None)
}

fn surrogates(case: &Value, style: Style) -> Verdict {
    let units = case["messageUtf16"].as_array().ok_or("no units")?;
    let units: Vec<u16> = units
        .iter()
        .filter_map(|unit| unit.as_u64()?.try_into().ok())
        .collect();
    if let Ok(text) = String::from_utf16(&units) {
        return split_case(case, style, &text);
    }
    // Invalid UTF-8 that encodes half a surrogate pair, the closest that bytes come to it.
    let bytes: Vec<u8> = units
        .iter()
        .flat_map(|unit| {
            [
                0xe0 | (unit >> 12) as u8,
                0x80 | (unit >> 6 & 63) as u8,
                0x80 | (unit & 63) as u8,
            ]
        })
        .collect();
    let written = write(&json!("request"), &json!(1), &json!(8), style, &bytes);
    expect(Err("FRAME_INVALID_UTF8"), written)?;
    Ok(Some(&LONE_SURROGATES))
}

fn bad_options(case: &Value, style: Style) -> Verdict {
    let opts = &case["opts"];
    let max = opts
        .get("maxFrameBytes")
        .or(opts.get("max_frame_bytes"))
        .unwrap_or(&Value::Null);
    let code = write(&opts["stream"], &opts["id"], max, style, b"message").err();
    if code == case["code"].as_str() {
        return Ok(None);
    }
    match (style, code) {
        (Style::Ascii, Some("FRAME_BAD_STREAM" | "FRAME_BAD_ID")) => Ok(Some(&PYTHON_OPTIONS)),
        _ => Err(format!("gave {code:?}")),
    }
}

/// All frames of a message, or the writers' own code for an invalid option.
fn write(
    stream: &Value,
    id: &Value,
    max: &Value,
    style: Style,
    message: &[u8],
) -> Result<Vec<Vec<u8>>, &'static str> {
    // Options that Rust's types cannot hold are refused when the text is converted.
    let max = max.as_u64().ok_or("FRAME_BAD_MAX_BYTES")? as usize;
    let stream = stream
        .as_str()
        .and_then(Stream::from_name)
        .ok_or("FRAME_BAD_STREAM")?;
    let id = id.as_i64().ok_or("FRAME_BAD_ID")?;
    let wire = Tywrap {
        style,
        always: true,
        ..Tywrap::default()
    };
    let mut link = link(
        wire,
        wire,
        Config::new(Tywrap::rules()),
        Budget::unlimited(),
    );
    let peer = PeerSupport::Yes(PeerLimits::NONE);
    frames(
        &mut link,
        message,
        Some(stream.key(id)),
        peer,
        Cap::piece(max),
    )
    .map_err(|error| match error {
        SendError::CapTooSmall { .. } => "FRAME_BAD_MAX_BYTES",
        SendError::BadKey { .. } => "FRAME_BAD_ID",
        SendError::NotUtf8 => "FRAME_INVALID_UTF8",
        _ => "another error",
    })
}

fn receiver(expects: Option<Stream>, cap: Option<usize>) -> Link {
    let mut config = Config::new(Tywrap::rules());
    config.limits = Limits::default().with(|limits| {
        limits.message = cap.unwrap_or(usize::MAX / 4);
        limits.pieces = u64::MAX;
        limits.transfers = 1024;
        limits.memory = 1 << 30;
        limits.undelivered = usize::MAX;
    });
    let wire = Tywrap {
        expects,
        ..Tywrap::default()
    };
    link(wire, wire, config, Budget::unlimited())
}

fn reassemble(case: &Value) -> Verdict {
    let expects = case["expectedStream"].as_str().and_then(Stream::from_name);
    let mut link = receiver(
        expects,
        case["maxReassemblyBytes"].as_u64().map(|cap| cap as usize),
    );
    let (steps, ts, py) = (&case["steps"], &case["ts"], &case["py"]);
    for (number, step) in steps.as_array().ok_or("no steps")?.iter().enumerate() {
        let got = self::step(&mut link, step)
            .ok_or_else(|| format!("step {number} is of no known kind"))?;
        let (ts, py) = (plain(&ts[number]), plain(&py[number]));
        if got == ts && got == py {
            continue;
        }
        // Steps after a deviating one are not compared.
        let code = got["error"].as_str().unwrap_or_default();
        let line = step["line"].as_str().unwrap_or_default();
        return match code {
            "FRAME_INVALID_UTF8" if has_lone_surrogate(line) => Ok(Some(&LONE_SURROGATES)),
            "FRAME_MALFORMED" if got == py || has_fraction(line) => Ok(Some(&PLAIN_INTEGERS)),
            "FRAME_BYTES_MISMATCH" if overruns(line) => Ok(Some(&OVERRUN_AT_ONCE)),
            _ => Err(format!("step {number}: ts {ts}, py {py}, ours {got}")),
        };
    }
    Ok(None)
}

/// A recorded result without the texts of its error.
fn plain(result: &Value) -> Value {
    let mut result = result.clone();
    if let Some(object) = result.as_object_mut() {
        object.remove("message");
    }
    result
}

fn has_lone_surrogate(line: &str) -> bool {
    // Valid JSON whose strings cannot all be turned into text.
    serde_json::from_str::<serde::de::IgnoredAny>(line).is_ok()
        && serde_json::from_str::<Value>(line).is_err()
}

fn has_fraction(line: &str) -> bool {
    let frame: Value = serde_json::from_str(line).unwrap_or_default();
    ["id", "seq", "total", "totalBytes"]
        .iter()
        .any(|name| frame[name].is_f64())
}

fn overruns(line: &str) -> bool {
    let frame: Value = serde_json::from_str(line).unwrap_or_default();
    frame["data"].as_str().map(|data| data.len() as u64) > frame["totalBytes"].as_u64()
}

fn step(link: &mut Link, step: &Value) -> Option<Value> {
    let number = |name: &str| step[name].as_i64();
    Some(match step["op"].as_str()? {
        "accept" => accept(link, step["line"].as_str()?),
        "discard" => {
            discard(link, number("id")?);
            json!({})
        }
        "discard_range" => {
            let from = number("from")?;
            (from..from + number("count")?).for_each(|id| discard(link, id));
            json!({ "discardedCount": link.discarded() })
        }
        "fill" => {
            let first = number("firstId")?;
            for id in first..first + number("count")? {
                accept(
                    link,
                    &format!(
                        r#"{{"__tywrap_frame__":"chunk","frameProtocol":"tywrap-frame/1","stream":"response","id":{id},"seq":0,"total":2,"totalBytes":2,"encoding":"utf8-slice","data":"a"}}"#
                    ),
                );
            }
            json!({ "pendingCount": link.open_transfers() })
        }
        _ => return None,
    })
}

fn discard(link: &mut Link, id: i64) {
    link.discard(Stream::Response.key(id));
}

fn accept(link: &mut Link, line: &str) -> Value {
    let received = link.handle_frame(Instant::now(), Frame::Text(line.to_owned().into()));
    let mut value = None;
    while let Some(event) = link.poll_event() {
        if let Event::Message(message) = event {
            value = Some(String::from_utf8_lossy(&message.bytes).into_owned());
        }
    }
    match received {
        Received::Done(_) => json!({ "value": value }),
        Received::Pending | Received::Ignored | Received::Unmatched(_) => {
            json!({ "pending": true })
        }
        Received::Fault(fault) => json!({ "error": Tywrap::default().code(&fault.kind) }),
    }
}
