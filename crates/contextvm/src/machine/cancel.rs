//! Cancelled requests: what stops being sent, and which of them may still be answered.

use std::time::Instant;

use breakbulk_link::{Cancelled, Key};

use super::outgoing::{Out, Purpose, Reply};
use super::peer::Peer;
use super::shared::Shared;
use crate::machine::Failure;
use crate::machine::prepared::Kind;

/// The most requests of one peer that were cancelled and may still be answered, each way.
const CANCELLED_MAX: usize = 64;

impl Peer {
    /// The application cancels a request. Returns whether the peer must hear of it.
    pub(super) fn cancel_asked(&mut self, now: Instant, id: &str, shared: &mut Shared) -> bool {
        let is_it =
            |out: &Out| out.message.kind == Kind::Request && out.message.id.as_deref() == Some(id);
        let tag = self.outgoing.iter().find(|(_, out)| is_it(out));
        let stopped = match tag.map(|(tag, _)| *tag) {
            Some(tag) => self.stop_outgoing(tag),
            None => Cancelled::TooLate,
        };
        if stopped != Cancelled::TooLate {
            // The peer will never have the whole request, so no response comes.
            self.fail_request(now, id, Failure::Cancelled, shared);
            return stopped == Cancelled::Stopped;
        }
        if let Some(asked) = self.asked.get_mut(id)
            && !std::mem::replace(&mut asked.cancelled, true)
        {
            self.cancelled_asked.push_back(id.to_owned());
            if self.cancelled_asked.len() > CANCELLED_MAX
                && let Some(oldest) = self.cancelled_asked.pop_front()
                && self.asked.get(&oldest).is_some_and(|asked| asked.cancelled)
            {
                self.forget_request(&oldest);
            }
        }
        true
    }

    /// The peer cancels a request. A response that the application sends nevertheless goes out, but a large
    /// response that is being sent is replaced by an error.
    pub(super) fn cancel_served(&mut self, now: Instant, id: &str, shared: &mut Shared) {
        if let Some(served) = self.served.get_mut(id)
            && !std::mem::replace(&mut served.cancelled, true)
        {
            self.cancelled_served.push_back(id.to_owned());
            if self.cancelled_served.len() > CANCELLED_MAX
                && let Some(oldest) = self.cancelled_served.pop_front()
                && self
                    .served
                    .get(&oldest)
                    .is_some_and(|served| served.cancelled)
            {
                self.served.remove(&oldest);
            }
        }
        let large = shared.config.cut_above / 2;
        let tags = self.outgoing.iter().filter(|(_, out)| {
            out.message.kind == Kind::Response
                && out.purpose == Purpose::Application
                && out.message.id.as_deref() == Some(id)
                && out.message.bytes.len() > large
        });
        let tags: Vec<u64> = tags.map(|(tag, _)| *tag).collect();
        for tag in tags {
            let Some(out) = self.outgoing.get(&tag) else {
                continue;
            };
            let reply = out.answers.map(|event| Reply {
                event,
                seal: out.seal,
                not_before: None,
            });
            if self.stop_outgoing(tag) != Cancelled::TooLate {
                self.send_own(now, Failure::Cancelled.answer(id), reply, shared);
            }
        }
    }

    /// Stops sending a request and discards its response. False: none of its frames was ever sent.
    pub(super) fn cancel_request(&mut self, id: &str, token: Option<&str>) -> bool {
        let tags = self.outgoing.iter().filter(|(_, out)| {
            out.message.kind == Kind::Request && out.message.id.as_deref() == Some(id)
        });
        let tags: Vec<u64> = tags.map(|(tag, _)| *tag).collect();
        let mut begun = true;
        for tag in tags {
            begun = self.cancel_outgoing(tag);
        }
        if let Some(token) = token {
            // Frames of the response that still arrive are ignored.
            self.link.discard(Key::new(token.as_bytes()));
        }
        begun
    }
}
