//! The loro machine among hostile peers: whatever they send, what one input causes is bounded.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use breakbulk_loro::machine::{
    ChannelId, Finished, Head, Hub, Opening, Outcome, Output, TaskId, Work, WorkError,
};
use breakbulk_loro::{DocId, Limits, Rights};
use breakbulk_message::loro::{
    ChannelMsg, EphemeralStore, PeerIdentity, PeerType, Transmission, VersionVector, decode_frame,
    encode_frame,
};
use bytes::Bytes;

use crate::Input;

/// The most connections in one run; more find nothing new.
const CHANNELS: usize = 8;

/// The largest answer of a document.
const ANSWER: usize = 4 << 10;

/// What may be queued for a channel beyond its window: a message that began below it, and the exports that
/// were under way then.
const BEYOND: usize = 3 * (ANSWER + (8 << 10));

fn limits() -> Limits {
    Limits::default().with(|limits| {
        limits.documents = 16;
        limits.empty_documents = 4;
        limits.empty_share = 1;
        limits.doc_id = 32;
        limits.subscriptions = 12;
        limits.all_subscriptions = 40;
        limits.subscription_share = 2;
        limits.batch = 64;
        limits.stores = 4;
        limits.store_bytes = 2048;
        limits.tasks = 4;
        limits.answers = 2;
        limits.queue_messages = 8;
        limits.queue_bytes = 2048;
        limits.waiting_bytes = 8 << 10;
        limits.all_waiting_bytes = 32 << 10;
        limits.outbound_bytes = 64 << 10;
    })
}

/// Plays the steps, and checks every bound after each.
pub fn check(mut input: Input<'_>) {
    let mut world = World::new();
    for _ in 0..512 {
        if input.is_empty() {
            break;
        }
        world.step(&mut input);
        world.take();
    }
    world.end();
}

struct World {
    hub: Hub,
    limits: Limits,
    now: Instant,
    opened: usize,
    channels: Vec<ChannelId>,
    tasks: Vec<Task>,
    queues: BTreeMap<ChannelId, Queue>,
    /// Frames that are not settled.
    open_frames: BTreeSet<(ChannelId, u64)>,
    tokens: u64,
    local: Vec<DocId>,
    counter: i32,
}

struct Task {
    id: TaskId,
    doc: DocId,
    work: Work,
    origin: Option<(ChannelId, u64)>,
}

/// What waits for a peer to read, not counting the small replies to each of its own messages.
#[derive(Default)]
struct Queue {
    messages: usize,
    bytes: usize,
}

impl World {
    fn new() -> Self {
        let kept = ["a", "ab", "b"].map(|doc| {
            let version = [(1, 3)].into_iter().collect();
            (doc.into(), Head { version, size: 100 })
        });
        let rights = ["create:", "read:b", "delete:a"].iter();
        let rights: Rights = rights.filter_map(|rule| rule.parse().ok()).collect();
        Self {
            hub: Hub::new(identity("1000"), limits(), Arc::new(rights), kept),
            limits: limits(),
            now: Instant::now(),
            opened: 0,
            channels: Vec::new(),
            tasks: Vec::new(),
            queues: BTreeMap::new(),
            open_frames: BTreeSet::new(),
            tokens: 0,
            local: Vec::new(),
            counter: 3,
        }
    }

    fn step(&mut self, input: &mut Input<'_>) {
        match input.below(12) {
            0 if self.opened < CHANNELS => self.open(input),
            1 => {
                if let Some(channel) = self.channel(input) {
                    self.hub.close(channel);
                    self.forget(channel);
                }
            }
            2 => self.finish(input),
            3 => {
                if let Some(channel) = self.channel(input) {
                    self.queues.remove(&channel);
                    self.hub.handle_queue(channel, 0, 0);
                }
            }
            4 => self.hub.handle_outbound(usize::from(input.short())),
            5 => {
                self.now += Duration::from_secs(u64::from(input.byte()));
                self.hub.handle_timeout(self.now);
            }
            6 => {
                let doc = name(input).into();
                self.hub.open_document(&doc);
                self.local.push(doc);
            }
            7 => {
                let doc = name(input).into();
                match input.flag() {
                    true => self.hub.edited(&doc),
                    false => self.hub.delete(&doc),
                }
            }
            8 => self.hub.handle_recovered(),
            _ => {
                if let Some(channel) = self.channel(input) {
                    self.frame(channel, input);
                }
            }
        }
    }

    fn open(&mut self, input: &mut Input<'_>) {
        self.opened += 1;
        let dialed = input.flag();
        let opening = Opening {
            claim: "somebody".into(),
            subject: None,
            dialed,
            sends_establish: dialed,
        };
        let channel = self.hub.open(self.now, opening);
        self.channels.push(channel);
        if input.flag() {
            let identity = identity("7");
            self.say(channel, vec![ChannelMsg::EstablishRequest { identity }]);
        }
    }

