//! Sequences of events at a ContextVM server: keys that come and go, requests, chunks in any order, failed
//! publications, answers, time. What one event makes the machine publish and hold is bounded.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use breakbulk_contextvm::{
    Arrival, Config, Encryption, Event, EventId, Machine, Prepared, PublicKey, PublishId, Role,
    Seal,
};
use breakbulk_link::Sent;

use crate::Input;

const PEERS: usize = 3;
const MEMORY: usize = 60_000;
const MESSAGE: usize = 4000;
const EVENT: usize = 1500;

/// Runs the inputs, and checks after each what it caused.
pub fn check(mut input: Input<'_>) {
    let encryption = input.pick(&[
        Encryption::Optional,
        Encryption::Disabled,
        Encryption::Required,
    ]);
    let config = Config::default().with(|config| {
        config.encryption = encryption;
        config.cut_above = 900;
        config.event_max = EVENT;
        config.plan_elsewhere = None;
        config.limits.message = MESSAGE;
        config.limits.chunks = 16;
        config.limits.transfers = 2;
        config.limits.peer_memory = MEMORY / 2;
        config.limits.memory = MEMORY;
        config.limits.peers = PEERS;
        config.limits.requests = 4;
        config.limits.queued = 16;
        config.limits.queued_bytes = 2 * MESSAGE;
        config.limits.remembered = 32;
    });
    let now = Instant::now();
    let mut world = World {
        machine: Machine::new(Role::Server, config, None, [7; 32], now),
        start: now,
        now,
        events: 0,
        published: VecDeque::new(),
        asked: VecDeque::new(),
    };
    while !input.is_empty() {
        world.step(&mut input);
        let stats = world.machine.stats();
        assert!(stats.memory <= MEMORY, "{stats:?}");
        assert!(stats.peers <= PEERS, "{stats:?}");
        assert!(world.published.len() <= 64 * PEERS, "{stats:?}");
    }
}

struct World {
    machine: Machine,
    start: Instant,
    now: Instant,
    events: u64,
    /// Publications whose outcome was not reported yet.
    published: VecDeque<PublishId>,
    /// Requests that the application has not answered.
    asked: VecDeque<(PublicKey, String)>,
}

impl World {
    fn step(&mut self, input: &mut Input<'_>) {
        let len = match input.below(8) {
            0..4 => self.arrive(input),
            4 => {
                self.now += Duration::from_millis(u64::from(input.short()));
                self.machine.handle_timeout(self.now);
                0
            }
            5 => {
                let outcome = input.pick(&[Sent::Ok, Sent::Failed, Sent::TooLarge]);
                if let Some(id) = self.published.pop_front() {
                    self.machine.handle_sent(self.now, id, outcome);
                }
                0
            }
            6 => self.answer(usize::from(input.byte()) * 20),
            _ => {
                let to = key(input.byte() % 5);
                let text = format!(
                    r#"{{"jsonrpc":"2.0","method":"n","params":["{}"]}}"#,
                    "n".repeat(usize::from(input.byte()) * 10)
                );
                self.send(to, text)
            }
        };
        self.collect(len);
    }

    fn arrive(&mut self, input: &mut Input<'_>) -> usize {
        self.events += u64::from(input.below(4) != 0);
        let content = match input.below(4) {
            0 => String::from_utf8_lossy(input.slice()).into_owned(),
            1 => request(input),
            _ => frame(input),
        };
        let tags = match input.below(4) {
            0 => vec![vec!["support_oversized_transfer".to_owned()]],
            1 => vec![vec!["e".to_owned(), "ee".repeat(32)]],
            2 => vec![vec!["support_encryption".to_owned()], vec![]],
            _ => Vec::new(),
        };
        let len = content.len();
        let received_at = 1_000_000 + self.now.duration_since(self.start).as_secs();
        let mut id = [0xee; 32];
        id[..8].copy_from_slice(&self.events.to_be_bytes());
        self.machine.handle_event(
            self.now,
            Arrival {
                from: key(input.byte() % 5),
                id: EventId::from_byte_array(id),
                tags,
                content: content.into(),
                seal: input.pick(&[Seal::Plain, Seal::Ephemeral, Seal::Persistent]),
                created_at: received_at - input.pick(&[0, 1, 599, 601]),
                received_at,
            },
        );
        len
    }

