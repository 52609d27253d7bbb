//! HTTP by hand: requests as they are on the wire, answers as they come.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use serde_json::Value;

use crate::common::PATIENCE;

pub(crate) const BOTH: &str =
    "Accept: application/json, text/event-stream\r\nContent-Type: application/json\r\n";

/// The `_meta` of a request of the stateless era.
pub(crate) const META: &str = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;

/// An answer whose head was read.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    stream: BufReader<TcpStream>,
    left: Left,
}

/// How the rest of a body is found.
enum Left {
    Bytes(usize),
    Chunks(usize),
    End,
}

/// Sends a request with these header lines to `http://HOST:PORT/PATH`.
pub(crate) fn ask(url: &str, method: &str, headers: &str, body: &str) -> Answer {
    let (address, path) = parts(url);
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let host = match headers.contains("Host:") {
        true => String::new(),
        false => format!("Host: {address}\r\n"),
    };
    let length = body.len();
    let head =
        format!("{method} {path} HTTP/1.1\r\n{host}{headers}Content-Length: {length}\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    // A server may refuse before it has read all.
    let _ = stream.write_all(body.as_bytes());
    Answer::read(stream)
}

pub(crate) fn parts(url: &str) -> (&str, &str) {
    let rest = url.strip_prefix("http://").unwrap();
    rest.split_at(rest.find('/').unwrap_or(rest.len()))
}

/// A POST in a session, or without one.
pub(crate) fn post(url: &str, session: Option<&str>, body: &str) -> Answer {
    ask(url, "POST", &format!("{}{BOTH}", in_session(session)), body)
}

pub(crate) fn in_session(session: Option<&str>) -> String {
    session.map_or(String::new(), |id| format!("Mcp-Session-Id: {id}\r\n"))
}

/// A request of the stateless era, with all headers that it needs.
pub(crate) fn modern(url: &str, id: u32, method: &str, params: &str) -> Answer {
    ask(
        url,
        "POST",
        &modern_head(method, params),
        &modern_body(id, method, params),
    )
}

pub(crate) fn modern_head(method: &str, params: &str) -> String {
    let params: Value = serde_json::from_str(&format!("{{{params}}}")).unwrap();
    let name = params["name"].as_str();
    let name = name.map_or(String::new(), |name| format!("Mcp-Name: {name}\r\n"));
    format!("{BOTH}MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: {method}\r\n{name}")
}

pub(crate) fn modern_body(id: u32, method: &str, params: &str) -> String {
    let comma = if params.is_empty() { "" } else { "," };
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{{params}{comma}{META}}}}}"#
    )
}

/// A call of a tool in the session era.
pub(crate) fn call(id: u32, name: &str, arguments: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{name}","arguments":{{{arguments}}}}}}}"#
    )
}

pub(crate) const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#;
pub(crate) const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

/// Begins a session; its id.
pub(crate) fn begin(url: &str) -> String {
    begin_with(url, INITIALIZE)
}

/// Begins a session whose streams can be resumed from their begin.
pub(crate) fn begin_resumable(url: &str) -> String {
    begin_with(url, &INITIALIZE.replace("2025-06-18", "2025-11-25"))
}

fn begin_with(url: &str, initialize: &str) -> String {
    let answer = post(url, None, initialize);
    assert_eq!(answer.status, 200);
    let id = answer.header("mcp-session-id").unwrap().to_owned();
    assert!(id.len() >= 32);
    let accepted = post(url, Some(&id), INITIALIZED);
    assert_eq!(accepted.status, 202);
    id
}

