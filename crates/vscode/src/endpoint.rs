//! The async face: an endpoint with a task that drives it.

mod actor;
mod answer;
mod call;
mod engine;
mod inbox;
mod linked;
mod shape;
mod status;
mod stream;

use std::sync::Arc;
use std::time::Duration;

use breakbulk_message::vscode::{Args, Passed, RpcId, Text, UriTransformer, to_json};
use serde::Serialize;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;

pub use actor::{Actor, Actors, Cancellation, Incoming, Returned};
pub use answer::{Answer, ReadAnswer};
pub use call::{Call, CallError};
pub use status::{Ended, Status};

use crate::machine::handshake::Role;
use crate::machine::ipc::{PersistentConfig, PersistentProtocol, Protocol};
use crate::machine::rpc::Config;
use engine::Engine;
use inbox::Shared;
use stream::{Framing, StreamDriver};

/// How an endpoint behaves.
#[derive(Clone, Default)]
pub struct Options {
    /// The numbers of the session.
    pub rpc: Config,
    /// What the peer can call.
    pub actors: Actors,
    /// Changes URIs on their way, where the two ends see different file systems.
    pub uris: Option<Arc<dyn UriTransformer>>,
    /// What is said before the first call.
    pub handshake: Role,
}

/// How a session outlives its streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PersistentOptions {
    /// The numbers of the protocol.
    pub protocol: PersistentConfig,
    /// How long a session without a stream waits for another.
    pub grace: Duration,
}

impl Default for PersistentOptions {
    fn default() -> Self {
        Self {
            protocol: PersistentConfig::default(),
            grace: Duration::from_secs(3 * 60 * 60),
        }
    }
}

/// A byte stream in both directions.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin + 'static> Stream for S {}

/// One end of an RPC session. Clones share it; when the last one is dropped the session is disposed:
/// calls are cancelled and nothing more is sent.
///
/// Handlers run in the endpoint's own task, one after the other until each waits: so a peer sees that
/// this side hangs when one does. Long work belongs in a task of its own.
#[derive(Clone)]
pub struct Endpoint {
    shared: Arc<Shared>,
    _last: Arc<DisposeOnDrop>,
}

