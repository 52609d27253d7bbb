//! Three hosts that share a log on three NATS servers, and clients over WebSockets, while any host and any
//! server is killed: what each client applied is what was published, each action once and in order.
//!
//! `BREAKBULK_FLEET_SECONDS` says for how long (30), `BREAKBULK_FLEET_KILL_SECONDS` how often something is
//! killed (4), `BREAKBULK_FLEET_SEED` which sizes and victims. `cargo xtask long fleet` runs ten minutes.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may")]

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use breakbulk::ahp::{Client, ClientConfig, Config, Event, Resumed};
use breakbulk::link::Cap;
use breakbulk::net::ws::{self, ConnectOptions};
use breakbulk_testkit::nats::NatsCluster;
use interop_ahp::app::SESSION;
use interop_ahp::program::HostProgram;
use interop_ahp::random::Random;
use interop_ahp::text::{digest, text, title};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

const MEMBERS: usize = 3;
const CLIENTS: usize = 4;
/// The largest NATS message. It is small, so that the log stores larger actions in pieces.
const MAX_PAYLOAD: usize = 64 << 10;
/// One of this many actions is larger than a NATS message.
const LARGE_EVERY: u64 = 12;
const LARGE: u64 = 400_000;
/// How many bytes the log keeps. The test compares the whole log at the end, so it must never be trimmed.
const LOG_BYTES: u64 = 512 << 20;
/// About how many actions are published in all, however long it takes: they take three quarters of the log.
const ACTIONS: u64 = 11_000;
/// How long a client may take to connect and to complete the handshake.
const CONNECTED: Duration = Duration::from_secs(15);
/// How long hosts and clients may take to have every action at the end.
const SETTLED: Duration = Duration::from_secs(120);

/// An action that a member was told to publish, and whether the member acknowledged it.
struct Published {
    digest: String,
    acknowledged: bool,
}

/// What all tasks share.
struct Fleet {
    log: String,
    ends: AtomicBool,
    /// The process ids of the members; 0 while a member does not run.
    processes: [AtomicU32; MEMBERS],
    /// The ports of the members, once each has listened for the first time.
    ports: [AtomicU32; MEMBERS],
    starts: AtomicU64,
}

