//! loro: how payloads are cut into fragments and assembled, and how a payload's prefix is read.

use std::time::{Duration, Instant};

use breakbulk_link::{
    Budget, Cap, Config, Event, FaultKind, Frame, Inbound, Key, Limits, Link, PeerSupport,
    Received, Wire,
};
use breakbulk_wire::Loro;
use serde_json::{Value, json};

use super::drive::{expect, frames, link, unhex};
use super::{Rule, Tally, Verdict};

pub(crate) const OVERRUN_AT_ONCE: Rule = Rule {
    name: "overrun-at-once",
    reason: "bytes past totalSize fail the batch when they come, not once memory was spent on the rest",
};
pub(crate) const EMPTY_UNCUT: Rule = Rule {
    name: "empty-uncut",
    reason: "an empty payload is not fragmented: a header without data could never complete",
};
pub(crate) const VIEW_QUIRK: Rule = Rule {
    name: "view-quirk",
    reason: "a decoder that reads past the view it was given is a quirk of one language's arrays",
};

pub(crate) fn run(file: &str, value: &Value, tally: &mut Tally) -> Option<()> {
    match file {
        "fragments.json" => {
            for case in value.as_array()? {
                let name = format!("{} bytes at {}", case["payload_len"], case["threshold"]);
                tally.check(file, &format!("{name}, adapter"), adapter(case));
                // A threshold of 0 means never to cut, so nothing was recorded for a direct call.
                if !case["fragment_payload"].is_null() {
                    tally.check(file, &format!("{name}, direct"), direct(case));
                }
            }
        }
        "framed_fragments.json" => {
            for case in value.as_array()? {
                tally.check(file, case["name"].as_str()?, framed(case));
            }
        }
        "fragments_large.json" => {
            for case in value.as_array()? {
                tally.check(
                    file,
                    &format!("{} bytes at {}", case["payload_len"], case["threshold"]),
                    large(case),
                );
            }
        }
        "transport_parse.json" => {
            for case in value.as_array()? {
                tally.check(file, case["name"].as_str()?, parse(case));
            }
        }
        "reassembler.json" => {
            for script in value["scripts"].as_array()? {
                tally.check(file, script["name"].as_str()?, reassemble(script));
            }
            for (name, _) in value
                .as_object()?
                .iter()
                .filter(|(name, _)| *name != "scripts")
            {
                tally.check(
                    file,
                    name,
                    if name == "decode_on_subarray_view" {
                        view()
                    } else {
                        Err("unknown entry".into())
                    },
                );
            }
        }
        _ => return None,
    }
    Some(())
}

/// `byte i = (i*7+3)&255`.
fn payload(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + 3) as u8).collect()
}

fn hexes(value: &Value) -> Option<Vec<Vec<u8>>> {
    value
        .as_array()?
        .iter()
        .map(|hex| unhex(hex.as_str()?))
        .collect()
}

fn sent(payload: &[u8], key: &[u8], threshold: usize) -> Result<Vec<Vec<u8>>, String> {
    let mut link = link(Loro, Loro, Config::new(Loro::rules()), Budget::unlimited());
    frames(
        &mut link,
        payload,
        Some(Key::new(key)),
        PeerSupport::Unknown,
        Cap::piece(threshold),
    )
    .map_err(|error| error.to_string())
}

/// What an adapter sends: whole up to the threshold, in fragments above it.
fn adapter(case: &Value) -> Verdict {
    let payload = case["payload"]
        .as_str()
        .and_then(unhex)
        .ok_or("no payload")?;
    expect(&self::payload(payload.len()), &payload)?;
    let threshold = case["threshold"].as_u64().ok_or("no threshold")? as usize;
    let key = [1, 2, 3, 4, 5, 6, 7, 8];
    expect(
        hexes(&case["adapter_payloads"]).ok_or("no payloads")?,
        sent(&payload, &key, threshold)?,
    )?;
    Ok(None)
}

/// A direct call cuts payloads below the threshold too: where both cut, the pieces are the same.
fn direct(case: &Value) -> Verdict {
    let payload = case["payload"]
        .as_str()
        .and_then(unhex)
        .ok_or("no payload")?;
    let expected = hexes(&case["fragment_payload"]).ok_or("no fragments")?;
    let overhead: usize = expected.iter().map(Vec::len).sum::<usize>() - payload.len();
    expect(case["overhead"].as_u64(), Some(overhead as u64))?;
    if payload.is_empty() {
        return Ok(Some(&EMPTY_UNCUT));
    }
    let mut receiver = receiver(&json!({}));
    let last = expected
        .iter()
        .map(|frame| receive(&mut receiver, frame).0)
        .last();
    expect(
        Some(json!({ "status": "complete", "data": { "$hex": hex(&payload) } })),
        last,
    )?;
    let threshold = case["threshold"].as_u64().ok_or("no threshold")? as usize;
    if payload.len() > threshold {
        expect(
            expected,
            sent(&payload, &[1, 2, 3, 4, 5, 6, 7, 8], threshold)?,
        )?;
    }
    Ok(None)
}

