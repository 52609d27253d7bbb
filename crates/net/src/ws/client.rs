//! The client: connects to an address and performs the WebSocket handshake.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::{Instant, timeout_at};
use tokio_tungstenite::tungstenite::handshake::client::{Response, generate_key, generate_request};
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::http::header::{
    AUTHORIZATION, CONNECTION, CONTENT_LENGTH, HOST, HeaderMap, HeaderName, HeaderValue,
    SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_EXTENSIONS, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL,
    SEC_WEBSOCKET_VERSION, UPGRADE,
};
use tokio_tungstenite::tungstenite::http::{Request, StatusCode, Uri};

use super::bearer::Bearer;
use super::error::{ConnectError, is_drop};
use super::head::{HeadError, read_head};
use super::socket::{ByteStream, Socket, tune};
use super::transport::{Parts, WebSocket};
use super::{FRAGMENT, FRAME_LIMIT};

/// How much of an answer that refuses the handshake an error shows.
const TEXT_MAX: usize = 200;

/// The options of [`connect`].
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    /// Sent as `Authorization: Bearer …`; over `ws://` it travels in clear text.
    pub bearer: Option<Bearer>,
    /// Connects to this Unix socket instead of the URL's host, which is only sent as `Host`.
    #[cfg(unix)]
    pub unix_socket: Option<std::path::PathBuf>,
    /// Further headers, as names and values.
    pub headers: Vec<(String, String)>,
    /// Subprotocols to offer, the best first. A server may choose none of them.
    pub subprotocols: Vec<String>,
    /// How long connecting may take in total: name lookup, TCP, TLS and the handshake.
    pub timeout: Duration,
    /// The largest incoming message that is accepted, in bytes.
    pub frame_limit: usize,
    /// A larger message is sent as WebSocket fragments of this size.
    pub fragment: Option<usize>,
    /// The certificates to trust.
    #[cfg(feature = "tls")]
    pub roots: super::tls::Roots,
    /// The certificate to show to a server that asks for one.
    #[cfg(feature = "tls")]
    pub identity: Option<super::tls::Identity>,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        Self {
            bearer: None,
            #[cfg(unix)]
            unix_socket: None,
            headers: Vec::new(),
            subprotocols: Vec::new(),
            timeout: Duration::from_secs(10),
            frame_limit: FRAME_LIMIT,
            fragment: Some(FRAGMENT),
            #[cfg(feature = "tls")]
            roots: super::tls::Roots::Native,
            #[cfg(feature = "tls")]
            identity: None,
        }
    }
}

/// Connects to a `ws://` or `wss://` address.
pub async fn connect(url: &str, options: &ConnectOptions) -> Result<WebSocket, ConnectError> {
    let target = Target::parse(url)?;
    let deadline = Instant::now() + options.timeout;
    let (mut socket, peer) = target.open(deadline, options).await?;
    let (subprotocol, rest) = timeout_at(deadline, target.handshake(&mut socket, options))
        .await
        .map_err(|_| target.late("the WebSocket handshake", options))??;
    let parts = Parts {
        socket,
        peer,
        rest,
        server: false,
        frame_limit: options.frame_limit,
        fragment: options.fragment,
        subprotocol,
        permit: None,
    };
    Ok(WebSocket::new(parts))
}

/// Connects to the server of a `ws://` or `wss://` address, TLS included, and sends nothing: for a caller
/// that speaks HTTP itself.
pub async fn dial(url: &str, options: &ConnectOptions) -> Result<ByteStream, ConnectError> {
    let target = Target::parse(url)?;
    let deadline = Instant::now() + options.timeout;
    let (socket, _) = target.open(deadline, options).await?;
    Ok(ByteStream(socket))
}

/// A URL as errors show it: without what stands before the @, which may be a password.
pub(crate) fn without_secrets(url: &str) -> String {
    let parts = url.split_once("://");
    match parts.and_then(|(scheme, rest)| Some((scheme, rest.split_once('@')?.1))) {
        Some((scheme, rest)) => format!("{scheme}://…@{rest}"),
        None => url.to_owned(),
    }
}

/// Connects to a Unix socket.
#[cfg(unix)]
async fn unix(
    path: &std::path::Path,
    deadline: Instant,
    after: Duration,
) -> Result<(Socket, SocketAddr), ConnectError> {
    let address = format!("unix:{}", path.display());
    let connecting = tokio::net::UnixStream::connect(path);
    match timeout_at(deadline, connecting).await {
        Ok(Ok(stream)) => Ok((Socket::Unix(stream), crate::listening::THIS_MACHINE)),
        Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused => {
            Err(ConnectError::Refused { address })
        }
        Ok(Err(error)) => Err(ConnectError::Io {
            address,
            step: "connecting",
            error,
        }),
        Err(_) => Err(ConnectError::Timeout {
            address,
            step: "connecting",
            after,
        }),
    }
}

/// A parsed address.
struct Target {
    uri: Uri,
    secure: bool,
    /// Without the brackets of an IPv6 address.
    host: String,
    port: u16,
    /// Host and port, as errors show them.
    address: String,
}

