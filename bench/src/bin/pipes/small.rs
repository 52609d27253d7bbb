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

const ROUNDS: usize = 5;

const LEAST: f64 = 0.8;

/// How many calls of one lease are in progress at once, in the measurement with concurrent calls.
const AHEAD: usize = 32;

pub(crate) async fn measure() -> Outcome {
    let program = python::program(Path::new(INTERPRETER));
    let pool = Pool::new(&program, &Config::default(), PoolConfig::default());
    pool.warm().await?;
    pooled(&pool, 1000, 1).await?;
    let early = resident_with_children()?;
    let mut ours = [f64::MAX; 2];
    for (ours, ahead) in ours.iter_mut().zip([AHEAD, 1]) {
        for _ in 0..ROUNDS {
            let start = Instant::now();
            pooled(&pool, CALLS, ahead).await?;
            *ours = ours.min(start.elapsed().as_secs_f64());
        }
    }
    let late = resident_with_children()?;
    let starts = pool.starts();
    pool.stop().await;

    let mut bare = [Plain::start()?, Plain::start()?];
    let mut theirs = [f64::MAX; 2];
    for (theirs, ahead) in theirs.iter_mut().zip([AHEAD, 1]) {
        for _ in 0..ROUNDS {
            let start = Instant::now();
            let outcome = thread::scope(|scope| {
                let workers = bare.each_mut().map(|bare| {
                    scope.spawn(move || bare.ask_all(CALLS / 2, ahead).map_err(|it| it.to_string()))
                });
                workers.into_iter().try_for_each(|worker| {
                    worker
                        .join()
                        .unwrap_or_else(|_| Err("a thread failed".to_owned()))
                })
            });
            outcome?;
            *theirs = theirs.min(start.elapsed().as_secs_f64());
        }
    }
    let rate = |seconds: f64| CALLS as f64 / seconds / 1e3;
    let mut text = format!("{CALLS} small calls, best of {ROUNDS}\n");
    let mut values = Vec::new();
    for (index, how) in ["32 ahead", "one by one"].into_iter().enumerate() {
        let (ours, theirs) = (ours[index], theirs[index]);
        let part = theirs / ours;
        let mark = if part >= LEAST { "ok" } else { "UNDER" };
        text.push_str(&format!(
            "{how:<10}  two leases of a pool {:.1} thousand/s, two bare Python loops {:.1} thousand/s: {part:.2} of it {mark} (at least {LEAST})\n",
            rate(ours),
            rate(theirs),
        ));
        values.push(json!({ "how": how, "seconds": ours, "plainSeconds": theirs, "part": part }));
    }
    text.push_str(&format!(
        "memory of the host and its bridges after 1,000 calls and after {}: {early} KiB, {late} KiB; bridges started: {starts}\n",
        1000 + 2 * CALLS * ROUNDS,
    ));
    let value = json!({ "calls": CALLS, "ways": values, "memoryEarly": early, "memoryLate": late });
    Ok((text, value))
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
