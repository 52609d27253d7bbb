//! Decides whether the server accepts a handshake request (origin, token, path, subprotocol), and makes
//! the answer. Does no IO.

use std::net::IpAddr;

use tokio_tungstenite::tungstenite::handshake::server::{Request, Response, create_response};
use tokio_tungstenite::tungstenite::http::header::{
    AUTHORIZATION, HOST, HeaderMap, HeaderName, HeaderValue, ORIGIN, SEC_WEBSOCKET_PROTOCOL,
    UPGRADE,
};
use tokio_tungstenite::tungstenite::http::uri::{Authority, Uri};

use super::server::ListenOptions;

/// The answer to a handshake request that is refused.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// The status code and its text.
    pub(crate) status: &'static str,
    /// One more header line.
    pub(crate) header: &'static str,
    /// The body: what to do, for a person.
    pub(crate) text: String,
}

impl Refusal {
    pub(crate) fn new(status: &'static str, text: impl Into<String>) -> Self {
        Self {
            status,
            header: "",
            text: text.into(),
        }
    }

    pub(crate) fn busy() -> Self {
        Self {
            header: "Retry-After: 5",
            ..Self::new(
                "503 Service Unavailable",
                "This server has reached its limit of connections. Try again later.\n",
            )
        }
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let Self {
            status,
            header,
            text,
        } = self;
        let header = match *header {
            "" => String::new(),
            header => format!("{header}\r\n"),
        };
        let length = text.len();
        format!(
            "HTTP/1.1 {status}\r\nConnection: close\r\nContent-Type: text/plain; charset=utf-8\r\n\
             Content-Length: {length}\r\n{header}\r\n{text}"
        )
        .into_bytes()
    }
}

/// Accepts a handshake request with a response and a chosen subprotocol, or refuses it.
pub(crate) fn admit(
    request: &Request,
    options: &ListenOptions,
) -> Result<(Response, Option<String>), Refusal> {
    let headers = request.headers();
    // Checked before the token: a page must not learn whether a token is valid.
    if let Some(origin) = headers.get(ORIGIN)
        && !origin_allowed(origin, headers, options.allowed_origins.as_deref())
    {
        return Err(Refusal::new(
            "403 Forbidden",
            "This server takes no WebSockets from this web page's origin. If it should, add the \
             origin to its allowed origins.\n",
        ));
    }
    if let Some(bearer) = &options.bearer {
        let given = headers.get(AUTHORIZATION).map(HeaderValue::as_bytes);
        if !given.is_some_and(|given| bearer.admits(given)) {
            return Err(Refusal {
                header: "WWW-Authenticate: Bearer",
                ..Refusal::new(
                    "401 Unauthorized",
                    "Send the bearer token of this server.\n",
                )
            });
        }
    }
    if let Some(path) = &options.path
        && request.uri().path() != path
    {
        let text = format!("The WebSocket of this server is at {path}\n");
        return Err(Refusal::new("404 Not Found", text));
    }
    if !headers.contains_key(UPGRADE) {
        return Err(Refusal {
            header: "Upgrade: websocket",
            ..Refusal::new("426 Upgrade Required", "This address speaks WebSocket.\n")
        });
    }
    let mut response = create_response(request)
        .map_err(|error| Refusal::new("400 Bad Request", format!("{error}\n")))?;
    let chosen = choose(headers, &options.subprotocols);
    if let Some(chosen) = &chosen
        && let Ok(value) = HeaderValue::from_str(chosen)
    {
        response.headers_mut().insert(SEC_WEBSOCKET_PROTOCOL, value);
    }
    Ok((response, chosen))
}

/// The first of our subprotocols that the client offers.
fn choose(headers: &HeaderMap, ours: &[String]) -> Option<String> {
    let offered: Vec<_> = headers
        .get_all(SEC_WEBSOCKET_PROTOCOL)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(',').map(str::trim))
        .collect();
    ours.iter()
        .find(|ours| offered.contains(&ours.as_str()))
        .cloned()
}

/// Whether a page of this origin may connect. Browsers let any page open a WebSocket to any
/// address, this machine's included, and only the `Origin` header tells whose page it is. Other
/// programs send none.
pub(crate) fn origin_allowed(
    origin: &HeaderValue,
    headers: &HeaderMap,
    allowed: Option<&[String]>,
) -> bool {
    let Ok(origin) = origin.to_str() else {
        return false;
    };
    if let Some(allowed) = allowed {
        return allowed
            .iter()
            .any(|it| it == "*" || it.eq_ignore_ascii_case(origin));
    }
    let Some(host) = origin
        .parse::<Uri>()
        .ok()
        .and_then(|it| host(it.authority()))
    else {
        return false;
    };
    if host == Host::Loopback {
        return true;
    }
    // A host name proves nothing: an attacker's name can be made to resolve to our address (DNS
    // rebinding). An IP address that equals the one in `Host` does.
    let asked = headers
        .get(HOST)
        .and_then(|value| value.to_str().ok()?.parse::<Authority>().ok())
        .and_then(|authority| self::host(Some(&authority)));
    matches!(host, Host::Address(_)) && asked == Some(host)
}

#[derive(PartialEq, Eq)]
enum Host {
    Loopback,
    Address(IpAddr),
    Name,
}

fn host(authority: Option<&Authority>) -> Option<Host> {
    let host = authority?.host().trim_matches(['[', ']']);
    Some(match host.parse::<IpAddr>() {
        Ok(address) if address.is_loopback() => Host::Loopback,
        Ok(address) => Host::Address(address),
        Err(_) if host.eq_ignore_ascii_case("localhost") => Host::Loopback,
        Err(_) => Host::Name,
    })
}

/// The request's headers for the application, without the token.
pub(crate) fn public_headers(request: &Request) -> HeaderMap {
    let mut headers = request.headers().clone();
    headers.remove(AUTHORIZATION);
    headers
}

/// The value of a header, if it is text.
pub(crate) fn text<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers.get(HeaderName::try_from(name).ok()?)?.to_str().ok()
}
