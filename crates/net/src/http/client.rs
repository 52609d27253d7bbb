//! What the SSE, polling and WebRTC clients share: options, errors, and requests to the server.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use breakbulk_link::{Closed, Frame};
use bytes::{Bytes, BytesMut};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Method, RequestBuilder, Response, StatusCode, Url};
use tokio::sync::watch;
use tokio::time::timeout;

use super::dialect::Dialect;
use crate::exchange::EventStreams;
use crate::transport::Lost;
use crate::ws::{Bearer, Identity, Roots, client_config, is_drop, without_secrets};

/// How much of an answer's text an error shows.
const TEXT_MAX: usize = 1000;

/// How much of an answer is read if it is only shown in an error.
const ANSWER_MAX: usize = 16 << 10;

/// Idle sockets are closed after this time, before the server closes them under a new request: those of
/// node and of uvicorn do so after 5 s.
const IDLE: Duration = Duration::from_secs(4);

/// After this much idle time TCP keepalive probes are sent; a server that does not answer them counts
/// as gone. An answer may be long in coming, and a path that silently drops packets would never be
/// noticed otherwise.
const KEEPALIVE: Duration = Duration::from_secs(20);

/// The error text for a server that ended the connection instead of answering, as a proxy does that cannot
/// reach its server.
const ENDED_UNANSWERED: &str = "the connection was ended without an answer";

/// The error text for an answer that broke off after its beginning.
const ENDED_EARLY: &str = "the connection was ended before the whole answer had come";

/// The prefix of those errors of the HTTP library that say nothing by themselves.
const LIBRARYS_OWN: &str = "client error (";

/// The prefix of the error for a POST that the server refused with a text of its own.
const REFUSED: &str = "HTTP ";

/// The status and the text with which the server refused a POST, if a client's connection ended for that: the
/// same message would be refused on the next connection too, unless the status says otherwise.
pub fn refused_post(closed: &Closed) -> Option<(u16, &str)> {
    let failed = Lost(REFUSED.to_owned()).to_string();
    let (status, words) = closed.reason.strip_prefix(&failed)?.split_once(": ")?;
    Some((status.parse().ok()?, words))
}

/// The options of a client.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// The protocol's paths and parameter names.
    pub dialect: Dialect,
    /// This client's peer id.
    pub peer_id: String,
    /// Sent as `Authorization: Bearer …`.
    pub bearer: Option<Bearer>,
    /// Further headers, as names and values.
    pub headers: Vec<(String, String)>,
    /// How long connecting may take, and receiving the head of an answer.
    pub timeout: Duration,
    /// How long a POST may take: the server answers it when the application has kept the message.
    pub post_time: Duration,
    /// How long each poll asks the server to wait.
    pub wait: Duration,
    /// The largest body of a request and of an answer, for [exchanges](crate::exchange).
    pub body_max: usize,
    /// Whether [exchanges](crate::exchange) use event streams, and what is known about them on this path;
    /// `None`: polls alone.
    pub event_streams: Option<Arc<EventStreams>>,
    /// The certificates to trust.
    pub roots: Roots,
    /// The certificate to show to a server that asks for one.
    pub identity: Option<Identity>,
    /// The Unix socket of the server, instead of host and port.
    #[cfg(unix)]
    pub unix_socket: Option<std::path::PathBuf>,
}

impl ClientOptions {
    /// The default options, with a peer id.
    pub fn new(peer_id: impl Into<String>) -> Self {
        Self {
            dialect: Dialect::default(),
            peer_id: peer_id.into(),
            bearer: None,
            headers: Vec::new(),
            timeout: Duration::from_secs(10),
            post_time: Duration::from_secs(90),
            wait: Duration::from_secs(30),
            body_max: 1 << 20,
            event_streams: Some(Arc::default()),
            roots: Roots::Native,
            identity: None,
            #[cfg(unix)]
            unix_socket: None,
        }
    }
}

