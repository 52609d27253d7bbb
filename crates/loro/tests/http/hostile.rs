//! Clients that try to use up memory, or to make the server wait for them.

use std::time::Duration;

use axum::Router;
use breakbulk_loro::http::serve_options;
use breakbulk_net::http::{Limits, ServeOptions, Server, Way};
use breakbulk_testkit::log::Log;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::common::{all_ways, config, keepers, listen, message, open, send, soon};
use crate::raw::{Open, ask, post};

const EVENTS: &str = "/loro/events?peerId=2000";
const POLL: &str = "/loro/poll?peerId=2000";

#[tokio::test]
async fn what_is_too_much_is_refused_with_its_limit() {
    let options = ServeOptions {
        body_max: 1000,
        connections: 2,
        ..serve_options()
    };
    let (address, arrivals, _serving) = all_ways(options).await;
    keepers(arrivals);
    let _stream = Open::new(address, "GET", EVENTS, &[], &[]).await;
    let long_id = format!("/loro/poll?peerId={}", "9".repeat(257));
    let chunked = format!("3e8\r\n{}\r\n1\r\nx\r\n0\r\n\r\n", "\0".repeat(1000));
    let binary = ("content-type", "application/octet-stream");
    let peer = ("x-peer-id", "2000");
    for (what, method, path, headers, body, status, word) in [
        (
            "a long id",
            "GET",
            long_id.as_str(),
            vec![],
            &b""[..],
            400,
            "over the limit of 256",
        ),
        (
            "a long body",
            "POST",
            "/loro/sync",
            vec![binary, peer],
            &[0; 1001],
            413,
            "1000 bytes",
        ),
        (
            "a longer body than it says",
            "POST",
            "/loro/sync",
            vec![binary, peer, ("transfer-encoding", "chunked")],
            chunked.as_bytes(),
            413,
            "1000 bytes",
        ),
        (
            "a body that is only announced",
            "POST",
            "/loro/sync",
            vec![binary, peer, ("content-length", "99999999999")],
            b"",
            413,
            "1000 bytes",
        ),
        (
            "the last connection",
            "GET",
            "/loro/poll?peerId=1",
            vec![],
            b"",
            200,
            "true",
        ),
        (
            "one connection more",
            "GET",
            "/loro/poll?peerId=2",
            vec![],
            b"",
            503,
            "all 2",
        ),
        (
            "another way",
            "GET",
            "/loro/events?peerId=2",
            vec![],
            b"",
            503,
            "all 2",
        ),
        (
            "no id",
            "DELETE",
            "/loro/poll",
            vec![],
            b"",
            400,
            "peerId is required",
        ),
        (
            "no upgrade",
            "GET",
            "/loro/ws",
            vec![],
            b"",
            426,
            "WebSocket",
        ),
        ("another method", "PUT", "/loro/sync", vec![], b"", 405, ""),
    ] {
        let answer = ask(address, method, path, &headers, body).await;
        assert_eq!(answer.status, status, "{what}: {answer:?}");
        assert!(answer.body.contains(word), "{what}: {answer:?}");
    }
    // The server still works.
    assert_eq!(
        post(address, "/loro/sync", "2000", &[0, 2]).await.status,
        200
    );
}

#[tokio::test]
async fn posts_wait_while_the_link_wants_nothing_and_only_so_many() {
    let options = ServeOptions {
        posts: 3,
        ..serve_options()
    };
    let (address, mut arrivals, _serving) = all_ways(options).await;
    let _stream = Open::new(address, "GET", EVENTS, &[], &[]).await;
    let mut config = config(Way::Sse);
    config.limits.undelivered = 1;
    let connection = open(arrivals.next().await.unwrap(), config);
    // The first POST is taken and waits for its outcome, the others wait for the link.
    let (told, mut answers) = tokio::sync::mpsc::unbounded_channel();
    for _ in 0..4 {
        let told = told.clone();
        tokio::spawn(async move {
            let _ = told.send(post(address, "/loro/sync", "2000", &[0, 2]).await);
        });
    }
    let refused = soon("the refusal", answers.recv()).await.unwrap();
    assert_eq!(refused.status, 429, "{refused:?}");
    for _ in 0..3 {
        let came = soon("a message", message(&connection)).await.unwrap();
        assert!(answers.try_recv().is_err(), "nothing is answered unsettled");
        connection.settle(came.id, Ok(()));
        let answer = soon("an answer", answers.recv()).await.unwrap();
        assert_eq!(answer.status, 200);
    }
}