    fn channel(&self, input: &mut Input<'_>) -> Option<ChannelId> {
        let number = input.below(CHANNELS);
        self.channels.get(number).copied()
    }

    fn forget(&mut self, channel: ChannelId) {
        self.channels.retain(|known| *known != channel);
        self.queues.remove(&channel);
        self.open_frames.retain(|(known, _)| *known != channel);
    }

    fn frame(&mut self, channel: ChannelId, input: &mut Input<'_>) {
        let messages = match input.flag() {
            true => match decode_frame(Bytes::copy_from_slice(input.slice())) {
                Ok(messages) => messages,
                Err(_) => return,
            },
            false => {
                let message = message(input);
                let times = input.byte();
                match times & 0xc0 {
                    0xc0 => vec![ChannelMsg::Batch {
                        messages: vec![message; usize::from(times & 0x3f)],
                    }],
                    _ => vec![message],
                }
            }
        };
        self.say(channel, messages);
    }

    fn say(&mut self, channel: ChannelId, messages: Vec<ChannelMsg>) {
        self.tokens += 1;
        self.open_frames.insert((channel, self.tokens));
        self.hub
            .handle_frame(self.now, channel, self.tokens, messages);
    }

    /// Finishes one task.
    fn finish(&mut self, input: &mut Input<'_>) {
        if self.tasks.is_empty() {
            return;
        }
        let Task { id, doc, work, .. } = self.tasks.remove(input.below(self.tasks.len()));
        let doc = doc.to_string();
        self.counter += 1;
        let version: VersionVector = [(1, self.counter)].into_iter().collect();
        let data = Bytes::from(vec![0; usize::from(input.short()) % ANSWER]);
        let update = Transmission::Update {
            data,
            version: version.clone(),
        };
        let reason = "no".to_owned();
        let result = match (input.byte() % 8, &work) {
            (0, _) => Err(WorkError::Garbage { doc, reason }),
            (1, _) => Err(WorkError::Store { reason }),
            (2, _) => Err(WorkError::Cancelled),
            (3, Work::Import { .. }) => Ok(Outcome::Gap),
            (4, Work::Import { .. }) => Ok(Outcome::Imported(None)),
            (3, Work::Others { .. }) => Ok(Outcome::Deleted(true)),
            (4, Work::Others { .. }) => Ok(Outcome::Imported(None)),
            (_, Work::Import { .. } | Work::Others { .. }) => {
                Ok(Outcome::Imported(Some(update.clone())))
            }
            (_, Work::Answer { .. }) => Ok(Outcome::Answer(update.clone())),
            (_, Work::Local) => Ok(Outcome::Local),
            (_, Work::Delete) => Ok(Outcome::Deleted(true)),
        };
        let size = match &result {
            Ok(Outcome::Deleted(_)) => 0,
            _ => u64::from(input.short()),
        };
        let head = match size {
            0 => Head::default(),
            size => Head { version, size },
        };
        let local = input.flag().then_some(update);
        let finished = Finished {
            head,
            local,
            result,
        };
        self.hub.handle_done(self.now, id, finished);
    }

    /// Takes the machine's outputs, and checks that they are not too many.
    fn take(&mut self) {
        while let Some(output) = self.hub.poll_output() {
            match output {
                Output::Send { to, message, .. } => {
                    let bytes = encode_frame(&message).map_or(0, |frame| frame.len());
                    for channel in to {
                        self.count(channel, &message, bytes);
                    }
                }
                Output::Task {
                    id,
                    doc,
                    work,
                    origin,
                } => self.tasks.push(Task {
                    id,
                    doc,
                    work,
                    origin,
                }),
                Output::Settle { channel, token, .. } => {
                    let known = self.open_frames.remove(&(channel, token));
                    assert!(known, "a frame is settled twice");
                }
                Output::Close { channel, .. } => self.forget(channel),
                Output::Cancel { id } => {
                    let known = self.tasks.iter().any(|task| task.id == id);
                    assert!(known, "a task is cancelled that is not there");
                }
                Output::WaitForRoom { .. } | Output::Event(_) => {}
            }
        }
        self.check_bounds();
    }

    fn count(&mut self, channel: ChannelId, message: &ChannelMsg, bytes: usize) {
        // A small reply to one small message of the peer, or the notice of a deletion.
        let reply = matches!(
            message,
            ChannelMsg::EstablishRequest { .. }
                | ChannelMsg::EstablishResponse { .. }
                | ChannelMsg::DeleteRequest { .. }
                | ChannelMsg::DeleteResponse { .. }
                | ChannelMsg::SyncResponse {
                    transmission: Transmission::Unavailable,
                    ..
                }
        );
        if !reply {
            let queue = self.queues.entry(channel).or_default();
            queue.messages += 1;
            queue.bytes += bytes;
        }
    }

