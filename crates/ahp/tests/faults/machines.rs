//! Runs a session of the state machines alone: a host, a client, a link for each, a simulated connection
//! between them, and a clock that jumps to the next event. There are no threads and no tasks.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use breakbulk_ahp::log::{DiskLog, Limits, MemoryLog, Replay, ReplayLog};
use breakbulk_ahp::machine::client::{Answer, Direction, Event, Output as Told};
use breakbulk_ahp::machine::host::{Channels, ClientId, Draft, Next, Output, Pending, Work};
use breakbulk_ahp::machine::{Client, Host};
use breakbulk_ahp::{ClientConfig, ClientError, Config, HostConfig};
use breakbulk_testkit::crash_disk::CrashDisk;

use crate::follow::Outcome;
use crate::line::Line;
use crate::random::Random;
use crate::session::Plan;
use crate::tape::{App, CHANNEL, Tape, action, title};

/// More virtual time than any session needs.
const PATIENCE: Duration = Duration::from_secs(4 * 3600);

/// How long the client waits before it connects again; then how long a session goes on after its end.
const AWAY: Duration = Duration::from_millis(5);
const QUIET: Duration = Duration::from_secs(1);

/// Runs a session to its end.
pub(crate) fn machines(plan: Plan) -> Outcome {
    let mut world = World::new(plan);
    let end = world.now + PATIENCE;
    while !world.is_done() {
        assert!(world.now < end, "no end: {plan:?}");
        world.settle();
        world.jump();
    }
    world.outcome()
}

/// What becomes of a host's log when the host is killed.
enum Disk {
    /// It survives as it is.
    Kept,
    /// It is gone: the next host starts with an empty one.
    Lost,
    /// What was synced to this disk survives.
    Crash(CrashDisk),
}

struct World {
    plan: Plan,
    random: Random,
    now: Instant,
    // The host's side.
    config: Config,
    app: App,
    host: Host,
    pending: Pending,
    log: Box<dyn ReplayLog>,
    disk: Disk,
    published: u64,
    publish_at: Option<Instant>,
    commit_at: Option<Instant>,
    works: Vec<(Instant, ClientId, Work)>,
    /// The number of the last action, once all are published.
    last: Option<i64>,
    // The client's side.
    client: Client,
    started: bool,
    tape: Tape,
    read_at: Instant,
    connect_at: Option<Instant>,
    done_at: Option<Instant>,
    // The connection between them.
    line: Option<Line>,
    lines: u64,
    frames: u64,
    snapshots: u64,
}

impl World {
    fn new(plan: Plan) -> Self {
        let mut random = Random::new(plan.seed);
        let config = plan.config();
        let client = ClientConfig::new("c").with(|client| client.connection = config.clone());
        let disk = match random.below(32) {
            _ if plan.restarts == 0 => Disk::Kept,
            0 => Disk::Crash(CrashDisk::new()),
            1..12 => Disk::Lost,
            _ => Disk::Kept,
        };
        let app = App {
            tape: Mutex::default(),
            stateless: false,
        };
        let now = Instant::now();
        let log = open(&plan, &disk);
        Self {
            host: host(&config, 0),
            pending: Pending::new(0, usize::MAX),
            client: Client::new(client),
            plan,
            random,
            now,
            config,
            app,
            log,
            disk,
            published: 0,
            publish_at: Some(now),
            commit_at: None,
            works: Vec::new(),
            last: None,
            started: false,
            tape: Tape::default(),
            read_at: now,
            connect_at: Some(now),
            done_at: None,
            line: None,
            lines: 0,
            frames: 0,
            snapshots: 0,
        }
    }

    fn is_done(&self) -> bool {
        self.done_at.is_some_and(|at| at <= self.now)
    }

