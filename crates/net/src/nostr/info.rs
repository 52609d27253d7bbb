//! Fetches a relay's limits from its information document (NIP-11), over HTTP.

use std::sync::Arc;
use std::time::Duration;

use nostr_sdk::{JsonUtil, RelayUrl, Url, nips::nip11::RelayInformationDocument};
use rustls::{ClientConfig, RootCertStore, crypto::ring};
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// The longest information document that is read.
const DOCUMENT_MAX: usize = 64 << 10;

/// Bytes of `["EVENT",` and `]` around an event.
const AROUND: usize = 10;

/// An event has at least this many bytes besides its content.
const BESIDE_CONTENT: usize = 300;

/// The limits that a relay states.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RelayLimits {
    /// The largest message, in bytes: an event and its envelope.
    pub message: Option<usize>,
    /// The longest content of an event, in characters.
    pub content: Option<usize>,
}

impl RelayLimits {
    /// The largest event, in bytes, that is certainly within the limits; `None` if the relay states
    /// none.
    pub fn event(&self) -> Option<usize> {
        let message = self.message.map(|max| max.saturating_sub(AROUND));
        let content = self.content.map(|max| max.saturating_add(BESIDE_CONTENT));
        match (message, content) {
            (Some(message), Some(content)) => Some(message.min(content)),
            (message, content) => message.or(content),
        }
    }

    fn read(document: &str) -> Option<Self> {
        let limitation = RelayInformationDocument::from_json(document)
            .ok()?
            .limitation?;
        let positive = |number: Option<i32>| {
            number
                .and_then(|number| usize::try_from(number).ok())
                .filter(|&number| number > 0)
        };
        Some(Self {
            message: positive(limitation.max_message_length),
            content: positive(limitation.max_content_length),
        })
    }
}

/// Asks a relay for its limits; `None` if it does not answer with any in time.
pub async fn fetch_limits(url: &RelayUrl, patience: Duration) -> Option<RelayLimits> {
    let url: &Url = url.into();
    let answer = tokio::time::timeout(patience, ask(url)).await;
    let text = answer
        .unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()))
        .inspect_err(
            |error| tracing::debug!(%url, %error, "fetching the relay's limits (NIP-11) failed"),
        )
        .ok()?;
    RelayLimits::read(body(&text)?)
}

async fn ask(url: &Url) -> std::io::Result<String> {
    let host = url.host_str().ok_or(std::io::ErrorKind::InvalidInput)?;
    let secure = url.scheme() == "wss";
    let port = url.port().unwrap_or(if secure { 443 } else { 80 });
    // The brackets of an IPv6 address belong to the URL.
    let bare = host.trim_matches(['[', ']']).to_owned();
    let stream = TcpStream::connect((bare.as_str(), port)).await?;
    // HTTP 1.0: the answer is not chunked, and ends with the connection.
    let request = format!(
        "GET {} HTTP/1.0\r\nHost: {host}\r\nAccept: application/nostr+json\r\nConnection: close\r\n\r\n",
        url.path()
    );
    if !secure {
        return exchange(stream, &request).await;
    }
    let other = |error: String| std::io::Error::other(error);
    let roots = tokio::task::spawn_blocking(|| {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        roots
    })
    .await
    .map_err(|error| other(error.to_string()))?;
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| other(error.to_string()))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from(bare).map_err(|error| other(error.to_string()))?;
    let stream = TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await?;
    exchange(stream, &request).await
}

async fn exchange(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    request: &str,
) -> std::io::Result<String> {
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    let mut bounded = stream.take(DOCUMENT_MAX as u64);
    let read = bounded.read_to_end(&mut answer).await;
    // Many servers end a TLS connection without close_notify, which is an error after the answer.
    if answer.is_empty() {
        read?;
    }
    String::from_utf8(answer).map_err(|_| std::io::ErrorKind::InvalidData.into())
}

/// The body of an answer with status 200.
fn body(answer: &str) -> Option<&str> {
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.strip_prefix("HTTP/1.")?.split(' ').nth(1)?;
    (status == "200").then_some(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_and_bounded() {
        for (document, event) in [
            (
                r#"{"limitation":{"max_message_length":131072}}"#,
                Some(131_062),
            ),
            (
                r#"{"limitation":{"max_message_length":131072,"max_content_length":8196}}"#,
                Some(8496),
            ),
            (r#"{"limitation":{"max_message_length":0}}"#, None),
            (r#"{"limitation":{"max_message_length":-5}}"#, None),
            (r#"{"limitation":{}}"#, None),
            (r#"{"name":"x"}"#, None),
            ("<html>", None),
        ] {
            let limits = RelayLimits::read(document).and_then(|limits| limits.event());
            assert_eq!(limits, event, "{document}");
        }
    }

    #[test]
    fn only_a_good_answer_has_a_document() {
        assert_eq!(
            body("HTTP/1.1 200 OK\r\nA: b\r\n\r\n{}\r\n\r\n"),
            Some("{}\r\n\r\n")
        );
        for bad in ["HTTP/1.1 404 No\r\n\r\n{}", "HTTP/1.1 200 OK\r\n", "{}", ""] {
            assert_eq!(body(bad), None, "{bad}");
        }
    }

    #[tokio::test]
    async fn a_relay_is_asked_over_http() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let serving = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = vec![0; 1024];
            let read = stream.read(&mut request).await.unwrap();
            let document = r#"{"limitation":{"max_message_length":70000}}"#;
            let answer = format!("HTTP/1.0 200 OK\r\nContent-Type: x\r\n\r\n{document}");
            stream.write_all(answer.as_bytes()).await.unwrap();
            String::from_utf8_lossy(&request[..read]).into_owned()
        });
        let url = RelayUrl::parse(&format!("ws://{address}/inbox")).unwrap();
        let limits = fetch_limits(&url, Duration::from_secs(10)).await.unwrap();
        assert_eq!(limits.event(), Some(69_990));
        let request = serving.await.unwrap();
        assert!(request.starts_with("GET /inbox HTTP/1.0\r\n"), "{request}");
        assert!(request.contains("Accept: application/nostr+json\r\n"));
    }
}