    fn check_bounds(&self) {
        let limits = &self.limits;
        for channel in &self.channels {
            let tasks = self.tasks.iter();
            let tasks = tasks.filter(|task| task.origin.is_some_and(|(id, _)| id == *channel));
            assert!(tasks.count() <= limits.tasks, "too many tasks of a channel");
        }
        let answers = self.tasks.iter();
        let answers = answers.filter(|task| matches!(task.work, Work::Answer { .. }));
        assert!(answers.count() <= limits.answers * self.opened);
        for queue in self.queues.values() {
            let most = limits.queue_messages + limits.answers + 1;
            assert!(queue.messages <= most, "{} messages", queue.messages);
            let most = limits.queue_bytes + BEYOND;
            assert!(queue.bytes <= most, "{} bytes", queue.bytes);
        }
        let documents = self.hub.documents().count();
        let most = limits.documents
            + limits.empty_documents
            + limits.empty_share * self.opened
            // Documents with unfinished tasks, and those that the application has open.
            + self.tasks.len()
            + self.local.len();
        assert!(documents <= most, "{documents} documents");
    }

    /// All peers leave, all tasks end, the application closes its documents: no empty document is left.
    fn end(mut self) {
        for channel in std::mem::take(&mut self.channels) {
            self.hub.close(channel);
            self.forget(channel);
        }
        for doc in std::mem::take(&mut self.local) {
            self.hub.close_document(&doc);
        }
        self.take();
        while let Some(task) = self.tasks.pop() {
            let finished = Finished {
                head: Head::default(),
                local: None,
                result: Err(WorkError::Cancelled),
            };
            self.hub.handle_done(self.now, task.id, finished);
            self.take();
        }
        for (doc, head) in self.hub.documents() {
            assert_ne!(*head, Head::default(), "{doc} is left");
        }
    }
}

fn identity(peer_id: &str) -> PeerIdentity {
    PeerIdentity {
        peer_id: peer_id.into(),
        name: None,
        kind: PeerType::User,
    }
}

fn name(input: &mut Input<'_>) -> String {
    const NAMES: [&str; 8] = ["a", "ab", "b", "c", "d", "e", "f", ""];
    match input.byte() {
        byte @ ..128 => NAMES[usize::from(byte) % NAMES.len()].to_owned(),
        byte => format!("{byte}"),
    }
}

fn names(input: &mut Input<'_>) -> Vec<String> {
    (0..input.below(24)).map(|_| name(input)).collect()
}

fn version(input: &mut Input<'_>) -> VersionVector {
    [(1, i32::from(input.byte()))].into_iter().collect()
}

fn stores(input: &mut Input<'_>) -> Vec<EphemeralStore> {
    let store = |input: &mut Input<'_>| EphemeralStore {
        peer_id: input.below(4).to_string(),
        data: Bytes::copy_from_slice(input.slice()),
        namespace: "presence".into(),
    };
    (0..input.below(4)).map(|_| store(input)).collect()
}

fn transmission(input: &mut Input<'_>) -> Transmission {
    let (data, version) = (Bytes::copy_from_slice(input.slice()), version(input));
    match input.below(4) {
        0 => Transmission::UpToDate { version },
        1 => Transmission::Snapshot { data, version },
        2 => Transmission::Update { data, version },
        _ => Transmission::Unavailable,
    }
}

fn message(input: &mut Input<'_>) -> ChannelMsg {
    match input.below(10) {
        0 => ChannelMsg::EstablishRequest {
            identity: identity("7"),
        },
        1 => ChannelMsg::EstablishResponse {
            identity: identity("7"),
        },
        2 | 3 => ChannelMsg::SyncRequest {
            doc_id: name(input),
            requester_doc_version: version(input),
            bidirectional: Some(input.flag()),
            ephemeral: Some(stores(input)),
        },
        4 => ChannelMsg::SyncResponse {
            doc_id: name(input),
            transmission: transmission(input),
            ephemeral: None,
        },
        5 => ChannelMsg::Update {
            doc_id: name(input),
            transmission: transmission(input),
        },
        6 => ChannelMsg::DirectoryRequest {
            doc_ids: input.flag().then(|| names(input)),
        },
        7 => ChannelMsg::NewDoc {
            doc_ids: names(input),
        },
        8 => ChannelMsg::DeleteRequest {
            doc_id: name(input),
        },
        _ => ChannelMsg::Ephemeral {
            doc_id: name(input),
            hops_remaining: i64::from(input.byte()),
            stores: stores(input),
        },
    }
}
