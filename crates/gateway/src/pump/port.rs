//! The two sides of the pump: connections, and ContextVM's endpoints at Nostr relays.

use std::future::Future;
use std::pin::Pin;

use breakbulk_link::{
    Budget, Charge, Closed, Event, Key, MessageId, Outgoing, SendError, Shape, TransferId,
};
use breakbulk_net::Connection;
use bytes::Bytes;

#[cfg(feature = "nostr")]
use super::Replacement;
use super::{Cutting, Skipped};
#[cfg(feature = "nostr")]
use crate::relays::{ClientPort, SessionPort};

/// A future without a result.
pub(super) type Done = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A message that is being sent.
pub(super) type Sending = Pin<Box<dyn Future<Output = Outcome> + Send>>;

/// One side of the pump.
pub struct Port {
    pub(crate) channel: Channel,
    pub(super) cutting: Cutting,
    /// Completes when no more messages arrive while the other direction is still open. Only some
    /// transports can tell.
    pub(super) input_ended: Option<Done>,
    /// How the other end is told that no more messages are sent, although more may arrive.
    pub(super) end_output: EndOutput,
    /// Messages that were too large and were skipped. Only some transports can do that; with others such a
    /// message closes the connection.
    pub(super) skipped: Option<Skipped>,
    /// How much was read of a message that is not whole. Only streams can tell.
    #[cfg(feature = "process")]
    pub(super) ends: Option<breakbulk_net::process::Ends>,
    /// What the pump still waits for at its end, once the transport of this port is gone.
    pub(super) after: Option<Done>,
    /// Whether only the log may say how it ended: a program's exit status and output are not for the program
    /// at the other side.
    pub(super) is_private: bool,
    /// The control word by which the other end tells that no more messages arrive.
    pub(super) end_word: Option<&'static str>,
    /// How many frames did not arrive although the transport took them. Only tunnels can tell.
    pub(super) undelivered: Option<Undelivered>,
}

/// Returns a number of frames.
pub(super) type Undelivered = Box<dyn Fn() -> usize + Send + Sync>;

/// How a port tells its other end that no more messages are sent, while the other direction stays open.
#[derive(Default)]
pub(super) enum EndOutput {
    /// It cannot: the port is closed.
    #[default]
    Close,
    /// By this message, which is sent after all others.
    Message(Bytes),
    /// By running this, once all that was queued is sent.
    Run(Done),
}

impl Port {
    /// A port over a connection whose directions end together.
    pub fn new(connection: Connection) -> Self {
        Self::of(Channel::Connection(connection))
    }

    /// A connection over a stream whose directions end one by one.
    #[cfg(feature = "process")]
    pub fn with_ends(connection: Connection, ends: breakbulk_net::process::Ends) -> Self {
        let (mut reading, unframed) = (ends.clone(), ends.clone());
        Self {
            ends: Some(unframed),
            input_ended: Some(Box::pin(async move { reading.input_ended().await })),
            end_output: EndOutput::Run(Box::pin(async move { ends.end_output().await })),
            is_private: true,
            ..Self::new(connection)
        }
    }

    /// The memory of its session, if it is a connection.
    #[cfg(feature = "otlp")]
    pub(crate) fn budget(&self) -> Option<Budget> {
        self.channel.budget()
    }

    /// Its connection, if it is one.
    pub(crate) fn connection(&self) -> Option<&Connection> {
        match &self.channel {
            Channel::Connection(connection) => Some(connection),
            #[cfg(feature = "nostr")]
            _ => None,
        }
    }

    /// A client at relays; when the pump ends, what is queued may take this long to reach a relay.
    #[cfg(feature = "nostr")]
    pub fn client(client: breakbulk_contextvm::Client, grace: std::time::Duration) -> Self {
        Self::of(Channel::Client(ClientPort::new(client, grace)))
    }

    /// Adds the messages that the transport skips.
    pub fn with_skipped(self, skipped: Skipped) -> Self {
        Self {
            skipped: Some(skipped),
            ..self
        }
    }

    /// For a command: the end of its output does not end its input; its exit closes the connection.
    #[cfg(feature = "process")]
    pub(crate) fn until_exit(self) -> Self {
        Self {
            input_ended: None,
            ..self
        }
    }

    /// For a command: the pump ends once the command's standard error is passed on.
    #[cfg(feature = "process")]
    pub(crate) fn ending_after(self, lines: Option<breakbulk_net::process::StderrLines>) -> Self {
        let after = lines.map(|lines| Box::pin(async move { lines.ended().await }) as Done);
        Self { after, ..self }
    }

    /// Sets the message that tells the other end that no more messages are sent.
    pub(crate) fn ending_with(self, message: String) -> Self {
        Self {
            end_output: EndOutput::Message(message.into()),
            ..self
        }
    }

    /// Sets the control word of the wire by which both ends tell that they send no more messages, for ports
    /// whose messages are binary.
    pub(crate) fn ending_with_word(self, word: &'static str, connection: &Connection) -> Self {
        let connection = connection.clone();
        let tell = async move {
            // It fails if the connection is closed, which says the same.
            let _ = connection.with(|link| link.send_control(word));
        };
        Self {
            end_output: EndOutput::Run(Box::pin(tell)),
            end_word: Some(word),
            ..self
        }
    }

