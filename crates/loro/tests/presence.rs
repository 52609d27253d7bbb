//! Tests of ephemeral stores (presence) as the clients of the original use them: a client sends the whole
//! store with every heartbeat, the keys of other peers too, with the time of its own clock.
#![allow(clippy::unwrap_used, reason = "a test may")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use breakbulk_loro::machine::{ChannelId, Head, Hub, Opening, Output};
use breakbulk_loro::{DocId, Limits, OpenToAll};
use breakbulk_message::loro::{
    ChannelMsg, EphemeralEntry, EphemeralStore, PeerIdentity, PeerType, VersionVector,
};
use bytes::Bytes;

/// A key, its value (`None` if it is deleted), and its time.
type Key<'a> = (&'a str, Option<u8>, i64);

fn data(keys: &[Key<'_>]) -> Bytes {
    // Small numbers, encoded as loro does.
    let values: Vec<Option<[u8; 2]>> = keys.iter().map(|key| key.1.map(|n| [3, n * 2])).collect();
    let entries = keys.iter().zip(&values);
    let entries = entries.map(|((key, _, timestamp), value)| EphemeralEntry {
        key,
        value: value.as_ref().map(|value| &value[..]),
        timestamp: *timestamp,
    });
    EphemeralEntry::write_all(&entries.collect::<Vec<_>>())
}

fn store(peer_id: &str, keys: &[Key<'_>]) -> EphemeralStore {
    EphemeralStore {
        peer_id: peer_id.into(),
        data: data(keys),
        namespace: "presence".into(),
    }
}

fn told(hops_remaining: i64, stores: Vec<EphemeralStore>) -> ChannelMsg {
    ChannelMsg::Ephemeral {
        doc_id: "a".into(),
        hops_remaining,
        stores,
    }
}

struct Bench {
    hub: Hub,
    now: Instant,
    sent: Vec<(ChannelId, ChannelMsg)>,
    settled: Vec<Result<(), u16>>,
    waiting: Vec<ChannelId>,
    token: u64,
}

impl Bench {
    fn new(limits: Limits) -> Self {
        let head = Head {
            version: [(1, 3)].into_iter().collect(),
            size: 1,
        };
        let kept = [("a".into(), head)];
        Self {
            hub: Hub::new(identity("1000"), limits, Arc::new(OpenToAll), kept),
            now: Instant::now(),
            sent: Vec::new(),
            settled: Vec::new(),
            waiting: Vec::new(),
            token: 0,
        }
    }

    fn take(&mut self) {
        while let Some(output) = self.hub.poll_output() {
            match output {
                Output::Send { to, message, .. } => {
                    let each = to.into_iter().map(|to| (to, message.clone()));
                    self.sent.extend(each);
                }
                Output::Settle { outcome, .. } => {
                    self.settled.push(outcome.map_err(|refused| refused.status));
                }
                Output::WaitForRoom { channel, .. } => self.waiting.push(channel),
                _ => {}
            }
        }
    }

    fn say(&mut self, channel: ChannelId, message: ChannelMsg) {
        self.token += 1;
        let (now, token) = (self.now, self.token);
        self.hub.handle_frame(now, channel, token, vec![message]);
        self.take();
    }

    /// A peer subscribes to the document with these keys; returns the stores in the response.
    fn join(&mut self, peer_id: &str, keys: &[Key<'_>]) -> (ChannelId, Vec<EphemeralStore>) {
        let opening = Opening {
            claim: String::new(),
            subject: None,
            dialed: false,
            sends_establish: false,
        };
        let channel = self.hub.open(self.now, opening);
        let identity = identity(peer_id);
        self.say(channel, ChannelMsg::EstablishRequest { identity });
        let ephemeral = (!keys.is_empty()).then(|| vec![store(peer_id, keys)]);
        self.heard(channel);
        self.say(
            channel,
            ChannelMsg::SyncRequest {
                doc_id: "a".into(),
                requester_doc_version: [(1, 3)].into_iter().collect::<VersionVector>(),
                bidirectional: Some(false),
                ephemeral,
            },
        );
        let mut heard = self.heard(channel).into_iter();
        let Some(ChannelMsg::SyncResponse { ephemeral, .. }) = heard.next() else {
            panic!("no response");
        };
        self.settled.clear();
        (channel, ephemeral.unwrap_or_default())
    }

    fn leave(&mut self, channel: ChannelId) {
        self.hub.close(channel);
        self.take();
    }

    fn heard(&mut self, channel: ChannelId) -> Vec<ChannelMsg> {
        let all = std::mem::take(&mut self.sent).into_iter();
        let (his, others) = all.partition(|(to, _)| *to == channel);
        self.sent = others;
        let his: Vec<(ChannelId, ChannelMsg)> = his;
        his.into_iter().map(|(_, message)| message).collect()
    }
}

fn identity(peer_id: &str) -> PeerIdentity {
    PeerIdentity {
        peer_id: peer_id.into(),
        name: None,
        kind: PeerType::User,
    }
}

// LORO-25
#[test]
fn a_peer_that_leaves_is_gone_for_those_who_are_there_and_for_newcomers() {
    let mut bench = Bench::new(Limits::default());
    let (one, _) = bench.join("7", &[("7", Some(1), 100)]);
    let (two, heard) = bench.join("8", &[("8", Some(2), 105)]);
    let both = [("7", Some(1), 100), ("8", Some(2), 105)];
    assert_eq!(heard, [store("1000", &both)]);
    let joined = told(0, vec![store("8", &[("8", Some(2), 105)])]);
    assert_eq!(bench.heard(one), [joined], "a newcomer is told to others");
    // Peer 8's heartbeat has peer 7's key as well, with a time of its own; only its own key is news.
    let beat = vec![store("8", &[("7", Some(1), 200), ("8", Some(2), 200)])];
    bench.say(two, told(1, beat));
    let passed_on = told(0, vec![store("8", &[("8", Some(2), 200)])]);
    assert_eq!(bench.heard(one), [passed_on]);
    bench.leave(one);
    let gone = told(0, vec![store("1000", &[("7", None, 201)])]);
    assert_eq!(bench.heard(two), [gone]);
    let (three, heard) = bench.join("9", &[]);
    assert_eq!(heard, [store("1000", &[("8", Some(2), 200)])]);
    // A late heartbeat does not restore a peer that left: its sender is corrected again.
    let late = vec![store("8", &[("7", Some(1), 300), ("8", Some(2), 300)])];
    bench.say(two, told(1, late));
    let again = told(0, vec![store("1000", &[("7", None, 301)])]);
    assert_eq!(bench.heard(two), [again]);
    let passed_on = told(0, vec![store("8", &[("8", Some(2), 300)])]);
    assert_eq!(bench.heard(three), [passed_on]);
    // A peer that returns is accepted again, although its clock is behind those of others.
    let (_, heard) = bench.join("7", &[("7", Some(5), 250)]);
    assert_eq!(
        heard,
        [store("1000", &[("7", Some(5), 302), ("8", Some(2), 300)])]
    );
    let back = told(0, vec![store("7", &[("7", Some(5), 302)])]);
    assert_eq!(bench.heard(two), [back]);
}

// LORO-25
#[test]
fn only_a_peer_itself_changes_the_key_with_its_id() {
    let mut bench = Bench::new(Limits::default());
    let (one, _) = bench.join("7", &[("7", Some(1), 100)]);
    let (two, _) = bench.join("8", &[]);
    bench.sent.clear();
    // (what another peer sends of this key, and the correction that it gets)
    for (said, corrected) in [
        (("7", Some(1), 200), None),
        (("7", Some(9), 150), None),
        (("7", Some(9), 300), Some(("7", Some(1), 301))),
        (("7", None, 400), Some(("7", Some(1), 401))),
    ] {
        bench.say(two, told(1, vec![store("8", &[said])]));
        let correction = corrected.map(|key| told(0, vec![store("1000", &[key])]));
        assert_eq!(bench.heard(two), Vec::from_iter(correction), "{said:?}");
        assert_eq!(bench.heard(one), [], "{said:?}");
    }
    // The peer's own change is accepted although its clock is behind.
    bench.say(one, told(1, vec![store("7", &[("7", Some(2), 110)])]));
    let news = told(0, vec![store("7", &[("7", Some(2), 402)])]);
    assert_eq!(bench.heard(two), [news]);
}

// LORO-25
#[test]
fn a_peer_with_another_connection_has_not_left() {
    let mut bench = Bench::new(Limits::default());
    let (one, _) = bench.join("7", &[("7", Some(1), 100)]);
    let (_, _) = bench.join("7", &[("7", Some(2), 200)]);
    let (other, _) = bench.join("8", &[]);
    bench.sent.clear();
    bench.leave(one);
    assert_eq!(bench.heard(other), []);
    let doc: DocId = "a".into();
    assert_eq!(
        bench.hub.ephemeral(&doc),
        [store("1000", &[("7", Some(2), 200)])]
    );
}

// LORO-25
#[test]
fn a_peer_that_reads_late_hears_of_whoever_left() {
    let limits = Limits::default().with(|limits| limits.queue_messages = 4);
    let mut bench = Bench::new(limits);
    let (slow, _) = bench.join("8", &[]);
    let (one, _) = bench.join("7", &[("7", Some(1), 100)]);
    for time in 0..10 {
        bench.say(
            one,
            told(1, vec![store("7", &[("7", Some(2), 200 + time)])]),
        );
    }
    bench.heard(slow);
    bench.leave(one);
    assert_eq!(bench.heard(slow), [], "its queue is full");
    bench.hub.handle_queue(slow, 0, 0);
    bench.take();
    let gone = told(0, vec![store("1000", &[("7", None, 210)])]);
    assert_eq!(bench.heard(slow), [gone]);
}

#[test]
fn own_keys_are_told_on_every_heartbeat_and_deleted_by_empty_data() {
    let mut bench = Bench::new(Limits::default());
    let (other, _) = bench.join("8", &[]);
    let doc: DocId = "a".into();
    let now = bench.now;
    let set = |bench: &mut Bench, data: &[u8]| {
        let set = bench.hub.set_ephemeral(now, &doc, "presence", data);
        bench.take();
        set
    };
    set(&mut bench, &data(&[("1000", Some(4), 100)])).unwrap();
    let own = told(1, vec![store("1000", &[("1000", Some(4), 100)])]);
    assert_eq!(bench.heard(other), std::slice::from_ref(&own));
    let beat = bench.hub.poll_timeout().unwrap();
    assert_eq!(beat, now + Duration::from_secs(10));
    bench.hub.handle_timeout(beat);
    bench.take();
    assert_eq!(bench.heard(other), [own]);
    // No peer can change this node's keys.
    bench.say(other, told(1, vec![store("8", &[("1000", Some(5), 900)])]));
    set(&mut bench, b"").unwrap();
    let gone = told(1, vec![store("1000", &[("1000", None, 101)])]);
    assert_eq!(bench.heard(other), [gone]);
    assert!(set(&mut bench, b"no store").is_err());
}

#[test]
fn what_is_not_refreshed_or_not_a_store_or_too_much_is_refused_or_forgotten() {
    let limits = Limits::default().with(|limits| {
        limits.stores = 3;
        limits.faults = 100;
    });
    let mut bench = Bench::new(limits);
    let (one, _) = bench.join("7", &[("7", Some(1), 100)]);
    let (other, _) = bench.join("8", &[]);
    let raw = |data: &'static [u8]| EphemeralStore {
        data: Bytes::from_static(data),
        ..store("7", &[])
    };
    let many: Vec<String> = (0..4).map(|number| format!("key {number}")).collect();
    let many: Vec<Key<'_>> = many.iter().map(|key| (key.as_str(), Some(1), 1)).collect();
    for (stores, outcome) in [
        (vec![raw(b"")], Ok(())),
        (vec![raw(b"no store")], Err(400)),
        (vec![store("7", &many)], Err(413)),
    ] {
        bench.say(one, told(1, stores));
        assert_eq!(bench.settled.pop(), Some(outcome));
    }
    let doc: DocId = "a".into();
    let keys = [
        ("7", Some(1), 100),
        ("key 0", Some(1), 1),
        ("key 1", Some(1), 1),
    ];
    assert_eq!(bench.hub.ephemeral(&doc), [store("1000", &keys)]);
    // Keys that nobody refreshes are forgotten; the peer's own key lasts as long as its connection.
    bench.sent.clear();
    bench
        .hub
        .handle_timeout(bench.now + Duration::from_secs(60));
    bench.take();
    assert_eq!(bench.heard(other), []);
    assert_eq!(bench.hub.ephemeral(&doc), [store("1000", &keys[..1])]);
    bench.leave(one);
    let gone = told(0, vec![store("1000", &[("7", None, 101)])]);
    assert_eq!(bench.heard(other), [gone]);
}
