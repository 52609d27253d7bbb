//! Tests of the sync machine alone: responses, what is sent to other peers, and limits.
#![allow(clippy::unwrap_used, reason = "a test may")]

#[path = "machine/bench.rs"]
mod bench;
#[path = "machine/rights.rs"]
mod rights;

use std::time::Duration;

use breakbulk_loro::machine::{EMPTY_SNAPSHOT, Opening, Outcome, Work, WorkError};
use breakbulk_loro::{DocId, Limits, OpenToAll, OwnDocuments};
use breakbulk_message::loro::{
    ChannelMsg, EphemeralEntry, EphemeralStore, PeerIdentity, PeerType, Transmission, VersionVector,
};
use bytes::Bytes;

use bench::{Bench, identity, response, sync_request, update, version};
use rights::Guarded;

#[test]
fn an_establish_request_is_answered_and_every_document_asked_for() {
    let mut bench = Bench::new(OpenToAll, Limits::default(), &[("a", 3), ("b", 0)]);
    let channel = bench.stranger();
    let identity = identity("7");
    bench.say(channel, ChannelMsg::EstablishRequest { identity });
    let me = PeerIdentity {
        peer_id: "1000".into(),
        name: None,
        kind: PeerType::User,
    };
    let expected = [
        ChannelMsg::EstablishResponse { identity: me },
        sync_request("a", 3, true),
        sync_request("b", 0, true),
    ];
    assert_eq!(bench.heard(channel), expected);
    assert_eq!(bench.settled, [Ok(())]);
}

#[test]
fn a_sync_request_is_answered_by_what_the_asker_has() {
    let up_to_date = |counter| {
        response(
            "a",
            Transmission::UpToDate {
                version: version(counter),
            },
        )
    };
    let cases: [(i32, bool, Option<ChannelMsg>); 4] = [
        // (the peer's version, whether it wants to be asked in return, the response if nothing is exported)
        (3, false, Some(up_to_date(3))),
        (9, false, Some(up_to_date(3))),
        (
            3,
            true,
            Some(ChannelMsg::Batch {
                messages: vec![up_to_date(3), sync_request("a", 3, false)],
            }),
        ),
        (1, true, None),
    ];
    for (has, bi, answer) in cases {
        let mut bench = Bench::new(OpenToAll, Limits::default(), &[("a", 3)]);
        let channel = bench.peer("7");
        bench.say(channel, sync_request("a", has, bi));
        match answer {
            Some(answer) => assert_eq!(bench.heard(channel), [answer]),
            None => {
                let work = Work::Answer {
                    since: version(has),
                };
                assert_eq!(bench.tasks[0].2, work);
                assert!(bench.settled.is_empty(), "settled before it was answered");
                bench.done(3, Ok(Outcome::Answer(update(3))));
                let messages = vec![response("a", update(3)), sync_request("a", 3, false)];
                assert_eq!(bench.heard(channel), [ChannelMsg::Batch { messages }]);
            }
        }
        assert_eq!(bench.settled, [Ok(())]);
    }
}

// LORO-23
#[test]
fn a_peer_that_does_not_establish_is_asked_to() {
    let greeting = || ChannelMsg::EstablishRequest {
        identity: identity("1000"),
    };
    // The peer only listens, as a polling client does when its server was restarted.
    let mut bench = Bench::new(OpenToAll, Limits::default(), &[("a", 3)]);
    let silent = bench.stranger();
    bench.take();
    assert_eq!(
        bench.hub.poll_timeout(),
        Some(bench.now + Duration::from_secs(1))
    );
    bench.now += Duration::from_secs(1);
    bench.hub.handle_timeout(bench.now);
    bench.take();
    assert_eq!(bench.heard(silent), [greeting()]);
    // Or the peer goes on as if the connection were established.
    let sure = bench.stranger();
    for _ in 0..2 {
        bench.say(sure, sync_request("a", 0, true));
    }
    assert_eq!(bench.settled, [Err(400), Err(400)]);
    assert_eq!(bench.heard(sure), [greeting()], "once");
    // The peer's answer establishes the channel.
    let response = ChannelMsg::EstablishResponse {
        identity: identity("7"),
    };
    bench.say(sure, response);
    assert_eq!(bench.heard(sure), [sync_request("a", 3, true)]);
    // A peer that establishes in time gets no establish-request.
    let quick = bench.peer("8");
    bench.now += Duration::from_secs(1);
    bench.hub.handle_timeout(bench.now);
    bench.take();
    assert_eq!(bench.heard(quick), []);
}

