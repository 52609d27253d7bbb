//! A WebSocket as a transport: one WebSocket message is one frame of the link.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, ready};

use breakbulk_link::{Budget, Carries, Closed, Frame, lock};
use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Control, Data, OpCode};

use super::reader::{ReadError, Reader, WsEvent, sendable};
use super::socket::Socket;
use super::writer::Writer;
use crate::gate::Permit;
use crate::message_timer::MessageTimer;
use crate::transport::{Incoming, Lost, Sink, Source, Transport};
use crate::unfinished::{NO_MEMORY, Unfinished};

/// The longest reason that fits in a close frame.
const REASON_MAX: usize = 123;

/// An open WebSocket.
#[derive(Debug)]
pub struct WebSocket {
    shared: Arc<Shared>,
    fragment: Option<usize>,
    subprotocol: Option<String>,
    peer: SocketAddr,
}

/// The parts of a new WebSocket.
pub(crate) struct Parts {
    pub(crate) socket: Socket,
    pub(crate) peer: SocketAddr,
    /// Bytes that came with the end of the handshake.
    pub(crate) rest: Vec<u8>,
    pub(crate) server: bool,
    pub(crate) frame_limit: usize,
    pub(crate) fragment: Option<usize>,
    pub(crate) subprotocol: Option<String>,
    /// The listener's permit for one connection, released when both halves are dropped.
    pub(crate) permit: Option<Permit>,
}

impl WebSocket {
    pub(crate) fn new(parts: Parts) -> Self {
        let state = State {
            socket: parts.socket,
            reader: Reader::new(parts.server, parts.frame_limit, &parts.rest),
            writer: Writer::new(parts.server),
            sending: false,
            timer: None,
            unfinished: Unfinished::default(),
            broken: false,
            ends_first: false,
            ending: None,
        };
        Self {
            shared: Arc::new(Shared {
                state: Mutex::new(state),
                _permit: parts.permit,
            }),
            fragment: parts.fragment,
            subprotocol: parts.subprotocol,
            peer: parts.peer,
        }
    }

    /// The subprotocol that both ends agreed on.
    pub fn subprotocol(&self) -> Option<&str> {
        self.subprotocol.as_deref()
    }

    /// The address of the other end of the TCP connection.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }
}

impl Transport for WebSocket {
    type Source = WsSource;
    type Sink = WsSink;

    fn carries(&self, _carries: Carries) -> bool {
        true
    }

    fn limit_frames(&mut self, largest: usize) {
        self.shared.lock().reader.lower_limit(largest);
    }

    fn charge_to(&mut self, budget: &Budget) {
        self.shared.lock().unfinished.charge_to(budget);
    }

    fn split(self) -> (WsSource, WsSink) {
        let source = WsSource {
            shared: self.shared.clone(),
        };
        let sink = WsSink {
            shared: self.shared,
            fragment: self.fragment.map(|fragment| fragment.max(1)),
        };
        (source, sink)
    }
}

struct Shared {
    /// Locked only within a poll, never across an await.
    state: Mutex<State>,
    _permit: Option<Permit>,
}

struct State {
    socket: Socket,
    reader: Reader,
    writer: Writer,
    /// The sink waits until the socket is writable, and will write everything that is pending. A socket
    /// wakes only one writer, so the source must not wait for it as well.
    sending: bool,
    /// The timer of an unfinished incoming message.
    timer: Option<MessageTimer>,
    /// The charge for an unfinished incoming message.
    unfinished: Unfinished,
    /// The other end violated the protocol: further bytes are discarded.
    broken: bool,
    /// This side shuts the TCP connection down after its close frame: a server whose client has closed,
    /// or a side that closes because the other end violated the protocol.
    ends_first: bool,
    /// How the stream below ended, as far as it was seen.
    ending: Option<Ending>,
}

/// How the stream below a WebSocket ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ending {
    /// By an orderly end, as if the other end had nothing more to send.
    End,
    /// By a reset.
    Reset,
    /// By this TLS alert of the other end.
    TlsAlert(String),
    /// By another failure.
    Failed(String),
}

impl Ending {
    /// How a stream ended, by the error of a read or a write.
    pub fn of(error: &io::Error) -> Self {
        #[cfg(feature = "tls")]
        if let Some(alert) = super::tls::alert(error) {
            return Self::TlsAlert(alert);
        }
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Self::End,
            // A write to a connection that was reset fails with one of these.
            io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => Self::Reset,
            _ => Self::Failed(error.to_string()),
        }
    }
}

