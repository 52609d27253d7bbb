//! One client's connection: takes what it says in order, and answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use breakbulk_link::{Closed, Event, Outgoing, ProgressOf, SendError, TransferId};
use breakbulk_message::ahp::Chunking;
use breakbulk_message::jsonrpc::{Envelope, Kind};
use breakbulk_net::{Connection, Transport};
use bytes::Bytes;
use serde_json::value::RawValue;
use tokio::time::sleep_until;

use super::application::Application;
use super::config::close;
use super::core::tag;
use super::error::RpcError;
use super::rate::{REQUEST_TIMEOUT, Rate};
use super::requests::Requests;
use super::{Host, farewell, fit, reply};
use crate::settings::Slow;

/// So many connections may be told at a time that there is no room for them; others just end.
const REFUSING: usize = 64;

/// A client that has introduced itself.
pub(super) struct Who {
    pub(super) client_id: Arc<str>,
    pub(super) chunking: Option<Chunking>,
}

pub(super) struct Peer<A: Application> {
    pub(super) host: Host<A>,
    pub(super) connection: Connection,
    pub(super) id: u64,
    pub(super) who: Option<Who>,
    pub(super) requests: Requests,
    rate: Rate<TransferId>,
}

pub(super) async fn serve<A: Application>(host: Host<A>, transport: impl Transport) -> Closed {
    let settings = &host.inner.config.settings;
    let opened = Connection::open(settings.link(), transport, settings.options);
    let connection = match opened {
        Ok(connection) => connection,
        Err(mismatch) => {
            return Closed {
                code: 1003,
                reason: mismatch.to_string(),
            };
        }
    };
    let admitted = host.inner.core().admit(&connection);
    match admitted {
        Ok(id) => {
            let mut peer = Peer {
                host,
                connection,
                id,
                who: None,
                requests: Requests::default(),
                rate: Rate::NEW,
            };
            peer.run().await;
            // It counts as a client until its transport is let go of, and is told nothing more.
            peer.host.inner.core().silence(id);
            peer.connection.ended().await;
            let closed = peer.connection.closed().await;
            tracing::debug!(client = ?peer.client_id(), code = closed.code, reason = %closed.reason, "a client has gone");
            closed
        }
        Err(closed) => {
            connection.close(closed.code, &closed.reason);
            // The last words take a while, and whoever floods us gets none.
            let refusing = Refusing::new(&host.inner.refusing);
            if refusing.number < REFUSING {
                connection.ended().await;
            }
            closed
        }
    }
}

/// One of those who are being told that there is no room.
struct Refusing<'a> {
    count: &'a AtomicUsize,
    number: usize,
}

impl<'a> Refusing<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        let number = count.fetch_add(1, Ordering::Relaxed);
        Self { count, number }
    }
}

impl Drop for Refusing<'_> {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<A: Application> Drop for Peer<A> {
    fn drop(&mut self) {
        self.connection.close(1000, "");
        self.host.inner.core().leave(self.id);
    }
}

impl<A: Application> Peer<A> {
    async fn run(&mut self) {
        let config = &self.host.inner.config;
        let (most, patience) = (config.max_requests.max(1), config.handshake_timeout);
        let deadline = tokio::time::Instant::now() + patience;
        // Messages that came while the client had as many requests as it may: charged to it.
        let mut later = std::collections::VecDeque::new();
        loop {
            let connection = self.connection.clone();
            let busy = self.requests.len() >= most;
            if !busy && let Some(message) = later.pop_front() {
                self.message(message).await;
                continue;
            }
            tokio::select! {
                biased;
                Some((asked, answer)) = self.requests.next() => self.answered(&asked, answer),
                () = sleep_until(deadline), if self.who.is_none() => {
                    let reason = format!("no initialize or reconnect within {} s", patience.as_secs_f64());
                    self.connection.close(close::NO_HANDSHAKE, &reason);
                    return;
                }
                // While it has as many requests as it may, nothing more of it is read.
                event = connection.event() => match event {
                    Some(Event::Message(message)) if busy => later.push_back(message),
                    Some(event) => self.event(event).await,
                    None => return,
                },
            }
        }
    }

    async fn event(&mut self, event: Event) {
        match event {
            Event::Message(message) => self.message(message).await,
            Event::SendFailed {
                id,
                tag,
                error,
                bytes,
            } => self.not_sent(id, tag, &error, &bytes),
            Event::Progress {
                of: ProgressOf::Outgoing(id),
                done,
                total: Some(total),
            } => {
                if let Some(slow) = self.rate.progress(id, done, total, now()) {
                    tracing::warn!(
                        client = ?self.client_id(), bytes = total, slow.bytes_per_second, slow.seconds,
                        "a message will take longer than the {} s that the client of the crate `ahp` waits for an answer",
                        REQUEST_TIMEOUT.as_secs()
                    );
                }
            }
            Event::GaveUp { error, .. } => self.gave_up(&error),
            Event::Fault(fault) => tracing::debug!(client = ?self.client_id(), %fault, "a fault"),
            _ => {}
        }
    }

