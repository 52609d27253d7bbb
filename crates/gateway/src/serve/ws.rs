//! Clients that come by WebSockets.

use std::sync::Arc;

use breakbulk_net::ListenAddress;
#[cfg(unix)]
use breakbulk_net::ListenSocket;
use breakbulk_net::ws::{Accepted, ListenError, ListenOptions, Listener, Tokens};

use super::{Arrival, Door, Entered, Tell, check_target, not_bound};
use crate::endpoint::WsAddress;
use crate::error::RunError;
use crate::open;
use crate::plan::Plan;
use crate::pump::Side;
use crate::stop::Stop;
use crate::tunnel::{Caller, Line};

/// A session for each client that connects.
pub(super) async fn listen(
    plan: Arc<Plan>,
    address: &WsAddress,
    stop: &Stop,
    tell: Tell<'_>,
) -> Result<(), RunError> {
    check_target(&plan).await?;
    let listener = bind(&plan, address).await?;
    let heard_at = heard_at(address, listener.address());
    super::listen(plan, listener, heard_at, stop, tell).await
}

impl Door for Listener {
    async fn accept(&mut self) -> Result<Arrival, ListenError> {
        let accepted = Listener::accept(self).await?;
        Ok(Arrival {
            name: name(&accepted),
            caller: Caller {
                holder: accepted.holder.clone(),
                address: Some(accepted.client),
            },
            open: Box::new(move |end| {
                if open::is_tunnel(end, &accepted.websocket) {
                    return Ok(Entered::Line(Line::new(accepted.websocket)));
                }
                let (opened, connection) = open::web_socket(end, accepted.websocket, false)?;
                let refuse = move |code, reason: &str| {
                    connection.close(code, reason);
                    Box::pin(async move { connection.ended().await }) as _
                };
                Ok(Entered::Port(Box::new(opened), Box::new(refuse)))
            }),
        })
    }

    async fn close(self) {
        Listener::close(self).await;
    }
}

/// Where a gateway listens, as its clients write it.
fn heard_at(address: &WsAddress, at: &ListenAddress) -> String {
    let path = match &*address.path {
        "/" => "",
        path => path,
    };
    match at {
        ListenAddress::Unix(socket) => format!("ws+unix:{}", socket.display()),
        at => format!("{}://{at}{path}", address.scheme()),
    }
}

/// A client in the log. Behind a proxy its port is not known.
fn name(accepted: &Accepted) -> String {
    let address = match accepted.client == accepted.peer.ip() {
        true => accepted.peer.to_string(),
        false => accepted.client.to_string(),
    };
    match &accepted.holder {
        Some(holder) => format!("{holder}@{address}"),
        None => address,
    }
}

async fn bind(plan: &Plan, address: &WsAddress) -> Result<Listener, RunError> {
    #[cfg(unix)]
    if let Some(path) = &address.socket {
        let socket = ListenSocket::unix(path, &plan.guests.users).map_err(RunError::Listen)?;
        return Listener::new(socket, listen_options(plan, address)).map_err(RunError::Listen);
    }
    let (host, port) = address.listen_at().map_err(|error| RunError::Open {
        side: Side::Listen,
        error: error.into(),
    })?;
    let bound = Listener::bind((host.as_str(), port), listen_options(plan, address)).await;
    bound.map_err(|error| not_bound(&host, port, error))
}

fn listen_options(plan: &Plan, address: &WsAddress) -> ListenOptions {
    let end = &plan.listen;
    ListenOptions {
        bearer: end.token.clone(),
        tokens: end.tokens.clone().map(|tokens| tokens as Arc<dyn Tokens>),
        path: (address.path != "/").then(|| address.path.clone()),
        subprotocols: open::subprotocols(end),
        connections: plan.max_sessions,
        per_address: plan.guests.per_address.clone(),
        handshakes: plan.guests.handshakes,
        allowed_origins: plan.guests.origins.clone(),
        allowed_hosts: plan.guests.hosts.clone(),
        frame_limit: end.frame_limit(),
        fragment: end.fragment,
        #[cfg(feature = "tls")]
        identity: end.identity.clone().filter(|_| address.secure),
        #[cfg(feature = "tls")]
        client_authority: end.client_authority.clone(),
        ..ListenOptions::default()
    }
}
