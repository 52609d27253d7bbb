//! Actors and pairs that the tests share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use breakbulk_message::vscode::{RpcId, SerializedError, Thrown, Value};
use breakbulk_vscode::{Actor, Actors, Config, Endpoint, Returned};

pub(crate) fn id() -> RpcId {
    RpcId::new(2).unwrap()
}

/// The methods that the tests call; `$count` counts its runs.
pub(crate) fn actor(runs: Arc<AtomicU64>) -> Actor {
    Actor::new()
        .typed("$add", |(a, b): (i64, i64)| async move {
            Ok::<_, Thrown>(a + b)
        })
        .typed("$nothing", |(): ()| async move { Ok::<_, Thrown>(()) })
        .method("$echo", |incoming| async move {
            let mut args = incoming
                .values()
                .map_err(|error| other(&error.to_string()))?;
            Ok(args.pop().map_or(Returned::Undefined, Returned::Value))
        })
        .method("$raw", |incoming| async move {
            let breakbulk_message::vscode::Args::Json(json) = incoming.raw() else {
                return Err(other("not JSON"));
            };
            let reply = breakbulk_message::vscode::Reply::OkJson(json.clone());
            Ok(Returned::Raw(reply))
        })
        .method("$fail", |_| async move {
            let cause = SerializedError::new("Inner", "deep");
            let error = SerializedError {
                stack: Some("TypeError: bad\n    at x".to_owned()),
                code: Some("ENOENT".into()),
                cause: Some(Box::new(cause.into())),
                ..SerializedError::new("TypeError", "bad")
            };
            Err(error.into())
        })
        .method("$throw", |_| async move { Err(Thrown::Other(42.into())) })
        .method("$panic", |_| async move { panic!("on purpose") })
        .method("$huge", |_| async move {
            let huge = vec![0; 101 << 20];
            Ok(Returned::Buffer(huge.into()))
        })
        .method("$back", |incoming| async move {
            // Calls the caller, which is still waiting for this method.
            let answer = incoming.remote(id()).call("$add", &(1, 2)).await;
            let sum: i64 = answer.unwrap().typed().unwrap();
            Returned::json(&(sum * 10))
        })
        .typed("$count", move |(number,): (u64,)| {
            runs.fetch_add(1, Ordering::Relaxed);
            async move {
                tokio::task::yield_now().await;
                Ok::<_, Thrown>(number)
            }
        })
}

pub(crate) fn config() -> Config {
    Config::default()
        .with(|config| config.actors = Actors::new().add(id(), "Tester", actor(Arc::default())))
}

/// Both ends of a pipe within the process.
pub(crate) fn pair(a: Config, b: Config) -> (Endpoint, Endpoint) {
    let (left, right) = tokio::io::duplex(64 << 10);
    (
        Endpoint::over_stream(left, a),
        Endpoint::over_stream(right, b),
    )
}

pub(crate) fn other(text: &str) -> Thrown {
    Thrown::Other(Value::from(text))
}
