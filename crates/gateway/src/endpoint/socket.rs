//! `tcp://HOST:PORT[?options]` and `unix:PATH[?options]`: streams of messages over sockets.

use std::path::PathBuf;

use super::options::{EndpointOptions, NAMES, only_options};
use super::{At, EndpointError, WireKind, address, at_question_mark};
use crate::error::EndError;

/// Where a stream of messages is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SocketAddress {
    /// Host and port, as written.
    Tcp(String),
    /// The path of a Unix socket.
    #[cfg_attr(not(unix), expect(dead_code, reason = "only Unix has them"))]
    Unix(PathBuf),
}

impl SocketAddress {
    /// For people to read, as it is written in an endpoint.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Tcp(authority) => format!("tcp://{authority}"),
            Self::Unix(path) => format!("unix:{}", path.display()),
        }
    }

    /// The beginning of the endpoint.
    pub(crate) fn scheme(&self) -> &'static str {
        match self {
            Self::Tcp(_) => "tcp:",
            Self::Unix(_) => "unix:",
        }
    }

    /// Whether it can be a target.
    pub(crate) fn check_target(&self) -> Result<(), EndError> {
        let Self::Tcp(authority) = self else {
            return Ok(());
        };
        address::check_target("tcp", authority, "/")?;
        let has_port = authority
            .rsplit_once(':')
            .is_some_and(|(_, port)| port.parse::<u16>().is_ok_and(|port| port > 0));
        match has_port {
            true => Ok(()),
            false => Err(EndError::NoPort {
                authority: authority.clone(),
            }),
        }
    }

    /// The host and port to listen at, if it is no Unix socket.
    pub(crate) fn listen_at(&self) -> Result<Option<(String, u16)>, EndError> {
        match self {
            Self::Tcp(authority) => listen_at(authority).map(Some),
            Self::Unix(_) => Ok(None),
        }
    }
}

/// The host and port to listen at.
pub(crate) fn listen_at(authority: &str) -> Result<(String, u16), EndError> {
    address::listen_at("tcp", authority)
}

type Parsed = Result<(WireKind, At, EndpointOptions), EndpointError>;

/// What follows `tcp:`.
pub(super) fn tcp(rest: &str) -> Parsed {
    let rest = rest
        .strip_prefix("//")
        .ok_or(EndpointError::Slashes("tcp"))?;
    let (authority, query) = at_question_mark(rest);
    let authority = authority.strip_suffix('/').unwrap_or(authority);
    if authority.is_empty() {
        return Err(EndpointError::NoTcpHost);
    }
    if authority.contains('@') {
        return Err(EndpointError::TcpCredentials);
    }
    if authority.contains(['/', '#']) {
        return Err(EndpointError::TcpPath);
    }
    let at = At::Socket(SocketAddress::Tcp(authority.to_owned()));
    Ok((WireKind::Whole, at, only_options(query, NAMES)?))
}

/// What follows `unix:`.
#[cfg(unix)]
pub(super) fn unix(rest: &str) -> Parsed {
    let (path, query) = at_question_mark(rest);
    if path.starts_with("//") {
        let path = path.trim_start_matches('/').to_owned();
        return Err(EndpointError::UnixSlashes(path));
    }
    if path.is_empty() {
        return Err(EndpointError::NoSocket("unix:"));
    }
    let at = At::Socket(SocketAddress::Unix(path.into()));
    Ok((WireKind::Whole, at, only_options(query, NAMES)?))
}
