//! The listener for other gateways that connect over plain HTTP.

use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode};
#[cfg(feature = "nats")]
use axum::{
    body::Body,
    extract::State,
    http::Response,
    middleware::{Next, from_fn_with_state},
};
use breakbulk_net::AddressLimits;
use breakbulk_net::http::{
    Arrivals, Authorize, Claim, Denied, Grant, Guard, GuardOptions, Limits, ServeOptions, Server,
    serve, text_answer,
};
use breakbulk_net::ws::{Bearer, ListenError, Tokens};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::{Arrival, Door, Entered, Tell, bind, check_target};
use crate::endpoint::WsAddress;
use crate::error::RunError;
#[cfg(feature = "nats")]
use crate::fleet::{Fleet, Unreached};
use crate::open::exchange::{self, POLL};
use crate::plan::Plan;
use crate::probe::HttpEcho;
use crate::stop::Stop;
use crate::token::TokenFile;
use crate::tunnel::Caller;

/// A client that was not heard for this long is gone: two polls, and some time between.
const STALE: Duration = Duration::from_secs(45);

/// How many sockets the requests of one session take: those that are on their way, and some that are
/// being opened or closed.
const SOCKETS: usize = 12;

/// A session for each gateway that connects.
pub(super) async fn listen(
    plan: Arc<Plan>,
    address: &WsAddress,
    stop: &Stop,
    tell: Tell<'_>,
) -> Result<(), RunError> {
    check_target(&plan).await?;
    let socket = bind::web(&plan.sockets, &plan.guests, address).await?;
    let heard_at = bind::heard_at(address, &bind::address_of(&socket)?);
    let (server, arrivals) = Server::new(serve_options(&plan));
    let path = address.path.trim_end_matches('/');
    let router = server.exchange_below(path);
    #[cfg(feature = "nats")]
    let router = in_fleet(&plan, router);
    let router = router.fallback_service(probes(&plan, path));
    let limits = limits(&plan, address);
    let (fail, failed) = oneshot::channel();
    // Serves until all sessions have ended, since their queued frames are fetched by further polls.
    let mut serving = JoinSet::new();
    serving.spawn(async move {
        let Err::<Infallible, _>(error) = serve(socket, router, limits).await;
        let _ = fail.send(error);
    });
    let door = ExchangeDoor {
        arrivals: Some(arrivals),
        failed,
    };
    let outcome = super::listen(plan, door, heard_at, stop, tell).await;
    drop(serving);
    outcome
}

/// Answers probes at the path itself; other paths do not exist.
fn probes(plan: &Plan, path: &str) -> Router {
    let end = &plan.listen;
    let guard = Guard::new(GuardOptions {
        bearer: end.token.clone(),
        tokens: end.tokens.clone().map(|tokens| tokens as Arc<dyn Tokens>),
        is_proven: end.client_authority.is_some(),
        allowed_origins: plan.guests.origins.clone(),
        allowed_hosts: plan.guests.hosts.clone(),
        ..GuardOptions::default()
    });
    let (guard, echo) = (Arc::new(guard), HttpEcho::new(plan));
    let path = path.to_owned();
    Router::new().fallback(move |request: Request| async move {
        let (head, mut body) = request.into_parts();
        if let Err(response) = guard.admit(&head) {
            return *response;
        }
        let here = head.uri.path().trim_end_matches('/') == path;
        let answer = match here {
            true => echo.answer(&head, &mut body).await,
            false => None,
        };
        answer.unwrap_or_else(|| {
            text_answer(StatusCode::NOT_FOUND, "There is nothing at this path.\n")
        })
    })
}

/// Accepts gateways that connect over HTTP.
struct ExchangeDoor {
    /// None once it is closed: new sessions are refused from then on.
    arrivals: Option<Arrivals>,
    failed: oneshot::Receiver<ListenError>,
}

impl Door for ExchangeDoor {
    const LISTENS_TO_THE_END: bool = true;

    async fn accept(&mut self) -> Result<Arrival, RunError> {
        let Some(arrivals) = &mut self.arrivals else {
            return pending().await;
        };
        let arrival = tokio::select! {
            arrival = arrivals.next() => arrival,
            Ok(error) = &mut self.failed => return Err(RunError::Accept(error)),
        };
        let Some(arrival) = arrival else {
            return pending().await;
        };
        let address = arrival.claim.remote;
        let shown = address.map_or_else(
            || "unknown".to_owned(),
            |address| match address.port() {
                // Behind a proxy its port is not known.
                0 => address.ip().to_string(),
                _ => address.to_string(),
            },
        );
        let holder = arrival.grant.subject;
        let transport = arrival.transport;
        Ok(Arrival {
            name: match &holder {
                Some(holder) => format!("{holder}@{shown}"),
                None => shown,
            },
            caller: Caller {
                holder,
                address: address.map(|address| address.ip()),
            },
            open: Box::new(move |end| Ok(Entered::Line(exchange::line(transport, end.max_frame)))),
        })
    }

