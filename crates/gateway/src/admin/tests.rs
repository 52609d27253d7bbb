//! Tests of the admin port: which requests it answers, to whom, and its limits.

use breakbulk_net::ws::Bearer;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use breakbulk_link::Closed;

use super::*;
use crate::record::{By, Feed, Note, Point};
use crate::tunnel::LearnedCaps;
use crate::watch::{RouteState, RouteWatch, WatchOptions};

/// An admin port that answers, until it is dropped.
struct Scene {
    at: SocketAddr,
    watch: Watch,
    stop: Stop,
}

impl Scene {
    async fn new(token: Option<&str>) -> Self {
        let token = token.map(Bearer::new);
        let admin = Admin::bind(&"0".parse().unwrap(), token).await.unwrap();
        let (watch, stop) = (Watch::new(WatchOptions::default()), Stop::new());
        let (at, served, stopped) = (admin.address(), watch.clone(), stop.clone());
        tokio::spawn(async move { admin.serve(served, &stopped).await });
        Self { at, watch, stop }
    }

    async fn open(&self, request: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.at).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        stream
    }

    /// The whole answer to a request with these header lines.
    async fn ask(&self, line: &str, headers: &str) -> String {
        let host = match headers.contains("Host:") {
            true => String::new(),
            false => format!("Host: {}\r\n", self.at),
        };
        let request = format!("{line} HTTP/1.1\r\n{host}{headers}Connection: close\r\n\r\n");
        let mut stream = self.open(&request).await;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    fn route(&self) -> RouteWatch {
        let ends = ("ws://0".to_owned(), "exec:cat".to_owned());
        let caps = Arc::new(LearnedCaps::in_memory());
        RouteWatch::new(&self.watch, "gateway", ends, caps)
    }
}

fn status(answer: &str) -> u16 {
    let word = answer.split(' ').nth(1);
    word.and_then(|word| word.parse().ok())
        .unwrap_or_else(|| panic!("no status: {answer}"))
}

