//! `http://HOST:PORT/PATH[?options]` and `https://…`: MCP over HTTP.

use super::options::EndpointOptions;
use super::web::web_address;
use super::{At, EndpointError, WireKind, options};
#[cfg(unix)]
use super::{OptionError, WsAddress, at_question_mark};

/// The options of an end over HTTP.
pub(super) const NAMES: &[&str] = &[
    "token-file",
    "headers-file",
    "cert",
    "key",
    "ca",
    "idle",
    "client",
    "max-frame",
    "max-message",
];

/// The path of the URL, where the address is a socket.
#[cfg(unix)]
const PATH: &str = "path";

/// `http+unix:/run/mcp.sock[?path=/mcp]`: MCP over HTTP over a Unix socket.
#[cfg(unix)]
pub(super) fn unix_socket(rest: &str) -> Result<(WireKind, At, EndpointOptions), EndpointError> {
    let (socket, query) = at_question_mark(rest);
    if socket.is_empty() {
        return Err(EndpointError::NoSocket("http+unix:"));
    }
    let (options, unknown) = options::options(query, NAMES)?;
    let mut path = None;
    for pair in unknown {
        let wrong = |error| EndpointError::Option {
            name: PATH.to_owned(),
            error,
        };
        match pair.split_once('=') {
            Some((PATH, _)) if path.is_some() => return Err(wrong(OptionError::Twice)),
            Some((PATH, value)) if value.starts_with('/') => path = Some(value.to_owned()),
            Some((PATH, value)) => return Err(wrong(options::none_of(value, "/PATH"))),
            _ => return Err(options::unknown_option(pair, NAMES)),
        }
    }
    let address = WsAddress {
        http: true,
        ahp: false,
        secure: false,
        authority: "localhost".to_owned(),
        path: path.unwrap_or_else(|| "/".to_owned()),
        query: None,
        socket: Some(socket.into()),
    };
    Ok((WireKind::Whole, At::Http(address), options))
}

/// What follows `http:` or `https:`.
pub(super) fn endpoint(
    secure: bool,
    rest: &str,
) -> Result<(WireKind, At, EndpointOptions), EndpointError> {
    let scheme = if secure { "https" } else { "http" };
    let (address, options) = web_address(scheme, rest, NAMES)?;
    // An option of another endpoint is an error here, instead of a parameter that the server gets.
    let query = address.query.iter().flat_map(|query| query.split('&'));
    let mut names = query.map(|pair| pair.split('=').next().unwrap_or_default());
    if let Some(option) = names.find_map(options::of_others) {
        let only = "other endpoints than http:// and https://";
        return Err(EndpointError::OnlyFor { option, only });
    }
    Ok((WireKind::Whole, At::Http(address), options))
}
