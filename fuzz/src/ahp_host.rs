//! Sequences of inputs to an AHP host: clients that connect, send anything, read or do not, and leave;
//! actions that are published; time. What one input makes the host send, hold and work on is bounded.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

use breakbulk_ahp::log::{MemoryLog, ReplayLog};
use breakbulk_ahp::machine::Host;
use breakbulk_ahp::machine::host::{
    Applied, Channels, ClientId, Draft, Next, Output, Pending, RequestId, State, Work,
};
use breakbulk_ahp::{Config, HostConfig};
use breakbulk_link::{Budget, Cap, Frame, Link};
use breakbulk_message::ahp::Chunking;
use serde_json::value::RawValue;

use crate::Input;

const CHANNELS: [&str; 3] = ["ahp-root://", "ahp-chat:/a", "ahp-chat:/b"];
const CLIENTS: usize = 3;
const QUEUED: usize = 8000;
const REPLAY: usize = 3000;
const SUBSCRIPTIONS: usize = 4;
/// Bytes of a channel's state; also more than a short message that the host itself writes.
const STATE: usize = 300;
const BUDGET: usize = 200_000;

/// Channels with states of the largest size, and the queue of actions.
struct App(RefCell<Pending>);

impl Channels for App {
    fn snapshot(&self, channel: &str) -> Option<State> {
        let state = || RawValue::from_string(format!("\"{}\"", "s".repeat(STATE - 2))).ok();
        CHANNELS
            .contains(&channel)
            .then(|| state().map(State::new))?
    }

    fn apply(&self, _: &Applied<'_>) {}

    fn has_room(&self, bytes: usize) -> bool {
        self.0.borrow().has_room(bytes)
    }
}

struct Peer {
    id: ClientId,
    link: Link,
}

struct World {
    now: Instant,
    config: Config,
    host: Host,
    app: App,
    log: MemoryLog,
    peers: Vec<Option<Peer>>,
    works: VecDeque<(ClientId, Work)>,
    calls: Vec<(ClientId, RequestId)>,
}

/// Runs the inputs, and checks after each what it caused.
pub fn check(mut input: Input<'_>) {
    let config = Config::default().with(|config| {
        config.chunking = Chunking {
            max_frame_bytes: 700,
            max_message_bytes: 4000,
            max_groups: Some(2),
            ..Chunking::default()
        };
        config.cap = Cap::frame(700);
        config.budget = Budget::new(BUDGET);
        config.limits.queued = 64;
        config.limits.queued_bytes = QUEUED;
        config.seed = Some([7; 32]);
    });
    let host = HostConfig::default().with(|host| {
        host.connection = config.clone();
        host.limits.clients = CLIENTS - 1;
        host.limits.sessions = 4;
        host.limits.requests = 2;
        host.limits.subscriptions = SUBSCRIPTIONS;
        host.limits.subscription_bytes = 64;
        host.limits.client_id_bytes = 16;
        host.limits.uncommitted_bytes = 2000;
        host.limits.replay_bytes = REPLAY;
    });
    let mut world = World {
        now: Instant::now(),
        host: Host::new(host, 0),
        app: App(RefCell::new(Pending::new(0, 2000))),
        log: MemoryLog::default(),
        peers: (0..CLIENTS).map(|_| None).collect(),
        works: VecDeque::new(),
        calls: Vec::new(),
        config,
    };
    while !input.is_empty() {
        world.step(&mut input);
        world.check();
    }
    let budget = world.config.budget.clone();
    drop(world);
    assert_eq!(budget.used(), 0, "all that was charged is given back");
}

impl World {
    fn step(&mut self, input: &mut Input<'_>) {
        let at = input.below(CLIENTS);
        match input.below(12) {
            0 => self.say(at, String::from_utf8_lossy(input.slice()).into_owned()),
            1..5 => {
                let text = message(input);
                self.say(at, text);
            }
            5 => {
                let action = format!("\"{}\"", "a".repeat(usize::from(input.byte()) * 4));
                self.publish(input.pick(&CHANNELS), action);
            }
            6 => self.commit(),
            7 => {
                self.now += Duration::from_millis(u64::from(input.short()));
                self.host.handle_timeout(self.now);
                for peer in self.peers.iter_mut().flatten() {
                    peer.link.handle_timeout(self.now);
                }
                self.hear();
            }
            8 => self.work(),
            9 => {
                if let Some((client, request)) = self.calls.pop() {
                    let result = RawValue::from_string("1".to_owned()).expect("JSON");
                    self.host
                        .handle_answer(client, request, &Ok(result), &self.app);
                    self.tell(0);
                }
            }
            10 => self.read(at, usize::from(input.byte())),
            _ => self.come_or_go(at),
        }
    }

