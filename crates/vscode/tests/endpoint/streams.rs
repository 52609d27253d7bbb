//! Tests of the same calls over every transport.

use std::sync::Arc;

use breakbulk_link::{
    Budget, Cap, Config, Event, Frame, Link, Outgoing, PeerLimits, PeerSupport, Wire,
};
use breakbulk_message::vscode::{Passed, Value};
use breakbulk_net::{Connection, Sink, Transport, memory};
use breakbulk_vscode::machine::handshake::Role;
use breakbulk_vscode::{Ended, Endpoint};
use breakbulk_wire::{Loro, Whole};
use bytes::Bytes;

use crate::common::{config, id};

/// Makes small and large calls, in both directions, at the same time.
async fn exercise(a: &Endpoint, b: &Endpoint) {
    let mut all = Vec::new();
    for (endpoint, base) in [(a, 0), (b, 1000)] {
        for number in base..base + 50_u64 {
            let small = endpoint.remote(id()).call("$count", &[number]);
            all.push(tokio::spawn(async move {
                let got: u64 = small.await.unwrap().typed().unwrap();
                assert_eq!(got, number);
            }));
        }
        for size in [0, 1, 70_000, 300_000, 3_000_000] {
            let buffer = Bytes::from(vec![size as u8; size]);
            let args = vec![
                Passed::Plain(Value::Null),
                Passed::Plain(Value::Buffer(buffer.clone())),
            ];
            let large = endpoint.remote(id()).call_values("$echo", args);
            all.push(tokio::spawn(async move {
                assert!(large.await.unwrap().buffer() == Some(&buffer), "{size}");
            }));
        }
    }
    for call in all {
        call.await.unwrap();
    }
}

#[tokio::test]
async fn tcp_and_unix_sockets() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    for persistent in [false, true] {
        let within = std::time::Duration::from_secs(10);
        let (client, server) = tokio::join!(
            breakbulk_net::tcp::connect(&address, within),
            breakbulk_net::tcp::accept(&listener)
        );
        let open = |stream| match persistent {
            false => Endpoint::over_stream(stream, config()),
            true => Endpoint::persistent(stream, config()),
        };
        let (a, b) = (open(client.unwrap()), open(server.unwrap()));
        exercise(&a, &b).await;
        a.dispose();
        assert_eq!(b.ended().await, Ended::Left);
    }
    let (left, right) = tokio::net::UnixStream::pair().unwrap();
    exercise(
        &Endpoint::over_stream(left, config()),
        &Endpoint::over_stream(right, config()),
    )
    .await;
}

#[tokio::test]
async fn websockets_in_binary_messages() {
    use breakbulk_net::stream::over_frames;
    use breakbulk_net::ws::{ConnectOptions, ListenOptions, Listener, connect};
    use breakbulk_vscode::machine::ipc::WEBSOCKET_CUT;

    let mut listener = Listener::bind("127.0.0.1:0", ListenOptions::default())
        .await
        .unwrap();
    let url = format!("ws://{}/", listener.local_addr());
    for persistent in [false, true] {
        let options_ws = ConnectOptions::default();
        let (client, server) = tokio::join!(connect(&url, &options_ws), listener.accept());
        let open = |websocket| {
            let stream = over_frames(websocket, WEBSOCKET_CUT).unwrap();
            match persistent {
                false => Endpoint::over_stream(stream, config()),
                true => Endpoint::persistent(stream, config()),
            }
        };
        let (a, b) = (open(client.unwrap()), open(server.unwrap().websocket));
        exercise(&a, &b).await;
        a.dispose();
        assert_eq!(b.ended().await, Ended::Left);
    }
}

fn link(wire: Arc<dyn Wire>, config: Config, cap: usize, seed: u8) -> Link {
    let mut link = Link::new(wire.clone(), wire, config, Budget::unlimited(), [seed; 32]);
    link.set_cap(Cap::frame(cap));
    link.set_peer(PeerSupport::Yes(PeerLimits::NONE));
    link
}

