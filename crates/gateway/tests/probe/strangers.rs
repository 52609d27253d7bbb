//! Tests of what others may try with the end of a gateway that answers probes, and of an end that lies to a
//! probe.

use std::time::Duration;

use breakbulk_gateway::Config;
use breakbulk_gateway::probe::{self, Finding, Refusal};
use breakbulk_link::Frame;
use breakbulk_net::ws::{ConnectOptions, ListenOptions, Listener, WsSink, WsSource, connect};
use breakbulk_net::{Incoming, Sink, Source, Transport};
use breakbulk_testkit::bad_path::{BadPath, Weather};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::common::{Answering, config};

const MIB: usize = 1 << 20;

struct Stranger {
    source: WsSource,
    sink: WsSink,
}

impl Stranger {
    async fn new(gateway: &Answering) -> Self {
        let options = ConnectOptions {
            subprotocols: vec!["breakbulk.probe.v1".to_owned()],
            frame_limit: 64 * MIB,
            ..ConnectOptions::default()
        };
        let websocket = connect(&gateway.address, &options).await.unwrap();
        let (source, sink) = websocket.split();
        Self { source, sink }
    }

    async fn say(&mut self, text: &str) {
        let frame = Frame::Text(text.to_owned().into());
        self.sink.send(frame).await.unwrap();
    }

    /// The next message, or the close code and its reason.
    async fn hear(&mut self) -> Result<Frame, (u16, String)> {
        loop {
            match self.source.next().await {
                Incoming::Frame(frame) => return Ok(frame),
                Incoming::Closed(closed) => return Err((closed.code, closed.reason)),
                _ => {}
            }
        }
    }

    async fn word(&mut self) -> Value {
        let Frame::Text(text) = self.hear().await.unwrap() else {
            panic!("not a text")
        };
        serde_json::from_slice(&text).unwrap()
    }
}

