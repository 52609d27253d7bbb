//! Decides which web pages may use a listener, by the headers that their browser sends. Does no IO.
//!
//! Browsers let any page send requests to any address, this machine's included. `Origin` and
//! `Sec-Fetch-Site` tell whose page it is, and a page cannot forge them; `Host` tells by which name the
//! browser found this server. Other programs than browsers send only `Host`.

use std::net::{IpAddr, SocketAddr};

use tokio_tungstenite::tungstenite::http::header::{HOST, HeaderMap, HeaderValue, ORIGIN};
use tokio_tungstenite::tungstenite::http::uri::{Authority, Uri};

use super::request::Refusal;

/// The rules of one listener for one request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PageRules<'r> {
    pub(crate) origins: Option<&'r [String]>,
    pub(crate) hosts: Option<&'r [String]>,
    /// Whether clients must prove who they are.
    pub(crate) has_token: bool,
    /// The address that the client connected to, if it is known.
    pub(crate) local: Option<SocketAddr>,
}

impl PageRules<'_> {
    /// Refuses what comes from a page that may not use this listener.
    pub(crate) fn check(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let host = single_host(headers)?;
        if !self.host_allowed(&host) {
            return Err(Refusal::new(
                "403 Forbidden",
                "This server is not known by this name. If it should be, add the name to its allowed \
                 hosts (allow-host).\n",
            ));
        }
        let page_allowed = match headers.get(ORIGIN) {
            Some(origin) => origin_allowed(origin, &host, self.origins),
            // Images, links and the like of other pages send no origin.
            None => self.lists_all_origins() || !is_cross_site(headers),
        };
        if !page_allowed {
            return Err(Refusal::new(
                "403 Forbidden",
                "This server takes no requests from this web page's origin. If it should, add the \
                 origin to its allowed origins.\n",
            ));
        }
        Ok(())
    }

    fn host_allowed(&self, host: &Host) -> bool {
        if *host == Host::Loopback {
            return true;
        }
        match self.hosts {
            Some(allowed) => allowed.iter().any(|it| Host::of(it) == *host),
            // A web page may have rebound its own name to our address (DNS rebinding), and then passes for a
            // page of ours. At a dual-stack socket the loopback address is `::ffff:127.0.0.1`.
            None => {
                let is_loopback = |at: SocketAddr| at.ip().to_canonical().is_loopback();
                self.has_token || !self.local.is_some_and(is_loopback)
            }
        }
    }

    fn lists_all_origins(&self) -> bool {
        self.origins
            .is_some_and(|origins| origins.iter().any(|it| it == "*"))
    }
}

/// The one `Host` of a request. If there were two, a proxy and this server might each use another one.
fn single_host(headers: &HeaderMap) -> Result<Host, Refusal> {
    let mut all = headers.get_all(HOST).iter();
    let (Some(value), None) = (all.next(), all.next()) else {
        return Err(Refusal::new(
            "400 Bad Request",
            "A request must have one Host header.\n",
        ));
    };
    let bad = || Refusal::new("400 Bad Request", "The Host header is no host name.\n");
    let value = value.to_str().map_err(|_| bad())?;
    if value.is_empty() {
        return Ok(Host::Name(String::new()));
    }
    let authority: Authority = value.parse().map_err(|_| bad())?;
    Ok(Host::of(authority.host()))
}

/// Whether a browser says that the request comes from a page of another site or host.
fn is_cross_site(headers: &HeaderMap) -> bool {
    let mut said = headers.get_all("sec-fetch-site").iter();
    said.any(|value| !matches!(value.as_bytes(), b"same-origin" | b"none"))
}

/// Whether a page of this origin may connect.
fn origin_allowed(origin: &HeaderValue, asked: &Host, allowed: Option<&[String]>) -> bool {
    let Ok(origin) = origin.to_str() else {
        return false;
    };
    if let Some(allowed) = allowed {
        return allowed
            .iter()
            .any(|it| it == "*" || it.eq_ignore_ascii_case(origin));
    }
    let Ok(uri) = origin.parse::<Uri>() else {
        return false;
    };
    match uri.host().map(Host::of) {
        Some(Host::Loopback) => true,
        // A host name proves nothing: an attacker's name can be made to resolve to our address (DNS
        // rebinding). An IP address that equals the one in `Host` does.
        Some(host @ Host::Address(_)) => host == *asked,
        _ => false,
    }
}

/// What a host name stands for.
#[derive(Debug, PartialEq, Eq)]
enum Host {
    Loopback,
    Address(IpAddr),
    Name(String),
}

impl Host {
    fn of(name: &str) -> Self {
        let name = name.trim_matches(['[', ']']).trim_end_matches('.');
        match name.parse::<IpAddr>() {
            Ok(address) if address.to_canonical().is_loopback() => Self::Loopback,
            Ok(address) => Self::Address(address.to_canonical()),
            Err(_) if name.eq_ignore_ascii_case("localhost") => Self::Loopback,
            Err(_) => Self::Name(name.to_ascii_lowercase()),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may")]
mod tests {
    use super::*;

    // PROG-14
    #[test]
    fn a_rebound_name_is_refused_at_each_form_of_this_machine() {
        let mut headers = HeaderMap::new();
        headers.insert(HOST, HeaderValue::from_static("rebound.example"));
        for (local, is_refused) in [
            ("127.0.0.1:80", true),
            ("[::1]:80", true),
            ("[::ffff:127.0.0.1]:80", true),
            ("[::ffff:192.0.2.1]:80", false),
            ("192.0.2.1:80", false),
        ] {
            let rules = PageRules {
                origins: None,
                hosts: None,
                has_token: false,
                local: Some(local.parse().unwrap()),
            };
            assert_eq!(rules.check(&headers).is_err(), is_refused, "{local}");
        }
        for (host, expected) in [
            ("[::ffff:127.0.0.1]", Host::Loopback),
            ("127.0.0.2", Host::Loopback),
            ("[::ffff:192.0.2.1]", Host::Address([192, 0, 2, 1].into())),
            ("rebound.example.", Host::Name("rebound.example".to_owned())),
        ] {
            assert_eq!(Host::of(host), expected);
        }
    }
}
