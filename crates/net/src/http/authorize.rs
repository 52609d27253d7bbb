//! Who may come in. A peer's id is only a claim until somebody vouches for it.

use std::fmt;
use std::net::SocketAddr;

use axum::http::HeaderMap;

use super::query;

/// By which way a client comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Way {
    /// A WebSocket.
    WebSocket,
    /// An event stream, with POSTs the other way.
    Sse,
    /// Long polling, with POSTs the other way.
    Poll,
    /// A WebRTC data channel.
    DataChannel,
}

/// What a client says of itself.
#[derive(Clone)]
pub struct Claim {
    /// The id that it goes by.
    pub peer_id: String,
    /// The way it comes.
    pub way: Way,
    /// The headers of its request; in an [`Arrival`](super::Arrival) without its `Authorization`.
    pub headers: HeaderMap,
    /// The query of its request, as it came: a browser's event streams and WebSockets carry a token
    /// nowhere else.
    pub query: Option<String>,
    /// The other end of its socket, where the server tells.
    pub remote: Option<SocketAddr>,
}

impl Claim {
    /// A parameter of the query, decoded.
    pub fn parameter(&self, name: &str) -> Option<String> {
        query::parameter(self.query.as_deref(), name)
    }

    /// The token of an `Authorization: Bearer` header.
    pub fn bearer(&self) -> Option<&str> {
        let value = self.headers.get("authorization")?.to_str().ok()?;
        let (scheme, token) = value.split_at_checked(7)?;
        scheme.eq_ignore_ascii_case("Bearer ").then(|| token.trim())
    }
}

/// Headers and the query may hold secrets.
impl fmt::Debug for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Claim")
            .field("peer_id", &self.peer_id)
            .field("way", &self.way)
            .field("remote", &self.remote)
            .finish_non_exhaustive()
    }
}

/// Leave to come in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grant {
    /// Who it is, as far as the authorizer knows. Requests of one connection must all have the same,
    /// so that nobody speaks for another by giving its peer id.
    pub subject: Option<String>,
}

/// No leave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denied {
    /// 401, or 403 where another token would not help.
    pub status: u16,
    /// Why, for the answer's `error`.
    pub error: String,
}

/// Decides who may come in. Asked for every request, so that it must be quick.
pub trait Authorize: Send + Sync {
    /// Whether this claim is believed.
    fn authorize(&self, claim: &Claim) -> Result<Grant, Denied>;
}

/// Lets everybody in, as the one it says it is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Anybody;

impl Authorize for Anybody {
    fn authorize(&self, _claim: &Claim) -> Result<Grant, Denied> {
        Ok(Grant::default())
    }
}