    /// A message could not go out, and holds its place until it is replaced.
    fn not_sent(&mut self, id: TransferId, tag: u64, error: &SendError, bytes: &Bytes) {
        let size = bytes.len();
        match tag {
            tag::RESPONSE => {
                tracing::warn!(client = ?self.client_id(), %error, "a response could not be sent");
                let refusal = self.refusal(bytes);
                let refusal = refusal.map(|text| Outgoing::new(text).tagged(tag::REFUSAL));
                self.connection.with(|link| link.replace(id, refusal));
            }
            tag::NOTIFICATION => {
                tracing::warn!(client = ?self.client_id(), %error, "a notification was dropped");
                self.connection.with(|link| link.replace(id, None));
            }
            _ => {
                let what = if tag == tag::ACTION {
                    "action"
                } else {
                    "answer"
                };
                tracing::warn!(client = ?self.client_id(), what, %error, "the client cannot take it");
                self.mark(|session| session.wants_snapshot = true);
                let reason = fit::reason(what, error, size);
                self.connection.close(close::TOO_LARGE, &reason);
            }
        }
    }

    /// What stands for a response that cannot be sent.
    fn refusal(&self, response: &Bytes) -> Option<String> {
        let text = std::str::from_utf8(response).ok()?;
        let id = Envelope::parse(text)?.id?;
        let settings = &self.host.inner.config.settings;
        let chunking = self.who.as_ref().and_then(|who| who.chunking.as_ref());
        let error = settings.too_large(response.len(), chunking);
        Some(error.response(id, settings.too_large_code))
    }

    /// The link ends with a message under way. If it was too slow for the client, the next one is not
    /// tried.
    fn gave_up(&mut self, error: &SendError) {
        let SendError::TooSlow {
            size,
            sent,
            limit: within,
        } = *error
        else {
            return;
        };
        tracing::warn!(
            client = ?self.client_id(), size, sent, seconds = within.as_secs_f64(),
            bytes_per_second = sent as f64 / within.as_secs_f64(),
            "a message was too slow for the time that the client gives it; the client of the crate `ahp` gives a request {} s",
            REQUEST_TIMEOUT.as_secs()
        );
        let until = now() + self.host.inner.config.slow_for;
        self.mark(|session| {
            session.wants_snapshot = true;
            session.slow = Some(Slow {
                sent,
                within,
                until,
            });
        });
    }

    fn mark(&self, change: impl FnOnce(&mut super::sessions::Session)) {
        if let Some(who) = &self.who {
            let mut core = self.host.inner.core();
            core.sessions.update(&who.client_id, change);
        }
    }

    /// Answers a request; where its queue is full the client is told so, or cut off.
    pub(super) fn answer(&self, method: &str, text: String) {
        let settings = &self.host.inner.config.settings;
        let lane = settings.lane(Kind::Result, Some(method));
        let out = Outgoing::text(text).in_lane(lane).tagged(tag::RESPONSE);
        let Err(rejected) = self.connection.send(out) else {
            return;
        };
        let id = std::str::from_utf8(&rejected.message.bytes)
            .ok()
            .and_then(Envelope::parse)
            .and_then(|envelope| envelope.id);
        let error = RpcError::new(RpcError::BUSY, rejected.error.to_string());
        let out = Outgoing::new(reply::error(id, &error)).in_lane(lane);
        if self.connection.send(out.tagged(tag::REFUSAL)).is_err() {
            let reason = "too much waits to be read by you: reconnect, and replay what you missed";
            self.connection.close(close::TRY_LATER, reason);
        }
    }

    pub(super) fn refuse(&self, id: Option<&RawValue>, method: &str, error: &RpcError) {
        self.answer(method, reply::error(id, error));
    }

    pub(super) fn client_id(&self) -> Option<&str> {
        self.who.as_ref().map(|who| &*who.client_id)
    }

    /// Ends the connection once what was said is out.
    pub(super) async fn part(&self, code: u16, reason: &'static str) {
        let grace = self.host.inner.config.settings.options.grace;
        farewell(self.connection.clone(), code, reason, grace).await;
    }
}

/// The time, which a test may have paused.
pub(super) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}
