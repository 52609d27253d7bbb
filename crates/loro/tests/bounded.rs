//! Tests of the sync machine alone: what one frame of a peer may cause is bounded by [`Limits`].
#![allow(clippy::unwrap_used, reason = "a test may")]

use std::sync::Arc;
use std::time::Instant;

use breakbulk_loro::machine::{
    ChannelId, EMPTY_SNAPSHOT, Finished, Head, Hub, Opening, Outcome, Output, TaskId, Work,
};
use breakbulk_loro::{DocId, Limits, OpenToAll};
use breakbulk_message::loro::{
    ChannelMsg, PeerIdentity, PeerType, Transmission, VersionVector, encode_frame,
};
use bytes::Bytes;

fn version(counter: i32) -> VersionVector {
    [(1, counter)].into_iter().collect()
}

fn sync_request(doc: &str) -> ChannelMsg {
    ChannelMsg::SyncRequest {
        doc_id: doc.into(),
        requester_doc_version: VersionVector::new(),
        bidirectional: Some(true),
        ephemeral: None,
    }
}

fn batch(messages: Vec<ChannelMsg>) -> ChannelMsg {
    ChannelMsg::Batch { messages }
}

/// The machine, and what it put out.
struct Bench {
    hub: Hub,
    tasks: Vec<(TaskId, DocId, Work)>,
    sent: Vec<(ChannelId, ChannelMsg)>,
    bytes: usize,
    closed: Vec<(ChannelId, u16, String)>,
    cancelled: Vec<TaskId>,
    /// Channels whose queue length the machine wants to be told.
    waiting: Vec<ChannelId>,
    tokens: u64,
}

impl Bench {
    fn new(docs: usize, size: u64) -> Self {
        Self::with(Limits::default(), docs, size)
    }

    fn with(limits: Limits, docs: usize, size: u64) -> Self {
        let kept = (0..docs).map(|number| {
            let version = version(3);
            (format!("document {number}").into(), Head { version, size })
        });
        let me = PeerIdentity {
            peer_id: "1000".into(),
            name: None,
            kind: PeerType::Service,
        };
        Self {
            hub: Hub::new(me, limits, Arc::new(OpenToAll), kept),
            tasks: Vec::new(),
            sent: Vec::new(),
            bytes: 0,
            closed: Vec::new(),
            cancelled: Vec::new(),
            waiting: Vec::new(),
            tokens: 0,
        }
    }

    fn take(&mut self) {
        while let Some(output) = self.hub.poll_output() {
            match output {
                Output::Send { to, message, .. } => {
                    let size = encode_frame(&message).unwrap().len();
                    self.bytes += size * to.len();
                    let each = to.into_iter().map(|to| (to, message.clone()));
                    self.sent.extend(each);
                }
                Output::Task { id, doc, work, .. } => self.tasks.push((id, doc, work)),
                Output::Close {
                    channel,
                    code,
                    reason,
                } => self.closed.push((channel, code, reason)),
                Output::Cancel { id } => self.cancelled.push(id),
                Output::WaitForRoom { channel, .. } => self.waiting.push(channel),
                Output::Settle { .. } | Output::Event(_) => {}
            }
        }
    }

    fn say(&mut self, channel: ChannelId, message: ChannelMsg) {
        self.tokens += 1;
        let (now, token) = (Instant::now(), self.tokens);
        self.hub.handle_frame(now, channel, token, vec![message]);
        self.take();
    }

    fn peer(&mut self) -> ChannelId {
        let opening = Opening {
            claim: "somebody".into(),
            subject: None,
            dialed: false,
            sends_establish: false,
        };
        let channel = self.hub.open(Instant::now(), opening);
        let identity = PeerIdentity {
            peer_id: "7".into(),
            name: None,
            kind: PeerType::User,
        };
        self.say(channel, ChannelMsg::EstablishRequest { identity });
        channel
    }

    /// The peer reads everything in its queue.
    fn read(&mut self, channel: ChannelId) {
        while let Some(at) = self.waiting.iter().position(|waiting| *waiting == channel) {
            self.waiting.remove(at);
            self.hub.handle_queue(channel, 0, 0);
            self.take();
        }
    }

    /// A peer that has read its greeting.
    fn greeted(&mut self) -> ChannelId {
        let channel = self.peer();
        self.read(channel);
        self.sent.clear();
        self.bytes = 0;
        channel
    }

