//! HTTP as bytes: requests that no library would send, and unparsed answers.

use std::net::SocketAddr;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use crate::common::soon;

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut all = self.headers.iter();
        let found = all.find(|(key, _)| key.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }
}

/// One request on a socket of its own.
pub(crate) async fn ask(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Answer {
    let mut open = Open::new(address, method, path, headers, body).await;
    let body = soon("the whole answer", open.rest()).await;
    Answer {
        body,
        ..open.answer
    }
}

/// An answer that is still coming.
pub(crate) struct Open {
    pub(crate) answer: Answer,
    reader: BufReader<TcpStream>,
    chunked: bool,
}

impl Open {
    pub(crate) async fn new(
        address: SocketAddr,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Self {
        let mut request =
            format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n");
        for (name, value) in headers {
            request += &format!("{name}: {value}\r\n");
        }
        let unsaid = !headers
            .iter()
            .any(|(name, _)| ["content-length", "transfer-encoding"].contains(name));
        if unsaid && (method == "POST" || !body.is_empty()) {
            request += &format!("Content-Length: {}\r\n", body.len());
        }
        let mut bytes = request.into_bytes();
        bytes.extend_from_slice(b"\r\n");
        bytes.extend_from_slice(body);
        let mut stream = TcpStream::connect(address).await.unwrap();
        // An answer may come before all of a body that is too long is taken.
        let _ = soon("the request", stream.write_all(&bytes)).await;
        soon("the head of the answer", Self::head(stream)).await
    }

    async fn head(stream: TcpStream) -> Self {
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        reader.read_line(&mut line).await.unwrap();
        let status = line.split(' ').nth(1).and_then(|it| it.parse().ok());
        let mut headers = Vec::new();
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).await.unwrap();
            let Some((name, value)) = line.trim_end().split_once(": ") else {
                break;
            };
            headers.push((name.to_owned(), value.to_owned()));
        }
        let answer = Answer {
            status: status.unwrap_or_else(|| panic!("{line:?} is no answer")),
            headers,
            body: String::new(),
        };
        let chunked = answer.header("transfer-encoding") == Some("chunked");
        Self {
            answer,
            reader,
            chunked,
        }
    }

    /// The next chunk; `None` at the end.
    pub(crate) async fn chunk(&mut self) -> Option<String> {
        assert!(self.chunked, "{:?}", self.answer);
        let mut size = String::new();
        self.reader.read_line(&mut size).await.ok()?;
        let size = usize::from_str_radix(size.trim_end(), 16).ok()?;
        let mut chunk = vec![0; size + 2];
        self.reader.read_exact(&mut chunk).await.ok()?;
        chunk.truncate(size);
        (size > 0).then(|| String::from_utf8(chunk).unwrap())
    }

    /// Reads until the text ends with this.
    pub(crate) async fn until(&mut self, end: &str) -> String {
        let mut text = String::new();
        while !text.ends_with(end) {
            let chunk = soon("a chunk", self.chunk()).await;
            text += &chunk.unwrap_or_else(|| panic!("{text:?} and no {end:?}"));
        }
        text
    }

    /// The rest of the answer.
    pub(crate) async fn rest(&mut self) -> String {
        let mut text = String::new();
        if self.chunked {
            while let Some(chunk) = self.chunk().await {
                text += &chunk;
            }
        } else {
            let _ = self.reader.read_to_string(&mut text).await;
        }
        text
    }
}

/// A POST of one frame.
pub(crate) async fn post(address: SocketAddr, path: &str, peer: &str, body: &[u8]) -> Answer {
    let headers = [
        ("content-type", "application/octet-stream"),
        ("x-peer-id", peer),
    ];
    ask(address, "POST", path, &headers, body).await
}
