//! Measures large messages from end to end, and raw WebSockets that send the same base64 text.

use std::time::Instant;

use base64::Engine;
use breakbulk::link::{Event, Outgoing};
use breakbulk::message::ahp::Chunking;
use breakbulk::net::{Connection, Options};
use breakbulk_bench::processor_time;
use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::tungstenite::{Message, Utf8Bytes};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, accept_async, client_async};

use crate::payload::{FRAME, LARGE, config, pair, text};
use crate::spread::Spread;

/// How many series there are, each with connections of its own.
const SERIES: usize = 10;

/// Rounds of each in a series, alternating; the best of each counts.
const ROUNDS: usize = 8;

/// The smallest acceptable part of the raw rate, at the median.
const LEAST: f64 = 0.85;

type Raw = WebSocketStream<MaybeTlsStream<TcpStream>>;

pub(crate) async fn measure() -> Result<(String, Value), Box<dyn std::error::Error>> {
    let mut out = format!(
        "32 MB messages over loopback in frames of 900 KB, {SERIES} series, best of {ROUNDS} in each\n"
    );
    let mut values = Vec::new();
    for (name, up) in [("to the client", false), ("to the server", true)] {
        let (mut rates, mut raw_rates, mut parts) = (Vec::new(), Vec::new(), Vec::new());
        let (mut times, mut raw_times, mut bounds) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..SERIES {
            let (ours, raw) = both(up).await?;
            let rate = |took: Took| LARGE as f64 / took.clock / 1e9;
            rates.push(rate(ours));
            raw_rates.push(rate(raw));
            parts.push(raw.clock / ours.clock);
            times.push(ours.processor * 1e3);
            raw_times.push(raw.processor * 1e3);
            // The best possible ratio: two processors that share the work evenly and are never idle.
            bounds.push(raw.clock / (ours.processor / 2.0));
        }
        let (ours, raw, part) = (Spread::of(rates), Spread::of(raw_rates), Spread::of(parts));
        let mark = if part.median >= LEAST { "ok" } else { "UNDER" };
        out.push_str(&format!(
            "{name:<14} raw tokio-tungstenite {raw:.2} GB/s of payload, ours {ours:.2} GB/s: {part:.2} of it {mark} (at least {LEAST})\n",
        ));
        let (times, raw_times) = (Spread::of(times), Spread::of(raw_times));
        let bound = Spread::of(bounds);
        out.push_str(&format!(
            "{:<14} processor time: raw {raw_times:.1} ms, ours {times:.1} ms; spread evenly over two processors that are never idle ours were at {bound:.2}\n",
            "",
        ));
        values.push(json!({
            "way": name, "rawRate": raw.json(), "rate": ours.json(), "part": part.json(),
            "processorMs": times.json(), "rawProcessorMs": raw_times.json(),
            "even": bound.json(),
        }));
    }
    Ok((out, json!(values)))
}

/// How long a message took, in seconds.
#[derive(Clone, Copy)]
struct Took {
    clock: f64,
    /// The processor time of all threads.
    processor: f64,
}

impl Took {
    const NONE: Self = Self {
        clock: f64::MAX,
        processor: f64::MAX,
    };

    fn least(self, clock: f64, processor: f64) -> Self {
        Self {
            clock: self.clock.min(clock),
            processor: self.processor.min(processor),
        }
    }
}

fn message() -> Bytes {
    Bytes::from(format!(
        r#"{{"jsonrpc":"2.0","method":"action","params":{{"title":"{}"}}}}"#,
        text(LARGE)
    ))
}

/// The times of this project's code and of raw WebSockets.
async fn both(up: bool) -> Result<(Took, Took), Box<dyn std::error::Error>> {
    let message = message();
    let (client, server) = pair().await?;
    let open = |websocket| {
        let config = config();
        let mut link = config.fresh_link();
        config.apply_peer(&mut link, Some(&Chunking::default()));
        Connection::open(link, websocket, Options::default()).expect("WebSockets carry all frames")
    };
    let (client, server) = (open(client), open(server));
    let (from, to) = if up {
        (client, server)
    } else {
        (server, client)
    };
    let (mut raw_from, mut raw_to) = raw_pair(up).await?;
    let frames = frames(&message)?;
    let (mut ours, mut raw) = (Took::NONE, Took::NONE);
    for _ in 0..ROUNDS {
        let (before, start) = (processor_time()?, Instant::now());
        from.send(Outgoing::new(message.clone()).known_text())
            .map_err(|rejected| rejected.error)?;
        loop {
            match to.event().await {
                Some(Event::Message(got)) if got.bytes.len() == message.len() => break,
                Some(Event::Closed(closed)) => return Err(closed.to_string().into()),
                None => return Err("closed".into()),
                _ => {}
            }
        }
        let seconds = start.elapsed().as_secs_f64();
        ours = ours.least(seconds, processor_time()? - before);
        let before = processor_time()?;
        let seconds;
        (seconds, raw_from, raw_to) = raw_round(raw_from, raw_to, frames.clone()).await?;
        raw = raw.least(seconds, processor_time()? - before);
    }
    Ok((ours, raw))
}

async fn raw_pair(up: bool) -> Result<(Raw, Raw), Box<dyn std::error::Error>> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let client = async {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let plain = MaybeTlsStream::Plain(stream);
        let (client, _) = client_async(format!("ws://{address}/"), plain).await?;
        Ok::<_, Box<dyn std::error::Error>>(client)
    };
    let server = async {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        Ok::<_, Box<dyn std::error::Error>>(accept_async(MaybeTlsStream::Plain(stream)).await?)
    };
    let (client, server) = tokio::join!(client, server);
    let (client, server) = (client?, server?);
    Ok(if up {
        (client, server)
    } else {
        (server, client)
    })
}

/// The base64 of the message in frames of the same size, made before the measurement.
fn frames(message: &[u8]) -> Result<Vec<Utf8Bytes>, Box<dyn std::error::Error>> {
    let encoded = Bytes::from(base64::engine::general_purpose::STANDARD.encode(message));
    let frames = (0..encoded.len())
        .step_by(FRAME)
        .map(|at| Utf8Bytes::try_from(encoded.slice(at..encoded.len().min(at + FRAME))));
    Ok(frames.collect::<Result<_, _>>()?)
}

/// Sends the frames, each end in a task of its own, as in our code.
async fn raw_round(
    mut from: Raw,
    mut to: Raw,
    frames: Vec<Utf8Bytes>,
) -> Result<(f64, Raw, Raw), Box<dyn std::error::Error>> {
    let expected: usize = frames.iter().map(|frame| frame.len()).sum();
    let start = Instant::now();
    let sending = tokio::spawn(async move {
        for frame in frames {
            from.send(Message::Text(frame)).await?;
        }
        Ok::<_, tokio_tungstenite::tungstenite::Error>(from)
    });
    let receiving = tokio::spawn(async move {
        let mut got = 0;
        while got < expected {
            match to.next().await {
                Some(Ok(message)) => got += message.len(),
                other => return Err(format!("{other:?}")),
            }
        }
        Ok((Instant::now(), to))
    });
    let from = sending.await??;
    let (end, to) = receiving.await??;
    Ok(((end - start).as_secs_f64(), from, to))
}
