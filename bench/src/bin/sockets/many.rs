//! Measures echoes of 1 KB against the number of connections, with a server that uses this project's
//! connections and one that uses tokio-tungstenite, and plots the result. The clients are the same for both:
//! tokio-tungstenite in this process, each with one message under way. The server is a process of its own.

use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use breakbulk::link::{Event, Outgoing};
use breakbulk::net::ws::{ListenOptions, Listener};
use breakbulk::net::{Connection, Options, raise_open_files};
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{Barrier, Semaphore};
use tokio::task::JoinSet;
use tokio_tungstenite::tungstenite::{Message, Utf8Bytes};
use tokio_tungstenite::{WebSocketStream, accept_async, client_async};

use crate::frames::{Outcome, plain};
use crate::payload::{config, text};
use crate::plot::{Plot, Series, draw};

/// The size of a message's text, in bytes.
const SIZE: usize = 1000;

/// Numbers of connections.
const NUMBERS: [usize; 5] = [1, 10, 100, 1_000, 10_000];

/// How long each number is measured, in each of the rounds.
const TIME: Duration = Duration::from_secs(1);

/// Rounds, of which the best rate and the best latency count.
const ROUNDS: usize = 3;

/// How many connections are opened at a time.
const OPENING: usize = 64;

const SERVERS: [(&str, &str); 2] = [("many-ours", "ours"), ("many-raw", "tokio-tungstenite")];

/// The result of one server with this many connections.
#[derive(Clone, Copy)]
struct Point {
    connections: usize,
    per_second: f64,
    p50: Duration,
    p99: Duration,
}

/// Runs a server in a process of its own: prints its address, and serves until it is killed.
pub(crate) async fn serve(which: &str) -> Result<(), Box<dyn std::error::Error>> {
    raise_open_files();
    let socket = TcpSocket::new_v4()?;
    socket.bind(([127, 0, 0, 1], 0).into())?;
    let socket = socket.listen(4096)?;
    println!("{}", socket.local_addr()?);
    match which {
        "many-ours" => serve_ours(socket).await,
        _ => serve_raw(socket).await,
    }
}

async fn serve_ours(socket: TcpListener) -> Result<(), Box<dyn std::error::Error>> {
    let options = ListenOptions {
        connections: 20_000,
        handshakes: 1024,
        ..ListenOptions::default()
    };
    let mut listener = Listener::new(socket, options)?;
    loop {
        let websocket = listener.accept().await?.websocket;
        let unstarted = Connection::prepare(config().fresh_link(), websocket, Options::default())?;
        let connection = unstarted.connection().downgrade();
        let held = unstarted.connection().clone();
        unstarted.handle_events(move |event| {
            if let Event::Message(message) = event {
                let answer = Outgoing::new(message.bytes);
                // A client has one message under way, so there is room.
                connection.with(|link| link.send(breakbulk::net::now(), answer).is_ok());
            }
        });
        tokio::spawn(async move { held.ended().await });
    }
}

async fn serve_raw(socket: TcpListener) -> Result<(), Box<dyn std::error::Error>> {
    loop {
        let (stream, _) = socket.accept().await?;
        tokio::spawn(async move {
            stream.set_nodelay(true).ok()?;
            let mut websocket = accept_async(stream).await.ok()?;
            while let Some(Ok(message)) = websocket.next().await {
                if message.is_text() {
                    websocket.send(message).await.ok()?;
                }
            }
            Some(())
        });
    }
}

pub(crate) async fn measure(
    file: Option<&str>,
) -> Result<(String, Value), Box<dyn std::error::Error>> {
    raise_open_files();
    let mut out = format!(
        "echoes of 1 KB, one under way on each connection, best of {ROUNDS} rounds of {} s\n",
        TIME.as_secs()
    );
    let mut all: [Vec<Point>; 2] = Default::default();
    for connections in NUMBERS {
        let mut best: [Option<Point>; 2] = [None, None];
        for _ in 0..ROUNDS {
            for (best, (server, _)) in best.iter_mut().zip(SERVERS) {
                let point = one(server, connections).await.map_err(plain)?;
                *best = Some(match *best {
                    None => point,
                    Some(before) => Point {
                        connections,
                        per_second: before.per_second.max(point.per_second),
                        p50: before.p50.min(point.p50),
                        p99: before.p99.min(point.p99),
                    },
                });
            }
        }
        for (all, best) in all.iter_mut().zip(best) {
            all.extend(best);
        }
        if let [Some(ours), Some(raw)] = best {
            let line = format!(
                "{connections:>6} connections: ours {}; raw {}: {:.2} of its rate, {:.2} of its p99\n",
                sentence(&ours),
                sentence(&raw),
                ours.per_second / raw.per_second,
                ours.p99.as_secs_f64() / raw.p99.as_secs_f64(),
            );
            // The measurement takes a while, so each line is printed at once.
            eprint!("{line}");
            out.push_str(&line);
        }
    }
    if let Some(file) = file {
        std::fs::write(file, picture(&all))?;
    }
    let values = all.map(|points| points.iter().map(value).collect::<Value>());
    Ok((out, json!({ "ours": values[0], "raw": values[1] })))
}