impl Answer {
    pub(crate) fn read(stream: TcpStream) -> Self {
        let mut stream = BufReader::new(stream);
        let mut line = String::new();
        stream.read_line(&mut line).unwrap();
        let status = line.split(' ').nth(1).unwrap_or("0").parse().unwrap_or(0);
        let mut headers = Vec::new();
        loop {
            let mut line = String::new();
            let read = stream.read_line(&mut line).unwrap_or(0);
            let Some((name, value)) = line.trim_end().split_once(':') else {
                assert!(read == 0 || line.trim_end().is_empty(), "{line}");
                break;
            };
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        let mut answer = Self {
            status,
            headers,
            stream,
            left: Left::End,
        };
        answer.left = match answer.header("content-length") {
            Some(length) => Left::Bytes(length.parse().unwrap()),
            None if answer.header("transfer-encoding").is_some() => Left::Chunks(0),
            None => Left::End,
        };
        answer
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }

    pub(crate) fn is_stream(&self) -> bool {
        self.header("content-type") == Some("text/event-stream")
    }

    /// All of its body.
    pub(crate) fn body(mut self) -> String {
        let mut body = Vec::new();
        while let Some(part) = self.part() {
            body.extend(part);
        }
        String::from_utf8(body).unwrap()
    }

    /// The message in the body: a server that takes its time answers by a stream.
    pub(crate) fn json(mut self) -> Value {
        if self.is_stream() {
            let is_answer = |data: &Value| data.get("method").is_none();
            return self.events(is_answer).pop().unwrap().1;
        }
        let body = self.body();
        serde_json::from_str(&body).unwrap_or_else(|error| panic!("{error}: {body:.200}"))
    }

    /// The next part of its body; `None` at its end.
    fn part(&mut self) -> Option<Vec<u8>> {
        let mut buffer = vec![0; 64 << 10];
        match self.left {
            Left::Bytes(0) | Left::End => None,
            Left::Bytes(left) => {
                let wanted = left.min(buffer.len());
                let read = self.stream.read(&mut buffer[..wanted]).unwrap();
                assert!(read > 0, "the body is cut off");
                self.left = Left::Bytes(left - read);
                buffer.truncate(read);
                Some(buffer)
            }
            Left::Chunks(0) => {
                let mut line = String::new();
                self.stream.read_line(&mut line).unwrap();
                let size = usize::from_str_radix(line.trim(), 16).ok()?;
                if size == 0 {
                    self.left = Left::End;
                    return None;
                }
                self.left = Left::Chunks(size + 2);
                self.part()
            }
            Left::Chunks(left) => {
                // The line break after a chunk is no part of it.
                if left <= 2 {
                    self.stream.read_exact(&mut buffer[..left]).unwrap();
                    self.left = Left::Chunks(0);
                    return self.part();
                }
                let wanted = (left - 2).min(buffer.len());
                let read = self.stream.read(&mut buffer[..wanted]).unwrap();
                assert!(read > 0, "the body is cut off");
                self.left = Left::Chunks(left - read);
                buffer.truncate(read);
                Some(buffer)
            }
        }
    }

    /// The events of the body until one has data for which `last` holds, or until its end: ids and data.
    pub(crate) fn events(&mut self, last: impl Fn(&Value) -> bool) -> Vec<(String, Value)> {
        assert!(self.is_stream(), "{:?}", self.headers);
        let (mut text, mut events) = (String::new(), Vec::new());
        loop {
            while let Some(end) = text.find("\n\n") {
                let event: String = text.drain(..end + 2).collect();
                let field = |name: &str| {
                    let lines = event.lines().filter_map(|line| line.strip_prefix(name));
                    lines
                        .map(|line| line.trim_start().to_owned())
                        .collect::<String>()
                };
                let (id, data) = (field("id:"), field("data:"));
                if data.is_empty() {
                    if !id.is_empty() {
                        events.push((id, Value::Null));
                    }
                    continue;
                }
                let data: Value = serde_json::from_str(&data).unwrap();
                let is_last = last(&data);
                events.push((id, data));
                if is_last {
                    return events;
                }
            }
            match self.part() {
                Some(part) => text.push_str(std::str::from_utf8(&part).unwrap()),
                None => return events,
            }
        }
    }
}
