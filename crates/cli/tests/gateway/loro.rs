//! Programs of loro-extended on two sides of a gateway.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};

use breakbulk::link::Frame;
use breakbulk::net::ws::{ConnectOptions, WsSink, WsSource, connect};
use breakbulk::net::{Incoming, Sink, Source, Transport};

use crate::common::{Listening, gateway, run, said};

/// `loro serve`, ended with the test.
struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start() -> Self {
        let mut child = loro(&["serve", "--listen", "127.0.0.1:0"]).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let address = loop {
            let line = lines.next().unwrap().unwrap();
            let found = line.split("ws://").nth(1);
            if let Some(address) = found.and_then(|rest| rest.split("/ws").next()) {
                break address.to_owned();
            }
        };
        // Read on: otherwise the pipe would fill up and block the server.
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, address }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn loro(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_breakbulk"));
    command
        .arg("loro")
        .args(arguments)
        .env_remove("BREAKBULK_TOKEN")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

fn push(url: &str, token: Option<&str>, size: usize) -> Output {
    let mut command = loro(&["push", url, "doc"]);
    command.envs(token.map(|token| ("BREAKBULK_TOKEN", token)));
    // Documents are compressed, so that each word is another one.
    let words =
        (0..size as u64 / 8).map(|n| format!("{:08x}", (n * n).wrapping_mul(2_654_435_761) as u32));
    let json = format!("{{\"text\":\"{}\"}}", words.collect::<String>());
    run(command, json.into_bytes())
}

/// A client that names itself 7 and says nothing; returns once the server is ready.
async fn seven(address: &str) -> (WsSource, WsSink) {
    let url = format!("{address}/?peerId=7");
    let websocket = connect(&url, &ConnectOptions::default()).await.unwrap();
    let (mut source, sink) = websocket.split();
    assert_eq!(word(&mut source).await, "ready");
    (source, sink)
}

/// The next word of the other end.
async fn word(source: &mut WsSource) -> String {
    loop {
        match source.next().await {
            Incoming::Frame(Frame::Text(text)) => {
                return String::from_utf8(text.to_vec()).unwrap();
            }
            Incoming::Alive | Incoming::Frame(_) => {}
            other => panic!("{other:?}"),
        }
    }
}

/// By polls a server takes the second connection of an id for the same peer, and ends the first.
// LORO-36
#[tokio::test]
async fn two_clients_with_one_peer_id_do_not_end_each_other() {
    let server = Server::start();
    let to = format!("loro+http://{}?transport=poll", server.address);
    let near = Listening::new(&["--listen", "loro+ws://0", "--to", &to]);
    let (mut first, mut say) = seven(&near.address).await;
    let (mut second, _say) = seven(&near.address).await;
    for _ in 0..20 {
        say.send(Frame::Text("ping".into())).await.unwrap();
        assert_eq!(word(&mut first).await, "pong");
        // An end of the first session would be heard here.
        let silence = std::time::Duration::from_millis(20);
        let heard = tokio::time::timeout(silence, second.next()).await;
        assert!(
            !matches!(heard, Ok(Incoming::Closed(_))),
            "the second one has ended"
        );
    }
}

#[test]
fn a_token_is_asked_for_by_every_transport() {
    let server = Server::start();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    std::fs::write(&file, "opensesame").unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&file, mode).unwrap();
    let listen = format!("loro+http://0?token-file={}", file.display());
    let to = format!("loro+ws://{}/ws", server.address);
    let near = Listening::new(&["--listen", &listen, "--to", &to]);
    let address = near.address.strip_prefix("loro+http://").unwrap();
    for url in [
        format!("ws://{address}/ws"),
        format!("http://{address}?transport=sse"),
        format!("http://{address}?transport=poll"),
        format!("http://{address}?transport=webrtc"),
    ] {
        let output = push(&url, None, 16);
        assert_eq!(output.status.code(), Some(2), "{url}: {}", said(&output));
        assert!(said(&output).contains("401"), "{url}: {}", said(&output));
        let output = push(&url, Some("opensesame"), 16);
        assert_eq!(output.status.code(), Some(0), "{url}: {}", said(&output));
    }
}

#[test]
fn a_message_over_the_limit_of_the_gateway_is_refused_by_that_limit() {
    let server = Server::start();
    let to = format!("loro+ws://{}/ws", server.address);
    let near = Listening::new(&[
        "--listen",
        "loro+http://0",
        "--to",
        &to,
        "--max-message",
        "100KB",
    ]);
    let address = near.address.strip_prefix("loro+http://").unwrap();
    for url in [
        format!("ws://{address}/ws"),
        format!("http://{address}?transport=sse"),
    ] {
        let output = push(&url, None, 1_000_000);
        assert_eq!(output.status.code(), Some(1), "{url}: {}", said(&output));
        assert!(said(&output).contains("100000"), "{url}: {}", said(&output));
        // The operator is told which limit it was, and how the session ended.
        let told = near.line("100000");
        assert!(told.contains("127.0.0.1"), "{told}");
    }
}

#[test]
fn a_listener_takes_all_transports_and_a_target_has_one() {
    for (listen, to, words) in [
        (
            "loro+http://0?transport=sse",
            "loro+ws://127.0.0.1:1",
            "--listen: transport is for targets",
        ),
        (
            "loro+ws://0",
            "loro+http://127.0.0.1:1?transport=ssse",
            "did you mean sse?",
        ),
        (
            "loro+http://0.0.0.0:0",
            "loro+ws://127.0.0.1:1",
            "is open to others than this machine",
        ),
        (
            "loro+ws://0",
            "loro+http://8080",
            "did you mean loro+http://127.0.0.1:8080?",
        ),
    ] {
        let output = run(gateway(&["--listen", listen, "--to", to]), Vec::new());
        assert_eq!(output.status.code(), Some(2), "{}", said(&output));
        assert!(said(&output).contains(words), "{}", said(&output));
    }
}
