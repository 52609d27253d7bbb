//! A reader on a slow path, of a large document that others change meanwhile.

use std::time::Duration;

use breakbulk::loro::crdt::{ExportMode, LoroDoc};
use breakbulk::message::loro::{ChannelMsg, Transmission, VersionVector};
use breakbulk_testkit::bad_path::{BadPath, Way, Weather};
use tokio::task::spawn_blocking;

use super::common::{Server, noise, run, succeed};
use super::raw::{Raw, sync_request};

const SIZE: usize = 20_000_000;

/// A snapshot has the text twice: as a change and as a state.
const ANSWER: u64 = 2 * SIZE as u64;

/// 8 s for the answer.
const BYTES_A_SECOND: u64 = 5_000_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_reader_gets_a_large_document_once_while_others_change_it() {
    let server = Server::with(None, |command| {
        command.arg("--verbose");
    });
    let [fast, ..] = server.ways();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("large.json").display().to_string();
    let text = noise(SIZE);
    std::fs::write(&file, format!("{{\"text\":\"{text}\"}}")).unwrap();
    let pushed = fast.clone();
    spawn_blocking(move || succeed(&["loro", "push", &pushed, "large", &file]))
        .await
        .unwrap();
    // A writer who knows the document, so that what it changes builds upon it.
    let mut writer = Raw::connect(&fast).await;
    writer.say(&sync_request("large")).await;
    let notes = LoroDoc::new();
    loop {
        if let ChannelMsg::SyncResponse {
            transmission: Transmission::Snapshot { data, .. },
            ..
        } = writer.hear().await.unwrap()
        {
            notes.import(&data).unwrap();
            break;
        }
    }
    let mut changes = 0;
    let slow = Weather::both_ways(Way {
        pace: Some(BYTES_A_SECOND),
        ..Way::default()
    });
    let path = BadPath::start_tcp(server.address(), slow).await.unwrap();
    let url = format!("ws://{}/ws", path.address());
    let reading = spawn_blocking(move || run(&["loro", "pull", &url, "large", "--timeout", "150"]));
    while !reading.is_finished() {
        changes += 1;
        let before = notes.oplog_vv();
        notes.get_map("notes").insert("changes", changes).unwrap();
        notes.commit();
        let data = notes.export(ExportMode::updates(&before)).unwrap();
        let change = ChannelMsg::Update {
            doc_id: "large".into(),
            transmission: Transmission::Update {
                data: data.into(),
                version: VersionVector::new(),
            },
        };
        writer.say(&change).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let output = reading.await.unwrap();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    let sent = path.counts().from_target.bytes;
    println!("{changes} changes meanwhile, {sent} bytes for an answer of {ANSWER}");
    assert_eq!(output.status.code(), Some(0), "{told}");
    let pulled: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(pulled["text"] == text, "another text came");
    assert!(changes > 20, "only {changes} changes: it was no slow path");
    assert!((ANSWER..ANSWER * 3 / 2).contains(&sent), "{sent} bytes");
    let (clean, log) = server.stop();
    assert!(clean && !log.contains("1013"), "{log}");
}
