//! `[wire+]transport:address[?options]`: one end of a gateway as text.

mod address;
mod error;
#[cfg(feature = "http")]
mod http;
#[cfg(feature = "loro")]
mod loro;
#[cfg(feature = "nats")]
mod nats;
mod options;
#[cfg(feature = "nostr")]
mod relays;
#[cfg(feature = "process")]
mod socket;
mod spelling;

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use breakbulk_link::Carrier;
#[cfg(feature = "process")]
use breakbulk_net::process;

use crate::caps;
use crate::error::EndError;
pub use error::{EndpointError, OptionError};
#[cfg(feature = "loro")]
pub(crate) use loro::{LoroAddress, LoroWay};
#[cfg(feature = "nats")]
pub(crate) use nats::{NatsAddress, NatsNames, servers as nats_servers};
#[cfg(feature = "process")]
use options::command_options;
#[cfg(any(unix, feature = "process"))]
use options::only_options;
#[cfg(feature = "nats")]
pub(crate) use options::{
    EndpointOptions, decoded as unescaped, options as query_options, unknown_option,
};
#[cfg(not(feature = "nats"))]
use options::{EndpointOptions, unknown_option};
use options::{NAMES, options};
#[cfg(feature = "nostr")]
pub(crate) use relays::{RelayAddress, RelayOptions};
#[cfg(feature = "process")]
pub(crate) use socket::SocketAddress;

/// The endpoints that have a framing.
#[cfg(feature = "process")]
const STREAMS: &str = "stdio:, exec:, tcp:// and unix:";

/// The format of the frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WireKind {
    /// One message, one frame.
    Whole,
    /// AHP's segments: between two gateways, or to an AHP program.
    Ahp,
    /// loro-extended's fragments.
    Loro,
    /// ContextVM's oversized transfers, in Nostr events.
    Cep22,
}

impl fmt::Display for WireKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Whole => "whole",
            Self::Ahp => "ahp",
            Self::Loro => "loro",
            Self::Cep22 => "cep22",
        })
    }
}

impl FromStr for WireKind {
    type Err = EndpointError;

    fn from_str(name: &str) -> Result<Self, EndpointError> {
        match name {
            "ahp" => Ok(Self::Ahp),
            "loro" => Ok(Self::Loro),
            "whole" => Ok(Self::Whole),
            "cep22" => Ok(Self::Cep22),
            _ => Err(EndpointError::wire(name, name, "")),
        }
    }
}

/// The transport, and its address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum At {
    /// This process's own standard streams.
    #[cfg(feature = "process")]
    Stdio,
    /// The standard streams of a command.
    #[cfg(feature = "process")]
    Exec(Vec<String>),
    /// A TCP or Unix socket.
    #[cfg(feature = "process")]
    Socket(SocketAddress),
    /// A WebSocket.
    Ws(WsAddress),
    /// An MCP server over HTTP.
    #[cfg(feature = "http")]
    Http(WsAddress),
    /// loro-extended over HTTP.
    #[cfg(feature = "loro")]
    Loro(LoroAddress),
    /// A tunnel over plain HTTP.
    #[cfg(feature = "http")]
    Exchange(WsAddress),
    /// A tunnel over NATS.
    #[cfg(feature = "nats")]
    Nats(NatsAddress),
    /// Nostr relays.
    #[cfg(feature = "nostr")]
    Relays(RelayAddress),
}