    async fn close(&mut self) {
        self.arrivals = None;
    }

    async fn finish(self) {}
}

/// A session that is resumed has two connections for a while, since the lost one may still have its place: so
/// there are two places for each session.
fn serve_options(plan: &Plan) -> ServeOptions {
    let end = &plan.listen;
    ServeOptions {
        dialect: exchange::dialect(),
        authorize: Arc::new(Holders {
            bearer: end.token.clone(),
            tokens: end.tokens.clone(),
        }),
        allowed_origins: plan.guests.origins.clone(),
        allowed_hosts: plan.guests.hosts.clone(),
        body_max: end.max_frame,
        answer_max: end.max_frame,
        connections: plan.max_sessions.saturating_mul(2),
        per_address: plan.guests.per_address.connections.saturating_mul(2),
        budget: Some(end.budget.clone()),
        #[cfg(feature = "nats")]
        exchange_prefix: plan.session_prefix(),
        refusals: plan.watched.turned_away(),
        wait_max: POLL,
        stale: STALE,
        ..ServeOptions::default()
    }
}

/// Forwards requests of exchanges that belong to another member of the fleet, and answers those that other
/// members forward.
#[cfg(feature = "nats")]
fn in_fleet(plan: &Plan, router: Router) -> Router {
    let Some(fleet) = plan.fleet.get() else {
        return router;
    };
    fleet.answer_with(router.clone());
    let holders = Holders {
        bearer: plan.listen.token.clone(),
        tokens: plan.listen.tokens.clone(),
    };
    let state = (fleet.clone(), Arc::new(holders));
    router.layer(from_fn_with_state(state, forward))
}

#[cfg(feature = "nats")]
async fn forward(
    State((fleet, holders)): State<(Arc<Fleet>, Arc<Holders>)>,
    request: Request,
    next: Next,
) -> Response<Body> {
    let session = request.headers().get(exchange::dialect().peer_header);
    let session = session.and_then(|session| session.to_str().ok());
    let session = session.map(str::to_owned).unwrap_or_default();
    let (head, body) = request.into_parts();
    // A request without a valid token is not forwarded: it is refused here.
    let member = fleet.elsewhere(&head, &session);
    let Some(member) = member.filter(|_| holders.holder(&head.headers).is_ok()) else {
        return next.run(Request::from_parts(head, body)).await;
    };
    fleet
        .ask(member, &head, body)
        .await
        .unwrap_or_else(|unreached| {
            let (status, words) = match unreached {
                Unreached::Dead => (
                    StatusCode::NOT_FOUND,
                    "the member of the fleet that had this session is gone: open another one"
                        .to_owned(),
                ),
                Unreached::Later(doubt) => (StatusCode::SERVICE_UNAVAILABLE, doubt.to_string()),
                Unreached::Lost => (
                    StatusCode::BAD_GATEWAY,
                    "the member of the fleet that has this session was lost: try again".to_owned(),
                ),
            };
            text_answer(status, &format!("{words}\n"))
        })
}

fn limits(plan: &Plan, address: &WsAddress) -> Limits {
    let per_address = plan.guests.per_address.clone();
    let end = &plan.listen;
    Limits::default().with(|limits| {
        limits.sockets = plan.max_sessions.saturating_mul(SOCKETS);
        limits.per_address = AddressLimits {
            connections: per_address.connections.saturating_mul(SOCKETS),
            ..per_address
        };
        limits.identity = end.identity.clone().filter(|_| address.secure);
        limits.client_authority = end.client_authority.clone();
        limits.refusals = plan.watched.turned_away();
    })
}

/// The tokens that a listener accepts.
struct Holders {
    bearer: Option<Bearer>,
    tokens: Option<Arc<TokenFile>>,
}

impl Authorize for Holders {
    fn authorize(&self, claim: &Claim) -> Result<Grant, Denied> {
        self.holder(&claim.headers)
    }

    fn is_open(&self) -> bool {
        self.bearer.is_none() && self.tokens.is_none()
    }
}

impl Holders {
    /// Who sends these headers.
    fn holder(&self, headers: &HeaderMap) -> Result<Grant, Denied> {
        if self.is_open() {
            return Ok(Grant::default());
        }
        let header = headers.get("authorization");
        let header = header.map(|header| header.as_bytes()).unwrap_or_default();
        let of_file = self
            .tokens
            .as_ref()
            .and_then(|tokens| tokens.holder(header));
        match (of_file, &self.bearer) {
            (Some(holder), _) => Ok(Grant {
                subject: Some(holder),
            }),
            (None, Some(bearer)) if bearer.admits(header) => Ok(Grant::default()),
            _ => Err(Denied {
                status: 401,
                error: match header.is_empty() {
                    true => "this server wants a bearer token, and none was given".to_owned(),
                    false => "this server does not accept this bearer token".to_owned(),
                },
            }),
        }
    }
}
