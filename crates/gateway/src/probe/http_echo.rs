//! Answers probes by HTTP POSTs, in a process that does nothing else (in a gateway `http_door.rs` does). A
//! body is counted and not kept, and an answer is made as it is sent, so that a probe takes hardly any
//! memory; the number of probes and the bytes per second are bounded as for WebSockets.

use std::sync::Arc;
use std::time::Duration;

use breakbulk_link::Frame;
use breakbulk_net::ws::{Bearer, Tokens};
use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use super::course::{Content, LEAST};
use super::echo::{Echo, millis};
use super::http_words::{head_end, read_request};
use super::words::{self, Measured, SMALL, Word};

/// How long a head, a part of a body, or a part of an answer may take.
pub(super) const STEP: Duration = Duration::from_secs(10);

/// The longest head of a request.
const HEAD_MAX: usize = 16 << 10;

/// How many bytes are read or written at a time.
pub(super) const PART: usize = 64 << 10;

/// Who may ask, and where.
pub(super) struct Doorman {
    pub(super) bearer: Option<Bearer>,
    pub(super) tokens: Option<Arc<dyn Tokens>>,
    /// The one path that is served.
    pub(super) path: String,
}

impl Doorman {
    fn admits(&self, authorization: Option<&str>) -> bool {
        let given = authorization.unwrap_or_default().as_bytes();
        match (&self.bearer, &self.tokens) {
            (Some(bearer), _) => bearer.admits(given),
            (None, Some(tokens)) => tokens.holder(given).is_some(),
            (None, None) => true,
        }
    }
}

/// The answer to a request: a small message, a measured body of this size, or a status.
pub(super) enum Reply {
    Word(Word),
    Bytes(usize),
    Status(&'static str),
}

/// Answers the one request of a connection.
pub(super) async fn serve(echo: &Echo, doorman: &Doorman, mut stream: TcpStream) {
    // A client that goes away, or takes too long, needs no answer.
    let Some(reply) = request(echo, doorman, &mut stream).await else {
        return;
    };
    let _ = answer(&mut stream, reply).await;
    // Closing with bytes unread would reset the connection, and the answer might not arrive.
    let _ = timeout(STEP, async {
        stream.shutdown().await.ok()?;
        let mut rest = [0; 4096];
        while stream.read(&mut rest).await.ok()? > 0 {}
        Some(())
    })
    .await;
}

async fn request(echo: &Echo, doorman: &Doorman, stream: &mut TcpStream) -> Option<Reply> {
    let mut bytes = Vec::with_capacity(PART);
    let end = timeout(STEP, async {
        loop {
            if let Some(end) = head_end(&bytes) {
                return Some(end);
            }
            if bytes.len() > HEAD_MAX || stream.read_buf(&mut bytes).await.ok()? == 0 {
                return None;
            }
        }
    });
    let end = end.await.ok()??;
    let Some(request) = read_request(&bytes[..end]) else {
        return Some(Reply::Status("400 Bad Request"));
    };
    if !doorman.admits(request.authorization) {
        return Some(Reply::Status("401 Unauthorized"));
    }
    if request.path != doorman.path {
        return Some(Reply::Status("404 Not Found"));
    }
    if request.method != "POST" {
        return Some(Reply::Status("405 Method Not Allowed"));
    }
    let Some(_place) = echo.place() else {
        return Some(Reply::Status("429 Too Many Requests"));
    };
    if request.expects {
        stream
            .write_all(b"HTTP/1.1 100 Continue\r\n\r\n")
            .await
            .ok()?;
    }
    let mut body = Counted::default();
    let mut decoder = request.body;
    bytes.drain(..end);
    while !decoder.push(&bytes, |part| body.add(part)).ok()? {
        if body.length > echo.frame_limit() {
            return Some(Reply::Status("413 Content Too Large"));
        }
        bytes.clear();
        let read = timeout(STEP, stream.read_buf(&mut bytes))
            .await
            .ok()?
            .ok()?;
        if read == 0 {
            return None;
        }
    }
    Some(reply(echo, &body).await)
}

/// The reply to a body that has arrived. Returns only when the rate allows sending it.
pub(super) async fn reply(echo: &Echo, body: &Counted) -> Reply {
    let wait = echo.take(body.length);
    let most = echo.frame_limit();
    match words::read_text(&body.first, body.length, &body.last) {
        Some(Word::Bytes(Measured { arrived, whole, .. })) => Reply::Word(Word::Got {
            arrived,
            whole,
            wait: millis(wait),
        }),
        Some(Word::Mark(_)) => Reply::Word(Word::Hello {
            most,
            wait: millis(wait),
        }),
        Some(Word::Send {
            size,
            content: Content::Text,
            ..
        }) if (LEAST..=most).contains(&size) => {
            // The answer has no room to tell how long to pause, so it is late instead.
            sleep(echo.take(size)).await;
            Reply::Bytes(size)
        }
        _ => Reply::Status("400 Bad Request"),
    }
}

async fn answer(stream: &mut TcpStream, reply: Reply) -> Option<()> {
    let (status, length, word) = match &reply {
        Reply::Word(word) => {
            let (Frame::Text(text) | Frame::Binary(text)) = words::write(word);
            ("200 OK", text.len(), text)
        }
        Reply::Bytes(size) => ("200 OK", *size, Bytes::new()),
        Reply::Status(status) => (*status, 0, Bytes::new()),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nCache-Control: no-store\r\n\
         Content-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    write(stream, head.as_bytes()).await?;
    match reply {
        Reply::Bytes(size) => {
            let parts = words::measured_parts(size);
            write(stream, parts.beginning.as_bytes()).await?;
            let pad = [b'x'; PART];
            let mut left = parts.pad;
            while left > 0 {
                let part = left.min(PART);
                write(stream, &pad[..part]).await?;
                left -= part;
            }
            write(stream, parts.end.as_bytes()).await
        }
        _ => write(stream, &word).await,
    }
}

async fn write(stream: &mut TcpStream, bytes: &[u8]) -> Option<()> {
    timeout(STEP, stream.write_all(bytes)).await.ok()?.ok()
}

/// A body of which only the beginning and the end are kept.
#[derive(Default)]
pub(super) struct Counted {
    first: Vec<u8>,
    last: Vec<u8>,
    pub(super) length: usize,
}

impl Counted {
    pub(super) fn add(&mut self, part: &[u8]) {
        let room = SMALL.saturating_sub(self.first.len());
        self.first.extend_from_slice(&part[..part.len().min(room)]);
        self.last
            .extend_from_slice(&part[part.len().saturating_sub(2)..]);
        self.last.drain(..self.last.len().saturating_sub(2));
        self.length += part.len();
    }
}