    /// Finishes all tasks; each export has this many bytes.
    fn work(&mut self, bytes: usize) {
        for (id, _, work) in std::mem::take(&mut self.tasks) {
            let data = Bytes::from(vec![0; bytes]);
            let version = version(3);
            let snapshot = Transmission::Snapshot { data, version };
            let outcome = match work {
                Work::Answer { .. } => Outcome::Answer(snapshot),
                _ => Outcome::Imported(None),
            };
            let version = self::version(3);
            let finished = Finished {
                head: Head {
                    version,
                    size: bytes as u64,
                },
                local: None,
                result: Ok(outcome),
            };
            self.hub.handle_done(Instant::now(), id, finished);
            self.take();
        }
    }
}

// LORO-11
#[test]
fn a_batch_of_equal_requests_is_one_answer() {
    let mut bench = Bench::new(1, 84 << 20);
    let channel = bench.greeted();
    bench.say(channel, batch(vec![sync_request("document 0"); 500]));
    assert_eq!(bench.tasks.len(), 1, "exports of one document");
    bench.work(1 << 20);
    assert_eq!(bench.sent.len(), 1);
    assert!(bench.bytes < 2 << 20, "{} bytes", bench.bytes);
}

// LORO-11
#[test]
fn a_large_answer_that_is_not_read_yet_answers_the_same_request_again() {
    let mut bench = Bench::new(1, 40 << 20);
    let channel = bench.greeted();
    // The response of a peer that has nothing, which it sends before its own request.
    let nothing = || ChannelMsg::SyncResponse {
        doc_id: "document 0".into(),
        transmission: Transmission::Snapshot {
            data: Bytes::from_static(EMPTY_SNAPSHOT),
            version: VersionVector::new(),
        },
        ephemeral: None,
    };
    let mut snapshots = 0;
    for round in 0..10 {
        // The peer asks again while the document is exported, and while it is sent.
        bench.say(channel, sync_request("document 0"));
        bench.say(channel, batch(vec![nothing(), sync_request("document 0")]));
        bench.work(40 << 20);
        bench.say(channel, batch(vec![nothing(), sync_request("document 0")]));
        bench.work(40 << 20);
        let large =
            |(_, message): &(ChannelId, ChannelMsg)| encode_frame(message).unwrap().len() > 1 << 20;
        snapshots += bench.sent.iter().filter(|sent| large(sent)).count();
        bench.sent.clear();
        assert_eq!(snapshots, 1, "round {round}");
    }
    // After reading the response the peer can ask again.
    bench.read(channel);
    bench.say(channel, sync_request("document 0"));
    assert_eq!(bench.tasks.len(), 1);
}

// LORO-11
#[test]
fn a_request_behind_an_answer_without_news_is_answered_too() {
    let mut bench = Bench::new(2, 100);
    let (author, channel) = (bench.greeted(), bench.greeted());
    // The queue is so long that the machine asks to be told when it is shorter.
    bench.say(channel, sync_request("document 1"));
    bench.work(Limits::default().queue_bytes / 4 * 3);
    assert_eq!(bench.waiting, [channel]);
    bench.sent.clear();
    // Another peer's change is being stored, so that the response has to be made by a task.
    let update = ChannelMsg::Update {
        doc_id: "document 0".into(),
        transmission: Transmission::Update {
            data: Bytes::from_static(b"x"),
            version: version(4),
        },
    };
    bench.say(author, update);
    let request = || ChannelMsg::SyncRequest {
        doc_id: "document 0".into(),
        requester_doc_version: version(3),
        bidirectional: Some(false),
        ephemeral: None,
    };
    for round in 0..3 {
        bench.say(channel, request());
        for (id, _, work) in std::mem::take(&mut bench.tasks) {
            let version = version(3);
            let finished = Finished {
                head: Head {
                    version: version.clone(),
                    size: 100,
                },
                local: None,
                result: Ok(match work {
                    Work::Answer { .. } => Outcome::Answer(Transmission::UpToDate { version }),
                    _ => Outcome::Imported(None),
                }),
            };
            bench.hub.handle_done(Instant::now(), id, finished);
            bench.take();
        }
        let answered = std::mem::take(&mut bench.sent);
        let [(to, ChannelMsg::SyncResponse { .. })] = &answered[..] else {
            panic!("round {round}: {answered:?}");
        };
        assert_eq!(*to, channel, "round {round}");
    }
}

