//! `[wire+]transport:address[?options]`: one end of a gateway as it stands on the command line.

mod nostr;
mod options;

use std::fmt;
use std::str::FromStr;

use breakbulk::net::process::{self, SplitError};

pub(crate) use nostr::{NostrAddress, NostrOptions};
use options::{EndpointOptions, command_options, none_unknown, options};
pub(crate) use options::{preset, unknown_option};

/// What an endpoint looks like, for those whose endpoint does not.
const FORMS: &str = "an endpoint is stdio:, exec:COMMAND, ws://HOST:PORT/PATH, wss://HOST:PORT/PATH or cep22+nostr:RELAY";

/// The format of the frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WireKind {
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

/// What moves the frames, and where to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum At {
    /// This process's own standard streams.
    Stdio,
    /// Those of a command.
    Exec(Vec<String>),
    /// A WebSocket.
    Ws(WsAddress),
    /// Nostr relays.
    Nostr(NostrAddress),
}

/// The address of a WebSocket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WsAddress {
    /// `wss`.
    pub(crate) secure: bool,
    /// Host and port, as written.
    pub(crate) authority: String,
    /// The path, at least `/`.
    pub(crate) path: String,
    /// What is left of the query once our options are out.
    pub(crate) query: Option<String>,
}

/// Whether two gateways use a tunnel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum TunnelUse {
    /// If the other end offers it, or takes the offer.
    #[default]
    Auto,
    /// Or not at all.
    Always,
    /// The other end is an AHP program.
    Never,
}

/// One end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Endpoint {
    pub(crate) wire: WireKind,
    pub(crate) at: At,
    pub(crate) options: EndpointOptions,
}

impl FromStr for Endpoint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (scheme, rest) = text.split_once(':').ok_or_else(|| match text {
            "stdio" => "write stdio: with its colon".to_owned(),
            _ => format!("there is no colon; {FORMS}"),
        })?;
        let (wire, transport) = match scheme.split_once('+') {
            Some((wire, transport)) => (Some(wire_of(wire)?), transport),
            None => (None, scheme),
        };
        let (at, options) = match transport {
            "stdio" => {
                let (address, query) = at_question_mark(rest);
                if !address.is_empty() {
                    return Err(format!(
                        "stdio: has no address, and {address:?} is one; leave it out"
                    ));
                }
                let (options, unknown) = options(query)?;
                none_unknown(&unknown)?;
                (At::Stdio, options)
            }
            "exec" => {
                let (command, options) = command_options(rest)?;
                let words = process::split(command).map_err(|error| match error {
                    SplitError::Shell { word } => format!(
                        "{word:?} means something to a shell, and exec: starts none; write exec:sh -c '…' around the whole, or quote it if it is an argument"
                    ),
                    error => format!("{error}; write exec:COMMAND ARGUMENTS"),
                })?;
                (At::Exec(words), options)
            }
            "ws" | "wss" => web_socket(transport == "wss", rest)?,
            "nostr" => nostr::endpoint(rest)?,
            _ => return Err(format!("{transport:?} is no transport; {FORMS}")),
        };
        let endpoint = Self {
            wire: wire.unwrap_or(match at {
                At::Ws(_) => WireKind::Ahp,
                At::Stdio | At::Exec(_) => WireKind::Whole,
                At::Nostr(_) => WireKind::Cep22,
            }),
            at,
            options,
        };
        endpoint.check()?;
        Ok(endpoint)
    }
}

impl Endpoint {
    pub(crate) fn is_ws(&self) -> bool {
        matches!(self.at, At::Ws(_))
    }

    /// Options and wires that belong to another transport are a mistake.
    fn check(&self) -> Result<(), String> {
        let options = &self.options;
        let only = |given: bool, name: &str, what: &str| match given {
            true => Err(format!("{name} is for {what}")),
            false => Ok(()),
        };
        match (&self.at, self.wire) {
            // It has no options of others.
            (At::Nostr(_), WireKind::Cep22) => return Ok(()),
            (At::Nostr(_), wire) => {
                return Err(format!(
                    "relays carry ContextVM's messages alone: write cep22+nostr: for {wire}+nostr:"
                ));
            }
            (_, WireKind::Cep22) => {
                return Err("cep22 is for relays; write cep22+nostr:wss://RELAY".to_owned());
            }
            _ => {}
        }
        if self.is_ws() {
            only(options.framing.is_some(), "framing", "stdio: and exec:")?;
        } else {
            if self.wire != WireKind::Whole {
                return Err(format!(
                    "streams carry whole messages: write stdio: or exec: without {}+, and put it on the ws:// end",
                    self.wire
                ));
            }
            for (given, name) in [
                (options.token_file.is_some(), "token-file"),
                (options.preset.is_some(), "preset"),
                (options.tunnel.is_some(), "tunnel"),
            ] {
                only(given, name, "ws:// and wss://")?;
            }
        }
        let secure = matches!(&self.at, At::Ws(address) if address.secure);
        for (given, name) in [
            (options.cert.is_some(), "cert"),
            (options.key.is_some(), "key"),
            (options.ca.is_some(), "ca"),
        ] {
            only(given && !secure, name, "wss://")?;
        }
        let tunnel = options.tunnel.is_some() && self.wire != WireKind::Ahp;
        only(tunnel, "tunnel", "the wire ahp")
    }
}

