//! The client: reads the event stream and posts frames.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll};

use breakbulk_link::{Carries, Closed, Frame};
use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use reqwest::Method;
use reqwest::header::CONTENT_TYPE;
use sse_stream::{Error, Sse, SseByteStream};

use crate::http::client::{HttpClient, failure};
use crate::http::{ClientOptions, ConnectError};
use crate::transport::{Incoming, Lost, Sink, Source, Transport};

/// The default limit for an event, in bytes.
const EVENT_MAX: usize = 16 << 20;

/// Bytes that an event may have besides its text.
const EVENT_OVERHEAD: usize = 1 << 10;

/// An event stream from a server, and POSTs to it.
#[derive(Debug)]
pub struct SseTransport {
    source: SseSource,
    sink: SseSink,
}

/// Opens the event stream of the server at an `http://` or `https://` address.
pub async fn connect(url: &str, options: &ClientOptions) -> Result<SseTransport, ConnectError> {
    let client = HttpClient::new(url, options).await?;
    let dialect = &options.dialect;
    let request = client
        .request(
            Method::GET,
            dialect.events,
            &[(dialect.peer_parameter, &options.peer_id)],
        )
        .header("accept", "text/event-stream");
    let response = client.ask(request, options.timeout).await?;
    let kind = response.headers().get(CONTENT_TYPE);
    let kind = kind.and_then(|it| it.to_str().ok()).unwrap_or_default();
    if !kind.starts_with("text/event-stream") {
        let reason = format!("its answer is {kind:?} instead of an event stream");
        return Err(client.unexpected_answer(reason));
    }
    let size = Arc::new(EventSize::default());
    let counted = size.clone();
    let bytes = response.bytes_stream().map(move |chunk| match chunk {
        Ok(chunk) => counted.count(chunk),
        Err(error) => Err(io::Error::other(failure(&error))),
    });
    let source = SseSource {
        events: Box::pin(SseByteStream::new(bytes)),
        size,
        client: client.clone(),
    };
    Ok(SseTransport {
        source,
        sink: SseSink { client },
    })
}

impl Transport for SseTransport {
    type Source = SseSource;
    type Sink = SseSink;

    /// Both: text comes in by the event stream, binary frames go out by POSTs.
    fn carries(&self, _carries: Carries) -> bool {
        true
    }

    fn limit_frames(&mut self, largest: usize) {
        let limit = largest.saturating_add(EVENT_OVERHEAD);
        self.source.size.limit.store(limit, Relaxed);
    }

    fn split(self) -> (SseSource, SseSink) {
        (self.source, self.sink)
    }
}

/// Counts the bytes of the current event before the parser buffers them, and notes that bytes came in.
#[derive(Debug)]
struct EventSize {
    limit: AtomicUsize,
    bytes: AtomicUsize,
    received: AtomicBool,
}

impl Default for EventSize {
    fn default() -> Self {
        Self {
            limit: AtomicUsize::new(EVENT_MAX),
            bytes: AtomicUsize::new(0),
            received: AtomicBool::new(false),
        }
    }
}

impl EventSize {
    fn count(&self, chunk: Bytes) -> io::Result<Bytes> {
        self.received.store(true, Relaxed);
        // A blank line ends an event or a comment; the parser does not report comments.
        let size = match end_of_event(&chunk) {
            Some(at) => {
                self.bytes.store(chunk.len() - at, Relaxed);
                0
            }
            None => self.bytes.fetch_add(chunk.len(), Relaxed),
        };
        if self.is_over() {
            return Err(io::Error::other(format!(
                "{size} bytes without a complete event"
            )));
        }
        // A chunk may hold the end of one event and the beginning of the next.
        Ok(chunk)
    }

    fn is_over(&self) -> bool {
        self.bytes.load(Relaxed) > self.limit.load(Relaxed)
    }
}

/// Where the last blank line of a chunk ends.
fn end_of_event(chunk: &[u8]) -> Option<usize> {
    let ends: [&[u8]; 3] = [b"\n\n", b"\r\n\r\n", b"\r\r"];
    let ends = ends.iter().filter_map(|end| {
        let at = memchr::memmem::rfind(chunk, end)?;
        Some(at + end.len())
    });
    ends.max()
}

/// The receiving half: the event stream.
pub struct SseSource {
    events: Pin<Box<dyn Stream<Item = Result<Sse, Error>> + Send>>,
    size: Arc<EventSize>,
    client: Arc<HttpClient>,
}

impl std::fmt::Debug for SseSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SseSource")
            .field("client", &self.client)
            .finish_non_exhaustive()
    }
}

impl SseSource {
    fn poll_event(&mut self, context: &mut Context<'_>) -> Poll<Incoming> {
        let next = self.events.as_mut().poll_next(context);
        let received = self.size.received.swap(false, Relaxed);
        Poll::Ready(match next {
            Poll::Ready(Some(Ok(event))) => {
                self.size.bytes.store(0, Relaxed);
                match event.data {
                    // Shrunk to its length, since the link charges a frame by its length.
                    Some(text) => {
                        let text = text.into_boxed_str().into_boxed_bytes();
                        Incoming::Frame(Frame::Text(Bytes::from(text)))
                    }
                    None => Incoming::Alive,
                }
            }
            Poll::Ready(Some(Err(_))) if self.size.is_over() => {
                let limit = self.size.limit.load(Relaxed);
                Incoming::Broken(Closed {
                    code: 1009,
                    reason: format!("an event is over the limit of {limit} bytes"),
                })
            }
            Poll::Ready(Some(Err(Error::Body(error)))) => {
                gone(&format!("the event stream failed: {error}"))
            }
            Poll::Ready(Some(Err(error))) => gone(&format!("the event stream failed: {error}")),
            Poll::Ready(None) => gone("the server ended the event stream"),
            // A comment (the server's heartbeat) is not an event, but shows that the server is alive.
            Poll::Pending if received => Incoming::Alive,
            Poll::Pending => return Poll::Pending,
        })
    }
}

impl Source for SseSource {
    async fn next(&mut self) -> Incoming {
        let client = self.client.clone();
        tokio::select! {
            biased;
            () = client.closed() => gone("closed"),
            incoming = poll_fn(|context| self.poll_event(context)) => incoming,
        }
    }
}

fn gone(reason: &str) -> Incoming {
    Incoming::Closed(Closed {
        code: 1006,
        reason: reason.to_owned(),
    })
}

/// The sending half: one POST after another.
#[derive(Debug)]
pub struct SseSink {
    client: Arc<HttpClient>,
}

impl Sink for SseSink {
    async fn send(&mut self, frame: Frame) -> Result<(), Lost> {
        self.client.post(frame).await
    }

    async fn close(&mut self, _code: u16, _reason: &str) {
        // The protocol has no close message: the event stream is dropped.
        self.client.over.send_replace(true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_are_no_part_of_an_event() {
        let size = EventSize::default();
        size.limit.store(100, Relaxed);
        for _ in 0..100 {
            assert!(size.count(Bytes::from_static(b": still here\n\n")).is_ok());
        }
        let event = |length: usize| size.count(Bytes::from(vec![b'x'; length]));
        assert!(event(60).is_ok());
        assert!(size.count(Bytes::from_static(b"y\r\n\r\ndata: z")).is_ok());
        assert_eq!(size.bytes.load(Relaxed), 7);
        assert!(event(93).is_ok());
        assert!(event(1).is_err(), "an event without an end");
    }
}
