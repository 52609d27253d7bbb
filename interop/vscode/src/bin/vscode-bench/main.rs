//! Compares the speed of two of this project's endpoints with VSCode's own pair in node and with raw TCP,
//! all in one run. `--json` prints the figures for machines.

mod ours;
mod raw;

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use interop_vscode::node::script;
use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime};

/// Small calls per round, concurrent or sequential; `pair_bench.mjs` has the same number.
const CALLS: u32 = 1000;
const ROUNDS: usize = 50;

const LARGE: usize = 16_000_000;

/// Bytes of `$add(500, 1)` in ipc.net's frames: the request, and the acknowledgement with the reply.
const REQUEST: usize = 13 + 22;
const ANSWER: usize = 13 + 5 + 13 + 12;

/// A figure of this project, the figure it is compared with, and the least ratio of the two.
struct Line {
    key: &'static str,
    about: &'static str,
    ours: f64,
    other: f64,
    least: f64,
    unit: (&'static str, f64),
}

const CALLS_A_SECOND: (&str, f64) = ("thousand calls/s", 1e3);
const GIGABYTES: (&str, f64) = ("GB/s", 1e9);

fn main() -> Result<()> {
    let machine = std::env::args()
        .skip(1)
        .any(|argument| argument == "--json");
    let node = node()?;
    let lines = measure(&node)?;
    if machine {
        let values = lines.iter().map(|line| {
            let part = line.ours / line.other;
            let value =
                json!({"ours": line.ours, "other": line.other, "part": part, "least": line.least});
            (line.key.to_owned(), value)
        });
        let mut values: serde_json::Map<_, _> = values.collect();
        values.insert("node".to_owned(), node);
        println!("{}", Value::Object(values));
        return Ok(());
    }
    println!("VSCode RPC: two of ours, beside node's own pair and raw TCP, best of the rounds");
    for line in lines {
        let (unit, scale) = line.unit;
        let part = line.ours / line.other;
        let mark = if part >= line.least { "ok" } else { "UNDER" };
        println!(
            "{:<46} {:>9.2}, ours {:>9.2} {unit}: {part:.2} of it {mark} (at least {})",
            line.about,
            line.other / scale,
            line.ours / scale,
            line.least
        );
    }
    Ok(())
}

/// The figures of VSCode's own pair.
fn node() -> Result<Value> {
    let output = script("pair_bench.mjs")?
        .as_std_mut()
        .stderr(Stdio::inherit())
        .output()
        .context("node")?;
    if !output.status.success() {
        bail!("pair_bench.mjs ended with {}", output.status);
    }
    serde_json::from_slice(&output.stdout).context("pair_bench.mjs")
}

fn measure(node: &Value) -> Result<Vec<Line>> {
    let of_node = |key: &str| node[key].as_f64().with_context(|| format!("no {key}"));
    // In memory both ends share one thread in node, so they do here.
    let memory = one_thread()?.block_on(in_memory())?;
    // Over TCP each end has a process in node, and a thread here; the caller shares one of these threads.
    let tcp = two_threads()?.block_on(async { tokio::spawn(over_tcp()).await? })?;
    let calls = |best: Duration| f64::from(CALLS) / best.as_secs_f64();
    let bytes = |best: Duration| LARGE as f64 / best.as_secs_f64();
    Ok(vec![
        Line {
            key: "memoryPipelined",
            about: "in memory, pipelined: node",
            ours: calls(memory),
            other: of_node("memoryPipelined")?,
            least: 5.0,
            unit: CALLS_A_SECOND,
        },
        Line {
            key: "tcpPipelined",
            about: "over TCP, pipelined: node",
            ours: calls(tcp.pipelined),
            other: of_node("tcpPipelined")?,
            least: 3.0,
            unit: CALLS_A_SECOND,
        },
        Line {
            key: "tcpSequential",
            about: "over TCP, one after the other: raw ping-pong",
            ours: calls(tcp.sequential),
            other: calls(tcp.raw_sequential),
            least: 0.7,
            unit: CALLS_A_SECOND,
        },
        Line {
            key: "tcpBytes",
            about: "over TCP, 16 MB buffers: raw TCP",
            ours: bytes(tcp.large),
            other: bytes(tcp.raw_large),
            least: 0.6,
            unit: GIGABYTES,
        },
    ])
}

async fn in_memory() -> Result<Duration> {
    let pair = ours::in_memory()?;
    let mut best = Duration::MAX;
    for _ in 0..ROUNDS {
        best = best.min(pair.pipelined(CALLS).await?);
    }
    Ok(best)
}

/// The best rounds over TCP.
struct OverTcp {
    pipelined: Duration,
    sequential: Duration,
    raw_sequential: Duration,
    large: Duration,
    raw_large: Duration,
}

/// Alternates between RPC and raw TCP, so that both have the machine's better and worse moments.
async fn over_tcp() -> Result<OverTcp> {
    let pair = ours::over_tcp().await?;
    let mut raw = raw::Exchange::new(REQUEST, ANSWER).await?;
    let mut raw_large = raw::Exchange::new(LARGE, 1).await?;
    let large = Bytes::from(vec![0x5a; LARGE]);
    let mut best = OverTcp {
        pipelined: Duration::MAX,
        sequential: Duration::MAX,
        raw_sequential: Duration::MAX,
        large: Duration::MAX,
        raw_large: Duration::MAX,
    };
    for _ in 0..ROUNDS {
        best.pipelined = best.pipelined.min(pair.pipelined(CALLS).await?);
        best.sequential = best.sequential.min(pair.sequential(CALLS).await?);
        best.raw_sequential = best.raw_sequential.min(raw.round(CALLS).await?);
        best.large = best.large.min(pair.large(&large).await?);
        best.raw_large = best.raw_large.min(raw_large.round(1).await?);
    }
    Ok(best)
}

fn one_thread() -> std::io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}

fn two_threads() -> std::io::Result<Runtime> {
    Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
}
