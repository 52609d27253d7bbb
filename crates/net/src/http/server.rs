//! The server: its routes, and the authorization and connection limits that all requests pass.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::ConnectInfo;
use axum::http::StatusCode;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use axum::middleware::from_fn_with_state;
use axum::routing::{get, post};
use axum::{Router, extract::State};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::time::{Duration, timeout};

use super::answer::Answer;
use super::arrival::{Arrival, Arrivals};
use super::authorize::{Claim, Grant, Way};
use super::bodies::Bodies;
use super::connection::closed;
use super::cors::cors;
use super::dialect::Dialect;
use super::options::ServeOptions;
use super::posts;
use super::query;
use super::registry::{Registry, replaced};
use super::upgrade::upgrade;
use crate::gate::{Limit, Permit, PlaceGuard, SharedPlaces, Warnings};
use crate::limiter::AddressKey;

/// How long a new connection waits for room in the queue of arrivals, or for the connection that it
/// replaces to end.
const ARRIVAL_WAIT: Duration = Duration::from_secs(10);

/// How often to check whether the place of a connection that is being replaced is free.
const PLACE_CHECK: Duration = Duration::from_millis(10);

/// A server for all kinds of transport, as routers to mount in an application. Clones share one server.
#[derive(Clone, Debug)]
pub struct Server(pub(crate) Arc<ServerState>);

type Routes = Router<Arc<ServerState>>;

/// A router with all kinds of transport (see [`Server::router`]), and the clients that connect to it.
pub fn router(options: ServeOptions) -> (Router, Arrivals) {
    let (server, arrivals) = Server::new(options);
    (server.router(), arrivals)
}

impl Server {
    /// A server, and the clients that connect to it.
    pub fn new(options: ServeOptions) -> (Self, Arrivals) {
        let (sender, arrivals) = mpsc::channel(options.arrivals.max(1));
        let state = ServerState {
            open: semaphore(options.connections),
            places: SharedPlaces::new(usize::MAX, options.per_address),
            warnings: Warnings::counting(options.refusals.clone()),
            posting: watch::Sender::new(0),
            bodies: Bodies::new(options.posted_bytes, options.budget.clone()),
            #[cfg(feature = "webrtc")]
            half_open: half_open(options.webrtc.half_open),
            registry: Registry::default(),
            arrivals: sender,
            options,
        };
        (Self(Arc::new(state)), Arrivals(arrivals))
    }

    /// A router with all kinds of transport, at the paths of the dialect: WebSockets, the event stream,
    /// polls, POSTs for both, and offers of data channels if the feature `webrtc` is on.
    pub fn router(&self) -> Router {
        let mut router = self.streams(Router::new());
        router = self.polls(router);
        for path in self.dialect().websocket {
            router = router.route(&format!("/{path}"), get(upgrade));
        }
        #[cfg(feature = "webrtc")]
        let router = self.offers(router);
        self.finish(router)
    }

    /// Waits until all POSTs in progress are answered.
    pub async fn posts_answered(&self) {
        // The sender is kept, so that this cannot fail.
        let _ = self
            .0
            .posting
            .subscribe()
            .wait_for(|posts| *posts == 0)
            .await;
    }

    /// Ends the connections that are open now, each as soon as its client has not polled for this long; never
    /// returns. For a shutdown, which would otherwise wait until these clients fetch their queued messages.
    pub async fn end_absent_polls(&self, after: Duration) {
        let absent = self
            .0
            .registry
            .polling()
            .into_iter()
            .map(|connection| async move {
                connection.absent_for(after).await;
                connection.end(closed(1001, "the client polls no more"));
            });
        futures_util::future::join_all(absent).await;
        std::future::pending().await
    }

    /// A router with the event stream and its POSTs.
    pub fn sse(&self) -> Router {
        self.finish(self.streams(Router::new()))
    }

    /// A router with polls and their POSTs.
    pub fn poll(&self) -> Router {
        let router = self.polls(Router::new());
        self.finish(router.route(&self.path(self.dialect().post), post(poll_post)))
    }

