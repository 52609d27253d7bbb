//! Messages to clients that could not be queued or sent, or take too long.

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
    /// A client's link rejected a message because its queue is full.
    pub fn handle_rejected(&mut self, client: ClientId, message: &Outgoing, error: &SendError) {
        match message.tag {
            tag::NOTIFICATION => {
                tracing::warn!(client = ?self.name(client), bytes = message.bytes.len(), "dropped a notification: the client reads too slowly: {}", waiting(error));
            }
            // An error is smaller, and tells the client that its request was answered.
            tag::RESPONSE => {
                let error = RpcError::new(RpcError::BUSY, error.to_string());
                let text = reply::error(reply::id_of(&message.bytes), &error);
                let refusal = Outgoing::text(text).in_lane(message.lane);
                self.send(client, refusal.tagged(tag::REFUSAL));
            }
            _ => self.cut_off(client, &waiting(error)),
        }
    }

    /// A message could not be sent. It keeps its place in the queue until it is replaced.
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
                tracing::warn!(client = ?name, %error, "a response could not be sent; an error is sent in its place");
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
                tracing::warn!(client = ?name, %error, "dropped a notification that could not be sent");
                let with = None;
                self.out.push_back(Output::Replace { client, id, with });
            }
            _ => {
                let what = if tag == tag::ACTION {
                    "action"
                } else {
                    "answer"
                };
                tracing::warn!(client = ?name, what, %error, "a message could not be sent; the client is closed with 4413 and gets a snapshot when it reconnects");
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

    /// The link closed while a message was being sent. If the message took longer than the client waits,
    /// larger ones are refused for a while.
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
            "gave up a message: it took longer than the client waits for one (the client of the crate `ahp` waits {} s for an answer)",
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

/// How much waits for a client whose queue is full.
fn waiting(error: &SendError) -> String {
    match error {
        SendError::QueueFull {
            queued,
            limit,
            unit,
        } => format!("{queued} {unit} wait for it, the limit is {limit} {unit}"),
        error => error.to_string(),
    }
}
