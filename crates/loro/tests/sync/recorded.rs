//! Replays the recorded WebSocket sessions against this project's server and client.

use breakbulk_link::Frame;
use breakbulk_loro::{Cut, Doc, Node};
use breakbulk_message::loro::{ChannelMsg, Transmission, decode_frame};
use bytes::Bytes;
use loro::LoroDoc;
use serde_json::Value;

use super::common::{
    Raw, client_config, dial_raw, insert, node, server_config, text, until_text, vectors,
};

fn cases() -> Vec<Value> {
    let file = vectors().join("transcript_ws.json");
    let text = std::fs::read_to_string(file).unwrap();
    serde_json::from_str::<Value>(&text)
        .unwrap()
        .as_array()
        .unwrap()
        .clone()
}

fn hex(text: &str) -> Bytes {
    let digits = text.as_bytes().chunks(2);
    digits
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

/// The messages that one side sent, each with its frames.
fn messages(case: &Value, from: &str) -> Vec<(ChannelMsg, Vec<Bytes>)> {
    let mut messages = Vec::new();
    let (mut whole, mut frames) = (Vec::new(), Vec::new());
    for line in case["log"].as_array().unwrap() {
        let Some(bytes) = line["hex"].as_str().filter(|_| line["from"] == from) else {
            continue;
        };
        let bytes = hex(bytes);
        match bytes[0] {
            0 => whole.extend_from_slice(&bytes[1..]),
            1 => {}
            _ => whole.extend_from_slice(&bytes[13..]),
        }
        frames.push(bytes);
        if line["is"] != "pending" {
            let mut decoded = decode_frame(std::mem::take(&mut whole).into()).unwrap();
            messages.push((decoded.remove(0), std::mem::take(&mut frames)));
        }
    }
    messages
}

/// Checks that two messages are the same; documents are compared by their content.
fn assert_same(ours: &ChannelMsg, recorded: &ChannelMsg, told: &str) {
    match (ours, recorded) {
        (ChannelMsg::Batch { messages: ours }, ChannelMsg::Batch { messages: recorded }) => {
            assert_eq!(ours.len(), recorded.len(), "{told}");
            for (ours, recorded) in ours.iter().zip(recorded) {
                assert_same(ours, recorded, told);
            }
        }
        _ => {
            let (ours, ours_bring) = without_data(ours.clone());
            let (recorded, recorded_bring) = without_data(recorded.clone());
            assert_eq!(ours, recorded, "{told}");
            assert_eq!(ours_bring, recorded_bring, "{told}");
        }
    }
}

fn without_data(mut message: ChannelMsg) -> (ChannelMsg, Option<String>) {
    let transmission = match &mut message {
        ChannelMsg::SyncResponse { transmission, .. } | ChannelMsg::Update { transmission, .. } => {
            transmission
        }
        _ => return (message, None),
    };
    let brings = match transmission {
        Transmission::Snapshot { data, .. } => {
            let bytes = std::mem::take(data);
            let doc = LoroDoc::new();
            doc.import(&bytes).unwrap();
            Some(doc.get_text("text").to_string())
        }
        // The bytes of an update are determined by its changes.
        Transmission::Update { data, .. } => Some(format!("{:02x?}", std::mem::take(data))),
        _ => None,
    };
    (message, brings)
}

/// Opens the document as a side has it before the session.
async fn prepared(node: &Node, peer: u64, content: &str) -> Doc {
    let doc = node.open("doc-1").await.unwrap();
    doc.loro().set_peer_id(peer).unwrap();
    if !content.is_empty() {
        insert(&doc, 0, content);
        doc.kept().await.unwrap();
    }
    doc
}

/// The texts that server and client have before each session.
fn content(name: &str) -> (&'static str, &'static str) {
    match name {
        "pull" | "pull_fragmented_threshold_64" => ("hello from the server", ""),
        "push" => ("", "hello from the client"),
        "both_then_edits" => ("S", "C"),
        other => panic!("an unknown session {other}"),
    }
}

#[tokio::test]
async fn our_server_answers_as_the_recorded_one() {
    for case in cases() {
        let name = case["name"].as_str().unwrap();
        let mut config = server_config();
        config.cuts.web_socket = Cut::Native(case["threshold"].as_u64().unwrap() as usize);
        let server = node(config);
        let doc = prepared(&server, 1000, content(name).0).await;
        let mut raw = Raw::calling(&server).await;
        let mut expected = messages(&case, "server").into_iter();
        // Each request is sent after the response to the one before it: the recorded client did not wait, but
        // its requests do not depend on the responses.
        let log = case["log"].as_array().unwrap();
        for (at, line) in log.iter().enumerate() {
            match (line["from"].as_str().unwrap(), line["hex"].as_str()) {
                ("client", Some(bytes)) => {
                    assert!(raw.send_bytes(hex(bytes)).await, "{name}");
                }
                ("server", Some(_)) if line["is"] == "channel/update:update" => {
                    until_text(&doc, |text| text == "ASC").await;
                    insert(&doc, 0, "B");
                    let (message, _) = expected.next().unwrap();
                    assert_same(&raw.hear().await, &message, &format!("{name}, line {at}"));
                }
                ("server", Some(_)) if line["is"] != "pending" => {
                    let (message, _) = expected.next().unwrap();
                    assert_same(&raw.hear().await, &message, &format!("{name}, line {at}"));
                }
                _ => {}
            }
        }
        assert_eq!(expected.next(), None, "{name}");
        let wanted = case["server_text"].as_str().unwrap();
        until_text(&doc, |text| text == wanted).await;
    }
}

#[tokio::test]
async fn our_clients_bytes_are_the_recorded_ones() {
    for case in cases() {
        let name = case["name"].as_str().unwrap();
        let mut config = client_config();
        config.cuts.web_socket = Cut::Native(case["threshold"].as_u64().unwrap() as usize);
        let client = node(config);
        let doc = prepared(&client, 2000, content(name).1).await;
        let (_remote, mut raw) = dial_raw(&client);
        let mut expected = messages(&case, "client").into_iter();
        for (at, line) in case["log"].as_array().unwrap().iter().enumerate() {
            let told = format!("{name}, line {at}");
            match (line["from"].as_str().unwrap(), line["hex"].as_str()) {
                ("server", None) => {
                    let ready = Bytes::from(line["text"].as_str().unwrap().to_owned());
                    assert!(raw.send(Frame::Text(ready)).await);
                }
                ("server", Some(bytes)) => assert!(raw.send_bytes(hex(bytes)).await, "{told}"),
                ("client", Some(_)) if line["is"] != "pending" => {
                    if line["is"] == "channel/update:update" {
                        until_text(&doc, |text| text == "SC").await;
                        insert(&doc, 0, "A");
                    }
                    let (message, frames) = expected.next().unwrap();
                    let (ours, our_frames) = raw.hear_frames().await;
                    assert_same(&ours, &message, &told);
                    assert_same_bytes(&our_frames, &frames, &message, &told);
                }
                _ => {}
            }
        }
        assert_eq!(expected.next(), None, "{name}");
        let wanted = case["client_text"].as_str().unwrap();
        until_text(&doc, |text| text == wanted).await;
        assert_eq!(text(&doc), wanted);
    }
}

// LORO-21
#[test]
fn the_snapshot_of_nothing_is_what_loro_exports() {
    let nothing = LoroDoc::new();
    let exported = nothing.export(loro::ExportMode::Snapshot).unwrap();
    assert_eq!(exported, breakbulk_loro::machine::EMPTY_SNAPSHOT);
    nothing.import(&exported).unwrap();
    assert!(nothing.oplog_vv().is_empty());
}

#[test]
fn recorded_payloads_are_read() {
    let file = vectors().join("loro_payloads.json");
    let case: Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    let field = |name: &str| case[name].as_str().unwrap();
    let doc = LoroDoc::new();
    for (data, version, text) in [
        ("snapshot", "version_after_snapshot", "text_after_snapshot"),
        (
            "update_from_v1",
            "version_after_update",
            "text_after_update",
        ),
    ] {
        doc.import(&hex(field(data))).unwrap();
        assert_eq!(doc.get_text("text").to_string(), field(text));
        assert_eq!(doc.oplog_vv().encode(), hex(field(version)));
    }
    let map = serde_json::to_value(doc.get_map("m").get_deep_value()).unwrap();
    assert_eq!(map, case["map_after_update"]["m"]);
    let store = loro::awareness::EphemeralStore::new(i64::MAX / 2);
    store.apply(&hex(field("ephemeral_encodeAll"))).unwrap();
    let state = serde_json::to_value(store.get("2000").unwrap()).unwrap();
    assert_eq!(state, case["ephemeral_states"]["2000"]);
}

/// Compares byte for byte, except for batchIds, which are random, and frames that contain a document or a
/// version vector of two peers, whose order is that of a hash table.
fn assert_same_bytes(ours: &[Bytes], recorded: &[Bytes], message: &ChannelMsg, told: &str) {
    let free = format!("{message:?}");
    if free.contains("Snapshot") || free.matches("), (").count() > 0 {
        return;
    }
    let without_batch_id = |frames: &[Bytes]| -> Vec<Vec<u8>> {
        let mut frames: Vec<Vec<u8>> = frames.iter().map(|frame| frame.to_vec()).collect();
        for frame in frames.iter_mut().filter(|frame| frame[0] != 0) {
            frame[1..9].fill(0);
        }
        frames
    };
    assert_eq!(without_batch_id(ours), without_batch_id(recorded), "{told}");
}
