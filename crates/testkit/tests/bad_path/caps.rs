//! What does not fit is refused with a Close to both sides.

use breakbulk_testkit::bad_path::{BadPath, Way, Weather};
use futures_util::{SinkExt, StreamExt};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::frame::Frame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Data, OpCode};

use crate::common::{Client, Seen, connect, echo, soon, text};

fn piece(first: bool, length: usize, last: bool) -> Message {
    let kind = if first { Data::Text } else { Data::Continue };
    Message::Frame(Frame::message(vec![b'x'; length], OpCode::Data(kind), last))
}

/// The code and reason of the Close, or how else the client's connection ended.
async fn close_of(client: &mut Client) -> Result<(u16, String), String> {
    loop {
        match client.next().await {
            Some(Ok(Message::Close(Some(close)))) => {
                let told = (close.code.into(), close.reason.to_string());
                // The stream ends in order after the Close, not by a reset.
                while let Some(after) = client.next().await {
                    after.map_err(|error| error.to_string())?;
                }
                return Ok(told);
            }
            Some(Ok(_)) => {}
            Some(Err(error)) => return Err(error.to_string()),
            None => return Err("no close".to_string()),
        }
    }
}

fn caps(frame: u64, message: u64) -> Weather {
    Weather::both_ways(Way {
        frame_cap: Some(frame),
        message_cap: Some(message),
        ..Way::default()
    })
}

#[tokio::test]
async fn caps_let_pass_what_fits_and_close_both_sides_on_what_does_not() {
    let over = |what: &str, size: u64, cap: u64| {
        Some((
            1009,
            format!("{what} of {size} bytes over the cap of {cap}"),
        ))
    };
    let text_only = Weather::both_ways(Way {
        text_only: true,
        ..Way::default()
    });
    let mut answer_capped = Weather::default();
    answer_capped.from_target.message_cap = Some(999);
    let pieces = |last| {
        vec![
            piece(true, 1000, false),
            piece(false, 1000, false),
            piece(false, last, true),
        ]
    };
    let binary = Message::binary(vec![0; 5]);
    // The name, the weather, what is sent, how much of it arrives, the Close if any.
    let cases = [
        (
            "at the frame cap",
            caps(1000, 9000),
            vec![text(1000)],
            Some(1000),
            None,
        ),
        (
            "one over it",
            caps(1000, 9000),
            vec![text(1001)],
            None,
            over("frame", 1001, 1000),
        ),
        (
            "far over it",
            caps(1000, 9000),
            vec![text(5_000_000)],
            None,
            over("frame", 5_000_000, 1000),
        ),
        (
            "at the message cap",
            caps(9000, 1000),
            vec![text(1000)],
            Some(1000),
            None,
        ),
        (
            "one over it",
            caps(9000, 1000),
            vec![text(1001)],
            None,
            over("message", 1001, 1000),
        ),
        (
            "pieces at the message cap",
            caps(2500, 2500),
            pieces(500),
            Some(2500),
            None,
        ),
        (
            "pieces over it",
            caps(1000, 2500),
            pieces(501),
            None,
            over("message", 2501, 2500),
        ),
        (
            "control frames are no message",
            caps(100, 100),
            vec![
                Message::Ping(vec![0; 125].into()),
                piece(true, 50, false),
                Message::Ping(vec![0; 125].into()),
                piece(false, 50, true),
            ],
            Some(100),
            None,
        ),
        (
            "the answer is over the cap",
            answer_capped,
            vec![text(1000)],
            Some(1000),
            over("message", 1000, 999),
        ),
        (
            "binary where it may",
            Weather::default(),
            vec![binary.clone()],
            Some(5),
            None,
        ),
        (
            "binary on a path for text",
            text_only,
            vec![binary],
            None,
            Some((1003, "binary message on a path for text".to_string())),
        ),
    ];
    for (name, weather, messages, arrives, close) in cases {
        let (server, mut seen) = echo().await;
        let path = BadPath::start(server, weather).await.unwrap();
        let mut client = soon(connect(&path)).await.unwrap();
        for message in messages {
            // The path may close while a large frame is still on its way into it.
            let _ = soon(client.send(message)).await;
        }
        if let Some(length) = arrives {
            assert_eq!(
                soon(seen.recv()).await,
                Some(Seen::Message(length)),
                "{name}"
            );
        }
        match close {
            None => {
                let echoed = loop {
                    match soon(client.next()).await.unwrap().unwrap() {
                        Message::Pong(_) => {}
                        message => break message,
                    }
                };
                assert_eq!(Some(echoed.len()), arrives, "{name}");
                assert_eq!(path.counts().from_client.blocked, 0, "{name}");
            }
            Some((code, reason)) => {
                assert_eq!(
                    soon(close_of(&mut client)).await,
                    Ok((code, reason.clone())),
                    "{name}"
                );
                assert_eq!(
                    soon(seen.recv()).await,
                    Some(Seen::Close(code, reason)),
                    "{name}"
                );
                assert_eq!(soon(seen.recv()).await, Some(Seen::End), "{name}");
                drop(client);
                let counts = soon(path.until(|counts| counts.open == 0)).await;
                assert_eq!(
                    counts.from_client.blocked + counts.from_target.blocked,
                    1,
                    "{name}"
                );
                assert_eq!(counts.cuts, 0, "{name}");
            }
        }
    }
}

#[tokio::test]
async fn the_close_waits_for_the_end_of_a_frame_in_the_other_direction() {
    let weather = {
        let mut weather = Weather::default();
        weather.from_client.frame_cap = Some(10);
        weather
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let path = BadPath::start(listener.local_addr().unwrap(), weather)
        .await
        .unwrap();
    let mut client = TcpStream::connect(path.address()).await.unwrap();
    client.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let (mut target, _) = listener.accept().await.unwrap();
    // A frame of four bytes whose second half comes later.
    target
        .write_all(b"HTTP/1.1 101 x\r\n\r\n\x81\x04ab")
        .await
        .unwrap();
    let mut got = vec![0; 22];
    soon(client.read_exact(&mut got)).await.unwrap();
    client
        .write_all(&[0x81, 0x80 | 11, 0, 0, 0, 0])
        .await
        .unwrap();
    let mut head = [0; 18];
    soon(target.read_exact(&mut head)).await.unwrap();
    soon(path.until(|counts| counts.from_client.blocked == 1)).await;
    target.write_all(b"cd\x81\x04efgh").await.unwrap();
    got.clear();
    soon(client.read_to_end(&mut got)).await.unwrap();
    assert_eq!(
        got,
        b"cd\x88\x26\x03\xf1frame of 11 bytes over the cap of 10"
    );
    got.clear();
    soon(target.read_to_end(&mut got)).await.unwrap();
    assert_eq!(got[..2], [0x88, 0xa6], "masked");
    assert_eq!(got.len(), 2 + 4 + 38);
}