    /// The router of [`exchange`](Self::exchange) below a path, which is taken literally.
    pub fn exchange_below(&self, path: &str) -> Router {
        let path = path.trim_end_matches('/');
        match path {
            "" => self.exchange(),
            path => {
                let literal = path.replace('{', "{{").replace('}', "}}");
                let router = Router::new().without_v07_checks();
                router.nest(&literal, self.exchange())
            }
        }
    }

    /// A router with the numbered POSTs and polls of [exchanges](crate::exchange).
    pub fn exchange(&self) -> Router {
        use crate::exchange;
        let dialect = self.dialect();
        let poll = get(exchange::poll).delete(exchange::disconnect);
        let router = Router::new()
            .route(&self.path(dialect.open), post(exchange::open))
            .route(&self.path(dialect.post), post(exchange::post))
            .route(&self.path(dialect.poll), poll);
        self.finish(router)
    }

    /// A router that accepts WebSockets at any path.
    pub fn ws(&self) -> Router {
        self.finish(Router::new().fallback(upgrade))
    }

    /// A router that answers offers of data channels.
    #[cfg(feature = "webrtc")]
    pub fn webrtc(&self) -> Router {
        self.finish(self.offers(Router::new()))
    }

    fn dialect(&self) -> &Dialect {
        &self.0.options.dialect
    }

    fn path(&self, name: &str) -> String {
        format!("/{name}")
    }

    fn streams(&self, router: Routes) -> Routes {
        let dialect = self.dialect();
        router
            .route(&self.path(dialect.events), get(crate::sse::events))
            .route(&self.path(dialect.post), post(event_post))
    }

    fn polls(&self, router: Routes) -> Routes {
        let poll = get(crate::poll::poll).delete(crate::poll::disconnect);
        router.route(&self.path(self.dialect().poll), poll)
    }

    #[cfg(feature = "webrtc")]
    fn offers(&self, router: Routes) -> Routes {
        router.route(&self.path(self.dialect().offer), post(crate::webrtc::offer))
    }

    fn finish(&self, router: Routes) -> Router {
        router
            .layer(from_fn_with_state(self.0.clone(), cors))
            .with_state(self.0.clone())
    }
}

async fn event_post(state: State<Arc<ServerState>>, request: axum::extract::Request) -> Answer {
    posts::post(&state, Way::Sse, request).await
}

async fn poll_post(state: State<Arc<ServerState>>, request: axum::extract::Request) -> Answer {
    posts::post(&state, Way::Poll, request).await
}

/// The state that all requests of a server share.
pub(crate) struct ServerState {
    pub(crate) options: ServeOptions,
    pub(crate) registry: Registry,
    /// One permit for each connection that may be open.
    open: Arc<Semaphore>,
    /// A place for each connection, limited by address.
    places: SharedPlaces,
    warnings: Warnings,
    /// How many POSTs are in progress.
    pub(crate) posting: watch::Sender<usize>,
    /// The POST bodies that are buffered.
    pub(crate) bodies: Bodies,
    /// A place for each data channel that is being opened. The oldest one makes room for a newcomer, and one address
    /// has a quarter of them at most.
    #[cfg(feature = "webrtc")]
    pub(crate) half_open: SharedPlaces,
    arrivals: mpsc::Sender<Arrival>,
}