/// Why connecting failed, and how to fix it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The address is not an HTTP URL.
    #[error(
        "{url:?} is no address of an HTTP server: {reason}; use http://host:port/path or https://…"
    )]
    Url {
        /// What was given, without a user's name or password.
        url: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A header, token or peer id contains characters that a header cannot hold.
    #[error("the {what} cannot travel in an HTTP header: use visible ASCII characters alone")]
    Header {
        /// Which one.
        what: String,
    },
    /// Certificates to trust could not be read.
    #[error(transparent)]
    Tls(#[from] crate::ws::ConnectError),
    /// The network failed.
    #[error("{address}: {reason}; is the server running, and is this its port?")]
    Failed {
        /// Host and port.
        address: String,
        /// What failed.
        reason: String,
    },
    /// It took too long.
    #[error("{address} did not answer within {} s; check the address and any firewall, or allow more time", after.as_secs_f64())]
    Timeout {
        /// Host and port.
        address: String,
        /// The time allowed.
        after: Duration,
    },
    /// The server refused the request, or does not serve this path.
    #[error("{address} answers {path} with HTTP {status}: {text}")]
    Status {
        /// Host and port.
        address: String,
        /// The path of the request.
        path: String,
        /// The status of its answer.
        status: u16,
        /// The beginning of the answer's body.
        text: String,
    },
    /// The answer does not follow the protocol.
    #[error("{address} does not answer as expected: {reason}; check the path")]
    UnexpectedAnswer {
        /// Host and port.
        address: String,
        /// What is wrong with its answer.
        reason: String,
    },
}

impl ConnectError {
    /// Whether nothing answers there: the server may not be running, or a proxy cannot reach its server.
    pub fn is_unanswered(&self) -> bool {
        match self {
            Self::Failed { .. } | Self::Timeout { .. } => true,
            Self::Status { status, .. } => matches!(status, 502..=504),
            _ => false,
        }
    }
}

/// One HTTP server, and how to reach it: its address, certificates, tokens and headers.
#[derive(Clone)]
pub struct HttpTarget {
    http: Client,
    base: Url,
    address: String,
}

impl fmt::Debug for HttpTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpTarget")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

impl HttpTarget {
    /// The server at an `http://` or `https://` address. Nothing is sent yet.
    pub async fn new(url: &str, options: &ClientOptions) -> Result<Self, ConnectError> {
        let base = parse(url)?;
        let host = base.host_str().unwrap_or_default();
        let port = base.port_or_known_default().unwrap_or(80);
        let address = format!("{host}:{port}");
        let mut builder = Client::builder()
            .default_headers(headers(options)?)
            .connect_timeout(options.timeout)
            .pool_idle_timeout(IDLE)
            .tcp_nodelay(true)
            .tcp_keepalive(KEEPALIVE)
            .referer(false)
            // A redirect must not send the token to another server.
            .redirect(reqwest::redirect::Policy::none());
        builder = if base.scheme() == "https" {
            let identity = options.identity.as_ref();
            let config = client_config(&address, &options.roots, identity).await?;
            builder.tls_backend_preconfigured(config)
        } else {
            // Without TLS, a configuration with no trusted certificates; it still names our crypto
            // provider, so that another one in the program causes no conflict.
            builder.tls_backend_preconfigured(no_tls(&address)?)
        };
        #[cfg(unix)]
        let address = match &options.unix_socket {
            Some(path) => {
                builder = builder.unix_socket(path.as_path());
                format!("unix:{}", path.display())
            }
            None => address,
        };
        let bare = host.trim_matches(['[', ']']);
        let loopback = bare
            .parse::<std::net::IpAddr>()
            .map_or(bare == "localhost", |ip| ip.is_loopback());
        if loopback {
            builder = builder.no_proxy();
        }
        let http = builder.build().map_err(|error| ConnectError::Failed {
            address: address.clone(),
            reason: failure(&error),
        })?;
        Ok(Self {
            http,
            base,
            address,
        })
    }

    /// A request to the address itself.
    pub fn request(&self, method: Method) -> RequestBuilder {
        self.http.request(method, self.base.clone())
    }

    /// Host and port.
    pub fn address(&self) -> &str {
        &self.address
    }
}

/// Sends requests to one server.
pub(crate) struct HttpClient {
    target: HttpTarget,
    options: ClientOptions,
    /// This side has closed.
    pub(crate) over: watch::Sender<bool>,
}

impl fmt::Debug for HttpClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpClient")
            .field("address", &self.target.address)
            .finish_non_exhaustive()
    }
}

impl HttpClient {
    pub(crate) async fn new(url: &str, options: &ClientOptions) -> Result<Arc<Self>, ConnectError> {
        Ok(Arc::new(Self {
            target: HttpTarget::new(url, options).await?,
            options: options.clone(),
            over: watch::channel(false).0,
        }))
    }

    pub(crate) fn options(&self) -> &ClientOptions {
        &self.options
    }

