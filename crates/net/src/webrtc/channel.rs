//! A data channel as a transport: one message of it is one frame of ours.

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

/// How often it is asked whether the last message is out; nobody tells.
const LOOK: Duration = Duration::from_millis(10);

/// How long the other end may take to close its half; it does not always tell.
const FAREWELL: Duration = Duration::from_secs(1);

/// A data channel that is open.
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
    /// The server's leave for one connection.
    _permit: Option<OwnedSemaphorePermit>,
}

impl Shared {
    async fn said_farewell(&self) {
        let _ = self.closed.subscribe().wait_for(|closed| *closed).await;
        sleep(FAREWELL).await;
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

/// Waits until a channel is open; false if it closes before.
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

    fn expect(&mut self, largest: usize) {
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

/// The half that frames come in by.
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
                return closed(1006, "the path to the other end is gone");
            }
            () = self.shared.said_farewell() => return closed(1000, "closed"),
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
                // The original takes no notice of strings.
                if message.is_string {
                    return Incoming::Life;
                }
                // In memory of its own size: that is what it is charged.
                let data = if message.data.capacity() > size + size / 4 {
                    BytesMut::from(&message.data[..])
                } else {
                    message.data
                };
                Incoming::Frame(Frame::Binary(data.freeze()))
            }
            Some(DataChannelEvent::OnClose) | None => closed(1000, "the data channel is closed"),
            Some(DataChannelEvent::OnError) => closed(1006, "the data channel failed"),
            Some(_) => Incoming::Life,
        }
    }
}

fn closed(code: u16, reason: &str) -> Incoming {
    Incoming::Closed(Closed {
        code,
        reason: reason.to_owned(),
    })
}

/// The half that frames go out by.
#[derive(Debug)]
pub struct ChannelSink {
    shared: Arc<Shared>,
}

impl Sink for ChannelSink {
    async fn send(&mut self, frame: Frame) -> Result<(), Lost> {
        let Frame::Binary(bytes) = frame else {
            return Err(Lost(
                "a data channel carries binary frames alone".to_owned(),
            ));
        };
        let own = bytes
            .try_into_mut()
            .unwrap_or_else(|shared| BytesMut::from(&shared[..]));
        let size = own.len();
        // Waits while more than the limit is on its way.
        let sent = self.shared.channel.send(own).await;
        sent.map_err(|error| Lost(format!("a message of {size} bytes did not go out: {error}")))
    }

    async fn close(&mut self, _code: u16, _reason: &str) {
        let channel = &self.shared.channel;
        while matches!(channel.outstanding_bytes().await, Ok(1..)) {
            sleep(LOOK).await;
        }
        let _ = channel.close().await;
        self.shared.closed.send_replace(true);
    }
}
