//! The server: answers a request for the event stream, and sends one event per frame.

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

use crate::http::connection::{HttpConnection, HttpSource, Registration, Requests, closed};
use crate::http::server::{ServerState, peer_id_taken};
use crate::http::{AcceptedTransport, Answer, Arrival, Way};
use crate::transport::{Lost, Sink, Transport};

/// The size of the chunks given to hyper: it asks for the next one once the client reads.
const CHUNK: usize = 32 << 10;

/// A client that reads this many bytes per second is fast enough.
const BYTES_A_SECOND: u64 = 1 << 10;

/// An event stream to a client, and the POSTs from it.
#[derive(Debug)]
pub struct SseServer {
    source: HttpSource,
    sink: SseServerSink,
}

/// The sending half: the event stream.
#[derive(Debug)]
pub struct SseServerSink {
    out: mpsc::Sender<OutgoingEvent>,
    slow: Duration,
    registration: Arc<Registration>,
}

impl Transport for SseServer {
    type Source = HttpSource;
    type Sink = SseServerSink;

    /// Both: binary frames come in by POSTs, text goes out by the event stream.
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
            Frame::Text(text) => self.send_event(Some(text)).await,
            Frame::Binary(_) => Err(Lost("an event stream carries only text".to_owned())),
        }
    }

    async fn ping(&mut self) -> Result<(), Lost> {
        self.send_event(None).await
    }

    async fn close(&mut self, code: u16, reason: &str) {
        // The stream ends when the sending end of its channel is dropped.
        self.out = mpsc::channel(1).0;
        self.registration.connection.end(closed(code, reason));
    }
}

impl SseServerSink {
    /// Sends an event, or a heartbeat (`None`), and waits until the client has taken it.
    async fn send_event(&mut self, event: Option<Bytes>) -> Result<(), Lost> {
        let size = event.as_ref().map_or(0, Bytes::len) as u64;
        let limit = self.slow + Duration::from_secs(size / BYTES_A_SECOND);
        let (taken, until_taken) = oneshot::channel();
        let sent = async {
            self.out.send(OutgoingEvent { event, taken }).await.ok()?;
            until_taken.await.ok()
        };
        let seconds = limit.as_secs_f64();
        match timeout(limit, sent).await {
            Ok(Some(())) => Ok(()),
            Ok(None) => Err(Lost("the event stream has ended".to_owned())),
            Err(_) => Err(Lost(format!(
                "the client reads the event stream too slowly: {size} bytes not taken in {seconds} s"
            ))),
        }
    }
}

/// An event for the stream, or a heartbeat (`None`).
#[derive(Debug)]
struct OutgoingEvent {
    event: Option<Bytes>,
    /// Notified once the client has taken the event.
    taken: oneshot::Sender<()>,
}

/// Handles a request for the event stream.
pub(crate) async fn events(
    State(state): State<Arc<ServerState>>,
    request: Request,
) -> Result<Response<Body>, Answer> {
    let (head, _) = request.into_parts();
    let no_peer = || Answer::text(StatusCode::BAD_REQUEST, state.options.dialect.no_peer);
    let peer_id = state.peer_id(&head).ok_or_else(no_peer)?;
    let (claim, grant) = state.authorize(Way::Sse, peer_id, &head)?;
    if let Some(connection) = state.registry.find(&claim.peer_id)
        && !connection.belongs_to(&grant)
    {
        return Err(peer_id_taken());
    }
    let permit = state.permit_for(&claim).await?;
    let source = HttpConnection::open(&state, &claim, &grant, permit, Requests::Events);
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
    let transport = AcceptedTransport::Sse(SseServer { source, sink });
    state
        .queue_arrival(Arrival {
            claim,
            grant,
            transport,
        })
        .await?;
    let mut response = Response::new(Body::from_stream(events));
    for (name, value) in [
        (CONTENT_TYPE, "text/event-stream"),
        (CACHE_CONTROL, "no-cache"),
        // A proxy that buffers the answer would hold back events.
        (HeaderName::from_static("x-accel-buffering"), "no"),
    ] {
        let value = HeaderValue::from_static(value);
        response.headers_mut().insert(name, value);
    }
    Ok(response)
}

/// The body of the answer: a stream of events.
struct Events {
    outs: mpsc::Receiver<OutgoingEvent>,
    connection: Arc<HttpConnection>,
    beat: Pin<Box<Sleep>>,
    heartbeat: Duration,
    /// The parts of the current event that are not sent yet, in reverse order.
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
                    // hyper asks for more, so the client has taken the last heartbeat.
                    self.connection.report_alive();
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
            .end(closed(1006, "the event stream has ended"));
    }
}

fn beat() -> Vec<Bytes> {
    vec![Bytes::from_static(b": heartbeat\n\n")]
}

/// The parts of an event in reverse order; the text itself is not copied. A line break in the text
/// (white space, in JSON) begins another `data:` line.
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
    // An empty part would be an empty chunk, which ends a chunked body.
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
