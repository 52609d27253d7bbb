//! Messages that are too large.

use breakbulk::link::Frame;
use breakbulk::net::ws::{ConnectOptions, connect};
use breakbulk::net::{Incoming, Sink, Source, Transport};
use breakbulk_testkit::bad_path::{BadPath, Weather};

use crate::common::{Listening, Near, gateway, lines, requests, run, said};

#[test]
fn a_message_that_is_too_large_is_answered_and_the_rest_goes_on() {
    let far = Listening::new(&[
        "--listen",
        "ws://0",
        "--to",
        "exec:cat",
        "--max-message",
        "1MB",
    ]);
    let mut near = Near::new(&["--listen", "stdio:", "--to", &far.address]);
    near.write(&requests(&[2_000_000]));
    let answer = near.read_line();
    assert!(
        answer.starts_with(r#"{"jsonrpc":"2.0","id":0,"error":{"code":-32011,"#),
        "{answer}"
    );
    assert!(answer.contains(r#""maxMessageBytes":1000000"#), "{answer}");
    let remedy = "the gateway at its receiver takes 1000000; send less, or start both gateways with a larger --max-message";
    assert!(answer.contains(remedy), "{answer}");
    near.write(&lines(&[900_000]));
    assert!(near.read_line().as_bytes() == lines(&[900_000]));
}

#[test]
fn too_many_pieces_are_told_as_what_they_are() {
    // Segments are numbered up to a limit, and a frame of 256 bytes holds little.
    let cap = ["--max-frame", "256"];
    let far = Listening::new(&["--listen", "ws://0", "--to", "exec:cat", cap[0], cap[1]]);
    let mut near = Near::new(&["--listen", "stdio:", "--to", &far.address, cap[0], cap[1]]);
    near.write(&requests(&[20_000_000]));
    let answer = near.read_line();
    assert!(
        answer.contains("pieces in frames of 256 bytes; send less, or start both gateways with a larger --max-frame"),
        "{answer}"
    );
    assert!(!answer.contains("maxMessageBytes"), "{answer}");
    let warning = near
        .log
        .line("could not be sent and was answered with an error");
    assert!(
        warning.contains(" WARN ") && warning.contains("pieces"),
        "{warning}"
    );
    near.write(b"{}\n");
    assert_eq!(near.read_line(), "{}\n");
}

fn large(head: &str, tail: &str) -> String {
    format!("{head}\"{}\"{tail}\n", "x".repeat(50_000))
}

// PROG-7
#[test]
fn what_is_too_large_for_this_side_is_skipped_and_the_rest_goes_on() {
    // The id comes last, as some programs have it.
    let request = large(
        r#"{"jsonrpc":"2.0","method":"m","params":"#,
        r#","id":"a"}"#,
    );
    let notification = large(r#"{"jsonrpc":"2.0","method":"n","params":"#, "}");
    let answer = |size: usize| {
        format!(
            r#"{{"jsonrpc":"2.0","id":"a","error":{{"code":-32011,"message":"message too large: {size} bytes, and the gateway at its sender takes 10000; send less, or start both gateways with a larger --max-message","data":{{"reason":"messageTooLarge","messageBytes":{size},"maxMessageBytes":10000,"chunking":false}}}}}}"#
        )
    };
    let announced = |text: &str| format!("Content-Length: {}\r\n\r\n{text}", text.len());
    let size = request.len() - 1;
    for (framing, input, output, code, words) in [
        (
            "lines",
            format!("[1]\n{request}[2]\n"),
            vec![
                "[1]\n".to_owned(),
                format!("{}\n", answer(size)),
                "[2]\n".to_owned(),
            ],
            0,
            "a request from the client is too large and was answered with an error; start this gateway with a larger --max-message (now 10000 bytes), or send less",
        ),
        (
            "content-length",
            [announced(&request), announced("[2]")].concat(),
            vec![announced(&answer(size + 1)), announced("[2]")],
            0,
            "a request from the client is too large and was answered with an error",
        ),
        (
            "lines",
            format!("{notification}[2]\n"),
            vec!["[2]\n".to_owned()],
            1,
            "\"n\" is dropped: message too large: 50042 bytes, and the gateway at its sender takes 10000; send less, or start both gateways with a larger --max-message",
        ),
        (
            "lines",
            format!("{}\n[2]\n", "x".repeat(20_000)),
            vec!["[2]\n".to_owned()],
            1,
            "a message without a readable method is dropped: message too large: 20000 bytes",
        ),
    ] {
        let listen = format!("stdio:?framing={framing}&max-message=10KB");
        let to = format!("exec:cat?framing={framing}");
        let ran = run(gateway(&["--listen", &listen, "--to", &to]), input.into());
        let (out, said) = (
            String::from_utf8_lossy(&ran.stdout).into_owned(),
            said(&ran),
        );
        // An answer of the gateway's own does not wait for those of the program.
        for part in &output {
            assert!(out.contains(part), "{framing}: {out} has no {part}");
        }
        assert_eq!(out.len(), output.concat().len(), "{framing}: {out}");
        assert_eq!(ran.status.code(), Some(code), "{said}");
        assert!(said.contains(words), "{said}");
    }
}

// PROG-7
#[test]
fn a_response_that_is_too_large_for_this_side_becomes_an_error() {
    // A program that answers everything with 50 KB.
    let text = "x".repeat(50_000);
    let to = format!(
        r#"exec:sh -c 'while read line; do echo "{{\"result\":\"{text}\",\"jsonrpc\":\"2.0\",\"id\":7}}"; done'?max-message=10KB"#
    );
    let far = Listening::new(&["--listen", "ws://0", "--to", &to]);
    let near = gateway(&["--listen", "stdio:", "--to", &far.address]);
    let request = b"{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"m\"}\n".to_vec();
    let output = run(near, request);
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        out.starts_with(r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32011,"message":"message too large: 50036 bytes, and the gateway at its sender takes 10000;"#),
        "{out}"
    );
    assert_eq!(out.lines().count(), 1, "{out}");
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    far.line("a response from the target is too large and was replaced by an error");
}

/// A plain client has no gateway of its own, and an answer over the cap would need pieces.
// PROG-23
#[tokio::test]
async fn a_plain_client_is_told_to_put_a_second_gateway_before_it() {
    let answer = r#"{"jsonrpc":"2.0","id":1,"result":"%020000d"}\n"#;
    let to = format!("exec:sh -c 'read line; printf '\\''{answer}'\\'' 0; cat'");
    let far = Listening::new(&["--listen", "ws://0/mcp", "--to", &to, "--max-frame", "10KB"]);
    // It connects to a relay in between, and so must its gateway.
    let listener = far.address.strip_prefix("ws://").unwrap();
    let listener = listener.strip_suffix("/mcp").unwrap().to_owned();
    let path = BadPath::start(listener, Weather::default()).await.unwrap();
    let address = format!("ws://{}/mcp", path.address());
    let websocket = connect(&address, &ConnectOptions::default()).await;
    let (mut source, mut sink) = websocket.unwrap().split();
    let request = Frame::Text(r#"{"jsonrpc":"2.0","id":1,"method":"m"}"#.into());
    sink.send(request).await.unwrap();
    let frame = loop {
        match source.next().await {
            Incoming::Frame(Frame::Text(bytes)) => break bytes,
            Incoming::Alive => {}
            other => panic!("{other:?}"),
        }
    };
    let text = String::from_utf8(frame.to_vec()).unwrap();
    let words = format!(
        "message too large: 20036 bytes, one frame holds 10000, and the client takes no pieces; put a second gateway before the client: breakbulk gateway --listen stdio: --to {address}"
    );
    assert!(
        text.contains(r#""id":1,"error":{"code":-32011,"#) && text.contains(&words),
        "{text}"
    );
    let told = far.line("a response could not be sent and was replaced by an error");
    assert!(told.contains("20036"), "{told}");
    // What it is told to do helps.
    let near = gateway(&["--listen", "stdio:", "--to", &address]);
    let request = b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\"}\n".to_vec();
    let output = tokio::task::spawn_blocking(|| run(near, request))
        .await
        .unwrap();
    assert!(output.stdout.len() > 20_000, "{}", said(&output));
}
