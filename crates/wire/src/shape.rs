//! What was found in a JSON-RPC text, as byte ranges.

use breakbulk_link::{MessageKind, Shape};
use breakbulk_message::jsonrpc::{Envelope, Kind, range_in};

/// The shape of a JSON text, for messages that a wire assembles without looking into them.
pub fn shape_of(text: &str) -> Shape {
    Envelope::parse(text)
        .map(|envelope| shape(text, &envelope))
        .unwrap_or_default()
}

/// The shape of a parsed envelope in `text`.
pub(crate) fn shape(text: &str, envelope: &Envelope<'_>) -> Shape {
    let kind = match envelope.kind() {
        None => MessageKind::Opaque,
        Some(Kind::Request) => MessageKind::Request,
        Some(Kind::Notification) => MessageKind::Notification,
        Some(Kind::Result) => MessageKind::Result,
        Some(Kind::Error) => MessageKind::Error,
    };
    let range = |raw: &serde_json::value::RawValue| range_in(text, raw.get());
    let method = envelope
        .method
        .filter(|method| method.get().starts_with('"'))
        .map(range);
    Shape {
        kind,
        id: envelope.id.map(range),
        method: method.map(|range| range.start + 1..range.end - 1),
        body: envelope.body().map(range),
    }
}
