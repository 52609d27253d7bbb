//! Which clients are accepted, which are refused and why, and that no client waits for another
//! one's handshake.

use std::time::Duration;

use breakbulk_net::ws::{Bearer, ConnectError, ConnectOptions, ListenOptions, connect};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::common::{accept_key, ask, head, listen, soon};

/// The status and the head with which a server answers raw bytes.
async fn answer(options: ListenOptions, path: &str, headers: &str) -> String {
    let (listener, _) = listen(options).await;
    let mut stream = TcpStream::connect(listener.local_addr()).await.unwrap();
    ask(&mut stream, path, headers).await;
    head(&mut stream).await
}

fn status(head: &str) -> &str {
    &head[9..12]
}

#[tokio::test]
async fn a_token_opens_and_nothing_else_does() {
    let guarded = || ListenOptions {
        bearer: Some(Bearer::new("s3cret")),
        ..ListenOptions::default()
    };
    for (token, opens) in [
        (Some("s3cret"), true),
        (Some("s3cre"), false),
        (Some("S3CRET"), false),
        (None, false),
    ] {
        let (mut listener, url) = listen(guarded()).await;
        let options = ConnectOptions {
            bearer: token.map(Bearer::new),
            ..ConnectOptions::default()
        };
        let connected = soon("an answer", connect(&url, &options)).await;
        match connected {
            Ok(_) => {
                assert!(opens, "{token:?}");
                let accepted = listener.accept().await.unwrap();
                assert_eq!(accepted.header("authorization"), None, "a secret stays one");
            }
            Err(ConnectError::Unauthorized { sent, address }) => {
                assert!(!opens, "{token:?}");
                assert_eq!(sent, token.is_some());
                assert!(url.ends_with(&address));
            }
            Err(other) => panic!("{other}"),
        }
    }
    let head = answer(guarded(), "/", "").await;
    assert_eq!(status(&head), "401");
    assert!(head.contains("\r\nWWW-Authenticate: Bearer\r\n"), "{head}");
}

#[tokio::test]
async fn the_server_chooses_the_subprotocol_it_likes_best() {
    for (offered, supported, chosen) in [
        (&["b", "a"][..], &["a", "b"][..], Some("a")),
        (&["x", "b"], &["a", "b"], Some("b")),
        (&["x"], &["a"], None),
        (&["a"], &[], None),
        (&[], &["a"], None),
    ] {
        let strings = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        let client = ConnectOptions {
            subprotocols: strings(offered),
            ..ConnectOptions::default()
        };
        let server = ListenOptions {
            subprotocols: strings(supported),
            ..ListenOptions::default()
        };
        let (client, server) = crate::common::pair(&client, server).await;
        assert_eq!(client.subprotocol(), chosen, "{offered:?} {supported:?}");
        assert_eq!(server.subprotocol(), chosen, "{offered:?} {supported:?}");
    }
}

