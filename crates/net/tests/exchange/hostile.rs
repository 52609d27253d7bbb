//! Clients that violate the protocol: they are told what is wrong, and do not disturb other clients.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use breakbulk_net::http::{Arrivals, Authorize, Claim, Denied, Grant, ServeOptions};
use breakbulk_net::{Incoming, Source, Transport};
use tokio::io::AsyncWriteExt;

use super::common::*;

pub(crate) struct Raw {
    http: reqwest::Client,
    address: SocketAddr,
    session: String,
    token: &'static str,
}

impl Raw {
    pub(crate) async fn open(address: SocketAddr, token: &'static str) -> Result<Self, u16> {
        let http = plain_client();
        let mut raw = Self {
            http,
            address,
            session: "none".to_owned(),
            token,
        };
        let (status, body) = raw.ask("POST", "open", "").await;
        if status != 200 {
            return Err(status);
        }
        let answer: serde_json::Value = serde_json::from_str(&body).unwrap();
        raw.session = answer["session"].as_str().unwrap().to_owned();
        Ok(raw)
    }

    pub(crate) async fn ask(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        let answer = self.send(method, path, body).await;
        (answer.status().as_u16(), answer.text().await.unwrap())
    }

    /// Sends a request, and returns its answer once the head has come.
    pub(crate) async fn send(&self, method: &str, path: &str, body: &str) -> reqwest::Response {
        let url = format!("http://{}/tunnel/{path}", self.address);
        let request = self
            .http
            .request(method.parse().unwrap(), url)
            .header("x-peer", &self.session)
            .header("authorization", format!("Bearer {}", self.token))
            .body(body.to_owned());
        request.send().await.unwrap()
    }
}

/// Checks that another client is served as usual.
async fn others_are_served(address: SocketAddr, arrivals: &mut Arrivals) {
    let (client, server) = pair(address, arrivals).await;
    tokio::spawn(echo(server));
    let (mut source, mut sink) = client.split();
    breakbulk_net::Sink::send(&mut sink, numbered(0, 30_000))
        .await
        .unwrap();
    assert_eq!(frame(&mut source).await, numbered(0, 30_000));
}

#[tokio::test]
async fn wrong_requests_are_refused_by_name() {
    let (address, mut arrivals) = server(serve_options()).await;
    let raw = Raw::open(address, "").await.unwrap();
    for (method, path, body, expected) in [
        ("GET", "poll?number=1&wait=0", "", (204, "")),
        (
            "POST",
            "frames",
            "",
            (400, "the parameter number is required"),
        ),
        (
            "POST",
            "frames?number=x",
            "",
            (400, "the parameter number is required"),
        ),
        (
            "POST",
            "frames?number=0",
            "",
            (409, "the request has a wrong number: the next POST is 1"),
        ),
        (
            "POST",
            "frames?number=9",
            "",
            (409, "the request has a wrong number: the next POST is 1"),
        ),
        ("GET", "poll?number=0", "", (204, "")),
        (
            "GET",
            "poll?number=6",
            "",
            (409, "the request has a wrong number: the last answer was 0"),
        ),
        (
            "GET",
            "poll?number=1&got=1",
            "",
            (409, "the request has a wrong number: the last answer was 0"),
        ),
        ("HEAD", "poll?number=1", "", (405, "")),
        (
            "POST",
            "frames?number=1",
            "<html>",
            (400, "byte 0 of the body begins no frame"),
        ),
        // The invalid body has ended the session.
        (
            "GET",
            "poll?number=1",
            "",
            (404, "there is no such session"),
        ),
    ] {
        let (status, text) = raw.ask(method, path, body).await;
        assert!(
            status == expected.0 && text.contains(expected.1),
            "{method} {path}: {status} {text}"
        );
    }
    let mut theirs = arrivals.next().await.unwrap().transport.split().0;
    assert_eq!(end(&mut theirs).await.code, 1002);
    let strange = Raw {
        session: "0".repeat(64),
        ..raw
    };
    let (status, _) = strange.ask("GET", "poll?number=1", "").await;
    assert_eq!(status, 404);
    let (status, _) = strange.ask("DELETE", "poll", "").await;
    assert_eq!(status, 404);
    others_are_served(address, &mut arrivals).await;
}

/// Anna and Ben have tokens.
struct Names;

impl Authorize for Names {
    fn authorize(&self, claim: &Claim) -> Result<Grant, Denied> {
        match claim.bearer() {
            Some(name @ ("anna" | "ben")) => Ok(Grant {
                subject: Some(name.to_owned()),
            }),
            _ => Err(Denied {
                status: 401,
                error: "no".to_owned(),
            }),
        }
    }
}