    /// A request for a path below the server's address.
    pub(crate) fn request(
        &self,
        method: Method,
        path: &str,
        query: &[(&str, &str)],
    ) -> RequestBuilder {
        let mut url = self.target.base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().push(path);
        }
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        self.target.http.request(method, url)
    }

    /// Sends a request and returns the head of its answer, which must be 200.
    pub(crate) async fn ask(
        &self,
        request: RequestBuilder,
        within: Duration,
    ) -> Result<Response, ConnectError> {
        let response = timeout(within, request.send()).await;
        let response = response.map_err(|_| self.timed_out(within))?;
        let response = response.map_err(|error| self.failed(&error))?;
        if response.status() == StatusCode::OK {
            return Ok(response);
        }
        let path = response.url().path().to_owned();
        let status = response.status().as_u16();
        let text = timeout(within, printable_text(response))
            .await
            .unwrap_or_default();
        Err(ConnectError::Status {
            address: self.target.address.clone(),
            path,
            status,
            text,
        })
    }

    /// Posts a frame, and waits for the server's answer. A failure ends this client with its polls or its
    /// event stream: they would take messages that are meant for the next connection of this peer id.
    pub(crate) async fn post(&self, frame: Frame) -> Result<(), Lost> {
        let posted = self.try_post(frame).await;
        if posted.is_err() {
            self.over.send_replace(true);
        }
        posted
    }

    async fn try_post(&self, frame: Frame) -> Result<(), Lost> {
        let Frame::Binary(bytes) = frame else {
            return Err(Lost("a POST carries binary frames alone".to_owned()));
        };
        let size = bytes.len();
        let request = self
            .request(Method::POST, self.options.dialect.post, &[])
            .header(self.options.dialect.peer_header, &self.options.peer_id)
            .header("content-type", "application/octet-stream")
            .body(bytes);
        let answered = async {
            let response = request
                .send()
                .await
                .map_err(|error| Lost(failure(&error)))?;
            let status = response.status();
            let text = printable_text(response).await;
            if status.is_success() {
                return Ok(());
            }
            let code = status.as_u16();
            // The server's own text says what is wrong. A close reason has few bytes, so little is put
            // before it.
            if let Some(told) = error_text(&text)
                && status != StatusCode::NOT_FOUND
            {
                return Err(Lost(format!("{REFUSED}{code}: {told}")));
            }
            let remedy = match status {
                StatusCode::NOT_FOUND => "the server does not know this connection: connect again",
                StatusCode::PAYLOAD_TOO_LARGE => "lower the cap on frames, or send less",
                StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => "give another token",
                _ => "see the server's log",
            };
            Err(Lost(format!(
                "a POST of {size} bytes was answered with HTTP {code} ({text}); {remedy}"
            )))
        };
        let within = self.options.post_time;
        timeout(within, answered).await.unwrap_or_else(|_| {
            let seconds = within.as_secs_f64();
            Err(Lost(format!(
                "a POST of {size} bytes had no answer in {seconds} s"
            )))
        })
    }

    /// Waits until this side has closed.
    pub(crate) async fn closed(&self) {
        let _ = self.over.subscribe().wait_for(|over| *over).await;
    }

    pub(crate) fn unexpected_answer(&self, reason: impl Into<String>) -> ConnectError {
        ConnectError::UnexpectedAnswer {
            address: self.target.address.clone(),
            reason: reason.into(),
        }
    }

    fn failed(&self, error: &reqwest::Error) -> ConnectError {
        ConnectError::Failed {
            address: self.target.address.clone(),
            reason: failure(error),
        }
    }

    #[cfg(feature = "webrtc")]
    pub(crate) fn failed_because(&self, reason: impl Into<String>) -> ConnectError {
        ConnectError::Failed {
            address: self.target.address.clone(),
            reason: reason.into(),
        }
    }

    pub(crate) fn timed_out(&self, after: Duration) -> ConnectError {
        ConnectError::Timeout {
            address: self.target.address.clone(),
            after,
        }
    }
}

/// Reads a body of at most `limit` bytes.
///
/// # Errors
/// What went wrong, as text: it is longer, or did not arrive whole.
pub async fn read_answer(response: Response, limit: usize) -> Result<Bytes, String> {
    read_reporting(response, limit, || {}).await
}

/// The same; `progress` is called whenever a part of the body came in.
pub(crate) async fn read_reporting(
    mut response: Response,
    limit: usize,
    progress: impl Fn(),
) -> Result<Bytes, String> {
    let mut bytes = BytesMut::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| failure(&error))? {
        progress();
        if bytes.len() + chunk.len() > limit {
            return Err(format!("its answer is over the limit of {limit} bytes"));
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes.freeze())
}

/// The beginning of an answer's body, as one line without control characters.
async fn printable_text(response: Response) -> String {
    let body = read_answer(response, ANSWER_MAX).await.unwrap_or_default();
    let text = String::from_utf8_lossy(&body[..body.len().min(TEXT_MAX)]);
    let words: Vec<_> = text.split_whitespace().collect();
    let mut line = words.join(" ");
    line.retain(|c| !c.is_control());
    line
}

/// The error in an answer: its JSON member `error`, or the beginning of its text.
pub(crate) async fn printable_error(response: Response) -> String {
    let text = printable_text(response).await;
    error_text(&text).unwrap_or(text)
}

