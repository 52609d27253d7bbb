//! Who can reach a listener, and what travels in clear text.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};

use super::{Config, End};
use crate::endpoint::At;
use crate::error::EndError;

/// Whether a host, with or without a port, is a name or an address of this machine.
fn is_local(host: &str) -> bool {
    let without_port = match host.rsplit_once(':') {
        Some((name, port)) if port.parse::<u16>().is_ok() && !name.contains(':') => name,
        _ => host,
    };
    let name = without_port.trim_matches(['[', ']']);
    match name.parse::<IpAddr>() {
        Ok(address) => address.is_loopback(),
        Err(_) => name.eq_ignore_ascii_case("localhost"),
    }
}

/// An address of a host that other machines can reach.
fn open_to_others(host: String, port: u16) -> Result<Option<IpAddr>, EndError> {
    let found: Vec<SocketAddr> = match (host.as_str(), port).to_socket_addrs() {
        Ok(found) => found.collect(),
        Err(error) => return Err(EndError::NoAddress { host, error }),
    };
    let open = found.iter().find(|address| !address.ip().is_loopback());
    Ok(open.map(SocketAddr::ip))
}

impl End {
    /// Checks that the end may listen: where other machines can reach it, it needs a token.
    pub(crate) fn may_listen(&self, config: &Config) -> Result<(), EndError> {
        match &self.at {
            At::Ws(address) if address.socket.is_some() => Ok(()),
            At::Ws(address) => {
                let at = address.listen_at()?;
                self.may_listen_with_token(address.secure, at, config.allow_remote)
            }
            #[cfg(feature = "http")]
            At::Http(address) if address.socket.is_some() => Ok(()),
            #[cfg(feature = "http")]
            At::Http(address) | At::Exchange(address) => {
                let at = address.listen_at()?;
                self.may_listen_with_token(address.secure, at, config.allow_remote)
            }
            #[cfg(feature = "loro")]
            At::Loro(address) => {
                let at = address.listen_at()?;
                self.may_listen_with_token(address.secure, at, config.allow_remote)
            }
            #[cfg(feature = "process")]
            At::Socket(_) if config.per_address.proxy.is_some() => Err(EndError::NoProxyHeader),
            #[cfg(feature = "process")]
            At::Socket(address) => match address.listen_at()? {
                Some((host, port)) if !config.allow_remote => match open_to_others(host, port)? {
                    None => Ok(()),
                    Some(address) => Err(EndError::StreamOpenToOthers { address }),
                },
                _ => Ok(()),
            },
            // No arm for all others: a new transport that listens must be decided here.
            #[cfg(feature = "process")]
            At::Stdio | At::Exec(_) => Ok(()),
            #[cfg(feature = "nats")]
            At::Nats(_) => Ok(()),
            #[cfg(feature = "nostr")]
            At::Relays(_) => Ok(()),
        }
    }

    /// [`may_listen`](Self::may_listen) for a listener whose clients can send tokens, at this host and port.
    fn may_listen_with_token(
        &self,
        is_secure: bool,
        (host, port): (String, u16),
        allow_remote: bool,
    ) -> Result<(), EndError> {
        #[cfg(not(feature = "tls"))]
        let _ = is_secure;
        #[cfg(feature = "tls")]
        if is_secure && self.identity.is_none() {
            return Err(EndError::NoCertificate);
        }
        #[cfg(feature = "tls")]
        if self.client_authority.is_some() {
            return Ok(());
        }
        if self.token.is_some() || self.tokens.is_some() || allow_remote {
            return Ok(());
        }
        match open_to_others(host, port)? {
            None => Ok(()),
            Some(address) => Err(EndError::OpenToOthers { address }),
        }
    }

    /// Whether its token travels in clear text beyond this machine.
    pub(crate) fn shows_token(&self) -> bool {
        #[cfg(feature = "nats")]
        if let At::Nats(address) = &self.at {
            let has_secret = self.nats_secret.is_some() || address.credentials.is_some();
            return has_secret && !address.secure && !is_local(&address.server);
        }
        let (secure, authority) = match &self.at {
            At::Ws(address) if address.socket.is_some() => return false,
            At::Ws(address) => (address.secure, &address.authority),
            #[cfg(feature = "http")]
            At::Http(address) if address.socket.is_some() => return false,
            #[cfg(feature = "http")]
            At::Http(address) | At::Exchange(address) => (address.secure, &address.authority),
            #[cfg(feature = "loro")]
            At::Loro(address) => (address.secure, &address.authority),
            #[cfg(any(feature = "nats", feature = "process", feature = "nostr"))]
            _ => return false,
        };
        let has_token = self.token.is_some() || self.tokens.is_some();
        // A port alone stands for 127.0.0.1 and that port.
        let is_port = authority.trim_start_matches(':').parse::<u16>().is_ok();
        has_token && !secure && !is_port && !is_local(authority)
    }
}
