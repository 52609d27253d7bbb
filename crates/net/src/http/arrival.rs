//! Clients that connected to the server, and the transport to each, whatever its kind.

use breakbulk_link::{Budget, Carries, Frame};
use tokio::sync::mpsc;

use super::authorize::{Claim, Grant, Way};
use super::connection::HttpSource;
use crate::driver::Options;
use crate::exchange::{ExchangeServer, ExchangeServerSink, ExchangeServerSource};
use crate::poll::{PollServer, PollServerSink};
use crate::sse::{SseServer, SseServerSink};
use crate::transport::{Incoming, Lost, Sink, Source, Transport};
#[cfg(feature = "webrtc")]
use crate::webrtc::{Channel, ChannelSink, ChannelSource};
use crate::ws::{WebSocket, WsSink, WsSource};

/// A client that connected and was authorized.
#[derive(Debug)]
pub struct Arrival {
    /// What its request claims.
    pub claim: Claim,
    /// What the authorizer granted.
    pub grant: Grant,
    /// The transport to it.
    pub transport: AcceptedTransport,
}

/// The queue of clients that connected and that the application has not taken yet.
#[derive(Debug)]
pub struct Arrivals(pub(crate) mpsc::Receiver<Arrival>);

impl Arrivals {
    /// Waits for the next client; `None` once the server and all its routers are dropped. Cancel-safe.
    pub async fn next(&mut self) -> Option<Arrival> {
        self.0.recv().await
    }
}

/// The transport to a client, of any kind that the server offers.
#[derive(Debug)]
#[non_exhaustive]
pub enum AcceptedTransport {
    /// A WebSocket: frames both ways.
    WebSocket(WebSocket),
    /// An event stream: text down, binary up.
    Sse(SseServer),
    /// Polls: text down, binary up.
    Poll(PollServer),
    /// Numbered POSTs and polls: frames both ways.
    Exchange(ExchangeServer),
    /// A data channel: binary both ways.
    #[cfg(feature = "webrtc")]
    Channel(Channel),
}

impl AcceptedTransport {
    /// Which kind of transport this is.
    pub fn way(&self) -> Way {
        match self {
            Self::WebSocket(_) => Way::WebSocket,
            Self::Sse(_) => Way::Sse,
            Self::Poll(_) => Way::Poll,
            Self::Exchange(_) => Way::Exchange,
            #[cfg(feature = "webrtc")]
            Self::Channel(_) => Way::DataChannel,
        }
    }

    /// The driver's options for this kind of transport. Only WebSockets need pings: the others
    /// detect by themselves that a client is gone.
    pub fn options(&self) -> Options {
        let bounded = Options {
            write_time: Some(Options::WRITE_TIME),
            ..Options::default()
        };
        match self {
            Self::WebSocket(_) => bounded,
            #[cfg(feature = "webrtc")]
            Self::Channel(_) => Options {
                keepalive: None,
                silence: None,
                ..bounded
            },
            // Event streams and polls have deadlines of their own.
            Self::Sse(_) | Self::Poll(_) | Self::Exchange(_) => Options {
                keepalive: None,
                silence: None,
                ..Options::default()
            },
        }
    }
}

impl Transport for AcceptedTransport {
    type Source = AcceptedSource;
    type Sink = AcceptedSink;

    fn carries(&self, carries: Carries) -> bool {
        match self {
            Self::WebSocket(transport) => transport.carries(carries),
            Self::Sse(transport) => transport.carries(carries),
            Self::Poll(transport) => transport.carries(carries),
            Self::Exchange(transport) => transport.carries(carries),
            #[cfg(feature = "webrtc")]
            Self::Channel(transport) => transport.carries(carries),
        }
    }

    fn limit_frames(&mut self, largest: usize) {
        match self {
            Self::WebSocket(transport) => transport.limit_frames(largest),
            Self::Sse(transport) => transport.limit_frames(largest),
            Self::Poll(transport) => transport.limit_frames(largest),
            Self::Exchange(transport) => transport.limit_frames(largest),
            #[cfg(feature = "webrtc")]
            Self::Channel(transport) => transport.limit_frames(largest),
        }
    }

