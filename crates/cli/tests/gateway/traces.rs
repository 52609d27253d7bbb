//! `--otlp`: a span for each request at a collector, and nothing else changed.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;

use serde_json::{Value, json};

use crate::common::{Listening, PATIENCE, gateway};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";

/// A collector that speaks OTLP/HTTP as the specification has it: it takes POSTs of JSON at `/v1/traces`,
/// and gives these answers, the last one again and again.
struct Collector {
    url: String,
    spans: mpsc::Receiver<Value>,
}

impl Collector {
    fn start(answers: &'static [(&'static str, &'static str)]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (tell, spans) = mpsc::channel();
        std::thread::spawn(move || {
            let mut answers = answers.iter();
            let mut last = answers.next().unwrap();
            for socket in listener.incoming() {
                let mut socket = BufReader::new(socket.unwrap());
                while let Some((head, body)) = request(&mut socket) {
                    assert!(head.starts_with("POST /v1/traces HTTP/1.1"), "{head}");
                    assert!(head.contains("content-type: application/json"), "{head}");
                    assert!(head.contains("x-key: secret"), "{head}");
                    let (status, text) = last;
                    last = answers.next().unwrap_or(last);
                    let length = text.len();
                    let answer =
                        format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\n\r\n{text}");
                    socket.get_mut().write_all(answer.as_bytes()).unwrap();
                    if status.starts_with("200") {
                        spans_of(&body)
                            .into_iter()
                            .for_each(|span| drop(tell.send(span)));
                    }
                }
            }
        });
        Self { url, spans }
    }

    fn span(&self) -> Value {
        self.spans.recv_timeout(PATIENCE).unwrap()
    }
}

/// The next request on a connection: its head in lower case, but for its first line, and its body.
fn request(socket: &mut impl BufRead) -> Option<(String, Vec<u8>)> {
    let mut head = String::new();
    loop {
        let mut line = String::new();
        if socket.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if line == "\r\n" {
            break;
        }
        head += &match head.is_empty() {
            true => line,
            false => line.to_lowercase(),
        };
    }
    let length = head
        .split("content-length: ")
        .nth(1)?
        .split("\r\n")
        .next()?;
    let mut body = vec![0; length.parse().ok()?];
    socket.read_exact(&mut body).ok()?;
    Some((head, body))
}

/// The spans of a request, with their attributes as an object.
fn spans_of(body: &[u8]) -> Vec<Value> {
    let body: Value = serde_json::from_slice(body).unwrap();
    let resource = &body["resourceSpans"][0];
    let service = attributes(&resource["resource"])["service.name"].clone();
    assert_eq!(service, "breakbulk");
    let spans = resource["scopeSpans"][0]["spans"].as_array().unwrap();
    let mut spans = spans.clone();
    for span in &mut spans {
        span["attributes"] = attributes(span);
    }
    spans
}

fn attributes(of: &Value) -> Value {
    let list = of["attributes"].as_array().unwrap();
    let members = list.iter().map(|attribute| {
        let (_, value) = attribute["value"]
            .as_object()
            .unwrap()
            .iter()
            .next()
            .unwrap();
        (attribute["key"].as_str().unwrap().to_owned(), value.clone())
    });
    Value::Object(members.collect())
}

/// A target that tells each line that it gets, and answers as the lines themselves ask for.
fn target() -> (String, mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("tcp://{}", listener.local_addr().unwrap());
    let (tell, lines) = mpsc::channel();
    std::thread::spawn(move || {
        for socket in listener.incoming().flatten() {
            let mut out = socket.try_clone().unwrap();
            for line in BufReader::new(socket).lines().map_while(Result::ok) {
                let _ = tell.send(line.clone());
                let message: Value = serde_json::from_str(&line).unwrap();
                let id = &message["id"];
                let answer = match message["method"].as_str() {
                    Some("good") => json!({"jsonrpc": "2.0", "id": id, "result": {}}),
                    Some("bad") => {
                        json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32602, "message": "no"}})
                    }
                    _ => continue,
                };
                let _ = out.write_all(format!("{answer}\n").as_bytes());
            }
        }
    });
    (address, lines)
}

