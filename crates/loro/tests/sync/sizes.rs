//! Tests of large documents, and of the sizes at which a message is cut.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use breakbulk_loro::{Backoff, Cut, Event, Way};
use breakbulk_message::loro::{
    ChannelMsg, EphemeralEntry, EphemeralStore, VersionVector, encode_frame,
};
use breakbulk_net::{Options, memory};
use bytes::Bytes;

use super::common::{Raw, client_config, dial_in_memory, insert, node, server_config, within};

/// A text that cannot be compressed.
pub(crate) fn noise(bytes: usize) -> String {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut text = String::with_capacity(bytes);
    while text.len() < bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        text.push(char::from(b'!' + (state % 90) as u8));
    }
    text
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_document_of_16_mib_costs_the_receiver_a_quarter_more_than_its_frame() {
    let config = server_config();
    let budget = config.budget.clone();
    let server = node(config);
    let client = node(client_config());
    let doc = client.open("large").await.unwrap();
    let loro = doc.loro();
    // A snapshot has a value twice: in the history and in the state.
    loro.get_map("m").insert("blob", noise(8 << 20)).unwrap();
    loro.commit();
    doc.kept().await.unwrap();
    let frame = loro.export(loro::ExportMode::Snapshot).unwrap().len();
    assert!(frame >= 16 << 20, "{frame}");

    let (peak, done) = (
        Arc::new(AtomicUsize::new(0)),
        Arc::new(AtomicBool::new(false)),
    );
    let watcher = {
        let (peak, done) = (peak.clone(), done.clone());
        std::thread::spawn(move || {
            while !done.load(Ordering::Relaxed) {
                peak.fetch_max(budget.used(), Ordering::Relaxed);
                std::thread::yield_now();
            }
        })
    };
    let mut events = server.events();
    let _remote = dial_in_memory(&client, &server, Backoff::default());
    within("the document", async {
        while !matches!(events.recv().await.unwrap(), Event::Changed { .. }) {}
    })
    .await;
    done.store(true, Ordering::Relaxed);
    watcher.join().unwrap();
    let copy = server.open("large").await.unwrap();
    assert_eq!(copy.loro().get_deep_value(), loro.get_deep_value());
    let peak = peak.load(Ordering::Relaxed);
    println!("a frame of {frame} bytes: the link held {peak} at most");
    assert!(peak >= frame / 2, "nothing was measured: {peak}");
    assert!(peak <= frame + frame / 4, "{peak} for a frame of {frame}");
}

/// The frames of a node with this cut for a message whose frame has `len` bytes.
async fn frames_of(cut: Cut, len: usize) -> Vec<Bytes> {
    let mut config = server_config();
    config.cuts.web_socket = cut;
    let server = node(config);
    let mut raw = Raw::established(&server, "7").await;
    let doc = server.open("d").await.unwrap();
    let told = raw.hear().await;
    assert!(matches!(told, ChannelMsg::NewDoc { .. }), "{told:?}");
    raw.say(&ChannelMsg::SyncRequest {
        doc_id: "d".into(),
        requester_doc_version: VersionVector::new(),
        bidirectional: None,
        ephemeral: None,
    })
    .await;
    raw.hear().await;
    // The key's length makes up the size of the message.
    let data = |key: usize| {
        EphemeralEntry::write_all(&[EphemeralEntry {
            key: &"k".repeat(key),
            value: Some(b"\0"),
            timestamp: 1,
        }])
    };
    let message = |key: usize| ChannelMsg::Ephemeral {
        doc_id: "d".into(),
        hops_remaining: 1,
        stores: vec![EphemeralStore {
            peer_id: "1000".into(),
            data: data(key),
            namespace: "n".into(),
        }],
    };
    let key = (1..len).find(|key| encode_frame(&message(*key)).unwrap().len() == len);
    let key = key.expect("a message of that length");
    doc.set_ephemeral("n", data(key)).unwrap();
    let (heard, frames) = raw.hear_frames().await;
    assert_eq!(heard, message(key));
    frames
}

/// The receiver has room for 32 unfinished messages, and drops the oldest of more.
// LORO-22
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_documents_in_small_pieces_do_not_push_each_other_out() {
    let server = node(server_config());
    let mut config = client_config();
    config.cuts.web_socket = Cut::Cap(500);
    let client = node(config);
    let mut docs = Vec::new();
    for number in 0..100 {
        let doc = client.open(&format!("d{number}")).await.unwrap();
        insert(&doc, 0, &noise(5000));
        doc.kept().await.unwrap();
        docs.push(doc);
    }
    let dialed = Arc::new(AtomicUsize::new(0));
    let count = dialed.clone();
    let _call = client.dial_with(Way::WebSocket, Backoff::default(), move || {
        count.fetch_add(1, Ordering::Relaxed);
        let (ours, theirs) = memory::pair(64);
        server.accept(Way::WebSocket, "client", theirs, Options::default());
        async move { Ok::<_, std::io::Error>(ours) }
    });
    for doc in &docs {
        within("a document", doc.sync()).await.unwrap();
    }
    let dialed = dialed.load(Ordering::Relaxed);
    assert_eq!(dialed, 1, "the connection was closed");
}

#[tokio::test]
async fn a_message_is_cut_above_the_threshold_and_not_at_it() {
    let lengths = |frames: Vec<Bytes>| -> Vec<usize> { frames.iter().map(Bytes::len).collect() };
    let cases = [
        // Counted like the original: without the 1 byte before a whole frame and the 13 before a piece.
        (Cut::Native(200), 200, vec![201]),
        (Cut::Native(200), 201, vec![17, 213, 14]),
        (Cut::Native(200), 400, vec![17, 213, 213]),
        (Cut::Native(200), 401, vec![17, 213, 213, 14]),
        (Cut::Native(0), 401, vec![402]),
        // No frame exceeds the cap.
        (Cut::Cap(200), 199, vec![200]),
        (Cut::Cap(200), 200, vec![17, 200, 26]),
        (Cut::Cap(200), 374, vec![17, 200, 200]),
        (Cut::Cap(200), 375, vec![17, 200, 200, 14]),
    ];
    for (cut, len, expected) in cases {
        assert_eq!(
            lengths(frames_of(cut, len).await),
            expected,
            "{cut:?}, {len}"
        );
    }
}
