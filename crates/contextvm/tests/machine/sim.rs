//! A simulation: machines, a relay between them, and a clock that jumps to the next event.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use breakbulk_contextvm::{
    Arrival, Config, Event, EventId, Failure, Kind, Learned, Machine, Prepared, PublicKey, Publish,
    PublishId, Role, Seal,
};
use breakbulk_link::{Random, Sent};

/// What the relay does to events.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Weather {
    /// An event takes up to this long to reach the relay.
    pub(crate) delay: Duration,
    /// This many bytes of one machine's events pass in a second.
    pub(crate) pace: Option<u64>,
    /// This many percent of the events arrive twice.
    pub(crate) doubled: u64,
    /// A start, a last chunk and an end are confirmed at once, although passing them on takes up to
    /// `delay`.
    pub(crate) hasty: bool,
    /// Larger events are refused.
    pub(crate) event_max: usize,
    /// Every event is refused, for a reason other than its size.
    pub(crate) closed: bool,
}

impl Weather {
    pub(crate) const CALM: Self = Self {
        delay: Duration::ZERO,
        pace: None,
        doubled: 0,
        hasty: false,
        event_max: 65_536,
        closed: false,
    };
}

/// An event that was published.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) from: PublicKey,
    pub(crate) to: PublicKey,
    pub(crate) id: EventId,
    pub(crate) content: String,
    pub(crate) tags: Vec<Vec<String>>,
    pub(crate) seal: Seal,
    /// When it was first passed on.
    pub(crate) at: Duration,
}

impl Seen {
    pub(crate) fn frame_type(&self) -> Option<String> {
        let frame: serde_json::Value = serde_json::from_str(&self.content).ok()?;
        let cvm = &frame["params"]["cvm"];
        let transfer = cvm["type"] == "oversized-transfer";
        Some(cvm["frameType"].as_str().filter(|_| transfer)?.to_owned())
    }

    pub(crate) fn token(&self) -> Option<String> {
        let frame: serde_json::Value = serde_json::from_str(&self.content).ok()?;
        Some(frame["params"]["progressToken"].as_str()?.to_owned())
    }

    pub(crate) fn e(&self) -> Option<&str> {
        let tag = self.tags.iter().find(|tag| tag[0] == "e")?;
        Some(&tag[1])
    }

    pub(crate) fn has_tag(&self, name: &str) -> bool {
        self.tags.iter().any(|tag| tag.len() == 1 && tag[0] == name)
    }
}

enum Action {
    Deliver(usize, Arrival),
    Confirm(usize, PublishId, Sent),
}

pub(crate) struct Sim {
    pub(crate) now: Duration,
    pub(crate) machines: Vec<Machine>,
    pub(crate) keys: Vec<PublicKey>,
    pub(crate) weather: Weather,
    /// All events that were published, in order.
    pub(crate) tape: Vec<Seen>,
    /// All events of the machines except messages: (when, at which machine, event).
    pub(crate) news: Vec<(Duration, usize, Event)>,
    /// Messages that no test has taken yet: (receiving machine, sender, text).
    pub(crate) inbox: VecDeque<(usize, PublicKey, String)>,
    base: Instant,
    random: Random,
    queue: BTreeMap<(Duration, u64), Action>,
    count: u64,
    /// Chunks that are still to come.
    left: BTreeMap<String, u64>,
    /// Until when the path from each machine to the relay is busy.
    busy: Vec<Duration>,
}

/// A key that shows its number.
pub(crate) fn key(number: u64) -> PublicKey {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&number.to_be_bytes());
    bytes[31] = 1;
    PublicKey::from_byte_array(bytes)
}

impl Sim {
    /// Machine 0 is a server; the others are its clients.
    pub(crate) fn new(seed: u64, weather: Weather, configs: Vec<Config>) -> Self {
        let base = Instant::now();
        let mut random = Random::from_number(seed);
        let (mut machines, mut keys) = (Vec::new(), Vec::new());
        for (index, config) in configs.into_iter().enumerate() {
            let role = match index {
                0 => Role::Server,
                _ => Role::Client { server: key(0) },
            };
            let mut bytes = [0; 32];
            bytes[..8].copy_from_slice(&random.next().to_be_bytes());
            machines.push(Machine::new(role, config, None, bytes, base));
            keys.push(key(index as u64));
        }
        Self {
            now: Duration::ZERO,
            machines,
            weather,
            tape: Vec::new(),
            news: Vec::new(),
            inbox: VecDeque::new(),
            base,
            random,
            queue: BTreeMap::new(),
            count: 0,
            left: BTreeMap::new(),
            busy: vec![Duration::ZERO; keys.len()],
            keys,
        }
    }

    /// Replaces a client by a new one that knows this about its server.
    pub(crate) fn restart_client(
        &mut self,
        index: usize,
        config: Config,
        learned: Option<Learned>,
    ) {
        let role = Role::Client { server: key(0) };
        let seed = [self.random.next() as u8; 32];
        self.machines[index] = Machine::new(role, config, learned, seed, self.time());
    }