// ADMIN-2
#[tokio::test]
async fn who_may_ask_and_what_for() {
    let with_token = Scene::new(Some("s3cret")).await;
    let without = Scene::new(None).await;
    let token = "Authorization: Bearer s3cret\r\n";
    let own = format!("Origin: http://{}\r\n{token}", with_token.at);
    for (line, headers, secret, open) in [
        ("GET /healthz", "", 200, 200),
        ("GET /readyz", "", 503, 503),
        ("GET /metrics", "", 401, 200),
        ("GET /metrics", token, 200, 200),
        ("GET /metrics", "Authorization: Bearer other\r\n", 401, 200),
        ("HEAD /metrics", token, 200, 200),
        ("POST /metrics", token, 405, 405),
        ("GET /api/state", "", 401, 200),
        ("GET /api/state", token, 200, 200),
        ("GET /api/state", &own, 200, 403),
        ("GET /api/tap", "", 401, 404),
        ("GET /api/tap", token, 404, 404),
        ("GET /api/sessions/nobody-1", token, 404, 404),
        ("POST /api/sessions/nobody-1/close", token, 404, 404),
        ("GET /api/sessions/nobody-1/close", token, 405, 405),
        ("POST /api/sessions/nobody-1/close", "", 401, 404),
        ("GET /api/sessions/a/b/c", token, 404, 404),
        ("GET /nothing", token, 404, 404),
        // Pages of other origins, also on this machine, and other names for this machine.
        ("GET /healthz", "Origin: https://example.org\r\n", 403, 403),
        (
            "POST /api/sessions/a/close",
            "Origin: http://127.0.0.1:1\r\n",
            403,
            403,
        ),
        ("GET /api/state", "Host: example.org\r\n", 401, 403),
        ("GET /healthz", "Host: example.org\r\n", 403, 403),
        ("GET /api/state", "Sec-Fetch-Site: cross-site\r\n", 401, 403),
    ] {
        for (scene, expected) in [(&with_token, secret), (&without, open)] {
            let answer = scene.ask(line, headers).await;
            assert_eq!(status(&answer), expected, "{line} {headers:?}: {answer}");
            assert!(!answer.contains("s3cret"));
            if expected == 401 {
                assert!(answer.contains("www-authenticate: Bearer"), "{answer}");
            }
            if expected == 404 {
                assert!(answer.contains(r#"{"error":""#), "{answer}");
            }
        }
    }
    with_token.stop.stop();
    without.stop.stop();
}

// ADMIN-2
#[tokio::test]
async fn beyond_this_machine_it_needs_a_token() {
    for (address, token, is_open) in [
        ("0.0.0.0:0", None, Err("can be reached from other machines")),
        ("[::]:0", None, Err("can be reached from other machines")),
        ("0.0.0.0:0", Some("t"), Ok(())),
        ("127.0.0.1:0", None, Ok(())),
        ("localhost:0", None, Ok(())),
    ] {
        let bound = Admin::bind(&address.parse().unwrap(), token.map(Bearer::new)).await;
        match (bound, is_open) {
            (Ok(_), Ok(())) => {}
            (Err(error), Err(words)) => {
                let error = error.to_string();
                assert!(error.contains(words), "{error}");
                assert!(error.contains("--admin-token-file"), "{error}");
            }
            (bound, _) => panic!("{address} {token:?}: {bound:?}"),
        }
    }
}

// ADMIN-3 OPS-7
#[tokio::test]
async fn it_is_ready_while_all_routes_take_clients() {
    let scene = Scene::new(None).await;
    let ready = async || {
        let answer = scene.ask("GET /readyz", "").await;
        let body = answer.split("\r\n\r\n").nth(1).unwrap_or_default();
        (status(&answer), body.trim().to_owned())
    };
    let not = |words: &str| (503, words.to_owned());
    assert_eq!(ready().await, not("no route has started"));
    let (one, other) = (scene.route(), scene.route());
    one.listening("ws://127.0.0.1:1");
    assert_eq!(ready().await, not("the route gateway does not listen yet"));
    other.listening("ws://127.0.0.1:2");
    assert_eq!(ready().await, (200, "ready".to_owned()));
    // One that drains after a reload does not matter while another one listens.
    other.stopping();
    assert_eq!(ready().await, (200, "ready".to_owned()));
    one.stopping();
    assert_eq!(ready().await, not("the route gateway is draining"));
    // A route whose listener failed is still shown when its task is gone: otherwise only the log would tell.
    let again = scene.route();
    again.listening("ws://127.0.0.1:1");
    again.failed(&"the socket\nbroke");
    drop(again);
    // The reason names targets and files: it is for those who have the token.
    assert_eq!(ready().await, not("the route gateway has failed"));
    let state = scene.ask("GET /api/state", "").await;
    assert!(state.contains(r#""failure":"the socket broke""#), "{state}");
    let metrics = scene.ask("GET /metrics", "").await;
    assert!(
        metrics.contains("breakbulk_route_up{route=\"gateway\"} 0\n"),
        "{metrics}"
    );
    // It is started again by a reload.
    let after = scene.route();
    after.listening("ws://127.0.0.1:1");
    assert_eq!(ready().await, (200, "ready".to_owned()));
    // A route that was told to stop does not count as failed, whatever goes wrong later.
    one.failed(&"late");
    assert_eq!(ready().await, (200, "ready".to_owned()));
    // A failed route stays failed when it stops, until a reload shows that nobody wants it any more.
    after.failed(&"again");
    after.stopping();
    drop(after);
    assert_eq!(ready().await.0, 503);
    scene.watch.forget_failed(|name| name != "gateway");
    let left: Vec<_> = scene.watch.routes().iter().map(|it| it.state).collect();
    assert!(!left.contains(&RouteState::Failed), "{left:?}");
    scene.stop.stop();
}

// ADMIN-4
#[tokio::test]
async fn requests_sockets_and_streams_are_bounded_and_a_reader_that_is_behind_harms_itself() {
    let scene = Scene::new(None).await;
    let asks = format!("GET /api/events HTTP/1.1\r\nHost: {}\r\n\r\n", scene.at);
    let mut streams = Vec::new();
    for number in 0..=STREAMS {
        let mut stream = scene.open(&asks).await;
        let mut head = [0; 12];
        stream.read_exact(&mut head).await.unwrap();
        let expected: &[u8] = match number < STREAMS {
            true => b"HTTP/1.1 200",
            false => b"HTTP/1.1 503",
        };
        assert_eq!(head, expected);
        streams.push(stream);
    }
    // Nobody reads them, and others are answered.
    assert_eq!(status(&scene.ask("GET /healthz", "").await), 200);
    drop(streams);
    // More requests at once than a second has room for: a connection for all of them.
    let one = format!("GET /healthz HTTP/1.1\r\nHost: {}\r\n\r\n", scene.at);
    let last = format!(
        "GET /healthz HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n",
        scene.at
    );
    let mut many = TcpStream::connect(scene.at).await.unwrap();
    let (mut source, mut sink) = many.split();
    let asked = 20 * REQUESTS as usize;
    let asking = async {
        for _ in 1..asked {
            sink.write_all(one.as_bytes()).await.unwrap();
        }
        sink.write_all(last.as_bytes()).await.unwrap();
    };
    let mut answers = String::new();
    let (_, read) = tokio::join!(asking, source.read_to_string(&mut answers));
    read.unwrap();
    let refused = answers.matches("HTTP/1.1 429").count();
    let granted = answers.matches("HTTP/1.1 200").count();
    assert_eq!(refused + granted, asked);
    assert!(refused > 0, "{granted} of {asked} were answered");
    assert!(answers.contains("retry-after: 1"));
    scene.stop.stop();
}

/// A page of another site must not use up the rate, so that a monitor gets 429.
// ADMIN-4
#[tokio::test]
async fn requests_of_web_pages_that_are_refused_keep_no_monitor_from_asking() {
    let scene = Scene::new(None).await;
    for _ in 0..3 * REQUESTS {
        let refused = scene.ask("GET /healthz", "Sec-Fetch-Site: cross-site\r\n");
        assert_eq!(status(&refused.await), 403);
    }
    assert_eq!(status(&scene.ask("GET /healthz", "").await), 200);
    assert_eq!(status(&scene.ask("GET /metrics", "").await), 200);
    scene.stop.stop();
}

/// From this machine, whose addresses have no limit, they were answered without end.
// ADMIN-4
#[tokio::test]
async fn guesses_of_the_token_are_bounded_and_keep_nobody_who_has_it_from_asking() {
    let scene = Scene::new(Some("s3cret")).await;
    let mut refused = false;
    for _ in 0..200 {
        let wrong = "Authorization: Bearer other\r\n";
        let guesses = (0..16).map(|_| scene.ask("GET /metrics", wrong));
        for answer in futures_util::future::join_all(guesses).await {
            assert!(matches!(status(&answer), 401 | 429), "{answer}");
            refused |= status(&answer) == 429;
        }
        if refused {
            break;
        }
    }
    assert!(refused);
    let token = "Authorization: Bearer s3cret\r\n";
    assert_eq!(status(&scene.ask("GET /metrics", token).await), 200);
    assert_eq!(status(&scene.ask("GET /healthz", "").await), 200);
    scene.stop.stop();
}

#[tokio::test]
async fn events_tell_the_state_and_end_with_the_gateway() {
    let scene = Scene::new(None).await;
    let _route = scene.route();
    let asks = format!("GET /api/events HTTP/1.1\r\nHost: {}\r\n\r\n", scene.at);
    let mut stream = scene.open(&asks).await;
    let mut seen = String::new();
    let mut buffer = [0; 4096];
    while seen.matches("event: state\ndata: {").count() < 2 {
        let read = stream.read(&mut buffer).await.unwrap();
        assert!(read > 0, "{seen}");
        seen.push_str(std::str::from_utf8(&buffer[..read]).unwrap());
    }
    assert!(seen.contains("content-type: text/event-stream"), "{seen}");
    assert!(seen.contains(r#""name":"gateway""#), "{seen}");
    scene.stop.stop();
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).await.unwrap();
}

// PAGE-1
#[tokio::test]
async fn the_page_is_for_everybody_and_keeps_to_itself() {
    let scene = Scene::new(Some("s3cret")).await;
    for (line, kind, words) in [
        (
            "GET /",
            "text/html; charset=utf-8",
            "<title>breakbulk</title>",
        ),
        ("HEAD /", "text/html; charset=utf-8", ""),
        (
            "GET /page/main.js",
            "text/javascript; charset=utf-8",
            "import ",
        ),
        (
            "GET /page/style.css",
            "text/css; charset=utf-8",
            "prefers-reduced-motion",
        ),
        ("GET /page/icon.svg", "image/svg+xml", "<svg"),
    ] {
        let answer = scene.ask(line, "").await;
        assert_eq!(status(&answer), 200, "{line}: {answer}");
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let head = head.to_lowercase();
        for header in [
            &format!("content-type: {kind}"),
            "content-security-policy: default-src 'none'; script-src 'self';",
            "frame-ancestors 'none'",
            "require-trusted-types-for 'script'",
            "x-content-type-options: nosniff",
            "referrer-policy: no-referrer",
            "cross-origin-resource-policy: same-origin",
        ] {
            assert!(head.contains(header), "{line}: {header}: {head}");
        }
        assert!(body.contains(words), "{line}: {body}");
    }
    for (line, expected) in [
        ("GET /page/main", 404),
        ("GET /page/..%2fpage.rs", 404),
        ("POST /", 405),
    ] {
        let answer = scene.ask(line, "").await;
        assert_eq!(status(&answer), expected, "{line}: {answer}");
    }
}

// REC-10
#[tokio::test]
async fn a_gateway_is_followed_by_its_admin_port() {
    let scene = Scene::new(Some("s3cret")).await;
    let at = scene.at.to_string();
    let token = Bearer::new("s3cret");
    let refused = follow(&at, None).await.unwrap_err();
    assert!(
        refused.to_string().contains("/api/tap answered 401: "),
        "{refused}"
    );
    let none = follow(&at, Some(&token)).await.unwrap_err();
    let words = "answered 404: this gateway makes no records to follow";
    assert!(none.to_string().ends_with(words), "{none}");
    let feed = Feed::new(None);
    scene.watch.set_record(Arc::new(feed.clone()));
    for admin in [&at, &format!("http://{at}/")] {
        let mut following = follow(admin, Some(&token)).await.unwrap();
        let tap = feed.tap(Point::default());
        for number in 0..3_u16 {
            let closed = Closed {
                code: number,
                reason: "r".repeat(3000),
            };
            tap.closed(By::Lost, &closed);
        }
        for number in 0..3 {
            match following.next().await.unwrap() {
                Followed::Record(live) => {
                    assert!(matches!(live.note, Note::Closed { code, .. } if code == number));
                }
                Followed::Ended => panic!("ended"),
            }
        }
    }
    let mut following = follow(&at, Some(&token)).await.unwrap();
    scene.stop.stop();
    assert!(matches!(following.next().await.unwrap(), Followed::Ended));
    let error = follow("no address", None).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "write PORT, HOST:PORT or http://HOST:PORT"
    );
}