/// What the client sends: each with the method, the id and whether it has a trace.
fn messages() -> Vec<String> {
    let meta = |flags: &str| {
        format!(
            r#""_meta" :  {{"a":[1.0],"traceparent":"00-{TRACE}-{PARENT}-{flags}","tracestate":"x=1"}}"#
        )
    };
    vec![
        r#"{"jsonrpc":"2.0","method":"good","id":1}"#.to_owned(),
        format!(r#"{{"id":"two" , "jsonrpc":"2.0","method":"good","params":{{"t":"ü\u00fc",{}}}}}"#, meta("01")),
        format!(r#"{{"jsonrpc":"2.0","id":3,"method":"bad","params":{{{}}}}}"#, meta("01")),
        // Whoever began this trace does not record it.
        format!(r#"{{"jsonrpc":"2.0","id":4,"method":"good","params":{{{}}}}}"#, meta("00")),
        r#"{"jsonrpc":"2.0","id":5,"method":"good","params":{"_meta":{"traceparent":"nonsense"}}}"#.to_owned(),
        r#"{"jsonrpc":"2.0","method":"note","params":{"_meta":{"traceparent":"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}}}"#.to_owned(),
        r#"{"jsonrpc":"2.0","id":6,"method":"silent"}"#.to_owned(),
    ]
}

/// Sends all, waits for the answers, and ends the session. Returns what the target got.
fn pass(options: &[&str]) -> (Vec<String>, Listening) {
    let (to, lines) = target();
    let mut command = gateway(&["--listen", "tcp://0", "--to", &to, "--grace", "0"]);
    command
        .args(options)
        .env("OTEL_EXPORTER_OTLP_HEADERS", "x-key=secret");
    let near = Listening::start(command);
    let address = near.address.strip_prefix("tcp://").unwrap();
    let mut client = TcpStream::connect(address.trim_end_matches('/')).unwrap();
    for message in messages() {
        client.write_all(format!("{message}\n").as_bytes()).unwrap();
    }
    let mut answers = BufReader::new(client.try_clone().unwrap());
    for _ in 0..5 {
        let mut line = String::new();
        answers.read_line(&mut line).unwrap();
    }
    let got = messages()
        .into_iter()
        .map(|_| lines.recv_timeout(PATIENCE).unwrap());
    let got = got.collect();
    drop((client, answers));
    (got, near)
}

// TRACE-1 TRACE-2
#[test]
fn requests_become_spans_and_messages_stay_as_they_are() {
    let (untouched, _near) = pass(&[]);
    assert_eq!(
        untouched,
        messages(),
        "without the option nothing is changed"
    );

    let collector = Collector::start(&[("200 OK", "{}")]);
    let (got, mut near) = pass(&["--otlp", &collector.url]);
    let spans: Vec<Value> = (0..5).map(|_| collector.span()).collect();
    let find = |id: &str| {
        let found = spans
            .iter()
            .find(|it| it["attributes"]["rpc.jsonrpc.request_id"] == id);
        found.unwrap_or_else(|| panic!("no span of {id}: {spans:#?}"))
    };
    // The spans of requests 2 and 3 stand in their messages, in place of the parent; nothing else changed.
    let mut expected = messages();
    for (at, id) in [(1, "\"two\""), (2, "3")] {
        let span = find(id);
        assert_eq!(
            (&span["traceId"], &span["parentSpanId"]),
            (&json!(TRACE), &json!(PARENT))
        );
        expected[at] = expected[at].replace(PARENT, span["spanId"].as_str().unwrap());
    }
    assert_eq!(got, expected);
    for (id, name, outcome, status, size) in [
        ("1", "good", "answered", json!({}), messages()[0].len()),
        (
            "\"two\"",
            "good",
            "answered",
            json!({}),
            messages()[1].len(),
        ),
        (
            "3",
            "bad",
            "error",
            json!({"code": 2, "message": "error -32602"}),
            messages()[2].len(),
        ),
        ("5", "good", "answered", json!({}), messages()[4].len()),
        (
            "6",
            "silent",
            "unanswered",
            json!({"code": 2, "message": "the session ended first"}),
            messages()[6].len(),
        ),
    ] {
        let span = find(id);
        assert_eq!(
            (&span["name"], &span["status"], &span["kind"]),
            (&json!(name), &status, &json!(2))
        );
        let of = &span["attributes"];
        assert_eq!(of["breakbulk.outcome"], outcome, "{span}");
        assert_eq!(of["breakbulk.request.bytes"], size.to_string(), "{span}");
        assert_eq!(
            (&of["breakbulk.route"], &of["breakbulk.from"]),
            (&json!("gateway"), &json!("listen"))
        );
        let session = of["breakbulk.session"].as_str().unwrap();
        assert!(session.contains('-'), "{session}");
        let time = |name: &str| span[name].as_str().unwrap().parse::<u128>().unwrap();
        assert!(
            time("endTimeUnixNano") > time("startTimeUnixNano"),
            "{span}"
        );
    }
    assert_eq!(find("3")["attributes"]["rpc.jsonrpc.error_code"], "-32602");
    assert!(find("1").get("parentSpanId").is_none());
    assert_ne!(find("5")["traceId"], json!(TRACE));
    near.signal("-TERM");
    assert_eq!(near.exit_code(), Some(0));
}

// TRACE-3
#[test]
fn what_a_collector_does_not_take_is_sent_again_or_told() {
    let busy = Collector::start(&[("503 Service Unavailable", ""), ("200 OK", "{}")]);
    let (_, _near) = pass(&["--otlp", &busy.url]);
    let mut ids: Vec<String> = (0..5).map(|_| busy.span()["spanId"].to_string()).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 5, "each once");

    for (answer, told) in [
        (&[("400 Bad Request", "no")][..], "it answers HTTP 400"),
        (
            &[(
                "200 OK",
                r#"{"partialSuccess":{"rejectedSpans":"2","errorMessage":"too\u001b many"}}"#,
            )],
            "it rejected them: too\u{fffd} many",
        ),
    ] {
        let collector = Collector::start(answer);
        let (_, near) = pass(&["--otlp", &collector.url]);
        let line = near.line("spans of requests are lost");
        assert!(line.contains(told), "{line}");
    }
}

#[test]
fn an_address_that_is_none_is_refused_at_the_start() {
    let ends = [
        "--listen",
        "tcp://0",
        "--to",
        "exec:cat",
        "--otlp",
        "localhost:4318",
    ];
    let refused = gateway(&ends).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    let text = crate::common::said(&refused);
    assert!(
        text.starts_with("breakbulk: --otlp: ") && text.lines().count() == 1,
        "{text}"
    );
}

// TRACE-1
#[test]
fn a_file_names_the_collector() {
    let collector = Collector::start(&[("200 OK", "{}")]);
    let (to, _lines) = target();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("gateway.toml");
    let text = format!(
        "[traces]\nurl = '{}'\n[[route]]\nname = 'a'\nlisten = 'tcp://0'\nto = '{to}'\ngrace = 0\n",
        collector.url
    );
    std::fs::write(&file, text).unwrap();
    let mut command = gateway(&["--config", file.to_str().unwrap()]);
    command.env("OTEL_EXPORTER_OTLP_HEADERS", "x-key=secret");
    let near = Listening::start(command);
    let address = near.address.strip_prefix("tcp://").unwrap();
    let mut client = TcpStream::connect(address.trim_end_matches('/')).unwrap();
    client
        .write_all(format!("{}\n", messages()[0]).as_bytes())
        .unwrap();
    let span = collector.span();
    assert_eq!(span["attributes"]["breakbulk.route"], "a", "{span}");
}
