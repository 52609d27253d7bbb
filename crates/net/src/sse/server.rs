//! The server: answers a request for the event stream, and sends one event per frame.

use std::convert::Infallible;
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

use crate::bytes_with;
use crate::http::connection::{HttpConnection, HttpSource, Registration, Requests, closed};
use crate::http::server::{ServerState, peer_id_taken};
use crate::http::{AcceptedTransport, Answer, Arrival, Way};
use crate::sse::EventText;
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
        let (held, while_held) = oneshot::channel::<Infallible>();
        // The last part of it, in the buffer of the socket, keeps the memory of all.
        let event = event.map(|text| match text.len() > CHUNK {
            true => bytes_with(text, held),
            false => text,
        });
        let sent = async {
            self.out.send(OutgoingEvent { event, taken }).await.ok()?;
            until_taken.await.ok()?;
            // Nothing is said by it but that it is dropped.
            let _ = while_held.await;
            Some(())
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
        comment: Some(Bytes::from_static(b": ok\n\n")),
        event: None,
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
    /// What is sent before the rest of the event: a heartbeat, or the first comment.
    comment: Option<Bytes>,
    event: Option<EventText>,
    taken: Option<oneshot::Sender<()>>,
}

impl Stream for Events {
    type Item = Result<Bytes, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(comment) = self.comment.take() {
                return Poll::Ready(Some(Ok(comment)));
            }
            if let Some(chunk) = self.event.as_mut().and_then(Iterator::next) {
                return Poll::Ready(Some(Ok(chunk)));
            }
            self.event = None;
            if let Some(taken) = self.taken.take() {
                let _ = taken.send(());
            }
            match self.outs.poll_recv(context) {
                Poll::Ready(Some(out)) => {
                    match out.event {
                        Some(text) => self.event = Some(EventText::new(None, text, CHUNK)),
                        None => self.comment = Some(beat()),
                    }
                    self.taken = Some(out.taken);
                }
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Pending => {
                    ready!(self.beat.as_mut().poll(context));
                    self.comment = Some(beat());
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

fn beat() -> Bytes {
    Bytes::from_static(b": heartbeat\n\n")
}
