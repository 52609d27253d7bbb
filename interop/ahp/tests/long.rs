//! The long test at full size over real sockets: a client that reconnects after every cut of the path and
//! every kill of the host has applied exactly the host's actions, each once and in order.
//!
//! It carries half a gigabyte and is run by `cargo xtask long ahp`. `BREAKBULK_LONG_SEED=7` runs that seed.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod follow;

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use breakbulk_testkit::bad_path::{BadPath, Cut, How, Way, Weather};
use follow::{Applied, Follower};
use interop_ahp::program::HostProgram;
use interop_ahp::random::Random;
use interop_ahp::text::{digest, text};
use tokio::sync::watch;

/// How often the path is cut.
const CUTS: u64 = 50;
/// How often the host is killed.
const KILLS: u64 = 2;
/// The least number of actions.
const ACTIONS: u64 = 120;
/// One of this many actions is very large.
const LARGE_EVERY: u64 = 25;
const LARGE: u64 = 24_000_000;
/// The largest size of the other actions.
const USUAL: u64 = 5_000_000;
/// How far the client may be behind, in bytes: all that it missed must fit one answer of 32 MiB.
const BEHIND: u64 = 30_000_000;
/// The time limit of a run.
const PATIENCE: Duration = Duration::from_secs(3600);

struct Run {
    random: Random,
    host: HostProgram,
    arguments: Vec<String>,
    follower: Follower,
    /// Whether the host runs.
    up: watch::Sender<bool>,
    /// Sizes of all actions that the host acknowledged, by number; the first is at index 0.
    sizes: Vec<u64>,
    /// The seed of the actions' texts.
    seed: u64,
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "cargo xtask long ahp"]
async fn after_cuts_and_kills_the_client_has_what_the_host_has() {
    let seed = match std::env::var("BREAKBULK_LONG_SEED") {
        Ok(seed) => seed.parse().expect("BREAKBULK_LONG_SEED is no number"),
        Err(_) => SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_millis() as u64),
    };
    println!("BREAKBULK_LONG_SEED={seed}");
    tokio::time::timeout(PATIENCE, run(seed)).await.unwrap();
}

async fn run(seed: u64) {
    let start = Instant::now();
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log.redb");
    let log = log.to_str().unwrap().to_owned();
    let mut arguments = vec!["--log".to_owned(), log];
    let host = start_host(&arguments).await;
    // After a kill the host must listen on the same port, since the path leads there.
    let port = host.address.rsplit_once(':').unwrap().1;
    arguments.extend(["--port".to_owned(), port.to_owned()]);

    let way = Way {
        frame_cap: Some(1_000_000),
        message_cap: Some(1_000_000),
        ..Way::default()
    };
    let path = BadPath::start(&host.address, Weather::both_ways(way))
        .await
        .unwrap();
    let cutting = tokio::spawn(cut(path.control(), Random::new(seed ^ 1)));
    let (up, is_up) = watch::channel(true);
    let follower = Follower::start(format!("ws://{}", path.address()), is_up);
    let mut run = Run {
        random: Random::new(seed),
        host,
        arguments,
        follower,
        up,
        sizes: Vec::new(),
        seed,
    };
    let mut kills = 0;
    loop {
        let cuts = path.counts().cuts;
        if run.sizes.len() as u64 >= ACTIONS && cuts >= CUTS && kills == KILLS {
            break;
        }
        // One kill after each third of the cuts but the last.
        if kills < KILLS && cuts >= (kills + 1) * CUTS / (KILLS + 1) {
            run.kill_while_publishing().await;
            kills += 1;
        } else {
            run.publish().await;
        }
    }
    cutting.await.unwrap();
    let has = run.log().await;
    run.follower.until(has.len()).await;
    let applied = run.follower.applied();
    assert_eq!(applied, has, "BREAKBULK_LONG_SEED={seed}");
    // The applied actions are also the ones that were to be published: the seeds reproduce their texts.
    for (index, size) in run.sizes.iter().enumerate() {
        let text = text(seed.wrapping_add(index as u64), *size as usize);
        assert_eq!(applied[index], (index as i64 + 1, digest([&*text])));
    }
    assert_eq!(applied.len(), run.sizes.len());
    let counts = path.counts();
    assert_eq!(counts.cuts, CUTS);
    assert_eq!(
        (counts.from_client.blocked, counts.from_target.blocked),
        (0, 0)
    );
    assert!(counts.from_target.largest_frame <= 1_000_000);
    let bytes: u64 = run.sizes.iter().sum();
    println!(
        "{} actions, {bytes} bytes, {} cuts, {kills} kills, {} connections, {} bytes over the path, {:.0} s: equal",
        has.len(),
        counts.cuts,
        run.follower.connections(),
        counts.from_target.bytes,
        start.elapsed().as_secs_f64()
    );
}

