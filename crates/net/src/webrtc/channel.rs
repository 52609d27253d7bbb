//! A data channel as a transport: one data channel message is one frame.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use breakbulk_link::{Carries, Closed, Frame};
use bytes::BytesMut;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::sleep;
use webrtc::data_channel::{DataChannel, DataChannelEvent};

use super::peer::{Peer, State};
use crate::transport::{Incoming, Lost, Sink, Source, Transport};

/// How often to check whether the last message was sent, which the library does not report.
const DRAIN_CHECK: Duration = Duration::from_millis(10);

/// How long to wait for the other end to close its half, which is not always reported.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// An open data channel.
#[derive(Debug)]
pub struct Channel {
    shared: Arc<Shared>,
    state: watch::Receiver<State>,
    limit: usize,
}

struct Shared {
    channel: Arc<dyn DataChannel>,
    /// This side has closed its half.
    closed: watch::Sender<bool>,
    _peer: Peer,
    /// The server's permit for one connection.
    _permit: Option<OwnedSemaphorePermit>,
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
        permit: Option<OwnedSemaphorePermit>,
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

    fn split(self) -> (ChannelSource, ChannelSink) {
        let source = ChannelSource {
            shared: self.shared.clone(),
            state: self.state,
            limit: self.limit,
        };
        let sink = ChannelSink {
            shared: self.shared,
        };
        (source, sink)
    }
}

/// The receiving half.
#[derive(Debug)]
pub struct ChannelSource {
    shared: Arc<Shared>,
    state: watch::Receiver<State>,
    limit: usize,
}

impl Source for ChannelSource {
    async fn next(&mut self) -> Incoming {
        let event = tokio::select! {
            biased;
            event = self.shared.channel.poll() => event,
            _ = self.state.wait_for(|state| state.failed) => {
                return closed(1006, "the connection to the other end failed");
            }
            () = self.shared.close_timed_out() => return closed(1000, "closed"),
        };
        match event {
            Some(DataChannelEvent::OnMessage(message)) => {
                let (size, limit) = (message.data.len(), self.limit);
                if size > limit {
                    return Incoming::Broken(Closed {
                        code: 1009,
                        reason: format!("message of {size} bytes over the limit of {limit}"),
                    });
                }
                // Strings are ignored, as the original implementation does.
                if message.is_string {
                    return Incoming::Alive;
                }
                // Copied if its buffer is much larger, since the link charges a frame by its length.
                let data = if message.data.capacity() > size + size / 4 {
                    BytesMut::from(&message.data[..])
                } else {
                    message.data
                };
                Incoming::Frame(Frame::Binary(data.freeze()))
            }
            Some(DataChannelEvent::OnClose) | None => closed(1000, "the data channel is closed"),
            Some(DataChannelEvent::OnError) => closed(1006, "the data channel failed"),
            Some(_) => Incoming::Alive,
        }
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
        let Frame::Binary(bytes) = frame else {
            return Err(Lost("a data channel carries only binary frames".to_owned()));
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
