//! The token in the environment: never on the command line, which others can see.

use std::net::IpAddr;

use breakbulk::gateway::token;
use breakbulk::net::ws::Bearer;

use crate::failure::Failure;

/// The token in the environment, if there is one.
pub(crate) fn from_environment() -> Result<Option<Bearer>, Failure> {
    match std::env::var("BREAKBULK_TOKEN") {
        Ok(text) => token(&text)
            .map(Some)
            .map_err(|error| Failure::Usage(format!("BREAKBULK_TOKEN: {error}"))),
        Err(std::env::VarError::NotPresent) => Ok(None),
        // The token itself is not repeated.
        Err(std::env::VarError::NotUnicode(_)) => {
            Err(Failure::Usage("BREAKBULK_TOKEN is not UTF-8".to_owned()))
        }
    }
}

/// Whether a token that is sent to this address can be seen on the way.
pub(crate) fn travels_in_clear(url: &str) -> bool {
    let Some((scheme, rest)) = url.split_once("://") else {
        return false;
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => authority,
    };
    let host = host.trim_matches(['[', ']']);
    let is_local = match host.parse::<IpAddr>() {
        Ok(address) => address.is_loopback(),
        Err(_) => host.eq_ignore_ascii_case("localhost"),
    };
    ["http", "ws"].contains(&scheme) && !is_local
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_seen_where_nothing_is_sealed_and_another_machine_is_asked() {
        for (url, seen) in [
            ("http://example.org", true),
            ("ws://192.0.2.1:80/ws", true),
            ("ws://[2001:db8::1]:80/ws", true),
            ("https://example.org", false),
            ("wss://example.org/ws", false),
            ("http://127.0.0.1:7402?transport=sse", false),
            ("ws://localhost/ws", false),
            ("ws://[::1]:1/ws", false),
        ] {
            assert_eq!(travels_in_clear(url), seen, "{url}");
        }
    }
}
