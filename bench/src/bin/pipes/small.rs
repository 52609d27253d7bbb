//! Measures small calls through a pool of two bridges, and through two plain Python loops.

use std::path::Path;
use std::thread;
use std::time::Instant;

use breakbulk::tywrap::python::{self, INTERPRETER};
use breakbulk::tywrap::{Config, Lease, Pool, PoolConfig};
use futures_util::{StreamExt, stream};
use serde_json::json;

use crate::plain::Plain;
use crate::{Outcome, memory};

const CALLS: usize = 10_000;

const ROUNDS: usize = 10;

/// The smallest acceptable part of the bare rate: with calls ahead of each other, and one by one.
const LEAST: [f64; 2] = [0.9, 0.6];

/// How many calls of one lease are in progress at once, in the measurement with concurrent calls.
const AHEAD: usize = 32;

pub(crate) async fn measure() -> Outcome {
    let program = python::program(Path::new(INTERPRETER));
    let pool = Pool::new(&program, &Config::default(), PoolConfig::default());
    pool.warm().await?;
    let mut bare = [Plain::start()?, Plain::start()?];
    pooled(&pool, 1000, 1).await?;
    without_bridge(&mut bare, 1000, 1)?;
    let early = resident_with_children()?;
    let mut text =
        format!("{CALLS} small calls, best of {ROUNDS} rounds in turns (the worst, the median)\n");
    let mut values = Vec::new();
    let ways = [("32 ahead", AHEAD), ("one by one", 1)];
    for ((how, ahead), least) in ways.into_iter().zip(LEAST) {
        let (mut ours, mut theirs, mut parts) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let start = Instant::now();
            pooled(&pool, CALLS, ahead).await?;
            let pooled = start.elapsed().as_secs_f64();
            let start = Instant::now();
            without_bridge(&mut bare, CALLS, ahead)?;
            let plain = start.elapsed().as_secs_f64();
            ours.push(pooled);
            theirs.push(plain);
            parts.push(plain / pooled);
        }
        for figures in [&mut ours, &mut theirs, &mut parts] {
            figures.sort_by(f64::total_cmp);
        }
        let part = theirs[0] / ours[0];
        let mark = if part >= least { "ok" } else { "UNDER" };
        let rate = |seconds: f64| CALLS as f64 / seconds / 1e3;
        let rates = |seconds: &[f64]| {
            let (best, worst) = (rate(seconds[0]), rate(seconds[ROUNDS - 1]));
            let median = rate(seconds[ROUNDS / 2]);
            format!("{best:.1} ({worst:.1}, median {median:.1}) thousand/s")
        };
        text.push_str(&format!(
            "{how:<10}  two leases of a pool {}, two bare Python loops {}: {part:.2} of it {mark} (at least {least}), in single rounds {:.2} to {:.2}, median {:.2}\n",
            rates(&ours),
            rates(&theirs),
            parts[0],
            parts[ROUNDS - 1],
            parts[ROUNDS / 2],
        ));
        values.push(json!({ "how": how, "seconds": ours, "plainSeconds": theirs, "part": part, "parts": parts }));
    }
    let late = resident_with_children()?;
    let starts = pool.starts();
    pool.stop().await;
    text.push_str(&format!(
        "memory of the host and its bridges after 1,000 calls and after {}: {early} KiB, {late} KiB; bridges started: {starts}\n",
        1000 + 2 * CALLS * ROUNDS,
    ));
    let value = json!({ "calls": CALLS, "ways": values, "memoryEarly": early, "memoryLate": late });
    Ok((text, value))
}

/// Makes calls from two threads, each with a bare Python loop.
fn without_bridge(
    bare: &mut [Plain; 2],
    count: usize,
    ahead: usize,
) -> Result<(), Box<dyn std::error::Error>> {
    let outcome: Result<(), String> = thread::scope(|scope| {
        let workers = bare.each_mut().map(|bare| {
            scope.spawn(move || bare.ask_all(count / 2, ahead).map_err(|it| it.to_string()))
        });
        workers.into_iter().try_for_each(|worker| {
            worker
                .join()
                .unwrap_or_else(|_| Err("a thread failed".to_owned()))
        })
    });
    Ok(outcome?)
}

/// Makes calls from two tasks, each with a lease.
async fn pooled(pool: &Pool, count: usize, ahead: usize) -> Result<(), Box<dyn std::error::Error>> {
    let callers: Vec<_> = (0..2)
        .map(|caller| {
            let pool = pool.clone();
            tokio::spawn(async move {
                let lease = pool.lease().await.map_err(|error| error.to_string())?;
                let sums = (caller..count).step_by(2).map(|id| sum(&lease, id));
                let mut sums = stream::iter(sums).buffer_unordered(ahead);
                while let Some(outcome) = sums.next().await {
                    outcome?;
                }
                Ok::<_, String>(())
            })
        })
        .collect();
    for caller in callers {
        caller.await??;
    }
    Ok(())
}

async fn sum(lease: &Lease, id: usize) -> Result<(), String> {
    let sum = lease
        .call("operator", "add", format!("[{id},1]"), None)
        .await;
    let sum = sum.map_err(|error| error.to_string())?;
    match sum.json() == (id + 1).to_string() {
        true => Ok(()),
        false => Err(format!("{id} + 1 is {}", sum.json())),
    }
}

/// The resident memory of this process and its children, in KiB.
fn resident_with_children() -> Result<u64, Box<dyn std::error::Error>> {
    let mut sum = memory("self", "VmRSS")?;
    // Children belong to the thread that started them.
    for thread in std::fs::read_dir("/proc/self/task")? {
        let children = std::fs::read_to_string(thread?.path().join("children"))?;
        for child in children.split_whitespace() {
            sum += memory(child, "VmRSS")?;
        }
    }
    Ok(sum)
}
