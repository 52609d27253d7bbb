//! A WebSocket as a transport: one message of it is one frame of ours.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use breakbulk_link::{Carries, Closed, Frame};
use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::OwnedSemaphorePermit;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Control, Data, OpCode};

use super::age::Age;
use super::reader::{Reader, Stop, Word, sendable};
use super::socket::Socket;
use super::writer::Writer;
use crate::transport::{Incoming, Lost, Sink, Source, Transport};

/// The longest reason that a close frame holds.
const REASON_MAX: usize = 123;

/// A WebSocket that is ready for frames.
#[derive(Debug)]
pub struct WebSocket {
    shared: Arc<Shared>,
    fragment: Option<usize>,
    subprotocol: Option<String>,
    peer: SocketAddr,
}

/// What a new WebSocket is made of.
pub(crate) struct Parts {
    pub(crate) socket: Socket,
    pub(crate) peer: SocketAddr,
    /// Bytes that came with the end of the handshake.
    pub(crate) rest: Vec<u8>,
    pub(crate) server: bool,
    pub(crate) frame_limit: usize,
    pub(crate) fragment: Option<usize>,
    pub(crate) subprotocol: Option<String>,
    /// The listener's leave for one connection, given back with the last half.
    pub(crate) permit: Option<OwnedSemaphorePermit>,
}

impl WebSocket {
    pub(crate) fn new(parts: Parts) -> Self {
        let state = State {
            socket: parts.socket,
            reader: Reader::new(parts.server, parts.frame_limit, &parts.rest),
            writer: Writer::new(parts.server),
            sending: false,
            age: None,
            broken: false,
            ends_first: false,
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

    fn expect(&mut self, largest: usize) {
        self.shared.lock().reader.expect(largest);
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
    /// Locked for single steps, which never wait.
    state: Mutex<State>,
    _permit: Option<OwnedSemaphorePermit>,
}

struct State {
    socket: Socket,
    reader: Reader,
    writer: Writer,
    /// The sink waits for the socket and will bring out all there is. A socket wakes one writer
    /// alone, so that the source must not wait for it too.
    sending: bool,
    /// Of a message that is not whole.
    age: Option<Age>,
    /// The other end broke a rule: nothing more of it is read as frames.
    broken: bool,
    /// After its close this side ends the connection: a server whose client has closed, and whoever
    /// has had enough.
    ends_first: bool,
}

impl fmt::Debug for Shared {
    /// Without the bytes of messages, which are nobody's business.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.writer.poll_flush(context, &mut self.socket)
    }

    /// The next thing that comes in, unless a message takes too long.
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Incoming> {
        if self.broken {
            return self.poll_drain(context);
        }
        if let Some(age) = &mut self.age {
            age.back();
        }
        let incoming = self.poll_incoming(context);
        if let Poll::Ready(Incoming::Closed(_) | Incoming::Broken(_)) = incoming {
            return incoming;
        }
        let Some(bytes) = self.reader.under_way() else {
            self.age = None;
            return incoming;
        };
        let age = self.age.get_or_insert_with(|| Age::new(bytes));
        if let Poll::Ready(closed) = age.poll_over(context, bytes) {
            self.broken = true;
            self.ends_first = true;
            return Poll::Ready(Incoming::Broken(closed));
        }
        if incoming.is_ready() {
            age.leave();
        }
        incoming
    }

    /// The next word, and its answer on the way.
    fn poll_incoming(&mut self, context: &mut Context<'_>) -> Poll<Incoming> {
        if !self.sending {
            // What could not go out before. A failure shows in reading too.
            let _ = self.poll_flush(context);
        }
        let word = match self.reader.poll_word(context, &mut self.socket) {
            Poll::Ready(word) => word,
            // Who reads what we send is not silent, though a large frame keeps a ping waiting.
            Poll::Pending if self.writer.progressed() => return Poll::Ready(Incoming::Life),
            Poll::Pending => return Poll::Pending,
        };
        let incoming = match word {
            Ok(Word::Message(frame)) => return Poll::Ready(Incoming::Frame(frame)),
            Ok(Word::Pong | Word::Progress) => return Poll::Ready(Incoming::Life),
            Ok(Word::Ping(payload)) => {
                self.writer.pong(payload);
                Incoming::Life
            }
            Ok(Word::Close(closed, payload)) => {
                self.writer.close(payload);
                self.ends_first = self.reader.is_server();
                Incoming::Closed(closed)
            }
            Err(Stop::Gone(error)) => return Poll::Ready(gone(&error)),
            Err(Stop::Broken(closed)) => {
                self.broken = true;
                self.ends_first = true;
                return Poll::Ready(Incoming::Broken(closed));
            }
        };
        if !self.sending {
            // The answer goes out now: the next read may be long in coming.
            let _ = self.poll_flush(context);
        }
        Poll::Ready(incoming)
    }

    /// Reads to the end and drops it: a socket that is let go of with unread bytes is reset, and the
    /// reset would overtake our close.
    fn poll_drain(&mut self, context: &mut Context<'_>) -> Poll<Incoming> {
        let mut room = [0; 4096];
        // In turns, as the peer may send without end.
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
            io::ErrorKind::UnexpectedEof => "the other end is gone without a close".to_owned(),
            _ => error.to_string(),
        },
    })
}