/// Cuts the path again and again, each time after some bytes or frames.
async fn cut(path: breakbulk_testkit::bad_path::Control, mut random: Random) {
    for number in 1..=CUTS {
        let mut cut = match random.below(3) {
            0 => Cut::frames(random.magnitude(1, 60)),
            _ => Cut::bytes(random.magnitude(1_000, 50_000_000)),
        };
        if random.below(2) == 0 {
            cut.how = How::End;
        }
        path.cut_after(cut);
        path.until(|counts| counts.cuts == number).await;
    }
}

async fn start_host(arguments: &[String]) -> HostProgram {
    let path = env!("CARGO_BIN_EXE_ahp-host");
    HostProgram::start(path, arguments).await.unwrap()
}

impl Run {
    fn next_size(&mut self, number: u64) -> u64 {
        match number % LARGE_EVERY {
            7 => LARGE,
            _ => self.random.magnitude(1, USUAL),
        }
    }

    /// Publishes the next action, once the client is near enough that all it misses can be replayed.
    async fn publish(&mut self) {
        let number = self.sizes.len() as u64;
        let size = self.next_size(number);
        self.room_for(size).await;
        let command = self.command(number, size);
        self.host.tell(&command).await.unwrap();
        let said = self.host.hear().await.unwrap();
        self.said(&said, size);
    }

    fn command(&self, number: u64, size: u64) -> String {
        format!("publish 1 {size} {}", self.seed.wrapping_add(number))
    }

    fn said(&mut self, said: &str, size: u64) {
        let number = self.sizes.len() + 1;
        let expected = format!("published {number} {number} ");
        assert!(said.starts_with(&expected), "{said}");
        self.sizes.push(size);
    }

    async fn room_for(&self, size: u64) {
        let mut behind = size;
        // The client may miss all of these by the time the next one is published.
        let near = self.sizes.iter().rev().take_while(|size| {
            behind += **size;
            behind <= BEHIND
        });
        let far = self.sizes.len() - near.count();
        self.follower.until(far).await;
    }

    /// Kills the host with `kill -9` while actions wait to be written to the log, and starts it again.
    async fn kill_while_publishing(&mut self) {
        let number = self.sizes.len() as u64;
        let sizes: Vec<u64> = (0..6)
            .map(|_| self.random.magnitude(1_000, USUAL))
            .collect();
        self.room_for(sizes.iter().sum()).await;
        for (more, size) in sizes.iter().enumerate() {
            let command = self.command(number + more as u64, *size);
            self.host.tell(&command).await.unwrap();
        }
        for size in &sizes[..self.random.below(6) as usize] {
            let said = self.host.hear().await.unwrap();
            self.said(&said, *size);
        }
        let told = self.sizes.len();
        let applied = self.follower.applied().len();
        self.up.send_replace(false);
        self.host.kill().await.unwrap();
        self.host = start_host(&self.arguments).await;
        // The client must not have seen any lost action, and every acknowledged action must still be there.
        let seen = self.follower.applied();
        let has = self.log().await;
        println!(
            "killed: {told} actions told, {} in the log, {applied} and then {} seen by the client",
            has.len(),
            seen.len()
        );
        assert!(has.len() >= told, "an action that was published is gone");
        assert_eq!(
            has.get(..seen.len()),
            Some(&seen[..]),
            "an action that the client saw is gone"
        );
        self.up.send_replace(true);
        let known = self.sizes.len();
        self.sizes
            .extend(&sizes[known - number as usize..has.len() - number as usize]);
    }

    /// Number and digest of all actions in the host's log.
    async fn log(&mut self) -> Vec<Applied> {
        self.host.tell("log").await.unwrap();
        let mut has = Vec::new();
        loop {
            let line = self.host.hear().await.unwrap();
            let words: Vec<_> = line.split_whitespace().collect();
            match words[..] {
                ["has", seq, digest] => has.push((seq.parse().unwrap(), digest.to_owned())),
                ["end"] => return has,
                _ => panic!("{line}"),
            }
        }
    }
}
