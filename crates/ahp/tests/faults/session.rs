//! One session: a host that publishes, a client that follows, and connections that break.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use breakbulk_ahp::log::{DiskLog, Limits, Replay, ReplayLog};
use breakbulk_ahp::testing::{Lanes, switched};
use breakbulk_ahp::{Config, Host, HostConfig};
use breakbulk_link::Cap;
use breakbulk_message::ahp::{Chunking, TimeoutFrom};
use breakbulk_testkit::crash_disk::CrashDisk;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::path::{Line, Rough, Weather, line};
use crate::random::Random;
use crate::tape::{App, CHANNEL, Tape, action};

/// The parameters of a session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    /// All sizes are 1:100 of full size, divided once more by this number.
    pub(crate) scale: usize,
    pub(crate) actions: u64,
    pub(crate) lanes: Lanes,
    pub(crate) defends: bool,
    /// The first connection breaks after so many frames.
    pub(crate) first_cut: Option<u64>,
    /// Whether every connection may break; the seed decides when.
    pub(crate) cuts: bool,
    pub(crate) delay: Duration,
    /// How long the client may take for an action.
    pub(crate) slow: Duration,
    /// How often the host is killed and started again on its disk.
    pub(crate) restarts: u64,
    /// Actions that the log keeps.
    pub(crate) kept: usize,
    /// Whether the host has no states: the client of the crate `ahp` could not read those of this test.
    pub(crate) stateless: bool,
}

impl Plan {
    /// A session without faults.
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            seed,
            scale: 1,
            actions: 200,
            lanes: Lanes::ByMeaning,
            defends: true,
            first_cut: None,
            cuts: false,
            delay: Duration::ZERO,
            slow: Duration::ZERO,
            restarts: 0,
            kept: 100_000,
            stateless: false,
        }
    }

    /// A short session of the machines alone, at a tenth of the size: in runs over many seeds the number of
    /// faults matters, not the size.
    pub(crate) fn small(seed: u64) -> Self {
        Self {
            scale: 10,
            actions: 40,
            ..Self::new(seed)
        }
    }

    /// The size of an action: from 100 bytes to 50 KB, small ones more often.
    pub(crate) fn size(&self, random: &mut Random) -> usize {
        let size = 100 << random.below(9);
        let size = size + random.below(size + 1);
        usize::try_from(size.min(50_000)).unwrap() / self.scale
    }

    /// A configuration whose limits are scaled like the actions.
    pub(crate) fn config(&self) -> Config {
        let scaled = |size: usize| size / self.scale;
        // Without states the client cannot get a snapshot, so every replay must fit.
        let message = if self.stateless { 32_000_000 } else { 320_000 };
        let config = Config::default().with(|config| {
            config.chunking = Chunking {
                max_frame_bytes: scaled(9000) as u64,
                max_message_bytes: scaled(message) as u64,
                max_groups: Some(256),
                group_timeout_ms: Some(30_000),
                timeout_from: TimeoutFrom::Last,
            };
            config.cap = Cap::frame(scaled(9000));
            config.limits.queued_bytes = scaled(640_000);
            config.seed = Some([self.seed as u8; 32]);
        });
        switched(config, self.lanes, self.defends)
    }
}

/// The host's side of a session, which outlives each host that is killed.
pub(crate) struct World {
    plan: Plan,
    state: Mutex<WorldState>,
    /// Whether the client has begun: without a state it cannot know what was published before.
    begun: watch::Sender<bool>,
    /// The number of the last action once all are published, and 0 until then.
    pub(crate) last: watch::Sender<i64>,
}

struct WorldState {
    host: Host<App>,
    disk: CrashDisk,
    serving: Vec<JoinHandle<()>>,
    random: Random,
    lines: u64,
    frames: u64,
    line: Option<Line>,
}

impl World {
    pub(crate) fn new(plan: Plan) -> Arc<Self> {
        let disk = CrashDisk::new();
        Arc::new(Self {
            plan,
            state: Mutex::new(WorldState {
                host: host(&plan, &disk, Tape::default()),
                disk,
                serving: Vec::new(),
                random: Random::new(plan.seed),
                lines: 0,
                frames: 0,
                line: None,
            }),
            begun: watch::Sender::new(!plan.stateless),
            last: watch::Sender::new(0),
        })
    }

