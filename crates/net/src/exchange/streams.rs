//! Sends answers in an event stream, if they are small and the client acknowledges earlier ones in time.
//!
//! A stream has no more bytes than an answer may have, and lasts no longer than a poll may wait, since paths
//! limit both. Its client then opens another stream, or polls for an answer that is too large. However an
//! answer was sent, it is kept until the client acknowledges it.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::Response;
use axum::http::header::{HeaderName, HeaderValue};
use bytes::Bytes;
use futures_util::stream;
use tokio::sync::watch;
use tokio::time::Instant;

use super::downloads::Streamed;
use super::events;
use super::server::Exchange;
use crate::http::connection::HttpConnection;
use crate::http::presence::PresentGuard;
use crate::http::with_body;

/// A larger answer must be polled for: an event is a copy of it, and polls fetch several answers at a time.
const STREAMED_MAX: usize = 64 << 10;

/// A session has one stream: a new one ends the previous one, which its client has given up.
#[derive(Debug, Default)]
pub(super) struct Streams {
    latest: watch::Sender<u64>,
}

impl Streams {
    fn begin(&self) -> u64 {
        self.latest.send_modify(|latest| *latest += 1);
        *self.latest.borrow()
    }

    /// Waits until another stream is open.
    async fn replaced(&self, number: u64) {
        let _ = self
            .latest
            .subscribe()
            .wait_for(|latest| *latest != number)
            .await;
    }
}

/// What a client asks for.
pub(super) struct Asked {
    /// The first answer.
    pub(super) number: u64,
    /// The most bytes of an answer, and of the whole stream.
    pub(super) max: usize,
    /// How long the stream may last.
    pub(super) wait: Duration,
}

/// A stream as it is made, event by event.
struct Open {
    connection: Arc<HttpConnection>,
    _present: PresentGuard,
    stream: u64,
    number: u64,
    max: usize,
    left: usize,
    until: Instant,
    next: Next,
}

enum Next {
    Greeting,
    Answers,
    Nothing,
}

/// A stream of a session's answers.
pub(super) fn response(
    connection: Arc<HttpConnection>,
    exchange: &Exchange,
    present: PresentGuard,
    asked: &Asked,
) -> Response<Body> {
    let open = Open {
        stream: exchange.streams.begin(),
        connection,
        _present: present,
        number: asked.number,
        max: asked.max,
        left: asked.max,
        until: Instant::now() + asked.wait,
        next: Next::Greeting,
    };
    let parts = stream::unfold(open, |mut open| async move {
        let part = open.part().await?;
        Some((Ok::<_, Infallible>(part), open))
    });
    let mut response = with_body(Body::from_stream(parts), "text/event-stream", "no-store");
    // Asks proxies not to hold the answer back until it is complete.
    let name = HeaderName::from_static("x-accel-buffering");
    response
        .headers_mut()
        .insert(name, HeaderValue::from_static("no"));
    response
}

impl Open {
    /// The next part of the stream; `None` at its end.
    async fn part(&mut self) -> Option<Bytes> {
        match self.next {
            Next::Greeting => {
                self.next = Next::Answers;
                self.left = self.left.saturating_sub(events::OPEN.len());
                return Some(Bytes::from_static(events::OPEN.as_bytes()));
            }
            Next::Answers => {}
            Next::Nothing => return None,
        }
        let Exchange {
            downloads, streams, ..
        } = self.connection.exchange()?;
        let wait = self.until.saturating_duration_since(Instant::now());
        let streamed = tokio::select! {
            biased;
            streamed = downloads.streamed(self.number, self.max, wait) => streamed,
            // The client learns of the end by its next request.
            () = self.connection.ended() => Streamed::Nothing,
            () = streams.replaced(self.stream) => Streamed::Nothing,
        };
        match streamed {
            Streamed::Answer(number, body) if body.len() <= STREAMED_MAX => {
                let event = events::event(number, &body);
                if event.len() + events::END_MAX > self.left {
                    return self.end(events::MORE);
                }
                self.left -= event.len();
                self.number = number + 1;
                // It is a copy, which waits for the socket whatever the client says of the answer.
                Some(downloads.charged(event))
            }
            Streamed::Answer(..) | Streamed::NoRoom => self.end(events::MORE),
            Streamed::Nothing => self.end(events::IDLE),
        }
    }

    fn end(&mut self, last: &'static str) -> Option<Bytes> {
        self.next = Next::Nothing;
        Some(Bytes::from_static(last.as_bytes()))
    }
}
