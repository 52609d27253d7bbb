//! `client=NAME`: what a program does not take becomes an error for whoever sent it.

use std::io::Write;
use std::process::{Command, Output, Stdio};

use breakbulk::link::Frame;
use breakbulk::net::ws::{ListenOptions, Listener};
use breakbulk::net::{Incoming, Sink, Source, Transport};

const MIB_10: usize = 10 * 1024 * 1024;

fn gateway(listen: &str, to: &str, input: Vec<u8>) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_breakbulk"))
        .args(["gateway", "--listen", listen, "--to", to])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || drop(stdin.write_all(&input)));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    output
}

/// A JSON-RPC message of exactly so many bytes.
fn message(beginning: &str, size: usize) -> String {
    let end = match beginning.ends_with('[') {
        true => "\"]}",
        false => "\"}",
    };
    let beginning = format!("{beginning}\"");
    let pad = size - beginning.len() - end.len();
    format!("{beginning}{}{end}", "x".repeat(pad))
}

const RESPONSE: &str = r#"{"jsonrpc":"2.0","id":7,"result":"#;
const REQUEST: &str = r#"{"jsonrpc":"2.0","id":7,"method":"m","params":["#;
const NOTIFICATION: &str = r#"{"jsonrpc":"2.0","method":"n","params":["#;

// PATH-1
#[test]
fn a_message_over_a_programs_limit_becomes_an_error_and_one_at_the_limit_passes() {
    let (client, plain) = ("?client=mcp-typescript", "");
    // A line break counts, so a message of one byte less than 10 MiB is the largest.
    for (name, beginning, size, (listen, to), exit_code) in [
        (
            "an answer at the limit",
            RESPONSE,
            MIB_10 - 1,
            (client, plain),
            0,
        ),
        (
            "an answer over the limit",
            RESPONSE,
            MIB_10,
            (client, plain),
            0,
        ),
        (
            "a request at the limit",
            REQUEST,
            MIB_10 - 1,
            (plain, client),
            0,
        ),
        (
            "a request over the limit",
            REQUEST,
            MIB_10,
            (plain, client),
            0,
        ),
        (
            "a notification over the limit",
            NOTIFICATION,
            MIB_10,
            (client, plain),
            1,
        ),
    ] {
        let input = message(beginning, size) + "\n";
        let passes = size < MIB_10;
        let is_request = beginning == REQUEST;
        // The target answers a request, and sends back any other message, but asks nothing itself.
        let command = match is_request {
            true => r#"exec:sed -u 's/"method":"m",.*/"result":1}/'"#,
            false => "exec:cat",
        };
        let output = gateway(
            &format!("stdio:{listen}"),
            &format!("{command}{to}"),
            input.clone().into_bytes(),
        );
        let (out, said) = (
            String::from_utf8(output.stdout).unwrap(),
            String::from_utf8_lossy(&output.stderr),
        );
        assert_eq!(output.status.code(), Some(exit_code), "{name}: {said}");
        let error = format!(
            r#"{{"jsonrpc":"2.0","id":7,"error":{{"code":-32011,"message":"message too large: {size} bytes, and the program at its receiver takes 10485759 (client=mcp-typescript of the gateway there); send less, or raise that program's own limit and start its gateway without client=mcp-typescript","data":{{"reason":"messageTooLarge","messageBytes":{size},"maxMessageBytes":10485759,"chunking":false}}}}}}{}"#,
            "\n"
        );
        let expected = match (passes, is_request) {
            (true, false) => input,
            (true, true) => "{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":1}\n".to_owned(),
            (false, _) if beginning == NOTIFICATION => String::new(),
            (false, _) => error,
        };
        if out != expected {
            let shown: String = out.chars().take(600).collect();
            panic!("{name}: {} bytes: {shown}; {said}", out.len());
        }
        if beginning == NOTIFICATION {
            assert!(
                said.contains("\"n\" is dropped: message too large"),
                "{said}"
            );
        }
    }
}

/// A WebSocket server that answers every message with a response of this size, and closes with 1009 when
/// it gets a message over 16 KiB.
async fn program(answer: usize) -> std::net::SocketAddr {
    let options = ListenOptions {
        frame_limit: 16_384,
        ..ListenOptions::default()
    };
    let mut listener = Listener::bind("127.0.0.1:0", options).await.unwrap();
    let address = listener.local_addr();
    tokio::spawn(async move {
        while let Ok(accepted) = listener.accept().await {
            let (mut source, mut sink) = accepted.websocket.split();
            tokio::spawn(async move {
                loop {
                    match source.next().await {
                        Incoming::Frame(_) => {
                            let answer = message(RESPONSE, answer);
                            sink.send(Frame::Text(answer.into())).await.unwrap();
                        }
                        Incoming::Alive => {}
                        Incoming::Broken(closed) => sink.close(closed.code, &closed.reason).await,
                        _ => return,
                    }
                }
            });
        }
    });
    address
}

// PATH-1
#[tokio::test]
async fn a_receivers_limit_holds_on_websockets() {
    let address = program(100).await;
    for (size, passes) in [(16_384, true), (16_385, false)] {
        let to = format!("whole+ws://{address}/?client=uwebsockets");
        let input = message(REQUEST, size) + "\n";
        let ran = tokio::task::spawn_blocking(move || gateway("stdio:", &to, input.into_bytes()));
        let output = ran.await.unwrap();
        let out = String::from_utf8(output.stdout).unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{said}");
        match passes {
            true => assert_eq!(out, message(RESPONSE, 100) + "\n", "{said}"),
            false => assert!(
                out.contains("-32011") && out.contains("takes 16384 (client=uwebsockets"),
                "{out}"
            ),
        }
    }
}
