//! Tests of one misbehaving peer among a thousand others.

use std::time::Duration;

use breakbulk_link::Frame;
use breakbulk_loro::{Backoff, Cut, Event, Node, Status};
use breakbulk_message::loro::{ChannelMsg, PeerIdentity, PeerType, Transmission, VersionVector};
use breakbulk_testkit::log::{Level, Log};
use bytes::Bytes;
use tokio::sync::broadcast;

use super::common::{
    Raw, client_config, dial_in_memory, established_raw, header, insert, node, server_config,
    until_text, within,
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

/// Frames of one kind of misbehaviour; `number` makes each different.
fn attack(kind: usize, number: u64) -> Frame {
    let bytes = match kind {
        // Garbage: neither a transport payload, nor a frame, nor CBOR.
        0 => vec![9; 100],
        1 => [&[0, 2, 0, 0, 0, 0, 4][..], b"\xff\xff\xff\xff"].concat(),
        // Headers of messages larger than any may be.
        2 => [&[1][..], &number.to_be_bytes(), &[0, 0, 0, 9], &[0xff; 4]].concat(),
        // New transfers that are never finished.
        3 => [&[1][..], &number.to_be_bytes(), &[0, 0, 0, 2, 0, 0, 0, 9]].concat(),
        // An update whose changes are invalid.
        _ => {
            let frame =
                breakbulk_message::loro::encode_frame(&update("d", b"loro\0\0\0\0 is not here"));
            [&[0][..], &frame.unwrap()].concat()
        }
    };
    Frame::Binary(bytes.into())
}

/// Edits `a` repeatedly; each edit must reach `b`.
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
                // For other peers an attack costs little: what it sent after the close was dropped unread.
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
    let log = Log::capture();
    let mut config = server_config();
    config.write_deadline = Duration::from_secs(2);
    let server = node(config);
    let doc = server.open("d").await.unwrap();
    let mut slow = Raw::established_and_silent(&server, "5").await;
    slow.say(&ChannelMsg::SyncRequest {
        doc_id: "d".into(),
        requester_doc_version: VersionVector::new(),
        bidirectional: None,
        ephemeral: None,
    })
    .await;
    // The sync-request of the server, then its response.
    while !matches!(slow.hear().await, ChannelMsg::SyncResponse { .. }) {}
    let client = node(client_config());
    let _call = dial_in_memory(&client, &server, Backoff::default());
    let copy = client.open("d").await.unwrap();
    let blob = "x".repeat(100_000);
    // The slow peer takes no frame from here on; the other client gets every edit.
    for round in 0..100 {
        insert(&doc, 0, &format!("{round};{blob}"));
        until_text(&copy, |text| text.starts_with(&format!("{round};"))).await;
    }
    let (code, reason) = slow.closed().await;
    // A peer that reads nothing may not read the reason of the close either.
    assert!(matches!(code, 1006 | 1013), "{code} {reason}");
    assert_eq!(server.connections(), 1);
    let line = [
        "connection closed by this node",
        "code=1013",
        "nothing was read for",
    ];
    log.wait_for(Level::INFO, &line).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn peers_that_read_nothing_make_room_for_those_who_do() {
    let mut config = server_config();
    // Half of the budget may be queued, and a peer is disconnected only if others need the memory.
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
    let too_large: &[Vec<u8>] = &[header(1, 2 << 20)];
    // The table of unfinished messages is full: the oldest one is dropped for a newer one.
    let too_many: Vec<_> = (0..33).map(|key| header(key, 1000)).collect();
    for (sent, code, reason) in [
        (
            too_large,
            1009,
            "a message of 2097152 bytes is over the limit of 1048576: raise --max-message of the receiver",
        ),
        (&too_many, 1013, "evicted to make room for a newer transfer"),
    ] {
        for dials in [false, true] {
            let log = Log::capture();
            let mut config = if dials {
                client_config()
            } else {
                server_config()
            };
            config.message = 1 << 20;
            let node = node(config);
            let (remote, mut raw) = match dials {
                true => {
                    let (remote, raw) = established_raw(&node).await;
                    (Some(remote), raw)
                }
                false => (None, Raw::established(&node, "5").await),
            };
            for frame in sent {
                raw.send_bytes(frame.clone()).await;
            }
            assert_eq!(raw.closed().await, (code, reason.to_owned()));
            let line = [
                "connection closed by this node",
                &format!("code={code}"),
                reason,
            ];
            log.assert_line(Level::INFO, &line);
            // The status of a client that reconnects shows why.
            if let Some(remote) = remote {
                let mut status = remote.status();
                let waits = status.wait_for(|status| matches!(status, Status::Waiting { .. }));
                let waits = within("another attempt", waits).await.unwrap().clone();
                let Status::Waiting { reason: why, .. } = &waits else {
                    panic!("{waits:?}");
                };
                assert!(why.to_string().contains(reason), "{why}");
            }
        }
    }
}

/// A cap that leaves no room for a piece: the first message that does not fit ends the connection.
#[tokio::test]
async fn a_cap_without_room_for_a_piece_ends_the_connection() {
    let log = Log::capture();
    let mut config = server_config();
    config.cuts.web_socket = Cut::Cap(10);
    let server = node(config);
    let mut raw = Raw::calling(&server).await;
    let identity = PeerIdentity {
        peer_id: "5".into(),
        name: None,
        kind: PeerType::User,
    };
    raw.say(&ChannelMsg::EstablishRequest { identity }).await;
    let (code, reason) = raw.closed().await;
    assert_eq!(code, 1009);
    assert_eq!(
        reason,
        "a message does not fit: a frame cap of 10 bytes leaves no room for data; it must be at least 17 bytes"
    );
    log.wait_for(
        Level::DEBUG,
        &["connection closed", "closed with 1009", &reason],
    )
    .await;
}

/// A server sends a frame that is not a message: the client reports it, and keeps the connection.
#[tokio::test]
async fn a_bad_message_of_a_server_is_an_event_of_the_client() {
    let client = node(client_config());
    let mut events = client.events();
    let (_remote, mut raw) = established_raw(&client).await;
    raw.send_bytes(&[9; 100][..]).await;
    let fault = next_fault(&mut events).await;
    assert_eq!(fault, "unknown kind of frame");
    // The server gets no reply to it, and the next message is answered as usual.
    let identity = PeerIdentity {
        peer_id: "1000".into(),
        name: None,
        kind: PeerType::Service,
    };
    raw.say(&ChannelMsg::EstablishRequest { identity }).await;
    let Some(Frame::Binary(answer)) = raw.next().await else {
        panic!("no message");
    };
    assert_eq!(answer[0], 0);
}

/// A connected peer gets this close when the server shuts down.
#[tokio::test]
async fn a_shutdown_is_told_by_1001() {
    let server = node(server_config());
    let mut raw = Raw::established(&server, "5").await;
    let (closed, ()) = tokio::join!(raw.closed(), server.shut_down(Duration::from_secs(5)));
    assert_eq!(closed, (1001, "Server shutting down".to_owned()));
}

async fn next_fault(events: &mut broadcast::Receiver<Event>) -> String {
    within("a fault", async {
        loop {
            if let Event::Fault { reason, .. } = events.recv().await.unwrap() {
                return reason;
            }
        }
    })
    .await
}

// LORO-5
#[tokio::test]
async fn a_bad_update_fails_alone() {
    let server = node(server_config());
    let mut events = server.events();
    let mut raw = Raw::established(&server, "5").await;
    raw.say(&update("d", b"no changes at all")).await;
    let fault = next_fault(&mut events).await;
    assert!(
        fault.starts_with("the changes of document \"d\" cannot be read ("),
        "{fault}"
    );
    let refused = loop {
        if let Some(Frame::Text(text)) = raw.next().await {
            break String::from_utf8(text.to_vec()).unwrap();
        }
    };
    assert_eq!(refused, format!("refused 400 1 d {fault}"));
    // The peer is still served.
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
