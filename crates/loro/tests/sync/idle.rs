//! Connections on which nothing happens, and connections that were cut without a word. In paused time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use breakbulk_link::Frame;
use breakbulk_loro::{Backoff, Status, Way};
use breakbulk_message::loro::{ChannelMsg, PeerIdentity, PeerType};
use breakbulk_net::Options;
use breakbulk_net::memory;
use tokio::time::Instant;

use super::common::{Raw, client_config, node, server_config};

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
    // (the transport, after how long the silence of the other end is its end)
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
                ended.await.unwrap();
                assert_eq!(silent_since.elapsed(), lost, "{way:?}");
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
