//! Those who come in, by whatever way.

use breakbulk_link::{Carries, Frame};
use tokio::sync::mpsc;

use super::authorize::{Claim, Grant, Way};
use super::connection::HttpSource;
use crate::driver::Options;
use crate::poll::{PollServer, PollServerSink};
use crate::sse::{SseServer, SseServerSink};
use crate::transport::{Incoming, Lost, Sink, Source, Transport};
#[cfg(feature = "webrtc")]
use crate::webrtc::{Channel, ChannelSink, ChannelSource};
use crate::ws::{WebSocket, WsSink, WsSource};

/// Somebody who was let in.
#[derive(Debug)]
pub struct Arrival {
    /// What it says of itself.
    pub claim: Claim,
    /// What the authorizer says of it.
    pub grant: Grant,
    /// The way to it.
    pub transport: Arrived,
}

/// Where those who were let in come out.
#[derive(Debug)]
pub struct Arrivals(pub(crate) mpsc::Receiver<Arrival>);

impl Arrivals {
    /// The next one; `None` once the server and all its routers are gone. Cancel-safe.
    pub async fn next(&mut self) -> Option<Arrival> {
        self.0.recv().await
    }
}

/// A transport of any of the ways.
#[derive(Debug)]
#[non_exhaustive]
pub enum Arrived {
    /// A WebSocket: frames both ways.
    WebSocket(WebSocket),
    /// An event stream: text down, binary up.
    Sse(SseServer),
    /// Polls: text down, binary up.
    Poll(PollServer),
    /// A data channel: binary both ways.
    #[cfg(feature = "webrtc")]
    Channel(Channel),
}

impl Arrived {
    /// Which way it is.
    pub fn way(&self) -> Way {
        match self {
            Self::WebSocket(_) => Way::WebSocket,
            Self::Sse(_) => Way::Sse,
            Self::Poll(_) => Way::Poll,
            #[cfg(feature = "webrtc")]
            Self::Channel(_) => Way::DataChannel,
        }
    }

    /// How such a connection is best driven: over HTTP the transport itself knows who is gone.
    pub fn options(&self) -> Options {
        match self {
            Self::WebSocket(_) => Options::default(),
            _ => Options {
                keepalive: None,
                silence: None,
                ..Options::default()
            },
        }
    }
}

impl Transport for Arrived {
    type Source = ArrivedSource;
    type Sink = ArrivedSink;

    fn carries(&self, carries: Carries) -> bool {
        match self {
            Self::WebSocket(transport) => transport.carries(carries),
            Self::Sse(transport) => transport.carries(carries),
            Self::Poll(transport) => transport.carries(carries),
            #[cfg(feature = "webrtc")]
            Self::Channel(transport) => transport.carries(carries),
        }
    }

    fn expect(&mut self, largest: usize) {
        match self {
            Self::WebSocket(transport) => transport.expect(largest),
            Self::Sse(transport) => transport.expect(largest),
            Self::Poll(transport) => transport.expect(largest),
            #[cfg(feature = "webrtc")]
            Self::Channel(transport) => transport.expect(largest),
        }
    }

    fn split(self) -> (ArrivedSource, ArrivedSink) {
        match self {
            Self::WebSocket(transport) => {
                let (source, sink) = transport.split();
                (
                    ArrivedSource::WebSocket(source),
                    ArrivedSink::WebSocket(sink),
                )
            }
            Self::Sse(transport) => {
                let (source, sink) = transport.split();
                (ArrivedSource::Http(source), ArrivedSink::Sse(sink))
            }
            Self::Poll(transport) => {
                let (source, sink) = transport.split();
                (ArrivedSource::Http(source), ArrivedSink::Poll(sink))
            }
            #[cfg(feature = "webrtc")]
            Self::Channel(transport) => {
                let (source, sink) = transport.split();
                (ArrivedSource::Channel(source), ArrivedSink::Channel(sink))
            }
        }
    }
}

/// The half that frames come in by.
#[derive(Debug)]
#[non_exhaustive]
pub enum ArrivedSource {
    /// Of a WebSocket.
    WebSocket(WsSource),
    /// Of an event stream or of polls: the POSTs.
    Http(HttpSource),
    /// Of a data channel.
    #[cfg(feature = "webrtc")]
    Channel(ChannelSource),
}

impl Source for ArrivedSource {
    async fn next(&mut self) -> Incoming {
        match self {
            Self::WebSocket(source) => source.next().await,
            Self::Http(source) => source.next().await,
            #[cfg(feature = "webrtc")]
            Self::Channel(source) => source.next().await,
        }
    }
}

/// The half that frames go out by.
#[derive(Debug)]
#[non_exhaustive]
pub enum ArrivedSink {
    /// Of a WebSocket.
    WebSocket(WsSink),
    /// Of an event stream.
    Sse(SseServerSink),
    /// Of polls.
    Poll(PollServerSink),
    /// Of a data channel.
    #[cfg(feature = "webrtc")]
    Channel(ChannelSink),
}

impl Sink for ArrivedSink {
    async fn send(&mut self, frame: Frame) -> Result<(), Lost> {
        match self {
            Self::WebSocket(sink) => sink.send(frame).await,
            Self::Sse(sink) => sink.send(frame).await,
            Self::Poll(sink) => sink.send(frame).await,
            #[cfg(feature = "webrtc")]
            Self::Channel(sink) => sink.send(frame).await,
        }
    }

    async fn ping(&mut self) -> Result<(), Lost> {
        match self {
            Self::WebSocket(sink) => sink.ping().await,
            Self::Sse(sink) => sink.ping().await,
            Self::Poll(sink) => sink.ping().await,
            #[cfg(feature = "webrtc")]
            Self::Channel(sink) => sink.ping().await,
        }
    }

    async fn close(&mut self, code: u16, reason: &str) {
        match self {
            Self::WebSocket(sink) => sink.close(code, reason).await,
            Self::Sse(sink) => sink.close(code, reason).await,
            Self::Poll(sink) => sink.close(code, reason).await,
            #[cfg(feature = "webrtc")]
            Self::Channel(sink) => sink.close(code, reason).await,
        }
    }
}
