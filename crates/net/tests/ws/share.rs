//! One connection that always has something to read does not keep the others waiting.

use std::sync::{Arc, Mutex};

use breakbulk_link::{Budget, Event, Link};
use breakbulk_net::ws::ListenOptions;
use breakbulk_net::{Connection, Options};
use breakbulk_wire::Ahp;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::common::{raw_client, soon};

/// Connections that have only a few messages.
const CALM: usize = 9;

/// The messages of a calm connection.
const FEW: usize = 20;

/// The messages of the one that is never silent.
const MANY: usize = 50_000;

/// The driver takes about 64 small messages from one connection before it lets others run, and the runtime
/// looks which sockets have something to read once in 61 tasks that it runs. Without the driver's bound the
/// busy connection would be read until its socket is empty.
const SHARE: usize = 64 * 61;

/// A masked text frame, whose mask changes nothing.
fn frame() -> Vec<u8> {
    let text = br#"{"jsonrpc":"2.0","method":"m","params":{}}"#;
    let mut frame = vec![0x81, 0x80 | text.len() as u8, 0, 0, 0, 0];
    frame.extend_from_slice(text);
    frame
}

/// Fills the system's buffers from another thread; it ends when the server does.
fn fill(stream: TcpStream, messages: usize) {
    std::thread::spawn(move || {
        let mut stream = stream.into_std().unwrap();
        stream.set_nonblocking(false).unwrap();
        let bytes = frame().repeat(messages);
        let _ = std::io::Write::write_all(&mut stream, &bytes);
        // Held open until the other end closes.
        let _ = std::io::copy(&mut stream, &mut std::io::sink());
    });
}

// One thread, so that the task that runs keeps all others waiting.
#[tokio::test]
async fn a_connection_that_is_never_silent_takes_no_more_than_its_share() {
    let mut sockets = Vec::new();
    for number in 0..=CALM {
        let (websocket, mut stream) = raw_client(ListenOptions::default()).await;
        match number {
            0 => fill(stream, MANY),
            _ => {
                stream.write_all(&frame().repeat(FEW)).await.unwrap();
                fill(stream, 0);
            }
        }
        sockets.push(websocket);
    }
    // Every message in the order in which the applications got them, by the number of its connection.
    let log = Arc::new(Mutex::new(Vec::new()));
    let mut served = Vec::new();
    for (number, websocket) in sockets.into_iter().enumerate() {
        let mut config = Ahp::config();
        // The limit on undelivered messages does not hold any of them back.
        config.limits.undelivered = MANY;
        let wire = Arc::new(Ahp);
        let link = Link::new(wire.clone(), wire, config, Budget::unlimited(), [7; 32]);
        let connection = Connection::open(link, websocket, Options::default()).unwrap();
        let log = log.clone();
        let wanted = if number == 0 { MANY } else { FEW };
        served.push(tokio::spawn(async move {
            let mut got = 0;
            while got < wanted {
                match connection.event().await {
                    Some(Event::Message(_)) => {
                        got += 1;
                        log.lock().unwrap().push(number);
                    }
                    Some(Event::Closed(closed)) => panic!("{number}: {closed}"),
                    Some(_) => {}
                    None => panic!("{number}: closed"),
                }
            }
            connection
        }));
    }
    let mut held = Vec::new();
    for (number, task) in served.into_iter().enumerate() {
        held.push(soon("all messages", task).await.unwrap());
        assert_eq!(held.len(), number + 1);
    }
    let log = log.lock().unwrap();
    assert_eq!(log.len(), MANY + CALM * FEW);
    let last_calm = log.iter().rposition(|number| *number != 0).unwrap();
    let before = log[..last_calm].iter().filter(|it| **it == 0).count();
    assert!(before <= SHARE, "{before} of the busy one came first");
}