impl At {
    /// The address, if this is a WebSocket.
    pub(crate) fn ws(&self) -> Option<&WsAddress> {
        match self {
            Self::Ws(address) => Some(address),
            #[cfg(any(
                feature = "http",
                feature = "loro",
                feature = "nats",
                feature = "process",
                feature = "nostr"
            ))]
            _ => None,
        }
    }

    /// The address, if this is a WebSocket or HTTP.
    pub(crate) fn web(&self) -> Option<&WsAddress> {
        match self {
            Self::Ws(address) => Some(address),
            #[cfg(feature = "http")]
            Self::Http(address) | Self::Exchange(address) => Some(address),
            #[cfg(any(
                feature = "loro",
                feature = "nats",
                feature = "process",
                feature = "nostr"
            ))]
            _ => None,
        }
    }

    pub(crate) fn is_http(&self) -> bool {
        #[cfg(feature = "http")]
        return matches!(self, Self::Http(_));
        #[cfg(not(feature = "http"))]
        false
    }

    pub(crate) fn is_ws(&self) -> bool {
        self.ws().is_some()
    }

    /// How the program at this end gets its messages.
    fn carriers(&self) -> &'static [Carrier] {
        match self {
            #[cfg(feature = "process")]
            Self::Stdio | Self::Exec(_) | Self::Socket(_) => &[Carrier::Lines],
            Self::Ws(_) => &[Carrier::WebSocket],
            #[cfg(feature = "http")]
            Self::Http(_) => &[Carrier::Post, Carrier::EventStream],
            #[cfg(feature = "http")]
            Self::Exchange(_) => &[],
            #[cfg(feature = "nats")]
            Self::Nats(_) => &[],
            #[cfg(feature = "loro")]
            Self::Loro(_) => &[],
            #[cfg(feature = "nostr")]
            Self::Relays(_) => &[],
        }
    }

    /// Whether it is a TCP or Unix socket whose other end is any program.
    pub(crate) fn is_socket(&self) -> bool {
        #[cfg(feature = "process")]
        return matches!(self, Self::Socket(_));
        #[cfg(not(feature = "process"))]
        false
    }

    /// Whether its two sides know bearer tokens.
    pub(crate) fn has_token(&self) -> bool {
        match self {
            Self::Ws(_) => true,
            #[cfg(feature = "http")]
            Self::Http(_) | Self::Exchange(_) => true,
            #[cfg(feature = "loro")]
            Self::Loro(_) => true,
            #[cfg(any(feature = "nats", feature = "process", feature = "nostr"))]
            _ => false,
        }
    }

    /// Whether it is encrypted by TLS.
    fn is_secure(&self) -> bool {
        match self {
            Self::Ws(address) => address.secure,
            #[cfg(feature = "http")]
            Self::Http(address) | Self::Exchange(address) => address.secure,
            #[cfg(feature = "nats")]
            Self::Nats(address) => address.secure,
            #[cfg(feature = "loro")]
            Self::Loro(address) => address.secure,
            #[cfg(any(feature = "nats", feature = "process", feature = "nostr"))]
            _ => false,
        }
    }

    /// Whether it can be a target: a listener's address may be shorter.
    pub(crate) fn check_target(&self) -> Result<(), EndError> {
        match self {
            Self::Ws(address) => address.check_target(),
            #[cfg(feature = "http")]
            Self::Http(address) | Self::Exchange(address) => address.check_target(),
            #[cfg(feature = "process")]
            Self::Socket(address) => address.check_target(),
            #[cfg(feature = "loro")]
            Self::Loro(address) => address.check_target(),
            #[cfg(any(feature = "nats", feature = "process", feature = "nostr"))]
            _ => Ok(()),
        }
    }

    pub(crate) fn is_web(&self) -> bool {
        self.web().is_some()
    }

    pub(crate) fn is_exchange(&self) -> bool {
        #[cfg(feature = "http")]
        return matches!(self, Self::Exchange(_));
        #[cfg(not(feature = "http"))]
        false
    }

    pub(crate) fn is_nats(&self) -> bool {
        #[cfg(feature = "nats")]
        return matches!(self, Self::Nats(_));
        #[cfg(not(feature = "nats"))]
        false
    }

    /// Whether it has frames: a WebSocket, or what else carries a tunnel.
    pub(crate) fn has_frames(&self) -> bool {
        self.is_ws() || self.is_exchange() || self.is_nats()
    }

    /// Whether clients of a listener there can come back to their sessions.
    #[cfg(feature = "nats")]
    pub(crate) fn is_resumable(&self) -> bool {
        self.has_frames() || self.is_http()
    }

    pub(crate) fn is_relays(&self) -> bool {
        #[cfg(feature = "nostr")]
        return matches!(self, Self::Relays(_));
        #[cfg(not(feature = "nostr"))]
        false
    }

    #[cfg(feature = "nostr")]
    pub(crate) fn is_stdio(&self) -> bool {
        #[cfg(feature = "process")]
        return matches!(self, Self::Stdio);
        #[cfg(not(feature = "process"))]
        false
    }
}

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

