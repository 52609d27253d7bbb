//! The soak: gateways as an operator runs them, 200 clients, and everything that happens to them in months:
//! lines that are cut, reloads, restarts. Every request ends with its right answer, or with an error that
//! something explains; nothing is worked on twice; memory and descriptors do not grow; no process is left.
//!
//! `BREAKBULK_SOAK_SECONDS` says for how long (60; `cargo xtask long soak`: 1800), `BREAKBULK_SEED` which
//! sizes and which trouble. Samples and a picture of them are in `target/tmp/soak`, and so are the logs.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may")]

mod client;
mod http;
mod ledger;
mod member;
mod picture;
mod samples;
mod setup;
mod trouble;
mod work;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use breakbulk::link::Random;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::sleep;

use client::Client;
use ledger::Ledger;
use member::{Member, PATIENCE, Reading, processes_with};
use samples::{Sample, growth};
use setup::Setup;

const CLIENTS: usize = 200;

/// What the resident memory of a member may grow by after the warm-up, the first quarter of the time.
const GROWTH: f64 = 64e6;

/// The same for its descriptors beyond those that its sessions and their commands need.
const DESCRIPTORS: f64 = 32.0;

/// A session has a descriptor at each end; a command has three pipes and a handle in place of one.
const OF_SESSION: u64 = 2;
const OF_COMMAND: u64 = 3;

/// What a member may have more of than at its start when all clients have gone: memory that the system's
/// allocator keeps, and the pipes of the process that ends commands.
const MEMORY_LEFT: u64 = 160 << 20;
const DESCRIPTORS_LEFT: u64 = 4;

#[test]
fn nothing_is_lost_doubled_or_kept() {
    let number = |name: &str| {
        std::env::var(name)
            .ok()
            .map(|it| it.parse::<u64>().unwrap())
    };
    let seconds = number("BREAKBULK_SOAK_SECONDS").unwrap_or(60);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let seed = number("BREAKBULK_SEED").unwrap_or(now.as_secs());
    println!("BREAKBULK_SEED={seed} BREAKBULK_SOAK_SECONDS={seconds}");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(soak(Duration::from_secs(seconds), seed));
}

async fn soak(lasts: Duration, seed: u64) {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("soak");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    let setup = Arc::new(Setup::new(&folder).await);
    let ledger = Arc::new(Ledger::default());
    let (members, diary) = (setup.members.clone(), setup.diary.clone());
    let first = read(&members).await;

    let mut clients = JoinSet::new();
    for (number, (way, door)) in setup.clients(CLIENTS).into_iter().enumerate() {
        let client = Client {
            ledger: ledger.clone(),
            way,
            door,
            random: Random::from_number(seed ^ (number as u64 + 1) << 32),
            pause: Duration::from_secs(2),
        };
        clients.spawn(client.run());
    }
    let start = Instant::now();
    let trouble = tokio::spawn(trouble::run(setup.clone(), ledger.clone(), lasts, seed));
    let mut samples = Vec::new();
    let every = (lasts / 200).clamp(Duration::from_millis(500), Duration::from_secs(10));
    let mut last = (Instant::now(), first.clone());
    while !trouble.is_finished() {
        sleep(every).await;
        let now = read(&members).await;
        let seconds = last.0.elapsed().as_secs_f64();
        for ((member, now), before) in members.iter().zip(&now).zip(&last.1) {
            let (Some(reading), before) = (*now, before.unwrap_or_default()) else {
                continue;
            };
            // A member that was started again, or whose route was changed, counts from zero.
            let messages = reading.messages.checked_sub(before.messages);
            samples.push(Sample {
                seconds: start.elapsed().as_secs_f64(),
                member: member.name,
                reading,
                messages_per_second: messages.map(|messages| messages as f64 / seconds),
            });
        }
        last = (Instant::now(), now);
    }
    let done = trouble.await.unwrap();
    ledger.ends.store(true, Relaxed);
    while let Some(ended) = clients.join_next().await {
        ended.unwrap();
    }
    std::fs::write(folder.join("samples.csv"), samples::csv(&samples)).unwrap();
    let restarts = ledger.restarts(start);
    let seconds = lasts.as_secs();
    let title = format!(
        "{CLIENTS} clients, {seconds} s, {} cuts, {} reloads, {} restarts",
        done.cuts,
        done.reloads(),
        done.restarts
    );
    let picture = picture::svg(&samples, &restarts, &title);
    std::fs::write(folder.join("soak.svg"), picture).unwrap();
    println!("{done:?}");
    ledger.check(&diary);

    let left = settled(&members).await;
    for ((member, first), left) in members.iter().zip(&first).zip(&left) {
        println!("{}: at first {first:?}, at last {left:?}", member.name);
    }
    let resumes: u64 = left.iter().flatten().map(|left| left.resumes).sum();
    assert!(resumes > 0, "no tunnel lost its line");
    judge(&members, &samples, lasts.as_secs_f64() / 4.0);
    for ((member, first), left) in members.iter().zip(first).zip(left) {
        let (first, left, name) = (first.unwrap(), left.unwrap(), member.name);
        assert!(
            left.resident <= first.resident + MEMORY_LEFT,
            "{name}: memory is kept"
        );
        assert!(
            left.descriptors <= first.descriptors + DESCRIPTORS_LEFT,
            "{name}: descriptors are kept"
        );
    }
    let stopped = members.clone();
    spawn_blocking(move || stopped.iter().for_each(|member| member.stop()))
        .await
        .unwrap();
    let strays = processes_with(&diary.display().to_string());
    assert!(strays.is_empty(), "processes are left: {strays:#?}");
    done.check();
}

/// What each member takes now.
async fn read(members: &[Arc<Member>]) -> Vec<Option<Reading>> {
    let members = members.to_vec();
    let read = move || members.iter().map(|member| member.read()).collect();
    spawn_blocking(read).await.unwrap()
}

/// What each member takes once it has no sessions.
async fn settled(members: &[Arc<Member>]) -> Vec<Option<Reading>> {
    let since = Instant::now();
    loop {
        let now = read(members).await;
        let is_over =
            |it: &Option<Reading>| it.is_some_and(|it| it.sessions == 0 && it.children <= 1);
        if now.iter().all(is_over) {
            return now;
        }
        assert!(since.elapsed() < PATIENCE, "sessions do not end: {now:?}");
        sleep(Duration::from_millis(200)).await;
    }
}

/// Nothing grows in the members that were never started again.
fn judge(members: &[Arc<Member>], samples: &[Sample], warm: f64) {
    for member in members
        .iter()
        .filter(|member| !setup::is_restarted(member.name))
    {
        let of_member = samples
            .iter()
            .filter(|it| it.member == member.name && it.seconds >= warm);
        let points = |value: &dyn Fn(&Reading) -> u64| -> Vec<(f64, f64)> {
            let points = of_member
                .clone()
                .map(|it| (it.seconds, value(&it.reading) as f64));
            points.collect()
        };
        let memory = growth(&points(&|it| it.resident));
        let needed = |it: &Reading| OF_SESSION * it.sessions + OF_COMMAND * it.children;
        let descriptors = growth(&points(&|it| it.descriptors.saturating_sub(needed(it))));
        let name = member.name;
        println!(
            "{name}: memory grew by {:.1} MB, descriptors by {descriptors:.1}",
            memory / 1e6
        );
        assert!(memory < GROWTH, "{name}: memory grows");
        assert!(descriptors < DESCRIPTORS, "{name}: descriptors grow");
    }
}