    fn outcome(mut self) -> Outcome {
        self.hang_up();
        let outcome = Outcome {
            published: self.app.tape(),
            applied: self.tape,
            frames: self.frames,
            lines: self.lines,
            snapshots: self.snapshots,
        };
        // All memory that was charged has been given back.
        let budgets = [
            self.config.budget.clone(),
            self.client.config().connection.budget.clone(),
        ];
        drop(self);
        assert_eq!(budgets.map(|budget| budget.used()), [0, 0]);
        outcome
    }

    /// Does everything that can be done without time passing.
    fn settle(&mut self) {
        let due = |at: Option<Instant>, now: Instant| at.is_some_and(|at| at <= now);
        self.host.handle_timeout(self.now);
        self.client.handle_timeout(self.now);
        if due(self.publish_at, self.now) {
            self.publish();
        }
        if due(self.commit_at, self.now) {
            self.commit();
        }
        if due(self.connect_at, self.now) {
            self.connect();
        }
        while self.work() | self.carry() | self.hear() | self.read() {}
        if self.done_at.is_none() && self.last.is_some_and(|last| self.tape.seq >= last) {
            // Time for an action to arrive a second time, if it were sent again.
            self.done_at = Some(self.now + QUIET);
        }
    }

    /// Advances the clock to the next event.
    fn jump(&mut self) {
        let now = self.now;
        let next = [
            self.publish_at,
            self.commit_at,
            self.connect_at,
            self.done_at,
        ]
        .into_iter()
        .chain([self.host.poll_timeout(), self.client.poll_timeout()])
        .chain([Some(self.read_at).filter(|at| *at > now)])
        .flatten()
        .chain(self.line.as_ref().and_then(Line::next))
        .chain(self.works.iter().map(|(at, ..)| *at))
        .min();
        let next = next.unwrap_or_else(|| panic!("nothing happens any more: {:?}", self.plan));
        self.now = next.max(now);
        if let Some(line) = &mut self.line {
            for link in [&mut line.near, &mut line.far] {
                link.handle_timeout(self.now);
            }
        }
    }

    fn publish(&mut self) {
        let Plan {
            actions, restarts, ..
        } = self.plan;
        if self.published == actions {
            // Actions that were lost with a kill were never visible, so the client need not have them.
            let end = action(100, 0);
            let draft = Draft::new(CHANNEL, &end, None, None);
            self.last = Some(self.pending.push(draft).unwrap());
            self.publish_at = None;
        } else {
            let every = actions / (restarts + 1);
            if restarts > 0 && self.published % every == every - 1 {
                self.kill();
            }
            let size = self.plan.size(&mut self.random);
            let action = action(size, self.random.next());
            let draft = Draft::new(CHANNEL, &action, None, None);
            self.pending.push(draft).unwrap();
            self.published += 1;
            let pause = self.random.up_to(Duration::from_millis(20));
            let pause = if self.random.chance(60) {
                pause
            } else {
                Duration::ZERO
            };
            self.publish_at = Some(self.now + pause);
        }
        let soon = self.random.up_to(Duration::from_millis(2));
        self.commit_at.get_or_insert(self.now + soon);
    }

    fn commit(&mut self) {
        self.commit_at = None;
        while let Next::Append(batch) = self.pending.poll_append() {
            let entries: Vec<_> = batch.iter().map(|one| one.entry()).collect();
            self.log.append(&entries).unwrap();
            for published in &batch {
                self.host.handle_committed(published, &self.app);
                self.pending.settle(published);
                self.tell_host_side();
            }
        }
        self.host.handle_room(&self.app);
    }