/// The error in a JSON answer.
fn error_text(answer: &str) -> Option<String> {
    let answer: serde_json::Value = serde_json::from_str(answer).ok()?;
    Some(answer.get("error")?.as_str()?.to_owned())
}

/// What failed, with its causes, but without the URL, whose query may hold a secret.
pub fn failure(error: &reqwest::Error) -> String {
    // Some of the answer may have come.
    let is_answered = error.is_body() || error.is_decode();
    let (mut text, mut causes) = match error {
        it if it.is_timeout() => ("it took too long".to_owned(), Vec::new()),
        it if it.is_connect() => ("no connection".to_owned(), Vec::new()),
        _ if is_answered => ("the answer broke off".to_owned(), Vec::new()),
        _ => ("the request failed".to_owned(), Vec::new()),
    };
    let mut source = std::error::Error::source(error);
    while let Some(error) = source {
        match plain_cause(error) {
            Some(_) if is_answered => {
                causes.push(ENDED_EARLY.to_owned());
                break;
            }
            Some(words) => return words.to_owned(),
            None => causes.push(error.to_string()),
        }
        source = error.source();
    }
    for cause in causes {
        // Omits the library's wrapping errors, which do not name the cause.
        if !cause.starts_with(LIBRARYS_OWN) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

/// A plain text for the most frequent causes of failed requests.
fn plain_cause(error: &(dyn std::error::Error + 'static)) -> Option<&'static str> {
    if let Some(error) = error.downcast_ref::<std::io::Error>() {
        return match error.kind() {
            std::io::ErrorKind::ConnectionRefused => {
                Some("connection refused: nothing listens there")
            }
            _ if is_drop(error) => Some(ENDED_UNANSWERED),
            _ => None,
        };
    }
    // The HTTP library does not export the kind of this error.
    let ended = error.to_string() == "connection closed before message completed";
    ended.then_some(ENDED_UNANSWERED)
}

fn parse(url: &str) -> Result<Url, ConnectError> {
    let named = without_secrets(url);
    let wrong = |reason: &str| ConnectError::Url {
        url: named.clone(),
        reason: reason.to_owned(),
    };
    let parsed = Url::parse(url).map_err(|error| wrong(&error.to_string()))?;
    match parsed.scheme() {
        "http" | "https" => {}
        other => return Err(wrong(&format!("its scheme is {other}"))),
    }
    if !parsed.username().is_empty() || parsed.password().is_some() {
        let reason = "it carries a name or password; give a bearer token instead";
        return Err(wrong(reason));
    }
    Ok(parsed)
}

fn headers(options: &ClientOptions) -> Result<HeaderMap, ConnectError> {
    let value = |what: &str, value: &str| {
        HeaderValue::from_str(value).map_err(|_| ConnectError::Header {
            what: what.to_owned(),
        })
    };
    value("peer id", &options.peer_id)?;
    let mut headers = HeaderMap::new();
    for (name, content) in &options.headers {
        let what = format!("header {name:?}");
        let name =
            HeaderName::try_from(name).map_err(|_| ConnectError::Header { what: what.clone() })?;
        headers.append(name, value(&what, content)?);
    }
    if let Some(bearer) = &options.bearer {
        let mut secret = value("bearer token", &bearer.header())?;
        secret.set_sensitive(true);
        headers.insert("authorization", secret);
    }
    Ok(headers)
}

fn no_tls(address: &str) -> Result<rustls::ClientConfig, ConnectError> {
    let config = rustls::ClientConfig::builder_with_provider(crate::ws::provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| ConnectError::Failed {
            address: address.to_owned(),
            reason: error.to_string(),
        })?;
    Ok(config
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    /// What is said of a server that answers so much and ends the connection.
    async fn said(answer: &str) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let serving = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let read = stream.read(&mut [0; 4096]).await.unwrap();
            assert!(read > 0);
            stream.write_all(answer.as_bytes()).await.unwrap();
        };
        let asking = async {
            let target = HttpTarget::new(&url, &ClientOptions::new(""))
                .await
                .unwrap();
            match target.request(Method::GET).send().await {
                Ok(response) => read_answer(response, 1000).await.unwrap_err(),
                Err(error) => failure(&error),
            }
        };
        tokio::join!(serving, asking).1
    }

    /// Of an answer that broke off it was said that there was none.
    #[tokio::test]
    async fn an_answer_that_breaks_off_is_told_from_none() {
        assert_eq!(said("").await, ENDED_UNANSWERED);
        for answer in [
            "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
        ] {
            let said = said(answer).await;
            assert!(said.starts_with("the answer broke off: "), "{said}");
            assert!(said.ends_with(ENDED_EARLY), "{said}");
        }
    }
}