impl WsAddress {
    /// As a client asks for it.
    pub(crate) fn url(&self) -> String {
        let query = self.query.as_ref().map(|query| format!("?{query}"));
        format!(
            "{}://{}{}{}",
            self.scheme(),
            self.authority,
            self.path,
            query.unwrap_or_default()
        )
    }

    pub(crate) fn scheme(&self) -> &'static str {
        if self.secure { "wss" } else { "ws" }
    }

    /// Whether somebody can be there: `ws://8080` is short for a listener, and 8080 is no host.
    pub(crate) fn check_target(&self) -> Result<(), String> {
        let (host, port) = match self.authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, port),
            _ => (self.authority.as_str(), ""),
        };
        let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if !is_number(host) {
            return Ok(());
        }
        let scheme = self.scheme();
        let port = if port.is_empty() { host } else { port };
        match port.parse::<u16>() {
            Ok(port @ 1..) if host.is_empty() || host == port.to_string() => Err(format!(
                "{scheme}://{} names no host; did you mean {scheme}://127.0.0.1:{port}{}?",
                self.authority,
                if self.path == "/" { "" } else { &self.path }
            )),
            _ => Err(format!(
                "{scheme}://{} names no host; write {scheme}://HOST:PORT/PATH",
                self.authority
            )),
        }
    }

    /// Where to listen: this machine alone, unless it says otherwise.
    pub(crate) fn listen_at(&self) -> Result<(String, u16), String> {
        let wrong = || {
            format!(
                "{:?} is no address to listen at; write HOST:PORT, as in {}://127.0.0.1:8080, or the port alone",
                self.authority,
                self.scheme()
            )
        };
        let (host, port) = match self.authority.rsplit_once(':') {
            // An IPv6 address without a port ends in a bracket.
            Some((_, port)) if port.ends_with(']') => return Err(wrong()),
            Some((host, port)) => (host, port),
            None => ("", self.authority.as_str()),
        };
        let port = port.parse().map_err(|_| wrong())?;
        let host = match host.trim_matches(['[', ']']) {
            "" => "127.0.0.1",
            "*" => "0.0.0.0",
            host => host,
        };
        Ok((host.to_owned(), port))
    }
}

fn wire_of(name: &str) -> Result<WireKind, String> {
    match name {
        "ahp" => Ok(WireKind::Ahp),
        "loro" => Ok(WireKind::Loro),
        "whole" => Ok(WireKind::Whole),
        "cep22" => Ok(WireKind::Cep22),
        _ => Err(format!(
            "{name:?} is no wire; use ahp, loro, whole or cep22"
        )),
    }
}

fn web_socket(secure: bool, rest: &str) -> Result<(At, EndpointOptions), String> {
    let scheme = if secure { "wss" } else { "ws" };
    let rest = rest
        .strip_prefix("//")
        .ok_or_else(|| format!("write {scheme}:// with its slashes"))?;
    let (address, query) = at_question_mark(rest);
    let (authority, path) = match address.find('/') {
        Some(at) => address.split_at(at),
        None => (address, "/"),
    };
    if authority.is_empty() {
        return Err(format!(
            "there is no host; write {scheme}://HOST:PORT/PATH, or {scheme}://PORT to listen"
        ));
    }
    if authority.contains('@') {
        return Err(
            "no names or passwords in an address; use ?token-file=FILE or BREAKBULK_TOKEN"
                .to_owned(),
        );
    }
    if address.contains('#') {
        return Err("an address has no part after a #".to_owned());
    }
    let (options, unknown) = options(query)?;
    let address = WsAddress {
        secure,
        authority: authority.to_owned(),
        path: path.to_owned(),
        query: (!unknown.is_empty()).then(|| unknown.join("&")),
    };
    Ok((At::Ws(address), options))
}

fn at_question_mark(text: &str) -> (&str, &str) {
    text.split_once('?').unwrap_or((text, ""))
}

#[cfg(test)]
mod tests;
