//! The admin port: what a gateway tells about itself, over HTTP, for operators and their tools.
//!
//! The admin port is not a listener for sessions: it has a token and limits of its own, and without a token
//! it listens on loopback addresses alone. `/healthz`, `/readyz` and the files of the page show nothing but a
//! state, so they never need the token; everything else needs it, if there is one. A client that reads slowly
//! is cut off and delays nobody: each answer is made at once and whole, and the number of open event streams
//! is limited.
//!
//! | path | answer |
//! |---|---|
//! | `GET /healthz` | 200 while the process runs |
//! | `GET /readyz` | 200 while all routes take clients, else 503 and the name of one that does not |
//! | `GET /metrics` | counters, gauges and histograms in Prometheus' text format |
//! | `GET /api/state` | [`StateView`](crate::watch::StateView) as JSON |
//! | `GET /api/sessions/ID` | [`SessionDetail`](crate::watch::SessionDetail) as JSON |
//! | `POST /api/sessions/ID/close` | 202: the session ends as if the gateway stopped |
//! | `GET /` | the live page; its files are below `/page/` |
//! | `GET /api/events` | `state` about once a second, as server-sent events |
//! | `GET /api/tap` | each record as it is made, [`Live`](crate::record::Live) as a line of JSON |

mod address;
mod answers;
mod events;
mod follow;
mod metrics;
mod page;
mod rate;
mod tap;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use breakbulk_net::http::{Guard, GuardOptions, Limits, PageHeaders, serve_until};
use breakbulk_net::ws::{Bearer, ListenError};
use breakbulk_net::{AddressLimits, Refusals};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};

pub use address::{AddressError, AdminAddress};
pub use follow::{FollowError, Followed, Following, follow};
pub use metrics::render as render_metrics;

use crate::stop::Stop;
use crate::watch::Watch;
use answers::answer;
use rate::Rate;

/// How many sockets may be open, and how many of them one address may have.
const SOCKETS: usize = 64;
const SOCKETS_OF_ADDRESS: usize = 16;

/// How many requests are answered in a second: of all clients (for what needs the token, for what does not, and for
/// those with a wrong token), and of one address of another machine.
const REQUESTS: u32 = 200;
const REQUESTS_OF_ADDRESS: u32 = 50;

/// How many event streams may be open.
const STREAMS: usize = 16;

/// How long a request head may take, and how long a reader may take nothing of its answer.
const HEAD_TIME: Duration = Duration::from_secs(10);
const STALLED: Duration = Duration::from_secs(20);

/// The longest request head.
const HEAD_BYTES: usize = 16 << 10;

/// Why there is no admin port.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AdminError {
    /// Other machines could look without a token.
    #[error(
        "{address} can be reached from other machines: give a token (--admin-token-file or BREAKBULK_ADMIN_TOKEN), or listen at 127.0.0.1"
    )]
    OpenToOthers {
        /// The address.
        address: SocketAddr,
    },
    /// The host has no address.
    #[error("{host} has no address: {error}")]
    NoAddress {
        /// The host.
        host: String,
        /// What the system said.
        error: std::io::Error,
    },
    /// The port cannot be bound, or its socket failed.
    #[error(transparent)]
    Listen(#[from] ListenError),
}

/// An admin port that is bound, and answers nobody yet.
#[derive(Debug)]
pub struct Admin {
    socket: TcpListener,
    at: SocketAddr,
    token: Option<Bearer>,
}

/// What all requests share.
pub(super) struct AdminState {
    watch: Watch,
    /// `guard` checks requests that need the token, `open` those that do not.
    guard: Guard,
    open: Guard,
    /// The rates of the requests that `guard` let in, of those that `open` let in, and of those with a wrong token.
    rate: Rate,
    open_rate: Rate,
    refused_rate: Rate,
    streams: Arc<Semaphore>,
    shared: events::Shared,
    over: watch::Receiver<bool>,
}

impl Admin {
    /// Binds the port. Without a token all its addresses must be loopback addresses.
    ///
    /// # Errors
    /// If it cannot be bound, or would be open to others.
    pub async fn bind(address: &AdminAddress, token: Option<Bearer>) -> Result<Self, AdminError> {
        let found = address.resolve().await?;
        let others = found.iter().find(|address| !address.ip().is_loopback());
        if let (Some(&address), None) = (others, &token) {
            return Err(AdminError::OpenToOthers { address });
        }
        let failed = |error| {
            let address = address.to_string();
            ListenError::Bind { address, error }
        };
        let socket = TcpListener::bind(&*found).await.map_err(failed)?;
        let at = socket.local_addr().map_err(failed)?;
        Ok(Self { socket, at, token })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.at
    }

    /// Answers requests until `stop` fires; then requests in progress are still answered.
    ///
    /// # Errors
    /// If the socket fails.
    pub async fn serve(self, watch: Watch, stop: &Stop) -> Result<(), AdminError> {
        let (over, is_over) = watch::channel(false);
        let state = Arc::new(AdminState {
            watch,
            guard: guard(self.token.clone()),
            open: guard(None),
            rate: Rate::new(REQUESTS),
            open_rate: Rate::new(REQUESTS),
            refused_rate: Rate::new(REQUESTS),
            streams: Arc::new(Semaphore::new(STREAMS)),
            shared: events::Shared::default(),
            over: is_over,
        });
        let router = page::routes().fallback(answer).with_state(state);
        let stopped = stop.stopped();
        let stopped = async move {
            stopped.await;
            over.send_replace(true);
        };
        Ok(serve_until(self.socket, router, limits(), stopped).await?)
    }
}

fn limits() -> Limits {
    Limits::default().with(|limits| {
        limits.sockets = SOCKETS;
        limits.per_address = AddressLimits {
            connections: SOCKETS_OF_ADDRESS,
            per_second: REQUESTS_OF_ADDRESS,
            ..AddressLimits::default()
        };
        limits.head_time = HEAD_TIME;
        limits.head_bytes = HEAD_BYTES;
        limits.stalled = STALLED;
    })
}

fn guard(bearer: Option<Bearer>) -> Guard {
    Guard::new(GuardOptions {
        // With a token pages of any origin pass here, and `answers.rs` checks that the origin is this port's
        // own; without a token only names of this machine are answered at all.
        allowed_origins: bearer.is_some().then(|| vec!["*".to_owned()]),
        bearer,
        tokens: None,
        is_proven: false,
        allowed_hosts: None,
        page: PageHeaders::default(),
        places: (0, 0),
        refusals: Refusals::default(),
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
