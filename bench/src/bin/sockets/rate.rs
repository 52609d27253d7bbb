//! Large messages from end to end, and raw WebSockets that move the same base64 bytes.

use std::time::Instant;

use breakbulk::link::{Event, Outgoing};
use breakbulk::message::ahp::Chunking;
use breakbulk::net::{Connection, Options};
use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::tungstenite::{Message, Utf8Bytes};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, accept_async, client_async};

use crate::payload::{FRAME, LARGE, pair, settings, text};

/// Rounds of each, in turns.
const ROUNDS: usize = 9;

/// Below this part of the raw rate something is wrong.
const LEAST: f64 = 0.6;

type Raw = WebSocketStream<MaybeTlsStream<TcpStream>>;

pub(crate) async fn measure() -> Result<(String, Value), Box<dyn std::error::Error>> {
    let mut out = String::from("32 MB messages over loopback in frames of 900 KB, best of 9\n");
    let mut values = Vec::new();
    for (name, up) in [("to the client", false), ("to the server", true)] {
        let (ours, raw) = both(up).await?;
        let rate = |seconds: f64| LARGE as f64 / seconds / 1e9;
        let part = raw / ours;
        let mark = if part >= LEAST { "ok" } else { "UNDER" };
        out.push_str(&format!(
            "{name:<14} raw tokio-tungstenite {:.2} GB/s of payload, ours {:.2} GB/s: {part:.2} of it {mark} (at least {LEAST})\n",
            rate(raw),
            rate(ours),
        ));
        values.push(json!({ "way": name, "rawSeconds": raw, "seconds": ours, "part": part }));
    }
    Ok((out, json!(values)))
}

/// Seconds of ours and of raw WebSockets.
async fn both(up: bool) -> Result<(f64, f64), Box<dyn std::error::Error>> {
    let message = Bytes::from(format!(
        r#"{{"jsonrpc":"2.0","method":"action","params":{{"title":"{}"}}}}"#,
        text(LARGE)
    ));
    let (client, server) = pair().await?;
    let open = |websocket| {
        let settings = settings();
        let mut link = settings.link();
        settings.shake(&mut link, Some(&Chunking::default()));
        Connection::open(link, websocket, Options::default())
    };
    let (client, server) = (open(client), open(server));
    let (from, to) = if up {
        (client, server)
    } else {
        (server, client)
    };
    let (mut raw_from, mut raw_to) = raw_pair(up).await?;
    let (mut ours, mut raw) = (f64::MAX, f64::MAX);
    for _ in 0..ROUNDS {
        let start = Instant::now();
        from.send(Outgoing::new(message.clone()))
            .map_err(|rejected| rejected.error)?;
        loop {
            match to.event().await {
                Some(Event::Message(got)) if got.bytes.len() == message.len() => break,
                Some(Event::Closed(closed)) => return Err(closed.to_string().into()),
                None => return Err("closed".into()),
                _ => {}
            }
        }
        ours = ours.min(start.elapsed().as_secs_f64());
        raw = raw.min(raw_round(&mut raw_from, &mut raw_to, message.len()).await?);
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

/// The base64 of that many bytes in frames of the same size. The frames are made beforehand.
async fn raw_round(
    from: &mut Raw,
    to: &mut Raw,
    bytes: usize,
) -> Result<f64, Box<dyn std::error::Error>> {
    let encoded = bytes.div_ceil(3) * 4;
    let frame = Utf8Bytes::from(text(FRAME));
    let count = encoded / FRAME;
    let rest = Utf8Bytes::from(text(encoded % FRAME));
    let start = Instant::now();
    let sending = async {
        for _ in 0..count {
            from.send(Message::Text(frame.clone())).await?;
        }
        from.send(Message::Text(rest)).await
    };
    let receiving = async {
        let mut got = 0;
        while got < encoded {
            match to.next().await {
                Some(Ok(message)) => got += message.len(),
                other => return Err(format!("{other:?}")),
            }
        }
        Ok(())
    };
    let (sent, received) = tokio::join!(sending, receiving);
    sent?;
    received?;
    Ok(start.elapsed().as_secs_f64())
}