fn framed(case: &Value) -> Verdict {
    let frame = case["frame"].as_str().and_then(unhex).ok_or("no frame")?;
    let threshold = case["threshold"].as_u64().ok_or("no threshold")? as usize;
    let key = [0xa1, 0xb2, 0xc3, 0xd4, 0xe5, 0xf6, 7, 8];
    expect(
        hexes(&case["payloads"]).ok_or("no payloads")?,
        sent(&frame, &key, threshold)?,
    )?;
    Ok(None)
}

fn large(case: &Value) -> Verdict {
    let number = |name: &str| {
        case[name]
            .as_u64()
            .map(|number| number as usize)
            .ok_or(format!("no {name}"))
    };
    let payload = payload(number("payload_len")?);
    expect(case["payload_sha256"].as_str(), Some(&*sha256(&payload)))?;
    let frames = sent(
        &payload,
        &[0xa1, 0xb2, 0xc3, 0xd4, 0xe5, 0xf6, 7, 8],
        number("threshold")?,
    )?;
    expect(number("count")?, frames.len())?;
    let sizes = case["sizes"].as_array().ok_or("no sizes")?;
    let gap = sizes
        .iter()
        .position(|size| size == "...")
        .unwrap_or(sizes.len());
    let (front, back) = (&sizes[..gap], &sizes[(gap + 1).min(sizes.len())..]);
    for (size, frame) in front
        .iter()
        .zip(&frames)
        .chain(back.iter().rev().zip(frames.iter().rev()))
    {
        expect(size.as_u64(), Some(frame.len() as u64))?;
    }
    let all = frames.concat();
    expect(
        case["sha256_of_concatenation"].as_str(),
        Some(&*sha256(&all)),
    )?;
    let first = case["first"].as_str().ok_or("no first")?;
    expect(true, hex(&frames[0]).starts_with(first))?;
    Ok(None)
}

fn parse(case: &Value) -> Verdict {
    let payload = case["payload"]
        .as_str()
        .and_then(unhex)
        .ok_or("no payload")?;
    let frame = Frame::Binary(payload.into());
    let parsed = match Loro.read(&frame) {
        Err(fault) => {
            return expect(case["code"].as_str(), Some(Loro.code(&fault.kind))).map(|()| None);
        }
        Ok(Inbound::Whole(data, _)) => json!({ "kind": "message", "data": { "$hex": hex(data) } }),
        Ok(Inbound::Open(opening)) => json!({
            "kind": "fragment-header", "batchId": { "$hex": hex(opening.key.as_bytes()) },
            "count": opening.count, "totalSize": opening.bytes,
        }),
        Ok(Inbound::Piece(piece)) => json!({
            "kind": "fragment-data", "batchId": { "$hex": hex(piece.key.as_bytes()) },
            "index": piece.seq, "data": { "$hex": hex(piece.data) },
        }),
        Ok(other) => return Err(format!("read as {other:?}")),
    };
    expect(&case["parsed"], &parsed)?;
    Ok(None)
}

fn receiver(config: &Value) -> Link {
    let number = |name: &str, default: usize| {
        config[name]
            .as_u64()
            .map_or(default, |number| number as usize)
    };
    let mut link_config = Config::new(Loro::rules());
    // The original counts from the header; this project by default counts the time without a piece.
    link_config.rules.timeouts.idle = None;
    link_config.rules.timeouts.age_rate = None;
    link_config.rules.timeouts.age =
        Some(Duration::from_millis(number("timeoutMs", 10_000) as u64));
    link_config.limits = Limits::default().with(|limits| {
        limits.transfers = number("maxConcurrentBatches", 32);
        limits.pending_bytes = number("maxTotalReassemblyBytes", 50 << 20);

        // The original has no limit on a message; this project's limit is a setting.
        limits.message = u32::MAX as usize;
        limits.pieces = u64::MAX;
    });
    link(Loro, Loro, link_config, Budget::unlimited())
}

fn reassemble(script: &Value) -> Verdict {
    let mut link = receiver(&script["config"]);
    let Some(steps) = script["steps"].as_array() else {
        return eviction_order(script, &mut link);
    };
    for (number, step) in steps.iter().enumerate() {
        let at = |what: String| format!("step {number}: {what}");
        let frame = step["in"]
            .as_str()
            .and_then(unhex)
            .ok_or_else(|| at("no frame".into()))?;
        let (result, callbacks, fault) = receive(&mut link, &frame);
        if expect(&brief(&step["result"]), &brief(&result)).is_err() {
            // Steps after a deviating one are not compared.
            return match fault {
                Some(FaultKind::Overrun { .. }) if step["result"]["status"] == "pending" => {
                    Ok(Some(&OVERRUN_AT_ONCE))
                }
                _ => Err(at(format!("expected {} but got {result}", step["result"]))),
            };
        }
        expect(step.get("callbacks").unwrap_or(&json!([])), &callbacks).map_err(at)?;
        expect(
            step["pending_batches"].as_u64(),
            Some(link.open_transfers() as u64),
        )
        .map_err(at)?;
        expect(
            step["pending_bytes"].as_u64(),
            Some(link.pending_bytes() as u64),
        )
        .map_err(at)?;
    }
    Ok(None)
}