#[test]
fn large_answers_are_made_one_after_the_other() {
    let mut bench = Bench::new(500, 84 << 20);
    let channel = bench.greeted();
    let all = (0..500).map(|number| sync_request(&format!("document {number}")));
    bench.say(channel, batch(all.collect()));
    assert_eq!(bench.tasks.len(), 1, "large exports at a time");
}

#[test]
fn a_batch_of_directory_requests_is_one_listing() {
    let mut bench = Bench::new(10_000, 100);
    let channel = bench.greeted();
    let ask = ChannelMsg::DirectoryRequest { doc_ids: None };
    bench.say(channel, batch(vec![ask; 4095]));
    assert!(bench.sent.len() < 10, "{} responses", bench.sent.len());
    assert!(bench.bytes < 4 << 20, "{} bytes", bench.bytes);
}

#[test]
fn a_batch_of_changes_is_worked_on_a_few_at_a_time() {
    let mut bench = Bench::new(1, 100);
    let channel = bench.greeted();
    let update = ChannelMsg::Update {
        doc_id: "document 0".into(),
        transmission: Transmission::Update {
            data: Bytes::from_static(b"x"),
            version: version(4),
        },
    };
    bench.say(channel, batch(vec![update; 4000]));
    let mut worked = 0;
    while !bench.tasks.is_empty() {
        assert!(bench.tasks.len() <= 64, "{} tasks", bench.tasks.len());
        worked += bench.tasks.len();
        bench.work(100);
    }
    assert_eq!(worked, 4000, "and all of them in the end");
}

#[test]
fn a_large_store_is_greeted_in_pieces() {
    let mut bench = Bench::new(100_000, 100);
    let channel = bench.peer();
    let most = Limits::default().queue_messages;
    assert!(bench.sent.len() <= most, "{} at once", bench.sent.len());
    // A request is answered before the greeting ends.
    bench.sent.clear();
    bench.hub.handle_queue(channel, most - 1, 0);
    bench.say(channel, sync_request("document 99999"));
    bench.work(100);
    assert!(matches!(
        bench.sent[..],
        [(_, ChannelMsg::Batch { .. }), ..] | [_, (_, ChannelMsg::Batch { .. }), ..]
    ));
    bench.read(channel);
    assert!(bench.closed.is_empty(), "{:?}", bench.closed);
    let asked = bench.sent.iter();
    let asked = asked.filter(|(_, message)| matches!(message, ChannelMsg::SyncRequest { .. }));
    assert!(asked.count() > 99_000);
}

// LORO-11
#[test]
fn changes_for_a_peer_that_does_not_read_are_merged() {
    let mut bench = Bench::new(1, 100);
    let (author, slow) = (bench.greeted(), bench.greeted());
    bench.say(slow, sync_request("document 0"));
    bench.work(100);
    bench.sent.clear();
    for counter in 4..5000 {
        let update = Transmission::Update {
            data: Bytes::from_static(b"x"),
            version: version(counter),
        };
        let message = ChannelMsg::Update {
            doc_id: "document 0".into(),
            transmission: update.clone(),
        };
        bench.say(author, message);
        let (id, ..) = bench.tasks.remove(0);
        let head = Head {
            version: version(counter),
            size: 100,
        };
        let finished = Finished {
            head,
            local: None,
            result: Ok(Outcome::Imported(Some(update))),
        };
        bench.hub.handle_done(Instant::now(), id, finished);
        bench.take();
    }
    let told = bench.sent.len();
    assert!(told <= Limits::default().queue_messages, "{told}");
    assert!(bench.closed.is_empty(), "{:?}", bench.closed);
    // The peer gets the rest as one update, from the first change that it was not sent.
    bench.read(slow);
    let [(_, _, Work::Answer { since })] = &bench.tasks[..] else {
        panic!("{:?}", bench.tasks);
    };
    assert_eq!(*since, version(3 + told as i32));
    bench.sent.clear();
    bench.work(100);
    assert!(matches!(bench.sent[..], [(_, ChannelMsg::Update { .. })]));
}

