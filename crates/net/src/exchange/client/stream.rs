//! An event stream of the server, which brings answers as soon as there are any, without a request for each.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use futures_util::{Stream, StreamExt};
use reqwest::Response;
use reqwest::header::CONTENT_TYPE;
use sse_stream::{Error, Sse, SseByteStream};
use tokio::time::timeout;

use super::super::events::{self, Event};
use super::Session;
use crate::http::client::failure;

/// A stream whose first event takes longer than this is held back on the way, mostly by a proxy that waits
/// for the whole answer.
const FIRST_EVENT: Duration = Duration::from_secs(3);

/// After this many streams in a row that broke off without an answer, no more are opened.
const CUTS: u32 = 3;

/// Whether a path lets event streams through, as far as is known. The sessions of one path share it.
#[derive(Debug, Default)]
pub struct EventStreams {
    refused: AtomicBool,
}

impl EventStreams {
    /// Whether the path may let event streams through.
    pub fn may_pass(&self) -> bool {
        !self.refused.load(Relaxed)
    }

    fn give_up(&self, why: &str) {
        if !self.refused.swap(true, Relaxed) {
            tracing::info!(
                why,
                "event streams do not pass this path: the server is polled instead"
            );
        }
    }
}

/// What a session knows about event streams.
#[derive(Debug)]
pub(super) struct Attempts {
    streams: Option<Arc<EventStreams>>,
    /// How many streams broke off in a row.
    cuts: u32,
}

impl Attempts {
    pub(super) fn new(streams: Option<Arc<EventStreams>>) -> Self {
        Self { streams, cuts: 0 }
    }

    /// Whether to try to open a stream.
    pub(super) fn may_pass(&self) -> bool {
        self.streams
            .as_ref()
            .is_some_and(|streams| streams.may_pass())
    }

    /// A stream could not be opened.
    pub(super) fn failed(&mut self, error: &NoStream) {
        match error {
            NoStream::HeldBack(why) => self.give_up(why),
            NoStream::Failed(why) => self.broke_off(why),
        }
    }

    /// Opens no more streams on this path; logs why.
    fn give_up(&self, why: &str) {
        if let Some(streams) = &self.streams {
            streams.give_up(why);
        }
    }

    /// An answer came in a stream, or the server ended it.
    pub(super) fn worked(&mut self) {
        self.cuts = 0;
    }

    /// A stream broke off.
    pub(super) fn broke_off(&mut self, why: &str) {
        self.cuts += 1;
        if self.cuts >= CUTS {
            self.give_up(why);
        }
    }
}

/// An open stream, whose first event has come.
pub(super) struct EventStream {
    events: Pin<Box<dyn Stream<Item = Result<Sse, Error>> + Send>>,
    /// How long it may be silent.
    silence: Duration,
}

/// How a stream ends.
#[derive(Debug)]
pub(super) enum Broken {
    /// It broke off: its remaining answers can be polled for.
    Off(String),
    /// The server violated the protocol.
    Wrong(String),
}

/// Why there is no stream.
#[derive(Debug)]
pub(super) enum NoStream {
    /// The server has no streams, or something on the way holds them back: further attempts would fail, too.
    HeldBack(String),
    /// This attempt failed; another one may succeed.
    Failed(String),
}

/// Asks for a stream that begins with the answer of this number, and waits for its first event.
pub(super) async fn open(
    session: &Session,
    number: u64,
    got: u64,
) -> Result<EventStream, NoStream> {
    let opened = timeout(FIRST_EVENT, try_open(session, number, got)).await;
    opened.unwrap_or_else(|_| {
        let seconds = FIRST_EVENT.as_secs_f64();
        Err(NoStream::HeldBack(format!(
            "no event came within {seconds} s"
        )))
    })
}

async fn try_open(session: &Session, number: u64, got: u64) -> Result<EventStream, NoStream> {
    let request = session
        .ask(number, got, session.wait, &[("events", "1")])
        .header("accept", "text/event-stream");
    let response = request.send().await;
    let response = response.map_err(|error| NoStream::Failed(failure(&error)))?;
    let status = response.status();
    let kind = response.headers().get(CONTENT_TYPE);
    let kind = kind.and_then(|it| it.to_str().ok()).unwrap_or_default();
    if !status.is_success() {
        return Err(NoStream::Failed(format!("HTTP {status}")));
    }
    if !kind.starts_with("text/event-stream") {
        return Err(NoStream::HeldBack(format!("the answer is {kind:?}")));
    }
    let mut stream = EventStream {
        events: bounded(response, session.answer_max),
        silence: session.wait + session.client.options().timeout,
    };
    match stream.next().await {
        Ok(Event::Open) => Ok(stream),
        Ok(_) => Err(NoStream::HeldBack(
            "it begins with another event".to_owned(),
        )),
        Err(Broken::Off(why) | Broken::Wrong(why)) => Err(NoStream::Failed(why)),
    }
}

/// The events of an answer of at most `max` bytes, so that no event has more either.
fn bounded(
    response: Response,
    max: usize,
) -> Pin<Box<dyn Stream<Item = Result<Sse, Error>> + Send>> {
    let mut left = max;
    let bytes = response.bytes_stream().map(move |part| match part {
        Ok(part) if part.len() <= left => {
            left -= part.len();
            Ok(part)
        }
        Ok(_) => Err(io::Error::other(format!("it has more than {max} bytes"))),
        Err(error) => Err(io::Error::other(failure(&error))),
    });
    Box::pin(SseByteStream::new(bytes))
}

impl EventStream {
    /// The next event. Cancel-safe.
    pub(super) async fn next(&mut self) -> Result<Event, Broken> {
        loop {
            let next = timeout(self.silence, self.events.next()).await;
            let event = match next {
                Ok(Some(Ok(event))) => event,
                Ok(Some(Err(Error::Body(error)))) => return Err(Broken::Off(error.to_string())),
                Ok(Some(Err(error))) => return Err(Broken::Wrong(error.to_string())),
                Ok(None) => {
                    return Err(Broken::Off("the event stream broke off".to_owned()));
                }
                Err(_) => {
                    let seconds = self.silence.as_secs_f64();
                    return Err(Broken::Off(format!("nothing came for {seconds} s")));
                }
            };
            match events::read(&event) {
                Ok(Event::Other) => {}
                Ok(event) => return Ok(event),
                Err(error) => return Err(Broken::Wrong(error.to_string())),
            }
        }
    }
}