    fn charge_to(&mut self, budget: &Budget) {
        match self {
            Self::WebSocket(transport) => transport.charge_to(budget),
            Self::Sse(transport) => transport.charge_to(budget),
            Self::Poll(transport) => transport.charge_to(budget),
            Self::Exchange(transport) => transport.charge_to(budget),
            #[cfg(feature = "webrtc")]
            Self::Channel(transport) => transport.charge_to(budget),
        }
    }

    fn split(self) -> (AcceptedSource, AcceptedSink) {
        match self {
            Self::WebSocket(transport) => {
                let (source, sink) = transport.split();
                (
                    AcceptedSource::WebSocket(source),
                    AcceptedSink::WebSocket(sink),
                )
            }
            Self::Sse(transport) => {
                let (source, sink) = transport.split();
                (AcceptedSource::Http(source), AcceptedSink::Sse(sink))
            }
            Self::Poll(transport) => {
                let (source, sink) = transport.split();
                (AcceptedSource::Http(source), AcceptedSink::Poll(sink))
            }
            Self::Exchange(transport) => {
                let (source, sink) = transport.split();
                (
                    AcceptedSource::Exchange(source),
                    AcceptedSink::Exchange(sink),
                )
            }
            #[cfg(feature = "webrtc")]
            Self::Channel(transport) => {
                let (source, sink) = transport.split();
                (AcceptedSource::Channel(source), AcceptedSink::Channel(sink))
            }
        }
    }
}

/// The receiving half.
#[derive(Debug)]
#[non_exhaustive]
pub enum AcceptedSource {
    /// Of a WebSocket.
    WebSocket(WsSource),
    /// Of an event stream or of polls: the POSTs.
    Http(HttpSource),
    /// Of numbered POSTs.
    Exchange(ExchangeServerSource),
    /// Of a data channel.
    #[cfg(feature = "webrtc")]
    Channel(ChannelSource),
}

impl Source for AcceptedSource {
    async fn next(&mut self) -> Incoming {
        match self {
            Self::WebSocket(source) => source.next().await,
            Self::Http(source) => source.next().await,
            Self::Exchange(source) => source.next().await,
            #[cfg(feature = "webrtc")]
            Self::Channel(source) => source.next().await,
        }
    }
}

/// The sending half.
#[derive(Debug)]
#[non_exhaustive]
pub enum AcceptedSink {
    /// Of a WebSocket.
    WebSocket(WsSink),
    /// Of an event stream.
    Sse(SseServerSink),
    /// Of polls.
    Poll(PollServerSink),
    /// Of numbered polls.
    Exchange(ExchangeServerSink),
    /// Of a data channel.
    #[cfg(feature = "webrtc")]
    Channel(ChannelSink),
}

impl Sink for AcceptedSink {
    async fn send(&mut self, frame: Frame) -> Result<(), Lost> {
        match self {
            Self::WebSocket(sink) => sink.send(frame).await,
            Self::Sse(sink) => sink.send(frame).await,
            Self::Poll(sink) => sink.send(frame).await,
            Self::Exchange(sink) => sink.send(frame).await,
            #[cfg(feature = "webrtc")]
            Self::Channel(sink) => sink.send(frame).await,
        }
    }

    async fn ping(&mut self) -> Result<(), Lost> {
        match self {
            Self::WebSocket(sink) => sink.ping().await,
            Self::Sse(sink) => sink.ping().await,
            Self::Poll(sink) => sink.ping().await,
            Self::Exchange(sink) => sink.ping().await,
            #[cfg(feature = "webrtc")]
            Self::Channel(sink) => sink.ping().await,
        }
    }

    async fn close(&mut self, code: u16, reason: &str) {
        match self {
            Self::WebSocket(sink) => sink.close(code, reason).await,
            Self::Sse(sink) => sink.close(code, reason).await,
            Self::Poll(sink) => sink.close(code, reason).await,
            Self::Exchange(sink) => sink.close(code, reason).await,
            #[cfg(feature = "webrtc")]
            Self::Channel(sink) => sink.close(code, reason).await,
        }
    }
}
