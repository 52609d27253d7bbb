//! A data channel as a transport: one data channel message is one frame.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use breakbulk_link::{Budget, Carries, Closed, Frame, Held};
use bytes::BytesMut;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::sleep;
use webrtc::data_channel::{DataChannel, DataChannelEvent, RTCDataChannelMessage};

use super::peer::{Peer, State};
use crate::gate::Permit;
use crate::transport::{Incoming, Lost, Sink, Source, Transport};

/// How often to check whether the last message was sent, which the library does not report.
const DRAIN_CHECK: Duration = Duration::from_millis(10);

/// How long to wait for the other end to close its half, which is not always reported.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// How many messages may wait for the application, and how many bytes. The library would hold 256 of
/// them, whatever their size, and nobody would be charged: they are taken from it at once, and a peer
/// that sends more than this while the application is busy is cut off.
const WAITING: usize = 1024;
const WAITING_BYTES: usize = 16 << 20;

/// The longest string that is taken.
const TEXT_MAX: usize = 1024;

/// An open data channel.
#[derive(Debug)]
pub struct Channel {
    shared: Arc<Shared>,
    state: watch::Receiver<State>,
    limit: usize,
    budget: Option<Budget>,
}

struct Shared {
    channel: Arc<dyn DataChannel>,
    /// This side has closed its half.
    closed: watch::Sender<bool>,
    _peer: Peer,
    /// The server's permit for one connection.
    _permit: Option<Permit>,
}

