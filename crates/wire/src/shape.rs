//! Finds the parts of a JSON-RPC text, as byte ranges.

use breakbulk_link::{MessageKind, Shape};
use breakbulk_message::jsonrpc::{Kind, Outline};

/// The shape of a JSON text, for messages that a wire assembles without parsing them.
pub fn shape_of(text: &str) -> Shape {
    let text = text.as_bytes();
    Outline::parse(text)
        .map(|outline| shape(text, &outline))
        .unwrap_or_default()
}

/// The shape of a text whose outline was parsed already.
pub(crate) fn shape(text: &[u8], outline: &Outline) -> Shape {
    let kind = match outline.kind(text) {
        None => MessageKind::Opaque,
        Some(Kind::Request) => MessageKind::Request,
        Some(Kind::Notification) => MessageKind::Notification,
        Some(Kind::Result) => MessageKind::Result,
        Some(Kind::Error) => MessageKind::Error,
    };
    let method = outline.method.clone();
    Shape {
        kind,
        id: outline.id.clone(),
        method: method
            .filter(|method| text.get(method.start) == Some(&b'"'))
            .map(|method| method.start + 1..method.end - 1),
        body: outline.body(),
    }
}
