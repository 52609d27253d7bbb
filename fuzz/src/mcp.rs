//! The gateway's pure readers of MCP over HTTP. Their files are compiled into this crate, since in the gateway
//! they stand behind its feature `http`, with a web server that no fuzzer needs.

#[allow(dead_code, reason = "the gateway uses all of it")]
#[path = "../../crates/gateway/src/mcp/events.rs"]
mod events;
#[allow(dead_code, reason = "the gateway uses all of it")]
#[path = "../../crates/gateway/src/mcp/message.rs"]
mod message;

#[allow(dead_code, reason = "the gateway uses all of it")]
#[path = "../../crates/gateway/src/mcp/door/streams.rs"]
mod streams;
#[allow(dead_code, reason = "the gateway uses all of it")]
#[path = "../../crates/net/src/sse/text.rs"]
mod text;

use std::time::{Duration, Instant};

use breakbulk_link::Budget;
use bytes::Bytes;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::Input;
use events::{Event, Reader};
use message::{Message, Unreadable, chosen_version};
use streams::{OWN, Streams, Taken};
use text::EventText;

/// The longest line that is not data, as in the reader.
const LINE: usize = 4 << 10;

/// Reads an event stream at once and in any parts: the events are the same, within the limit.
pub fn event_stream(mut input: Input<'_>) {
    let limit = input.pick(&[0, 1, 7, 64, 1000, 65536]);
    let step = 1 + input.below(16);
    let stream = input.rest();
    let at_once = read(stream, limit, stream.len().max(1));
    assert_eq!(at_once, read(stream, limit, step), "in parts of {step}");
    for event in &at_once {
        match event {
            Event::Whole { data, .. } => assert!(data.len() <= limit),
            Event::TooLarge { size, .. } => assert!(*size > limit as u64),
            Event::Retry(_) => {}
        }
    }
    written(stream);
}

fn read(stream: &[u8], limit: usize, step: usize) -> Vec<Event> {
    let (mut reader, mut events) = (Reader::new(limit), Vec::new());
    for part in stream.chunks(step) {
        reader.feed(part, |event| events.push(event));
        // What the reader holds of an incomplete event.
        assert!(reader.held() <= 2 * (limit + LINE) + 64, "{}", reader.held());
    }
    events
}

/// A written event is read back; line breaks in the data count as white space there.
fn written(data: &[u8]) {
    let data = Bytes::copy_from_slice(data);
    let most = 1 + data.len() % 7;
    let chunks: Vec<Bytes> = EventText::new(Some("7-8"), data.clone(), most).collect();
    // A line break takes up to seven bytes.
    assert!(chunks.len() <= 3 + 2 * data.len());
    let event = chunks.concat();
    let mut expected = data.to_vec();
    for byte in &mut expected {
        if *byte == b'\r' {
            *byte = b'\n';
        }
    }
    let whole = Event::Whole {
        id: Some("7-8".to_owned()),
        data: expected.into(),
    };
    assert_eq!(read(&event, data.len(), event.len()), [whole]);
    let primer = read(&events::primer("7-9", 1000), 10, 3);
    assert_eq!(primer.len(), 2, "{primer:?}");
}

/// Reads the body of a POST.
pub fn body(bytes: &[u8]) {
    let json = serde_json::from_slice::<&RawValue>(bytes);
    match Message::read(bytes) {
        Ok(message) => {
            assert!(json.is_ok(), "a message is JSON");
            check(&message);
        }
        Err(
            Unreadable::NoJson
            | Unreadable::NoMessage
            | Unreadable::TooLong(_)
            | Unreadable::TooMany(_),
        ) => {}
    }
    if let Some(version) = chosen_version(bytes)
        && let Ok(value) = serde_json::from_slice::<Value>(bytes)
    {
        assert_eq!(value["result"]["protocolVersion"], version.as_str());
    }
}

