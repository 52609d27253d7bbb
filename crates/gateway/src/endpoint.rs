//! `[wire+]transport:address[?options]`: one end of a gateway as text.

mod address;
mod at;
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
mod web;

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

#[cfg(feature = "process")]
use breakbulk_net::process;

use crate::caps;
pub(crate) use at::At;
pub use error::{EndpointError, OptionError};
#[cfg(feature = "loro")]
pub(crate) use loro::{LoroAddress, LoroWay};
#[cfg(feature = "nats")]
pub(crate) use nats::{NatsAddress, NatsNames, servers as nats_servers};
#[cfg(not(feature = "nats"))]
use options::EndpointOptions;
pub use options::Misspelt;
#[cfg(any(feature = "http", feature = "process"))]
use options::NAMES;
#[cfg(feature = "process")]
use options::command_options;
#[cfg(feature = "process")]
use options::only_options;
#[cfg(feature = "nats")]
pub(crate) use options::{
    EndpointOptions, decoded as unescaped, options as query_options, unknown_option,
};
#[cfg(feature = "nostr")]
pub(crate) use relays::{RelayAddress, RelayOptions};
#[cfg(feature = "process")]
pub(crate) use socket::{SocketAddress, listen_at};
pub(crate) use web::WsAddress;

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

/// How frames come down in a tunnel over plain HTTP.
#[cfg(feature = "http")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Down {
    /// By an event stream where one passes, else by polls.
    #[default]
    EventStream,
    /// By polls alone.
    Poll,
}

/// One end of a gateway, read from its text: `stdio:`, `exec:COMMAND`, `tcp://HOST:PORT`, `unix:PATH`,
/// `ws://HOST:PORT/PATH`, `wss://HOST:PORT/PATH`, `http://HOST:PORT/PATH`, `https://HOST:PORT/PATH`,
/// `http+unix:PATH`, `ahp+http://HOST:PORT/PATH`, `ahp+https://HOST:PORT/PATH`, `nats://HOST:PORT/SUBJECT`,
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
            _ if matches!(scheme, "ws+unix" | "http+unix") => (None, scheme),
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
            "ws" => web::web_socket(false, rest)?,
            #[cfg(unix)]
            "ws+unix" => web::unix_socket(rest)?,
            #[cfg(all(unix, feature = "http"))]
            "http+unix" => http::unix_socket(rest)?,
            #[cfg(feature = "tls")]
            "wss" => web::web_socket(true, rest)?,
            #[cfg(feature = "http")]
            "http" | "https" if wire == Some(WireKind::Ahp) => {
                let scheme = match transport {
                    "https" => "ahp+https",
                    _ => "ahp+http",
                };
                let (address, options) = web::web_address(scheme, rest, NAMES)?;
                (WireKind::Ahp, At::Exchange(address), options)
            }
            #[cfg(feature = "loro")]
            "http" | "https" if wire == Some(WireKind::Loro) => {
                loro::endpoint(transport == "https", rest)?
            }
            #[cfg(not(feature = "loro"))]
            "http" | "https" if wire == Some(WireKind::Loro) => {
                let (transport, feature) = (format!("loro+{transport}"), "loro");
                return Err(EndpointError::NotBuilt { transport, feature });
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
                    "http" | "https" | "http+unix" => "http",
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

    /// Sets the file with tokens if the endpoint names none. False if its transport has no tokens.
    pub fn or_token_file(&mut self, file: &Path) -> bool {
        let has_token = self.at.has_token();
        if has_token {
            let named = &mut self.options.token_file;
            named.get_or_insert_with(|| file.to_owned());
        }
        has_token
    }

    /// Sets the files with certificate and key if the endpoint names none. False if it has no TLS.
    pub fn or_certificate(&mut self, cert: &Path, key: &Path) -> bool {
        let is_secure = self.at.is_secure();
        let options = &mut self.options;
        if is_secure && options.cert.is_none() && options.key.is_none() {
            options.cert = Some(cert.to_owned());
            options.key = Some(key.to_owned());
        }
        is_secure
    }

    /// Sets the file with the trusted authority if the endpoint names none. False if it has no TLS.
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
        #[cfg(feature = "http")]
        only(
            options.down.is_some() && !self.at.is_exchange(),
            "down",
            "ahp+http:// and ahp+https://",
        )?;
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

fn at_question_mark(text: &str) -> (&str, &str) {
    text.split_once('?').unwrap_or((text, ""))
}

#[cfg(all(test, feature = "process", feature = "nostr"))]
mod tests;