/// The port of `wss` and `ws`.
fn known_port(secure: bool) -> u16 {
    if secure { 443 } else { 80 }
}

impl Target {
    fn parse(url: &str) -> Result<Self, ConnectError> {
        let named = without_secrets(url);
        let wrong = |reason: &str| ConnectError::Url {
            url: named.clone(),
            reason: reason.to_owned(),
        };
        let uri: Uri = url.parse().map_err(|error| wrong(&format!("{error}")))?;
        let secure = match uri.scheme_str() {
            Some("ws") => false,
            Some("wss") => true,
            Some(other) => return Err(wrong(&format!("its scheme is {other}"))),
            None => return Err(wrong("it has no scheme")),
        };
        if uri.authority().is_some_and(|it| it.as_str().contains('@')) {
            return Err(wrong(
                "it carries a name or password; give a bearer token instead",
            ));
        }
        if secure && cfg!(not(feature = "tls")) {
            return Err(ConnectError::NoTls { url: named });
        }
        let host = uri.host().unwrap_or_default();
        if host.is_empty() {
            return Err(wrong("it names no host"));
        }
        let authority = uri.authority().map_or("", |it| it.as_str());
        let written = authority.rsplit_once(':').map(|(_, port)| port);
        let port = match (uri.port_u16(), written) {
            (Some(port @ 1..), _) => port,
            // An IPv6 address without a port ends in a bracket.
            (None, Some(port)) if port.is_empty() || port.ends_with(']') => known_port(secure),
            (None, None) => known_port(secure),
            _ => return Err(wrong("its port is no number from 1 to 65535")),
        };
        Ok(Self {
            address: format!("{host}:{port}"),
            host: host.trim_matches(['[', ']']).to_owned(),
            port,
            secure,
            uri,
        })
    }

    /// Connects, TLS included.
    async fn open(
        &self,
        deadline: Instant,
        options: &ConnectOptions,
    ) -> Result<(Socket, SocketAddr), ConnectError> {
        let (socket, peer) = self.dial(deadline, options).await?;
        let socket = timeout_at(deadline, self.secure(socket, options))
            .await
            .map_err(|_| self.late("the TLS handshake", options))??;
        Ok((socket, peer))
    }

    fn late(&self, step: &'static str, options: &ConnectOptions) -> ConnectError {
        ConnectError::Timeout {
            address: self.address.clone(),
            step,
            after: options.timeout,
        }
    }

    async fn dial(
        &self,
        deadline: Instant,
        options: &ConnectOptions,
    ) -> Result<(Socket, SocketAddr), ConnectError> {
        #[cfg(unix)]
        if let Some(path) = &options.unix_socket {
            return unix(path, deadline, options.timeout).await;
        }
        let (stream, peer) = self.dial_tcp(deadline, options).await?;
        tune(&stream);
        Ok((Socket::Plain(stream), peer))
    }

    /// Tries every IP address of the host name, each for an equal share of the time left.
    async fn dial_tcp(
        &self,
        deadline: Instant,
        options: &ConnectOptions,
    ) -> Result<(TcpStream, SocketAddr), ConnectError> {
        let late = |step| self.late(step, options);
        let name = |error| ConnectError::Name {
            host: self.host.clone(),
            error,
        };
        let addresses: Vec<_> = timeout_at(deadline, lookup_host((self.host.as_str(), self.port)))
            .await
            .map_err(|_| late("the name lookup"))?
            .map_err(name)?
            .collect();
        let mut failure = name(io::ErrorKind::NotFound.into());
        for (index, &address) in addresses.iter().enumerate() {
            let left = deadline.saturating_duration_since(Instant::now());
            let share = left / u32::try_from(addresses.len() - index).unwrap_or(1);
            failure = match timeout_at(Instant::now() + share, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => return Ok((stream, address)),
                Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused => {
                    ConnectError::Refused {
                        address: self.address.clone(),
                    }
                }
                Ok(Err(error)) => self.failed("connecting", error),
                Err(_) => late("connecting"),
            };
        }
        Err(failure)
    }

    #[cfg(feature = "tls")]
    async fn secure(
        &self,
        socket: Socket,
        options: &ConnectOptions,
    ) -> Result<Socket, ConnectError> {
        let stream = match socket {
            Socket::Plain(stream) if self.secure => stream,
            // A Unix socket ends on this machine: nobody listens in between.
            socket => return Ok(socket),
        };
        let identity = options.identity.as_ref();
        super::tls::client(stream, &self.host, &self.address, &options.roots, identity).await
    }

    #[cfg(not(feature = "tls"))]
    async fn secure(
        &self,
        socket: Socket,
        _options: &ConnectOptions,
    ) -> Result<Socket, ConnectError> {
        debug_assert!(!self.secure, "refused with the address");
        Ok(socket)
    }

