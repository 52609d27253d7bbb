//! Tests of idle connections, and of connections that were cut silently, in paused time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use breakbulk_link::Frame;
use breakbulk_loro::{Backoff, Status, Way};
use breakbulk_message::loro::{ChannelMsg, PeerIdentity, PeerType};
use breakbulk_net::Options;
use breakbulk_net::memory;
use breakbulk_testkit::log::{Level, Log};
use tokio::time::Instant;

use super::common::{Raw, client_config, established_raw, header, node, server_config};

fn identity() -> PeerIdentity {
    PeerIdentity {
        peer_id: "1000".into(),
        name: None,
        kind: PeerType::Service,
    }
}

// LORO-24
#[tokio::test(start_paused = true)]
async fn a_client_leaves_an_idle_channel_open_and_notices_a_silent_cut() {
    // (transport, after how much silence the other end counts as gone)
    for (way, lost) in [
        (Way::DataChannel, None),
        (Way::WebSocket, Some(Duration::from_secs(30))),
    ] {
        let client = node(client_config());
        let (ours, theirs) = memory::pair(64);
        let end = std::sync::Mutex::new(Some(ours));
        let dialed = Arc::new(AtomicUsize::new(0));
        let count = dialed.clone();
        let remote = client.dial_with(way, Backoff::default(), move || {
            count.fetch_add(1, Ordering::Relaxed);
            let end = end.lock().unwrap().take();
            async move { end.ok_or_else(|| std::io::Error::other("only once")) }
        });
        let mut raw = Raw::new(theirs);
        if way == Way::WebSocket {
            raw.send(Frame::Text("ready".into())).await;
        }
        assert!(matches!(
            raw.hear().await,
            ChannelMsg::EstablishRequest { .. }
        ));
        let identity = identity();
        raw.say(&ChannelMsg::EstablishResponse { identity }).await;
        remote.established().await.unwrap();
        let silent_since = Instant::now();
        let mut status = remote.status();
        let ended = status.wait_for(|status| !matches!(status, Status::Established));
        match lost {
            None => {
                let ended = tokio::time::timeout(Duration::from_secs(3600), ended).await;
                assert!(ended.is_err(), "an idle {way:?} was closed");
                assert_eq!(dialed.load(Ordering::Relaxed), 1);
            }
            Some(lost) => {
                let ended = ended.await.unwrap().clone();
                assert_eq!(silent_since.elapsed(), lost, "{way:?}");
                let Status::Waiting { reason, .. } = &ended else {
                    panic!("{ended:?}");
                };
                let words = "nothing received from the other end for 30 s";
                assert!(reason.to_string().contains(words), "{reason}");
            }
        }
    }
}

// LORO-24
#[tokio::test(start_paused = true)]
async fn a_server_notices_a_silent_cut_after_the_same_time() {
    let server = node(server_config());
    let (ours, theirs) = memory::pair(64);
    let served = server.accept(Way::WebSocket, "raw", theirs, Options::default());
    let mut raw = Raw::new(ours);
    raw.next().await;
    raw.say(&ChannelMsg::EstablishRequest {
        identity: identity(),
    })
    .await;
    raw.hear().await;
    let silent_since = Instant::now();
    served.await.unwrap();
    assert_eq!(silent_since.elapsed(), Duration::from_secs(30));
    drop(raw);
}

/// Of a message only the first piece comes: its sender is told when the transfer is given up.
#[tokio::test(start_paused = true)]
async fn a_transfer_that_stands_still_is_told_to_its_sender() {
    for dials in [false, true] {
        let log = Log::capture();
        let node = node(if dials {
            client_config()
        } else {
            server_config()
        });
        let (_remote, mut raw) = match dials {
            true => {
                let (remote, raw) = established_raw(&node).await;
                (Some(remote), raw)
            }
            false => (None, Raw::established(&node, "5").await),
        };
        raw.send_bytes(header(1, 2000)).await;
        raw.send_bytes([&[2], &[1; 8][..], &[0; 4], &[7; 1000]].concat())
            .await;
        let began = Instant::now();
        // The peer is alive, but sends no further piece.
        let (code, reason) = loop {
            tokio::select! {
                closed = raw.closed() => break closed,
                () = tokio::time::sleep(Duration::from_secs(7)) => {}
            }
            raw.send(Frame::Text("ping".into())).await;
        };
        assert_eq!(code, 1013);
        assert_eq!(
            reason,
            "timed out after 1000 of 2000 bytes: no further piece came in time"
        );
        assert_eq!(began.elapsed(), Duration::from_secs(30));
        let line = ["connection closed by this node", "code=1013", &reason];
        log.assert_line(Level::INFO, &line);
    }
}

/// A connection is cut: the client's status shows it until the client has reconnected, and so does the log.
#[tokio::test(start_paused = true)]
async fn a_cut_is_in_the_status_of_the_connection() {
    let log = Log::capture();
    let server = node(server_config());
    drop(Raw::established(&server, "5").await);
    let line = [
        "connection closed",
        "closed with 1006: the other end is gone",
    ];
    log.wait_for(Level::DEBUG, &line).await;
    let client = node(client_config());
    let (remote, raw) = established_raw(&client).await;
    drop(raw);
    let mut status = remote.status();
    let waits = status.wait_for(|status| matches!(status, Status::Waiting { .. }));
    let waits = waits.await.unwrap().clone();
    let Status::Waiting {
        failures, reason, ..
    } = &waits
    else {
        panic!("{waits:?}");
    };
    assert_eq!(
        (*failures, reason.to_string().as_str()),
        (1, "closed with 1006: the other end is gone")
    );
}