#[tokio::test]
async fn what_is_never_settled_is_answered_in_time_or_at_the_end() {
    let options = ServeOptions {
        post_time: Duration::from_millis(50),
        ..serve_options()
    };
    let log = Log::capture();
    for (options, closes) in [(options, false), (serve_options(), true)] {
        let (address, mut arrivals, _serving) = all_ways(options).await;
        let _stream = Open::new(address, "GET", EVENTS, &[], &[]).await;
        let connection = open(arrivals.next().await.unwrap(), config(Way::Sse));
        let posting =
            tokio::spawn(async move { post(address, "/loro/sync", "2000", &[0, 2]).await });
        let _kept = soon("the message", message(&connection)).await.unwrap();
        if closes {
            connection.close(1000, "");
        }
        let answer = soon("the answer", posting).await.unwrap();
        assert_eq!(answer.status, 503, "{answer:?}");
    }
    log.assert_quiet();
}

#[tokio::test]
async fn a_body_that_never_ends_is_given_up() {
    let log = Log::capture();
    let options = ServeOptions {
        post_time: Duration::from_millis(100),
        ..serve_options()
    };
    let (address, arrivals, _serving) = all_ways(options).await;
    keepers(arrivals);
    let _stream = Open::new(address, "GET", EVENTS, &[], &[]).await;
    let headers = [
        ("content-type", "application/octet-stream"),
        ("x-peer-id", "2000"),
        ("content-length", "1000"),
    ];
    let answer = ask(address, "POST", "/loro/sync", &headers, b"\0").await;
    assert_eq!(answer.status, 503, "{answer:?}");
    log.assert_quiet();
}

#[tokio::test]
async fn bodies_of_all_connections_together_are_bounded() {
    let options = ServeOptions {
        posted_bytes: 1500,
        ..serve_options()
    };
    let (address, mut arrivals, _serving) = all_ways(options).await;
    let _first = Open::new(address, "GET", EVENTS, &[], &[]).await;
    let _second = Open::new(address, "GET", "/loro/events?peerId=3000", &[], &[]).await;
    // Nothing drives the first connection: POSTs to it wait.
    let first = arrivals.next().await.unwrap();
    let second = open(arrivals.next().await.unwrap(), config(Way::Sse));
    let keeping = tokio::spawn(async move {
        while let Some(came) = message(&second).await {
            second.settle(came.id, Ok(()));
        }
    });
    let mut posts = tokio::task::JoinSet::new();
    for _ in 0..3 {
        posts.spawn(post_to(address, "2000", 600));
    }
    // There is room for two waiting bodies.
    let refused = soon("the refusal", posts.join_next()).await;
    assert_eq!(refused.unwrap().unwrap(), 503);
    // A connection that holds less is not refused: the first gives up a body for it.
    for size in [300, 301] {
        assert_eq!(post_to(address, "3000", size).await, 200, "{size}");
    }
    drop((first, posts, keeping));
}

async fn post_to(address: std::net::SocketAddr, peer: &'static str, size: usize) -> u16 {
    let mut body = vec![0; size];
    body[1] = 2;
    post(address, "/loro/sync", peer, &body).await.status
}