// LORO-21
#[test]
fn a_peer_that_has_nothing_gets_a_snapshot_even_of_an_empty_document() {
    let empty = Transmission::Snapshot {
        data: Bytes::from_static(EMPTY_SNAPSHOT),
        version: version(0),
    };
    // (peer, document, whether it wants to be asked in return, whether it is)
    for (peer_id, doc, bi, asked) in [
        ("1", "new", true, true),
        ("1", "new", false, false),
        ("1", "empty", true, true),
        ("7", "empty", true, false),
    ] {
        let mut bench = Bench::new(Guarded, Limits::default(), &[]);
        let held = bench.peer("1");
        bench.say(held, sync_request("empty", 0, false));
        let channel = bench.peer(peer_id);
        bench.say(channel, sync_request(doc, 0, bi));
        let answer = response(doc, empty.clone());
        let expected = match asked {
            true => ChannelMsg::Batch {
                messages: vec![answer, sync_request(doc, 0, false)],
            },
            false => answer,
        };
        assert_eq!(bench.heard(channel), [expected], "{peer_id} {doc} {bi}");
        assert!(bench.tasks.is_empty(), "nothing is exported for it");
    }
}

// LORO-21
#[test]
fn an_empty_snapshot_is_no_attempt_to_change() {
    let mut bench = Bench::new(Guarded, Limits::default(), &[("a", 0)]);
    let reader = bench.peer("7");
    let snapshot = |data| Transmission::Snapshot {
        data: Bytes::from_static(data),
        version: version(0),
    };
    bench.say(reader, response("a", snapshot(EMPTY_SNAPSHOT)));
    bench.say(reader, response("a", snapshot(b"something")));
    assert_eq!(bench.settled, [Ok(()), Err(403)]);
    let writer = bench.peer("1");
    bench.say(writer, response("a", snapshot(EMPTY_SNAPSHOT)));
    assert!(bench.tasks.is_empty(), "there is nothing to import");
}

// LORO-3
#[test]
fn an_update_is_told_to_others_only_once_it_is_kept() {
    let mut bench = Bench::new(OpenToAll, Limits::default(), &[("a", 3)]);
    let (from, other, stranger) = (bench.peer("7"), bench.peer("8"), bench.peer("9"));
    for channel in [from, other] {
        bench.say(channel, sync_request("a", 3, false));
    }
    bench.sent.clear();
    bench.settled.clear();
    let transmission = update(4);
    let message = ChannelMsg::Update {
        doc_id: "a".into(),
        transmission: transmission.clone(),
    };
    bench.say(from, message.clone());
    assert!(bench.sent.is_empty() && bench.settled.is_empty());
    bench.done(4, Ok(Outcome::Imported(Some(transmission))));
    assert_eq!(bench.heard(other), [message]);
    assert_eq!(bench.heard(from), []);
    assert_eq!(bench.heard(stranger), []);
    assert_eq!(bench.settled, [Ok(())]);
    // A change that is not new is settled, and sent to nobody.
    let message = ChannelMsg::Update {
        doc_id: "a".into(),
        transmission: update(4),
    };
    bench.say(from, message);
    bench.done(4, Ok(Outcome::Imported(None)));
    assert_eq!(bench.heard(other), []);
    assert_eq!(bench.settled.len(), 2);
}

// LORO-3
#[test]
fn answers_wait_behind_the_changes_that_came_before_them() {
    let mut bench = Bench::new(OpenToAll, Limits::default(), &[("a", 3)]);
    let channel = bench.peer("7");
    let message = ChannelMsg::Update {
        doc_id: "a".into(),
        transmission: update(4),
    };
    bench.say(channel, message);
    // The machine knows only version 3, and 4 is being stored: no response yet.
    bench.say(channel, sync_request("a", 4, false));
    assert_eq!(bench.heard(channel), []);
    bench.done(4, Ok(Outcome::Imported(Some(update(4)))));
    let version = version(4);
    bench.done(
        4,
        Ok(Outcome::Answer(Transmission::UpToDate {
            version: version.clone(),
        })),
    );
    let up_to_date = response("a", Transmission::UpToDate { version });
    assert_eq!(bench.heard(channel), [up_to_date]);
}

