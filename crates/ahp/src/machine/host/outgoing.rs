//! What became of messages to clients: not taken, not sent, slow, or given up.

use std::time::Instant;

use breakbulk_link::{Outgoing, SendError, TransferId};
use bytes::Bytes;

use super::config::close;
use super::error::RpcError;
use super::rate::REQUEST_TIMEOUT;
use super::sessions::Session;
use super::types::{ClientId, Output, When};
use super::{Host, fit, reply, tag};
use crate::config::Slow;

impl Host {
    /// A client's link did not take a message: its queue is full.
    pub fn handle_rejected(&mut self, client: ClientId, message: &Outgoing, error: &SendError) {
        match message.tag {
            tag::NOTIFICATION => {
                tracing::warn!(client = ?self.name(client), bytes = message.bytes.len(), "a notification was dropped: the client reads too slowly");
            }
            // The client is told that there was an answer, in fewer bytes.
            tag::RESPONSE => {
                let error = RpcError::new(RpcError::BUSY, error.to_string());
                let text = reply::error(reply::id_of(&message.bytes), &error);
                let refusal = Outgoing::text(text).in_lane(message.lane);
                self.send(client, refusal.tagged(tag::REFUSAL));
            }
            _ => self.cut_off(client, &error.to_string()),
        }
    }

    /// A message could not go out, and holds its place until it is replaced.
    pub(super) fn not_sent(
        &mut self,
        client: ClientId,
        id: TransferId,
        tag: u64,
        error: &SendError,
        bytes: &Bytes,
    ) {
        let name = self.name(client);
        match tag {
            tag::RESPONSE => {
                tracing::warn!(client = ?name, %error, "a response could not be sent");
                let config = &self.config.connection;
                let who = self.clients.get(&client).and_then(|it| it.who.as_ref());
                let chunking = who.and_then(|who| who.chunking.as_ref());
                let too_large = config.too_large(bytes.len(), chunking);
                let with = reply::id_of(bytes).map(|id| {
                    let text = too_large.response(id, config.too_large_code);
                    Outgoing::text(text).tagged(tag::REFUSAL)
                });
                self.out.push_back(Output::Replace { client, id, with });
            }
            tag::NOTIFICATION => {
                tracing::warn!(client = ?name, %error, "a notification was dropped");
                let with = None;
                self.out.push_back(Output::Replace { client, id, with });
            }
            _ => {
                let what = if tag == tag::ACTION {
                    "action"
                } else {
                    "answer"
                };
                tracing::warn!(client = ?name, what, %error, "the client cannot take it");
                self.mark(client, |session| session.wants_snapshot = true);
                let reason = fit::reason(what, error, bytes.len());
                self.close(client, close::TOO_LARGE, &reason, When::Now);
            }
        }
    }

    pub(super) fn progress(
        &mut self,
        now: Instant,
        id: ClientId,
        of: TransferId,
        done: usize,
        total: u64,
    ) {
        let Some(client) = self.clients.get_mut(&id) else {
            return;
        };
        if let Some(slow) = client.rate.progress(of, done, total, now) {
            tracing::warn!(
                client = ?self.name(id), bytes = total, slow.bytes_per_second, slow.seconds,
                "a message will take longer than the {} s that the client of the crate `ahp` waits for an answer",
                REQUEST_TIMEOUT.as_secs()
            );
        }
    }

    /// The link ends with a message under way. If it was too slow for the client, the next one is not
    /// tried.
    pub(super) fn gave_up(&mut self, now: Instant, client: ClientId, error: &SendError) {
        let SendError::TooSlow {
            size,
            sent,
            limit: within,
        } = *error
        else {
            return;
        };
        tracing::warn!(
            client = ?self.name(client), size, sent, seconds = within.as_secs_f64(),
            bytes_per_second = sent as f64 / within.as_secs_f64(),
            "a message was too slow for the time that the client gives it; the client of the crate `ahp` gives a request {} s",
            REQUEST_TIMEOUT.as_secs()
        );
        let until = now + self.config.slow_for;
        self.mark(client, |session| {
            session.wants_snapshot = true;
            session.slow = Some(Slow {
                sent,
                within,
                until,
            });
        });
    }

    fn mark(&mut self, client: ClientId, change: impl FnOnce(&mut Session)) {
        let who = self.clients.get(&client).and_then(|it| it.who.as_ref());
        if let Some(who) = who {
            self.sessions.update(&who.client_id, change);
        }
    }
}