/// Whether two gateways use a tunnel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum TunnelUse {
    /// If the other end offers it, or takes the offer.
    #[default]
    Auto,
    /// A connection without a tunnel is refused.
    Always,
    /// The other end is an AHP program.
    Never,
}

/// One end of a gateway, read from its text: `stdio:`, `exec:COMMAND`, `tcp://HOST:PORT`, `unix:PATH`,
/// `ws://HOST:PORT/PATH`, `wss://HOST:PORT/PATH`, `http://HOST:PORT/PATH`, `https://HOST:PORT/PATH`,
/// `ahp+http://HOST:PORT/PATH`, `ahp+https://HOST:PORT/PATH`, `nats://HOST:PORT/SUBJECT`,
/// `tls://HOST:PORT/SUBJECT`, `loro+http://HOST:PORT` or `cep22+nostr:RELAY`, with options behind a question
/// mark.
///
/// ```
/// use breakbulk_gateway::{Endpoint, EndpointError};
///
/// let _: Endpoint = "whole+ws://127.0.0.1:8080/mcp?max-message=64MiB".parse()?;
/// let error = "udp://127.0.0.1:1".parse::<Endpoint>().unwrap_err();
/// assert!(matches!(error, EndpointError::Transport { .. }));
/// # Ok::<(), EndpointError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    pub(crate) wire: WireKind,
    pub(crate) at: At,
    pub(crate) options: EndpointOptions,
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        let (scheme, rest) = text
            .split_once(':')
            .ok_or_else(|| EndpointError::no_colon(text))?;
        let (wire, transport) = match scheme.split_once('+') {
            _ if scheme == "ws+unix" => (None, scheme),
            Some((wire, transport)) => match wire.parse() {
                Ok(wire) => (Some(wire), transport),
                Err(_) => return Err(EndpointError::wire(wire, scheme, rest)),
            },
            None => (None, scheme),
        };
        let (usual, at, options) = match transport {
            #[cfg(feature = "process")]
            "stdio" => {
                let (address, query) = at_question_mark(rest);
                if !address.is_empty() {
                    return Err(EndpointError::StdioAddress(address.to_owned()));
                }
                (WireKind::Whole, At::Stdio, only_options(query, NAMES)?)
            }
            #[cfg(feature = "process")]
            "exec" => {
                let (command, options) = command_options(rest)?;
                let words = process::split(command).map_err(EndpointError::Command)?;
                (WireKind::Whole, At::Exec(words), options)
            }
            #[cfg(feature = "process")]
            "tcp" => socket::tcp(rest)?,
            #[cfg(all(unix, feature = "process"))]
            "unix" => socket::unix(rest)?,
            "ws" => web_socket(false, rest)?,
            #[cfg(unix)]
            "ws+unix" => unix_socket(rest)?,
            #[cfg(feature = "tls")]
            "wss" => web_socket(true, rest)?,
            #[cfg(feature = "http")]
            "http" | "https" if wire == Some(WireKind::Ahp) => {
                let (address, options) = web_address(
                    if transport == "https" {
                        "ahp+https"
                    } else {
                        "ahp+http"
                    },
                    rest,
                    NAMES,
                )?;
                (WireKind::Ahp, At::Exchange(address), options)
            }
            #[cfg(feature = "loro")]
            "http" | "https" if wire == Some(WireKind::Loro) => {
                loro::endpoint(transport == "https", rest)?
            }
            #[cfg(feature = "http")]
            "http" | "https" => http::endpoint(transport == "https", rest)?,
            #[cfg(feature = "nats")]
            "nats" | "tls" => {
                let (address, options) = nats::endpoint(transport == "tls", rest)?;
                (WireKind::Ahp, At::Nats(address), options)
            }
            #[cfg(feature = "nostr")]
            "nostr" => {
                let (address, options) = relays::endpoint(rest)?;
                (WireKind::Cep22, At::Relays(address), options)
            }
            _ => {
                let transport = transport.to_owned();
                let feature = match &*transport {
                    "stdio" | "exec" | "tcp" | "unix" => "process",
                    "wss" => "tls",
                    "nats" | "tls" => "nats",
                    "http" | "https" => "http",
                    "nostr" => "nostr",
                    _ => return Err(EndpointError::transport(scheme, rest)),
                };
                return Err(EndpointError::NotBuilt { transport, feature });
            }
        };
        let endpoint = Self {
            wire: wire.unwrap_or(usual),
            at,
            options,
        };
        endpoint.check()?;
        Ok(endpoint)
    }
}

