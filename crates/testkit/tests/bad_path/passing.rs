//! What passes: unchanged, counted, and only while the path is there.

use std::time::Duration;

use breakbulk_testkit::bad_path::{BadPath, How, Weather};
use futures_util::{SinkExt, StreamExt};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::tungstenite::Message;

use crate::common::{Seen, connect, echo, round_trip, soon, text};

#[tokio::test]
async fn random_messages_pass_unchanged_and_are_counted() {
    let seed = match std::env::var("BAD_PATH_SEED") {
        Ok(seed) => seed.parse().unwrap(),
        Err(_) => std::process::id().into(),
    };
    println!("BAD_PATH_SEED={seed}");
    let mut random = Random(seed);
    let (server, _seen) = echo().await;
    let path = BadPath::start(server, Weather::default()).await.unwrap();
    let mut client = soon(connect(&path)).await.unwrap();
    let (mut largest, mut total) = (0, 0);
    for _ in 0..200 {
        let bits = random.next() % 19;
        let length = random.next() % (1 << bits);
        let bytes: Vec<u8> = (0..length).map(|_| random.next() as u8).collect();
        largest = largest.max(length);
        total += length;
        let message = Message::binary(bytes);
        let (sent, echoed) = soon(async {
            let (mut to, mut from) = (&mut client).split();
            tokio::join!(to.send(message.clone()), from.next())
        })
        .await;
        sent.unwrap();
        assert!(
            echoed.unwrap().unwrap() == message,
            "a message of {length} bytes changed"
        );
    }
    let counts = path.counts();
    for (passed, key) in [(counts.from_client, 4), (counts.from_target, 0)] {
        assert_eq!((passed.frames, passed.messages), (200, 200));
        assert_eq!(
            (passed.largest_frame, passed.largest_message),
            (largest, largest)
        );
        assert!(
            passed.bytes >= total + 200 * (2 + key) && passed.bytes <= total + 200 * (10 + key)
        );
    }
    soon(client.close(None)).await.unwrap();
    while soon(client.next()).await.is_some() {}
    drop(client);
    let counts = soon(path.until(|counts| counts.open == 0)).await;
    assert_eq!(
        (
            counts.from_client.control_frames,
            counts.from_target.control_frames
        ),
        (1, 1)
    );
    assert_eq!((counts.accepted, counts.cuts), (1, 0));
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

#[tokio::test]
async fn a_held_path_passes_nothing_until_it_resumes() {
    let (server, mut seen) = echo().await;
    let path = BadPath::start(server, Weather::default()).await.unwrap();
    let mut client = soon(connect(&path)).await.unwrap();
    round_trip(&mut client, 10).await;
    assert_eq!(seen.recv().await, Some(Seen::Message(10)));
    path.hold();
    soon(client.send(text(20))).await.unwrap();
    // Time in which a path that does not hold would deliver.
    let early = tokio::time::timeout(Duration::from_millis(50), seen.recv()).await;
    assert!(early.is_err(), "{early:?}");
    assert_eq!(path.counts().from_client.frames, 1);
    path.resume();
    assert_eq!(soon(client.next()).await.unwrap().unwrap().len(), 20);
    // A held connection can be cut.
    path.hold();
    assert_eq!(path.cut(How::Reset), 1);
    assert!(!matches!(soon(client.next()).await, Some(Ok(_))));
}

#[tokio::test]
async fn hostile_clients_and_absent_targets_end_their_connection() {
    let (server, _seen) = echo().await;
    let weather = Weather {
        connections: 2,
        ..Weather::default()
    };
    let path = BadPath::start(server, weather).await.unwrap();
    let _first = soon(connect(&path)).await.unwrap();
    let mut endless = TcpStream::connect(path.address()).await.unwrap();
    soon(path.until(|counts| counts.open == 2)).await;
    assert!(soon(connect(&path)).await.is_err(), "one too many");
    assert_eq!(path.counts().refused, 1);
    let _ = soon(endless.write_all(&vec![b'a'; 1_000_000])).await;
    let counts = soon(path.until(|counts| counts.open == 1)).await;
    assert_eq!(counts.long_heads, 1);

    let closed = TcpListener::bind("127.0.0.1:0")
        .await
        .unwrap()
        .local_addr()
        .unwrap();
    let path = BadPath::start(closed, Weather::default()).await.unwrap();
    assert!(soon(connect(&path)).await.is_err());
    assert_eq!(
        soon(path.until(|counts| counts.unreachable == 1))
            .await
            .accepted,
        1
    );
}

#[tokio::test]
async fn a_dropped_path_leaves_no_connection_and_no_listener() {
    let (server, mut seen) = echo().await;
    let path = BadPath::start(server, Weather::default()).await.unwrap();
    let (control, address) = (path.control(), path.address());
    let mut client = soon(connect(&path)).await.unwrap();
    drop(path);
    assert!(!matches!(soon(client.next()).await, Some(Ok(_))));
    assert_eq!(soon(seen.recv()).await, Some(Seen::End));
    soon(control.until(|counts| counts.open == 0)).await;
    assert!(TcpStream::connect(address).await.is_err());
}
