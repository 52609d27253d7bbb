//! Removes the process id that an LSP client tells its server: on another machine it means another process,
//! or none.

use breakbulk_link::{Event, MessageKind, SendError};
use breakbulk_message::lsp;
use bytes::Bytes;

use super::{Incoming, Oversized, Pass, Passing, Replacement, Side};

/// Sets a numeric `processId` of an LSP client's `initialize` to `null`, and passes all to `inner`: a
/// server watches that process and exits when it does not find it, and here the process may be on another
/// machine. No other byte is changed.
#[derive(Debug)]
pub struct NoProcessId<P>(pub P);

impl<P: Passing> Passing for NoProcessId<P> {
    fn pass(&mut self, from: Side, message: Incoming<'_>) -> Pass {
        let edited = match from {
            Side::Listen => without_process_id(&message),
            Side::To => None,
        };
        let Some(edited) = edited else {
            return self.0.pass(from, message);
        };
        let shape = breakbulk_wire::shape_of(&edited);
        let message = Incoming {
            bytes: edited.into(),
            shape: &shape,
            key: message.key,
            id: message.id,
        };
        self.0.pass(from, message)
    }

    fn heard(&mut self, from: Side, event: &Event) {
        self.0.heard(from, event);
    }

    fn asks_again(&self, method: &str) -> bool {
        self.0.asks_again(method)
    }

    fn not_sent(&mut self, to: Side, bytes: &Bytes, error: &SendError) -> Replacement {
        self.0.not_sent(to, bytes, error)
    }

    fn oversized(&mut self, from: Side, oversized: &Oversized) -> Replacement {
        self.0.oversized(from, oversized)
    }
}

/// The edited text, if this is an `initialize` with a process id.
fn without_process_id(message: &Incoming<'_>) -> Option<String> {
    let method = message.bytes.get(message.shape.method.clone()?)?;
    if message.shape.kind != MessageKind::Request || method != lsp::INITIALIZE.as_bytes() {
        return None;
    }
    lsp::without_process_id(std::str::from_utf8(&message.bytes).ok()?)
}
