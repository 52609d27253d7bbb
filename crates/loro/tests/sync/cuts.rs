//! Two peers edit one document over a path that is cut again and again.

use std::time::Duration;

use breakbulk_link::Frame;
use breakbulk_loro::{Backoff, Dial, Node, Status, Way};
use breakbulk_message::loro::{ChannelMsg, PeerIdentity, PeerType};
use breakbulk_net::ws::{ListenOptions, Listener};
use breakbulk_net::{Options, memory};
use breakbulk_testkit::bad_path::{self, BadPath, How, Weather};

use super::common::{
    Raw, client_config, dial_in_memory, insert, node, server_config, text, until_text, within,
};

/// Serves WebSockets on a free port.
pub(crate) async fn listen(server: &Node) -> std::net::SocketAddr {
    let options = ListenOptions {
        connections: 4096,
        ..ListenOptions::default()
    };
    let mut listener = Listener::bind("127.0.0.1:0", options).await.unwrap();
    let address = listener.local_addr();
    let server = server.clone();
    tokio::spawn(async move {
        while let Ok(accepted) = listener.accept().await {
            let claim = accepted.query.unwrap_or_default();
            server.accept(
                Way::WebSocket,
                claim,
                accepted.websocket,
                Options::default(),
            );
        }
    });
    address
}

pub(crate) fn impatient() -> Backoff {
    Backoff {
        tries: 1000,
        base: Duration::from_millis(5),
        cap: Duration::from_millis(50),
    }
}

#[tokio::test]
async fn two_clients_and_a_server_share_a_document_in_memory() {
    let server = node(server_config());
    let (one, two) = (node(client_config()), node(client_config()));
    let _calls = (
        dial_in_memory(&one, &server, Backoff::default()),
        dial_in_memory(&two, &server, Backoff::default()),
    );
    let (a, b) = (one.open("d").await.unwrap(), two.open("d").await.unwrap());
    insert(&a, 0, "left ");
    within("a sync", a.sync()).await.unwrap();
    within("b sync", b.sync()).await.unwrap();
    assert_eq!(text(&b), "left ");
    insert(&b, 5, "right");
    until_text(&a, |text| text == "left right").await;
    let kept = server.documents();
    assert_eq!(kept.len(), 1);
    assert_eq!(&*kept[0].0, "d");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cuts_lose_no_edit() {
    let server = node(server_config());
    let address = listen(&server).await;
    let path = BadPath::start(address, Weather::default()).await.unwrap();
    let url = format!("ws://{}/ws", path.address());
    let mut docs = Vec::new();
    let mut held = Vec::new();
    for number in 0..2 {
        let mut config = client_config();
        config.identity.peer_id = (3000 + number).to_string();
        let client = node(config);
        let mut dial = Dial::new(&url);
        dial.backoff = impatient();
        let remote = client.dial(dial);
        within("established", remote.established()).await.unwrap();
        docs.push(client.open("d").await.unwrap());
        held.push((client, remote));
    }
    for round in 0..30 {
        for (number, doc) in docs.iter().enumerate() {
            insert(doc, 0, &format!("<{number}:{round}>"));
        }
        if round % 5 == 4 {
            // Cut while changes are being sent.
            path.cut(How::Reset);
        }
        tokio::task::yield_now().await;
    }
    for doc in &docs {
        within("sync", doc.sync()).await.unwrap();
    }
    for doc in &docs {
        until_text(doc, |text| {
            (0..2).all(|n| (0..30).all(|r| text.contains(&format!("<{n}:{r}>"))))
        })
        .await;
    }
    assert_eq!(text(&docs[0]), text(&docs[1]));
    assert!(path.counts().cuts >= 2, "{:?}", path.counts());
}

// LORO-22
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_megabytes_arrive_over_a_slow_path() {
    let server = node(server_config());
    let address = listen(&server).await;
    // 1.5 Mbit/s and 60 ms: 11 s, longer than the original waits for a message.
    let slow = bad_path::Way {
        pace: Some(187_500),
        delay: Duration::from_millis(30),
        ..bad_path::Way::default()
    };
    let path = BadPath::start(address, Weather::both_ways(slow));
    let path = path.await.unwrap();
    let client = node(client_config());
    let _remote = client.dial(Dial::new(format!("ws://{}/ws", path.address())));
    let doc = client.open("d").await.unwrap();
    insert(&doc, 0, &super::sizes::noise(2 << 20));
    within("a slow push", doc.sync()).await.unwrap();
    let copy = server.open("d").await.unwrap();
    assert_eq!(text(&copy).len(), 2 << 20);
    let sent = path.counts().from_client.bytes;
    // LORO-8: once as an update and once as a response, but not more often.
    assert!(sent < 5 << 20, "{sent} bytes: it was sent more than twice");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_ends_every_connection_soon_is_given_up() {
    let client = node(client_config());
    let backoff = Backoff {
        tries: 3,
        base: Duration::from_secs(1),
        cap: Duration::from_secs(30),
    };
    let remote = client.dial_with(Way::WebSocket, backoff, || async {
        let (ours, theirs) = memory::pair(64);
        tokio::spawn(async move {
            let mut server = Raw::new(theirs);
            server.send(Frame::Text("ready".into())).await;
            let hello = server.hear().await;
            assert!(matches!(hello, ChannelMsg::EstablishRequest { .. }));
            let identity = PeerIdentity {
                peer_id: "1".into(),
                name: None,
                kind: PeerType::Service,
            };
            server
                .say(&ChannelMsg::EstablishResponse { identity })
                .await;
        });
        Ok::<_, std::io::Error>(ours)
    });
    let mut status = remote.status();
    let gave_up = status.wait_for(|status| matches!(status, Status::GaveUp { .. }));
    within("the client gives up", gave_up).await.unwrap();
}
