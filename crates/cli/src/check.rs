//! Checks whether a text is a message of a wire, and not a damaged line or a frame of another wire.

use breakbulk::link::{Frame, Inbound, Wire};
use breakbulk::message::jsonrpc::{Envelope, is_batch};
use breakbulk::wire::{Ahp, Cep22, Tywrap};
use bytes::Bytes;

use crate::options::WireName;

/// Why receivers of this wire would refuse the message; `None` if they accept it.
pub(crate) fn wrong_message(message: &Bytes, wire: WireName) -> Option<String> {
    if wire == WireName::Loro {
        return None;
    }
    if message.is_empty() {
        return Some("the message is empty".into());
    }
    let text = match std::str::from_utf8(message) {
        Ok(text) => text,
        Err(error) => {
            return Some(format!(
                "the message is not UTF-8 at byte {}",
                error.valid_up_to()
            ));
        }
    };
    if text.starts_with('\u{feff}') {
        return Some("the message begins with a byte order mark, which JSON does not allow".into());
    }
    if let Some(name) = frame_of(message) {
        return Some(format!(
            "it is itself a frame of the {name} wire: use join --wire {name}"
        ));
    }
    let Some(envelope) = Envelope::parse(text) else {
        return Some(match serde_json::from_str::<serde::de::IgnoredAny>(text) {
            Err(error) => format!("the message is not JSON: {error}"),
            Ok(_) if is_batch(message) => {
                "the message is a batch; send its members one by one".into()
            }
            Ok(_) => "the message is not a JSON object".into(),
        });
    };
    if wire == WireName::Tywrap || envelope.kind().is_some() {
        return None;
    }
    let about = match envelope.version.map(|version| version.get()) {
        Some(r#""2.0""#) => "it is neither a request, a notification nor a response",
        _ => "its `jsonrpc` is not \"2.0\"",
    };
    Some(format!("the message is not one JSON-RPC message: {about}"))
}

/// The text wire whose frame this is, if it is one.
pub(crate) fn frame_of(line: &Bytes) -> Option<&'static str> {
    let frame = Frame::Text(line.clone());
    let wires: [&dyn Wire; 3] = [&Ahp, &Tywrap::default(), &Cep22::default()];
    let is_frame = |wire: &&dyn Wire| match wire.read(&frame) {
        Ok(Inbound::Whole(..)) => false,
        Ok(_) => true,
        // An invalid frame with a transfer key is a frame too; text that is not JSON is not.
        Err(fault) => fault.key.is_some(),
    };
    wires.into_iter().find(is_frame).map(|wire| wire.name())
}
