//! How sessions end, and the errors when none can be opened.

use std::path::Path;
use std::time::Duration;

use breakbulk_net::nats::{self, Credentials, NatsListener};
use breakbulk_net::{Sink, Transport};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::common::*;

#[tokio::test]
async fn each_side_hears_the_last_word_after_all_frames() {
    let server = NatsServer::start("").await;
    let (_listener, client, theirs) = pair(&server.options("mcp")).await;
    let (mut source, mut sink) = client.split();
    let (mut their_source, _their_sink) = theirs.split();
    sink.send(numbered(0, 50_000)).await.unwrap();
    sink.close(1009, "too large").await;
    assert_eq!(frame(&mut their_source).await, numbered(0, 50_000));
    let closed = end(&mut their_source).await;
    assert_eq!((closed.code, &*closed.reason), (1009, "too large"));
    assert_eq!(end(&mut source).await.code, 1009);
}

#[tokio::test]
async fn a_side_that_is_dropped_is_noticed_at_once() {
    let server = NatsServer::start("").await;
    let (_listener, client, theirs) = pair(&server.options("mcp")).await;
    let (mut source, _sink) = client.split();
    drop(theirs);
    let closed = tokio::time::timeout(Duration::from_secs(5), end(&mut source)).await;
    assert_eq!(closed.unwrap().code, 1001);
}

// LINE-1
#[tokio::test]
async fn a_frame_over_max_payload_ends_the_session_for_its_size() {
    let server = NatsServer::start("").await;
    let (_listener, client, _theirs) = pair(&server.options("mcp")).await;
    let (mut source, mut sink) = client.split();
    let lost = sink.send(numbered(0, MAX_PAYLOAD)).await.unwrap_err();
    let expected = "a frame of 65536 bytes is too large: 65527 fit in a message";
    assert_eq!(lost.0, expected);
    let closed = end(&mut source).await;
    assert_eq!((closed.code, &*closed.reason), (1009, expected));
}