#[tokio::test]
async fn a_web_page_of_somebody_else_stays_out() {
    let listed = |origins: &[&str]| Some(origins.iter().map(|&it| it.to_owned()).collect());
    for (allowed, host, origin, expected) in [
        (None, "127.0.0.1", "", "101"),
        (None, "127.0.0.1", "http://localhost:3000", "101"),
        (None, "127.0.0.1", "http://127.0.0.1:8080", "101"),
        (None, "127.0.0.1", "http://[::1]:8080", "101"),
        // A name or an address that is not of this machine, at a loopback address.
        (None, "192.0.2.7:80", "", "403"),
        (None, "example.org", "", "403"),
        (None, "127.0.0.1", "https://evil.example", "403"),
        (None, "127.0.0.1", "https://localhost.evil.example", "403"),
        (None, "127.0.0.1", "null", "403"),
        (None, "127.0.0.1", "file://", "403"),
        // A page whose name was rebound to our address (DNS rebinding).
        (None, "evil.example", "http://evil.example", "403"),
        (
            listed(&["https://app.example"]),
            "localhost",
            "https://app.example",
            "101",
        ),
        (
            listed(&["https://app.example"]),
            "localhost",
            "http://app.example",
            "403",
        ),
        (
            listed(&["https://app.example"]),
            "localhost",
            "http://localhost",
            "403",
        ),
        (listed(&[]), "localhost", "http://localhost", "403"),
        (listed(&[]), "localhost", "", "101"),
        (listed(&["*"]), "localhost", "https://evil.example", "101"),
        (listed(&["null"]), "localhost", "null", "101"),
    ] {
        let options = ListenOptions {
            allowed_origins: allowed,
            ..ListenOptions::default()
        };
        let (listener, _) = listen(options).await;
        let mut stream = TcpStream::connect(listener.local_addr()).await.unwrap();
        let origin = match origin {
            "" => String::new(),
            origin => format!("Origin: {origin}\r\n"),
        };
        let request = format!(
            "GET / HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
             {origin}\r\n"
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        assert_eq!(
            status(&head(&mut stream).await),
            expected,
            "{host} {origin}"
        );
    }
}

#[tokio::test]
async fn requests_that_make_no_websocket_are_told_so() {
    let long = format!("GET /{} HTTP/1.1\r\n", "x".repeat(20_000));
    let many = format!("GET / HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(500));
    for (request, expected) in [
        ("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "426"),
        (
            "GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n\r\n",
            "400",
        ),
        ("POST / HTTP/1.1\r\nHost: localhost\r\n\r\n", "426"),
        ("\x16\x03\x01\r\n\r\n", "400"),
        (&long, "431"),
        (&many, "431"),
    ] {
        let (listener, _) = listen(ListenOptions::default()).await;
        let mut stream = TcpStream::connect(listener.local_addr()).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let head = head(&mut stream).await;
        assert_eq!(
            status(&head),
            expected,
            "{:?}",
            &request[..request.len().min(60)]
        );
    }
}

#[tokio::test]
async fn only_the_path_that_is_served_opens() {
    let options = || ListenOptions {
        path: Some("/ahp".to_owned()),
        ..ListenOptions::default()
    };
    assert_eq!(status(&answer(options(), "/", "").await), "404");
    assert_eq!(status(&answer(options(), "/ahp/", "").await), "404");
    let (mut listener, url) = listen(options()).await;
    let client = ConnectOptions {
        headers: vec![("X-Of-Mine".to_owned(), "here".to_owned())],
        ..ConnectOptions::default()
    };
    let _client = connect(&format!("{url}/ahp?a=1&b"), &client).await.unwrap();
    let accepted = listener.accept().await.unwrap();
    assert_eq!(accepted.path, "/ahp");
    assert_eq!(accepted.query.as_deref(), Some("a=1&b"));
    assert_eq!(accepted.header("x-of-mine"), Some("here"));
    let error = connect(&url, &client).await.unwrap_err();
    assert_eq!(
        error.to_string().split_once(" answers ").unwrap().1,
        "/ with HTTP 404, not with a WebSocket: The WebSocket of this server is at /ahp"
    );
}

#[tokio::test]
async fn stalled_handshakes_block_nobody_and_end() {
    let options = ListenOptions {
        handshakes: 4,
        timeout: Duration::from_millis(300),
        ..ListenOptions::default()
    };
    let (mut listener, url) = listen(options).await;
    let mut stalled = Vec::new();
    for _ in 0..3 {
        let mut stream = TcpStream::connect(listener.local_addr()).await.unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nHos").await.unwrap();
        stalled.push(stream);
    }
    let client = soon("a client", connect(&url, &ConnectOptions::default())).await;
    let _client = client.unwrap();
    soon("an accept", listener.accept()).await.unwrap();
    for mut stream in stalled {
        assert_eq!(soon("the end", stream.read(&mut [0; 16])).await.unwrap(), 0);
    }
}

// WS-3
#[tokio::test]
async fn the_oldest_silent_handshake_makes_room_for_a_newcomer() {
    let options = ListenOptions {
        handshakes: 2,
        ..ListenOptions::default()
    };
    let (mut listener, url) = listen(options).await;
    let mut silent = Vec::new();
    for _ in 0..4 {
        silent.push(TcpStream::connect(listener.local_addr()).await.unwrap());
    }
    let client = soon("a place", connect(&url, &ConnectOptions::default())).await;
    let _client = client.unwrap();
    soon("an accept", listener.accept()).await.unwrap();
    for stream in &mut silent[..3] {
        assert_eq!(soon("the end", stream.read(&mut [0; 16])).await.unwrap(), 0);
    }
}

#[tokio::test]
async fn connections_above_the_bound_get_503_until_one_ends() {
    let options = ListenOptions {
        connections: 1,
        ..ListenOptions::default()
    };
    let (mut listener, url) = listen(options).await;
    let first = connect(&url, &ConnectOptions::default()).await.unwrap();
    let accepted = listener.accept().await.unwrap();
    let refused = connect(&url, &ConnectOptions::default()).await;
    assert!(
        matches!(refused, Err(ConnectError::Status { status: 503, .. })),
        "{refused:?}"
    );
    drop((first, accepted));
    connect(&url, &ConnectOptions::default()).await.unwrap();
    listener.accept().await.unwrap();
}

// TUN-7
#[tokio::test]
async fn whoever_may_come_back_finds_a_place_when_all_are_taken() {
    let options = ListenOptions {
        connections: 1,
        subprotocols: vec!["tunnel".to_owned()],
        spare_places_for: Some("tunnel".to_owned()),
        ..ListenOptions::default()
    };
    let (mut listener, url) = listen(options).await;
    let returning = ConnectOptions {
        subprotocols: vec!["tunnel".to_owned()],
        ..ConnectOptions::default()
    };
    let mut open = Vec::new();
    // The second client comes while the loss of the first one is not noticed yet.
    for _ in 0..2 {
        let client = connect(&url, &returning).await.unwrap();
        open.push((client, listener.accept().await.unwrap()));
    }
    for options in [returning.clone(), ConnectOptions::default()] {
        let refused = connect(&url, &options).await;
        assert!(
            matches!(refused, Err(ConnectError::Status { status: 503, .. })),
            "{refused:?}"
        );
    }
    // One of the ordinary places becomes free: clients without the subprotocol get it, too.
    drop(open.remove(0));
    connect(&url, &ConnectOptions::default()).await.unwrap();
    listener.accept().await.unwrap();
}

#[tokio::test]
async fn errors_name_the_address_and_the_remedy() {
    let closed = {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        listener.local_addr().unwrap()
    };
    for (url, expected) in [
        (
            format!("ws://{closed}/"),
            "refuses connections; is the server running",
        ),
        (
            "http://h/".to_owned(),
            "its scheme is http; use ws://host:port/path",
        ),
        ("h".to_owned(), "it has no scheme"),
        (
            "ws://127.0.0.1:99999/".to_owned(),
            "its port is no number from 1 to 65535",
        ),
        (
            "ws://user:s3cret@h/".to_owned(),
            "\"ws://…@h/\" is no address",
        ),
        (
            "ws://name.invalid/".to_owned(),
            "name.invalid has no address",
        ),
    ] {
        let error = soon("an error", connect(&url, &ConnectOptions::default()))
            .await
            .unwrap_err()
            .to_string();
        assert!(error.contains(expected), "{error}");
        assert!(!error.contains("s3cret"), "{error}");
    }
    let options = ConnectOptions {
        bearer: Some(Bearer::new("line\nbreak")),
        ..ConnectOptions::default()
    };
    let (_listener, url) = listen(ListenOptions::default()).await;
    let error = connect(&url, &options).await.unwrap_err().to_string();
    assert!(
        error.starts_with("the bearer token cannot travel"),
        "{error}"
    );
}

#[tokio::test]
async fn servers_of_another_kind_are_told_apart() {
    let silent = Duration::from_millis(100);
    for (answer, expected) in [
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
            "with HTTP 200, not with a WebSocket: hello",
        ),
        (
            "HTTP/1.1 301 Moved\r\nLocation: /x\r\n\r\n",
            "with HTTP 301",
        ),
        ("SSH-2.0-OpenSSH\r\n\r\n", "is no WebSocket server"),
        (
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\n\r\n",
            "does not switch to WebSocket",
        ),
        (
            "HTTP/1.1 101 S\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: x\r\n\r\n",
            "wrong Sec-WebSocket-Accept",
        ),
        (
            "HTTP/1.1 101 S\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: KEY\r\nSec-WebSocket-Protocol: p\r\n\r\n",
            "chose the subprotocol \"p\", which was not offered",
        ),
        (
            "HTTP/1.1 101 S\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: KEY\r\nSec-WebSocket-Extensions: permessage-deflate\r\n\r\n",
            "an extension that was not offered",
        ),
        ("", "ends it without an answer"),
        (
            "WAIT",
            "did not finish the WebSocket handshake within 0.1 s",
        ),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("ws://{}/", listener.local_addr().unwrap());
        let serve = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let request = head(&mut stream).await;
            let answer = answer.replace("KEY", &accept_key(&request));
            if answer != "WAIT" {
                stream.write_all(answer.as_bytes()).await.unwrap();
                return None;
            }
            Some(stream)
        };
        let options = ConnectOptions {
            timeout: if answer == "WAIT" {
                silent
            } else {
                Duration::from_secs(10)
            },
            ..ConnectOptions::default()
        };
        let (connected, _stream) = tokio::join!(connect(&url, &options), serve);
        let error = connected.unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        assert!(error.starts_with("127.0.0.1:"), "{error}");
    }
}
