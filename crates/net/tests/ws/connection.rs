//! A link over a WebSocket: large messages both ways at once, and a reader that is slow.

use std::sync::Arc;

use breakbulk_link::{Budget, Cap, Event, Lane, Link, Outgoing, PeerLimits, PeerSupport};
use breakbulk_net::ws::{ConnectOptions, ListenOptions, Listener, WebSocket, connect};
use breakbulk_net::{Connection, Options};
use breakbulk_wire::Ahp;
use bytes::Bytes;
use socket2::SockRef;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use crate::common::{pair, soon};

const CAP: usize = 100_000;

/// Smaller than a frame. With much smaller buffers, the kernel's timers would determine the speed.
const BUFFER: usize = 48 << 10;

fn message(size: usize, fill: char) -> Bytes {
    let fill = fill.to_string().repeat(size);
    format!(r#"{{"jsonrpc":"2.0","method":"m","params":{{"p":"{fill}"}}}}"#).into()
}

fn open(websocket: WebSocket) -> Connection {
    let mut config = Ahp::config();
    config.limits.undelivered = 4;
    config.limits.queued = 8;
    let mut link = Link::new(
        Arc::new(Ahp),
        Arc::new(Ahp),
        config,
        Budget::unlimited(),
        [7; 32],
    );
    link.set_cap(Cap::frame(CAP));
    link.set_peer(PeerSupport::Yes(PeerLimits::NONE));
    Connection::open(link, websocket, Options::default()).unwrap()
}

async fn received(connection: &Connection) -> Bytes {
    loop {
        match connection.event().await.expect("a message before the end") {
            Event::Message(message) => return message.bytes,
            Event::Closed(closed) => panic!("{closed}"),
            _ => {}
        }
    }
}

/// A relay between the two ends whose kernel buffers are all small.
async fn narrow(target: std::net::SocketAddr) -> std::net::SocketAddr {
    fn shrink(stream: &TcpStream) {
        let socket = SockRef::from(stream);
        socket.set_tcp_nodelay(true).unwrap();
        socket.set_send_buffer_size(BUFFER).unwrap();
        socket.set_recv_buffer_size(BUFFER).unwrap();
    }
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut inner, _) = listener.accept().await.unwrap();
        let outer = TcpSocket::new_v4().unwrap();
        outer.set_recv_buffer_size(BUFFER as u32).unwrap();
        let mut outer = outer.connect(target).await.unwrap();
        shrink(&inner);
        shrink(&outer);
        let _ = copy_bidirectional(&mut inner, &mut outer).await;
    });
    address
}

#[tokio::test]
async fn five_megabytes_both_ways_at_once_through_small_buffers() {
    let options = || ListenOptions {
        frame_limit: CAP,
        ..ListenOptions::default()
    };
    let mut listener = Listener::bind("127.0.0.1:0", options()).await.unwrap();
    let url = format!("ws://{}/", narrow(listener.local_addr()).await);
    let client = ConnectOptions {
        frame_limit: CAP,
        fragment: Some(32_000),
        ..ConnectOptions::default()
    };
    let (client, server) = tokio::join!(connect(&url, &client), listener.accept());
    let (left, right) = (open(client.unwrap()), open(server.unwrap().websocket));
    let (up, down) = (message(5_000_000, 'u'), message(5_000_000, 'd'));
    left.send(Outgoing::new(up.clone())).unwrap();
    right.send(Outgoing::new(down.clone())).unwrap();
    let (came_down, came_up) = soon("5 MB both ways", async {
        tokio::join!(received(&left), received(&right))
    })
    .await;
    assert!(came_up == up && came_down == down);
    left.finish(1000, "done").await;
    let closed = soon("the end", right.closed()).await;
    assert_eq!((closed.code, closed.reason.as_str()), (1000, "done"));
    soon("the last words", async {
        tokio::join!(left.ended(), right.ended())
    })
    .await;
}

#[tokio::test]
async fn a_slow_reader_stops_its_sender_and_nobody_else() {
    let (client, server) = pair(&ConnectOptions::default(), ListenOptions::default()).await;
    let (slow, sender) = (open(client), open(server.websocket));
    let (client, server) = pair(&ConnectOptions::default(), ListenOptions::default()).await;
    let (other, second) = (open(client), open(server.websocket));
    // Nobody takes the slow connection's messages; its sender's queue fills, and then refuses messages.
    let mut sent = 0;
    let full = soon("a full queue", async {
        loop {
            match sender.send(Outgoing::new(message(400_000, 's'))) {
                Ok(_) => sent += 1,
                Err(rejected) => return rejected,
            }
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert!(full.error.to_string().contains("queue"), "{}", full.error);
    second
        .send(Outgoing::new(message(1000, 'o')).in_lane(Lane(1)))
        .unwrap();
    assert_eq!(
        soon("the other", received(&other)).await.len(),
        message(1000, 'o').len()
    );
    for _ in 0..sent {
        assert_eq!(
            soon("a late message", received(&slow)).await.len(),
            full.message.bytes.len()
        );
    }
}
