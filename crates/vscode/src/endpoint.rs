//! The async endpoint: handles for the application, and the task that drives the session.

mod actor;
mod answer;
mod call;
mod engine;
mod inbox;
mod linked;
mod status;
mod stream;
mod uri_json;

use std::sync::Arc;
use std::time::Duration;

use breakbulk_message::vscode::{Args, Passed, RpcId, Text, UriTransformer, to_json};
use serde::Serialize;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;

pub use actor::{Actor, Actors, Cancellation, Incoming, Returned};
pub use answer::{Answer, AnswerError};
pub use call::{Call, CallError};
pub use status::{Ended, Status};

use crate::machine::handshake::Role;
use crate::machine::ipc::{PersistentConfig, PersistentProtocol, Protocol};
use crate::machine::rpc;
use engine::Engine;
use inbox::Shared;
use stream::{Framing, StreamDriver};

/// The configuration of an endpoint.
#[derive(Clone)]
#[non_exhaustive]
pub struct Config {
    /// Limits and times of the session.
    pub rpc: rpc::Config,
    /// The objects that the peer can call.
    pub actors: Actors,
    /// Rewrites URIs in arguments and results, for ends with different file systems.
    pub uris: Option<Arc<dyn UriTransformer>>,
    /// The handshake before the first call.
    pub handshake: Role,
    /// Limits and times of a session that survives its streams; see [`Endpoint::persistent`].
    pub persistent: PersistentConfig,
    /// How long such a session waits for another stream.
    pub grace: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            rpc: rpc::Config::default(),
            actors: Actors::default(),
            uris: None,
            handshake: Role::default(),
            persistent: PersistentConfig::default(),
            grace: Duration::from_secs(3 * 60 * 60),
        }
    }
}

breakbulk_link::with!(Config);

/// A byte stream in both directions.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin + 'static> Stream for S {}

/// One end of an RPC session. Clones share it; when the last one is dropped the session is disposed:
/// calls are cancelled and nothing more is sent.
///
/// Handlers run in the endpoint's own task: one that blocks makes the whole endpoint unresponsive, which
/// the peer can see. Spawn a task for long work.
#[derive(Clone)]
pub struct Endpoint {
    shared: Arc<Shared>,
    _last: Arc<DisposeOnDrop>,
}

impl Endpoint {
    /// A session over a byte stream in `ipc.net`'s plain frames. It ends with the stream.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn over_stream(stream: impl Stream, config: Config) -> Self {
        let framing = Framing::Plain(Protocol::new(config.rpc.received.message));
        Self::over(Box::new(stream), framing, Duration::ZERO, config)
    }

    /// A session that survives its stream: when that is [`lost`](Self::lost), connect again and
    /// [`resume`](Self::resume). How a new stream names its session is up to the application.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn persistent(stream: impl Stream, config: Config) -> Self {
        let protocol = PersistentProtocol::new(inbox::now(), config.persistent);
        let framing = Framing::Persistent(Box::new(protocol));
        let grace = config.grace;
        Self::over(Box::new(stream), framing, grace, config)
    }

    /// A session with one RPC message per message of a connection. The connection's wire must carry
    /// binary: `loro` if the path is capped, or `whole`.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn over_connection(connection: breakbulk_net::Connection, config: Config) -> Self {
        let shared = Arc::new(Shared::new(&config));
        let engine = Engine::new(shared.clone(), config);
        tokio::spawn(linked::drive(engine, connection));
        Self::of(shared)
    }

    fn over(stream: Box<dyn Stream>, framing: Framing, grace: Duration, config: Config) -> Self {
        let shared = Arc::new(Shared::new(&config));
        let limit = config.rpc.received.message;
        let engine = Engine::new(shared.clone(), config);
        tokio::spawn(StreamDriver::new(engine, framing, stream, limit, grace));
        Self::of(shared)
    }

    fn of(shared: Arc<Shared>) -> Self {
        Self {
            _last: Arc::new(DisposeOnDrop(shared.clone())),
            shared,
        }
    }

    /// An object of the peer, by its number. The application knows which number is which object.
    pub fn remote(&self, rpc_id: RpcId) -> Remote {
        Remote {
            shared: self.shared.clone(),
            rpc_id,
            cancellable: false,
        }
    }

    /// Gives a persistent session its next stream; returns the stream's number, where the first has 1.
    /// A stream that the session still has is dropped.
    pub fn resume(&self, stream: impl Stream) -> u64 {
        self.shared.resume(Box::new(stream))
    }

    /// Waits until the stream of that number is lost and there is no other.
    pub async fn lost(&self, stream: u64) -> Result<(), Ended> {
        let mut status = self.status();
        let lost = status.wait_for(|status| {
            status.ended.is_some() || (status.stream >= stream && !status.connected)
        });
        match lost.await {
            Ok(status) => status.ended.clone().map_or(Ok(()), Err),
            Err(_) => Err(Ended::Disposed),
        }
    }

    /// The session's status; await changes on the receiver.
    pub fn status(&self) -> watch::Receiver<Status> {
        self.shared.status.subscribe()
    }

    /// Waits until the handshake is over; returns the renderer's data if this is the host.
    pub async fn initialized(&self) -> Result<Option<bytes::Bytes>, Ended> {
        let mut status = self.status();
        let status = status.wait_for(|status| status.initialized || status.ended.is_some());
        match status.await {
            Ok(status) if status.initialized => Ok(status.init_data.clone()),
            Ok(status) => Err(status.ended.clone().unwrap_or(Ended::Disposed)),
            Err(_) => Err(Ended::Disposed),
        }
    }

    /// Waits for the end of the session; returns the reason.
    pub async fn ended(&self) -> Ended {
        let mut status = self.status();
        let ended = status.wait_for(|status| status.ended.is_some()).await;
        match ended {
            Ok(status) => status.ended.clone().unwrap_or(Ended::Disposed),
            Err(_) => Ended::Disposed,
        }
    }

    /// Ends the session now: calls are cancelled, and nothing more is sent, not even replies of running
    /// handlers. In a persistent session the peer is sent a disconnect, so that it does not wait.
    pub fn dispose(&self) {
        self.shared.dispose();
    }

    /// Ends the session in order: waits for the replies to all calls and for all running handlers, and
    /// until everything is written. New calls are cancelled. Requests that the peer sends meanwhile are
    /// served, so set a time limit if needed.
    pub async fn finish(&self) -> Ended {
        self.shared.finish();
        self.ended().await
    }

    /// Asks an extension host to exit, after everything queued before.
    pub fn terminate(&self) {
        self.shared.terminate();
    }
}