#[tokio::test]
async fn a_session_belongs_to_whose_token_opened_it() {
    let options = ServeOptions {
        authorize: Arc::new(Names),
        ..serve_options()
    };
    let (address, _arrivals) = server(options).await;
    assert_eq!(Raw::open(address, "nobody").await.err(), Some(401));
    let mut raw = Raw::open(address, "anna").await.unwrap();
    for (token, expected) in [("ben", 403), ("nobody", 401), ("anna", 204)] {
        raw.token = token;
        let (status, _) = raw.ask("GET", "poll?number=1&wait=0", "").await;
        assert_eq!(status, expected, "{token}");
    }
}

// LINE-3
#[tokio::test]
async fn whoever_opens_and_leaves_starts_nothing_and_gives_the_place_back() {
    let options = ServeOptions {
        connections: 2,
        stale: Duration::from_secs(1),
        ..serve_options()
    };
    let (address, mut arrivals) = server(options).await;
    let _first = Raw::open(address, "").await.unwrap();
    let _second = Raw::open(address, "").await.unwrap();
    assert_eq!(Raw::open(address, "").await.err(), Some(503));
    let started = tokio::time::timeout(Duration::from_millis(200), arrivals.next()).await;
    assert!(
        started.is_err(),
        "the application hears of a session with its first poll"
    );
    // After a time without a poll the places are free again.
    let opened = async {
        while Raw::open(address, "").await.is_err() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), opened)
        .await
        .unwrap();
}

#[tokio::test]
async fn floods_and_drips_wait_for_their_turn() {
    let options = ServeOptions {
        wait_max: Duration::from_secs(2),
        ..serve_options()
    };
    let (address, mut arrivals) = server(options).await;
    let raw = Arc::new(Raw::open(address, "").await.unwrap());
    raw.ask("GET", "poll?number=1&wait=0", "").await;
    let mut theirs = arrivals.next().await.unwrap().transport.split().0;
    // More POSTs than may be in progress: body 1 is missing, so that all of them wait.
    let frame = format!("t\0\0\0\u{4}{}", "flood".split_at(4).0);
    let mut flood = tokio::task::JoinSet::new();
    for _ in 0..12 {
        let (raw, frame) = (raw.clone(), frame.clone());
        flood.spawn(async move { raw.ask("POST", "frames?number=2", &frame).await.0 });
    }
    let mut refused = 0;
    while refused < 4 {
        assert_eq!(flood.join_next().await.unwrap().unwrap(), 429);
        refused += 1;
    }
    // A body that comes in slowly does not hold up other clients.
    let mut drip = tokio::net::TcpStream::connect(address).await.unwrap();
    let head = format!(
        "POST /tunnel/frames?number=1 HTTP/1.1\r\nhost: {address}\r\nx-peer: {}\r\ncontent-length: 60000\r\n\r\nt",
        raw.session
    );
    drip.write_all(head.as_bytes()).await.unwrap();
    others_are_served(address, &mut arrivals).await;
    drop(flood);
    // After body 1, body 2 is passed on, once, although it was posted eight times.
    let mut answer = (429, String::new());
    while answer.0 == 429 {
        answer = raw.ask("POST", "frames?number=1", &frame).await;
    }
    assert_eq!(answer, (200, r#"{"next":2}"#.to_owned()));
    assert!(matches!(
        theirs.next().await,
        Incoming::Frame(_) | Incoming::Alive
    ));
}

#[tokio::test]
async fn a_client_that_polls_and_never_takes_holds_a_window_at_most() {
    let (address, mut arrivals) = server(serve_options()).await;
    let raw = Raw::open(address, "").await.unwrap();
    raw.ask("GET", "poll?number=1&wait=0", "").await;
    let (_source, mut sink) = arrivals.next().await.unwrap().transport.split();
    let mut sent = 0;
    let flood = async {
        for number in 0..100 {
            breakbulk_net::Sink::send(&mut sink, numbered(number, 60_000))
                .await
                .unwrap();
            sent = number;
        }
    };
    let polls = async {
        for number in 1..=4 {
            raw.ask("GET", &format!("poll?number={number}&wait=100"), "")
                .await;
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
    };
    tokio::select! {
        () = flood => panic!("6 MB wait somewhere"),
        () = polls => {}
    }
    assert!(sent < 12, "{sent} frames of 60 KB wait");
}
