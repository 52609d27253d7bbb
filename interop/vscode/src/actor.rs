//! This project's actor: it has the methods of `actor.mjs`, for calls by node.

use std::fmt::Display;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

use breakbulk::message::vscode::{
    EncodeError, Passed, ReadError, RpcId, SerializedError, Thrown, Value,
};
use breakbulk::vscode::{Actor, Actors, Incoming, Returned};
use serde_json::Value as Json;

use crate::bytes::{bytes, digest};
use crate::values::tell;

/// The RPC id of node's actor.
pub const NODES: usize = 1;
/// The RPC id of this project's actor.
pub const OURS: usize = 2;

/// How long a handler blocks at most, if the test never lets it go on.
const LONGEST_BLOCK: Duration = Duration::from_secs(60);

/// What a test can see and do of the actor.
#[derive(Clone)]
pub struct Seen {
    /// How often `$add` ran.
    pub sums: Arc<AtomicU64>,
    /// Lets `$block` go on.
    pub go_on: mpsc::Sender<()>,
}

/// Makes the actor, and what a test needs to observe it.
pub fn actors() -> Result<(Actors, Seen), EncodeError> {
    let sums = Arc::new(AtomicU64::new(0));
    let (go_on, blocked) = mpsc::channel();
    let actor = basic(sums.clone(), RpcId::new(NODES)?);
    let actor = blocking(cancellable(failing(buffers(actor))), blocked);
    let actors = Actors::new().add(RpcId::new(OURS)?, "Actor2", actor);
    Ok((actors, Seen { sums, go_on }))
}

fn basic(sums: Arc<AtomicU64>, nodes: RpcId) -> Actor {
    Actor::new()
        .method("$echo", |incoming| async move {
            Ok(first(&incoming).map_err(thrown)?.into())
        })
        .method("$kinds", |incoming| async move {
            let args = incoming.values().map_err(thrown)?;
            let kinds: Json = args.iter().map(tell).collect();
            Returned::json(&kinds)
        })
        .typed("$add", move |(left, right): (i64, i64)| {
            sums.fetch_add(1, Ordering::Relaxed);
            async move { Ok::<_, Thrown>(left + right) }
        })
        .method("$down", move |incoming| async move {
            let (depth,): (u32,) = incoming.args()?;
            if depth == 0 {
                return Returned::json(&0);
            }
            let call = incoming.remote(nodes).call("$down", &(depth - 1,));
            let answer = call.await.map_err(thrown)?;
            let below: u32 = answer.typed().map_err(thrown)?;
            Returned::json(&(below + 1))
        })
        .method("$uri", |incoming| async move {
            let uri = first(&incoming).map_err(thrown)?.into_value();
            let part = |key: &str| uri.get(key).and_then(Value::as_str).unwrap_or_default();
            let seen = format!("{}://{}{}", part("scheme"), part("authority"), part("path"));
            Ok(Value::from([("seen", seen.into()), ("uri", uri)]).into())
        })
}

fn buffers(actor: Actor) -> Actor {
    actor
        .method("$digest", |incoming| async move {
            match first(&incoming).map_err(thrown)?.into_value() {
                Value::Buffer(buffer) => Returned::json(&digest(&buffer)),
                other => Err(thrown(format!("no buffer: {other:?}"))),
            }
        })
        .method("$buffer", |incoming| async move {
            let (size, seed) = incoming.args()?;
            Ok(bytes(size, seed).into())
        })
        .method("$withBuffers", |incoming| async move {
            let (size, seed): (usize, u32) = incoming.args()?;
            let [one, two] = [seed, seed + 1].map(|seed| Value::Buffer(bytes(size, seed)));
            let list = vec![two, one.clone()].into();
            let value = [("one", one), ("list", list), ("nothing", Value::Undefined)];
            Ok(Passed::WithBuffers(value.into()).into())
        })
}

fn failing(actor: Actor) -> Actor {
    actor
        .method("$fail", |_| async {
            let cause = SerializedError {
                code: Some(7.into()),
                stack: Some("RangeError: the cause".into()),
                ..SerializedError::new("RangeError", "the cause")
            };
            let error = SerializedError {
                cause: Some(Box::new(cause.into())),
                code: Some("E_INTEROP".into()),
                stack: Some("TypeError: the error\n    at $fail".into()),
                ..SerializedError::new("TypeError", "the error")
            };
            Err(error.into())
        })
        .method("$throw", |incoming| async move {
            Err(Thrown::Other(
                first(&incoming).map_err(thrown)?.into_value(),
            ))
        })
}

fn cancellable(actor: Actor) -> Actor {
    actor
        .method("$isCancelled", |incoming| async move {
            Returned::json(&incoming.cancellation().is_cancelled())
        })
        .method("$untilCancelled", |incoming| async move {
            incoming.cancellation().cancelled().await;
            Returned::json("cancelled")
        })
        .method("$failWhenCancelled", |incoming| async move {
            incoming.cancellation().cancelled().await;
            Err(SerializedError::canceled().into())
        })
}

/// Adds `$block`: while it blocks, nothing else runs at this end, not even acknowledgements.
fn blocking(actor: Actor, blocked: mpsc::Receiver<()>) -> Actor {
    let blocked = Arc::new(Mutex::new(blocked));
    actor.method("$block", move |_| {
        let blocked = blocked.clone();
        async move {
            let receiver = blocked.lock().unwrap_or_else(PoisonError::into_inner);
            let waited = tokio::task::block_in_place(|| receiver.recv_timeout(LONGEST_BLOCK));
            Returned::json(&waited.is_ok())
        }
    })
}

/// The first argument, or undefined.
fn first(incoming: &Incoming) -> Result<Passed, ReadError> {
    let first = incoming.values()?.into_iter().next();
    Ok(first.unwrap_or(Passed::Plain(Value::Undefined)))
}

fn thrown(why: impl Display) -> Thrown {
    SerializedError::new("Error", why.to_string()).into()
}
