//! Measures small messages, many under way at once, through this project's connections from end to end, and
//! through tokio-tungstenite, which writes each by itself.

use std::time::Instant;

use breakbulk::link::{Event, Outgoing};
use breakbulk::net::{Connection, Options};
use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::{Message, Utf8Bytes};

use crate::frames::{Outcome, plain, raw_pair};
use crate::payload::{config, pair, text};
use crate::spread::Spread;

/// The size of a message, in bytes.
const SIZE: usize = 1024;

/// Messages per round.
const COUNT: usize = 50_000;

/// Rounds of each, alternating, since the load of the machine varies.
const ROUNDS: usize = 10;

/// The smallest acceptable part of the library's rate, at the median.
const LEAST: f64 = 0.8;

/// How the library writes messages.
#[derive(Clone, Copy)]
enum Raw {
    /// Each by itself (`send`), as most programs do.
    Each,
    /// As many at once as its buffer holds (`feed`), and a flush at the end.
    Fed,
}

pub(crate) async fn measure() -> Result<(String, Value), Box<dyn std::error::Error>> {
    let mut out = format!("messages of 1 KB over loopback, ahead of each other, {ROUNDS} rounds\n");
    let mut values = Vec::new();
    for (name, up) in [("to the client", false), ("to the server", true)] {
        let (mut parts, mut fed_parts, mut rates) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let ours = our_round(up).await.map_err(plain)?;
            let each = raw_round(up, Raw::Each).await.map_err(plain)?;
            let fed = raw_round(up, Raw::Fed).await.map_err(plain)?;
            rates.push(COUNT as f64 / ours / 1e3);
            parts.push(each / ours);
            fed_parts.push(fed / ours);
        }
        let (rate, part, fed) = (Spread::of(rates), Spread::of(parts), Spread::of(fed_parts));
        let mark = if part.median >= LEAST { "ok" } else { "UNDER" };
        out.push_str(&format!(
            "{name:<14} {rate:.0} thousand/s: {part:.2} of raw tokio-tungstenite {mark} (at least {LEAST}); {fed:.2} of it with writes gathered\n",
        ));
        values.push(json!({
            "way": name, "thousandPerSecond": rate.json(), "part": part.json(), "partOfFed": fed.json(),
        }));
    }
    Ok((out, json!(values)))
}

/// The seconds of a round with our connections, each end in a task of its own.
async fn our_round(up: bool) -> Outcome<f64> {
    let (client, server) = pair().await.map_err(|error| error.to_string())?;
    let open = |websocket| Connection::open(config().fresh_link(), websocket, Options::default());
    let (client, server) = (open(client)?, open(server)?);
    let (from, to) = if up {
        (client, server)
    } else {
        (server, client)
    };
    let message = message();
    let size = message.len();
    let start = Instant::now();
    let sending = tokio::spawn(async move {
        for _ in 0..COUNT {
            let message = Outgoing::new(message.clone());
            let sent = from.send_when_writable(message).await;
            sent.map_err(|rejected| rejected.error.to_string())?;
        }
        Outcome::Ok(from)
    });
    let receiving = tokio::spawn(async move {
        let mut got = 0;
        while got < COUNT {
            match to.event().await {
                Some(Event::Message(message)) if message.bytes.len() == size => got += 1,
                Some(Event::Closed(closed)) => return Err(closed.to_string().into()),
                None => return Err("closed".into()),
                Some(_) => {}
            }
        }
        Outcome::Ok(start.elapsed())
    });
    let seconds = receiving.await??.as_secs_f64();
    let _from = sending.await??;
    Ok(seconds)
}

/// The seconds of a round with the library, each end in a task of its own.
async fn raw_round(up: bool, how: Raw) -> Outcome<f64> {
    let (mut from, mut to) = raw_pair(up).await?;
    let message = Utf8Bytes::try_from(message())?;
    let size = message.len();
    let start = Instant::now();
    let sending = tokio::spawn(async move {
        for _ in 0..COUNT {
            let message = Message::Text(message.clone());
            match how {
                Raw::Each => from.send(message).await?,
                Raw::Fed => from.feed(message).await?,
            }
        }
        from.flush().await?;
        Outcome::Ok(from)
    });
    let receiving = tokio::spawn(async move {
        for _ in 0..COUNT {
            match to.next().await {
                Some(Ok(message)) if message.len() == size => {}
                other => return Err(format!("{other:?}").into()),
            }
        }
        Outcome::Ok(start.elapsed())
    });
    let seconds = receiving.await??.as_secs_f64();
    let _from = sending.await??;
    Ok(seconds)
}

fn message() -> Bytes {
    let around = r#"{"jsonrpc":"2.0","method":"action","params":{"title":""}}"#.len();
    let text = text(SIZE - around);
    format!(r#"{{"jsonrpc":"2.0","method":"action","params":{{"title":"{text}"}}}}"#).into()
}