fn sentence(point: &Point) -> String {
    format!(
        "{:.1} thousand/s, median {:.2} ms, p99 {:.2} ms",
        point.per_second / 1e3,
        point.p50.as_secs_f64() * 1e3,
        point.p99.as_secs_f64() * 1e3,
    )
}

fn value(point: &Point) -> Value {
    json!({
        "connections": point.connections, "perSecond": point.per_second,
        "p50Seconds": point.p50.as_secs_f64(), "p99Seconds": point.p99.as_secs_f64(),
    })
}

fn picture(all: &[Vec<Point>; 2]) -> String {
    let series = |of: fn(&Point) -> f64| {
        let each = all.iter().zip(SERVERS).map(|(points, (_, name))| Series {
            name,
            points: points
                .iter()
                .map(|point| (point.connections as f64, of(point)))
                .collect(),
        });
        each.collect()
    };
    draw(
        "Echoes of 1 KB, one under way on each connection",
        "connections",
        &[
            Plot {
                title: "messages per second",
                series: series(|point| point.per_second),
            },
            Plot {
                title: "99th percentile, ms",
                series: series(|point| point.p99.as_secs_f64() * 1e3),
            },
        ],
    )
}

/// Starts a server and measures it with so many connections.
async fn one(server: &str, connections: usize) -> Outcome<Point> {
    let mut child = tokio::process::Command::new(std::env::current_exe()?)
        .arg(server)
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let stdout = child.stdout.take().ok_or("no output")?;
    let address = BufReader::new(stdout).lines().next_line().await?;
    let address = Arc::<str>::from(address.ok_or("the server said nothing")?);
    let opening = Arc::new(Semaphore::new(OPENING));
    // All clients begin together, once all are connected.
    let begin = Arc::new(Barrier::new(connections));
    let mut clients = JoinSet::new();
    for _ in 0..connections {
        let (address, opening, begin) = (address.clone(), opening.clone(), begin.clone());
        clients.spawn(async move {
            let permit = opening.acquire().await?;
            let websocket = connect(&address).await?;
            drop(permit);
            begin.wait().await;
            ask(websocket, Instant::now() + TIME).await
        });
    }
    let mut times = Vec::new();
    while let Some(taken) = clients.join_next().await {
        times.extend(taken??);
    }
    child.kill().await?;
    times.sort_unstable();
    let at = |share: f64| {
        let index = (times.len().saturating_sub(1) as f64 * share) as usize;
        times.get(index).copied().unwrap_or_default()
    };
    Ok(Point {
        connections,
        per_second: times.len() as f64 / TIME.as_secs_f64(),
        p50: at(0.5),
        p99: at(0.99),
    })
}

async fn connect(address: &str) -> Outcome<WebSocketStream<TcpStream>> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    Ok(client_async(format!("ws://{address}/"), stream).await?.0)
}

/// Sends one message after the other until the time is up; returns how long each took.
async fn ask(mut websocket: WebSocketStream<TcpStream>, end: Instant) -> Outcome<Vec<Duration>> {
    let text = text(SIZE);
    let message = Utf8Bytes::from(format!(
        r#"{{"jsonrpc":"2.0","method":"m","params":{{"t":"{text}"}}}}"#
    ));
    let mut times = Vec::new();
    loop {
        let start = Instant::now();
        if start >= end {
            return Ok(times);
        }
        websocket.send(Message::Text(message.clone())).await?;
        loop {
            match websocket.next().await {
                Some(Ok(Message::Text(echo))) if echo.len() == message.len() => break,
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                other => return Err(format!("{other:?}").into()),
            }
        }
        times.push(start.elapsed());
    }
}