/// A script that only says which batch is evicted when three of one millisecond meet a limit of two.
fn eviction_order(script: &Value, link: &mut Link) -> Verdict {
    let evicted = script["evicted"]
        .as_array()
        .and_then(|ids| ids.first()?.as_str())
        .ok_or("neither steps nor evicted")?;
    let first = unhex(evicted).ok_or("no batchId")?;
    let mut callbacks = Value::Null;
    for number in 0..=script["config"]["maxConcurrentBatches"]
        .as_u64()
        .ok_or("no limit")?
    {
        let id = if number == 0 {
            first.clone()
        } else {
            number.wrapping_sub(1).to_be_bytes().to_vec()
        };
        callbacks = receive(link, &[vec![1], id, vec![0, 0, 0, 2, 0, 0, 0, 6]].concat()).1;
    }
    expect(json!([{ "evicted": evicted }]), callbacks)?;
    Ok(None)
}

/// A slice of a larger buffer reads like any other bytes.
fn view() -> Verdict {
    let buffer = bytes::Bytes::from_static(
        b"\xff\xff\x00\x02\x00\x00\x00\x00\x0f\xa2\x61\x74\x18\x30\x63doc\x65doc-1\xff",
    );
    let frame = Frame::Binary(buffer.slice(2..25));
    let Ok(Inbound::Whole(message, _)) = Loro.read(&frame) else {
        return Err("not read as a message".into());
    };
    let message = buffer.slice_ref(message);
    breakbulk_message::loro::decode_frame(message).map_err(|error| error.to_string())?;
    Ok(Some(&VIEW_QUIRK))
}

/// Handles one frame, and returns result and callbacks in the notation of the vectors, and the fault.
fn receive(link: &mut Link, frame: &[u8]) -> (Value, Value, Option<FaultKind>) {
    let received = link.handle_frame(Instant::now(), Frame::Binary(frame.to_vec().into()));
    let (mut data, mut callbacks) = (None, Vec::new());
    while let Some(event) = link.poll_event() {
        match event {
            Event::Message(message) => data = Some(hex(&message.bytes)),
            Event::TransferFailed(fault) if fault.kind == FaultKind::Evicted => {
                // An eviction of the frame's own batch is reported twice: as its failure and as an event.
                let evicted = json!({ "evicted": fault.key.map(|key| hex(key.as_bytes())) });
                if !callbacks.contains(&evicted) {
                    callbacks.push(evicted);
                }
            }
            _ => {}
        }
    }
    let callbacks = Value::Array(callbacks);
    match received {
        Received::Done(_) => (
            json!({ "status": "complete", "data": { "$hex": data } }),
            callbacks,
            None,
        ),
        Received::Pending | Received::Ignored | Received::Unmatched(_) => {
            (json!({ "status": "pending" }), callbacks, None)
        }
        // The original takes no notice of a second header.
        Received::Fault(fault) if fault.kind == FaultKind::Reopened => {
            (json!({ "status": "pending" }), callbacks, None)
        }
        Received::Fault(fault) => (
            error(&fault.kind, fault.key.as_ref()),
            callbacks,
            Some(fault.kind),
        ),
    }
}

fn error(kind: &FaultKind, key: Option<&Key>) -> Value {
    let code = Loro.code(kind);
    let batch = json!({ "$hex": key.map(|key| hex(key.as_bytes())) });
    let error = match kind {
        FaultKind::BadIndex { index, count } => {
            json!({ "type": code, "batchId": batch, "index": index, "max": count - 1 })
        }
        FaultKind::Duplicate { index } => json!({ "type": code, "batchId": batch, "index": index }),
        FaultKind::SizeMismatch { size, declared } => {
            json!({ "type": code, "expected": declared, "actual": size })
        }
        FaultKind::Evicted => json!({ "type": code, "batchId": batch }),
        FaultKind::Malformed { .. } | FaultKind::UnknownKind => json!({ "type": "parse_error" }),
        _ => json!({ "type": code }),
    };
    json!({ "status": "error", "error": error })
}

/// A result without the texts of its error.
fn brief(result: &Value) -> Value {
    let mut result = result.clone();
    if let Some(error) = result["error"].as_object_mut() {
        error.remove("message");
    }
    result
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn sha256(bytes: &[u8]) -> String {
    use sha2::Digest;
    hex(&sha2::Sha256::digest(bytes))
}
