//! WebSockets at either end: bytes, and TLS.

use breakbulk::link::Frame;
use breakbulk::net::ws::{ConnectOptions, ListenOptions, Listener, connect};
use breakbulk::net::{Incoming, Sink, Source, Transport};

use crate::common::{Listening, PATIENCE, gateway, lines, requests, run, said};

#[test]
fn two_gateways_carry_a_program_over_wss() {
    let folder = std::env::temp_dir().join(format!("breakbulk-wss-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = |name: &str| folder.join(name).display().to_string();
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    std::fs::write(file("cert.pem"), made.cert.pem()).unwrap();
    std::fs::write(file("key.pem"), made.signing_key.serialize_pem()).unwrap();
    let listen = format!(
        "wss://0?cert={}&key={}&max-frame=50KB",
        file("cert.pem"),
        file("key.pem")
    );
    let far = Listening::new(&["--listen", &listen, "--to", "exec:cat"]);
    assert!(
        far.address.starts_with("wss://127.0.0.1:"),
        "{}",
        far.address
    );
    let trusted = format!("{}?ca={}", far.address, file("cert.pem"));
    let input = lines(&[10, 1_000_000, 50_000]);
    let output = run(
        gateway(&["--listen", "stdio:", "--to", &trusted]),
        input.clone(),
    );
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert!(output.stdout == input, "not byte for byte");
    // A client that does not trust the certificate, or speaks no TLS, is told, and the listener logs it.
    let output = run(
        gateway(&["--listen", "stdio:", "--to", &far.address]),
        Vec::new(),
    );
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert!(said(&output).contains("TLS failed"), "{}", said(&output));
    far.line("a client is refused: TLS failed");
    std::fs::remove_dir_all(folder).unwrap();
}

#[tokio::test]
async fn a_message_over_the_limit_closes_a_websocket_with_1009() {
    let folder = tempfile::tempdir().unwrap();
    let ended = folder.path().join("ended");
    let command = format!("exec:sh -c 'cat; echo > {}'", ended.display());
    let end = Listening::new(&[
        "--listen",
        "whole+ws://0",
        "--to",
        &command,
        "--max-message",
        "1KB",
    ]);
    let websocket = connect(&end.address, &ConnectOptions::default()).await;
    let (mut source, mut sink) = websocket.unwrap().split();
    sink.send(Frame::Text("x".repeat(1001).into()))
        .await
        .unwrap();
    let closed = loop {
        match source.next().await {
            Incoming::Alive => {}
            Incoming::Closed(closed) => break closed,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(closed.code, 1009, "{closed:?}");
    let line = end.line("this gateway closed its connection to the client with 1009");
    assert!(
        line.contains("start this gateway with a larger --max-message"),
        "{line}"
    );
    // The command sees the end of its input.
    let start = std::time::Instant::now();
    while !ended.exists() {
        assert!(start.elapsed() < PATIENCE, "its input did not end");
        tokio::task::yield_now().await;
    }
}

/// A WebSocket server that finds the first message too large.
async fn narrow() -> std::net::SocketAddr {
    let options = ListenOptions::default();
    let mut listener = Listener::bind("127.0.0.1:0", options).await.unwrap();
    let address = listener.local_addr();
    tokio::spawn(async move {
        while let Ok(accepted) = listener.accept().await {
            let (mut source, mut sink) = accepted.websocket.split();
            while !matches!(source.next().await, Incoming::Frame(_)) {}
            sink.close(1009, "over size limit (> 65536 bytes)").await;
            while !matches!(source.next().await, Incoming::Closed(_)) {}
        }
    });
    address
}

#[tokio::test]
async fn a_target_that_closes_with_1009_names_the_remedy() {
    let to = format!("whole+ws://{}/", narrow().await);
    let near = gateway(&["--listen", "stdio:", "--to", &to]);
    let ran = tokio::task::spawn_blocking(|| run(near, requests(&[100_000])));
    let output = ran.await.unwrap();
    let (out, said) = (String::from_utf8_lossy(&output.stdout), said(&output));
    assert_eq!(output.status.code(), Some(1), "{said}");
    let words = "the limit there seems to be 65536; whole+ sends each message as one frame, whatever its size: leave out whole+ at this end, and start another gateway without whole+ at the other side of the path";
    assert!(said.contains(words), "{said}");
    // These options do not apply to this end.
    assert!(!said.contains("--max-frame"), "{said}");
    assert!(!said.contains("--preset"), "{said}");
    assert!(out.contains(r#""id":0,"error":{"code":-32000,"#), "{out}");
    assert!(out.contains(words), "{out}");
}

/// A WebSocket server that sends back what it gets, without looking at it.
async fn echo() -> std::net::SocketAddr {
    let options = ListenOptions::default();
    let mut listener = Listener::bind("127.0.0.1:0", options).await.unwrap();
    let address = listener.local_addr();
    tokio::spawn(async move {
        while let Ok(accepted) = listener.accept().await {
            let (mut source, mut sink) = accepted.websocket.split();
            tokio::spawn(async move {
                loop {
                    match source.next().await {
                        Incoming::Frame(frame) => sink.send(frame).await.unwrap(),
                        Incoming::Alive | Incoming::Posted(..) => {}
                        end @ (Incoming::Closed(_) | Incoming::Broken(_)) => {
                            return println!("the echo ends: {end:?}");
                        }
                    }
                }
            });
        }
    });
    address
}

#[tokio::test]
async fn bytes_pass_in_fragments_between_whole_ends() {
    let echo = echo().await;
    let to = format!("whole+ws://{echo}/");
    let far = Listening::new(&["--listen", "loro+ws://0?max-frame=100KB", "--to", &to]);
    let to = far.address.replace("ws://", "loro+ws://");
    let near = Listening::new(&[
        "--listen",
        "whole+ws://0",
        "--to",
        &format!("{to}?max-frame=100KB"),
    ]);
    let options = ConnectOptions::default();
    let websocket = connect(&near.address, &options).await.unwrap();
    let (mut source, mut sink) = websocket.split();
    for size in [0, 1, 99_999, 100_000, 3_000_000] {
        let bytes: Vec<u8> = (0..size).map(|n: u32| (n * 7 + n / 256) as u8).collect();
        let frame = Frame::Binary(bytes.into());
        sink.send(frame.clone()).await.unwrap();
        let back = loop {
            match source.next().await {
                Incoming::Alive => {}
                incoming => break incoming,
            }
        };
        if back != Incoming::Frame(frame) {
            let shown: String = format!("{back:?}").chars().take(300).collect();
            let log = (far.told_so_far(), near.told_so_far());
            panic!("{size}: {shown} {log:#?}");
        }
    }
}
