//! The bodies of answers: one message as JSON, or the events of a stream.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use breakbulk_net::http::Parts;
use breakbulk_net::sse::EventText;
use bytes::Bytes;
use tokio::time::{Instant, sleep_until};

use super::post::Posted;
use super::session::{ClientSession, Next};
use super::streams::Event;
use crate::mcp::events;

/// The size of the parts that are given to the socket: the next one is asked for once the client reads.
const PART: usize = 32 << 10;

/// How often a silent stream sends a comment: a proxy would take it for dead.
const BEAT: Duration = Duration::from_secs(15);

/// How long a client waits before it opens a stream again, in milliseconds.
const RETRY: u64 = 1000;

/// A message as the body of an answer.
pub(super) type Whole = Parts<Posted>;

/// The body of an answer with one message.
pub(super) fn whole(event: Event, posted: Posted) -> Whole {
    posted.learn(&event);
    Parts::new(event.bytes, PART, posted)
}

/// One reader of a stream; the stream is told when it is dropped.
pub(super) struct Reading {
    pub(super) session: Arc<ClientSession>,
    pub(super) stream: u64,
    pub(super) reader: u64,
}

impl Reading {
    pub(super) async fn next(&self) -> Next {
        self.session.next(self.stream, self.reader).await
    }

    /// The name of an event, by which the stream is found again.
    fn name(&self, number: u64) -> String {
        format!("{}-{number}", self.stream)
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.session.detach(self.stream, self.reader);
    }
}

/// The events of a stream.
pub(super) struct EventBody {
    /// What is sent before the rest of the event: the primer, or a comment.
    before: Option<Bytes>,
    event: Option<EventText>,
    reading: Reading,
    /// Kept until the stream is read: in the stateless era dropping it earlier would cancel the request.
    posted: Option<Posted>,
    is_over: bool,
}

impl EventBody {
    /// A stream that begins with the event `first`; with a `primer` it can be resumed even before its first
    /// event.
    pub(super) fn new(
        reading: Reading,
        posted: Option<Posted>,
        first: Option<Event>,
        primer: Option<u64>,
    ) -> Self {
        let mut body = Self {
            before: None,
            event: None,
            posted,
            reading,
            is_over: false,
        };
        if let Some(number) = primer {
            let name = body.reading.name(number);
            body.before = Some(events::primer(&name, RETRY));
        }
        if let Some(event) = first {
            body.begin(event);
        }
        body
    }

    fn begin(&mut self, event: Event) {
        if let Some(posted) = &self.posted {
            posted.learn(&event);
        }
        let name = self.reading.name(event.number);
        let id = (!self.reading.session.is_stateless).then_some(&*name);
        self.event = Some(EventText::new(id, event.bytes, PART));
    }

    /// The next part; `None` at the end. Cancel-safe.
    async fn part(&mut self) -> Option<Bytes> {
        loop {
            if let Some(before) = self.before.take() {
                return Some(before);
            }
            if let Some(part) = self.event.as_mut().and_then(Iterator::next) {
                return Some(part);
            }
            self.event = None;
            if self.is_over {
                return None;
            }
            let beat = sleep_until(Instant::now() + BEAT);
            tokio::select! {
                next = self.reading.next() => match next {
                    Next::Event(event) => self.begin(event),
                    Next::Ended | Next::Over(_) => self.is_over = true,
                },
                () = beat => self.before = Some(Bytes::from_static(b": \n\n")),
            }
        }
    }

    /// As the body of an answer.
    pub(super) fn into_body(self) -> Body {
        let parts = futures_util::stream::unfold(self, |mut body| async move {
            let part = body.part().await?;
            Some((Ok::<_, std::convert::Infallible>(part), body))
        });
        Body::from_stream(parts)
    }
}
