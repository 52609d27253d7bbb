//! Replays the recorded SSE and polling sessions against this project's server.

use breakbulk_loro::Node;
use breakbulk_loro::http::serve_options;
use breakbulk_message::loro::{ChannelMsg, Transmission, from_json};
use breakbulk_net::http::{self, Server};
use loro::LoroDoc;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::common::{insert, node, server_config, vectors, within};

fn records(name: &str) -> Vec<Value> {
    let file = vectors().join(name);
    let text = std::fs::read_to_string(file).unwrap();
    serde_json::from_str::<Value>(&text)
        .unwrap()
        .as_array()
        .unwrap()
        .clone()
}

async fn server() -> Node {
    let server = node(server_config());
    let doc = server.open("doc-1").await.unwrap();
    doc.loro().set_peer_id(1000).unwrap();
    insert(&doc, 0, "hello from the server");
    doc.kept().await.unwrap();
    server
}

/// The bytes of a recorded request, as HTTP/1.0, whose answers have no chunks. The body of the largest
/// request is not recorded completely.
fn request_of(record: &Value) -> Vec<u8> {
    let request = &record["request"];
    let path = request["path"]
        .as_str()
        .unwrap()
        .trim_start_matches("/loro");
    let method = request["method"].as_str().unwrap();
    let digits = request["body_hex"].as_str().unwrap_or("").as_bytes();
    let mut body: Vec<u8> = digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect();
    body.resize(request["body_len"].as_u64().unwrap_or(0) as usize, 0);
    let mut head = format!("{method} {path} HTTP/1.0\r\nhost: localhost\r\n");
    if let Some(headers) = request["headers"].as_object() {
        for (name, value) in headers {
            head += &format!("{name}: {}\r\n", value.as_str().unwrap());
        }
    }
    head += &format!("content-length: {}\r\n\r\n", body.len());
    [head.into_bytes(), body].concat()
}

/// The status and the body of an answer; the server may close the connection if a body is too large.
async fn ask(address: &str, request: Vec<u8>) -> (u64, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let _ = stream.write_all(&request).await;
    let mut answer = Vec::new();
    let _ = within("an answer", stream.read_to_end(&mut answer)).await;
    let answer = String::from_utf8(answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok());
    (status.unwrap_or(0), body.to_owned())
}

/// JSON in which documents are replaced by their content, for comparison. Version vectors stay as they are.
fn comparable(text: &str) -> Value {
    let mut value: Value = serde_json::from_str(text).unwrap_or(Value::String(text.to_owned()));
    fn walk(value: &mut Value) {
        match value {
            Value::Object(fields) => {
                if fields.get("type").is_some_and(|kind| kind == "snapshot") {
                    let message = Value::Object(
                        [
                            ("type".to_owned(), "channel/update".into()),
                            ("docId".to_owned(), "d".into()),
                            ("transmission".to_owned(), Value::Object(fields.clone())),
                        ]
                        .into_iter()
                        .collect(),
                    );
                    let Ok(ChannelMsg::Update {
                        transmission: Transmission::Snapshot { data, .. },
                        ..
                    }) = from_json(&message.to_string())
                    else {
                        panic!("no snapshot: {message}");
                    };
                    let doc = LoroDoc::new();
                    doc.import(&data).unwrap();
                    fields.insert("data".into(), doc.get_text("text").to_string().into());
                }
                fields.values_mut().for_each(walk);
            }
            Value::Array(items) => items.iter_mut().for_each(walk),
            _ => {}
        }
    }
    walk(&mut value);
    value
}

/// Checks one record. The intended differences are here.
async fn check(address: &str, record: &Value) {
    let note = record["note"].as_str().unwrap();
    let (status, body) = ask(address, request_of(record)).await;
    match note {
        // An identical duplicate is a retry, and no error.
        "fragment 0 again (a retry)" => assert_eq!(status, 202, "{note}: {body}"),
        // The recorded body is an error page of the web framework.
        "body of 1 MiB + 1" => assert_eq!(status, 413, "{note}: {body}"),
        _ => {
            assert_eq!(
                Some(status),
                record["response"]["status"].as_u64(),
                "{note}: {body}"
            );
            let recorded = record["response"]["body"].as_str().unwrap();
            assert_eq!(comparable(&body), comparable(recorded), "{note}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn our_sse_server_answers_as_the_recorded_one() {
    let node = server().await;
    let (http, arrivals) = Server::new(serve_options());
    node.serve(arrivals);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(http::serve(listener, http.sse(), http::Limits::default()));
    let records = records("transcript_sse.json");
    let mut stream = None;
    let mut heard = String::new();
    for record in &records {
        match record["note"].as_str().unwrap() {
            "the whole event stream of the GET" => {
                let recorded = record["response"]["body"].as_str().unwrap();
                let events = |text: &str| -> Vec<Value> {
                    let lines = text.lines().filter_map(|line| line.strip_prefix("data: "));
                    lines.map(comparable).collect()
                };
                let wanted = events(recorded);
                let stream: &mut TcpStream = stream.as_mut().unwrap();
                within("the events", async {
                    while events(&complete(&heard)).len() < wanted.len() {
                        read_more(stream, &mut heard).await;
                    }
                })
                .await;
                assert_eq!(events(&complete(&heard)), wanted);
            }
            "establish" => {
                let mut opened = TcpStream::connect(&address).await.unwrap();
                let get = b"GET /events?peerId=2000 HTTP/1.0\r\nhost: localhost\r\n\r\n";
                opened.write_all(get).await.unwrap();
                within("ok", async {
                    while !heard.contains(": ok") {
                        read_more(&mut opened, &mut heard).await;
                    }
                })
                .await;
                stream = Some(opened);
                check(&address, record).await;
            }
            _ => check(&address, record).await,
        }
    }
    assert!(heard.contains("text/event-stream"), "{heard}");
}

/// The complete lines.
fn complete(heard: &str) -> String {
    let end = heard.rfind('\n').unwrap_or(0);
    heard[..end].to_owned()
}

async fn read_more(stream: &mut TcpStream, heard: &mut String) {
    let mut buffer = vec![0; 64 << 10];
    let count = stream.read(&mut buffer).await.unwrap();
    assert!(count > 0, "the stream ended: {heard}");
    heard.push_str(std::str::from_utf8(&buffer[..count]).unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn our_polling_server_answers_as_the_recorded_one() {
    let node = server().await;
    let (http, arrivals) = Server::new(serve_options());
    node.serve(arrivals);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(http::serve(listener, http.poll(), http::Limits::default()));
    for record in &records("transcript_poll.json") {
        // With two polls at once the recorded server forgets one; `replaced.rs` tests this project's server.
        if record["note"] != "two polls at once" {
            check(&address, record).await;
        }
    }
}