impl Endpoint {
    /// Whether it is at Nostr relays, where it needs a key.
    pub fn is_relays(&self) -> bool {
        self.at.is_relays()
    }

    /// Whether it is over HTTP, where a session may have several sockets.
    pub fn is_http(&self) -> bool {
        self.at.is_http()
    }

    /// Names the file of its tokens, if it names none itself. False if it knows no tokens.
    pub fn or_token_file(&mut self, file: &Path) -> bool {
        let has_token = self.at.has_token();
        if has_token {
            let named = &mut self.options.token_file;
            named.get_or_insert_with(|| file.to_owned());
        }
        has_token
    }

    /// Names the files of its certificate and key, if it names none itself. False if it has no TLS.
    pub fn or_certificate(&mut self, cert: &Path, key: &Path) -> bool {
        let is_secure = self.at.is_secure();
        let options = &mut self.options;
        if is_secure && options.cert.is_none() && options.key.is_none() {
            options.cert = Some(cert.to_owned());
            options.key = Some(key.to_owned());
        }
        is_secure
    }

    /// Names the file of the authority that it trusts, if it names none itself. False if it has no TLS.
    pub fn or_authority(&mut self, file: &Path) -> bool {
        let is_secure = self.at.is_secure();
        if is_secure {
            let named = &mut self.options.ca;
            named.get_or_insert_with(|| file.to_owned());
        }
        is_secure
    }

    /// The files that are read once, when it is opened. A listener's tokens are read again when they
    /// change.
    pub(crate) fn files(&self, is_listener: bool) -> Vec<PathBuf> {
        let options = &self.options;
        let is_read_once = !is_listener || self.at.is_nats();
        let token = options.token_file.clone().filter(|_| is_read_once);
        let mut files: Vec<Option<PathBuf>> = vec![token];
        files.extend([&options.cert, &options.key, &options.ca].map(Clone::clone));
        #[cfg(feature = "http")]
        files.push(options.headers_file.clone());
        #[cfg(feature = "nats")]
        files.push(options.nats.creds.clone());
        files.into_iter().flatten().collect()
    }