    fn come_or_go(&mut self, at: usize) {
        if let Some(peer) = self.peers[at].take() {
            self.host.disconnect(peer.id);
            self.works.retain(|(client, _)| *client != peer.id);
            self.calls.retain(|(client, _)| *client != peer.id);
        } else if let Ok(id) = self.host.connect(self.now) {
            let link = self.config.link([7; 32]);
            self.peers[at] = Some(Peer { id, link });
        }
        self.tell(0);
    }

    /// A client sends a frame, which may cause at most one state per subscription or one replay, and for each
    /// of its bytes a short refusal.
    fn say(&mut self, at: usize, text: String) {
        let len = text.len();
        let Some(peer) = self.peers[at].as_mut().filter(|it| it.link.wants_frame()) else {
            return;
        };
        if peer.link.closed().is_some() {
            return;
        }
        peer.link.handle_frame(self.now, Frame::Text(text.into()));
        self.hear_with(len);
    }

    fn hear(&mut self) {
        self.hear_with(0);
    }

    fn hear_with(&mut self, len: usize) {
        for at in 0..CLIENTS {
            let mut events = Vec::new();
            if let Some(peer) = &mut self.peers[at] {
                let id = peer.id;
                while let Some(event) = peer.link.poll_event() {
                    events.push((id, event));
                }
            }
            for (id, event) in events {
                self.host.handle_event(self.now, id, event, &self.app);
                self.tell(len);
            }
        }
    }

    fn publish(&mut self, channel: &str, action: String) {
        if let Ok(action) = RawValue::from_string(action) {
            // Refused if too many actions wait for the log.
            let _ = self
                .app
                .0
                .borrow_mut()
                .push(Draft::new(channel, &action, None, None));
        }
    }

    fn commit(&mut self) {
        let next = self.app.0.borrow_mut().poll_append();
        if let Next::Append(batch) = next {
            let entries: Vec<_> = batch.iter().map(|one| one.entry()).collect();
            self.log.append(&entries).expect("a log in memory");
            for published in &batch {
                self.host.handle_committed(published, &self.app);
                self.app.0.borrow_mut().settle(published);
                self.tell(published.entry().params.len() * CLIENTS);
            }
        }
        self.host.handle_room(&self.app);
        self.tell(0);
    }

    /// Does the oldest piece of work that the host handed out.
    fn work(&mut self) {
        let Some((client, work)) = self.works.pop_front() else {
            return;
        };
        match work {
            Work::Introduce(introduction) => {
                let introduced = introduction.read(self.host.config(), &self.app);
                self.host.handle_introduced(client, introduced, &self.app);
            }
            Work::Write(writing) => {
                let text = writing.run(&*self.log.reader());
                self.host.handle_written(self.now, client, text, &self.app);
            }
            Work::Dispatch(dispatching) => {
                let pending = &self.app.0;
                let dispatched = dispatching.run(|it| {
                    let draft = Draft::new(it.channel, it.action, Some(it.origin()), None);
                    pending.borrow_mut().push(draft).map(drop)
                });
                self.host.handle_dispatched(client, &dispatched, &self.app);
            }
            Work::Call(request, _) => self.calls.push((client, request)),
            Work::Continue => self.host.handle_continue(client, &self.app),
        }
        self.tell(0);
    }

