//! Edits messages between two ends of which one is a tunnel, or both.

use breakbulk_ahp::host::close::PROTOCOL;
use breakbulk_link::{Event, SendError};
use breakbulk_message::tunnel::{is_reserved_by_tunnel, is_tunnel_end};
use bytes::Bytes;

use super::{Incoming, Oversized, Pass, Passing, Replacement, Side};

/// Where one side is a tunnel, or both: passes messages to `inner`, except the tunnel's own messages, which
/// are not passed on and which no program may send.
#[derive(Debug)]
pub struct Tunnel<P> {
    /// Whether the side that listens is a tunnel.
    pub listen: bool,
    /// Whether the target is a tunnel.
    pub to: bool,
    /// How messages are edited.
    pub inner: P,
}

impl<P> Tunnel<P> {
    fn is_tunnel(&self, side: Side) -> bool {
        match side {
            Side::Listen => self.listen,
            Side::To => self.to,
        }
    }
}

impl<P: Passing> Passing for Tunnel<P> {
    fn pass(&mut self, from: Side, message: Incoming<'_>) -> Pass {
        let method = message.shape.method.clone();
        let method = method
            .and_then(|range| std::str::from_utf8(message.bytes.get(range)?).ok())
            .unwrap_or_default();
        if self.is_tunnel(from) {
            if is_tunnel_end(method) {
                return Pass::InputEnded;
            }
        } else if self.is_tunnel(from.other()) && is_reserved_by_tunnel(method) {
            let reason = format!(
                "a tunnel cannot carry the program's own {method}; use whole+ws:// or tunnel=never"
            );
            return Pass::Refuse(PROTOCOL, reason);
        }
        match self.inner.pass(from, message) {
            // The other gateway assembles any text, but a batch.
            Pass::On(mut outgoing) if self.is_tunnel(from.other()) => {
                outgoing.may_cut = true;
                Pass::On(outgoing)
            }
            passed => passed,
        }
    }

    fn heard(&mut self, from: Side, event: &Event) {
        self.inner.heard(from, event);
    }

    fn asks_again(&self, method: &str) -> bool {
        self.inner.asks_again(method)
    }

    fn not_sent(&mut self, to: Side, bytes: &Bytes, error: &SendError) -> Replacement {
        self.inner.not_sent(to, bytes, error)
    }

    fn oversized(&mut self, from: Side, oversized: &Oversized) -> Replacement {
        self.inner.oversized(from, oversized)
    }
}
