//! Measures small frames through our WebSocket transport, and through tokio-tungstenite.

use std::time::Instant;

use breakbulk::link::Frame;
use breakbulk::net::{Incoming, Sink, Source, Transport};
use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::tungstenite::{Message, Utf8Bytes};
use tokio_tungstenite::{WebSocketStream, accept_async, client_async};

use crate::payload::{pair, text};

/// The size of a frame, in bytes.
const SIZE: usize = 200;

/// Frames per round.
const COUNT: usize = 100_000;

/// Rounds of each, alternating, since the load of the machine varies.
const ROUNDS: usize = 4;

/// The smallest acceptable part of the library's rate.
const LEAST: f64 = 0.8;

pub(crate) type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

pub(crate) async fn measure() -> Result<(String, Value), Box<dyn std::error::Error>> {
    let mut out = format!("frames of {SIZE} bytes over loopback, best of {ROUNDS}\n");
    let mut values = Vec::new();
    for (name, up) in [("to the client", false), ("to the server", true)] {
        let (mut ours, mut raw) = (f64::MAX, f64::MAX);
        for _ in 0..ROUNDS {
            ours = ours.min(our_round(up).await.map_err(plain)?);
            raw = raw.min(raw_round(up).await.map_err(plain)?);
        }
        let rate = |seconds: f64| COUNT as f64 / seconds / 1e3;
        let part = raw / ours;
        let mark = if part >= LEAST { "ok" } else { "UNDER" };
        out.push_str(&format!(
            "{name:<14} raw tokio-tungstenite {:.0} thousand/s, the transport {:.0} thousand/s: {part:.2} of it {mark} (at least {LEAST})\n",
            rate(raw),
            rate(ours),
        ));
        values.push(json!({ "way": name, "rawSeconds": raw, "seconds": ours, "part": part }));
    }
    Ok((out, json!(values)))
}

/// The seconds of a round with our transport, each end in a task of its own.
async fn our_round(up: bool) -> Outcome<f64> {
    let (client, server) = pair().await.map_err(|error| error.to_string())?;
    let (from, to) = if up {
        (client, server)
    } else {
        (server, client)
    };
    let ((_from_source, mut sink), (mut source, _to_sink)) = (from.split(), to.split());
    let frame = Bytes::from(text(SIZE));
    let start = Instant::now();
    let sending = tokio::spawn(async move {
        for _ in 0..COUNT {
            sink.send(Frame::Text(frame.clone())).await?;
        }
        Outcome::Ok(sink)
    });
    let receiving = tokio::spawn(async move {
        let mut got = 0;
        while got < COUNT {
            match source.next().await {
                Incoming::Frame(frame) if frame.bytes().len() == SIZE => got += 1,
                Incoming::Alive => {}
                other => return Err(format!("{other:?}").into()),
            }
        }
        Outcome::Ok(start.elapsed())
    });
    let seconds = receiving.await??.as_secs_f64();
    let _sink = sending.await??;
    Ok(seconds)
}

/// The seconds of a round with the library, each end in a task of its own.
async fn raw_round(up: bool) -> Outcome<f64> {
    let (mut from, mut to) = raw_pair(up).await?;
    let frame = Utf8Bytes::from(text(SIZE));
    let start = Instant::now();
    let sending = tokio::spawn(async move {
        for _ in 0..COUNT {
            from.send(Message::Text(frame.clone())).await?;
        }
        Outcome::Ok(from)
    });
    let receiving = tokio::spawn(async move {
        for _ in 0..COUNT {
            match to.next().await {
                Some(Ok(message)) if message.len() == SIZE => {}
                other => return Err(format!("{other:?}").into()),
            }
        }
        Outcome::Ok(start.elapsed())
    });
    let seconds = receiving.await??.as_secs_f64();
    let _from = sending.await??;
    Ok(seconds)
}

pub(crate) async fn raw_pair(
    up: bool,
) -> Outcome<(WebSocketStream<TcpStream>, WebSocketStream<TcpStream>)> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let client = async {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (client, _) = client_async(format!("ws://{address}/"), stream).await?;
        Outcome::Ok(client)
    };
    let server = async {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        Outcome::Ok(accept_async(stream).await?)
    };
    let (client, server) = tokio::join!(client, server);
    let (client, server) = (client?, server?);
    Ok(if up {
        (client, server)
    } else {
        (server, client)
    })
}

/// Converts an error to the type without `Send + Sync`.
pub(crate) fn plain(error: Box<dyn std::error::Error + Send + Sync>) -> Box<dyn std::error::Error> {
    error
}