fn linked(wire: Arc<dyn Wire>, link_config: &Config, cap: usize) -> (Endpoint, Endpoint) {
    let (left, right) = memory::pair(4);
    let open = |transport, seed| {
        let link = link(wire.clone(), link_config.clone(), cap, seed);
        let connection =
            Connection::open(link, transport, breakbulk_net::Options::default()).unwrap();
        Endpoint::over_connection(connection, config())
    };
    (open(left, 1), open(right, 2))
}

#[tokio::test]
async fn one_message_per_frame_and_through_a_capped_path() {
    let whole = Config::new(Whole::rules());
    let (a, b) = linked(Arc::new(Whole::BINARY), &whole, usize::MAX);
    exercise(&a, &b).await;
    let (a, b) = linked(Arc::new(Loro), &Loro::config(), 20_000);
    exercise(&a, &b).await;
    a.dispose();
    assert_eq!(b.ended().await, Ended::Left);
}

/// A request with JSON arguments, as the original writes it.
fn request(req: u8, method: &str, args: &str) -> Vec<u8> {
    let length = u32::try_from(args.len()).unwrap().to_be_bytes();
    [
        &[1, 0, 0, 0, req, 2, method.len() as u8],
        method.as_bytes(),
        &length,
        args.as_bytes(),
    ]
    .concat()
}

// VSCODE-4
#[tokio::test]
async fn acknowledgements_pass_a_large_reply_and_a_lost_message_ends_the_session() {
    let net = breakbulk_net::Options::default;
    let (left, right) = memory::pair(1);
    let mut loro = Loro::config();
    loro.report_opened = true;
    let peer = Connection::open(link(Arc::new(Loro), loro, 1000, 1), left, net()).unwrap();
    let ours = link(Arc::new(Loro), Loro::config(), 1000, 2);
    let _endpoint =
        Endpoint::over_connection(Connection::open(ours, right, net()).unwrap(), config());
    let large = format!("[\"{}\"]", "x".repeat(1_000_000));
    let send = |message| assert!(peer.send(Outgoing::new(message)).is_ok());
    send(request(1, "$raw", &large));
    // The type of each message, and the number of its request.
    let mut heard = Vec::new();
    while heard.len() < 4 {
        match peer.event().await.unwrap() {
            // The reply is being sent: a request that comes now is acknowledged before the reply is complete.
            Event::Opened(_) => send(request(2, "$add", "[4,1]")),
            Event::Message(message) => heard.push((message.bytes[0], message.bytes[4])),
            _ => {}
        }
    }
    const ACKNOWLEDGED: u8 = 5;
    assert_eq!(heard[..2], [(ACKNOWLEDGED, 1), (ACKNOWLEDGED, 2)]);
    assert_eq!((heard[2].1, heard[3].1), (1, 2), "replies keep their order");

    let (left, right) = memory::pair(1);
    let ours = link(Arc::new(Loro), Loro::config(), 1000, 2);
    let endpoint =
        Endpoint::over_connection(Connection::open(ours, right, net()).unwrap(), config());
    let (_source, mut sink) = left.split();
    // A header that the wire refuses: a message is lost.
    let header = [1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 9];
    sink.send(Frame::Binary(header.to_vec().into()))
        .await
        .unwrap();
    let ended = endpoint.ended().await;
    assert!(
        matches!(&ended, Ended::Failed(why) if why.starts_with("a message was lost")),
        "{ended:?}"
    );
}

#[tokio::test]
async fn what_a_path_cannot_carry_is_told_to_whoever_waits() {
    let whole = Config::new(Whole::rules());
    let (a, _b) = linked(Arc::new(Whole::BINARY), &whole, 10_000);
    let remote = a.remote(id());
    let buffer = || vec![Passed::Plain(Value::Buffer(vec![0; 20_000].into()))];
    let error = remote.call_values("$echo", buffer()).await.unwrap_err();
    assert!(error.to_string().contains("10000"), "{error}");
    let text = "x".repeat(9000);
    let doubled = remote.call("$double", &[&text]).await.unwrap_err();
    assert!(doubled.to_string().contains("Unknown method"));
    let sum: i64 = remote.call("$add", &(4, 1)).await.unwrap().typed().unwrap();
    assert_eq!(sum, 5);
}

