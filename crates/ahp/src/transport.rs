//! A transport for the client of the crate `ahp`: [`Segmenting`] cuts and assembles messages, so that the
//! unchanged client works over a capped path.
//!
//! ```no_run
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! use breakbulk_ahp::foreign::Sessions;
//! use breakbulk_ahp::{Config, transport::Segmenting};
//! use breakbulk_link::Cap;
//!
//! // What is remembered of the client between its transports: keep it as long as the client.
//! let sessions = Sessions::default();
//! let config = Config::default().with(|config| config.cap = Cap::frame(128 << 10));
//! # let (carrier, _other) = breakbulk_net::memory::pair(4);
//! let transport = Segmenting::over(carrier, config, sessions.clone())?;
//! let client = ahp::Client::connect(transport, ahp::ClientConfig::default()).await?;
//! # Ok(()) }
//! ```
//!
//! What to know about the client of the crate `ahp`:
//! - It gives a request up after 30 s, however much of the answer is there already. Where transfers
//!   take longer set its `default_request_timeout`.
//! - Each of its subscriptions buffers 256 events and skips what does not fit, in silence. Where
//!   bursts are larger set its `subscription_buffer`.
//! - A request that is too large is answered with -32011 and `data.reason` "messageTooLarge". An action
//!   that is too large ends the connection with 4413, since the client cannot be told otherwise.
//! - Its `hosts` runtime answers any error to `reconnect` with an `initialize` for all its channels.
//!   Where the states are too large together, subscribe to fewer.
//!
//! The client polls `recv` and awaits `send` in one task. Reading and writing are done by tasks of
//! their own here, so that neither waits for the other. `send` waits only while the queue
//! ([`Limits::queued_bytes`](crate::Limits::queued_bytes)) is full, and the reader goes on meanwhile, as far as the memory for
//! incoming messages allows. Where both are full, and the other end is in the same position, nothing
//! could ever move: after [`Options::silence`](breakbulk_net::Options::silence) without a frame going
//! out `send` fails, which ends the connection instead of hanging it.

use std::collections::{BTreeMap, VecDeque};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use ahp::hosts::{HostId, HostTransportFactory};
use ahp::transport::BoxedTransport;
use ahp::{TransportError, TransportMessage};
use breakbulk_link::{Charge, Closed, Event, Outgoing, lock};
use breakbulk_net::{Connection, Mismatch, Observed, Transport};
use bytes::Bytes;
use tokio::sync::Notify;
use tokio::time::timeout;

use super::Config;
use super::client::moved::{Moved, now};
use super::foreign::{ClientSide, Instead, Sessions};

/// How long `send` waits for room where [`Config::options`] names no time.
const STALLED: Duration = Duration::from_secs(60);

/// A transport for `ahp::Client` over a capped path.
pub struct Segmenting {
    shared: Arc<Shared>,
    connection: Connection,
    moved: Moved,
    /// How long `send` waits for room while no frame goes out; then it fails.
    stalled: Duration,
    grace: Duration,
}

struct Shared {
    state: Mutex<State>,
    changed: Notify,
}

struct State {
    /// Dropped with the transport, even if this state is still shared.
    side: Option<ClientSide>,
    /// Whole messages for the client, charged until it takes them.
    ready: VecDeque<(Bytes, Option<Charge>)>,
    closed: Option<Closed>,
    /// Whether `recv` has returned the error of the close.
    told: bool,
}

