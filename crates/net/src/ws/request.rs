//! Decides whether the server accepts a handshake request (origin, token, path, subprotocol), and makes
//! the answer. Does no IO.

use std::net::SocketAddr;

use tokio_tungstenite::tungstenite::handshake::server::{Request, Response, create_response};
use tokio_tungstenite::tungstenite::http::header::{
    AUTHORIZATION, HeaderMap, HeaderName, HeaderValue, SEC_WEBSOCKET_PROTOCOL, UPGRADE,
};

use super::bearer::{Bearer, Tokens};
use super::pages::PageRules;
use super::server::ListenOptions;

/// The status of a refusal for want of room.
pub(crate) const BUSY: &str = "503 Service Unavailable";

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
                BUSY,
                "This server has reached its limit of connections. Try again later.\n",
            )
        }
    }

    fn unauthorized() -> Self {
        Self {
            header: "WWW-Authenticate: Bearer",
            ..Self::new(
                "401 Unauthorized",
                "Send the bearer token of this server.\n",
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

/// A handshake request that is accepted.
pub(crate) struct Admitted {
    pub(crate) response: Response,
    pub(crate) subprotocol: Option<String>,
    /// The holder of the token that it carries, if there are several tokens.
    pub(crate) holder: Option<String>,
}

/// The answer to a client that speaks plain HTTP.
pub(crate) fn only_web_sockets() -> Refusal {
    let text = "This address speaks WebSocket: connect by ws:// or wss://, not by http://.\n";
    Refusal {
        header: "Upgrade: websocket",
        ..Refusal::new("426 Upgrade Required", text)
    }
}

/// Whether clients must prove who they are.
fn has_secret(options: &ListenOptions) -> bool {
    #[cfg(feature = "tls")]
    if options.client_authority.is_some() {
        return true;
    }
    options.bearer.is_some() || options.tokens.is_some()
}

/// Accepts a handshake request with a response and a chosen subprotocol, or refuses it. `local` is the
/// address that the client connected to.
pub(crate) fn admit(
    request: &Request,
    options: &ListenOptions,
    local: Option<SocketAddr>,
) -> Result<Admitted, Refusal> {
    let headers = request.headers();
    // Checked before the token: a page must not learn whether a token is valid.
    let rules = PageRules {
        origins: options.allowed_origins.as_deref(),
        hosts: options.allowed_hosts.as_deref(),
        has_token: has_secret(options),
        local,
    };
    rules.check(headers)?;
    let holder = holder(headers, options.bearer.as_ref(), options.tokens.as_deref())?;
    if let Some(path) = &options.path
        && request.uri().path() != path
    {
        let text = format!("The WebSocket of this server is at {path}\n");
        return Err(Refusal::new("404 Not Found", text));
    }
    if !headers.contains_key(UPGRADE) {
        return Err(only_web_sockets());
    }
    let mut response = create_response(request)
        .map_err(|error| Refusal::new("400 Bad Request", format!("{error}\n")))?;
    let chosen = choose(headers, &options.subprotocols);
    if let Some(chosen) = &chosen
        && let Ok(value) = HeaderValue::from_str(chosen)
    {
        response.headers_mut().insert(SEC_WEBSOCKET_PROTOCOL, value);
    }
    Ok(Admitted {
        response,
        subprotocol: chosen,
        holder,
    })
}

/// The holder of the token that a request carries, if there are several tokens; the error refuses a request
/// without a valid token.
pub(crate) fn holder(
    headers: &HeaderMap,
    bearer: Option<&Bearer>,
    tokens: Option<&dyn Tokens>,
) -> Result<Option<String>, Refusal> {
    let given = headers.get(AUTHORIZATION).map(HeaderValue::as_bytes);
    match (bearer, tokens) {
        (Some(bearer), _) if !given.is_some_and(|given| bearer.admits(given)) => {
            Err(Refusal::unauthorized())
        }
        (None, Some(tokens)) => {
            let holder = given.and_then(|given| tokens.holder(given));
            holder.map(Some).ok_or_else(Refusal::unauthorized)
        }
        _ => Ok(None),
    }
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