impl Shared {
    /// Waits until [`CLOSE_TIMEOUT`] after this side has closed.
    async fn close_timed_out(&self) {
        let _ = self.closed.subscribe().wait_for(|closed| *closed).await;
        sleep(CLOSE_TIMEOUT).await;
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl Channel {
    pub(crate) fn new(
        channel: Arc<dyn DataChannel>,
        peer: Peer,
        permit: Option<Permit>,
        limit: usize,
    ) -> Self {
        let state = peer.state.clone();
        let shared = Shared {
            channel,
            closed: watch::channel(false).0,
            _peer: peer,
            _permit: permit,
        };
        Self {
            shared: Arc::new(shared),
            state,
            limit,
            budget: None,
        }
    }
}

/// Waits until a channel is open; returns false if it closes before.
pub(crate) async fn opened(channel: &Arc<dyn DataChannel>) -> bool {
    loop {
        match channel.poll().await {
            Some(DataChannelEvent::OnOpen) => return true,
            Some(DataChannelEvent::OnClose | DataChannelEvent::OnError) | None => return false,
            Some(_) => {}
        }
    }
}

impl Transport for Channel {
    type Source = ChannelSource;
    type Sink = ChannelSink;

    fn carries(&self, carries: Carries) -> bool {
        carries == Carries::Binary
    }

    fn limit_frames(&mut self, largest: usize) {
        self.limit = self.limit.min(largest);
    }

    fn charge_to(&mut self, budget: &Budget) {
        self.budget = Some(budget.clone());
    }

    fn split(self) -> (ChannelSource, ChannelSink) {
        let (sender, waiting) = mpsc::channel(WAITING);
        let reader = WaitingReader {
            channel: self.shared.channel.clone(),
            limit: self.limit,
            budget: self.budget.unwrap_or_else(Budget::unlimited),
            bytes: Budget::new(WAITING_BYTES),
            waiting: sender,
        };
        let source = ChannelSource {
            shared: self.shared.clone(),
            state: self.state,
            waiting,
            reader: tokio::spawn(reader.run()),
        };
        let sink = ChannelSink {
            shared: self.shared,
        };
        (source, sink)
    }
}

/// Takes messages from the library as they come.
struct WaitingReader {
    channel: Arc<dyn DataChannel>,
    limit: usize,
    budget: Budget,
    /// What the messages of this channel may hold while they wait.
    bytes: Budget,
    waiting: mpsc::Sender<Waiting>,
}

/// What came in and waits for the application, with its charges.
#[derive(Debug)]
struct Waiting {
    incoming: Incoming,
    _held: Vec<Held>,
}

impl WaitingReader {
    async fn run(self) {
        loop {
            let (incoming, held) = self.next().await;
            let is_end = matches!(incoming, Incoming::Closed(_) | Incoming::Broken(_));
            let waiting = Waiting {
                incoming,
                _held: held,
            };
            let sent = match is_end {
                true => self.waiting.send(waiting).await.is_ok(),
                false => match self.waiting.try_send(waiting) {
                    Ok(()) => true,
                    Err(TrySendError::Closed(_)) => false,
                    Err(TrySendError::Full(_)) => {
                        let incoming = too_much();
                        let _held = Vec::new();
                        let _ = self.waiting.send(Waiting { incoming, _held }).await;
                        return;
                    }
                },
            };
            if is_end || !sent {
                return;
            }
        }
    }

    async fn next(&self) -> (Incoming, Vec<Held>) {
        let incoming = match self.channel.poll().await {
            Some(DataChannelEvent::OnMessage(message)) => return self.message(message),
            Some(DataChannelEvent::OnClose) | None => closed(1000, "the data channel is closed"),
            Some(DataChannelEvent::OnError) => closed(1006, "the data channel failed"),
            Some(_) => Incoming::Alive,
        };
        (incoming, Vec::new())
    }

    fn message(&self, message: RTCDataChannelMessage) -> (Incoming, Vec<Held>) {
        let (size, limit) = (message.data.len(), self.limit);
        if size > limit {
            let broken = Incoming::Broken(Closed {
                code: 1009,
                reason: format!("message of {size} bytes over the limit of {limit}"),
            });
            return (broken, Vec::new());
        }
        // The original implementation ignores strings: only short ones can be words of the protocol.
        if message.is_string && size > TEXT_MAX {
            return (Incoming::Alive, Vec::new());
        }
        let charges = [self.bytes.charge(size), self.budget.charge(size)];
        let held: Vec<Held> = charges.into_iter().flatten().collect();
        if held.len() < 2 {
            return (too_much(), Vec::new());
        }
        // Copied if its buffer is much larger, since it is charged by its length.
        let data = if message.data.capacity() > size + size / 4 {
            BytesMut::from(&message.data[..])
        } else {
            message.data
        };
        let frame = match message.is_string {
            true => Frame::Text(data.freeze()),
            false => Frame::Binary(data.freeze()),
        };
        (Incoming::Frame(frame), held)
    }
}

fn too_much() -> Incoming {
    Incoming::Broken(Closed {
        code: 1013,
        reason: "too much at once: send slower, or try again later".to_owned(),
    })
}

/// The receiving half.
#[derive(Debug)]
pub struct ChannelSource {
    shared: Arc<Shared>,
    state: watch::Receiver<State>,
    waiting: mpsc::Receiver<Waiting>,
    reader: JoinHandle<()>,
}

impl Source for ChannelSource {
    async fn next(&mut self) -> Incoming {
        tokio::select! {
            biased;
            waiting = self.waiting.recv() => match waiting {
                Some(waiting) => waiting.incoming,
                None => closed(1006, "the data channel failed"),
            },
            _ = self.state.wait_for(|state| state.failed) => {
                closed(1006, "the connection to the other end failed")
            }
            () = self.shared.close_timed_out() => closed(1000, "closed"),
        }
    }
}

impl Drop for ChannelSource {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

fn closed(code: u16, reason: &str) -> Incoming {
    Incoming::Closed(Closed {
        code,
        reason: reason.to_owned(),
    })
}

/// The sending half.
#[derive(Debug)]
pub struct ChannelSink {
    shared: Arc<Shared>,
}

impl Sink for ChannelSink {
    async fn send(&mut self, frame: Frame) -> Result<(), Lost> {
        let bytes = match frame {
            Frame::Binary(bytes) => bytes,
            Frame::Text(text) => {
                let sent = match std::str::from_utf8(&text) {
                    Ok(text) => self.shared.channel.send_text(text).await,
                    Err(error) => return Err(Lost(format!("a text was not sent: {error}"))),
                };
                return sent.map_err(|error| Lost(format!("a text was not sent: {error}")));
            }
        };
        let own = bytes
            .try_into_mut()
            .unwrap_or_else(|shared| BytesMut::from(&shared[..]));
        let size = own.len();
        // Waits while more than `ChannelOptions::buffered` bytes are not sent yet.
        let sent = self.shared.channel.send(own).await;
        sent.map_err(|error| Lost(format!("a message of {size} bytes was not sent: {error}")))
    }

    async fn close(&mut self, _code: u16, _reason: &str) {
        let channel = &self.shared.channel;
        while matches!(channel.outstanding_bytes().await, Ok(1..)) {
            sleep(DRAIN_CHECK).await;
        }
        let _ = channel.close().await;
        self.shared.closed.send_replace(true);
    }
}
