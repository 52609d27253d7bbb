//! Data channels on the loopback: what they carry, how they end, and invalid or excessive offers.

use std::sync::Arc;
use std::time::Duration;

use breakbulk_link::{Cap, Frame};
use breakbulk_loro::http::client_options;
use breakbulk_loro::http::serve_options;
use breakbulk_net::http::{Limits, ServeOptions, Way};
use breakbulk_net::webrtc::{ChannelOptions, connect};
use breakbulk_net::{Incoming, Source, Transport};
use tokio::sync::watch;
use webrtc::data_channel::{DataChannel, DataChannelEvent};
use webrtc::peer_connection::{
    PeerConnection, PeerConnectionBuilder, PeerConnectionEventHandler, RTCIceGatheringState,
    RTCSessionDescription,
};

use crate::common::{
    all_ways, config, dialled, keepers, listen, message, open, payload, send, soon,
};
use crate::raw::{Answer, ask};

/// Options that keep datagrams on this machine and ask no server for an address.
pub(crate) fn local() -> ChannelOptions {
    ChannelOptions {
        bind: vec!["127.0.0.1:0".to_owned()],
        ..ChannelOptions::default()
    }
}

pub(crate) fn serving() -> ServeOptions {
    ServeOptions {
        webrtc: local(),
        ..serve_options()
    }
}

#[tokio::test]
async fn frames_of_the_originals_size_pass_both_ways_and_each_end_can_close() {
    for closed_by_client in [true, false] {
        let (address, mut arrivals, _serving) = all_ways(serving()).await;
        let url = format!("http://{address}/loro");
        let options = client_options("2000");
        let channel_options = local();
        let (client, server) = soon("the channel", async {
            tokio::join!(connect(&url, &options, &channel_options), arrivals.next())
        })
        .await;
        let server = server.unwrap();
        assert_eq!(server.claim.peer_id, "2000");
        assert_eq!(server.transport.way(), Way::DataChannel);
        let client = dialled(Way::DataChannel, client.unwrap());
        let server = open(server, config(Way::DataChannel));
        for end in [&client, &server] {
            // The original's threshold does not count the header of a piece.
            end.with(|link| link.set_cap(Cap::piece(204_800)));
        }
        for (from, to) in [(&client, &server), (&server, &client)] {
            for size in [1, 204_800, 204_801, 2_000_000] {
                send(from, payload(size));
                let came = soon("a message", message(to)).await.unwrap();
                assert!(came.bytes == payload(size), "{size}");
            }
        }
        let (closer, other) = match closed_by_client {
            true => (client, server),
            false => (server, client),
        };
        send(&closer, payload(1_000_000));
        let (came, ()) = tokio::join!(soon("the last message", message(&other)), async {
            closer.finish(1000, "").await;
        });
        assert_eq!(
            came.expect("the last words are not lost").bytes.len(),
            1_000_000
        );
        let closed = soon("the end", other.closed()).await;
        assert_eq!(closed.code, 1000, "{closed}");
        soon("both ends", async {
            tokio::join!(closer.ended(), other.ended())
        })
        .await;
    }
}

const SDP: &str = "v=0\r\no=- 1 2 IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\na=group:BUNDLE 0\r\n\
    m=application 9 UDP/DTLS/SCTP webrtc-datachannel\r\nc=IN IP4 0.0.0.0\r\na=ice-ufrag:abcd\r\n\
    a=ice-pwd:abcdefghijklmnopqrstuvwx\r\na=fingerprint:sha-256 \
    00:11:22:33:44:55:66:77:88:99:AA:BB:CC:DD:EE:FF:00:11:22:33:44:55:66:77:88:99:AA:BB:CC:DD:EE:FF\r\n\
    a=setup:actpass\r\na=mid:0\r\na=sctp-port:5000\r\na=max-message-size:262144\r\n";

async fn offer(address: std::net::SocketAddr, path: &str, kind: &str, sdp: &str) -> Answer {
    let body = serde_json::json!({"type": kind, "sdp": sdp}).to_string();
    let json = [("content-type", "application/json")];
    ask(address, "POST", path, &json, body.as_bytes()).await
}

#[tokio::test]
async fn offers_that_want_too_much_are_refused() {
    let (address, arrivals, _serving) = all_ways(serving()).await;
    keepers(arrivals);
    let path = "/loro/offer?peerId=2000";
    let audio = format!("{SDP}m=audio 9 UDP/TLS/RTP/SAVPF 111\r\n");
    let candidate = "a=candidate:1 1 udp 1 127.0.0.1 9 typ host\r\n";
    let many = format!("{SDP}{}", candidate.repeat(33));
    let long = format!("{SDP}{}", "a=x\r\n".repeat(20_000));
    for (what, path, kind, sdp, status, word) in [
        (
            "no id",
            "/loro/offer",
            "offer",
            SDP,
            400,
            "peerId is required",
        ),
        ("an answer", path, "answer", SDP, 400, "offer"),
        ("no description", path, "offer", "", 400, "nothing else"),
        ("audio", path, "offer", &audio, 400, "nothing else"),
        (
            "many addresses",
            path,
            "offer",
            &many,
            400,
            "over the limit of 32",
        ),
        ("a long one", path, "offer", &long, 413, "65536 bytes"),
        (
            "garbage",
            path,
            "offer",
            "m=application x\r\n",
            400,
            "the offer cannot be used",
        ),
        ("a good one", path, "offer", SDP, 200, "answer"),
    ] {
        let answer = offer(address, path, kind, sdp).await;
        assert_eq!(answer.status, status, "{what}: {answer:?}");
        assert!(answer.body.contains(word), "{what}: {answer:?}");
    }
}

