//! Passes messages between two transports of loro-extended, converted where their forms differ.

use std::collections::BTreeMap;

use breakbulk_link::{Event, MessageId, Outgoing, SendError};
use breakbulk_loro::machine::control::{Refusal as Refused, answer};
use breakbulk_message::loro::{ChannelMsg, decode_frame, encode_frame, from_json, to_json};
use breakbulk_net::http::Way;
use breakbulk_net::{Connection, Refusal, plain_text};
use bytes::Bytes;

use crate::pump::{Incoming, Pass, Passing, Replacement, Side, TOO_LARGE};

/// The close code for a message that is none of loro-extended's.
const MALFORMED: u16 = 1007;

/// One end of a bridge.
#[derive(Clone)]
pub(crate) struct LoroEnd {
    pub(crate) connection: Connection,
    pub(crate) way: Way,
    /// Whether it is the target, rather than a client.
    pub(crate) dialed: bool,
}

impl LoroEnd {
    /// Whether messages come down to clients in JSON.
    fn has_json(&self) -> bool {
        matches!(self.way, Way::Sse | Way::Poll)
    }

    /// Whether the transport has control words (`ready`, `ping`, `pong`).
    fn has_words(&self) -> bool {
        !self.has_json()
    }
}

/// Passes messages between a client and a server of loro-extended, in the form that each has.
pub(crate) struct Bridge {
    client: LoroEnd,
    server: LoroEnd,
    /// The client's POSTs that are answered once the server has their messages, by the tags of those
    /// messages. There are at most as many as open POSTs.
    posts: BTreeMap<u64, MessageId>,
    /// The tag of the next message; those of the pump itself are small.
    next_tag: u64,
}

impl Bridge {
    pub(crate) fn new(client: LoroEnd, server: LoroEnd) -> Self {
        Self {
            client,
            server,
            posts: BTreeMap::new(),
            next_tag: 1 << 32,
        }
    }

    /// A message of the server in the form of the client.
    fn down(&self, bytes: Bytes) -> Result<Bytes, String> {
        match (self.server.has_json(), self.client.has_json()) {
            (false, false) | (true, true) => Ok(bytes),
            (false, true) => {
                let messages = decode_frame(bytes).map_err(|error| error.to_string())?;
                Ok(to_json(&one(messages)).into())
            }
            (true, false) => {
                let text = std::str::from_utf8(&bytes).map_err(|error| error.to_string())?;
                let message = from_json(text).map_err(|error| error.to_string())?;
                encode_frame(&message).map_err(|error| error.to_string())
            }
        }
    }

    /// Answers the POST of a message.
    fn settle(&mut self, tag: u64, outcome: Result<(), Refusal>) {
        if let Some(message) = self.posts.remove(&tag) {
            self.client.connection.settle(message, outcome);
        }
    }

    fn lost(&self, from: Side, reason: &str) {
        let end = match from {
            Side::Listen => &self.client,
            Side::To => &self.server,
        };
        // Client and server sync again over their next connection.
        end.connection.close(1013, reason);
    }
}

/// Several messages of one frame are a batch in JSON.
fn one(mut messages: Vec<ChannelMsg>) -> ChannelMsg {
    match (messages.pop(), messages.is_empty()) {
        (Some(only), true) => only,
        (last, _) => {
            messages.extend(last);
            ChannelMsg::Batch { messages }
        }
    }
}

impl Passing for Bridge {
    fn pass(&mut self, from: Side, message: Incoming<'_>) -> Pass {
        if from == Side::Listen {
            let mut outgoing = Outgoing::new(message.bytes);
            if let (true, Some(id)) = (self.client.has_json(), message.id) {
                self.next_tag += 1;
                self.posts.insert(self.next_tag, id);
                outgoing = outgoing.tagged(self.next_tag);
            }
            return Pass::On(Box::new(outgoing));
        }
        match self.down(message.bytes) {
            Ok(bytes) => Pass::On(Box::new(Outgoing::new(bytes))),
            Err(error) => Pass::Refuse(
                MALFORMED,
                format!(
                    "the target sent a message that is not of loro-extended: {}",
                    plain_text(&error)
                ),
            ),
        }
    }

    fn sent(&mut self, to: Side, tag: u64) {
        if to == Side::To {
            self.settle(tag, Ok(()));
        }
    }

    fn heard(&mut self, from: Side, event: &Event) {
        match (from, event) {
            (Side::Listen, Event::Control(word)) => {
                if let Some(word) = answer(word) {
                    // It fails if the client has left.
                    let _ = self.client.connection.with(|link| link.send_control(word));
                }
            }
            (Side::To, Event::Control(word)) => {
                let Some(refused) = Refused::parse(word) else {
                    return;
                };
                let (status, error) = (refused.status, plain_text(&refused.error));
                tracing::warn!(status, %error, "the target refused what a client sent");
                if self.client.has_words() {
                    let word = word.clone();
                    let _ = self.client.connection.with(|link| link.send_control(word));
                }
            }
            (from, Event::TransferFailed(fault)) => self.lost(from, &fault.to_string()),
            _ => {}
        }
    }

    fn not_sent(&mut self, to: Side, _bytes: &Bytes, error: &SendError) -> Replacement {
        if to == Side::To {
            for tag in self.posts.keys().copied().collect::<Vec<_>>() {
                self.settle(tag, Err(Refusal::new(413, error.to_string())));
            }
        }
        Replacement::Close(TOO_LARGE, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // LORO-35
    #[test]
    fn several_messages_of_a_frame_are_a_batch() {
        let new = |name: &str| ChannelMsg::NewDoc {
            doc_ids: vec![name.to_owned()],
        };
        let batch = |messages| ChannelMsg::Batch { messages };
        for (messages, expected) in [
            (vec![], batch(vec![])),
            (vec![new("a")], new("a")),
            (vec![new("a"), new("b")], batch(vec![new("a"), new("b")])),
        ] {
            assert_eq!(one(messages), expected);
        }
    }
}