/// The half that frames come in by.
#[derive(Debug)]
pub struct WsSource {
    shared: Arc<Shared>,
}

impl Source for WsSource {
    async fn next(&mut self) -> Incoming {
        poll_fn(|context| self.shared.lock().poll_next(context)).await
    }
}

/// The half that frames go out by.
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
                self.put(OpCode::Data(kind), false, part).await?;
                kind = Data::Continue;
            }
        }
        self.put(OpCode::Data(kind), true, rest).await
    }

    async fn ping(&mut self) -> Result<(), Lost> {
        self.put(OpCode::Control(Control::Ping), true, Bytes::new())
            .await
    }

    async fn close(&mut self, code: u16, reason: &str) {
        let code = if sendable(code) { code } else { 1011 };
        let mut payload = BytesMut::from(&code.to_be_bytes()[..]);
        let end = reason.floor_char_boundary(REASON_MAX);
        payload.extend_from_slice(&reason.as_bytes()[..end]);
        let mut payload = Some(payload.freeze());
        let closed = self.step(|state, context| {
            if let Some(payload) = payload.take() {
                // Where the other end closed first its own words go back to it.
                state.writer.close(payload);
            }
            ready!(state.poll_flush(context))?;
            if state.ends_first {
                // The other end may be waiting for it, as we would be for the other end.
                ready!(Pin::new(&mut state.socket).poll_shutdown(context))?;
            }
            Poll::Ready(Ok(()))
        });
        let _ = closed.await;
    }
}

impl WsSink {
    /// Puts one WebSocket frame on the wire, and waits until it is out.
    async fn put(&mut self, opcode: OpCode, last: bool, payload: Bytes) -> Result<(), Lost> {
        let mut payload = Some(payload);
        self.step(|state, context| {
            if payload.is_some() {
                ready!(state.poll_flush(context))?;
            }
            if let Some(payload) = payload.take() {
                if state.writer.is_closed() {
                    return Poll::Ready(Err(io::Error::other("it is closed")));
                }
                state.writer.begin(opcode, last, payload)?;
            }
            state.poll_flush(context)
        })
        .await
        .map_err(|error| Lost(error.to_string()))
    }

    /// Does something to the state, and waits as the one who waits for the socket.
    async fn step(
        &self,
        mut work: impl FnMut(&mut State, &mut Context<'_>) -> Poll<io::Result<()>>,
    ) -> io::Result<()> {
        /// Given up half-way, the source takes over.
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