// LORO-37
#[test]
fn changes_that_keep_coming_do_not_keep_a_request_waiting() {
    let limits = Limits::default().with(|limits| limits.tasks = 2);
    let mut bench = Bench::with(limits, 1, 100);
    let channel = bench.greeted();
    let change = || ChannelMsg::Update {
        doc_id: "document 0".into(),
        transmission: Transmission::Update {
            data: Bytes::from_static(b"changes"),
            version: version(4),
        },
    };
    bench.say(channel, batch(vec![change(); 5]));
    bench.say(channel, sync_request("document 0"));
    let exports = |bench: &Bench| {
        let works = bench.tasks.iter().map(|(.., work)| work);
        works
            .filter(|work| matches!(work, Work::Answer { .. }))
            .count()
    };
    for round in 0..2 {
        assert_eq!(exports(&bench), 0, "its own changes come first: {round}");
        // The peer sends as many further changes as are worked on.
        bench.say(channel, batch(vec![change(); 2]));
        bench.work(100);
    }
    assert_eq!(exports(&bench), 1, "all that came before it was given out");
}

// LORO-13
#[test]
fn equal_exports_for_many_peers_are_made_once_and_end_with_the_last() {
    let mut bench = Bench::new(1, 84 << 20);
    let peers: Vec<ChannelId> = (0..50).map(|_| bench.greeted()).collect();
    for peer in &peers {
        bench.say(*peer, sync_request("document 0"));
    }
    assert_eq!(bench.tasks.len(), 1);
    let (last, others) = peers.split_last().unwrap();
    for peer in others {
        bench.hub.close(*peer);
    }
    bench.take();
    assert_eq!(bench.cancelled, [], "one still waits for it");
    bench.hub.close(*last);
    bench.take();
    assert_eq!(bench.cancelled, [bench.tasks[0].0]);
}

// LORO-14
#[test]
fn peers_that_do_not_read_leave_room_for_those_who_do() {
    let limits = Limits::default().with(|limits| limits.outbound_bytes = 128 << 20);
    let mut bench = Bench::with(limits, 50, 20 << 20);
    for number in 0..50 {
        let channel = bench.greeted();
        bench.say(channel, sync_request(&format!("document {number}")));
    }
    assert_eq!(bench.tasks.len(), 6, "as many as fit into the memory");
    assert!(bench.hub.is_starved());
    // The caller reports the memory in use, which gives waiting channels another chance.
    bench.hub.handle_outbound(120 << 20);
    assert!(bench.hub.is_starved());
    bench.hub.handle_outbound(0);
    bench.work(20 << 20);
    assert!(
        bench.tasks.is_empty(),
        "they are queued, and nothing is read"
    );
    // A small request is answered, whatever the others do.
    let mut names = bench.peer();
    bench.read(names);
    bench.sent.clear();
    bench.say(names, ChannelMsg::DirectoryRequest { doc_ids: None });
    assert_eq!(bench.sent.len(), 1);
    // The memory is free again: the next exports start.
    bench.hub.handle_outbound(0);
    bench.take();
    assert_eq!(bench.tasks.len(), 6);
    names = bench.peer();
    bench.hub.close(names);
}

// LORO-12
#[test]
fn names_that_nobody_has_do_not_fill_the_table() {
    let limits = Limits::default().with(|limits| {
        limits.empty_documents = 100;
        limits.empty_share = 10;
    });
    let mut bench = Bench::with(limits, 0, 0);
    let mut attackers = Vec::new();
    for connection in 0..5 {
        let channel = bench.greeted();
        let all = (0..500).map(|number| sync_request(&format!("{connection} {number}")));
        bench.say(channel, batch(all.collect()));
        attackers.push(channel);
    }
    assert_eq!(bench.hub.documents().count(), 100 + 4 * 10);
    // Another peer can still create a document.
    let honest = bench.greeted();
    bench.sent.clear();
    bench.say(honest, sync_request("mine"));
    assert!(bench.hub.head("mine").is_some());
    for channel in attackers {
        bench.hub.close(channel);
    }
    bench.take();
    assert_eq!(bench.hub.documents().count(), 1);
}

// LORO-12
#[test]
fn new_documents_that_nobody_has_leave_nothing_behind() {
    let mut bench = Bench::new(0, 0);
    for connection in 0..20 {
        let channel = bench.greeted();
        let names = (0..1000).map(|number| format!("{connection} {number}"));
        let doc_ids = names.collect();
        bench.say(channel, ChannelMsg::NewDoc { doc_ids });
        // Updates without changes leave nothing behind either.
        bench.say(
            channel,
            ChannelMsg::Update {
                doc_id: format!("nothing {connection}"),
                transmission: Transmission::Unavailable,
            },
        );
        bench.hub.close(channel);
        bench.take();
    }
    assert_eq!(bench.hub.documents().count(), 0);
}
