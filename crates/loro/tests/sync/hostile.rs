//! One peer misbehaves among a thousand that do not.

use std::time::Duration;

use breakbulk_link::Frame;
use breakbulk_loro::{Backoff, Event, Node};
use breakbulk_message::loro::{ChannelMsg, Transmission, VersionVector};
use bytes::Bytes;

use super::common::{
    Raw, client_config, dial_in_memory, insert, node, server_config, until_text, within,
};

fn update(doc: &str, data: &'static [u8]) -> ChannelMsg {
    ChannelMsg::Update {
        doc_id: doc.into(),
        transmission: Transmission::Update {
            data: Bytes::from_static(data),
            version: VersionVector::new(),
        },
    }
}

/// Frames of one kind of misbehaviour, endlessly.
fn attack(kind: usize, number: u64) -> Frame {
    let bytes = match kind {
        // Garbage that is no transport payload, no frame, no CBOR.
        0 => vec![9; 100],
        1 => [&[0, 2, 0, 0, 0, 0, 4][..], b"\xff\xff\xff\xff"].concat(),
        // Headers of more than any message may have.
        2 => [&[1][..], &number.to_be_bytes(), &[0, 0, 0, 9], &[0xff; 4]].concat(),
        // Ever new batches that are never finished.
        3 => [&[1][..], &number.to_be_bytes(), &[0, 0, 0, 2, 0, 0, 0, 9]].concat(),
        // Changes that are none.
        _ => {
            let frame =
                breakbulk_message::loro::encode_frame(&update("d", b"loro\0\0\0\0 is not here"));
            [&[0][..], &frame.unwrap()].concat()
        }
    };
    Frame::Binary(bytes.into())
}

/// Edits of `a`, each of which must reach `b`.
async fn edits(a: &breakbulk_loro::Doc, b: &breakbulk_loro::Doc, rounds: usize) {
    for round in 0..rounds {
        let word = format!("{round};");
        insert(a, 0, &word);
        until_text(b, |text| text.starts_with(&word)).await;
    }
}

async fn idle(server: &Node, count: usize) -> Vec<Raw> {
    let mut peers = Vec::new();
    for number in 0..count {
        peers.push(Raw::established(server, &(10_000 + number).to_string()).await);
    }
    peers
}

// LORO-5
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hostile_peer_is_cut_off_and_the_others_do_not_notice() {
    let server = node(server_config());
    let peers = idle(&server, 1000).await;
    let (one, two) = (node(client_config()), node(client_config()));
    let _calls = (
        dial_in_memory(&one, &server, Backoff::default()),
        dial_in_memory(&two, &server, Backoff::default()),
    );
    let (a, b) = (one.open("d").await.unwrap(), two.open("d").await.unwrap());
    within("a", a.sync()).await.unwrap();
    within("b", b.sync()).await.unwrap();
    let attacking = {
        let server = server.clone();
        tokio::spawn(async move {
            for kind in 0..5 {
                let mut raw = Raw::established(&server, "666").await;
                let mut number = 0;
                while number < 10_000 && raw.send(attack(kind, number)).await {
                    number += 1;
                }
                let (code, reason) = raw.closed().await;
                // What it costs the others is a count: whatever it sent after the cut was dropped unread.
                let (expected, begins) = match kind {
                    2 => (1009, "a message of 4294967295 bytes is over the limit"),
                    3 => (1013, "evicted"),
                    _ => (1008, "17 bad messages within a minute"),
                };
                assert_eq!(code, expected, "attack {kind}: {reason}");
                assert!(reason.starts_with(begins), "attack {kind}: {reason}");
                println!("attack {kind}: {reason}");
            }
        })
    };
    edits(&a, &b, 100).await;
    within("the attacks", attacking).await.unwrap();
    assert_eq!(server.connections(), 1002);
    drop(peers);
}