#[test]
fn a_new_document_is_told_to_those_who_do_not_know_it() {
    let mut bench = Bench::new(OpenToAll, Limits::default(), &[]);
    let (from, other) = (bench.peer("7"), bench.peer("8"));
    bench.say(from, sync_request("new", 4, true));
    assert_eq!(bench.heard(other), [], "there is nothing to tell of yet");
    bench.sent.clear();
    bench.say(from, response("new", update(4)));
    bench.done(4, Ok(Outcome::Imported(Some(update(4)))));
    // LORO-21: the peer that sent it learns that it is stored.
    let stored = Transmission::UpToDate {
        version: version(4),
    };
    assert_eq!(bench.heard(from), [response("new", stored)]);
    let doc_ids = vec!["new".to_owned()];
    assert_eq!(
        bench.heard(other),
        [ChannelMsg::NewDoc {
            doc_ids: doc_ids.clone()
        }]
    );
    // A document that a peer announces is requested from it.
    bench.say(
        other,
        ChannelMsg::NewDoc {
            doc_ids: vec!["theirs".into()],
        },
    );
    assert_eq!(bench.heard(other), [sync_request("theirs", 0, true)]);
}

/// A store with one key.
fn store(key: &str) -> EphemeralStore {
    EphemeralStore {
        peer_id: "7".into(),
        data: EphemeralEntry::write_all(&[EphemeralEntry {
            key,
            value: Some(b"\0"),
            timestamp: 1,
        }]),
        namespace: "presence".into(),
    }
}

#[test]
fn what_is_too_much_is_refused() {
    let limits = Limits::default().with(|limits| {
        limits.documents = 3;
        limits.doc_id = 8;
        limits.subscriptions = 2;
        limits.batch = 4;
        limits.version_entries = 2;
        limits.stores = 2;
        limits.store_bytes = 4096;
        limits.faults = 100;
    });
    let long = VersionVector::from_iter([(1, 1), (2, 1), (3, 1)]);
    let ask = |doc: &str| sync_request(doc, 0, false);
    let ephemeral = |stores| ChannelMsg::Ephemeral {
        doc_id: "a".into(),
        hops_remaining: 1,
        stores,
    };
    let nested = |count| ChannelMsg::Batch {
        messages: vec![ChannelMsg::DirectoryRequest { doc_ids: None }; count],
    };
    let stores = |count: usize| (0..count).map(|n| store(&n.to_string())).collect();
    let cases = [
        (ask("12345678"), Ok(())),
        (ask("123456789"), Err(400)),
        (ask(""), Err(400)),
        (ask("b"), Err(429)),
        (nested(3), Ok(())),
        (nested(4), Err(413)),
        (
            ChannelMsg::SyncRequest {
                doc_id: "a".into(),
                requester_doc_version: long,
                bidirectional: None,
                ephemeral: None,
            },
            Err(413),
        ),
        (ephemeral(stores(2)), Ok(())),
        (ephemeral(stores(3)), Err(413)),
        (
            ChannelMsg::NewDoc {
                doc_ids: vec!["x".into(); 3],
            },
            Err(413),
        ),
        (
            ChannelMsg::EstablishResponse {
                identity: identity("other"),
            },
            Err(400),
        ),
    ];
    for (message, outcome) in cases {
        let mut bench = Bench::new(OpenToAll, limits.clone(), &[("a", 0)]);
        let channel = bench.peer("7");
        for doc in ["a", "c"] {
            bench.say(channel, ask(doc));
        }
        let full =
            matches!(&message, ChannelMsg::SyncRequest { doc_id, .. } if doc_id == "12345678");
        if full {
            bench.hub.close(channel);
            let channel = bench.peer("7");
            bench.say(channel, message.clone());
        } else {
            bench.say(channel, message.clone());
        }
        assert_eq!(bench.settled.pop(), Some(outcome), "{message:?}");
    }
    // Before it is established a peer can send nothing else, and has limited time.
    let mut bench = Bench::new(OpenToAll, limits, &[("a", 0)]);
    let channel = bench.stranger();
    bench.say(channel, ask("a"));
    assert_eq!(bench.settled, [Err(400)]);
    bench
        .hub
        .handle_timeout(bench.now + Duration::from_secs(30));
    bench.take();
    assert_eq!(
        bench.closed,
        [(channel, 1008, "no establish-request within 30 s".to_owned())]
    );
}