impl fmt::Debug for Shared {
    /// Omits the bytes of messages.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

impl State {
    fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = self.writer.poll_flush(context, &mut self.socket);
        if let Poll::Ready(Err(error)) = &flushed {
            // The system reports a reset once: if it was reported here, a read only finds the end of
            // the stream.
            self.ending.get_or_insert_with(|| Ending::of(error));
        }
        flushed
    }

    /// The next frame or event; a violation if a message takes too long to arrive.
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Incoming> {
        if self.broken {
            return self.poll_drain(context);
        }
        if let Some(timer) = &mut self.timer {
            timer.resume();
        }
        let incoming = self.poll_incoming(context);
        if let Poll::Ready(Incoming::Closed(_) | Incoming::Broken(_)) = incoming {
            self.give_up_message();
            return incoming;
        }
        let Some(bytes) = self.reader.unfinished() else {
            self.timer = None;
            self.unfinished.release();
            return incoming;
        };
        if !self.unfinished.charge(self.reader.held()) {
            return Poll::Ready(self.break_off(Closed {
                code: 1013,
                reason: NO_MEMORY.to_owned(),
            }));
        }
        let timer = self.timer.get_or_insert_with(|| MessageTimer::new(bytes));
        if let Poll::Ready(closed) = timer.poll_expired(context, bytes) {
            return Poll::Ready(self.break_off(closed));
        }
        if incoming.is_ready() {
            timer.pause();
        }
        incoming
    }

    /// Ends the connection: further bytes are discarded.
    fn break_off(&mut self, closed: Closed) -> Incoming {
        self.broken = true;
        self.ends_first = true;
        self.give_up_message();
        Incoming::Broken(closed)
    }

    /// The socket stays open until the other end answers the close: what has come must not stay, too.
    fn give_up_message(&mut self) {
        self.unfinished.release();
        self.reader.forget();
    }

    /// Reads the next frame or event, and sends the answer to a ping or close.
    fn poll_incoming(&mut self, context: &mut Context<'_>) -> Poll<Incoming> {
        if !self.sending {
            // Writes what is pending. A failure shows when reading, too.
            let _ = self.poll_flush(context);
        }
        let event = match self.reader.poll_event(context, &mut self.socket) {
            Poll::Ready(event) => event,
            // A peer that reads what we send is alive, even if our ping waits behind a large frame.
            Poll::Pending if self.writer.progressed() => return Poll::Ready(Incoming::Alive),
            Poll::Pending => return Poll::Pending,
        };
        let incoming = match event {
            Ok(WsEvent::Message(frame)) => return Poll::Ready(Incoming::Frame(frame)),
            Ok(WsEvent::Pong | WsEvent::Progress) => return Poll::Ready(Incoming::Alive),
            Ok(WsEvent::Ping(payload)) => {
                self.writer.pong(payload);
                Incoming::Alive
            }
            Ok(WsEvent::Close(closed, payload)) => {
                self.writer.close(payload);
                self.ends_first = self.reader.is_server();
                Incoming::Closed(closed)
            }
            Err(ReadError::Gone(error)) => {
                let ending = Ending::of(&error);
                match (&self.ending, &ending) {
                    // The error of a read is more exact than a write's broken pipe, unless the read only
                    // found the end.
                    (Some(_), Ending::End) => {}
                    _ => self.ending = Some(ending),
                }
                return Poll::Ready(gone(&error));
            }
            Err(ReadError::Broken(closed)) => {
                self.broken = true;
                self.ends_first = true;
                return Poll::Ready(Incoming::Broken(closed));
            }
        };
        if !self.sending {
            // Sends the answer now: it may be long until the next read.
            let _ = self.poll_flush(context);
        }
        Poll::Ready(incoming)
    }