    /// The power fails, and the host starts again with what is left.
    fn kill(&mut self) {
        // The log may have stored a batch just before, which no client has seen.
        if self.random.chance(50)
            && let Next::Append(batch) = self.pending.poll_append()
        {
            let entries: Vec<_> = batch.iter().map(|one| one.entry()).collect();
            self.log.append(&entries).unwrap();
        }
        self.commit_at = None;
        self.hang_up();
        self.works.clear();
        let mut start_after = 0;
        match &mut self.disk {
            Disk::Kept => {}
            Disk::Lost => {
                start_after = self.app.tape().seq;
                self.log = open(&self.plan, &self.disk);
            }
            Disk::Crash(disk) => {
                *disk = disk.crash();
                self.log = open(&self.plan, &self.disk);
            }
        }
        let last = self.log.last().max(start_after);
        let tape = &mut *self.app.tape.lock().unwrap();
        assert!(last >= tape.seq, "something was visible that is not kept");
        if last > tape.seq {
            match self.log.since(tape.seq, last, &|_| true, usize::MAX) {
                Ok(Replay::Actions(entries)) => {
                    for entry in entries {
                        let params: serde_json::Value =
                            serde_json::from_slice(&entry.params).unwrap();
                        tape.apply(entry.seq, params["action"]["title"].as_str().unwrap());
                    }
                }
                other => panic!("{other:?}"),
            }
        }
        self.host = host(&self.config, last);
        self.pending = Pending::new(last, usize::MAX);
    }

    fn connect(&mut self) {
        self.connect_at = None;
        let shaken = if self.started {
            self.client.reconnect(self.now)
        } else {
            self.client.initialize(self.now, &[CHANNEL])
        };
        let (_, message) = shaken.unwrap();
        self.lines += 1;
        let (plan, lines) = (self.plan, self.lines);
        let cut_after = match (lines, plan.first_cut) {
            (1, Some(cut)) => Some(cut),
            // Later connections last longer, so that a large replay gets through in the end.
            (lines, _) if plan.cuts && lines < 60 => Some(1 + self.random.below(30 + 20 * lines)),
            _ => None,
        };
        let mut near = self.client.link([plan.seed as u8; 32]);
        near.send(self.now, message).unwrap();
        let seed = [plan.seed as u8; 32];
        let far = self.config.link(seed);
        let id = self.host.connect(self.now).unwrap();
        let depth = 1 + usize::try_from(self.random.below(4)).unwrap();
        self.line = Some(Line::new(id, near, far, cut_after, depth));
    }

    /// Breaks the connection at both ends.
    fn hang_up(&mut self) {
        if let Some(line) = &mut self.line {
            line.cut();
        }
        while self.hear() {}
    }

    /// Does one piece of the work that the host handed out and that is due.
    fn work(&mut self) -> bool {
        let now = self.now;
        let Some(at) = self.works.iter().position(|(at, ..)| *at <= now) else {
            return false;
        };
        let (_, id, work) = self.works.remove(at);
        match work {
            Work::Introduce(introduction) => {
                let introduced = introduction.read(self.host.config(), &self.app);
                self.host.handle_introduced(id, introduced, &self.app);
            }
            Work::Write(writing) => {
                let text = writing.run(&*self.log.reader());
                self.host.handle_written(now, id, text, &self.app);
            }
            other => panic!("{other:?}"),
        }
        self.tell_host_side();
        true
    }

    /// Moves frames into the connection where it has room, and out of it where they have arrived.
    fn carry(&mut self) -> bool {
        let (now, delay) = (self.now, self.plan.delay);
        let mut moved = false;
        for direction in [Direction::Out, Direction::In] {
            let Some(line) = &mut self.line else {
                return moved;
            };
            let sent = line.fill(direction, now, || self.random.up_to(delay));
            let came = line.drain(direction, now);
            if direction == Direction::Out && sent || direction == Direction::In && came {
                self.client.handle_moved(now, direction);
            }
            moved |= sent || came;
        }
        moved
    }

