//! Exchanges frames with another WebSocket implementation, with a source whose future is dropped at
//! every wait.

use breakbulk_link::{Frame, Random};
use breakbulk_net::ws::{ConnectOptions, ListenOptions, WsSink, WsSource, connect};
use breakbulk_net::{Incoming, Sink, Source, Transport};
use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::tungstenite::protocol::frame::Frame as Fragment;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Data, OpCode};
use tokio_tungstenite::tungstenite::{Message, Utf8Bytes};
use tokio_tungstenite::{WebSocketStream, accept_async, client_async};

use crate::common::{listen, soon};

const MESSAGES: usize = 200;

fn payload(random: &mut Random) -> Vec<u8> {
    let scale = [8, 200, 9000, 70_000, 400_000][(random.next() % 5) as usize];
    let size = (random.next() % scale) as usize;
    (0..size)
        .map(|_| b'a' + (random.next() % 26) as u8)
        .collect()
}

/// Every message of a seed, from the other implementation to ours: whole, or in fragments with pings
/// between them.
fn messages(seed: u64) -> Vec<(Vec<Message>, Frame)> {
    let mut random = Random::from_number(seed);
    let mut all = Vec::new();
    for _ in 0..MESSAGES {
        let bytes = Bytes::from(payload(&mut random));
        let text = random.next().is_multiple_of(2);
        let (kind, frame) = match text {
            true => (Data::Text, Frame::Text(bytes.clone())),
            false => (Data::Binary, Frame::Binary(bytes.clone())),
        };
        let mut sent = Vec::new();
        if !random.next().is_multiple_of(3) {
            sent.push(match text {
                true => Message::Text(Utf8Bytes::try_from(bytes).unwrap()),
                false => Message::Binary(bytes),
            });
        } else {
            let mut rest = bytes;
            let mut opcode = OpCode::Data(kind);
            while !random.next().is_multiple_of(4) {
                let part = rest.split_to((random.next() % (rest.len() as u64 + 1)) as usize);
                sent.push(Message::Frame(Fragment::message(part, opcode, false)));
                sent.push(Message::Ping(Bytes::from_static(b"now")));
                opcode = OpCode::Data(Data::Continue);
            }
            sent.push(Message::Frame(Fragment::message(rest, opcode, true)));
        }
        all.push((sent, frame));
    }
    all
}

async fn exchange(
    seed: u64,
    mut theirs: WebSocketStream<TcpStream>,
    mut source: WsSource,
    mut sink: WsSink,
) {
    println!("seed {seed}");
    let all = messages(seed);
    let expected: Vec<_> = all.iter().map(|(_, frame)| frame.clone()).collect();
    let back = expected.clone();
    let they = async {
        for (sent, _) in all {
            for message in sent {
                theirs.send(message).await.unwrap();
            }
        }
        for frame in &expected {
            let message = loop {
                match theirs.next().await.unwrap().unwrap() {
                    Message::Pong(payload) => assert_eq!(payload, "now"),
                    other => break other,
                }
            };
            assert_eq!(message.is_text(), matches!(frame, Frame::Text(_)));
            assert!(message.into_data() == frame.bytes());
        }
        theirs.close(None).await.unwrap();
        while theirs.next().await.is_some() {}
    };
    let we = async {
        for frame in &back {
            let came = loop {
                let word = tokio::select! {
                    biased;
                    word = source.next() => word,
                    () = tokio::task::yield_now() => continue,
                };
                match word {
                    Incoming::Alive => {}
                    other => break other,
                }
            };
            assert!(came == Incoming::Frame(frame.clone()), "a frame differs");
        }
        for frame in back {
            sink.send(frame).await.unwrap();
        }
        loop {
            match source.next().await {
                Incoming::Alive => {}
                Incoming::Closed(closed) => break assert_eq!(closed.code, 1005),
                other => panic!("{other:?}"),
            }
        }
        sink.close(1000, "").await;
    };
    soon("the exchange", async { tokio::join!(they, we) }).await;
}

#[tokio::test]
async fn our_server_and_another_client_understand_each_other() {
    for seed in 0..4 {
        let (mut listener, url) = listen(ListenOptions {
            fragment: (seed % 2 == 1).then_some(1000),
            ..ListenOptions::default()
        })
        .await;
        let stream = TcpStream::connect(listener.local_addr()).await.unwrap();
        let (theirs, ours) = tokio::join!(client_async(url, stream), listener.accept());
        let (source, sink) = ours.unwrap().websocket.split();
        exchange(seed, theirs.unwrap().0, source, sink).await;
    }
}

#[tokio::test]
async fn our_client_and_another_server_understand_each_other() {
    for seed in 10..14 {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("ws://{}/", listener.local_addr().unwrap());
        let serve = async {
            accept_async(listener.accept().await.unwrap().0)
                .await
                .unwrap()
        };
        let options = ConnectOptions {
            fragment: (seed % 2 == 1).then_some(1000),
            ..ConnectOptions::default()
        };
        let (ours, theirs) = tokio::join!(connect(&url, &options), serve);
        let (source, sink) = ours.unwrap().split();
        exchange(seed, theirs, source, sink).await;
    }
}