    /// Does what the host asks for, and checks that an input of this length does not cause too much.
    fn tell(&mut self, len: usize) {
        let (mut sent, mut outputs) = (0, 0);
        while let Some(output) = self.host.poll_output() {
            outputs += 1;
            match output {
                Output::Send { client, message } => {
                    sent += message.bytes.len();
                    let Some(peer) = self.peer(client) else {
                        continue;
                    };
                    let Err(rejected) = peer.link.send(Instant::now(), message) else {
                        continue;
                    };
                    if peer.link.closed().is_none() {
                        let (message, error) = (&rejected.message, &rejected.error);
                        self.host.handle_rejected(client, message, error);
                    }
                }
                Output::Replace { client, id, with } => {
                    if let Some(peer) = self.peer(client) {
                        peer.link.replace(id, with);
                    }
                }
                Output::Negotiated { client, peer } => {
                    let config = self.config.clone();
                    if let Some(it) = self.peer(client) {
                        config.apply_peer(&mut it.link, peer.as_ref());
                    }
                }
                Output::Close {
                    client,
                    code,
                    reason,
                    ..
                } => {
                    if let Some(peer) = self.peer(client) {
                        peer.link.close(code, &reason);
                    }
                    self.works.retain(|(of, _)| *of != client);
                }
                Output::Work { client, work } => self.works.push_back((client, work)),
            }
        }
        let states = SUBSCRIPTIONS * (STATE + 200);
        let held = QUEUED * CLIENTS;
        assert!(
            sent <= 8 * len + states + REPLAY * 2 + held,
            "{len} bytes caused {sent}"
        );
        assert!(
            outputs <= 64 * CLIENTS + 16,
            "{len} bytes caused {outputs} outputs"
        );
    }

    fn peer(&mut self, client: ClientId) -> Option<&mut Peer> {
        self.peers
            .iter_mut()
            .flatten()
            .find(|peer| peer.id == client)
    }

    /// The client reads so many frames.
    fn read(&mut self, at: usize, frames: usize) {
        if let Some(peer) = &mut self.peers[at] {
            let mut frame = Vec::new();
            for _ in 0..frames {
                frame.clear();
                if peer.link.poll_transmit(self.now, &mut frame).is_none() {
                    break;
                }
                assert!(frame.len() <= 700, "a frame of {} bytes", frame.len());
            }
        }
        self.hear();
    }

    fn check(&self) {
        assert!(self.config.budget.used() <= BUDGET);
        // One introduction, write or dispatch for each client, and its calls.
        assert!(
            self.works.len() <= CLIENTS * 4,
            "{} works",
            self.works.len()
        );
        assert!(
            self.calls.len() <= CLIENTS * 2,
            "{} calls",
            self.calls.len()
        );
        for peer in self.peers.iter().flatten() {
            let queued = peer.link.queued_bytes();
            assert!(
                queued <= QUEUED + REPLAY + SUBSCRIPTIONS * (STATE + 200) + 1000,
                "{queued}"
            );
        }
    }
}

/// A message that a client might send, with numbers and names from the input.
fn message(input: &mut Input<'_>) -> String {
    let (id, seq) = (input.byte(), input.number());
    let channel = input.pick(&[CHANNELS[0], CHANNELS[1], CHANNELS[2], "ahp-none:/", ""]);
    let name = input.pick(&["c", "d", "a client with a long name", ""]);
    let chunking = match input.below(3) {
        0 => String::new(),
        1 => r#","capabilities":{"chunking":{"maxFrameBytes":700,"maxMessageBytes":4000}}"#
            .to_owned(),
        _ => format!(
            r#","capabilities":{{"chunking":{{"maxFrameBytes":{},"maxMessageBytes":{}}}}}"#,
            input.number(),
            input.number()
        ),
    };
    match input.below(8) {
        0 | 1 => format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"initialize","params":{{"channel":"ahp-root://","clientId":"{name}","initialSubscriptions":["{channel}","ahp-root://"],"protocolVersions":["1.0.0"]{chunking}}}}}"#
        ),
        2 => format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"reconnect","params":{{"channel":"ahp-root://","clientId":"{name}","lastSeenServerSeq":{seq},"subscriptions":["{channel}","ahp-root://"]{chunking}}}}}"#
        ),
        3 => format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"subscribe","params":{{"channel":"{channel}"}}}}"#
        ),
        4 => format!(
            r#"{{"jsonrpc":"2.0","method":"unsubscribe","params":{{"channel":"{channel}"}}}}"#
        ),
        5 => format!(
            r#"{{"jsonrpc":"2.0","method":"dispatchAction","params":{{"channel":"{channel}","clientSeq":{seq},"action":"{}"}}}}"#,
            "x".repeat(usize::from(id))
        ),
        6 => format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{name}"}}"#),
        _ => {
            let data = "eXl5".repeat(usize::from(id) / 4);
            format!(
                r#"{{"jsonrpc":"2.0","method":"ahp/messageSegment","params":{{"groupId":"{name}","index":{},"total":{},"data":"{data}"}}}}"#,
                seq % 5,
                input.below(5)
            )
        }
    }
}
