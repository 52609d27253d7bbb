//! Measures two of this project's endpoints: in memory, and over loopback TCP.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use breakbulk::message::vscode::{Passed, RpcId, SerializedError, Thrown, Value};
use breakbulk::vscode::{Actor, Actors, Config, Endpoint, Remote, Returned, Stream};
use bytes::Bytes;

/// The buffer between the two ends in memory, in bytes.
const DUPLEX: usize = 256 << 10;

/// A caller and the endpoint that it calls.
pub(crate) struct Pair {
    remote: Remote,
    _ends: [Endpoint; 2],
}

/// Both ends in memory.
pub(crate) fn in_memory() -> Result<Pair> {
    let (caller, callee) = tokio::io::duplex(DUPLEX);
    pair(caller, callee)
}

/// Both ends of a connection over loopback.
pub(crate) async fn over_tcp() -> Result<Pair> {
    let (caller, callee) = crate::raw::pair().await?;
    pair(caller, callee)
}

fn pair(caller: impl Stream, callee: impl Stream) -> Result<Pair> {
    let number = RpcId::new(1)?;
    let actor = Actor::new()
        .typed("$add", |(left, right): (i64, i64)| async move {
            Ok::<_, Thrown>(left + right)
        })
        .method("$size", |incoming| async move {
            match incoming.values().as_deref() {
                Ok([Passed::Plain(Value::Buffer(buffer))]) => Returned::json(&buffer.len()),
                _ => Err(SerializedError::new("Error", "no buffer").into()),
            }
        });
    let called =
        Config::default().with(|config| config.actors = Actors::new().add(number, "Callee", actor));
    let caller = Endpoint::over_stream(caller, Config::default());
    let callee = Endpoint::over_stream(callee, called);
    Ok(Pair {
        remote: caller.remote(number),
        _ends: [caller, callee],
    })
}

impl Pair {
    /// How long this many concurrent calls take.
    pub(crate) async fn pipelined(&self, count: u32) -> Result<Duration> {
        let start = Instant::now();
        let calls: Vec<_> = (0..count)
            .map(|number| self.remote.call("$add", &(number, 1)))
            .collect();
        for (number, call) in (0..count).zip(calls) {
            check(number, call.await?.typed()?)?;
        }
        Ok(start.elapsed())
    }

    /// How long so many calls take, one after the other.
    pub(crate) async fn sequential(&self, count: u32) -> Result<Duration> {
        let start = Instant::now();
        for number in 0..count {
            let call = self.remote.call("$add", &(number, 1));
            check(number, call.await?.typed()?)?;
        }
        Ok(start.elapsed())
    }

    /// How long a call with this buffer takes.
    pub(crate) async fn large(&self, buffer: &Bytes) -> Result<Duration> {
        let start = Instant::now();
        let passed = Passed::Plain(Value::Buffer(buffer.clone()));
        let answer = self.remote.call_values("$size", vec![passed]).await?;
        if answer.typed::<usize>()? != buffer.len() {
            bail!("the buffer came in another size");
        }
        Ok(start.elapsed())
    }
}

fn check(number: u32, sum: u32) -> Result<()> {
    if sum != number + 1 {
        bail!("{number} + 1 is not {sum}");
    }
    Ok(())
}