fn send(size: usize) -> String {
    format!(r#"{{"probe":"send","bytes":{size},"binary":false,"fragment":null}}"#)
}

// PATH-3
#[tokio::test]
async fn what_is_too_much_or_nonsense_ends_a_probe() {
    let gateway = Answering::gateway("ws://0", Config::default()).await;
    for (said, code, words) in [
        (
            send(32 * MIB + 1),
            1008,
            "a probe may ask for 256 to 33554432 bytes",
        ),
        (send(1), 1008, "a probe may ask for 256 to 33554432 bytes"),
        ("hello".to_owned(), 1002, "this is no message of a probe"),
        ("x".repeat(5000), 1002, "this is no message of a probe"),
    ] {
        let mut stranger = Stranger::new(&gateway).await;
        assert_eq!(stranger.word().await["most"], 32 * MIB);
        stranger.say(&said).await;
        let closed = stranger.hear().await.unwrap_err();
        assert_eq!(closed, (code, words.to_owned()));
    }
    // Whoever is no probe is held to the gateway's own limit of frames.
    let websocket = connect(&gateway.address, &ConnectOptions::default()).await;
    let (source, sink) = websocket.unwrap().split();
    let mut client = Stranger { source, sink };
    let frame = Frame::Text("x".repeat(5 * MIB).into());
    let _ = timeout(Duration::from_secs(5), client.sink.send(frame)).await;
    let (code, reason) = client.hear().await.unwrap_err();
    assert_eq!(code, 1009, "{reason}");
    gateway.stop().await;
}

// PATH-3
#[tokio::test]
async fn few_probes_run_at_a_time() {
    let gateway = Answering::gateway("ws://0", Config::default()).await;
    let mut probes = Vec::new();
    for _ in 0..4 {
        let mut stranger = Stranger::new(&gateway).await;
        assert_eq!(stranger.word().await["probe"], "hello");
        probes.push(stranger);
    }
    let mut late = Stranger::new(&gateway).await;
    let (code, reason) = late.hear().await.unwrap_err();
    assert_eq!(code, 1013, "{reason}");
    // A place is free as soon as a probe has gone.
    drop(probes.pop());
    loop {
        let mut next = Stranger::new(&gateway).await;
        match next.hear().await {
            Ok(_) => break,
            Err((code, _)) => assert_eq!(code, 1013),
        }
    }
    drop(probes);
    gateway.stop().await;
}

// PATH-3
#[tokio::test]
async fn all_probes_share_one_rate() {
    let gateway = Answering::gateway("ws://0", Config::default()).await;
    let mut probes = [Stranger::new(&gateway).await, Stranger::new(&gateway).await];
    let mut waits = Vec::new();
    for stranger in &mut probes {
        stranger.word().await;
    }
    // Three times 32 MiB: 64 are allowed at once, and 8 more each second.
    for turn in [0, 1, 0] {
        let stranger = &mut probes[turn];
        stranger.say(&send(32 * MIB)).await;
        let Ok(Frame::Text(text)) = stranger.hear().await else {
            panic!("nothing was sent")
        };
        assert_eq!(text.len(), 32 * MIB);
        waits.push(stranger.word().await["wait"].as_u64().unwrap());
    }
    assert!(waits[0] == 0 && waits[2] > 1000, "{waits:?}");
    // During the wait the other end reads nothing from this probe.
    probes[0].say(r#"{"probe":"mark","number":1}"#).await;
    let early = timeout(Duration::from_millis(500), probes[0].hear()).await;
    assert!(early.is_err(), "{early:?}");
    drop(probes);
    gateway.stop().await;
}

// PATH-3
#[tokio::test]
async fn what_a_probe_holds_is_charged_to_the_memory_of_all() {
    let config = Config::default().with(|config| {
        config.max_message = Some(MIB);
        config.memory = 16 * MIB;
    });
    let gateway = Answering::gateway("ws://0", config).await;
    for (said, code) in [
        // Memory for a message that the probe asks for, and for one that it begins to send.
        (send(20 * MIB), 1013),
        ("x".repeat(20 * MIB), 1013),
    ] {
        let mut stranger = Stranger::new(&gateway).await;
        stranger.word().await;
        // The probe may be closed before all is sent.
        let frame = Frame::Text(said.into());
        let _ = timeout(Duration::from_secs(5), stranger.sink.send(frame)).await;
        let (closed, reason) = stranger.hear().await.unwrap_err();
        assert_eq!(closed, code, "{reason}");
        assert!(reason.contains("no memory"), "{reason}");
    }
    gateway.stop().await;
}

/// A gateway answers probes that send the right token, and has no smaller limit for probes than for itself.
// PATH-3
#[tokio::test]
async fn a_gateway_answers_whom_it_lets_in() {
    let token = |text: &str| Some(breakbulk_gateway::token(text).unwrap());
    let secret = Config::default().with(|config| config.token = token("secret"));
    let gateway = Answering::gateway("ws://0?max-frame=50KB", secret).await;
    let path = BadPath::start(gateway.host(), Weather::capped(100_003)).await;
    let path = path.unwrap();
    let endpoint = format!("ws://{}/", path.address());
    let ask = |given| {
        let config = config().with(|config| config.token = given);
        probe::run(endpoint.parse().unwrap(), config, |_| {})
    };
    let report = ask(token("secret")).await.unwrap();
    assert_eq!(report.up.text.message.cap(), Some(100_003));
    assert_eq!(report.down.text.message.cap(), Some(100_003));
    for wrong in [None, token("guess")] {
        let error = ask(wrong).await.unwrap_err();
        assert!(error.to_string().contains("401"), "{error}");
    }
    gateway.stop().await;

    let off = Config::default().with(|config| config.probes = false);
    let gateway = Answering::gateway("ws://0", off).await;
    let endpoint = gateway.address.parse().unwrap();
    let error = probe::run(endpoint, config(), |_| {}).await.unwrap_err();
    assert!(error.to_string().contains("answers no probes"), "{error}");
    gateway.stop().await;
}

#[tokio::test]
async fn strangers_at_a_listener_for_http_are_refused_and_bounded() {
    let secret = Config::default().with(|config| {
        config.token = Some(breakbulk_gateway::token("secret").unwrap());
    });
    let answering = Answering::start("http://0/probe", secret).await;
    let host = answering.host();
    let host = host.split('/').next().unwrap();
    let post = |path: &str, fields: &str, body: &str| {
        let length = body.len();
        format!("POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n{fields}\r\n{body}")
    };
    let (token, mark) = (
        "Authorization: Bearer secret\r\n",
        r#"{"probe":"mark","number":1}"#,
    );
    let send = |size| format!(r#"{{"probe":"send","bytes":{size},"binary":false}}"#);
    let too_long = format!(
        "POST /probe HTTP/1.1\r\n{token}Content-Length: {}\r\n\r\n{}",
        100 * MIB,
        "x".repeat(65 * MIB)
    );
    for (request, status) in [
        (post("/probe", token, mark), "200"),
        (post("/probe", "", mark), "401"),
        (
            post("/probe", "Authorization: Bearer guess\r\n", mark),
            "401",
        ),
        (post("/other", token, mark), "404"),
        (format!("GET /probe HTTP/1.1\r\n{token}\r\n"), "405"),
        ("nonsense\r\n\r\n".to_owned(), "400"),
        (post("/probe", token, "nonsense"), "400"),
        (post("/probe", token, &send(255)), "400"),
        (post("/probe", token, &send(64 * MIB + 1)), "400"),
        (too_long, "413"),
        // A head without an end is not answered.
        (
            format!("POST /probe HTTP/1.1\r\nX: {}", "x".repeat(MIB)),
            "",
        ),
    ] {
        let mut stream = TcpStream::connect(host).await.unwrap();
        // It may be refused before all is sent.
        let _ = stream.write_all(request.as_bytes()).await;
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        let answer = String::from_utf8(answer).unwrap();
        let found = answer.split(' ').nth(1).unwrap_or_default();
        let shown: String = request.chars().take(80).collect();
        assert_eq!(found, status, "{shown:?}: {answer}");
    }
    answering.stop().await;
}

/// An end that greets as one that answers probes, and then says the same to everything.
async fn liar(greeting: &'static str, says: String) -> std::net::SocketAddr {
    let options = ListenOptions {
        subprotocols: vec!["breakbulk.probe.v1".to_owned()],
        ..ListenOptions::default()
    };
    let mut listener = Listener::bind("127.0.0.1:0", options).await.unwrap();
    let address = listener.local_addr();
    tokio::spawn(async move {
        while let Ok(accepted) = listener.accept().await {
            let says = says.clone();
            tokio::spawn(async move {
                let (mut source, mut sink) = accepted.websocket.split();
                let _ = sink.send(Frame::Text(greeting.into())).await;
                loop {
                    let answer = match source.next().await {
                        Incoming::Frame(Frame::Text(text)) if text.len() < 100 => {
                            let word: Value = serde_json::from_slice(&text).unwrap();
                            match word["probe"].as_str() {
                                Some("mark") => text.to_vec(),
                                _ => says.clone().into_bytes(),
                            }
                        }
                        Incoming::Frame(_) => says.clone().into_bytes(),
                        Incoming::Closed(_) | Incoming::Broken(_) => return,
                        _ => continue,
                    };
                    let answer = String::from_utf8(answer).unwrap();
                    let answer = answer.replace("\"mark\"", "\"marked\"");
                    let _ = sink.send(Frame::Text(answer.into())).await;
                }
            });
        }
    });
    address
}

#[tokio::test]
async fn a_path_that_says_nonsense_is_told_as_broken() {
    let greeting = r#"{"probe":"hello","most":1000000,"wait":0}"#;
    for says in [
        "nonsense".to_owned(),
        "x".repeat(3 * MIB),
        r#"{"probe":"hello","most":1,"wait":18446744073709551615}"#.to_owned(),
    ] {
        let target = format!("ws://{}/", liar(greeting, says).await);
        let report = probe::run(target.parse().unwrap(), config(), |_| {}).await;
        let report = report.unwrap();
        assert!(!report.is_usable());
        for way in [&report.up, &report.down] {
            let is_broken = matches!(
                &way.text.message,
                Finding::Nothing {
                    refusal: Refusal::Broken(_),
                    ..
                }
            );
            assert!(is_broken, "{report:#?}");
        }
    }
    for greeting in ["nonsense", r#"{"probe":"got"}"#] {
        let target = format!("ws://{}/", liar(greeting, String::new()).await);
        let error = probe::run(target.parse().unwrap(), config(), |_| {}).await;
        let error = error.unwrap_err().to_string();
        assert!(error.contains("answers no probes"), "{error}");
    }
}