#[tokio::test]
async fn a_slow_reader_is_cut_off_and_nobody_waits_for_it() {
    let mut config = server_config();
    config.write_deadline = Duration::from_secs(2);
    let server = node(config);
    let doc = server.open("d").await.unwrap();
    let mut slow = Raw::established(&server, "5").await;
    slow.say(&ChannelMsg::SyncRequest {
        doc_id: "d".into(),
        requester_doc_version: VersionVector::new(),
        bidirectional: None,
        ephemeral: None,
    })
    .await;
    // The question for the document, then the answer.
    while !matches!(slow.hear().await, ChannelMsg::SyncResponse { .. }) {}
    let client = node(client_config());
    let _call = dial_in_memory(&client, &server, Backoff::default());
    let copy = client.open("d").await.unwrap();
    let blob = "x".repeat(100_000);
    // The slow one takes no frame from here on; the other gets every edit.
    for round in 0..100 {
        insert(&doc, 0, &format!("{round};{blob}"));
        until_text(&copy, |text| text.starts_with(&format!("{round};"))).await;
    }
    let (code, reason) = slow.closed().await;
    // Whoever reads nothing does not hear why either.
    assert!(matches!(code, 1006 | 1013), "{code} {reason}");
    assert_eq!(server.connections(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn peers_that_read_nothing_make_room_for_those_who_do() {
    let mut config = server_config();
    // Half of it may be queued, and nobody is disconnected but for the sake of others.
    config.budget = breakbulk_link::Budget::new(64 << 20);
    config.write_deadline = Duration::from_secs(3600);
    let budget = config.budget.clone();
    let server = node(config);
    let mut docs = Vec::new();
    for number in 0..6 {
        let doc = server.open(&format!("d{number}")).await.unwrap();
        insert(&doc, 0, &super::sizes::noise(12 << 20));
        doc.kept().await.unwrap();
        docs.push(doc);
    }
    let mut peers = Vec::new();
    for number in 0..12 {
        let mut raw = Raw::established(&server, &number.to_string()).await;
        let messages = (0..6).map(|doc| ChannelMsg::SyncRequest {
            doc_id: format!("d{}", (number + doc) % 6),
            requester_doc_version: VersionVector::new(),
            bidirectional: None,
            ephemeral: None,
        });
        let messages = messages.collect();
        raw.say(&ChannelMsg::Batch { messages }).await;
        peers.push(raw);
    }
    let client = node(client_config());
    let _call = dial_in_memory(&client, &server, Backoff::default());
    for number in 0..6 {
        let copy = client.open(&format!("d{number}")).await.unwrap();
        within("a copy", copy.sync()).await.unwrap();
        assert_eq!(super::common::text(&copy).len(), 12 << 20);
    }
    assert!(budget.used() <= 64 << 20, "{} bytes", budget.used());
    drop(peers);
}

// LORO-22
#[tokio::test]
async fn a_message_that_does_not_arrive_is_told_to_its_sender() {
    let header = |key: u8, total: u32| {
        let count = 2u32.to_be_bytes();
        [&[1], &[key; 8][..], &count, &total.to_be_bytes()].concat()
    };
    let mut config = server_config();
    config.message = 1 << 20;
    let server = node(config);
    let mut raw = Raw::established(&server, "5").await;
    raw.send_bytes(header(1, 2 << 20)).await;
    let (code, reason) = raw.closed().await;
    let told = "a message of 2097152 bytes is over the limit of 1048576: raise --max-message of the receiver";
    assert_eq!((code, reason.as_str()), (1009, told));
    // The table of unfinished messages is full: the oldest is dropped for a newer one.
    let mut raw = Raw::established(&server, "5").await;
    for key in 0..33 {
        raw.send_bytes(header(key, 1000)).await;
    }
    let (code, reason) = raw.closed().await;
    let told = "evicted to make room for a newer transfer";
    assert_eq!((code, reason.as_str()), (1013, told));
}

// LORO-5
#[tokio::test]
async fn a_bad_update_fails_alone() {
    let server = node(server_config());
    let mut events = server.events();
    let mut raw = Raw::established(&server, "5").await;
    raw.say(&update("d", b"no changes at all")).await;
    let fault = within("a fault", async {
        loop {
            if let Event::Fault { reason, .. } = events.recv().await.unwrap() {
                return reason;
            }
        }
    })
    .await;
    assert!(
        fault.starts_with("the changes of document \"d\" cannot be read ("),
        "{fault}"
    );
    // It still is served.
    raw.say(&ChannelMsg::DirectoryRequest { doc_ids: None })
        .await;
    let answer = raw.hear().await;
    assert!(
        matches!(answer, ChannelMsg::DirectoryResponse { .. }),
        "{answer:?}"
    );
}

// LORO-5
#[tokio::test]
async fn a_snapshot_damaged_anywhere_does_no_harm() {
    let mut config = server_config();
    config.limits.faults = u32::MAX;
    let server = node(config);
    let doc = server.open("d").await.unwrap();
    insert(&doc, 0, "safe");
    doc.kept().await.unwrap();
    let other = loro::LoroDoc::new();
    other
        .get_text("text")
        .insert(0, &"hello ".repeat(50))
        .unwrap();
    other.get_map("m").insert("k", 5).unwrap();
    other.commit();
    let mut raw = Raw::established(&server, "5").await;
    for mode in [loro::ExportMode::Snapshot, loro::ExportMode::all_updates()] {
        let good = other.export(mode).unwrap();
        for at in (0..good.len()).step_by(3) {
            let mut bad = good.clone();
            bad[at] ^= 0x55;
            raw.say(&ChannelMsg::Update {
                doc_id: "d".into(),
                transmission: Transmission::Snapshot {
                    data: bad.into(),
                    version: VersionVector::new(),
                },
            })
            .await;
        }
    }
    raw.say(&ChannelMsg::DirectoryRequest { doc_ids: None })
        .await;
    while !matches!(raw.hear().await, ChannelMsg::DirectoryResponse { .. }) {}
    insert(&doc, 0, "still ");
    doc.kept().await.unwrap();
    assert!(doc.loro().get_text("text").to_string().contains("safe"));
}
