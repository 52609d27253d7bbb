//! What can go wrong before a WebSocket is there.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Why there is no connection, and what would mend it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The address is not one of a WebSocket.
    #[error("{url:?} is no address of a WebSocket: {reason}; use ws://host:port/path or wss://…")]
    Url {
        /// What was given, without a user's name or password.
        url: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A header, a token or a subprotocol that cannot travel.
    #[error("the {what} cannot travel in an HTTP header: use visible ASCII characters alone")]
    Header {
        /// Which one.
        what: String,
    },
    /// The name stands for no address.
    #[error("{host} has no address ({error}); check the name and the network")]
    Name {
        /// The name.
        host: String,
        /// What the system said.
        error: io::Error,
    },
    /// Nobody listens there.
    #[error("{address} refuses connections; is the server running, and is this its port?")]
    Refused {
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
        /// What was under way.
        step: &'static str,
        /// The time allowed.
        after: Duration,
    },
    /// The network failed.
    #[error("{address}: {step} failed: {error}")]
    Io {
        /// Host and port.
        address: String,
        /// What was under way.
        step: &'static str,
        /// What the system said.
        error: io::Error,
    },
    /// The certificate is not to be trusted, or the other end speaks no TLS that we do.
    #[error("{address}: TLS failed: {reason}; {remedy}")]
    Tls {
        /// Host and port.
        address: String,
        /// What is wrong.
        reason: String,
        /// What would mend it.
        remedy: &'static str,
    },
    /// Certificates to trust could not be read.
    #[error("no certificates to trust from {from}: {reason}")]
    Roots {
        /// A file, or the system.
        from: String,
        /// What is wrong.
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
    /// The server does not want this connection, or is none for WebSockets.
    #[error("{address} answers {path} with HTTP {status}, not with a WebSocket{}", said(.text))]
    Status {
        /// Host and port.
        address: String,
        /// What was asked for.
        path: String,
        /// Its answer.
        status: u16,
        /// The beginning of what it said with it.
        text: String,
    },
    /// What answers there does not speak WebSocket.
    #[error("{address} is no WebSocket server: {reason}; check the port")]
    NotWebSocket {
        /// Host and port.
        address: String,
        /// What is wrong with its answer.
        reason: String,
    },
}

fn said(text: &str) -> String {
    match text {
        "" => "; check the path".to_owned(),
        text => format!(": {text}"),
    }
}

/// Why nobody can be listened to.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListenError {
    /// The address cannot be listened at.
    #[error("cannot listen at {address}: {error}; is another program there, or is it not ours?")]
    Bind {
        /// What was given.
        address: String,
        /// What the system said.
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
        /// Where.
        address: SocketAddr,
        /// What the system said.
        error: io::Error,
    },
    /// It failed before, and said so.
    #[error("no longer listening at {address}")]
    Ended {
        /// Where.
        address: SocketAddr,
    },
}
