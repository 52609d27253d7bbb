//! Messages that are passed on unchanged.

use std::sync::Arc;

use breakbulk_link::{Budget, Cap, Carries, Config, Link, MessageKind, Outgoing, Scope, SendError};
use breakbulk_message::ahp::MESSAGE_TOO_LARGE;
use breakbulk_wire::Whole;
use bytes::Bytes;

use super::unsent::{explained, instead, of_oversized};
use super::{Incoming, Oversized, Pass, Passing, Replacement, Side, TOO_LARGE};

/// For any JSON-RPC program: messages are not edited.
#[derive(Clone, Copy, Debug)]
pub struct Plain {
    /// The code of the error for a message that is too large.
    pub too_large_code: i32,
}

impl Default for Plain {
    fn default() -> Self {
        Self {
            too_large_code: MESSAGE_TOO_LARGE,
        }
    }
}

impl Passing for Plain {
    fn pass(&mut self, _from: Side, message: Incoming<'_>) -> Pass {
        // In the ordered lane, since it is unknown which messages may overtake others.
        let outgoing = Outgoing::new(message.bytes);
        Pass::On(Box::new(match message.shape.kind {
            // The receiver of a message in pieces closes the connection if it is not JSON-RPC.
            MessageKind::Opaque => outgoing.uncut(),
            // What was read as JSON-RPC was checked to be text.
            _ => outgoing.known_text(),
        }))
    }

    fn asks_again(&self, method: &str) -> bool {
        // AHP passes here too, in a tunnel: an error would be taken for a refusal.
        method == "reconnect"
    }

    fn not_sent(&mut self, _to: Side, bytes: &Bytes, error: &SendError) -> Replacement {
        instead(bytes, error, self.too_large_code)
    }

    fn oversized(&mut self, _from: Side, oversized: &Oversized) -> Replacement {
        of_oversized(oversized, self.too_large_code)
    }
}

/// For binary messages: their content is not read.
#[derive(Clone, Copy, Debug, Default)]
pub struct Raw;

impl Passing for Raw {
    fn pass(&mut self, _from: Side, message: Incoming<'_>) -> Pass {
        Pass::On(Box::new(Outgoing::new(message.bytes)))
    }

    fn not_sent(&mut self, _to: Side, bytes: &Bytes, error: &SendError) -> Replacement {
        Replacement::Close(TOO_LARGE, explained(bytes.len(), error))
    }
}

/// A link that carries each message in one frame, up to a limit. A frame that cannot be read closes it,
/// since no message may be skipped.
pub fn whole_link(carries: Carries, cap: Cap, max_message: usize, budget: Budget) -> Link {
    let mut rules = Whole::rules();
    rules.scopes.frame = Scope::Link;
    rules.scopes.transfer = Scope::Link;
    let mut config = Config::new(rules);
    config.receives_pieces = false;
    config.limits = super::limits(max_message).with(|it| it.frame = max_message);
    let wire = Arc::new(Whole { carries });
    // The seed is for the names of transfers, and this link has none.
    let mut link = Link::new(wire.clone(), wire, config, budget, [0; 32]);
    link.set_cap(cap);
    link
}
