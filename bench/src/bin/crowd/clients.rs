//! The clients: a process that holds many connections. Each client does its handshake, subscribes to a
//! channel and then only reads; a few of them send requests when the measurement asks for it.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use breakbulk::link::Frame;
use breakbulk::message::ahp::{Chunking, PROTOCOL_VERSIONS, initialize};
use breakbulk::net::raise_open_files;
use breakbulk::net::ws::{ConnectOptions, WsSink, WsSource, connect};
use breakbulk::net::{Incoming, Sink, Source, Transport};
use serde_json::json;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use super::Failure;
use super::host::CHANNEL;

/// How many connections are opened at a time.
const OPENING: usize = 64;

/// How often an active client sends a request.
const PACE: Duration = Duration::from_millis(100);

/// The bytes of a request's parameter.
const REQUEST: usize = 1024;

/// The time limit of every step.
const PATIENCE: Duration = Duration::from_secs(120);

/// What one process of clients has to do.
pub(crate) struct Crowd {
    pub(crate) url: String,
    pub(crate) count: usize,
    pub(crate) active: usize,
    pub(crate) seconds: u64,
}

/// Connects all, prints `ready`, waits for a line, sends requests, prints the latencies in microseconds
/// as JSON, and holds the connections until it is killed.
pub(crate) fn run(crowd: Crowd) -> Result<(), Failure> {
    raise_open_files();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(hold(crowd))
}

async fn hold(crowd: Crowd) -> Result<(), Failure> {
    let opening = Arc::new(Semaphore::new(OPENING));
    let mut connecting = JoinSet::new();
    for number in 0..crowd.count {
        let permit = opening.clone().acquire_owned().await?;
        let url = crowd.url.clone();
        connecting.spawn(async move {
            let client = timeout(PATIENCE, client(&url, number)).await;
            drop(permit);
            client.map_err(|_| "a client was not accepted in time".to_owned())?
        });
    }
    let (mut idle, mut active) = (JoinSet::new(), Vec::new());
    while let Some(client) = connecting.join_next().await {
        let client = client??;
        match active.len() < crowd.active {
            true => active.push(client),
            false => drop(idle.spawn(read(client))),
        }
    }
    say("ready")?;
    tokio::task::spawn_blocking(|| std::io::stdin().read_line(&mut String::new())).await??;
    let mut asking = JoinSet::new();
    let begin = Instant::now();
    let count = active.len().max(1);
    for (number, client) in active.into_iter().enumerate() {
        // Spread over the interval, so that not all ask at the same moment.
        let first = begin + PACE.mul_f64(number as f64 / count as f64);
        asking.spawn(ask(client, first, crowd.seconds));
    }
    let (mut times, mut held) = (Vec::new(), Vec::new());
    while let Some(asked) = asking.join_next().await {
        let (client, taken) = asked??;
        times.extend(taken);
        held.push(client);
    }
    say(&json!(times).to_string())?;
    if let Some(ended) = idle.join_next().await {
        return Err(format!("a connection ended: {ended:?}").into());
    }
    std::future::pending().await
}

fn say(line: &str) -> std::io::Result<()> {
    println!("{line}");
    std::io::stdout().flush()
}

type Client = (WsSource, WsSink);

async fn client(url: &str, number: usize) -> Result<Client, String> {
    let failed = |error: &dyn std::fmt::Display| format!("client {number}: {error}");
    let socket = connect(url, &ConnectOptions::default()).await;
    let (mut source, mut sink) = socket.map_err(|error| failed(&error))?.split();
    let id = format!("crowd-{}-{number}", std::process::id());
    let chunking = Chunking::default();
    let hello = initialize(1, &id, &[CHANNEL], &PROTOCOL_VERSIONS, Some(&chunking));
    let sent = sink.send(Frame::Text(hello.into())).await;
    sent.map_err(|error| failed(&error))?;
    next(&mut source).await?;
    Ok((source, sink))
}

async fn next(source: &mut WsSource) -> Result<Frame, String> {
    loop {
        match source.next().await {
            Incoming::Frame(frame) => return Ok(frame),
            Incoming::Alive => {}
            other => return Err(format!("{other:?}")),
        }
    }
}

/// Reads until the connection ends; reading also answers pings.
async fn read((mut source, _sink): Client) -> Result<(), String> {
    loop {
        next(&mut source).await?;
    }
}

/// Sends requests at a steady pace. A time is counted from the moment at which the request was due, so that
/// a slow answer does not hide the delay of the next request.
async fn ask(
    (mut source, mut sink): Client,
    mut due: Instant,
    seconds: u64,
) -> Result<(Client, Vec<u64>), String> {
    let end = due + Duration::from_secs(seconds);
    let text = "x".repeat(REQUEST);
    let mut times = Vec::new();
    let mut id = 1;
    while due < end {
        sleep_until(due).await;
        id += 1;
        let request =
            json!({"jsonrpc": "2.0", "id": id, "method": "echo", "params": {"text": text}});
        let sent = sink.send(Frame::Text(request.to_string().into())).await;
        sent.map_err(|error| error.to_string())?;
        let answer = timeout(PATIENCE, next(&mut source)).await;
        let answer = answer.map_err(|_| "a request was not answered in time".to_owned())??;
        if answer.bytes().len() < REQUEST {
            return Err(String::from_utf8_lossy(answer.bytes()).into_owned());
        }
        times.push(u64::try_from(due.elapsed().as_micros()).unwrap_or(u64::MAX));
        due += PACE;
    }
    Ok(((source, sink), times))
}