    fn answer(&mut self, size: usize) -> usize {
        let Some((to, id)) = self.asked.pop_front() else {
            return 0;
        };
        let text = "r".repeat(size);
        self.send(
            to,
            format!(r#"{{"jsonrpc":"2.0","id":{id},"result":"{text}"}}"#),
        )
    }

    fn send(&mut self, to: PublicKey, text: String) -> usize {
        let len = text.len();
        let message = Prepared::outgoing(text.into(), None).expect("JSON-RPC");
        // Refused where the peer is not known or its queue is full.
        let _ = self.machine.send(self.now, to, message);
        len
    }

    /// Takes what the machine publishes and reports: one input causes no more than a few events for each
    /// peer, and none over the cap.
    fn collect(&mut self, len: usize) {
        let mut count = 0;
        while let Some(publish) = self.machine.poll_publish(self.now) {
            count += 1;
            assert!(publish.content.len() <= EVENT, "{}", publish.content.len());
            let mut id = [0xdd; 32];
            id[..8].copy_from_slice(&self.events.to_be_bytes());
            self.machine
                .handle_signed(publish.id, EventId::from_byte_array(id));
            self.published.push_back(publish.id);
        }
        let most = 8 * PEERS + 2 * (len / 100 + MESSAGE / 500);
        assert!(count <= most, "{len} bytes caused {count} events");
        let mut told = 0;
        while let Some(event) = self.machine.poll_event() {
            told += 1;
            if let Event::Message(message) = event
                && let Some(envelope) = breakbulk_message::jsonrpc::Envelope::parse(
                    &String::from_utf8_lossy(&message.bytes),
                )
                && let (Some(id), true) = (envelope.id, envelope.method().is_some())
                && self.asked.len() < 16
            {
                self.asked.push_back((message.peer, id.get().to_owned()));
            }
        }
        assert!(told <= 64 + len, "{len} bytes caused {told} reports");
    }
}

fn key(number: u8) -> PublicKey {
    let mut bytes = [1; 32];
    bytes[0] = number;
    PublicKey::from_byte_array(bytes)
}

fn request(input: &mut Input<'_>) -> String {
    let (id, token) = (input.byte() % 8, input.byte() % 4);
    let method = input.pick(&[
        "initialize",
        "tools/call",
        "ping",
        "notifications/cancelled",
    ]);
    let rest = "q".repeat(usize::from(input.byte()));
    let id = match input.flag() {
        true => format!(r#""id":{id},"#),
        false => String::new(),
    };
    format!(
        r#"{{"jsonrpc":"2.0",{id}"method":"{method}","params":{{"_meta":{{"progressToken":"t{token}"}},"requestId":1,"q":"{rest}"}}}}"#
    )
}

fn frame(input: &mut Input<'_>) -> String {
    let (token, progress) = (input.byte() % 4, input.byte() % 10);
    let rest = match input.below(6) {
        0 => format!(
            r#""frameType":"start","completionMode":"render","digest":"sha256:{}","totalBytes":{},"totalChunks":{}"#,
            "00".repeat(32),
            input.number(),
            input.number()
        ),
        1..4 => format!(
            r#""frameType":"chunk","data":"{}""#,
            "c".repeat(usize::from(input.byte()))
        ),
        4 => r#""frameType":"end""#.to_owned(),
        _ => format!(
            r#""frameType":"{}","reason":"r""#,
            input.pick(&["abort", "accept", "other"])
        ),
    };
    format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":"t{token}","progress":{progress},"cvm":{{"type":"oversized-transfer",{rest}}}}}}}"#
    )
}