/// An object of the peer.
#[derive(Clone)]
pub struct Remote {
    shared: Arc<Shared>,
    rpc_id: RpcId,
    cancellable: bool,
}

impl Remote {
    /// This object with cancellable calls: the callee gets a cancellation token as its last argument, and
    /// dropping or [cancelling](Call::cancel) a call triggers it.
    pub fn cancellable(&self) -> Self {
        Self {
            cancellable: true,
            ..self.clone()
        }
    }

    /// Its number.
    pub fn rpc_id(&self) -> RpcId {
        self.rpc_id
    }

    /// Calls a method with arguments serialized by serde: anything that becomes an array, such as a tuple.
    ///
    /// The call is queued at once, in the order of these calls, if the queue has room; otherwise awaiting
    /// it waits for room.
    pub fn call(&self, method: impl Into<Text>, args: &(impl Serialize + ?Sized)) -> Call {
        let args = match to_json(args) {
            Ok(json) if json.as_bytes().first() == Some(&b'[') => Args::Json(json),
            Ok(_) => return Call::failed(CallError::ArgsNotArray),
            Err(error) => return Call::failed(CallError::Serialize(error.to_string())),
        };
        match uri_json::outgoing_args(args, self.shared.uris.as_deref()) {
            Ok(args) => self.call_raw(method, args),
            Err(error) => Call::failed(error),
        }
    }

    /// Calls a method with values that may be buffers, `undefined` or objects with buffers.
    pub fn call_values(&self, method: impl Into<Text>, args: Vec<Passed>) -> Call {
        match Args::write(args, self.shared.uris.as_deref()) {
            Ok(args) => self.call_raw(method, args),
            Err(error) => Call::failed(CallError::Refused(error.into())),
        }
    }

    /// Calls a method with arguments that are sent unchanged: no URI in them is rewritten.
    pub fn call_raw(&self, method: impl Into<Text>, args: Args) -> Call {
        Call::begin(
            self.shared.clone(),
            breakbulk_message::vscode::Request {
                rpc_id: self.rpc_id,
                method: method.into(),
                args,
                cancellation: self.cancellable,
            },
        )
    }
}

struct DisposeOnDrop(Arc<Shared>);

impl Drop for DisposeOnDrop {
    fn drop(&mut self) {
        self.0.dispose();
    }
}
