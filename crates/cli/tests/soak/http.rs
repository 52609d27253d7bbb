//! A session of MCP over HTTP, by hand.

use std::net::SocketAddr;

use serde::Deserialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::client::{Answer, ENDED, Refusal};
use crate::work::{Done, Work};

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"soak","version":"1"}}}"#;
const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

pub(crate) struct Mcp {
    address: SocketAddr,
    session: String,
}

/// The answer to a call of a tool.
#[derive(Deserialize)]
struct Called {
    id: u64,
    result: Option<Content>,
    error: Option<Refusal>,
}

#[derive(Deserialize)]
struct Content {
    #[serde(rename = "structuredContent")]
    content: Done,
}

struct Response {
    status: u16,
    head: String,
    body: String,
}

impl Mcp {
    /// Begins a session.
    ///
    /// # Errors
    /// Why there is none.
    pub(crate) async fn begin(address: SocketAddr) -> Result<Self, String> {
        let response = exchange(address, "POST", None, INITIALIZE).await?;
        let session = response.header("mcp-session-id");
        let (200, Some(session)) = (response.status, session) else {
            return Err(response.refusal());
        };
        let mcp = Self { address, session };
        match mcp.post("POST", INITIALIZED).await? {
            Response { status: 202, .. } => Ok(mcp),
            response => Err(response.refusal()),
        }
    }

    /// Calls the tool, and waits for the answer.
    ///
    /// # Errors
    /// Why there is no answer of JSON-RPC.
    pub(crate) async fn call(&self, work: &Work) -> Result<Answer, String> {
        let (number, arguments) = (work.number, serde_json::to_string(work).unwrap());
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":{number},"method":"tools/call","params":{{"name":"work","arguments":{arguments}}}}}"#
        );
        let response = self.post("POST", &body).await?;
        if response.status != 200 {
            return Err(response.refusal());
        }
        let text = response
            .message()
            .ok_or_else(|| format!("{ENDED} without the answer"))?;
        let called: Called = serde_json::from_str(text)
            .map_err(|error| format!("this is no answer: {error}: {text:.100}"))?;
        Ok(Answer {
            id: called.id,
            result: called.result.map(|result| result.content),
            error: called.error,
        })
    }

    /// Ends the session.
    pub(crate) async fn end(&self) {
        // A gateway that is stopping has ended it already.
        let _ = self.post("DELETE", "").await;
    }

    async fn post(&self, method: &str, body: &str) -> Result<Response, String> {
        exchange(self.address, method, Some(&self.session), body).await
    }
}

async fn exchange(
    address: SocketAddr,
    method: &str,
    session: Option<&str>,
    body: &str,
) -> Result<Response, String> {
    let failed = |what: &'static str| move |error: std::io::Error| format!("{what}: {error}");
    let stream = TcpStream::connect(address).await;
    let mut stream = stream.map_err(failed("no connection"))?;
    let session = session.map_or(String::new(), |id| format!("Mcp-Session-Id: {id}\r\n"));
    let length = body.len();
    let head = format!(
        "{method} /mcp HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nAccept: application/json, text/event-stream\r\nContent-Type: application/json\r\n{session}Content-Length: {length}\r\n\r\n"
    );
    // A server may refuse before it has read all.
    let _ = stream.write_all(head.as_bytes()).await;
    let _ = stream.write_all(body.as_bytes()).await;
    let mut bytes = Vec::new();
    let read = stream.read_to_end(&mut bytes).await;
    Response::parse(&bytes).ok_or_else(|| match read {
        Ok(read) => format!("{ENDED} after {read} bytes of the answer"),
        Err(error) => format!("{ENDED}: {error}"),
    })
}

impl Response {
    /// `None`: it is not complete.
    fn parse(bytes: &[u8]) -> Option<Self> {
        let end = bytes.windows(4).position(|it| it == b"\r\n\r\n")?;
        let head = String::from_utf8(bytes[..end].to_vec()).ok()?;
        let mut response = Self {
            status: head.split(' ').nth(1)?.parse().ok()?,
            head,
            body: String::new(),
        };
        let rest = &bytes[end + 4..];
        let body = match response.header("content-length") {
            Some(length) => rest.get(..length.parse().ok()?)?.to_vec(),
            None if response.header("transfer-encoding").is_some() => dechunked(rest)?,
            None => rest.to_vec(),
        };
        response.body = String::from_utf8(body).ok()?;
        Some(response)
    }

    fn header(&self, name: &str) -> Option<String> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(':'));
        let found = lines.find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.trim().to_owned())
    }

    /// The message in it: alone, or the last event of a stream.
    fn message(&self) -> Option<&str> {
        let is_stream = self
            .header("content-type")?
            .starts_with("text/event-stream");
        match is_stream {
            false => Some(&self.body),
            true => {
                let data = self.body.lines().filter_map(|it| it.strip_prefix("data:"));
                data.map(str::trim).rfind(|data| !data.is_empty())
            }
        }
    }

    fn refusal(&self) -> String {
        format!("HTTP {}: {:.300}", self.status, self.body.trim())
    }
}

fn dechunked(mut rest: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let end = rest.windows(2).position(|it| it == b"\r\n")?;
        let size = std::str::from_utf8(&rest[..end]).ok()?;
        let size = usize::from_str_radix(size.trim(), 16).ok()?;
        if size == 0 {
            return Some(body);
        }
        body.extend_from_slice(rest.get(end + 2..end + 2 + size)?);
        rest = rest.get(end + 4 + size..)?;
    }
}