    /// Passes the events of the links to the machines, and does what the machines ask for.
    fn hear(&mut self) -> bool {
        let now = self.now;
        let Some(line) = &mut self.line else {
            return false;
        };
        let mut heard = false;
        while let Some(event) = line.near.poll_event() {
            heard = true;
            self.client.handle_event(now, event);
        }
        while let Some(output) = self.client.poll_output() {
            heard = true;
            match output {
                Told::Negotiated { peer } => {
                    let config = &self.client.config().connection;
                    config.apply_peer(&mut line.near, peer.as_ref());
                }
                Told::Close { code, reason } => line.near.close(code, &reason),
                Told::Answered { answer, .. } => match answer {
                    Ok(Answer::Initialized(_) | Answer::Resumed(_)) => self.started = true,
                    Err(ClientError::Disconnected { .. }) => {}
                    other => panic!("{:?}: {other:?}", self.plan),
                },
            }
        }
        let id = line.id;
        while let Some(line) = &mut self.line
            && let Some(event) = line.far.poll_event()
        {
            heard = true;
            self.host.handle_event(now, id, event, &self.app);
            self.tell_host_side();
        }
        if !heard && self.line.as_ref().is_some_and(Line::is_over) {
            self.frames += self.line.take().map_or(0, |line| line.frames);
            self.host.disconnect(id);
            self.works.retain(|(_, client, _)| *client != id);
            self.connect_at = Some(now + AWAY);
        }
        heard
    }

    /// Does what the host's machine asks for.
    fn tell_host_side(&mut self) {
        while let Some(output) = self.host.poll_output() {
            let Some(line) = &mut self.line else {
                continue;
            };
            match output {
                Output::Send { client, message } => {
                    // No action may be sent before the answer to the handshake.
                    let action = br#"{"jsonrpc":"2.0","method":"action""#;
                    assert!(line.negotiated || !message.bytes.starts_with(action));
                    if let Err(rejected) = line.far.send(self.now, message)
                        && line.far.closed().is_none()
                    {
                        let (message, error) = (&rejected.message, &rejected.error);
                        self.host.handle_rejected(client, message, error);
                    }
                }
                Output::Replace { id, with, .. } => {
                    line.far.replace(id, with);
                }
                Output::Negotiated { peer, .. } => {
                    line.negotiated = true;
                    self.config.apply_peer(&mut line.far, peer.as_ref());
                }
                Output::Close { code, reason, .. } => line.far.close(code, &reason),
                Output::Work { client, work } => {
                    let soon = self.random.up_to(Duration::from_millis(5));
                    self.works.push((self.now + soon, client, work));
                }
            }
        }
    }

    /// The application takes the next event, unless it pauses.
    fn read(&mut self) -> bool {
        if self.read_at > self.now {
            return false;
        }
        let Some(event) = self.client.poll_event() else {
            return false;
        };
        match event {
            Event::Action(action) => self.tape.apply(action.seq, title(action.action.as_str())),
            Event::Snapshot(snapshot) => {
                self.snapshots += 1;
                self.tape = Tape::read(snapshot.state.as_str());
            }
            _ => {}
        }
        if self.random.chance(20) {
            self.read_at = self.now + self.random.up_to(self.plan.slow);
        }
        true
    }
}

fn host(config: &Config, last: i64) -> Host {
    let config = HostConfig::default().with(|host| host.connection = config.clone());
    Host::new(config, last)
}

fn open(plan: &Plan, disk: &Disk) -> Box<dyn ReplayLog> {
    let limits = Limits::default().with(|limits| limits.count = plan.kept);
    match disk {
        Disk::Crash(disk) => {
            let log = DiskLog::with_backend(disk.clone(), limits);
            Box::new(log.expect("what was synced opens"))
        }
        Disk::Kept | Disk::Lost => Box::new(MemoryLog::new(limits)),
    }
}

impl Channels for App {
    fn snapshot(&self, channel: &str) -> Option<breakbulk_ahp::machine::host::State> {
        breakbulk_ahp::Application::snapshot(self, channel)
    }

    fn apply(&self, action: &breakbulk_ahp::machine::host::Applied<'_>) {
        breakbulk_ahp::Application::apply(self, action);
    }

    fn has_room(&self, _bytes: usize) -> bool {
        true
    }
}