/// Offers sent slowly, or not followed by a data channel, once kept all other peers out for 15 s.
#[tokio::test]
async fn offers_that_lead_nowhere_keep_no_newcomer_out() {
    use tokio::io::AsyncWriteExt;

    let mut options = serving();
    options.webrtc.half_open = 2;
    let (address, arrivals, _serving) = all_ways(options).await;
    keepers(arrivals);
    let path = "/loro/offer?peerId=2000";
    let mut dripping = Vec::new();
    for _ in 0..8 {
        let mut socket = tokio::net::TcpStream::connect(address).await.unwrap();
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{{"
        );
        socket.write_all(head.as_bytes()).await.unwrap();
        dripping.push(socket);
    }
    // Each of these takes the place of the oldest offer before it.
    for _ in 0..5 {
        let answer = offer(address, path, "offer", SDP).await;
        assert_eq!(answer.status, 200, "{answer:?}");
    }
}

#[tokio::test]
async fn offers_of_those_who_never_come_are_forgotten() {
    let mut options = serving();
    options.connections = 1;
    options.webrtc.open_time = Duration::from_millis(500);
    let (address, _arrivals, _serving) = all_ways(options).await;
    let path = "/loro/offer?peerId=2000";
    assert_eq!(offer(address, path, "offer", SDP).await.status, 200);
    assert_eq!(offer(address, path, "offer", SDP).await.status, 503);
    let forgotten = async { while offer(address, path, "offer", SDP).await.status != 200 {} };
    soon("its place", forgotten).await;
}

/// A scripted peer; the watch tells that its candidates are gathered.
struct Gathered(watch::Sender<bool>);

impl PeerConnectionEventHandler for Gathered {
    fn on_ice_gathering_state_change<'a, 'b>(
        &'a self,
        state: RTCIceGatheringState,
    ) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send + 'b>>
    where
        'a: 'b,
        Self: 'b,
    {
        if state == RTCIceGatheringState::Complete {
            self.0.send_replace(true);
        }
        Box::pin(async {})
    }
}

async fn opened(channel: &Arc<dyn DataChannel>) {
    while !matches!(channel.poll().await, Some(DataChannelEvent::OnOpen)) {}
}

#[tokio::test]
async fn long_strings_are_ignored_and_other_channels_are_closed() {
    let (address, mut arrivals, _serving) = all_ways(serving()).await;
    let (tell, mut gathered) = watch::channel(false);
    let peer = PeerConnectionBuilder::new()
        .with_handler(Arc::new(Gathered(tell)))
        .with_udp_addrs(vec!["127.0.0.1:0"])
        .build()
        .await
        .unwrap();
    let other = peer.create_data_channel("chat", None).await.unwrap();
    let ours = peer.create_data_channel("loro-sync", None).await.unwrap();
    let description = peer.create_offer(None).await.unwrap();
    peer.set_local_description(description).await.unwrap();
    soon("candidates", gathered.wait_for(|it| *it))
        .await
        .unwrap();
    let description = peer.local_description().await.unwrap();
    let answer = offer(address, "/loro/offer?peerId=1", "offer", &description.sdp).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let answer: RTCSessionDescription = serde_json::from_str(&answer.body).unwrap();
    peer.set_remote_description(answer).await.unwrap();
    soon("both channels", async {
        tokio::join!(opened(&other), opened(&ours))
    })
    .await;
    let arrival = soon("the arrival", arrivals.next()).await.unwrap();
    let (mut source, _sink) = arrival.transport.split();
    // Fails if the channel is closed already.
    let _ = other.send((&b"not ours"[..]).into()).await;
    let ended =
        async { while !matches!(other.poll().await, Some(DataChannelEvent::OnClose) | None) {} };
    soon("the end of the other channel", ended).await;
    ours.send_text("a word").await.unwrap();
    ours.send_text(&"long ".repeat(300)).await.unwrap();
    ours.send((&b"\x00\x02"[..]).into()).await.unwrap();
    let word = Incoming::Frame(Frame::Text("a word".into()));
    assert_eq!(soon("the word", source.next()).await, word);
    assert_eq!(soon("the string", source.next()).await, Incoming::Alive);
    let frame = Frame::Binary((&b"\x00\x02"[..]).into());
    assert_eq!(
        soon("the frame", source.next()).await,
        Incoming::Frame(frame)
    );
    peer.close().await.unwrap();
}

// LORO-10
#[tokio::test]
async fn offers_and_answers_carry_their_candidates() {
    let (told, mut offers) = tokio::sync::mpsc::unbounded_channel();
    let refuse = axum::routing::any(move |body: String| {
        let told = told.clone();
        async move {
            let _ = told.send(body);
            axum::http::StatusCode::SERVICE_UNAVAILABLE
        }
    });
    let router = axum::Router::new().fallback_service(refuse);
    let (listener, _serving) = listen(router, Limits::default()).await;
    let url = format!("http://{listener}/loro");
    let options = client_options("2000");
    let refused = soon("the refusal", connect(&url, &options, &local())).await;
    assert!(refused.is_err());
    let description: serde_json::Value =
        serde_json::from_str(&offers.recv().await.unwrap()).unwrap();
    let sdp = description["sdp"].as_str().unwrap();
    assert!(sdp.contains("a=candidate:"), "{sdp}");

    let (address, _arrivals, _serving) = all_ways(serving()).await;
    let answer = offer(address, "/loro/offer?peerId=2000", "offer", sdp).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert!(answer.body.contains("a=candidate:"), "{answer:?}");
}