    /// Adds how many frames did not arrive.
    pub(crate) fn with_undelivered(
        self,
        undelivered: impl Fn() -> usize + Send + Sync + 'static,
    ) -> Self {
        Self {
            undelivered: Some(Box::new(undelivered)),
            ..self
        }
    }

    /// Sets how messages are cut on it, which decides what helps when a frame is too large.
    pub(crate) fn with_cutting(self, cutting: Cutting) -> Self {
        Self { cutting, ..self }
    }

    pub(crate) fn of(channel: Channel) -> Self {
        Self {
            channel,
            cutting: Cutting::BothGateways,
            input_ended: None,
            end_output: EndOutput::Close,
            skipped: None,
            #[cfg(feature = "process")]
            ends: None,
            after: None,
            is_private: false,
            end_word: None,
            undelivered: None,
        }
    }
}

/// What a port receives from and sends to.
pub(crate) enum Channel {
    /// A connection: its link cuts messages into frames.
    Connection(Connection),
    /// A client at relays: messages go to its server, and come from it.
    #[cfg(feature = "nostr")]
    Client(ClientPort),
    /// A server's session with one client at relays.
    #[cfg(feature = "nostr")]
    Session(SessionPort),
}

/// An event of a channel.
pub(crate) enum Heard {
    /// A message arrived.
    Message(Arrived),
    /// Something else happened to its link.
    Event(Event),
    /// A message that it was given could not be sent, and nobody waits for an answer to it; the log says
    /// why.
    #[cfg(feature = "nostr")]
    Lost,
    /// It is closed.
    Closed(Closed),
}

impl Heard {
    /// An event of a link.
    fn of(event: Event) -> Self {
        match event {
            Event::Message(message) => {
                let (shape, key) = (message.shape.clone(), message.key.clone());
                let (id, pieces) = (Some(message.id), message.pieces);
                let (bytes, charge) = message.into_parts();
                Self::Message(Arrived {
                    bytes,
                    shape,
                    key,
                    pieces,
                    id,
                    charge: Some(charge),
                })
            }
            Event::Closed(closed) => Self::Closed(closed),
            event => Self::Event(event),
        }
    }
}

/// A message that arrived.
pub(crate) struct Arrived {
    pub(crate) bytes: Bytes,
    pub(crate) shape: Shape,
    /// The transfer it came by; `None` if it came in one frame.
    pub(crate) key: Option<Key>,
    /// How many pieces it came in.
    pub(crate) pieces: u64,
    /// The name by which its connection can be told what became of it.
    pub(crate) id: Option<MessageId>,
    /// The charge, to the side that it came by, until the message is dropped; errors made by the gateway have
    /// none.
    pub(crate) charge: Option<Charge>,
}

/// What became of a message that a channel was given.
pub(crate) enum Outcome {
    /// It is in the queue of the connection, which reports by this name when it is sent.
    Queued(TransferId),
    /// It is sent.
    #[cfg(feature = "nostr")]
    Out,
    /// The channel is closed.
    Lost,
    /// This channel cannot carry it: what to do, and the reason.
    #[cfg(feature = "nostr")]
    Refused(Replacement, String),
}

