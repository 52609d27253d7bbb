//! Small calls through a pool of two bridges, and through two bare Python loops by two threads.

use std::path::Path;
use std::thread;
use std::time::Instant;

use breakbulk::net::process::Program;
use breakbulk::tywrap::python::{INTERPRETER, command};
use breakbulk::tywrap::{Pool, PoolSettings, Settings};
use serde_json::json;

use crate::plain::Plain;
use crate::{Outcome, memory};

const CALLS: usize = 10_000;

/// So many calls are on their way at once: two work, the others wait for a bridge.
const CALLERS: usize = 4;

const ROUNDS: usize = 5;

const LEAST: f64 = 0.8;

pub(crate) async fn measure() -> Outcome {
    let (words, environment) = command(Path::new(INTERPRETER));
    let program = environment
        .into_iter()
        .fold(Program::new(words), |program, (name, value)| {
            program.env(name, value)
        });
    let pool = Pool::new(&program, &Settings::default(), PoolSettings::default());
    pool.warm().await?;
    calls(&pool, 1000).await?;
    let early = everybody()?;
    let mut pooled = f64::MAX;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        calls(&pool, CALLS).await?;
        pooled = pooled.min(start.elapsed().as_secs_f64());
    }
    let late = everybody()?;
    let starts = pool.starts();
    pool.stop().await;

    let mut bare = [Plain::start()?, Plain::start()?];
    let mut plain = f64::MAX;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        let outcome = thread::scope(|scope| {
            let workers = bare.each_mut().map(|bare| {
                scope.spawn(|| {
                    (0..CALLS / 2).try_for_each(|id| ask(bare, id).map_err(|it| it.to_string()))
                })
            });
            workers.into_iter().try_for_each(|worker| {
                worker
                    .join()
                    .unwrap_or_else(|_| Err("a thread failed".to_owned()))
            })
        });
        outcome?;
        plain = plain.min(start.elapsed().as_secs_f64());
    }
    let part = plain / pooled;
    let mark = if part >= LEAST { "ok" } else { "UNDER" };
    let rate = |seconds: f64| CALLS as f64 / seconds / 1e3;
    let text = format!(
        "{CALLS} small calls, best of {ROUNDS}\n\
         a pool of 2 {:.1} thousand/s, two bare Python loops {:.1} thousand/s: {part:.2} of it {mark} (at least {LEAST})\n\
         memory of the host and its bridges after 1,000 calls and after {}: {early} KiB, {late} KiB; bridges started: {starts}\n",
        rate(pooled),
        rate(plain),
        1000 + CALLS * ROUNDS,
    );
    let value = json!({
        "calls": CALLS, "seconds": pooled, "plainSeconds": plain, "part": part,
        "memoryEarly": early, "memoryLate": late,
    });
    Ok((text, value))
}

async fn calls(pool: &Pool, count: usize) -> Result<(), Box<dyn std::error::Error>> {
    let callers: Vec<_> = (0..CALLERS)
        .map(|caller| {
            let pool = pool.clone();
            tokio::spawn(async move {
                for id in (caller..count).step_by(CALLERS) {
                    let sum = pool
                        .call("operator", "add", format!("[{id},1]"), None)
                        .await;
                    let sum = sum.map_err(|error| error.to_string())?;
                    if sum.json() != (id + 1).to_string() {
                        return Err(format!("{id} + 1 is {}", sum.json()));
                    }
                }
                Ok(())
            })
        })
        .collect();
    for caller in callers {
        caller.await??;
    }
    Ok(())
}

fn ask(bare: &mut Plain, id: usize) -> Result<(), Box<dyn std::error::Error>> {
    let line = format!(
        "{{\"method\":\"call\",\"params\":{{\"module\":\"operator\",\"functionName\":\"add\",\"args\":[{id},1]}},\"id\":{id},\"protocol\":\"tywrap/1\"}}\n"
    );
    let answer = bare.exchange(line.as_bytes())?;
    let expected = format!("\"result\": {}}}\n", id + 1);
    if !answer.ends_with(expected.as_bytes()) {
        return Err(format!("{id} + 1 is {}", String::from_utf8_lossy(answer)).into());
    }
    Ok(())
}

/// Resident KiB of this process and all that it started.
fn everybody() -> Result<u64, Box<dyn std::error::Error>> {
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
