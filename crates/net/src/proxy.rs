//! The client's address as reported by a proxy in front of the listener.

use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use tokio_tungstenite::tungstenite::http::HeaderMap;

/// The header in which a proxy names its client. Only the last entry is believed, which the proxy itself
/// wrote; whatever stands before it came from the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyHeader {
    /// `X-Forwarded-For`.
    XForwardedFor,
    /// `Forwarded` (RFC 7239).
    Forwarded,
}

impl FromStr for ProxyHeader {
    type Err = UnknownProxyHeader;

    fn from_str(name: &str) -> Result<Self, UnknownProxyHeader> {
        [Self::XForwardedFor, Self::Forwarded]
            .into_iter()
            .find(|header| header.name().eq_ignore_ascii_case(name))
            .ok_or(UnknownProxyHeader)
    }
}

/// The text does not name a header in which proxies name their clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("name the header that the proxy sets: x-forwarded-for or forwarded")]
pub struct UnknownProxyHeader;

impl ProxyHeader {
    fn name(self) -> &'static str {
        match self {
            Self::XForwardedFor => "x-forwarded-for",
            Self::Forwarded => "forwarded",
        }
    }

    /// The address in the last entry, if it names one.
    pub(crate) fn client(self, headers: &HeaderMap) -> Option<IpAddr> {
        let last = headers.get_all(self.name()).iter().next_back()?;
        let entry = last.to_str().ok()?.rsplit(',').next()?.trim();
        match self {
            Self::XForwardedFor => address(entry),
            Self::Forwarded => entry.split(';').find_map(|pair| {
                let (name, value) = pair.split_once('=')?;
                let is_client = name.trim().eq_ignore_ascii_case("for");
                is_client.then(|| address(value.trim().trim_matches('"')))?
            }),
        }
    }
}

/// An address, with or without a port and brackets.
fn address(text: &str) -> Option<IpAddr> {
    let bare = || text.trim_matches(['[', ']']).parse::<IpAddr>().ok();
    bare().or_else(|| text.parse::<SocketAddr>().ok().map(|address| address.ip()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ProxyHeader::{Forwarded, XForwardedFor};

    // WS-2
    #[test]
    fn only_the_last_entry_of_the_proxy_names_the_client() {
        for (header, values, expected) in [
            (XForwardedFor, &["192.0.2.1"][..], Some("192.0.2.1")),
            (XForwardedFor, &["1.1.1.1, 192.0.2.1"], Some("192.0.2.1")),
            (XForwardedFor, &["1.1.1.1", "192.0.2.1"], Some("192.0.2.1")),
            (XForwardedFor, &["192.0.2.1:80"], Some("192.0.2.1")),
            (XForwardedFor, &["2001:db8::1"], Some("2001:db8::1")),
            (XForwardedFor, &["[2001:db8::1]"], Some("2001:db8::1")),
            (XForwardedFor, &["[2001:db8::1]:80"], Some("2001:db8::1")),
            (XForwardedFor, &["192.0.2.1, unknown"], None),
            (XForwardedFor, &[""], None),
            (XForwardedFor, &[], None),
            (Forwarded, &["for=192.0.2.1;proto=http"], Some("192.0.2.1")),
            (
                Forwarded,
                &["for=1.1.1.1, proto=http; For=\"[2001:db8::1]:4711\""],
                Some("2001:db8::1"),
            ),
            (Forwarded, &["for=_hidden"], None),
            (Forwarded, &["by=192.0.2.1"], None),
        ] {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(header.name(), value.parse().unwrap());
            }
            let expected = expected.map(|address| address.parse().unwrap());
            assert_eq!(header.client(&headers), expected, "{header:?} {values:?}");
        }
        assert_eq!("X-Forwarded-For".parse(), Ok(XForwardedFor));
        assert_eq!("via".parse::<ProxyHeader>(), Err(UnknownProxyHeader));
    }
}
