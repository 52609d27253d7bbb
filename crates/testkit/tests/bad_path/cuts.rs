//! Connections that end: after so many frames or bytes, at once, or before they begin.

use breakbulk_testkit::bad_path::{After, BadPath, Cut, Direction, How, Over, Weather};
use futures_util::{SinkExt, StreamExt};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::common::{Seen, connect, echo, round_trip, soon, text};

#[tokio::test]
async fn a_cut_after_n_frames_lets_exactly_n_pass() {
    for how in [How::Reset, How::End] {
        for frames in 0..6 {
            let (server, mut seen) = echo().await;
            let path = BadPath::start(server, Weather::default()).await.unwrap();
            path.cut_after(Cut {
                counting: Some(Direction::FromClient),
                how,
                ..Cut::frames(frames)
            });
            let connected = soon(connect(&path)).await;
            if let Ok(mut client) = connected {
                for _ in 0..10 {
                    // It fails once the cut fell.
                    let _ = soon(client.send(text(100))).await;
                }
                while let Some(Ok(message)) = soon(client.next()).await {
                    assert!(!message.is_close(), "a cut is no Close");
                }
            } else {
                assert_eq!(frames, 0, "only then can the cut race with the handshake");
            }
            let counts = soon(path.until(|counts| counts.open == 0)).await;
            assert_eq!((counts.from_client.frames, counts.cuts), (frames, 1));
            let mut arrived = 0;
            while let Ok(Seen::Message(_)) = seen.try_recv() {
                arrived += 1;
            }
            assert!(arrived <= frames);
            // It fell once; the next connection lives.
            let mut client = soon(connect(&path)).await.unwrap();
            for _ in 0..10 {
                round_trip(&mut client, 100).await;
            }
        }
    }
}

#[tokio::test]
async fn what_passed_before_an_end_of_the_stream_arrives() {
    for frames in 1..20 {
        let (server, mut seen) = echo().await;
        let path = BadPath::start(server, Weather::default()).await.unwrap();
        path.cut_after(Cut {
            after: After::Frames(frames),
            counting: Some(Direction::FromClient),
            over: Over::EachConnection,
            how: How::End,
        });
        for _ in 0..2 {
            let mut client = soon(connect(&path)).await.unwrap();
            for _ in 0..20 {
                let _ = soon(client.send(text(3000))).await;
            }
            for _ in 0..frames {
                assert_eq!(soon(seen.recv()).await, Some(Seen::Message(3000)));
            }
            assert_eq!(soon(seen.recv()).await, Some(Seen::End), "{frames}");
        }
        soon(path.until(|counts| counts.cuts == 2)).await;
    }
}

#[tokio::test]
async fn cuts_count_both_directions_and_all_connections() {
    let (server, _seen) = echo().await;
    let path = BadPath::start(server, Weather::default()).await.unwrap();
    let mut first = soon(connect(&path)).await.unwrap();
    let mut second = soon(connect(&path)).await.unwrap();
    round_trip(&mut first, 10).await;
    // Counted from now on: two on the first, one of two on the second.
    path.cut_after(Cut::frames(3));
    round_trip(&mut first, 10).await;
    soon(second.send(text(10))).await.unwrap();
    assert!(!matches!(soon(second.next()).await, Some(Ok(_))));
    let counts = soon(path.until(|counts| counts.cuts == 1)).await;
    assert_eq!(
        (counts.from_client.frames, counts.from_target.frames),
        (3, 2)
    );
    round_trip(&mut first, 10).await;
    // Due already on a connection that has passed so much: it falls at once.
    path.cut_after(Cut {
        over: Over::EachConnection,
        ..Cut::frames(6)
    });
    assert!(!matches!(soon(first.next()).await, Some(Ok(_))));
    path.cut_no_more();
    let mut third = soon(connect(&path)).await.unwrap();
    for _ in 0..10 {
        round_trip(&mut third, 10).await;
    }
}

#[tokio::test]
async fn plain_tcp_is_cut_after_exactly_n_bytes() {
    for bytes in [1, 4321, 100_000] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let path = BadPath::start_tcp(listener.local_addr().unwrap(), Weather::default())
            .await
            .unwrap();
        path.cut_after(Cut {
            how: How::End,
            ..Cut::bytes(bytes)
        });
        let mut client = TcpStream::connect(path.address()).await.unwrap();
        let (mut target, _) = listener.accept().await.unwrap();
        let sending = async { client.write_all(&[7; 200_000]).await };
        let mut got = Vec::new();
        let (_, read) = soon(async { tokio::join!(sending, target.read_to_end(&mut got)) }).await;
        read.unwrap();
        assert_eq!(got.len() as u64, bytes);
        assert_eq!(path.counts().from_client.bytes, bytes);
    }
}

#[tokio::test]
async fn both_ends_see_a_reset_or_the_end_of_the_stream() {
    let reset = Err(std::io::ErrorKind::ConnectionReset);
    for (how, expected) in [(How::Reset, reset), (How::End, Ok(0))] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let path = BadPath::start_tcp(address, Weather::default())
            .await
            .unwrap();
        let mut client = TcpStream::connect(path.address()).await.unwrap();
        let (mut target, _) = listener.accept().await.unwrap();
        client.write_all(b"x").await.unwrap();
        assert_eq!(soon(target.read_u8()).await.unwrap(), b'x');
        assert_eq!(path.cut(how), 1);
        for end in [&mut client, &mut target] {
            let read = soon(end.read(&mut [0; 9])).await;
            assert_eq!(read.map_err(|error| error.kind()), expected, "{how:?}");
        }
    }
}

#[tokio::test]
async fn a_cut_now_ends_one_connection_or_all_and_refusing_keeps_new_ones_out() {
    let (server, _seen) = echo().await;
    let path = BadPath::start(format!("localhost:{}", server.port()), Weather::default())
        .await
        .unwrap();
    let mut clients = Vec::new();
    for _ in 0..3 {
        clients.push(soon(connect(&path)).await.unwrap());
    }
    assert_eq!(path.connections(), [1, 2, 3]);
    assert!(path.cut_one(2, How::Reset));
    assert!(!matches!(soon(clients[1].next()).await, Some(Ok(_))));
    assert!(!path.cut_one(2, How::Reset));
    round_trip(&mut clients[0], 10).await;

    path.refuse();
    assert!(soon(connect(&path)).await.is_err());
    round_trip(&mut clients[2], 10).await;
    assert_eq!(path.control().cut(How::Reset), 2);
    for client in [0, 2] {
        assert!(!matches!(soon(clients[client].next()).await, Some(Ok(_))));
    }
    let counts = soon(path.until(|counts| counts.open == 0)).await;
    assert_eq!((counts.accepted, counts.refused, counts.cuts), (3, 1, 3));
    path.admit();
    round_trip(&mut soon(connect(&path)).await.unwrap(), 10).await;
}
