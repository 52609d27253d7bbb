//! How the address of the admin port is written.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use tokio::net::lookup_host;

use super::AdminError;

/// A host and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminAddress {
    host: String,
    port: u16,
}

/// A text is no address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this is no address; write PORT for 127.0.0.1:PORT, or HOST:PORT; port 0 is any free one")]
pub struct AddressError;

impl FromStr for AdminAddress {
    type Err = AddressError;

    /// A port alone stands for 127.0.0.1 and that port.
    fn from_str(text: &str) -> Result<Self, AddressError> {
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) => (host, port),
            None => ("127.0.0.1", text),
        };
        let host = match host.strip_prefix('[').and_then(|it| it.strip_suffix(']')) {
            Some(host) => host,
            // Which colon begins the port of an IPv6 address is not known without brackets.
            None if host.contains(':') => return Err(AddressError),
            None => host,
        };
        let is_host = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:%".contains(&byte);
        if host.is_empty() || !host.bytes().all(is_host) {
            return Err(AddressError);
        }
        Ok(Self {
            host: host.to_owned(),
            port: port.parse().map_err(|_| AddressError)?,
        })
    }
}

impl AdminAddress {
    /// All socket addresses that the host resolves to.
    pub(super) async fn resolve(&self) -> Result<Vec<SocketAddr>, AdminError> {
        let failed = |error| AdminError::NoAddress {
            host: self.host.clone(),
            error,
        };
        let found = lookup_host((&*self.host, self.port)).await;
        Ok(found.map_err(failed)?.collect())
    }
}

impl fmt::Display for AdminAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_alone_is_one_of_this_machine() {
        for (text, expected) in [
            ("9100", Ok("127.0.0.1:9100")),
            ("0", Ok("127.0.0.1:0")),
            ("localhost:1", Ok("localhost:1")),
            ("0.0.0.0:9100", Ok("0.0.0.0:9100")),
            ("[::1]:9100", Ok("[::1]:9100")),
            ("::1:9100", Err(AddressError)),
            ("http://localhost:1", Err(AddressError)),
            (":9100", Err(AddressError)),
            ("host:", Err(AddressError)),
            ("host:70000", Err(AddressError)),
            ("", Err(AddressError)),
        ] {
            let found = text.parse::<AdminAddress>().map(|it| it.to_string());
            assert_eq!(found, expected.map(str::to_owned), "{text:?}");
        }
    }
}