    pub(crate) fn time(&self) -> Instant {
        self.base + self.now
    }

    pub(crate) fn unix_time(&self) -> u64 {
        1_700_000_000 + self.now.as_secs()
    }

    /// A client sends a message, with a token as the endpoint would make it.
    pub(crate) fn send(&mut self, from: usize, to: usize, text: &str) {
        let token = format!("{:032x}", self.random.next());
        let message = Prepared::outgoing(text.to_owned().into(), Some(&token)).unwrap();
        let (now, to) = (self.time(), self.keys[to]);
        self.machines[from].send(now, to, message).unwrap();
    }

    /// Delivers an event of a peer that has no machine.
    pub(crate) fn inject(
        &mut self,
        from: PublicKey,
        to: usize,
        content: &str,
        tags: &[Vec<String>],
    ) -> EventId {
        let id = self.fresh_id();
        let arrival = Arrival {
            from,
            id,
            tags: tags.to_vec(),
            content: content.to_owned().into(),
            seal: Seal::Plain,
            created_at: self.unix_time(),
            received_at: self.unix_time(),
        };
        let now = self.time();
        self.machines[to].handle_event(now, arrival);
        id
    }

    fn fresh_id(&mut self) -> EventId {
        self.count += 1;
        let mut id = [0xee; 32];
        id[..8].copy_from_slice(&self.count.to_be_bytes());
        EventId::from_byte_array(id)
    }

    /// Runs until a message arrives, or until no more happens before `until`.
    pub(crate) fn run(&mut self, until: Duration) -> Option<(usize, PublicKey, String)> {
        loop {
            self.collect();
            if let Some(message) = self.inbox.pop_front() {
                return Some(message);
            }
            let next = self.queue.first_key_value().map(|((at, _), _)| *at);
            let timers = self.machines.iter().filter_map(Machine::poll_timeout);
            let timer = timers
                .min()
                .map(|at| at.saturating_duration_since(self.base));
            let at = next.into_iter().chain(timer).min()?;
            if at > until {
                self.now = until;
                return None;
            }
            self.now = self.now.max(at);
            let now = self.time();
            if next.is_some_and(|next| timer.is_none_or(|timer| next <= timer)) {
                match self.queue.pop_first().unwrap().1 {
                    Action::Deliver(to, mut arrival) => {
                        arrival.received_at = self.unix_time();
                        self.machines[to].handle_event(now, arrival);
                    }
                    Action::Confirm(to, id, sent) => self.machines[to].handle_sent(now, id, sent),
                }
            } else {
                for machine in &mut self.machines {
                    machine.handle_timeout(now);
                }
            }
        }
    }

    /// Takes the machines' events and planning jobs, and publishes what they send.
    fn collect(&mut self) {
        loop {
            let mut idle = true;
            let now = self.time();
            for index in 0..self.machines.len() {
                while let Some(publish) = self.machines[index].poll_publish(now) {
                    self.publish(index, publish);
                    idle = false;
                }
                // Making frames may require the planning of the next messages.
                while let Some((peer, job)) = self.machines[index].poll_plan() {
                    self.machines[index].handle_planned(now, peer, job.run());
                    idle = false;
                }
                while let Some(event) = self.machines[index].poll_event() {
                    match event {
                        Event::Message(message) => {
                            let text = String::from_utf8(message.bytes.to_vec()).unwrap();
                            self.inbox.push_back((index, message.peer, text));
                        }
                        other => self.news.push((self.now, index, other)),
                    }
                }
            }
            if idle {
                return;
            }
        }
    }

    fn publish(&mut self, from: usize, publish: Publish) {
        let id = self.fresh_id();
        self.machines[from].handle_signed(publish.id, id);
        let longest = self.weather.delay.as_micros() as u64;
        let size = event_bytes(&publish);
        let passed = match self.weather.pace {
            Some(pace) => {
                let time = Duration::from_secs_f64(size as f64 / pace as f64);
                self.busy[from] = self.busy[from].max(self.now) + time;
                self.busy[from]
            }
            None => self.now,
        };
        let taken = passed + Duration::from_micros(self.random.below(longest.max(1)));
        if size > self.weather.event_max {
            self.at(taken, Action::Confirm(from, publish.id, Sent::TooLarge));
            return;
        }
        if self.weather.closed {
            self.at(taken, Action::Confirm(from, publish.id, Sent::Failed));
            return;
        }
        let mut seen = Seen {
            from: self.keys[from],
            to: publish.to,
            id,
            content: publish.content,
            tags: publish.tags,
            seal: publish.seal,
            at: taken,
        };
        let edge = self.is_edge(&seen);
        let confirmed = if self.weather.hasty && edge {
            self.now
        } else {
            taken + Duration::from_micros(self.random.below(longest.max(1)) / 4)
        };
        let arrival = Arrival {
            from: seen.from,
            id,
            tags: seen.tags.clone(),
            content: seen.content.clone().into(),
            seal: seen.seal,
            created_at: self.unix_time(),
            received_at: 0,
        };
        if let Some(to) = self.keys.iter().position(|key| *key == seen.to) {
            self.at(taken, Action::Deliver(to, arrival.clone()));
            if self.random.below(100) < self.weather.doubled {
                let again = taken + Duration::from_micros(self.random.below(longest.max(1)));
                self.at(again, Action::Deliver(to, arrival));
            }
        }
        self.at(confirmed, Action::Confirm(from, publish.id, Sent::Ok));
        seen.at = taken;
        self.tape.push(seen);
    }