    /// Refuses options and wires that belong to another transport.
    fn check(&self) -> Result<(), EndpointError> {
        let options = &self.options;
        let only = |given: bool, option, only| match given {
            true => Err(EndpointError::OnlyFor { option, only }),
            false => Ok(()),
        };
        match (self.at.is_relays(), self.wire) {
            // Options of other transports were refused when it was parsed.
            (true, WireKind::Cep22) => return Ok(()),
            (true, wire) => return Err(EndpointError::RelayWire(wire)),
            (false, WireKind::Cep22) => return Err(EndpointError::OnlyRelays),
            _ => {}
        }
        if let Some(client) = &options.client {
            caps::check_client(client, self.at.carriers())?;
        }
        if self.at.is_http() {
            return match self.wire {
                WireKind::Whole => self.check_secure(),
                wire => Err(EndpointError::HttpWire(wire)),
            };
        }
        if self.at.is_nats() && self.wire != WireKind::Ahp {
            return Err(EndpointError::NatsWire(self.wire));
        }
        if self.at.is_exchange() {
            for (given, name) in [
                (options.tunnel.is_some(), "tunnel"),
                (options.fragment.is_some(), "fragment"),
            ] {
                only(given, name, "ws:// and wss://")?;
            }
        }
        if self.at.has_frames() {
            #[cfg(feature = "process")]
            for (given, name) in [
                (options.framing.is_some(), "framing"),
                (options.keeps_process_id.is_some(), "process-id"),
            ] {
                only(given, name, STREAMS)?;
            }
        } else {
            if self.wire != WireKind::Whole && !self.at.has_token() {
                return Err(EndpointError::StreamWire(self.wire));
            }
            let token = options.token_file.is_some() && !self.at.has_token();
            #[cfg(feature = "process")]
            if self.at.has_token() {
                only(options.framing.is_some(), "framing", STREAMS)?;
                only(options.keeps_process_id.is_some(), "process-id", STREAMS)?;
            }
            for (given, name) in [
                (token, "token-file"),
                (options.preset.is_some(), "preset"),
                (options.tunnel.is_some(), "tunnel"),
                (options.fragment.is_some(), "fragment"),
            ] {
                only(given, name, "ws:// and wss://")?;
            }
        }
        self.check_secure()?;
        let tunnel = options.tunnel.is_some() && self.wire != WireKind::Ahp;
        only(tunnel, "tunnel", "the wire ahp")
    }

    /// Refuses certificates where there is no TLS.
    fn check_secure(&self) -> Result<(), EndpointError> {
        let options = &self.options;
        let secure = self.at.is_secure();
        let given = [
            (options.cert.is_some(), "cert"),
            (options.key.is_some(), "key"),
            (options.ca.is_some(), "ca"),
        ];
        match given.into_iter().find(|(given, _)| *given && !secure) {
            Some((_, option)) => Err(EndpointError::OnlyFor {
                option,
                only: "wss://, https:// and tls://",
            }),
            None => Ok(()),
        }
    }
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

    /// The path to it: what a URL has before its query, or the Unix socket.
    pub(crate) fn path_name(&self) -> String {
        match &self.socket {
            Some(path) => format!("ws+unix:{}", path.display()),
            None => format!("{}://{}{}", self.scheme(), self.authority, self.path),
        }
    }

    pub(crate) fn scheme(&self) -> &'static str {
        match (self.ahp, self.secure, &self.socket) {
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

fn web_socket(secure: bool, rest: &str) -> Result<(WireKind, At, EndpointOptions), EndpointError> {
    let scheme = if secure { "wss" } else { "ws" };
    let (address, options) = web_address(scheme, rest, NAMES)?;
    Ok((WireKind::Ahp, At::Ws(address), options))
}

/// What follows the scheme and its colon: host, port, path and options.
fn web_address(
    scheme: &'static str,
    rest: &str,
    names: &'static [&'static str],
) -> Result<(WsAddress, EndpointOptions), EndpointError> {
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
    let (options, unknown) = options(query, names)?;
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

/// `ws+unix:/run/breakbulk.sock`: a WebSocket over a Unix socket.
#[cfg(unix)]
fn unix_socket(rest: &str) -> Result<(WireKind, At, EndpointOptions), EndpointError> {
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

fn at_question_mark(text: &str) -> (&str, &str) {
    text.split_once('?').unwrap_or((text, ""))
}

#[cfg(all(test, feature = "process", feature = "nostr"))]
mod tests;