#[tokio::test]
async fn a_poller_that_stays_away_is_forgotten() {
    let options = ServeOptions {
        stale: Duration::from_millis(100),
        ..serve_options()
    };
    let (address, mut arrivals, _serving) = all_ways(options).await;
    ask(address, "GET", POLL, &[], &[]).await;
    let connection = open(arrivals.next().await.unwrap(), config(Way::Poll));
    // A client whose poll waits is not considered gone, however long that takes.
    let waited = ask(address, "GET", &format!("{POLL}&wait=300"), &[], &[]).await;
    assert_eq!(waited.body, r#"{"messages":[],"isNewConnection":false}"#);
    let closed = soon("the end", connection.closed()).await;
    assert_eq!(
        (closed.code, closed.reason.as_str()),
        (1001, "no poll for 0.1 s")
    );
    soon("its place", connection.ended()).await;
    let again = ask(address, "GET", POLL, &[], &[]).await;
    assert_eq!(again.body, r#"{"messages":[],"isNewConnection":true}"#);
}

#[tokio::test]
async fn a_poll_waits_no_longer_than_allowed() {
    let options = ServeOptions {
        wait_max: Duration::from_millis(50),
        ..serve_options()
    };
    let (address, arrivals, _serving) = all_ways(options).await;
    keepers(arrivals);
    for wait in ["0", "-1", "99999999999999999999", "3600000", "x"] {
        let path = format!("{POLL}&wait={wait}");
        let answer = ask(address, "GET", &path, &[], &[]).await;
        assert_eq!(answer.status, 200, "{wait}");
    }
}

#[tokio::test]
async fn a_reader_that_does_not_read_is_cut_off() {
    let limits = Limits::default().with(|limits| limits.stalled = Duration::from_millis(200));
    for path in [EVENTS, POLL] {
        let (server, mut arrivals) = Server::new(serve_options());
        let router = Router::new().nest("/loro", server.router());
        let (address, _serving) = listen(router, limits.clone()).await;
        if path == POLL {
            ask(address, "GET", POLL, &[], &[]).await;
        }
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path}&wait=60000 HTTP/1.1\r\nHost: {address}\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let arrival = arrivals.next().await.unwrap();
        let config = config(arrival.claim.way);
        let connection = open(arrival, config);
        let text = format!("\"{}\"", "x".repeat(16 << 20));
        send(&connection, text);
        let closed = soon("the end", connection.closed()).await;
        assert_eq!(closed.code, 1006, "{path}: {closed}");
        let mut rest = Vec::new();
        let _ = soon("the end of the socket", stream.read_to_end(&mut rest)).await;
        assert!(rest.len() < 16 << 20, "{path}: {}", rest.len());
    }
}

#[tokio::test]
async fn heads_are_bounded_in_size_number_and_time() {
    let limits = Limits::default().with(|limits| {
        limits.head_bytes = 8 << 10;
        limits.head_time = Duration::from_millis(300);
        limits.sockets = 8;
    });
    let (server, arrivals) = Server::new(serve_options());
    keepers(arrivals);
    let (address, _serving) = listen(server.router(), limits).await;
    let long = format!("GET /?{} HTTP/1.1\r\n\r\n", "x".repeat(60 << 10));
    let fields = format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(70));
    for (what, bytes, status) in [
        ("a long line", long.as_str(), Some("HTTP/1.1 431 ")),
        ("many fields", &fields, Some("HTTP/1.1 431 ")),
        ("no end", "GET / HTTP/1.1\r\n", None),
        ("nothing", "", None),
    ] {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let _ = stream.write_all(bytes.as_bytes()).await;
        let mut answer = Vec::new();
        let _ = soon(what, stream.read_to_end(&mut answer)).await;
        let answer = String::from_utf8(answer).unwrap();
        match status {
            Some(status) => assert!(answer.starts_with(status), "{what}: {answer:?}"),
            None => assert!(!answer.contains(" 200 "), "{what}: {answer:?}"),
        }
    }
    let mut idle = Vec::new();
    for _ in 0..8 {
        idle.push(TcpStream::connect(address).await.unwrap());
    }
    // The ninth connection takes the place of a silent one.
    let answer = ask(address, "GET", "/poll?peerId=1", &[], &[]).await;
    assert_eq!(answer.status, 200, "{answer:?}");
}