#[test]
fn garbage_again_and_again_ends_the_connection() {
    let limits = Limits::default().with(|limits| limits.faults = 3);
    let mut bench = Bench::new(OpenToAll, limits, &[("a", 3)]);
    let channel = bench.peer("7");
    for round in 0..4 {
        bench.say(
            channel,
            ChannelMsg::Update {
                doc_id: "a".into(),
                transmission: update(4),
            },
        );
        let reason = "checksum".to_owned();
        bench.done(
            3,
            Err(WorkError::Garbage {
                doc: "a".into(),
                reason,
            }),
        );
        assert_eq!(bench.closed.len(), usize::from(round == 3), "round {round}");
    }
    assert_eq!(bench.settled, [Err(400), Err(400), Err(400)]);
    let (_, code, reason) = &bench.closed[0];
    assert_eq!(*code, 1008);
    assert_eq!(
        reason,
        "4 bad messages within a minute; the last: the changes of document \"a\" cannot be read \
         (checksum): sync it again"
    );
    assert_eq!(bench.hub.channels(), 0);
}

// LORO-4
#[test]
fn a_gap_is_asked_about_and_not_acknowledged() {
    let mut bench = Bench::new(OpenToAll, Limits::default(), &[("a", 3)]);
    let channel = bench.peer("7");
    bench.say(
        channel,
        ChannelMsg::Update {
            doc_id: "a".into(),
            transmission: update(9),
        },
    );
    bench.done(3, Ok(Outcome::Gap));
    assert_eq!(bench.heard(channel), [sync_request("a", 3, false)]);
    assert_eq!(bench.settled, [Err(409)]);
}

#[test]
fn a_client_asks_for_what_is_opened_and_takes_nothing_else() {
    let mut bench = Bench::new(OwnDocuments, Limits::default(), &[]);
    let opening = Opening {
        claim: String::new(),
        subject: None,
        dialed: true,
        sends_establish: true,
    };
    let server = bench.hub.open(bench.now, opening);
    bench.take();
    assert!(matches!(
        bench.heard(server)[..],
        [ChannelMsg::EstablishRequest { .. }]
    ));
    let doc: DocId = "mine".into();
    bench.hub.open_document(&doc);
    bench.take();
    assert_eq!(bench.heard(server), [], "not before the server answered");
    bench.say(
        server,
        ChannelMsg::EstablishResponse {
            identity: identity("1"),
        },
    );
    assert_eq!(bench.heard(server), [sync_request("mine", 0, true)]);
    bench.say(server, sync_request("theirs", 3, true));
    assert_eq!(
        bench.heard(server),
        [response("theirs", Transmission::Unavailable)]
    );
    bench.say(
        server,
        ChannelMsg::NewDoc {
            doc_ids: vec!["theirs".into()],
        },
    );
    assert_eq!(bench.heard(server), []);
    let later: DocId = "later".into();
    bench.hub.open_document(&later);
    bench.take();
    assert_eq!(bench.heard(server), [sync_request("later", 0, true)]);
}

// JET-8
#[test]
fn what_other_nodes_stored_while_the_store_failed_is_taken_over_later() {
    let mut bench = Bench::new(OpenToAll, Limits::default(), &[("doc", 1)]);
    let doc: DocId = "doc".into();
    bench.hub.changed_by_others(&doc);
    bench.take();
    let reason = "an earlier change could not be stored".to_owned();
    bench.done(1, Err(WorkError::Store { reason }));
    assert!(bench.tasks.is_empty());
    bench.hub.handle_recovered();
    bench.take();
    let since = version(1);
    assert_eq!(bench.tasks[0].2, Work::Others { since });
    bench.done(2, Ok(Outcome::Imported(Some(update(2)))));
    bench.hub.handle_recovered();
    bench.take();
    assert!(bench.tasks.is_empty(), "once");
}
