//! `ws://HOST:PORT/PATH[?options]` and the addresses that are written like it: WebSockets and HTTP.

use std::path::PathBuf;

#[cfg(feature = "http")]
use super::http;
#[cfg(unix)]
use super::options::only_options;
use super::options::{EndpointOptions, Misspelt, NAMES, options, unknown_option};
use super::{At, EndpointError, WireKind, address, at_question_mark};
use crate::error::EndError;

/// The address of a WebSocket, or of an HTTP server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WsAddress {
    /// HTTP instead of WebSockets.
    pub(crate) http: bool,
    /// Written with `ahp+`: HTTP that carries a tunnel.
    pub(crate) ahp: bool,
    /// `wss` or `https`.
    pub(crate) secure: bool,
    /// Host and port, as written.
    pub(crate) authority: String,
    /// The path, at least `/`.
    pub(crate) path: String,
    /// The query without the gateway's own options.
    pub(crate) query: Option<String>,
    /// The Unix socket, instead of host and port.
    pub(crate) socket: Option<PathBuf>,
}

impl WsAddress {
    /// As a client asks for it.
    pub(crate) fn url(&self) -> String {
        let query = self.query.as_ref().map(|query| format!("?{query}"));
        format!(
            "{}://{}{}{}",
            self.url_scheme(),
            self.authority,
            self.path,
            query.unwrap_or_default()
        )
    }

    /// The host and port, or the Unix socket, for people to read.
    pub(crate) fn name(&self) -> String {
        match &self.socket {
            Some(path) => format!("unix:{}", path.display()),
            None => self.authority.clone(),
        }
    }

    /// The URL without its query, or the scheme and the path of the Unix socket.
    pub(crate) fn path_name(&self) -> String {
        match &self.socket {
            Some(path) => format!("{}:{}", self.scheme(), path.display()),
            None => format!("{}://{}{}", self.scheme(), self.authority, self.path),
        }
    }

    pub(crate) fn scheme(&self) -> &'static str {
        match (self.ahp, self.secure, &self.socket) {
            (_, _, Some(_)) if self.http => "http+unix",
            (_, _, Some(_)) => "ws+unix",
            (true, true, None) => "ahp+https",
            (true, false, None) => "ahp+http",
            (false, _, None) => self.url_scheme(),
        }
    }

    fn url_scheme(&self) -> &'static str {
        match (self.http, self.secure) {
            (true, true) => "https",
            (true, false) => "http",
            (false, true) => "wss",
            (false, false) => "ws",
        }
    }

    /// The options of its kind of endpoint.
    fn option_names(&self) -> &'static [&'static str] {
        match self.http {
            #[cfg(feature = "http")]
            true => http::NAMES,
            _ => NAMES,
        }
    }

    /// Whether it can be a target: `ws://8080` is short for a listener, and has no host.
    pub(crate) fn check_target(&self) -> Result<(), EndError> {
        address::check_target(self.scheme(), &self.authority, &self.path)
    }

    /// The host and port to listen at. Unknown options are an error, since a listener has no server to
    /// pass them on to.
    pub(crate) fn listen_at(&self) -> Result<(String, u16), EndError> {
        if let Some(query) = &self.query {
            return Err(unknown_option(query, self.option_names()).into());
        }
        address::listen_at(self.scheme(), &self.authority)
    }
}

pub(super) fn web_socket(
    secure: bool,
    rest: &str,
) -> Result<(WireKind, At, EndpointOptions), EndpointError> {
    let scheme = if secure { "wss" } else { "ws" };
    let (address, options) = web_address(scheme, rest, NAMES)?;
    Ok((WireKind::Ahp, At::Ws(address), options))
}

/// What follows the scheme and its colon: host, port, path and options.
pub(super) fn web_address(
    scheme: &'static str,
    rest: &str,
    names: &'static [&'static str],
) -> Result<(WsAddress, EndpointOptions), EndpointError> {
    let Located {
        authority,
        path,
        query,
    } = located(scheme, rest)?;
    let (mut options, unknown) = options(query, names)?;
    options.misspelt = Misspelt::among(&unknown, names);
    let address = WsAddress {
        http: scheme.contains("http"),
        ahp: scheme.starts_with("ahp+"),
        secure: matches!(scheme, "wss" | "https" | "ahp+https"),
        authority: authority.to_owned(),
        path: path.to_owned(),
        query: (!unknown.is_empty()).then(|| unknown.join("&")),
        socket: None,
    };
    Ok((address, options))
}

/// What follows a scheme and its colon, divided.
pub(super) struct Located<'a> {
    /// Host and port.
    pub(super) authority: &'a str,
    /// At least `/`.
    pub(super) path: &'a str,
    /// What follows the question mark.
    pub(super) query: &'a str,
}

/// Divides what follows a scheme and its colon.
pub(super) fn located<'a>(
    scheme: &'static str,
    rest: &'a str,
) -> Result<Located<'a>, EndpointError> {
    let rest = rest
        .strip_prefix("//")
        .ok_or(EndpointError::Slashes(scheme))?;
    let (address, query) = at_question_mark(rest);
    let (authority, path) = match address.find('/') {
        Some(at) => address.split_at(at),
        None => (address, "/"),
    };
    if authority.is_empty() {
        return Err(EndpointError::Host(scheme));
    }
    if authority.contains('@') {
        return Err(EndpointError::Credentials);
    }
    if address.contains('#') {
        return Err(EndpointError::Fragment);
    }
    Ok(Located {
        authority,
        path,
        query,
    })
}

/// `ws+unix:/run/breakbulk.sock`: a WebSocket over a Unix socket.
#[cfg(unix)]
pub(super) fn unix_socket(rest: &str) -> Result<(WireKind, At, EndpointOptions), EndpointError> {
    let (path, query) = at_question_mark(rest);
    if path.is_empty() {
        return Err(EndpointError::NoSocket("ws+unix:"));
    }
    let address = WsAddress {
        http: false,
        ahp: false,
        secure: false,
        authority: "localhost".to_owned(),
        path: "/".to_owned(),
        query: None,
        socket: Some(path.into()),
    };
    Ok((WireKind::Ahp, At::Ws(address), only_options(query, NAMES)?))
}