    /// Performs the WebSocket handshake; returns the subprotocol that the server chose, and the
    /// bytes that came after its answer.
    async fn handshake(
        &self,
        socket: &mut Socket,
        options: &ConnectOptions,
    ) -> Result<(Option<String>, Vec<u8>), ConnectError> {
        let (request, key) = self.request(options)?;
        let step = "the WebSocket handshake";
        let io = |error| self.failed(step, error);
        socket.write_all(&request).await.map_err(io)?;
        socket.flush().await.map_err(io)?;
        let not_websocket = |reason: String| ConnectError::NotWebSocket {
            address: self.address.clone(),
            reason,
        };
        let (response, mut rest) = match read_head::<Response>(socket).await {
            Ok(head) => head,
            Err(HeadError::Io(error)) => return Err(io(error)),
            Err(HeadError::TooLong) => {
                return Err(not_websocket("its answer is too long".to_owned()));
            }
            Err(HeadError::Malformed(reason)) => return Err(not_websocket(reason)),
            // Occurs only in requests.
            Err(HeadError::NotGet) => return Err(not_websocket("no response".to_owned())),
        };
        match response.status() {
            StatusCode::SWITCHING_PROTOCOLS => {}
            StatusCode::UNAUTHORIZED => {
                return Err(ConnectError::Unauthorized {
                    address: self.address.clone(),
                    sent: options.bearer.is_some(),
                });
            }
            status => {
                let length = response.headers().get(CONTENT_LENGTH);
                if rest.is_empty() && length.is_none_or(|length| length != "0") {
                    // The body may come later than the head. It is only shown, so one read is enough.
                    rest.reserve(TEXT_MAX);
                    let _ = socket.read_buf(&mut rest).await;
                }
                return Err(ConnectError::Status {
                    address: self.address.clone(),
                    path: self.path().to_owned(),
                    status: status.as_u16(),
                    text: printable_text(&rest),
                });
            }
        }
        let chosen =
            verify(response.headers(), &key, &options.subprotocols).map_err(not_websocket)?;
        Ok((chosen, rest))
    }

    fn request(&self, options: &ConnectOptions) -> Result<(Vec<u8>, String), ConnectError> {
        let value = |what: &str, value: &str| {
            HeaderValue::from_str(value).map_err(|_| ConnectError::Header {
                what: what.to_owned(),
            })
        };
        let mut request = Request::new(());
        let headers = request.headers_mut();
        for (name, content) in &options.headers {
            let what = format!("header {name:?}");
            let name = HeaderName::try_from(name)
                .map_err(|_| ConnectError::Header { what: what.clone() })?;
            headers.append(name, value(&what, content)?);
        }
        if let Some(bearer) = &options.bearer {
            let mut secret = value("bearer token", &bearer.header())?;
            secret.set_sensitive(true);
            headers.insert(AUTHORIZATION, secret);
        }
        if !options.subprotocols.is_empty() {
            let offered = options.subprotocols.join(", ");
            headers.insert(SEC_WEBSOCKET_PROTOCOL, value("subprotocol", &offered)?);
        }
        // As written in the URL: without a port if the URL has none.
        let host = self.uri.authority().map_or("", |it| it.as_str());
        headers.insert(HOST, value("host", host)?);
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
        headers.insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
        headers.insert(SEC_WEBSOCKET_KEY, value("key", &generate_key())?);
        *request.uri_mut() = self.uri.clone();
        generate_request(request).map_err(|error| ConnectError::Url {
            url: self.uri.to_string(),
            reason: error.to_string(),
        })
    }

    fn path(&self) -> &str {
        self.uri.path()
    }

    fn failed(&self, step: &'static str, error: io::Error) -> ConnectError {
        let address = self.address.clone();
        match is_drop(&error) {
            true => ConnectError::EndedUnanswered { address },
            false => ConnectError::Io {
                address,
                step,
                error,
            },
        }
    }
}

/// Checks that an answer accepts our request, and returns the subprotocol that it chose.
fn verify(headers: &HeaderMap, key: &str, offered: &[String]) -> Result<Option<String>, String> {
    let field = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let has = |name, token: &str| {
        field(name).is_some_and(|value| {
            value
                .split(',')
                .any(|part| part.trim().eq_ignore_ascii_case(token))
        })
    };
    if !has(UPGRADE, "websocket") || !has(CONNECTION, "upgrade") {
        return Err("its answer does not switch to WebSocket".to_owned());
    }
    if field(SEC_WEBSOCKET_ACCEPT) != Some(&derive_accept_key(key.as_bytes())) {
        return Err("its answer is to another request (wrong Sec-WebSocket-Accept)".to_owned());
    }
    if headers.contains_key(SEC_WEBSOCKET_EXTENSIONS) {
        return Err("it uses an extension that was not offered".to_owned());
    }
    match field(SEC_WEBSOCKET_PROTOCOL) {
        None => Ok(None),
        Some(chosen) if offered.iter().any(|it| it == chosen) => Ok(Some(chosen.to_owned())),
        Some(other) => Err(format!(
            "it chose the subprotocol {other:?}, which was not offered"
        )),
    }
}

/// The beginning of an answer's body, as one line without control characters.
fn printable_text(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(&text[..text.len().min(TEXT_MAX)]);
    let words: Vec<_> = text.split_whitespace().collect();
    let mut line = words.join(" ");
    line.retain(|c| !c.is_control());
    line
}