#[tokio::test(flavor = "multi_thread")]
async fn whichever_member_or_server_is_killed_every_client_applies_each_action_once_and_in_order() {
    let number = |name: &str, default: u64| {
        std::env::var(name).map_or(default, |text| text.parse().unwrap())
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let seed = number("BREAKBULK_FLEET_SEED", now.as_millis() as u64);
    let seconds = number("BREAKBULK_FLEET_SECONDS", 30);
    let every = number("BREAKBULK_FLEET_KILL_SECONDS", 4);
    println!(
        "BREAKBULK_FLEET_SEED={seed} BREAKBULK_FLEET_SECONDS={seconds} BREAKBULK_FLEET_KILL_SECONDS={every}"
    );
    let mut cluster = NatsCluster::start(3, MAX_PAYLOAD).await;
    let fleet = Arc::new(Fleet {
        log: cluster.stream("FLEET"),
        ends: AtomicBool::new(false),
        processes: Default::default(),
        ports: Default::default(),
        starts: AtomicU64::new(0),
    });
    let mut members = Vec::new();
    for number in 0..MEMBERS {
        members.push(fleet.start(number).await.unwrap());
    }
    let followers: Vec<Follower> = (0..CLIENTS)
        .map(|number| Follower::start(&fleet, number))
        .collect();
    for follower in &followers {
        follower.until(|state| state.is_started).await;
    }
    // Twice the mean wait of a publisher.
    let pause = 2_000 * seconds * MEMBERS as u64 / ACTIONS;
    let publishers: Vec<_> = members
        .into_iter()
        .enumerate()
        .map(|(number, member)| tokio::spawn(publish(fleet.clone(), number, member, seed, pause)))
        .collect();
    let duration = Duration::from_secs(seconds);
    let kills = kill(&fleet, &mut cluster, duration, every, seed).await;
    fleet.ends.store(true, Ordering::Relaxed);
    let mut published = Vec::new();
    let mut last = None;
    for publisher in publishers {
        let (own, member) = publisher.await.unwrap();
        published.push(own);
        last = Some(member);
    }
    let acknowledged = published.iter().flatten().filter(|it| it.acknowledged);
    let acknowledged: Vec<&str> = acknowledged.map(|it| &*it.digest).collect();
    // A member gets the actions that others acknowledged a moment later.
    let mut last = last.unwrap();
    let settled = async {
        loop {
            let history = log(&mut last).await;
            let first = history.first().map_or(1, |(seq, _)| *seq);
            assert_eq!(first, 1, "the log keeps less than was published");
            let found: BTreeSet<&str> = history.iter().map(|(_, digest)| &**digest).collect();
            if acknowledged.iter().all(|digest| found.contains(digest)) {
                break history;
            }
            sleep(Duration::from_millis(200)).await;
        }
    };
    let settled = timeout(SETTLED, settled).await;
    let history = settled.expect("an acknowledged action is missing");
    check_history(&history, &published);
    let mut connections = 0;
    for follower in &followers {
        let enough = follower.until(|state| state.applied.len() >= history.len());
        timeout(SETTLED, enough).await.unwrap();
        let state = follower.state.borrow();
        assert_eq!(state.applied, history, "BREAKBULK_FLEET_SEED={seed}");
        connections += state.connections;
    }
    let acknowledged = acknowledged.len();
    println!(
        "{} actions, {acknowledged} acknowledged, {} kills ({} of members), {connections} connections of {CLIENTS} clients: equal",
        history.len(),
        kills.0 + kills.1,
        kills.0,
    );
    assert!(acknowledged > 0 && kills.0 + kills.1 > 0);
}

impl Fleet {
    /// Starts a member, at the port that it had before.
    async fn start(&self, number: usize) -> anyhow::Result<HostProgram> {
        let port = self.ports[number].load(Ordering::Relaxed).to_string();
        let limit = LOG_BYTES.to_string();
        let arguments = ["--log", &self.log, "--log-bytes", &limit, "--port", &port];
        let program = env!("CARGO_BIN_EXE_ahp-host");
        let member = HostProgram::start(program, &arguments).await?;
        let port = member.address.rsplit_once(':').unwrap().1.parse().unwrap();
        self.ports[number].store(port, Ordering::Relaxed);
        self.processes[number].store(member.id().unwrap_or(0), Ordering::Relaxed);
        self.starts.fetch_add(1, Ordering::Relaxed);
        Ok(member)
    }
}

/// Publishes at a member, and starts it again when it was killed.
async fn publish(
    fleet: Arc<Fleet>,
    number: usize,
    member: HostProgram,
    seed: u64,
    pause: u64,
) -> (Vec<Published>, HostProgram) {
    let mut random = Random::new(seed ^ number as u64);
    let mut member = Some(member);
    let mut published = Vec::new();
    while !fleet.ends.load(Ordering::Relaxed) {
        let Some(program) = &mut member else {
            member = fleet.start(number).await.ok();
            continue;
        };
        let count = published.len() as u64;
        let size = match count % LARGE_EVERY {
            5 => LARGE,
            _ => random.magnitude(1, 2_000),
        };
        // No two members publish the same text.
        let of = seed.wrapping_add(count * MEMBERS as u64 + number as u64);
        let size = size + 16;
        published.push(Published {
            digest: digest([&*text(of, size as usize)]),
            acknowledged: false,
        });
        let command = format!("publish 1 {size} {of}");
        match program.ask(&command, "published").await {
            Ok(_) => published.last_mut().unwrap().acknowledged = true,
            Err(_) => {
                fleet.processes[number].store(0, Ordering::Relaxed);
                member = None;
            }
        }
        sleep(Duration::from_millis(random.below(pause.max(1)))).await;
    }
    let member = loop {
        match member {
            Some(member) => break member,
            None => member = fleet.start(number).await.ok(),
        }
    };
    (published, member)
}

/// Kills a member or a server, one after the other; returns how many of each.
async fn kill(
    fleet: &Fleet,
    cluster: &mut NatsCluster,
    duration: Duration,
    every: u64,
    seed: u64,
) -> (u64, u64) {
    let mut random = Random::new(seed ^ 0x6b69_6c6c);
    let start = Instant::now();
    let mut kills = (0, 0);
    let mut turn = 0;
    while start.elapsed() < duration {
        sleep(Duration::from_secs(every)).await;
        let victim = random.below(3) as usize;
        turn += 1;
        if turn % 2 == 0 {
            let process = fleet.processes[victim].swap(0, Ordering::Relaxed);
            if process > 0 {
                let killed = Command::new("kill")
                    .args(["-9", &process.to_string()])
                    .status();
                kills.0 += u64::from(killed.unwrap().success());
            }
        } else {
            cluster.kill(victim);
            sleep(Duration::from_millis(random.below(1_500))).await;
            cluster.restart(victim).await;
            kills.1 += 1;
        }
    }
    kills
}

/// Number and digest of all actions that a member has.
async fn log(member: &mut HostProgram) -> Vec<(i64, String)> {
    member.tell("log").await.unwrap();
    let mut has = Vec::new();
    loop {
        let line = member.hear().await.unwrap();
        let words: Vec<_> = line.split_whitespace().collect();
        match words[..] {
            ["has", seq, digest] => has.push((seq.parse().unwrap(), digest.to_owned())),
            ["end"] => return has,
            _ => panic!("{line}"),
        }
    }
}

/// Checks that the history has no gap, that each acknowledged action is in it once, any other at most once,
/// and that the actions of each member are in the order of publishing.
fn check_history(history: &[(i64, String)], published: &[Vec<Published>]) {
    for (at, (seq, _)) in history.iter().enumerate() {
        assert_eq!(*seq, at as i64 + 1);
    }
    let mut places: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (at, (_, digest)) in history.iter().enumerate() {
        places.entry(digest).or_default().push(at);
    }
    let mut found = 0;
    for own in published {
        let mut before = None;
        for action in own {
            let at = places.get(&*action.digest).map_or(&[][..], Vec::as_slice);
            assert!(at.len() <= 1, "an action is there {} times", at.len());
            assert!(
                !action.acknowledged || at.len() == 1,
                "an acknowledged action is missing"
            );
            if let Some(at) = at.first() {
                assert!(before < Some(*at), "actions of one member changed places");
                before = Some(*at);
                found += 1;
            }
        }
    }
    assert_eq!(
        found,
        history.len(),
        "there are actions that nobody published"
    );
}

/// A client that connects to the next member whenever its connection ends.
struct Follower {
    state: watch::Receiver<State>,
    task: tokio::task::JoinHandle<()>,
}

#[derive(Default)]
struct State {
    is_started: bool,
    applied: Vec<(i64, String)>,
    connections: u64,
}

impl Follower {
    fn start(fleet: &Arc<Fleet>, number: usize) -> Self {
        let (tell, state) = watch::channel(State::default());
        let task = tokio::spawn(follow(fleet.clone(), number, tell));
        Self { state, task }
    }

    async fn until(&self, is: impl FnMut(&State) -> bool) {
        let mut state = self.state.clone();
        state.wait_for(is).await.expect("the client has failed");
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn follow(fleet: Arc<Fleet>, number: usize, tell: watch::Sender<State>) {
    let mut config = ClientConfig::new(format!("client-{number}"));
    config.connection = Config::default().with(|config| config.cap = Cap::frame(900_000));
    let client = Client::new(config);
    let mut started = false;
    for turn in number.. {
        let port = fleet.ports[turn % MEMBERS].load(Ordering::Relaxed);
        let url = format!("ws://127.0.0.1:{port}");
        let Ok(socket) = ws::connect(&url, &ConnectOptions::default()).await else {
            sleep(Duration::from_millis(20)).await;
            continue;
        };
        let shaken = async {
            match started {
                false => client.initialize(socket, &[SESSION]).await.map(drop),
                true => client.reconnect(socket).await.map(|resumed| match resumed {
                    Resumed::Replay { missing, .. } => assert!(missing.is_empty()),
                    Resumed::Snapshot(_) => panic!("a snapshot where a replay was due"),
                }),
            }
        };
        if let Ok(Ok(())) = timeout(CONNECTED, shaken).await {
            started = true;
            tell.send_modify(|state| {
                state.is_started = true;
                state.connections += 1;
            });
        }
        while let Some(event) = client.next().await {
            if let Event::Action(action) = event {
                let title = title(&action.action).expect("an action without a title");
                tell.send_modify(|state| state.applied.push((action.seq, digest([&*title]))));
            }
        }
    }
}
