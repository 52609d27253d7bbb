//! `http://HOST:PORT/PATH[?options]` and `https://…`: MCP over HTTP.

use super::options::EndpointOptions;
use super::web::web_address;
use super::{At, EndpointError, WireKind, options};

/// The options of an end over HTTP.
pub(super) const NAMES: &[&str] = &[
    "token-file",
    "headers-file",
    "cert",
    "key",
    "ca",
    "idle",
    "max-frame",
    "max-message",
];

/// What follows `http:` or `https:`.
pub(super) fn endpoint(
    secure: bool,
    rest: &str,
) -> Result<(WireKind, At, EndpointOptions), EndpointError> {
    let scheme = if secure { "https" } else { "http" };
    let (address, options) = web_address(scheme, rest, NAMES)?;
    // What the gateway knows of other endpoints is not for the server.
    let query = address.query.iter().flat_map(|query| query.split('&'));
    let mut names = query.map(|pair| pair.split('=').next().unwrap_or_default());
    if let Some(option) = names.find_map(options::of_others) {
        let only = "other endpoints than http:// and https://";
        return Err(EndpointError::OnlyFor { option, only });
    }
    Ok((WireKind::Whole, At::Http(address), options))
}
