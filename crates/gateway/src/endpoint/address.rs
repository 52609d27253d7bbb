//! Host and port in the address of a socket.

use crate::error::EndError;

/// Checks that an authority has a host: a port alone is a short form for listeners.
pub(super) fn check_target(
    scheme: &'static str,
    authority: &str,
    path: &str,
) -> Result<(), EndError> {
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port),
        _ => (authority, ""),
    };
    if !host.bytes().all(|byte| byte.is_ascii_digit()) {
        // Libraries that read URLs take the port of the scheme instead, where something else may listen.
        return match port.parse::<u16>() {
            Ok(1..) => Ok(()),
            _ if port.is_empty() => Ok(()),
            _ => Err(EndError::WrongPort {
                port: port.to_owned(),
            }),
        };
    }
    let port = if port.is_empty() { host } else { port };
    let meant = match port.parse::<u16>() {
        Ok(port @ 1..) if host.is_empty() || host == port.to_string() => {
            let path = if path == "/" { "" } else { path };
            Some(format!("{scheme}://127.0.0.1:{port}{path}"))
        }
        _ => None,
    };
    Err(EndError::NoHost {
        scheme,
        authority: authority.to_owned(),
        meant,
    })
}

/// The host and port to listen at; the host is 127.0.0.1 if an authority names none.
pub(super) fn listen_at(scheme: &'static str, authority: &str) -> Result<(String, u16), EndError> {
    let wrong = || EndError::ListenAddress {
        scheme,
        authority: authority.to_owned(),
    };
    let (host, port) = match authority.rsplit_once(':') {
        // An IPv6 address without a port ends in a bracket.
        Some((_, port)) if port.ends_with(']') => return Err(wrong()),
        Some((host, port)) => (host, port),
        None => ("", authority),
    };
    let port = port.parse().map_err(|_| wrong())?;
    let host = match host.trim_matches(['[', ']']) {
        "" => "127.0.0.1",
        "*" => "0.0.0.0",
        host => host,
    };
    Ok((host.to_owned(), port))
}