impl Segmenting {
    /// Over any transport. `sessions` outlive it: pass clones of the same value to all transports that a
    /// client uses one after the other.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    ///
    /// # Errors
    /// If the carrier carries no text.
    pub fn over(
        carrier: impl Transport,
        config: Config,
        sessions: Sessions,
    ) -> Result<Self, Mismatch> {
        let moved = Moved::new();
        let options = config.options;
        let carrier = Observed::new(carrier, moved.clone());
        let connection = Connection::open(config.fresh_link(), carrier, options)?;
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                side: Some(ClientSide::new(config, sessions)),
                ready: VecDeque::new(),
                closed: None,
                told: false,
            }),
            changed: Notify::new(),
        });
        tokio::spawn(pump(shared.clone(), connection.clone()));
        Ok(Self {
            shared,
            connection,
            moved,
            stalled: options.silence.unwrap_or(STALLED),
            grace: options.grace,
        })
    }

    /// Over a WebSocket.
    #[cfg(feature = "ws")]
    pub async fn connect(
        url: &str,
        options: &breakbulk_net::ws::ConnectOptions,
        config: Config,
        sessions: Sessions,
    ) -> Result<Self, breakbulk_net::ws::ConnectError> {
        let socket = breakbulk_net::ws::connect(url, options).await?;
        let segmenting = Self::over(socket, config, sessions);
        Ok(segmenting.expect("WebSockets carry text"))
    }

    async fn queue(&self, bytes: Bytes) -> Result<(), TransportError> {
        let message = {
            let mut state = self.shared.lock();
            let side = state.side.as_mut().ok_or(TransportError::Closed)?;
            self.connection.with(|link| side.to_host(link, bytes))
        };
        self.queue_message(message).await
    }

    async fn queue_message(&self, message: Outgoing) -> Result<(), TransportError> {
        let began = now();
        let stalled = async {
            loop {
                let due = began.max(self.moved.outgoing()) + self.stalled;
                if due <= now() {
                    return;
                }
                tokio::time::sleep_until(due.into()).await;
            }
        };
        tokio::select! {
            biased;
            sent = self.connection.send_when_writable(message) => match sent {
                Ok(_) => Ok(()),
                Err(rejected) => Err(TransportError::Io(match self.shared.closed() {
                    Some(closed) => closed.to_string(),
                    None => rejected.error.to_string(),
                })),
            },
            () = stalled => {
                let reason = format!("the send queue is full and no frame went out for {} s", self.stalled.as_secs_f64());
                self.connection.close(1011, &reason);
                Err(TransportError::Io(reason))
            }
        }
    }
}

impl ahp::Transport for Segmenting {
    async fn send(&mut self, message: TransportMessage) -> Result<(), TransportError> {
        let bytes = match message {
            TransportMessage::Text(text) => text.into(),
            TransportMessage::Binary(bytes) => bytes.into(),
            parsed @ TransportMessage::Parsed(_) => {
                let TransportMessage::Text(text) =
                    TransportMessage::encode(&parsed.into_parsed()?)?
                else {
                    return Err(TransportError::Protocol("not encoded as text".to_owned()));
                };
                text.into()
            }
        };
        self.queue(bytes).await
    }

    async fn recv(&mut self) -> Result<Option<TransportMessage>, TransportError> {
        loop {
            let changed = self.shared.changed.notified();
            tokio::pin!(changed);
            // A change between the check below and the wait must wake this task too.
            changed.as_mut().enable();
            {
                let mut state = self.shared.lock();
                if let Some((bytes, charge)) = state.ready.pop_front() {
                    drop(state);
                    let text = String::from_utf8(bytes.into());
                    drop(charge);
                    return match text {
                        Ok(text) => Ok(Some(TransportMessage::Text(text))),
                        Err(error) => Ok(Some(TransportMessage::Binary(error.into_bytes()))),
                    };
                }
                if let Some(closed) = &state.closed {
                    let clean = closed.code == 1000 || state.told;
                    let error = TransportError::Io(closed.to_string());
                    state.told = true;
                    return if clean { Ok(None) } else { Err(error) };
                }
            }
            changed.await;
        }
    }

    /// Sends what is queued first, for at most [`Options::grace`](breakbulk_net::Options::grace).
    async fn close(&mut self) -> Result<(), TransportError> {
        let _ = timeout(self.grace, self.connection.drained()).await;
        self.connection.close(1000, "");
        let _ = timeout(self.grace, self.connection.ended()).await;
        Ok(())
    }
}

