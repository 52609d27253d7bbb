//! Errors of connecting and listening.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use crate::ListenAddress;

/// Why connecting failed, and how to fix it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The address is not a WebSocket URL.
    #[error("{url:?} is no address of a WebSocket: {reason}; use ws://host:port/path or wss://…")]
    Url {
        /// What was given, without a user's name or password.
        url: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A header, token or subprotocol contains characters that a header cannot hold.
    #[error("the {what} cannot travel in an HTTP header: use visible ASCII characters alone")]
    Header {
        /// Which one.
        what: String,
    },
    /// The host name has no address.
    #[error("{host} has no address ({error}); check the name and the network")]
    Name {
        /// The name.
        host: String,
        /// The system's error.
        error: io::Error,
    },
    /// No server listens at this port.
    #[error("{address} refuses connections; is the server running, and is this its port?")]
    Refused {
        /// Host and port.
        address: String,
    },
    /// The connection was made, and ended before an answer came.
    #[error(
        "{address} takes the connection and ends it without an answer: that is no WebSocket server (or one that needs wss://), or it is a relay or proxy, and what it connects to is not running"
    )]
    EndedUnanswered {
        /// Host and port.
        address: String,
    },
    /// It took too long.
    #[error(
        "{address} did not finish {step} within {} s; check the address and any firewall, or allow more time",
        after.as_secs_f64()
    )]
    Timeout {
        /// Host and port.
        address: String,
        /// What was being done.
        step: &'static str,
        /// The time allowed.
        after: Duration,
    },
    /// The network failed.
    #[error("{address}: {step} failed: {error}")]
    Io {
        /// Host and port.
        address: String,
        /// What was being done.
        step: &'static str,
        /// The system's error.
        error: io::Error,
    },
    /// The server's certificate is not trusted, or both sides have no TLS version in common.
    #[error("{address}: TLS failed: {reason}; {remedy}")]
    Tls {
        /// Host and port.
        address: String,
        /// What is wrong.
        reason: String,
        /// How to fix it.
        remedy: &'static str,
    },
    /// The certificates to trust could not be read.
    #[error("no certificates to trust from {from}: {reason}")]
    Roots {
        /// A file, or the system.
        from: String,
        /// What is wrong.
        reason: String,
    },
    /// The certificate to show to the server, or its key, cannot be used.
    #[error("{file}: {reason}", file = .file.display())]
    Identity {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// This program was built without TLS.
    #[error("{url:?} needs TLS, which is not built in: build with the feature `tls`, or use ws://")]
    NoTls {
        /// What was given.
        url: String,
    },
    /// The token is missing or wrong.
    #[error("{address} answers 401: {}", if *.sent { "it does not accept this bearer token" } else { "it wants a bearer token, and none was given" })]
    Unauthorized {
        /// Host and port.
        address: String,
        /// Whether a token was sent.
        sent: bool,
    },
    /// The server refused the handshake, or serves no WebSocket at this path.
    #[error("{address} answers {path} with HTTP {status}, not with a WebSocket{}", status_detail(.text))]
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
    /// The server does not speak WebSocket.
    #[error("{address} is no WebSocket server: {reason}; check the port")]
    NotWebSocket {
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
            Self::Refused { .. } | Self::EndedUnanswered { .. } | Self::Timeout { .. } => true,
            Self::Status { status, .. } => matches!(status, 502..=504),
            _ => false,
        }
    }
}

/// Whether the other end dropped a connection, as a proxy does that cannot reach its server.
pub(crate) fn is_drop(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    matches!(
        error.kind(),
        BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof
    )
}

fn status_detail(text: &str) -> String {
    match text {
        "" => "; check the path".to_owned(),
        text => format!(": {text}"),
    }
}

/// Why listening failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListenError {
    /// The address cannot be bound.
    #[error(
        "cannot listen at {address}: {error}; does another program use it, or is it not an address of this machine?"
    )]
    Bind {
        /// What was given.
        address: String,
        /// The system's error.
        error: io::Error,
    },
    /// The certificate or its key cannot be used.
    #[error("{file}: {reason}", file = .file.display())]
    Identity {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The listening socket failed.
    #[error("listening at {address} failed: {error}")]
    Accept {
        /// The address.
        address: ListenAddress,
        /// The system's error.
        error: io::Error,
    },
    /// The listener has ended; an earlier error said why.
    #[error("no longer listening at {address}")]
    Ended {
        /// The address.
        address: ListenAddress,
    },
}