impl Channel {
    /// The next event. If `takes` is false the other side has no room, and no message is taken: the next
    /// one stays charged to this side. (A connection stops its reader by itself.) Cancel-safe; for one
    /// caller at a time.
    #[cfg_attr(
        not(feature = "nostr"),
        expect(unused_variables, reason = "only ports at relays need `takes`")
    )]
    pub(crate) async fn event(&self, takes: bool) -> Heard {
        match self {
            Self::Connection(connection) => match connection.event().await {
                Some(event) => Heard::of(event),
                None => Heard::Closed(Closed {
                    code: 1006,
                    reason: String::new(),
                }),
            },
            #[cfg(feature = "nostr")]
            Self::Client(client) => client.event(takes).await,
            #[cfg(feature = "nostr")]
            Self::Session(session) => session.event(takes).await,
        }
    }

    /// The next event, if there is one already.
    pub(super) fn try_event(&self) -> Option<Heard> {
        match self {
            Self::Connection(connection) => connection.try_event().map(Heard::of),
            #[cfg(feature = "nostr")]
            Self::Client(_) | Self::Session(_) => None,
        }
    }

    /// Sends now, or hands the message back if it must wait.
    pub(super) fn try_send(&self, message: Outgoing) -> Result<Outcome, Outgoing> {
        match self {
            Self::Connection(connection) => match connection.send(message) {
                Ok(id) => Ok(Outcome::Queued(id)),
                Err(rejected) => match rejected.error {
                    SendError::QueueFull { .. } => Err(*rejected.message),
                    _ => Ok(Outcome::Lost),
                },
            },
            #[cfg(feature = "nostr")]
            Self::Client(_) | Self::Session(_) => Err(message),
        }
    }

    /// Sends as soon as there is room. If the future is dropped before it is done, the message is not sent.
    pub(crate) fn send(&self, message: Outgoing) -> Sending {
        match self {
            Self::Connection(connection) => {
                let connection = connection.clone();
                Box::pin(async move {
                    match connection.send_when_writable(message).await {
                        Ok(id) => Outcome::Queued(id),
                        Err(_) => Outcome::Lost,
                    }
                })
            }
            #[cfg(feature = "nostr")]
            Self::Client(client) => Box::pin(client.send(message)),
            #[cfg(feature = "nostr")]
            Self::Session(session) => Box::pin(session.send(message)),
        }
    }

    /// Gives up the place in the queue of a message that failed, or puts another message there. Returns
    /// whether another one is queued now.
    pub(super) fn replace(&self, id: TransferId, with: Option<Outgoing>) -> bool {
        match self {
            Self::Connection(connection) => {
                let replaced = with.is_some();
                connection.with(|link| link.replace(id, with));
                replaced
            }
            #[cfg(feature = "nostr")]
            Self::Client(_) | Self::Session(_) => false,
        }
    }

    /// Completes when all that was queued is handed to the transport.
    pub(super) async fn drained(&self) {
        match self {
            Self::Connection(connection) => connection.drained().await,
            // For the pump, a message that the endpoint has accepted counts as sent; `ended` waits for the
            // relays.
            #[cfg(feature = "nostr")]
            Self::Client(_) | Self::Session(_) => {}
        }
    }

    /// Closes it: what is queued is dropped.
    pub(crate) fn close(&self, code: u16, reason: &str) {
        match self {
            Self::Connection(connection) => connection.close(code, reason),
            #[cfg(feature = "nostr")]
            Self::Client(client) => client.close(code, reason),
            #[cfg(feature = "nostr")]
            Self::Session(session) => session.close(code, reason),
        }
    }

    /// Waits until its transport is gone. Returns the number of messages that were not sent.
    pub(super) async fn ended(&self) -> usize {
        match self {
            Self::Connection(connection) => {
                connection.ended().await;
                usize::from(connection.broke_off())
            }
            #[cfg(feature = "nostr")]
            Self::Client(client) => client.ended().await,
            #[cfg(feature = "nostr")]
            Self::Session(_) => 0,
        }
    }

    /// Why its last message was not sent, once it has ended.
    pub(super) fn why_unsent(&self) -> String {
        let why = match self {
            Self::Connection(connection) => connection.why_broke_off(),
            #[cfg(feature = "nostr")]
            Self::Client(_) | Self::Session(_) => None,
        };
        why.unwrap_or_else(|| "no relay took it within the grace time".to_owned())
    }

    /// The memory of its session, if it is a connection.
    pub(super) fn budget(&self) -> Option<Budget> {
        match self {
            Self::Connection(connection) => {
                Some(connection.look(|link| link.shared_budget().clone()))
            }
            #[cfg(feature = "nostr")]
            Self::Client(_) | Self::Session(_) => None,
        }
    }

    /// Whether the pump answers open requests of this side that nobody else answers. A session at relays
    /// does it by itself, once the pump has ended.
    pub(super) fn answers_open(&self) -> bool {
        match self {
            Self::Connection(_) => true,
            #[cfg(feature = "nostr")]
            Self::Client(_) => true,
            #[cfg(feature = "nostr")]
            Self::Session(_) => false,
        }
    }

    /// How many transfers of the other end were cut off when it was closed.
    pub(super) fn cut_off(&self) -> usize {
        match self {
            Self::Connection(connection) => connection.look(|link| link.cut_off()),
            #[cfg(feature = "nostr")]
            Self::Client(_) | Self::Session(_) => 0,
        }
    }

    /// The size of the largest frame that was sent, if the other end closed because one is too large.
    pub(super) fn refused_frame(&self, closed: &Closed) -> Option<usize> {
        match self {
            Self::Connection(connection) if closed.code == 1009 && connection.closed_by_peer() => {
                Some(connection.largest_frame())
            }
            _ => None,
        }
    }

    /// Whether the other end closed it, rather than this side.
    pub(super) fn closed_by_peer(&self) -> bool {
        match self {
            Self::Connection(connection) => connection.closed_by_peer(),
            #[cfg(feature = "nostr")]
            Self::Client(client) => client.closed_by_peer(),
            #[cfg(feature = "nostr")]
            Self::Session(session) => session.closed_by_peer(),
        }
    }

    /// Whether an event waits to be taken.
    pub(super) fn has_event(&self) -> bool {
        match self {
            Self::Connection(connection) => connection.look(|link| link.has_event()),
            #[cfg(feature = "nostr")]
            Self::Client(_) | Self::Session(_) => false,
        }
    }

    /// Whether nothing is being received or sent.
    pub(super) fn is_idle(&self) -> bool {
        match self {
            Self::Connection(connection) => connection
                .look(|link| link.is_idle() && link.open_transfers() == 0 && !link.has_event()),
            #[cfg(feature = "nostr")]
            Self::Client(_) | Self::Session(_) => true,
        }
    }
}