    /// A new connection to the host, and a receiver that is told when it has ended.
    pub(crate) fn connect(&self) -> (Rough, watch::Receiver<bool>) {
        let mut state = self.state.lock().unwrap();
        state.lines += 1;
        let cut_after = match (state.lines, self.plan.first_cut) {
            (1, Some(cut)) => Some(cut),
            // Later connections last longer, so that a large replay gets through in the end.
            (lines, _) if self.plan.cuts && lines < 60 => {
                Some(1 + state.random.below(30 + 20 * lines))
            }
            _ => None,
        };
        let weather = Weather {
            delay: self.plan.delay,
            cut_after,
            depth: 1 + usize::try_from(state.random.below(4)).unwrap(),
        };
        let (near, far, line) = line(weather, state.random.next());
        let frames = state.line.replace(line).map_or(0, |line| line.frames());
        state.frames += frames;
        let serving = state.host.serve(far);
        let (ended, ends) = watch::channel(false);
        state.serving.push(tokio::spawn(async move {
            // Also reports the end if the task is aborted.
            let _ended = OnDrop(ended);
            serving.await;
        }));
        (near, ends)
    }

    /// The client has begun.
    pub(crate) fn begin(&self) {
        self.begun.send_replace(true);
    }

    /// Publishes all actions; kills the host in between as the plan says.
    pub(crate) async fn publish(self: Arc<Self>) {
        let mut begun = self.begun.subscribe();
        begun.wait_for(|begun| *begun).await.unwrap();
        let mut random = Random::new(self.plan.seed ^ 0xabcd);
        let every = self.plan.actions / (self.plan.restarts + 1);
        for number in 0..self.plan.actions {
            let size = self.plan.size(&mut random);
            {
                let mut state = self.state.lock().unwrap();
                if self.plan.restarts > 0 && number % every == every - 1 {
                    self.kill(&mut state);
                }
                let action = action(size, random.next());
                state.host.publish(CHANNEL, &action, None).unwrap();
            }
            let pause = random.up_to(Duration::from_millis(20));
            if random.chance(60) {
                tokio::time::sleep(pause).await;
            }
        }
        let host = self.state.lock().unwrap().host.clone();
        // Actions that were lost with a kill were never visible, so the client need not have them.
        let end = action(100, 0);
        let last = host.publish(CHANNEL, &end, None).unwrap();
        host.visible(last).await.unwrap();
        self.last.send_replace(last);
    }

    /// Simulates a power failure: the host starts again with what the disk has.
    fn kill(&self, state: &mut WorldState) {
        for serving in state.serving.drain(..) {
            serving.abort();
        }
        state.disk = state.disk.crash();
        // The application's own state is as of its last applied action; the log has the later ones.
        let tape = state.host.app().tape();
        state.host = host(&self.plan, &state.disk, tape);
    }

    /// What was published and not lost with a kill: every client must have it in the end.
    pub(crate) fn published(&self) -> Tape {
        self.state.lock().unwrap().host.app().tape()
    }

    /// The frames of all connections, and the number of connections.
    pub(crate) fn frames(&self) -> (u64, u64) {
        let state = self.state.lock().unwrap();
        let last = state.line.as_ref().map_or(0, Line::frames);
        (state.frames + last, state.lines)
    }
}

struct OnDrop(watch::Sender<bool>);

impl Drop for OnDrop {
    fn drop(&mut self) {
        self.0.send_replace(true);
    }
}

fn host(plan: &Plan, disk: &CrashDisk, mut tape: Tape) -> Host<App> {
    let limits = Limits::default().with(|limits| limits.count = plan.kept);
    let log = DiskLog::with_backend(disk.clone(), limits).expect("what was synced opens");
    let last = log.last();
    if last > tape.seq {
        match log.since(tape.seq, last, &|_| true, usize::MAX) {
            Ok(Replay::Actions(entries)) => {
                for entry in entries {
                    let params = std::str::from_utf8(&entry.params).unwrap();
                    let params: serde_json::Value = serde_json::from_str(params).unwrap();
                    tape.apply(entry.seq, params["action"]["title"].as_str().unwrap());
                }
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(
        last >= tape.seq,
        "something was visible that is not on disk"
    );
    let config = HostConfig::default().with(|config| config.connection = plan.config());
    let app = App {
        tape: Mutex::new(tape),
        stateless: plan.stateless,
    };
    Host::new(app, log, config)
}
