//! A host that is controlled by commands on its standard input, for tests that kill it.
//!
//! Each command is one line and gets one answer:
//! `publish COUNT SIZE SEED` – `published FIRST LAST SHA256`, once the actions are in the log and sent;
//! `snapshot SIZE SEED` – `snapshot SHA256`, the session's title from now on;
//! `last` – `last NUMBER` of the last action; `log` – `has NUMBER SHA256` for each action in the log,
//! then `end`. A command that fails is answered with `error: …`. The end of the input ends the host.
//!
//! `BREAKBULK_FLEET_LOGS=DIR` makes the host write its log output to a file in that folder.

use std::sync::Arc;

use anyhow::{Context, Result, bail};
use breakbulk::ahp::log::{self, Limits, MemoryLog, Replay, ReplayLog, ReplayReader};
use breakbulk::ahp::{Config, Host, HostConfig, PublishError};
use breakbulk::message::ahp::{Action, Chunking};
use breakbulk::net::ws::{ListenOptions, Listener};
use clap::Parser;
use interop_ahp::app::{App, SESSION};
use interop_ahp::text::{self, Digest};
use interop_ahp::whole::Whole;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::task::JoinSet;

/// A host of the agent host protocol that does what its standard input says.
#[derive(Parser)]
struct Options {
    /// The port on 127.0.0.1; 0 takes a free one.
    #[arg(long, default_value_t = 0)]
    port: u16,
    /// The log's file, or nats://HOST:PORT/STREAM for one that several hosts share; in memory if absent.
    #[arg(long)]
    log: Option<String>,
    /// The bytes that the log keeps.
    #[arg(long, default_value_t = 4 << 30)]
    log_bytes: u64,
    /// The largest frame that it takes.
    #[arg(long, default_value_t = 900_000)]
    frame: usize,
    /// Know nothing of segments.
    #[arg(long)]
    whole: bool,
}

#[tokio::main]
async fn main() -> Result<()> {
    let options = Options::parse();
    log_to_file()?;
    let limits = Limits::default().with(|limits| limits.bytes = options.log_bytes);
    let log: Box<dyn ReplayLog> = match &options.log {
        Some(place) => log::open(place, limits).await?,
        None => Box::new(MemoryLog::new(limits)),
    };
    let (reader, last) = (log.reader(), log.last());
    let title = match last {
        0 => String::new(),
        last => at(&*reader, last)?,
    };
    let config = HostConfig::default().with(|config| {
        config.connection = Config::default().with(|config| {
            config.chunking = Chunking {
                max_frame_bytes: options.frame as u64,
                ..Chunking::default()
            }
        })
    });
    let host = Host::boxed(App::new(&title), log, config);
    let listen = ListenOptions {
        frame_limit: options.frame,
        ..ListenOptions::default()
    };
    let listener = Listener::bind(("127.0.0.1", options.port), listen).await?;
    println!("listening on ws://{}", listener.local_addr());
    tokio::select! {
        served = serve(&host, listener, options.whole) => served,
        obeyed = obey(&host, &reader) => obeyed,
    }
}

fn log_to_file() -> Result<()> {
    let Some(logs) = std::env::var_os("BREAKBULK_FLEET_LOGS") else {
        return Ok(());
    };
    let name = format!("host-{}.log", std::process::id());
    let file = std::fs::File::create(std::path::Path::new(&logs).join(name))?;
    tracing_subscriber::fmt()
        .with_env_filter("warn,breakbulk_net=debug,breakbulk_ahp=debug")
        .with_ansi(false)
        .with_writer(std::sync::Mutex::new(file))
        .init();
    Ok(())
}

async fn serve(host: &Host<App>, mut listener: Listener, whole: bool) -> Result<()> {
    let mut clients = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let websocket = accepted?.websocket;
                match whole {
                    true => clients.spawn(host.serve(Whole(websocket))),
                    false => clients.spawn(host.serve(websocket)),
                };
            }
            Some(Ok(closed)) = clients.join_next() => eprintln!("host: a client has gone, {closed}"),
        }
    }
}

async fn obey(host: &Host<App>, reader: &Arc<dyn ReplayReader>) -> Result<()> {
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        if let Err(error) = execute(host, reader, &line).await {
            println!("error: {error:#}");
        }
    }
    Ok(())
}

async fn execute(host: &Host<App>, reader: &Arc<dyn ReplayReader>, line: &str) -> Result<()> {
    let (command, numbers) = line.split_once(' ').unwrap_or((line, ""));
    let numbers = numbers.split_whitespace().map(str::parse);
    let numbers: Vec<u64> = numbers.collect::<Result<_, _>>().context("not a number")?;
    match (command, &numbers[..]) {
        ("publish", &[count, size, seed]) => publish(host, count, size as usize, seed).await,
        ("snapshot", &[size, seed]) => {
            let title = text::text(seed, size as usize);
            host.app().set_title(&title);
            println!("snapshot {}", text::digest([&*title]));
            Ok(())
        }
        ("last", []) => {
            println!("last {}", host.last_visible());
            Ok(())
        }
        ("log", []) => {
            let (reader, last) = (reader.clone(), host.last_visible());
            tokio::task::spawn_blocking(move || list(&*reader, last)).await?
        }
        _ => bail!("no such command: {line}"),
    }
}

async fn publish(host: &Host<App>, count: u64, size: usize, seed: u64) -> Result<()> {
    let (mut first, mut last) = (None, host.last_visible());
    let mut digest = Digest::default();
    for number in 0..count {
        let title = text::text(seed.wrapping_add(number), size);
        let action = text::action(&title)?;
        last = loop {
            match host.publish(SESSION, &action, None) {
                Ok(seq) => break seq,
                // The log lags behind: wait until it has the actions that were published before.
                Err(PublishError::Behind { .. }) => host.visible(last).await?,
                Err(error) => return Err(error.into()),
            }
        };
        first.get_or_insert(last);
        digest.add(&title);
    }
    host.visible(last).await?;
    let (first, digest) = (first.unwrap_or(last), digest.hex());
    println!("published {first} {last} {digest}");
    Ok(())
}

/// Prints every action in the log.
fn list(reader: &dyn ReplayReader, last: i64) -> Result<()> {
    let from = match reader.since(0, 0, &|_| true, 0)? {
        Replay::Gone { from, .. } => from,
        _ => 0,
    };
    for seq in from + 1..=last {
        let title = at(reader, seq)?;
        println!("has {seq} {}", text::digest([&*title]));
    }
    println!("end");
    Ok(())
}

/// The title of an action in the log.
fn at(reader: &dyn ReplayReader, seq: i64) -> Result<String> {
    let Replay::Actions(actions) = reader.since(seq - 1, seq, &|_| true, usize::MAX)? else {
        bail!("action {seq} is not in the log");
    };
    let entry = actions.first().context("an empty replay")?;
    let params = serde_json::from_slice(&entry.params)?;
    let title = Action::read(params)
        .ok()
        .and_then(|it| text::title(it.action.get()));
    title.with_context(|| format!("action {seq} has no title"))
}
