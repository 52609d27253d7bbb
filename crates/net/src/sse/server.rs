//! An event stream that a client reads, one event per frame.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue};
use axum::http::{Response, StatusCode};
use breakbulk_link::{Carries, Frame};
use bytes::Bytes;
use futures_util::Stream;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, Sleep, sleep, timeout};

use crate::http::connection::{HttpConnection, HttpSource, Registration, closed};
use crate::http::server::{ServerState, not_yours};
use crate::http::{Answer, Arrival, Arrived, Way};
use crate::transport::{Lost, Sink, Transport};

/// What the HTTP library gets at once; when it has taken that, the reader reads.
const CHUNK: usize = 32 << 10;

/// A reader that takes so many bytes in a second is not slow.
const BYTES_A_SECOND: u64 = 1 << 10;

/// An event stream to a client, and the POSTs from it.
#[derive(Debug)]
pub struct SseServer {
    source: HttpSource,
    sink: SseServerSink,
}

/// The half that frames go out by.
#[derive(Debug)]
pub struct SseServerSink {
    out: mpsc::Sender<Out>,
    slow: Duration,
    registration: Arc<Registration>,
}

impl Transport for SseServer {
    type Source = HttpSource;
    type Sink = SseServerSink;

    /// Both: binary comes up, text goes down.
    fn carries(&self, _carries: Carries) -> bool {
        true
    }

    fn split(self) -> (HttpSource, SseServerSink) {
        (self.source, self.sink)
    }
}

impl Sink for SseServerSink {
    async fn send(&mut self, frame: Frame) -> Result<(), Lost> {
        match frame {
            Frame::Text(text) => self.hand(Some(text)).await,
            Frame::Binary(_) => Err(Lost("an event stream carries text alone".to_owned())),
        }
    }

    async fn ping(&mut self) -> Result<(), Lost> {
        self.hand(None).await
    }

    async fn close(&mut self, code: u16, reason: &str) {
        // The stream ends when the sender of its events is gone.
        self.out = mpsc::channel(1).0;
        self.registration.connection.end(closed(code, reason));
    }
}

impl SseServerSink {
    async fn hand(&mut self, event: Option<Bytes>) -> Result<(), Lost> {
        let size = event.as_ref().map_or(0, Bytes::len) as u64;
        let patience = self.slow + Duration::from_secs(size / BYTES_A_SECOND);
        let (taken, until_taken) = oneshot::channel();
        let handed = async {
            self.out.send(Out { event, taken }).await.ok()?;
            until_taken.await.ok()
        };
        let seconds = patience.as_secs_f64();
        match timeout(patience, handed).await {
            Ok(Some(())) => Ok(()),
            Ok(None) => Err(Lost("the event stream is gone".to_owned())),
            Err(_) => Err(Lost(format!(
                "the reader of the event stream is too slow: {size} bytes not taken in {seconds} s"
            ))),
        }
    }
}

/// An event on its way to the stream, or a heartbeat.
#[derive(Debug)]
struct Out {
    event: Option<Bytes>,
    /// Told once the stream wants more.
    taken: oneshot::Sender<()>,
}

/// The handler of a request for the stream.
pub(crate) async fn events(
    State(state): State<Arc<ServerState>>,
    request: Request,
) -> Result<Response<Body>, Answer> {
    let (head, _) = request.into_parts();
    let no_peer = || Answer::text(StatusCode::BAD_REQUEST, state.options.dialect.no_peer);
    let peer_id = state.peer_id(&head).ok_or_else(no_peer)?;
    let (claim, grant) = state.claim(Way::Sse, peer_id, &head)?;
    if let Some(connection) = state.registry.find(&claim.peer_id)
        && !connection.is_of(&grant)
    {
        return Err(not_yours());
    }
    let permit = state.permit_for(&claim.peer_id).await?;
    let source = HttpConnection::open(&state, &claim, &grant, permit, None);
    let (out, outs) = mpsc::channel(1);
    let events = Events {
        outs,
        connection: source.connection(),
        beat: Box::pin(sleep(state.options.heartbeat)),
        heartbeat: state.options.heartbeat,
        parts: vec![Bytes::from_static(b": ok\n\n")],
        taken: None,
    };
    let sink = SseServerSink {
        out,
        slow: state.options.slow,
        registration: source.registration(),
    };
    let transport = Arrived::Sse(SseServer { source, sink });
    state
        .receive(Arrival {
            claim,
            grant,
            transport,
        })
        .await?;
    let mut response = Response::new(Body::from_stream(events));
    for (name, value) in [
        (CONTENT_TYPE, "text/event-stream"),
        (CACHE_CONTROL, "no-cache"),
        // A proxy that collects what it gets would keep events from their reader.
        (HeaderName::from_static("x-accel-buffering"), "no"),
    ] {
        let value = HeaderValue::from_static(value);
        response.headers_mut().insert(name, value);
    }
    Ok(response)
}

/// The body of the answer.
struct Events {
    outs: mpsc::Receiver<Out>,
    connection: Arc<HttpConnection>,
    beat: Pin<Box<Sleep>>,
    heartbeat: Duration,
    /// What is left of the event under way, the last part first.
    parts: Vec<Bytes>,
    taken: Option<oneshot::Sender<()>>,
}

impl Stream for Events {
    type Item = Result<Bytes, std::convert::Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(part) = self.parts.last_mut() {
                let chunk = part.split_to(part.len().min(CHUNK));
                if part.is_empty() {
                    self.parts.pop();
                }
                return Poll::Ready(Some(Ok(chunk)));
            }
            if let Some(taken) = self.taken.take() {
                let _ = taken.send(());
            }
            match self.outs.poll_recv(context) {
                Poll::Ready(Some(out)) => {
                    self.parts = out.event.map_or_else(beat, event);
                    self.taken = Some(out.taken);
                }
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Pending => {
                    ready!(self.beat.as_mut().poll(context));
                    self.parts = beat();
                    // The stream wants more, so that what it had is on its way.
                    self.connection.alive();
                }
            }
            let next = Instant::now() + self.heartbeat;
            self.beat.as_mut().reset(next);
        }
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        self.connection
            .end(closed(1006, "the event stream is gone"));
    }
}

fn beat() -> Vec<Bytes> {
    vec![Bytes::from_static(b": heartbeat\n\n")]
}

/// The parts of an event, the last first; the text itself is not copied. A line break, which is only
/// space in JSON, begins another line of data.
fn event(text: Bytes) -> Vec<Bytes> {
    let mut parts = vec![Bytes::from_static(b"data: ")];
    let mut from = 0;
    for at in memchr::memchr2_iter(b'\n', b'\r', &text) {
        parts.push(text.slice(from..at));
        parts.push(Bytes::from_static(b"\ndata: "));
        from = at + 1;
    }
    parts.push(text.slice(from..));
    parts.push(Bytes::from_static(b"\n\n"));
    // An empty part would be an empty chunk, which ends a body.
    parts.retain(|part| !part.is_empty());
    parts.reverse();
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_line_of_data_for_each_line_of_text() {
        for (text, expected) in [
            ("{}", "data: {}\n\n"),
            ("", "data: \n\n"),
            ("{\n}", "data: {\ndata: }\n\n"),
            ("\r\n", "data: \ndata: \ndata: \n\n"),
        ] {
            let mut parts = event(Bytes::copy_from_slice(text.as_bytes()));
            parts.reverse();
            assert_eq!(parts.concat(), expected.as_bytes(), "{text:?}");
        }
    }
}
