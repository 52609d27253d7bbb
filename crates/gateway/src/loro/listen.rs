//! Clients of loro-extended that come over HTTP: by WebSocket, event stream, polls or data channel.

#[cfg(feature = "webrtc")]
use std::net::SocketAddr;
use std::sync::Arc;

use breakbulk_loro::http::serve_options;
use breakbulk_net::http::{self, Arrivals, ServeOptions, Server};
use breakbulk_net::ws::ListenError;
use breakbulk_net::{AddressLimits, ListenAddress, ListenSocket};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::TokenCheck;
use crate::endpoint::LoroAddress;
use crate::error::RunError;
use crate::plan::Plan;
use crate::serve::{Arrival, Door, Entered, Tell, bind, check_target};
use crate::stop::Stop;
use crate::tunnel::Caller;

/// A session for each client that connects.
pub(crate) async fn listen(
    plan: Arc<Plan>,
    address: &LoroAddress,
    stop: &Stop,
    tell: Tell<'_>,
) -> Result<(), RunError> {
    check_target(&plan).await?;
    let socket = bind::tcp(&plan.sockets, address.listen_at()).await?;
    let at = bind::address_of(&socket)?;
    let path = address.path.trim_end_matches('/');
    let heard_at = format!("{}//{at}{path}", address.form());
    let door = LoroDoor::new(&plan, address, socket, &at);
    crate::serve::listen(plan, door, heard_at, stop, tell).await
}

/// An HTTP server whose clients speak loro-extended.
struct LoroDoor {
    arrivals: Arrivals,
    serving: JoinHandle<Result<(), ListenError>>,
    closing: watch::Sender<bool>,
    address: ListenAddress,
}

impl LoroDoor {
    fn new(plan: &Plan, address: &LoroAddress, socket: ListenSocket, at: &ListenAddress) -> Self {
        let (server, arrivals) = Server::new(options(plan, at));
        let router = match address.path.trim_end_matches('/') {
            "" => server.router(),
            path => axum::Router::new().nest(path, server.router()),
        };
        let (closing, mut closed) = watch::channel(false);
        let stop = async move {
            // An error says that the door is gone.
            let _ = closed.wait_for(|closed| *closed).await;
        };
        let serving = http::serve_until(socket, router, limits(plan), stop);
        Self {
            arrivals,
            serving: tokio::spawn(serving),
            closing,
            address: at.clone(),
        }
    }
}

impl Door for LoroDoor {
    const LISTENS_TO_THE_END: bool = true;

    async fn accept(&mut self) -> Result<Arrival, RunError> {
        let ended = |address: &ListenAddress| ListenError::Ended {
            address: address.clone(),
        };
        let arrival = tokio::select! {
            arrival = self.arrivals.next() => arrival.ok_or_else(|| ended(&self.address))?,
            outcome = &mut self.serving => {
                return Err(RunError::Accept(match outcome {
                    Ok(Err(error)) => error,
                    _ => ended(&self.address),
                }));
            }
        };
        let remote = arrival.claim.remote;
        let address = remote.map_or("unknown".to_owned(), |remote| remote.to_string());
        let name = match &arrival.grant.subject {
            Some(holder) => format!("{holder}@{address}"),
            None => address,
        };
        Ok(Arrival {
            name,
            caller: Caller {
                holder: arrival.grant.subject.clone(),
                address: remote.map(|remote| remote.ip()),
            },
            open: Box::new(move |end| {
                let (way, options) = (arrival.transport.way(), arrival.transport.options());
                let (opened, connection) =
                    super::open(end, way, false, arrival.transport, options)?;
                let refuse = move |code, reason: &str| {
                    connection.close(code, reason);
                    Box::pin(async move { connection.ended().await }) as _
                };
                Ok(Entered::Port(Box::new(opened), Box::new(refuse)))
            }),
        })
    }

    async fn close(&mut self) {
        // Answers in progress, event streams and polls go on until their sessions have ended.
        self.closing.send_replace(true);
    }

    async fn finish(self) {}
}

fn options(plan: &Plan, at: &ListenAddress) -> ServeOptions {
    let (end, guests) = (&plan.listen, &plan.guests);
    let mut options = ServeOptions {
        connections: plan.max_sessions,
        per_address: guests.per_address.connections,
        budget: Some(end.budget.clone()),
        allowed_origins: guests.origins.clone(),
        allowed_hosts: guests.hosts.clone(),
        fragment: end.fragment,
        refusals: plan.watched.turned_away(),
        ..serve_options()
    };
    #[cfg(not(feature = "webrtc"))]
    let _ = at;
    #[cfg(feature = "webrtc")]
    if let ListenAddress::Tcp(at) = at
        && !at.ip().is_unspecified()
    {
        // Data channels are bound to the address of the listener.
        options.webrtc.bind = vec![SocketAddr::new(at.ip(), 0).to_string()];
    }
    match (&end.tokens, &end.token) {
        (Some(tokens), _) => options.authorize = Arc::new(TokenCheck::File(tokens.clone())),
        (None, Some(token)) => options.authorize = Arc::new(TokenCheck::One(token.clone())),
        (None, None) => {}
    }
    options
}

fn limits(plan: &Plan) -> http::Limits {
    let (end, per_address) = (&plan.listen, plan.guests.per_address.clone());
    // A connection has at most two sockets most of the time: its own, and that of a POST.
    http::Limits::default().with(|limits| {
        limits.sockets = plan
            .max_sessions
            .saturating_mul(2)
            .saturating_add(plan.guests.handshakes.min(64));
        limits.per_address = AddressLimits {
            connections: per_address.connections.saturating_mul(2).saturating_add(64),
            ..per_address
        };
        limits.identity = end.identity.clone();
        limits.client_authority = end.client_authority.clone();
        limits.refusals = plan.watched.turned_away();
    })
}