#[tokio::test]
async fn the_handshake_comes_first_and_terminate_ends_the_host() {
    for linked_up in [false, true] {
        let init = Bytes::from_static(b"{\"version\":\"1.138.0\"}");
        let host_options = config().with(|config| config.handshake = Role::Host);
        let renderer_options =
            config().with(|config| config.handshake = Role::Renderer(init.clone()));
        let (host, renderer) = if linked_up {
            let (left, right) = memory::pair(4);
            let open = |transport, options| {
                let config = Config::new(Whole::rules());
                let link = link(Arc::new(Whole::BINARY), config, usize::MAX, 3);
                let net = breakbulk_net::Options::default();
                Endpoint::over_connection(Connection::open(link, transport, net).unwrap(), options)
            };
            (open(left, host_options), open(right, renderer_options))
        } else {
            let (left, right) = tokio::io::duplex(100);
            (
                Endpoint::over_stream(left, host_options),
                Endpoint::over_stream(right, renderer_options),
            )
        };
        // Calls made before the handshake is over wait for it.
        let early = renderer.remote(id()).call("$add", &(4, 1));
        assert_eq!(host.initialized().await, Ok(Some(init)));
        assert_eq!(renderer.initialized().await, Ok(None));
        assert_eq!(early.await.unwrap().json().unwrap(), &"5");
        renderer.terminate();
        assert_eq!(host.ended().await, Ended::Terminated);
    }
}

#[tokio::test]
async fn a_peer_that_speaks_no_handshake_is_refused() {
    let (left, right) = tokio::io::duplex(1000);
    let host = Endpoint::over_stream(
        left,
        config().with(|config| config.handshake = Role::Renderer(Bytes::new())),
    );
    let plain = Endpoint::over_stream(right, config());
    let call = plain.remote(id()).call("$add", &(4, 1));
    assert!(call.await.is_err());
    let ended = host.ended().await.to_string();
    assert!(ended.contains("expected the host's Ready (02)"), "{ended}");
    assert!(host.initialized().await.is_err());
}

#[tokio::test]
async fn a_session_that_finishes_loses_nothing_that_was_begun() {
    let piped = |persistent: bool| {
        // A small pipe, so that much is unwritten when the session is asked to end.
        let (left, right) = tokio::io::duplex(1000);
        let open = |stream| match persistent {
            false => Endpoint::over_stream(stream, config()),
            true => Endpoint::persistent(stream, config()),
        };
        (open(left), open(right))
    };
    let capped = || linked(Arc::new(Loro), &Loro::config(), 1000);
    for (how, (a, b)) in [
        ("plain", piped(false)),
        ("persistent", piped(true)),
        ("capped", capped()),
    ] {
        let buffer = Bytes::from(vec![7; 300_000]);
        let args = || vec![Passed::Plain(Value::Buffer(buffer.clone()))];
        // A call of `a`, and a call of `b` to which `a` has to reply.
        let ours = a.remote(id()).call_values("$echo", args());
        let theirs = b.remote(id()).call_values("$echo", args());
        let theirs = tokio::spawn(async move { theirs.await.unwrap() });
        let back: i64 = {
            let answer = b.remote(id()).call("$back", &[0; 0]).await.unwrap();
            answer.typed().unwrap()
        };
        assert_eq!(back, 30, "{how}");
        let (ended, ours) = tokio::join!(a.finish(), ours);
        assert_eq!(ended, Ended::Disposed, "{how}");
        assert!(ours.unwrap().buffer() == Some(&buffer), "{how}");
        assert!(theirs.await.unwrap().buffer() == Some(&buffer), "{how}");
        assert!(a.remote(id()).call("$add", &(1, 1)).await.is_err(), "{how}");
        assert_eq!(b.ended().await, Ended::Left, "{how}");
    }
}