impl Endpoint {
    /// A session over a byte stream in `ipc.net`'s plain frames. The end of the stream is its end.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn over_stream(stream: impl Stream, options: Options) -> Self {
        let framing = Framing::Plain(Protocol::new(options.rpc.received.message));
        Self::over(Box::new(stream), framing, Duration::ZERO, options)
    }

    /// A session that outlives its stream: when that is [`lost`](Self::lost), connect again and
    /// [`resume`](Self::resume). Which session a new stream belongs to is yours to agree on.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn persistent(
        stream: impl Stream,
        options: Options,
        persistent: PersistentOptions,
    ) -> Self {
        let protocol = PersistentProtocol::new(inbox::now(), persistent.protocol);
        let framing = Framing::Persistent(Box::new(protocol));
        Self::over(Box::new(stream), framing, persistent.grace, options)
    }

    /// A session with one RPC message per message of a connection, whose wire carries bytes: `loro`
    /// where the path is capped, or `whole`.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn over_connection(connection: breakbulk_net::Connection, options: Options) -> Self {
        let shared = Arc::new(Shared::new(&options));
        let engine = Engine::new(shared.clone(), options);
        tokio::spawn(linked::drive(engine, connection));
        Self::of(shared)
    }

    fn over(stream: Box<dyn Stream>, framing: Framing, grace: Duration, options: Options) -> Self {
        let shared = Arc::new(Shared::new(&options));
        let limit = options.rpc.received.message;
        let engine = Engine::new(shared.clone(), options);
        tokio::spawn(StreamDriver::new(engine, framing, stream, limit, grace));
        Self::of(shared)
    }

    fn of(shared: Arc<Shared>) -> Self {
        Self {
            _last: Arc::new(DisposeOnDrop(shared.clone())),
            shared,
        }
    }

    /// One of the peer's objects. Which number is which is a table of yours.
    pub fn remote(&self, rpc_id: RpcId) -> Remote {
        Remote {
            shared: self.shared.clone(),
            rpc_id,
            cancellable: false,
        }
    }

    /// Gives a persistent session its next stream; its number, counted from 1 for the first. A stream
    /// that it still has is dropped.
    pub fn resume(&self, stream: impl Stream) -> u64 {
        self.shared.resume(Box::new(stream))
    }

    /// Waits until the stream of that number is lost, and the session with no other.
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

    /// How it stands, and news of that.
    pub fn status(&self) -> watch::Receiver<Status> {
        self.shared.status.subscribe()
    }

    /// Waits until the handshake is over; the renderer's data, where this is the host.
    pub async fn initialized(&self) -> Result<Option<bytes::Bytes>, Ended> {
        let mut status = self.status();
        let status = status.wait_for(|status| status.initialized || status.ended.is_some());
        match status.await {
            Ok(status) if status.initialized => Ok(status.init_data.clone()),
            Ok(status) => Err(status.ended.clone().unwrap_or(Ended::Disposed)),
            Err(_) => Err(Ended::Disposed),
        }
    }

    /// Waits for the end, and tells why.
    pub async fn ended(&self) -> Ended {
        let mut status = self.status();
        let ended = status.wait_for(|status| status.ended.is_some()).await;
        match ended {
            Ok(status) => status.ended.clone().unwrap_or(Ended::Disposed),
            Err(_) => Ended::Disposed,
        }
    }

    /// Ends the session now: calls are cancelled, and nothing more is sent, replies of running
    /// handlers included. Where the session is persistent the peer is told that it need not wait.
    pub fn dispose(&self) {
        self.shared.dispose();
    }

    /// Ends the session once nothing is left: calls that were made have their replies, handlers that
    /// run have answered, and all of it is written. Calls made from now on are cancelled. What the peer
    /// asks meanwhile is answered, so that a limit on the time is yours to set.
    pub async fn finish(&self) -> Ended {
        self.shared.finish();
        self.ended().await
    }

    /// Asks an extension host to end. It goes out behind what was said before.
    pub fn terminate(&self) {
        self.shared.terminate();
    }
}

/// An object of the peer's.
#[derive(Clone)]
pub struct Remote {
    shared: Arc<Shared>,
    rpc_id: RpcId,
    cancellable: bool,
}

impl Remote {
    /// The same, but its calls carry a cancellation token: the callee gets one as its last argument,
    /// and dropping or [cancelling](Call::cancel) a call tells it.
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

    /// Calls a method with arguments by serde: anything that is written as an array, such as a tuple.
    ///
    /// The call is made at once, and in the order of these calls as long as there is room; otherwise it
    /// waits for room when it is awaited.
    pub fn call(&self, method: impl Into<Text>, args: &(impl Serialize + ?Sized)) -> Call {
        let args = match to_json(args) {
            Ok(json) if json.as_bytes().first() == Some(&b'[') => Args::Json(json),
            Ok(_) => return Call::failed(CallError::ArgsNotArray),
            Err(error) => return Call::failed(CallError::Serialize(error.to_string())),
        };
        match shape::outgoing_args(args, self.shared.uris.as_deref()) {
            Ok(args) => self.call_raw(method, args),
            Err(error) => Call::failed(error),
        }
    }

    /// Calls a method with values: buffers, `undefined`, objects with buffers.
    pub fn call_values(&self, method: impl Into<Text>, args: Vec<Passed>) -> Call {
        match Args::write(args, self.shared.uris.as_deref()) {
            Ok(args) => self.call_raw(method, args),
            Err(error) => Call::failed(CallError::Refused(error.into())),
        }
    }

    /// Calls a method with arguments that are sent as they are: no URI in them is changed.
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
