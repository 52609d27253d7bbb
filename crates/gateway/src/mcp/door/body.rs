//! The bodies of answers: one message as JSON, or the events of a stream.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
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

/// A message as the body of an answer, charged to its session until it is sent.
pub(super) struct Whole {
    left: Bytes,
    _event: Event,
    _posted: Posted,
}

impl Whole {
    pub(super) fn new(event: Event, posted: Posted) -> Self {
        posted.learn(&event);
        Self {
            left: event.bytes.clone(),
            _event: event,
            _posted: posted,
        }
    }
}

impl hyper::body::Body for Whole {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if self.left.is_empty() {
            return Poll::Ready(None);
        }
        let part = self.left.len().min(PART);
        Poll::Ready(Some(Ok(Frame::data(self.left.split_to(part)))))
    }

    fn is_end_stream(&self) -> bool {
        self.left.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left.len() as u64)
    }
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
    parts: VecDeque<Bytes>,
    reading: Reading,
    /// Kept until the stream is read: what it does at its end must not come before.
    posted: Option<Posted>,
    is_over: bool,
}

impl EventBody {
    /// A stream that begins with this event; `primer` makes it one that can be resumed before the first.
    pub(super) fn new(
        reading: Reading,
        posted: Option<Posted>,
        first: Option<Event>,
        primer: Option<u64>,
    ) -> Self {
        let mut body = Self {
            parts: VecDeque::new(),
            posted,
            reading,
            is_over: false,
        };
        if let Some(number) = primer {
            let name = body.reading.name(number);
            body.parts.push_back(events::primer(&name, RETRY));
        }
        if let Some(event) = first {
            body.push(&event);
        }
        body
    }

    fn push(&mut self, event: &Event) {
        if let Some(posted) = &self.posted {
            posted.learn(event);
        }
        let name = self.reading.name(event.number);
        let is_resumable = !self.reading.session.is_stateless;
        let parts = events::write(is_resumable.then_some(&*name), &event.bytes);
        self.parts.extend(parts);
    }

    /// The next part; `None` at the end. Cancel-safe.
    async fn part(&mut self) -> Option<Bytes> {
        loop {
            if let Some(part) = self.parts.front_mut() {
                let size = part.len().min(PART);
                let next = part.split_to(size);
                if part.is_empty() {
                    self.parts.pop_front();
                }
                return Some(next);
            }
            if self.is_over {
                return None;
            }
            let beat = sleep_until(Instant::now() + BEAT);
            tokio::select! {
                next = self.reading.next() => match next {
                    Next::Event(event) => self.push(&event),
                    Next::Ended | Next::Over(_) => self.is_over = true,
                },
                () = beat => self.parts.push_back(Bytes::from_static(b": \n\n")),
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
