//! The objects and methods that the peer can call.

use std::any::TypeId;
use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use breakbulk_message::vscode::{
    Args, Passed, ReadError, Reply, Request, RpcId, SerializedError, Text, Thrown, UriTransformer,
    Value, to_json,
};
use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::Notify;

use super::inbox::Shared;
use super::{Remote, uri_json};

pub(super) type Running = Pin<Box<dyn Future<Output = Result<Returned, Thrown>> + Send>>;
type Handler = Arc<dyn Fn(Incoming) -> Running + Send + Sync>;

/// The objects that the peer can call, by number. The names are only for error texts.
#[derive(Clone, Default)]
pub struct Actors {
    table: HashMap<u8, (String, Actor)>,
}

/// An object that the peer can call, with exactly the methods that were added.
#[derive(Clone, Default)]
pub struct Actor {
    methods: HashMap<Vec<u8>, Handler>,
}

impl Actors {
    /// No objects.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an object; of two with the same number the last is used.
    pub fn add(mut self, rpc_id: RpcId, name: impl Into<String>, actor: Actor) -> Self {
        self.table.insert(rpc_id.get(), (name.into(), actor));
        self
    }

    pub(super) fn find(&self, request: &Request) -> Result<&Handler, Thrown> {
        let number = request.rpc_id.get();
        let Some((name, actor)) = self.table.get(&number) else {
            return Err(error(format!("Unknown actor {number}")));
        };
        let method = actor.methods.get(request.method.as_bytes());
        method.ok_or_else(|| error(format!("Unknown method {} on actor {name}", request.method)))
    }
}

impl Actor {
    /// An object without methods.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a method with untyped arguments and result.
    pub fn method<F, R>(mut self, name: impl Into<String>, handler: F) -> Self
    where
        F: Fn(Incoming) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Returned, Thrown>> + Send + 'static,
    {
        let handler: Handler = Arc::new(move |incoming| Box::pin(handler(incoming)));
        self.methods.insert(name.into().into_bytes(), handler);
        self
    }

    /// Adds a method whose arguments and result are (de)serialized by serde. `()` becomes `undefined`.
    pub fn typed<A, T, E, F, R>(self, name: impl Into<String>, handler: F) -> Self
    where
        A: DeserializeOwned + Send + 'static,
        T: Serialize + 'static,
        E: Into<Thrown> + 'static,
        F: Fn(A) -> R + Send + Sync + 'static,
        R: Future<Output = Result<T, E>> + Send + 'static,
    {
        let handler = Arc::new(handler);
        self.method(name, move |incoming| {
            let handler = handler.clone();
            async move {
                let args = incoming.args()?;
                let result = handler(args).await.map_err(Into::into)?;
                if TypeId::of::<T>() == TypeId::of::<()>() {
                    return Ok(Returned::Undefined);
                }
                Returned::json(&result)
            }
        })
    }
}

/// A request from the peer.
pub struct Incoming {
    pub(super) request: Request,
    pub(super) cancellation: Cancellation,
    pub(super) shared: Arc<Shared>,
}

impl Incoming {
    /// The arguments deserialized to a type such as a tuple; `undefined` is read as `null`.
    pub fn args<A: DeserializeOwned>(&self) -> Result<A, Thrown> {
        let bad = |why: String| error(format!("bad arguments of {}: {why}", self.request.method));
        let json = uri_json::incoming_json(&self.request.args, self.uris())
            .map_err(|error| bad(error.to_string()))?
            .ok_or_else(|| bad("they hold buffers; read them as values".to_owned()))?;
        serde_json::from_str(json.as_str()).map_err(|error| bad(error.to_string()))
    }

    /// The arguments as values, with their URIs rewritten if there is a transformer.
    pub fn values(&self) -> Result<Vec<Passed>, ReadError> {
        self.request.args.read(self.uris())
    }

    /// The arguments as they were sent.
    pub fn raw(&self) -> &Args {
        &self.request.args
    }

    /// The method's name.
    pub fn method(&self) -> &Text {
        &self.request.method
    }

    /// The request's cancellation token.
    pub fn cancellation(&self) -> Cancellation {
        self.cancellation.clone()
    }

    /// An object of the caller, for calls back.
    pub fn remote(&self, rpc_id: RpcId) -> Remote {
        Remote {
            shared: self.shared.clone(),
            rpc_id,
            cancellable: false,
        }
    }

    fn uris(&self) -> Option<&dyn UriTransformer> {
        self.shared.uris.as_deref()
    }
}

/// Tells whether the caller has cancelled a request. It still expects a reply.
#[derive(Debug, Clone, Default)]
pub struct Cancellation(Option<Arc<Cancel>>);

#[derive(Debug, Default)]
struct Cancel {
    cancelled: AtomicBool,
    changed: Notify,
}

impl Cancellation {
    pub(super) fn new() -> Self {
        Self(Some(Arc::default()))
    }

    pub(super) fn cancel(&self) {
        if let Some(cancel) = &self.0 {
            cancel.cancelled.store(true, Ordering::Release);
            cancel.changed.notify_waiters();
        }
    }

    /// Whether the caller has cancelled.
    pub fn is_cancelled(&self) -> bool {
        let cancelled = |cancel: &Arc<Cancel>| cancel.cancelled.load(Ordering::Acquire);
        self.0.as_ref().is_some_and(cancelled)
    }

    /// Waits until the caller cancels; for ever if the call is not cancellable.
    pub async fn cancelled(&self) {
        let Some(cancel) = &self.0 else {
            return std::future::pending().await;
        };
        let changed = cancel.changed.notified();
        tokio::pin!(changed);
        changed.as_mut().enable();
        if !self.is_cancelled() {
            changed.await;
        }
    }
}

/// What a handler returns.
#[derive(Debug, Clone, PartialEq)]
pub enum Returned {
    /// `undefined`.
    Undefined,
    /// Bytes.
    Buffer(Bytes),
    /// A value, with or without buffers inside.
    Value(Passed),
    /// JSON serialized by serde.
    Json(Text),
    /// A reply that is sent unchanged: no URI in it is rewritten.
    Raw(Reply),
}

impl Returned {
    /// Serializes a result with serde.
    pub fn json(value: &(impl Serialize + ?Sized)) -> Result<Self, Thrown> {
        let unwritable = |why| error(format!("the result cannot be written: {why}"));
        to_json(value).map(Self::Json).map_err(unwritable)
    }

    pub(super) fn into_reply(self, uris: Option<&dyn UriTransformer>) -> Result<Reply, Thrown> {
        let reply = match self {
            Self::Undefined => Ok(Reply::OkEmpty),
            Self::Buffer(buffer) => Ok(Reply::OkBuffer(buffer)),
            Self::Value(passed) => Reply::write_ok(passed, uris),
            Self::Json(json) => uri_json::outgoing_reply(Reply::OkJson(json), uris),
            Self::Raw(reply) => Ok(reply),
        };
        reply.map_err(|why| error(format!("the result cannot be sent: {why}")))
    }
}

impl From<()> for Returned {
    fn from((): ()) -> Self {
        Self::Undefined
    }
}

impl From<Bytes> for Returned {
    fn from(buffer: Bytes) -> Self {
        Self::Buffer(buffer)
    }
}

impl From<Value> for Returned {
    fn from(value: Value) -> Self {
        Self::Value(value.into())
    }
}

impl From<Passed> for Returned {
    fn from(passed: Passed) -> Self {
        Self::Value(passed)
    }
}

pub(super) fn error(message: String) -> Thrown {
    SerializedError::new("Error", message).into()
}