/// Frames on their way may be lost, so the session ends; the listener listens again by itself.
// LINE-4
#[tokio::test]
async fn a_restart_of_the_server_ends_sessions_and_new_ones_can_be_opened() {
    let mut server = NatsServer::start("").await;
    let options = server.options("mcp");
    let (mut listener, client, theirs) = pair(&options).await;
    let (mut source, _sink) = client.split();
    let (mut their_source, _their_sink) = theirs.split();
    server.restart().await;
    for source in [&mut source, &mut their_source] {
        let closed = tokio::time::timeout(Duration::from_secs(10), end(source))
            .await
            .unwrap();
        assert_eq!(closed.reason, "the connection to the NATS server was lost");
    }
    let again = async {
        loop {
            match nats::connect(&options).await {
                Ok(client) => return client,
                Err(error) => assert!(error.to_string().contains("nobody listens"), "{error}"),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let both = async { tokio::join!(again, listener.accept()) };
    let (client, theirs) = tokio::time::timeout(Duration::from_secs(20), both)
        .await
        .unwrap();
    tokio::spawn(echo(theirs.unwrap()));
    let (mut source, mut sink) = client.split();
    sink.send(numbered(0, 1000)).await.unwrap();
    assert_eq!(frame(&mut source).await, numbered(0, 1000));
}

#[tokio::test]
async fn what_hinders_a_session_is_named() {
    let users = r#"
        authorization {
            users: [
                { user: anna, password: a }
                { user: ben, password: b, permissions: { publish: "other.>", subscribe: "_INBOX.>" } }
                { user: carl, password: c, permissions: { publish: ">", subscribe: "mcp" } }
            ]
        }"#;
    let server = NatsServer::start(users).await;
    let with = |user: &str, password: &str| {
        let mut options = server.options("mcp");
        options.credentials = Some(Credentials::User(user.to_owned(), password.to_owned()));
        options
    };
    let mut no_file = server.options("mcp");
    no_file.credentials = Some(Credentials::File(Path::new("/nowhere/a.creds").to_owned()));
    let nobody = TestPort::free();
    for (options, expected) in [
        (with("anna", "a"), "nobody listens at the subject mcp"),
        (with("anna", "wrong"), "refuses these credentials"),
        (server.options("mcp"), "refuses these credentials"),
        (with("ben", "b"), "denies access"),
        (with("carl", "c"), "denies access"),
        (no_file, "/nowhere/a.creds: "),
        (nats::NatsOptions::new(nobody, "mcp"), "is it running"),
        (
            server.options("a..b"),
            "\"a..b\" is no subject for sessions",
        ),
        (server.options("a.*"), "neither * nor >"),
    ] {
        let error = nats::connect(&options).await.unwrap_err().to_string();
        assert!(error.contains(expected), "{error}\nis not: {expected}");
        assert!(!error.contains("wrong\""), "{error}");
    }
    let mut denied = NatsListener::bind(&with("ben", "b"), 1).await.unwrap();
    let error = denied.accept().await.unwrap_err().to_string();
    assert!(error.contains("denies access"), "{error}");
}

struct TestPort;

impl TestPort {
    /// An address where nobody listens.
    fn free() -> String {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        socket.local_addr().unwrap().to_string()
    }
}

/// Listener and client have rights for their own subjects alone, which the library also uses for
/// its requests.
// LINE-6
#[tokio::test]
async fn a_request_for_a_reply_elsewhere_is_not_answered_and_ends_nothing() {
    let users = r#"
        authorization {
            users: [
                { user: gina, password: g, permissions: { publish: "team.>", subscribe: ["mcp", "team.>"] } }
                { user: carl, password: c, permissions: { publish: ["mcp", "team.>"], subscribe: "team.>" } }
                { user: eve, password: e }
            ]
        }"#;
    let server = NatsServer::start(users).await;
    let with = |user: &str, password: &str| {
        let mut options = server.options("mcp");
        options.inbox = "team".to_owned();
        options.credentials = Some(Credentials::User(user.to_owned(), password.to_owned()));
        options
    };
    let mut listener = NatsListener::bind(&with("gina", "g"), 8).await.unwrap();
    // Reply subjects that the listener may not publish to, or that may be another program's.
    let mut eve = TcpStream::connect(server.options("mcp").server)
        .await
        .unwrap();
    let asks = "CONNECT {\"user\":\"eve\",\"pass\":\"e\",\"verbose\":false}\r\nSUB > 1\r\nPUB mcp x.y 0\r\n\r\nPUB mcp teams.y 2\r\n{}\r\nPING\r\n";
    eve.write_all(asks.as_bytes()).await.unwrap();
    let heard = async {
        let mut heard = String::new();
        while !heard.contains("PONG") {
            let mut bytes = [0; 4096];
            let count = eve.read(&mut bytes).await.unwrap();
            heard.push_str(std::str::from_utf8(&bytes[..count]).unwrap());
        }
        heard
    };
    let (heard, carl) = (heard.await, with("carl", "c"));
    let (client, theirs) = tokio::join!(nats::connect(&carl), listener.accept());
    let (mut source, mut sink) = client.unwrap().split();
    tokio::spawn(echo(theirs.unwrap()));
    sink.send(numbered(0, 1000)).await.unwrap();
    assert_eq!(frame(&mut source).await, numbered(0, 1000));
    assert!(
        !heard.contains("MSG x.y") && !heard.contains("MSG teams.y"),
        "{heard}"
    );
}

/// Programs at the same NATS server that violate the protocol.
// LINE-3
#[tokio::test]
async fn strangers_learn_what_is_wrong_and_start_nothing() {
    let server = NatsServer::start("").await;
    let options = server.options("mcp");
    let mut listener = NatsListener::bind(&options, 2).await.unwrap();
    let accepting = tokio::spawn(async move { (listener.accept().await, listener) });
    let raw = async_nats::connect(server.url()).await.unwrap();
    let ask = async |text: &str| {
        let reply = raw.request("mcp", text.to_owned().into()).await.unwrap();
        String::from_utf8(reply.payload.to_vec()).unwrap()
    };
    for (request, expected) in [
        ("?", "no request for a session"),
        ("{}", "no request for a session"),
        (
            r#"{"subject":"mcp","max_payload":65536,"window":1}"#,
            "must begin with _INBOX.",
        ),
        (
            r#"{"subject":"_INBOX.>","max_payload":65536,"window":1}"#,
            "must begin with _INBOX.",
        ),
        (
            r#"{"subject":"_INBOX.a","max_payload":1,"window":1}"#,
            "must be larger",
        ),
    ] {
        let reply = ask(request).await;
        assert!(reply.contains(expected), "{request}: {reply}");
    }
    // An empty request, which asks whether a listener is there, gets an empty answer.
    assert_eq!(ask("").await, "");
    // Two clients that ask for sessions and send nothing hold the places for a time, and get no session.
    let open = r#"{"subject":"_INBOX.a","max_payload":65536,"window":1}"#;
    for _ in 0..2 {
        assert!(ask(open).await.contains("_INBOX."));
    }
    assert!(ask(open).await.contains("all 2 sessions are in use"));
    assert!(!accepting.is_finished());
    let client = loop {
        match nats::connect(&options).await {
            Ok(client) => break client,
            Err(error) => assert!(error.to_string().contains("all 2 sessions"), "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    };
    let (theirs, _listener) = accepting.await.unwrap();
    let (mut source, _sink) = theirs.unwrap().split();
    drop(client);
    assert_eq!(end(&mut source).await.code, 1001);
}

/// A gap, a repetition, a window overrun and an invalid message each end the session with a reason that
/// names it.
// LINE-4
#[tokio::test]
async fn a_peer_that_breaks_the_rules_is_told_apart() {
    let server = NatsServer::start("").await;
    let options = server.options("mcp");
    let mut listener = NatsListener::bind(&options, 8).await.unwrap();
    let raw = async_nats::connect(server.url()).await.unwrap();
    let frame = |number: u64, size: usize| {
        let mut bytes = vec![b'b'];
        bytes.extend(number.to_be_bytes());
        bytes.resize(9 + size, 0);
        bytes
    };
    let flood = (1..=30).map(|number| frame(number, 60_000)).collect();
    for (messages, expected) in [
        (
            vec![frame(1, 1), frame(3, 1)],
            (1006, "NATS lost 1 messages"),
        ),
        (vec![frame(1, 1), frame(1, 1)], (1002, "came twice")),
        (vec![b"?".to_vec()], (1002, "malformed")),
        (flood, (1008, "more than the window")),
    ] {
        let open = async {
            let open = r#"{"subject":"_INBOX.raw","max_payload":65536,"window":1}"#;
            let reply = raw.request("mcp", open.into()).await.unwrap();
            let reply: serde_json::Value = serde_json::from_slice(&reply.payload).unwrap();
            let subject = reply["subject"].as_str().unwrap().to_owned();
            let mut here = vec![b'h'];
            here.extend([0; 16]);
            raw.publish(subject.clone(), here.into()).await.unwrap();
            for message in messages {
                raw.publish(subject.clone(), message.into()).await.unwrap();
            }
            raw.flush().await.unwrap();
        };
        let ((), theirs) = tokio::join!(open, listener.accept());
        let (mut source, _sink) = theirs.unwrap().split();
        // Waits until the session has ended before its frames are read, so that the flood finds the
        // window full.
        tokio::time::sleep(Duration::from_millis(300)).await;
        let closed = loop {
            match breakbulk_net::Source::next(&mut source).await {
                breakbulk_net::Incoming::Closed(closed) => break closed,
                _ => continue,
            }
        };
        assert_eq!(closed.code, expected.0, "{closed:?}");
        assert!(closed.reason.contains(expected.1), "{closed:?}");
    }
}

/// A peer that says nothing for 35 s is gone; one that only says that it is there is not.
// LINE-4
#[tokio::test]
async fn a_silent_side_is_gone_after_a_time() {
    let server = NatsServer::start("").await;
    let options = server.options("mcp");
    let mut listener = NatsListener::bind(&options, 8).await.unwrap();
    let raw = async_nats::connect(server.url()).await.unwrap();
    let open = async {
        let open = r#"{"subject":"_INBOX.raw","max_payload":65536,"window":1}"#;
        let reply = raw.request("mcp", open.into()).await.unwrap();
        let reply: serde_json::Value = serde_json::from_slice(&reply.payload).unwrap();
        let subject = reply["subject"].as_str().unwrap().to_owned();
        let mut here = vec![b'h'];
        here.extend([0; 16]);
        raw.publish(subject, here.into()).await.unwrap();
        raw.flush().await.unwrap();
    };
    let ((), theirs) = tokio::join!(open, listener.accept());
    let (mut source, _sink) = theirs.unwrap().split();
    // From now on the clock jumps to the next timer whenever nothing else happens.
    tokio::time::pause();
    let begun = tokio::time::Instant::now();
    let closed = end(&mut source).await;
    assert_eq!(closed.code, 1006);
    assert_eq!(
        closed.reason,
        "nothing received from the other end for 35 s"
    );
    let waited = begun.elapsed().as_secs();
    assert!((34..=36).contains(&waited), "{waited} s");
}
