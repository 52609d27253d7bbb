//! Authorization of requests. A client's peer id is only a claim until an authorizer confirms it.

use std::fmt;
use std::net::SocketAddr;

use axum::http::HeaderMap;

use super::query;

/// The kind of transport by which a client connects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Way {
    /// A WebSocket.
    WebSocket,
    /// An event stream, with POSTs the other way.
    Sse,
    /// Long polling, with POSTs the other way.
    Poll,
    /// Numbered POSTs and polls, see [`exchange`](crate::exchange).
    Exchange,
    /// A WebRTC data channel.
    DataChannel,
}

/// What a client's request claims, for the authorizer to check.
#[derive(Clone)]
pub struct Claim {
    /// The peer id that it gives.
    pub peer_id: String,
    /// The kind of transport that it asks for.
    pub way: Way,
    /// The headers of its request; in an [`Arrival`](super::Arrival) without its `Authorization`.
    pub headers: HeaderMap,
    /// The query of its request, not decoded. A browser cannot set headers on event streams and
    /// WebSockets, so the query is the only place for its token.
    pub query: Option<String>,
    /// The client's address, if the HTTP server provides it.
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

/// Omits the headers and the query, which may hold secrets.
impl fmt::Debug for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Claim")
            .field("peer_id", &self.peer_id)
            .field("way", &self.way)
            .field("remote", &self.remote)
            .finish_non_exhaustive()
    }
}

/// The authorizer's permission to connect.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grant {
    /// The authenticated user, if the authorizer knows one. All requests of one connection must have
    /// the same subject, so that no client can take over a connection by giving its peer id.
    pub subject: Option<String>,
}

/// The authorizer's refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denied {
    /// The HTTP status: 401, or 403 if another token would not help.
    pub status: u16,
    /// Why, for the member `error` of the answer.
    pub error: String,
}

/// Decides which clients may connect. Called for every request, on the async runtime: it must be quick.
pub trait Authorize: Send + Sync {
    /// Grants or denies a request.
    fn authorize(&self, claim: &Claim) -> Result<Grant, Denied>;

    /// Whether it grants requests without authenticating their sender. Then requests are refused whose `Host`
    /// is a name that a web page could have rebound to this machine (see
    /// [`ServeOptions::allowed_hosts`](super::ServeOptions::allowed_hosts)).
    fn is_open(&self) -> bool {
        false
    }
}

/// Authorizes every request and trusts its peer id.
#[derive(Clone, Copy, Debug, Default)]
pub struct AllowAll;

impl Authorize for AllowAll {
    fn authorize(&self, _claim: &Claim) -> Result<Grant, Denied> {
        Ok(Grant::default())
    }

    fn is_open(&self) -> bool {
        true
    }
}
