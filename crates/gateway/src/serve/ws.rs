//! The listener for clients that connect over WebSockets.

use std::sync::Arc;

use breakbulk_net::ws::{Accepted, ListenError, ListenOptions, Listener, Tokens};

use tokio::task::JoinSet;
use tracing::Instrument;

use super::{Arrival, Door, Entered, Sockets, Tell, bind, check_target};
use crate::endpoint::WsAddress;
use crate::error::RunError;
use crate::open::{self, Opened};
use crate::plan::{End, Guests, Plan};
use crate::probe::{Echo, EchoLimits, PROBE};
use crate::stop::Stop;
use crate::tunnel::{Caller, Line};

/// The longest host and port that are repeated to a client.
const HOST_MAX: usize = 260;

/// A session for each client that connects.
pub(super) async fn listen(
    plan: Arc<Plan>,
    address: &WsAddress,
    stop: &Stop,
    tell: Tell<'_>,
) -> Result<(), RunError> {
    check_target(&plan).await?;
    let budget = plan.listen.budget.share(0);
    let echo = plan.probes.then(|| Echo::new(EchoLimits::GATEWAY, budget));
    let (end, guests) = (&plan.listen, &plan.guests);
    let options = ListenOptions {
        refusals: plan.watched.turned_away(),
        ..listen_options(end, guests, plan.max_sessions, address, echo.as_ref())
    };
    let listener = listener(&plan.sockets, guests, address, options).await?;
    let heard_at = bind::heard_at(address, listener.address());
    let door = WsDoor {
        listener,
        scheme: address.socket.is_none().then(|| address.scheme()),
        echo,
        probes: JoinSet::new(),
    };
    super::listen(plan, door, heard_at, stop, tell).await
}

/// Accepts WebSocket clients, and answers probes, which get no session.
struct WsDoor {
    listener: Listener,
    /// The scheme for the addresses that clients are told; `None` at a Unix socket, which has no host.
    scheme: Option<&'static str>,
    echo: Option<Arc<Echo>>,
    probes: JoinSet<()>,
}

impl WsDoor {
    /// The next client that is no probe.
    async fn next(&mut self) -> Result<Accepted, ListenError> {
        loop {
            let accepted = self.listener.accept().await?;
            let Some(echo) = self
                .echo
                .as_ref()
                .filter(|_| accepted.subprotocol() == Some(PROBE))
            else {
                return Ok(accepted);
            };
            while self.probes.try_join_next().is_some() {}
            let echo = echo.clone();
            let span = tracing::error_span!("probe", peer = %name(&accepted));
            let probe = async move { echo.serve(accepted.websocket).await };
            self.probes.spawn(probe.instrument(span));
        }
    }
}

impl Door for WsDoor {
    async fn accept(&mut self) -> Result<Arrival, RunError> {
        let accepted = self.next().await?;
        let reached_at = self.scheme.and_then(|scheme| reached_at(scheme, &accepted));
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
                let opened = Opened {
                    reached_at,
                    ..opened
                };
                let refuse = move |code, reason: &str| {
                    connection.close(code, reason);
                    Box::pin(async move { connection.ended().await }) as _
                };
                Ok(Entered::Port(Box::new(opened), Box::new(refuse)))
            }),
        })
    }

    async fn close(&mut self) {
        self.listener.close().await;
    }

    async fn finish(self) {}
}

/// The address that a client connected to, as its request names it. It is told to that client alone.
fn reached_at(scheme: &str, accepted: &Accepted) -> Option<String> {
    let host = accepted.header("host");
    let host = host.filter(|host| !host.is_empty() && host.len() <= HOST_MAX)?;
    let scheme = match accepted.header("x-forwarded-proto") {
        // A proxy in between ends TLS.
        Some("https" | "wss") => "wss",
        _ => scheme,
    };
    let path = match &*accepted.path {
        "/" => "",
        path => path,
    };
    Some(format!("{scheme}://{host}{path}"))
}

/// The name of a client in the log. Behind a proxy its port is not known.
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

pub(crate) async fn listener(
    sockets: &Sockets,
    guests: &Guests,
    address: &WsAddress,
    options: ListenOptions,
) -> Result<Listener, RunError> {
    let socket = bind::web(sockets, guests, address).await?;
    Listener::new(socket, options).map_err(RunError::Listen)
}

/// How a listener accepts clients, and probes if there is an echo.
pub(crate) fn listen_options(
    end: &End,
    guests: &Guests,
    connections: usize,
    address: &WsAddress,
    echo: Option<&Arc<Echo>>,
) -> ListenOptions {
    let mut subprotocols = open::subprotocols(end);
    let tunnel = subprotocols.first().cloned();
    subprotocols.extend(echo.map(|_| PROBE.to_owned()));
    let of_probes = echo.map_or(0, |echo| echo.frame_limit());
    ListenOptions {
        bearer: end.token.clone(),
        tokens: end.tokens.clone().map(|tokens| tokens as Arc<dyn Tokens>),
        path: (address.path != "/").then(|| address.path.clone()),
        subprotocols,
        connections,
        spare_places_for: tunnel,
        per_address: guests.per_address.clone(),
        handshakes: guests.handshakes,
        allowed_origins: guests.origins.clone(),
        allowed_hosts: guests.hosts.clone(),
        // Other clients than probes get a lower limit when they are accepted.
        frame_limit: end.frame_limit().max(of_probes),
        fragment: end.fragment,
        #[cfg(feature = "tls")]
        identity: end.identity.clone().filter(|_| address.secure),
        #[cfg(feature = "tls")]
        client_authority: end.client_authority.clone(),
        ..ListenOptions::default()
    }
}