fn check(message: &Message) {
    for request in message.requests() {
        // What is put into an answer, and what ids are compared by, is one JSON value each.
        for id in [&request.id, &request.key] {
            let id: &RawValue = serde_json::from_str(id).expect("an id is JSON");
            assert!(!id.get().starts_with(['{', '[']), "{id}");
        }
        if let Some(version) = request.version() {
            assert!(!message.is_initialize(), "{version}");
        }
    }
    for id in message.answers() {
        serde_json::from_str::<&RawValue>(id).expect("an id is JSON");
    }
    if message.is_initialize() {
        assert_eq!(message.requests().len(), 1);
    }
}

/// The streams of a session: clients open, read, leave, return and cancel, and a server sends anything.
/// What waits and what is kept is bounded and charged, and nothing is left in the end.
pub fn streams(mut input: Input<'_>) {
    let limit = input.pick(&[0, 100, 1000, 1 << 20]);
    let (budget, kept) = (Budget::new(1 << 20), Budget::new(input.pick(&[0, 200, 1 << 20])));
    let mut streams = Streams::new(limit, input.flag());
    let mut now = Instant::now();
    let (mut readers, mut sent) = (Vec::new(), Vec::new());
    while !input.is_empty() {
        match input.below(10) {
            0 => {
                let requests: Vec<String> = (0..1 + input.below(3)).map(|_| request(&mut input)).collect();
                let text = match &requests[..] {
                    [one] => one.clone(),
                    several => format!("[{}]", several.join(",")),
                };
                let message = Message::read(text.as_bytes()).expect("it is a message");
                if let Ok(stream) = streams.open(&message, |size| budget.charge(size)) {
                    readers.extend(streams.attach(stream, None).map(|reader| (stream, reader)));
                }
            }
            1 | 2 => {
                let text = said(&mut input);
                let message = Message::read(text.as_bytes()).ok();
                let bytes = Bytes::from(text);
                let charge = || budget.charge(bytes.len());
                streams.put(now, message.as_ref(), &bytes, charge);
            }
            3 => {
                let stream = input.below(16) as u64;
                let from = input.flag().then(|| input.below(8) as u64);
                readers.extend(streams.attach(stream, from).map(|reader| (stream, reader)));
            }
            4 | 5 if !readers.is_empty() => {
                let (stream, reader) = readers[input.below(readers.len())];
                if let Taken::Event(event) = streams.take(stream, reader, |size| kept.charge(size)) {
                    sent.push(event);
                }
            }
            6 if !readers.is_empty() => {
                let (stream, reader) = readers.swap_remove(input.below(readers.len()));
                streams.detach(stream, reader);
            }
            7 => drop(streams.cancel(now, &input.below(8).to_string())),
            8 => {
                let stream = input.below(16) as u64;
                if stream != OWN {
                    drop(streams.abandon(stream));
                }
            }
            // A sent message is dropped.
            9 => drop(sent.pop()),
            _ => now += Duration::from_secs(40),
        }
        streams.check();
    }
    drop((streams, sent));
    assert_eq!((budget.used(), kept.used()), (0, 0));
}

fn request(input: &mut Input<'_>) -> String {
    let (id, token) = (input.below(8), input.below(4));
    match token {
        0 => format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"m"}}"#),
        _ => format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"m","params":{{"_meta":{{"progressToken":{token}}}}}}}"#
        ),
    }
}

/// A message of a server.
fn said(input: &mut Input<'_>) -> String {
    let (id, fill) = (input.below(8), "x".repeat(input.below(256)));
    match input.below(5) {
        0 => format!(r#"{{"jsonrpc":"2.0","id":{id},"result":"{fill}"}}"#),
        1 => format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{id},"message":"{fill}"}}}}"#),
        2 => format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{id},"m":"{fill}"}}}}"#
        ),
        3 => format!(r#"{{"jsonrpc":"2.0","id":"s{id}","method":"ask","params":["{fill}"]}}"#),
        _ => format!("no message {fill}"),
    }
}
