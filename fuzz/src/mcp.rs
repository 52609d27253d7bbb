//! The gateway's pure readers of MCP over HTTP. Their files are compiled into this crate, since in the gateway
//! they stand behind its feature `http`, with a web server that no fuzzer needs.

#[allow(dead_code, reason = "the gateway uses all of it")]
#[path = "../../crates/gateway/src/mcp/events.rs"]
mod events;
#[allow(dead_code, reason = "the gateway uses all of it")]
#[path = "../../crates/gateway/src/mcp/message.rs"]
mod message;

use bytes::Bytes;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::Input;
use events::{Event, Reader};
use message::{Message, Unreadable, chosen_version};

/// The longest line that is no data, as the reader has it.
const LINE: usize = 4 << 10;

/// An event stream, read at once and in any parts: the same events, within the limit.
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
        // What it holds of an event that is not whole.
        assert!(reader.held() <= 2 * (limit + LINE) + 64, "{}", reader.held());
    }
    events
}

/// What is written is read back; line breaks in the data are white space there.
fn written(data: &[u8]) {
    let data = Bytes::copy_from_slice(data);
    let event = events::write(Some("7-8"), &data).concat();
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

/// The body of a POST.
pub fn body(bytes: &[u8]) {
    let json = serde_json::from_slice::<&RawValue>(bytes);
    match Message::read(bytes) {
        Ok(message) => {
            assert!(json.is_ok(), "a message is JSON");
            check(&message);
        }
        Err(Unreadable::NoJson | Unreadable::NoMessage) => {}
    }
    if let Some(version) = chosen_version(bytes)
        && let Ok(value) = serde_json::from_slice::<Value>(bytes)
    {
        assert_eq!(value["result"]["protocolVersion"], version.as_str());
    }
}

fn check(message: &Message) {
    for request in message.requests() {
        // What is put into an answer is one JSON value, and so is what ids are compared by.
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
