//! Messages that are passed on as they are.

use std::sync::Arc;

use breakbulk_link::{
    Budget, Cap, Carries, Config, Limits, Link, MessageKind, Outgoing, Scope, SendError, Uncut,
};
use breakbulk_message::ahp::{MESSAGE_TOO_LARGE, MessageTooLarge};
use breakbulk_message::jsonrpc::{Envelope, Kind};
use breakbulk_wire::Whole;
use bytes::Bytes;
use serde_json::value::RawValue;

use super::{Incoming, Instead, Pass, Passing, Ports, Side, TOO_LARGE};

/// JSON-RPC's code for what is nobody's fault in particular.
const INTERNAL_ERROR: i32 = -32603;

/// Any JSON-RPC program: nothing is edited.
#[derive(Clone, Copy, Debug)]
pub struct Plain {
    /// The code for a message that is too large.
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
    fn pass(&mut self, _from: Side, _ports: Ports<'_>, message: Incoming<'_>) -> Pass {
        // The ordered lane: nobody knows better.
        let outgoing = Outgoing::new(message.bytes);
        Pass::On(Box::new(match message.shape.kind {
            // Who puts pieces together takes JSON-RPC alone, and closes over anything else.
            MessageKind::Opaque => outgoing.uncut(),
            _ => outgoing,
        }))
    }

    fn not_sent(&mut self, _to: Side, bytes: &Bytes, error: &SendError) -> Instead {
        instead(bytes, error, self.too_large_code)
    }
}

/// Bytes that nobody looks into.
#[derive(Clone, Copy, Debug, Default)]
pub struct Raw;

impl Passing for Raw {
    fn pass(&mut self, _from: Side, _ports: Ports<'_>, message: Incoming<'_>) -> Pass {
        Pass::On(Box::new(Outgoing::new(message.bytes)))
    }

    fn not_sent(&mut self, _to: Side, _bytes: &Bytes, error: &SendError) -> Instead {
        Instead::Close(TOO_LARGE, error.to_string())
    }
}

/// A link whose messages are frames, for a side that takes messages of any size up to a limit. What
/// cannot be read ends it: a message must not be skipped.
pub fn whole_link(carries: Carries, cap: Cap, max_message: usize, budget: Budget) -> Link {
    let mut rules = Whole::rules();
    rules.scopes.frame = Scope::Link;
    rules.scopes.transfer = Scope::Link;
    let mut config = Config::new(rules);
    config.receives_pieces = false;
    config.limits = Limits {
        frame: max_message,
        ..super::limits(max_message)
    };
    let wire = Arc::new(Whole { carries });
    // Nothing of it is random: it has no transfers to name.
    let mut link = Link::new(wire.clone(), wire, config, budget, [0; 32]);
    link.set_cap(cap);
    link
}

/// What becomes of a message of a JSON-RPC program that did not go out.
pub(super) fn instead(bytes: &Bytes, error: &SendError, too_large_code: i32) -> Instead {
    let envelope = std::str::from_utf8(bytes).ok().and_then(Envelope::parse);
    let (kind, id) = match &envelope {
        Some(envelope) => (envelope.kind(), envelope.id),
        None => (None, None),
    };
    match (kind, id) {
        (Some(Kind::Request), Some(id)) => {
            Instead::Answer(answer(id, bytes.len(), error, too_large_code).into())
        }
        (Some(Kind::Result | Kind::Error), Some(id)) => {
            let answer = answer(id, bytes.len(), error, too_large_code);
            Instead::Replace(Box::new(Outgoing::new(answer)))
        }
        _ => {
            let method = envelope.as_ref().and_then(Envelope::method);
            let name: String = match &method {
                Some(method) => method.chars().take(64).collect(),
                None => "what is no JSON-RPC message".to_owned(),
            };
            Instead::Close(TOO_LARGE, format!("{name}: {error}"))
        }
    }
}

fn answer(id: &RawValue, size: usize, error: &SendError, too_large_code: i32) -> String {
    let number = |number: usize| number as u64;
    let (frame, message, chunking) = match *error {
        SendError::MessageTooLarge { limit, .. } => (limit, limit, true),
        SendError::FrameTooLarge { limit, uncut, .. } => (
            limit,
            limit,
            uncut != Uncut::NotNegotiated && uncut != Uncut::NoPieces,
        ),
        SendError::CapTooSmall { cap, .. } | SendError::TooManyPieces { cap, .. } => {
            (cap, size.saturating_sub(1), true)
        }
        _ => {
            let text = serde_json::Value::from(error.to_string());
            return format!(
                r#"{{"jsonrpc":"2.0","id":{},"error":{{"code":{INTERNAL_ERROR},"message":{text}}}}}"#,
                id.get()
            );
        }
    };
    let too_large = MessageTooLarge {
        message_bytes: number(size),
        max_frame_bytes: number(frame),
        max_message_bytes: number(message),
        chunking,
    };
    too_large.response(id, too_large_code)
}