/// Drops what is queued; `sessions` remember which actions the client has received.
impl Drop for Segmenting {
    fn drop(&mut self) {
        self.connection.close(1000, "");
        self.shared.lock().side = None;
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn closed(&self) -> Option<Closed> {
        self.lock().closed.clone()
    }
}

/// Handles the events of the connection even while the client does not call `recv`: a message that failed
/// must not block its lane while the client waits in `send`.
async fn pump(shared: Arc<Shared>, connection: Connection) {
    while let Some(event) = connection.event().await {
        shared.lock().handle_event(&connection, event);
        shared.changed.notify_waiters();
    }
}

impl State {
    fn handle_event(&mut self, connection: &Connection, event: Event) {
        if let Event::Closed(closed) = event {
            self.closed = Some(closed);
            // The client may drop the transport much later, and reconnect before that.
            self.side = None;
            return;
        }
        let Some(side) = &mut self.side else {
            return;
        };
        match event {
            Event::Message(message) => {
                let key = message.key.clone();
                let (bytes, charge) = message.into_parts();
                let bytes = connection.with(|link| side.from_host(link, bytes, key.as_ref()));
                self.ready.push_back((bytes, Some(charge)));
            }
            Event::SendFailed {
                id, error, bytes, ..
            } => match side.not_sent(&bytes, &error) {
                Instead::Answer(answer) => {
                    self.ready.push_back((answer, None));
                    connection.with(|link| link.replace(id, None));
                }
                Instead::Replace(other) => {
                    connection.with(|link| link.replace(id, Some(*other)));
                }
                Instead::Drop(words) => {
                    tracing::warn!("{words}");
                    connection.with(|link| link.replace(id, None));
                }
                Instead::Close(code, reason) => connection.close(code, &reason),
            },
            event => side.heard(&event),
        }
    }
}

/// Opens transports for `ahp::hosts::MultiHostClient`, each over a new connection from `connect`, and
/// keeps the [`Sessions`] that outlive them. One factory may serve several hosts.
pub struct Factory<C> {
    connect: C,
    config: Config,
    sessions: Mutex<BTreeMap<String, Sessions>>,
}

impl<C> Factory<C> {
    /// A factory that connects by calling `connect`.
    pub fn new(config: Config, connect: C) -> Self {
        Self {
            connect,
            config,
            sessions: Mutex::default(),
        }
    }
}

impl<C, F, T, E> HostTransportFactory for Factory<C>
where
    C: Fn(HostId) -> F + Send + Sync + 'static,
    F: Future<Output = Result<T, E>> + Send + 'static,
    T: Transport,
    E: std::fmt::Display + 'static,
{
    fn open_transport(
        &self,
        host: HostId,
    ) -> Pin<Box<dyn Future<Output = Result<BoxedTransport, TransportError>> + Send + '_>> {
        let mut sessions = lock(&self.sessions);
        // Each host numbers its actions by itself, and two may know a client by the same clientId.
        let sessions = sessions.entry(host.to_string()).or_default().clone();
        let connecting = (self.connect)(host);
        Box::pin(async move {
            let carrier = connecting.await;
            let carrier = carrier.map_err(|error| TransportError::Io(error.to_string()))?;
            let segmenting = Segmenting::over(carrier, self.config.clone(), sessions)
                .map_err(|mismatch| TransportError::Protocol(mismatch.to_string()))?;
            Ok(BoxedTransport::new(segmenting))
        })
    }
}

/// A factory over WebSockets to one address.
#[cfg(feature = "ws")]
pub fn websockets(
    url: impl Into<String>,
    options: breakbulk_net::ws::ConnectOptions,
    config: Config,
) -> impl HostTransportFactory {
    let target = Arc::new((url.into(), options));
    Factory::new(config, move |_: HostId| {
        let target = target.clone();
        async move { breakbulk_net::ws::connect(&target.0, &target.1).await }
    })
}