impl fmt::Debug for ServerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerState")
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl ServerState {
    /// Asks the authorizer about a request.
    pub(crate) fn authorize(
        &self,
        way: Way,
        peer_id: String,
        head: &Parts,
    ) -> Result<(Claim, Grant), Answer> {
        let (size, limit) = (peer_id.len(), self.options.peer_id_max);
        if size > limit {
            let error = format!("a peer id of {size} bytes is over the limit of {limit}");
            return Err(Answer::bad(&error).closing());
        }
        let remote = head.extensions.get::<ConnectInfo<SocketAddr>>();
        let claim = Claim {
            peer_id,
            way,
            headers: head.headers.clone(),
            query: head.uri.query().map(ToOwned::to_owned),
            remote: remote.map(|info| info.0),
        };
        match self.options.authorize.authorize(&claim) {
            Ok(grant) => Ok((claim, grant)),
            Err(denied) => {
                let status = StatusCode::from_u16(denied.status);
                let status = status.unwrap_or(StatusCode::FORBIDDEN);
                let why = format!("{}: {}", status.as_u16(), denied.error);
                self.warn(Limit::Request, &claim, &why);
                Err(Answer::error(status, &denied.error).closing())
            }
        }
    }

    /// The peer id in a request's query, if there is one.
    pub(crate) fn peer_id(&self, head: &Parts) -> Option<String> {
        let name = self.options.dialect.peer_parameter;
        query::parameter(head.uri.query(), name).filter(|id| !id.is_empty())
    }

    /// A permit for a connection. If all are taken and the same peer has an open connection, that
    /// one is ended, and its permit used.
    pub(crate) async fn permit_for(&self, claim: &Claim) -> Result<Permit, Answer> {
        let permit = self.permit(claim);
        let (Err(_), Some(connection)) = (&permit, self.registry.find(&claim.peer_id)) else {
            return permit;
        };
        connection.end(replaced());
        let again = async {
            let open = self.open.clone().acquire_owned().await.ok()?;
            // The place is given back together with the permit, but not at the same instant.
            loop {
                if let Ok(place) = self.place(claim) {
                    return Some(Permit {
                        _open: Some(open),
                        _place: place,
                    });
                }
                tokio::time::sleep(PLACE_CHECK).await;
            }
        };
        match timeout(ARRIVAL_WAIT, again).await {
            Ok(Some(permit)) => Ok(permit),
            _ => permit,
        }
    }

    /// A permit for one more connection; an answer 503 if all are taken.
    pub(crate) fn permit(&self, claim: &Claim) -> Result<Permit, Answer> {
        let place = self.place(claim)?;
        let open = self.open.clone().try_acquire_owned().map_err(|_| {
            let limit = self.options.connections;
            let why = format!("all {limit} connections are in use");
            self.warn(Limit::Places, claim, &why);
            Answer::busy(&format!("{why}: try again later"))
        })?;
        Ok(Permit {
            _open: Some(open),
            _place: place,
        })
    }

    /// Takes one of the places of the client's address.
    fn place(&self, claim: &Claim) -> Result<PlaceGuard, Answer> {
        let key = claim.remote.and_then(|remote| AddressKey::of(remote.ip()));
        let taken = self.places.take(key, false);
        taken.map(|(place, _)| place).map_err(|_| {
            let limit = self.options.per_address;
            let why = format!(
                "its address has {limit} connections open, the most for one (max-per-address)"
            );
            self.warn(Limit::Address, claim, &why);
            Answer::busy(&format!(
                "this address has {limit} connections open, the most for one: try again later"
            ))
        })
    }

    fn warn(&self, limit: Limit, claim: &Claim, why: &dyn fmt::Display) {
        match claim.remote {
            Some(remote) => self.warnings.log(limit, remote, why),
            None => self.warnings.log(limit, "unknown", why),
        }
    }

    /// Hands a new connection to the application, once there is room in the queue of arrivals.
    pub(crate) async fn queue_arrival(&self, mut arrival: Arrival) -> Result<(), Answer> {
        // The token is checked by now; the application must not see it.
        arrival.claim.headers.remove(AUTHORIZATION);
        match timeout(ARRIVAL_WAIT, self.arrivals.send(arrival)).await {
            Ok(Ok(())) => Ok(()),
            _ => {
                let seconds = ARRIVAL_WAIT.as_secs();
                let why = format!(
                    "the server did not take up this connection within {seconds} s: try again later"
                );
                Err(Answer::busy(&why))
            }
        }
    }
}

/// The answer to a request whose peer id belongs to a connection of another user.
pub(crate) fn peer_id_taken() -> Answer {
    Answer::error(
        StatusCode::FORBIDDEN,
        "this peer id is in use by somebody else",
    )
    .closing()
}

#[cfg(feature = "webrtc")]
fn half_open(limit: usize) -> SharedPlaces {
    SharedPlaces::new(limit, (limit / 4).max(1))
}

fn semaphore(permits: usize) -> Arc<Semaphore> {
    Arc::new(Semaphore::new(permits.min(Semaphore::MAX_PERMITS)))
}
