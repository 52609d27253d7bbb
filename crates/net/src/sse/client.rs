//! The client's side: an event stream down, POSTs up.

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

use crate::http::client::{Site, chain};
use crate::http::{ClientOptions, ConnectError};
use crate::transport::{Incoming, Lost, Sink, Source, Transport};

/// The largest event where nothing else is said.
const EVENT_MAX: usize = 16 << 20;

/// Bytes around the text of an event.
const AROUND: usize = 1 << 10;

/// An event stream from a server, and POSTs to it.
#[derive(Debug)]
pub struct SseTransport {
    source: SseSource,
    sink: SseSink,
}

/// Opens the event stream of the server at an `http://` or `https://` address, and posts each
/// frame.
pub async fn connect(url: &str, options: &ClientOptions) -> Result<SseTransport, ConnectError> {
    let site = Site::new(url, options).await?;
    let dialect = &options.dialect;
    let request = site
        .request(
            Method::GET,
            dialect.events,
            &[(dialect.peer_parameter, &options.peer_id)],
        )
        .header("accept", "text/event-stream");
    let response = site.ask(request, options.timeout).await?;
    let kind = response.headers().get(CONTENT_TYPE);
    let kind = kind.and_then(|it| it.to_str().ok()).unwrap_or_default();
    if !kind.starts_with("text/event-stream") {
        let reason = format!("its answer is {kind:?} instead of an event stream");
        return Err(site.not_ours(reason));
    }
    let gauge = Arc::new(Gauge::default());
    let measured = gauge.clone();
    let bytes = response.bytes_stream().map(move |chunk| match chunk {
        Ok(chunk) => measured.take(chunk),
        Err(error) => Err(io::Error::other(chain(&error))),
    });
    let source = SseSource {
        events: Box::pin(SseByteStream::new(bytes)),
        gauge,
        site: site.clone(),
    };
    Ok(SseTransport {
        source,
        sink: SseSink { site },
    })
}

impl Transport for SseTransport {
    type Source = SseSource;
    type Sink = SseSink;

    /// Both: text comes down, binary goes up.
    fn carries(&self, _carries: Carries) -> bool {
        true
    }

    fn expect(&mut self, largest: usize) {
        let limit = largest.saturating_add(AROUND);
        self.source.gauge.limit.store(limit, Relaxed);
    }

    fn split(self) -> (SseSource, SseSink) {
        (self.source, self.sink)
    }
}

/// Counts what has come of an event before it is collected, and notes that something came.
#[derive(Debug)]
struct Gauge {
    limit: AtomicUsize,
    event: AtomicUsize,
    heard: AtomicBool,
}

impl Default for Gauge {
    fn default() -> Self {
        Self {
            limit: AtomicUsize::new(EVENT_MAX),
            event: AtomicUsize::new(0),
            heard: AtomicBool::new(false),
        }
    }
}

impl Gauge {
    fn take(&self, chunk: Bytes) -> io::Result<Bytes> {
        self.heard.store(true, Relaxed);
        let size = self.event.fetch_add(chunk.len(), Relaxed);
        if self.is_over() {
            return Err(io::Error::other(format!("{size} bytes and no event")));
        }
        // The end of one event and the beginning of the next may come together.
        Ok(chunk)
    }

    fn is_over(&self) -> bool {
        self.event.load(Relaxed) > self.limit.load(Relaxed)
    }
}

/// The half that frames come in by.
pub struct SseSource {
    events: Pin<Box<dyn Stream<Item = Result<Sse, Error>> + Send>>,
    gauge: Arc<Gauge>,
    site: Arc<Site>,
}

impl std::fmt::Debug for SseSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SseSource")
            .field("site", &self.site)
            .finish_non_exhaustive()
    }
}

impl SseSource {
    fn poll_event(&mut self, context: &mut Context<'_>) -> Poll<Incoming> {
        let next = self.events.as_mut().poll_next(context);
        let heard = self.gauge.heard.swap(false, Relaxed);
        Poll::Ready(match next {
            Poll::Ready(Some(Ok(event))) => {
                self.gauge.event.store(0, Relaxed);
                match event.data {
                    // In memory of its own size: that is what it is charged.
                    Some(text) => {
                        let text = text.into_boxed_str().into_boxed_bytes();
                        Incoming::Frame(Frame::Text(Bytes::from(text)))
                    }
                    None => Incoming::Life,
                }
            }
            Poll::Ready(Some(Err(_))) if self.gauge.is_over() => {
                let limit = self.gauge.limit.load(Relaxed);
                Incoming::Broken(Closed {
                    code: 1009,
                    reason: format!("an event is over the limit of {limit} bytes"),
                })
            }
            Poll::Ready(Some(Err(error))) => gone(&format!("the event stream failed: {error}")),
            Poll::Ready(None) => gone("the server ended the event stream"),
            // A comment is no event, but a sign of life.
            Poll::Pending if heard => Incoming::Life,
            Poll::Pending => return Poll::Pending,
        })
    }
}

impl Source for SseSource {
    async fn next(&mut self) -> Incoming {
        let site = self.site.clone();
        tokio::select! {
            biased;
            () = site.over() => gone("closed"),
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

/// The half that frames go out by, one POST after another.
#[derive(Debug)]
pub struct SseSink {
    site: Arc<Site>,
}

impl Sink for SseSink {
    async fn send(&mut self, frame: Frame) -> Result<(), Lost> {
        self.site.post(frame).await
    }

    async fn close(&mut self, _code: u16, _reason: &str) {
        // HTTP has no words for it: the stream is let go of.
        self.site.over.send_replace(true);
    }
}