    fn is_edge(&mut self, seen: &Seen) -> bool {
        let (Some(kind), Some(token)) = (seen.frame_type(), seen.token()) else {
            return false;
        };
        let frame: serde_json::Value = serde_json::from_str(&seen.content).unwrap();
        let name = format!("{}{token}", seen.from);
        match kind.as_str() {
            "start" => {
                let total = frame["params"]["cvm"]["totalChunks"].as_u64().unwrap();
                self.left.insert(name, total);
                true
            }
            "chunk" => {
                let left = self.left.entry(name).or_default();
                *left -= 1;
                *left == 0
            }
            kind => kind == "end",
        }
    }

    fn at(&mut self, at: Duration, action: Action) {
        self.count += 1;
        self.queue.insert((at, self.count), action);
    }

    /// The last failed message of a machine: its kind, and why.
    pub(crate) fn failed(&self, who: usize) -> Option<(Kind, Failure)> {
        let mut news = self.news.iter().rev();
        news.find_map(|(_, whose, event)| match event {
            Event::Failed { kind, failure, .. } if *whose == who => Some((*kind, failure.clone())),
            _ => None,
        })
    }

    /// Checks that no memory and no request is left.
    pub(crate) fn assert_clean(&mut self, context: &str) {
        // Frames that are on their way may still arrive.
        while self.run(self.now + Duration::from_secs(3)).is_some() {}
        for machine in &self.machines {
            let stats = machine.stats();
            assert_eq!(
                (
                    stats.memory,
                    stats.outgoing,
                    stats.asked,
                    stats.served,
                    stats.transfers
                ),
                (0, 0, 0, 0, 0),
                "{context}: {stats:?}"
            );
        }
    }
}

/// Bytes of the signed event around a message, including its gift wrap.
pub(crate) fn event_bytes(publish: &Publish) -> usize {
    let hex = "0".repeat(64);
    let around = |kind: u16, tags: &[Vec<String>], content: usize| {
        let tags = serde_json::to_string(tags).unwrap();
        format!(r#"{{"id":"{hex}","pubkey":"{hex}","created_at":1700000000,"kind":{kind},"tags":{tags},"content":"","sig":"{hex}{hex}"}}"#).len() + content
    };
    let content = serde_json::to_string(&publish.content).unwrap().len() - 2;
    let inner = around(25910, &publish.tags, content);
    if publish.seal == Seal::Plain {
        return inner;
    }
    assert!(inner <= 65_535, "NIP-44 encrypts no more: {inner}");
    let padded = if inner <= 32 {
        32
    } else {
        let power = inner.next_power_of_two();
        let chunk = if power <= 256 { 32 } else { power / 8 };
        inner.div_ceil(chunk) * chunk
    };
    let sealed = (1 + 32 + 2 + padded + 32usize).div_ceil(3) * 4;
    around(21059, &[vec!["p".to_owned(), hex.clone()]], sealed)
}

/// A text of about `size` bytes.
pub(crate) fn text(kind: u64, size: usize) -> String {
    let unit = match kind % 4 {
        0 => "abcdefghijklmnopqrstuvwxyz0123456789",
        1 => "运输大消息🚢",
        2 => "\\\\\"\n",
        _ => "naïve — \u{1}\u{7f}é😀",
    };
    unit.repeat(size / unit.len() + 1)
}

/// A request that carries a text and asks for `answer` bytes.
pub(crate) fn call(id: u64, data: &str, answer: usize) -> String {
    let data = serde_json::Value::from(data);
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"echo","arguments":{{"answer":{answer},"data":{data}}}}}}}"#
    )
}

/// The response to such a request: as many bytes as it asks for, and the length of its text.
pub(crate) fn reply(request: &str, kind: u64) -> String {
    let request: serde_json::Value = serde_json::from_str(request).unwrap();
    if request["method"] == "ping" {
        return format!(
            r#"{{"jsonrpc":"2.0","id":{},"result":{{}}}}"#,
            request["id"]
        );
    }
    let arguments = &request["params"]["arguments"];
    let size = arguments["answer"].as_u64().unwrap() as usize;
    let heard = arguments["data"].as_str().unwrap().len();
    let text = serde_json::Value::from(text(kind, size));
    format!(
        r#"{{"jsonrpc":"2.0","id":{},"result":{{"heard":{heard},"text":{text}}}}}"#,
        request["id"]
    )
}