    /// Reads and discards everything up to the end: closing a socket with unread bytes resets it,
    /// and the other end would not see our close frame.
    fn poll_drain(&mut self, context: &mut Context<'_>) -> Poll<Incoming> {
        let mut room = [0; 4096];
        // Yields now and then, as the peer may send without end.
        for _ in 0..64 {
            let mut buffer = ReadBuf::new(&mut room);
            let read = Pin::new(&mut self.socket).poll_read(context, &mut buffer);
            if let Err(error) = ready!(read) {
                return Poll::Ready(gone(&error));
            }
            if buffer.filled().is_empty() {
                return Poll::Ready(gone(&io::ErrorKind::UnexpectedEof.into()));
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

fn gone(error: &io::Error) -> Incoming {
    Incoming::Closed(Closed {
        code: 1006,
        reason: match error.kind() {
            io::ErrorKind::UnexpectedEof => {
                "the other end ended the connection without a close".to_owned()
            }
            _ => error.to_string(),
        },
    })
}

/// The receiving half.
#[derive(Debug)]
pub struct WsSource {
    shared: Arc<Shared>,
}

impl WsSource {
    /// How the stream below ended, if it did so without a close frame.
    pub fn ending(&self) -> Option<Ending> {
        self.shared.lock().ending.clone()
    }
}

impl Source for WsSource {
    async fn next(&mut self) -> Incoming {
        poll_fn(|context| self.shared.lock().poll_next(context)).await
    }

    fn charge_to(&mut self, budget: &Budget) {
        self.shared.lock().unfinished.charge_to(budget);
    }
}

/// The sending half.
#[derive(Debug)]
pub struct WsSink {
    shared: Arc<Shared>,
    fragment: Option<usize>,
}

impl Sink for WsSink {
    async fn send(&mut self, frame: Frame) -> Result<(), Lost> {
        let (mut kind, mut rest) = match frame {
            Frame::Text(bytes) => (Data::Text, bytes),
            Frame::Binary(bytes) => (Data::Binary, bytes),
        };
        if let Some(fragment) = self.fragment {
            while rest.len() > fragment {
                let part = rest.split_to(fragment);
                self.send_frame(OpCode::Data(kind), false, part).await?;
                kind = Data::Continue;
            }
        }
        self.send_frame(OpCode::Data(kind), true, rest).await
    }

    fn hold(&mut self, frame: Frame) -> Option<Frame> {
        if self
            .fragment
            .is_some_and(|fragment| frame.bytes().len() > fragment)
        {
            return Some(frame);
        }
        self.shared.lock().writer.hold(frame)
    }

    async fn flush(&mut self) -> Result<(), Lost> {
        self.poll_as_writer(State::poll_flush)
            .await
            .map_err(|error| Lost(error.to_string()))
    }

    async fn ping(&mut self) -> Result<(), Lost> {
        self.send_frame(OpCode::Control(Control::Ping), true, Bytes::new())
            .await
    }

    async fn close(&mut self, code: u16, reason: &str) {
        let code = if sendable(code) { code } else { 1011 };
        let mut payload = BytesMut::from(&code.to_be_bytes()[..]);
        let end = reason.floor_char_boundary(REASON_MAX);
        payload.extend_from_slice(&reason.as_bytes()[..end]);
        let mut payload = Some(payload.freeze());
        let closed = self.poll_as_writer(|state, context| {
            if let Some(payload) = payload.take() {
                // Ignored if the answer to the other end's close is queued already.
                state.writer.close(payload);
            }
            ready!(state.poll_flush(context))?;
            if state.ends_first {
                // The other end may wait for this side to end the TCP connection.
                ready!(Pin::new(&mut state.socket).poll_shutdown(context))?;
            }
            Poll::Ready(Ok(()))
        });
        let _ = closed.await;
    }
}

impl WsSink {
    /// Sets the size above which the next messages are sent as fragments; `None` sends each in one frame.
    pub fn set_fragment(&mut self, fragment: Option<usize>) {
        self.fragment = fragment.map(|fragment| fragment.max(1));
    }

    /// Sends one WebSocket frame, and waits until it is written.
    async fn send_frame(&mut self, opcode: OpCode, last: bool, payload: Bytes) -> Result<(), Lost> {
        let mut payload = Some(payload);
        self.poll_as_writer(|state, context| {
            // A pong may be half written. Small frames that are held share a write with this one.
            if payload.is_some() && state.writer.has_payload() {
                ready!(state.poll_flush(context))?;
            }
            if let Some(payload) = payload.take() {
                if state.writer.is_closed() {
                    return Poll::Ready(Err(io::Error::other("the WebSocket is closed")));
                }
                state.writer.begin(opcode, last, payload)?;
            }
            state.poll_flush(context)
        })
        .await
        .map_err(|error| Lost(error.to_string()))
    }

    /// Polls `work` until it is ready, as the one task that waits for the socket to become writable.
    async fn poll_as_writer(
        &self,
        mut work: impl FnMut(&mut State, &mut Context<'_>) -> Poll<io::Result<()>>,
    ) -> io::Result<()> {
        /// If this future is dropped half-way, the source writes what is pending.
        struct Sending<'s>(&'s Shared);
        impl Drop for Sending<'_> {
            fn drop(&mut self) {
                self.0.lock().sending = false;
            }
        }
        let sending = Sending(&self.shared);
        poll_fn(|context| {
            let mut state = sending.0.lock();
            let outcome = work(&mut state, context);
            state.sending = outcome.is_pending();
            outcome
        })
        .await
    }
}
