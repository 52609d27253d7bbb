//! The sessions of a gateway: one over the standard streams, or one for each client of a listener.

pub(crate) mod bind;
#[cfg(feature = "http")]
mod exchange;
#[cfg(feature = "nats")]
mod nats;
mod sockets;
#[cfg(feature = "process")]
mod streams;
pub(crate) mod ws;

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use breakbulk_message::tunnel::Gone;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tracing::Instrument;

#[cfg(feature = "process")]
use crate::endpoint::SocketAddress;
use crate::endpoint::{At, Misspelt, TunnelUse, WsAddress};
use crate::error::{OpenError, Party, RunError, SessionEnd, Unreachable};
use crate::open::{self, Opened};
use crate::plan::{End, Overruled, Plan};
use crate::pump::{Options, Side, Stopped, relay_watched};
#[cfg(feature = "nostr")]
use crate::relays;
use crate::stop::Stop;
use crate::tunnel::{Caller, Greeted, Line, Newcomer, Stray};
use crate::watch::{Refused, SessionWatch};
pub(crate) use sockets::Sockets;

/// How long the target may take to accept a connection when it is looked for before listening.
const CHECK: Duration = Duration::from_secs(5);

/// The close code of a client's connection when the target cannot be reached: bad gateway.
const NO_TARGET: u16 = 1014;

/// The details are in the log: they may contain what clients should not know.
const NO_TARGET_REASON: &str = "the gateway has no connection to its target; its log says why";

/// What happens while a gateway runs, for its user.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// Clients can connect now, to this endpoint.
    Listening(String),
    /// A limit that was asked for does not apply.
    Overruled(Side, Overruled),
    /// A part of a target's address is spelled nearly as an option.
    Misspelt(Side, Misspelt),
    /// The token of an end travels in clear text beyond this machine.
    TokenInClear(Side),
    /// Clients cannot connect any more: the address is free.
    Closed,
    /// The gateway stops; this many sessions still send what is queued.
    Stopping(usize),
}

/// The function that is called with events.
pub(crate) type Tell<'a> = &'a (dyn Fn(Event) + Send + Sync);

impl Plan {
    /// Runs the gateway: one session if it listens at `stdio:`, else one for each client, until `stop`
    /// fires. Queued messages are then still sent, within [`Config::grace`](crate::Config::grace). A
    /// future that is dropped ends all sessions at once.
    ///
    /// # Errors
    /// If it cannot start, if the listener fails, or if the one session of `stdio:` ends with messages
    /// unsent.
    pub async fn run(
        self,
        stop: &Stop,
        tell: impl Fn(Event) + Send + Sync,
    ) -> Result<(), RunError> {
        let plan = Arc::new(self);
        let outcome = Self::listen(plan.clone(), stop, tell).await;
        match &outcome {
            // No listener failed: a session over the standard streams ends by itself, and is not begun again.
            Err(RunError::Session(_)) | Ok(()) => {}
            Err(error) => plan.watched.failed(error),
        }
        outcome
    }

    async fn listen(
        plan: Arc<Self>,
        stop: &Stop,
        tell: impl Fn(Event) + Send + Sync,
    ) -> Result<(), RunError> {
        let wrong = |error| RunError::Open {
            side: Side::To,
            error,
        };
        plan.to.check_command().map_err(wrong)?;
        for (side, end) in [(Side::Listen, &plan.listen), (Side::To, &plan.to)] {
            if let Some(overruled) = end.overruled {
                tell(Event::Overruled(side, overruled));
            }
            if let Some(misspelt) = &end.misspelt {
                tell(Event::Misspelt(side, misspelt.clone()));
            }
        }
        for (side, end) in [(Side::Listen, &plan.listen), (Side::To, &plan.to)] {
            if end.shows_token() {
                tell(Event::TokenInClear(side));
            }
        }
        // While the sessions last, other members of the fleet find them.
        #[cfg(feature = "nats")]
        let _joined = crate::fleet::join(&plan).await?;
        match plan.listen.at.clone() {
            At::Ws(address) => ws::listen(plan, &address, stop, &tell).await,
            #[cfg(feature = "http")]
            At::Exchange(address) => exchange::listen(plan, &address, stop, &tell).await,
            #[cfg(feature = "http")]
            At::Http(address) => crate::mcp::listen(plan, &address, stop, &tell).await,
            #[cfg(feature = "process")]
            At::Socket(address) => streams::listen(plan, &address, stop, &tell).await,
            #[cfg(feature = "loro")]
            At::Loro(address) => crate::loro::listen(plan, &address, stop, &tell).await,
            #[cfg(feature = "nats")]
            At::Nats(address) => nats::listen(plan, &address, stop, &tell).await,
            #[cfg(feature = "nostr")]
            At::Relays(address) => relays::listen(plan, &address, stop, &tell).await,
            #[cfg(feature = "process")]
            At::Stdio | At::Exec(_) => once(&plan, stop).await,
        }
    }
}

/// The one session over the standard streams of this process.
#[cfg(feature = "process")]
async fn once(plan: &Plan, stop: &Stop) -> Result<(), RunError> {
    let failed = |side| move |error| RunError::Open { side, error };
    let watched = plan.watched.arrived("stdio:");
    let (listen_end, to_end) = plan.session_ends(&watched);
    let to = tokio::select! {
        to = open::target(&to_end) => to.map_err(failed(Side::To))?,
        () = stop.stopped() => return Ok(()),
    };
    // The standard input is opened last: what is read from it cannot be put back.
    let listen = open::stdio(&listen_end).map_err(failed(Side::Listen))?;
    plan.watched.listening("stdio:");
    let end = pump(plan, listen, to, stop, &watched)
        .instrument(tracing::error_span!("session", session = %watched.id()))
        .await;
    match end.ended.is_clean() {
        true => Ok(()),
        false => Err(RunError::Session(end)),
    }
}

/// Carries the messages of one session until it ends, and logs how.
pub(crate) async fn pump(
    plan: &Plan,
    listen: Opened,
    to: Opened,
    stop: &Stop,
    watched: &SessionWatch,
) -> SessionEnd {
    let live = watched.started(&listen, &to);
    let passing = open::passing(plan, &listen, &to);
    #[cfg(feature = "otlp")]
    let passing = match &plan.traces {
        Some(traces) => traces.of_session(watched.id().as_str(), listen.port.budget(), passing),
        None => passing,
    };
    let options = Options { grace: plan.grace };
    let stopped = async {
        tokio::select! {
            () = stop.stopped() => {
                plan.watched.stopping();
                Stopped::Gateway
            }
            () = watched.closed() => Stopped::Operator,
        }
    };
    let (listen, to) = (listen.port, to.port);
    let ended = relay_watched(listen, to, passing, stopped, options, watched).await;
    let end = SessionEnd {
        party: party(plan, ended.side),
        ended,
    };
    #[cfg(feature = "process")]
    let is_only = matches!(plan.listen.at, At::Stdio);
    #[cfg(not(feature = "process"))]
    let is_only = false;
    live.ended(&end, is_only);
    end
}

/// The program at an end.
fn party(plan: &Plan, side: Side) -> Party {
    let at = match side {
        Side::Listen => &plan.listen.at,
        Side::To => &plan.to.at,
    };
    match (at, side) {
        #[cfg(feature = "process")]
        (At::Stdio, _) => Party::StandardStreams,
        #[cfg(feature = "process")]
        (At::Exec(_), _) => Party::Command,
        (_, Side::Listen) => Party::Client,
        #[cfg(feature = "nostr")]
        (At::Relays(_), Side::To) => Party::Server,
        (_, Side::To) => Party::Target,
    }
}

/// A way for clients to come in: a listener of one kind.
pub(crate) trait Door {
    /// Whether it listens on until all sessions have ended: over HTTP they need further requests.
    const LISTENS_TO_THE_END: bool = false;

    /// The next client. Cancel-safe.
    async fn accept(&mut self) -> Result<Arrival, RunError>;

    /// Stops accepting clients.
    async fn close(&mut self);

    /// Closes the listener after all sessions have ended.
    async fn finish(self);
}

/// A client that was accepted, and has no session yet.
pub(crate) struct Arrival {
    /// Its name in the log.
    pub(crate) name: String,
    /// Who the client is: only the same client may resume a session of a tunnel.
    pub(crate) caller: Caller,
    /// Makes a port or a line of the client's connection, with the memory of its session.
    pub(crate) open: OpenArrival,
}

/// What kind of program a client is.
pub(crate) enum Entered {
    /// A gateway: its first frame says whether it begins a session or goes on with one.
    Line(Line),
    /// Another program, and how it is turned away.
    Port(Box<Opened>, Refuse),
}

/// How a client is let in.
pub(crate) type OpenArrival = Box<dyn FnOnce(&End) -> Result<Entered, OpenError> + Send>;

/// Turns a client away, with a close code and a reason, while its session has not begun.
pub(crate) type Refuse =
    Box<dyn FnOnce(u16, &str) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send>;

/// Serves clients that come in by a door, each in a session; clients find the door at `heard_at`.
pub(crate) async fn listen<D: Door>(
    plan: Arc<Plan>,
    mut door: D,
    heard_at: String,
    stop: &Stop,
    tell: Tell<'_>,
) -> Result<(), RunError> {
    // Another machine must replace HOST by a name or an address of this one.
    let address = heard_at
        .replace("//0.0.0.0:", "//HOST:")
        .replace("//[::]:", "//HOST:");
    // It is set once: a plan is run once.
    let _ = plan.heard_at.set(address);
    plan.watched.listening(&heard_at);
    tell(Event::Listening(heard_at));
    let mut sessions = JoinSet::new();
    let outcome = loop {
        tokio::select! {
            arrival = door.accept() => match arrival {
                Ok(arrival) => {
                    let (plan, stop) = (plan.clone(), stop.clone());
                    let watched = plan.watched.arrived(&arrival.name);
                    let span = tracing::error_span!(
                        "session",
                        peer = %arrival.name,
                        session = %watched.id()
                    );
                    let session = async move { session(&plan, arrival, &stop, &watched).await };
                    sessions.spawn(session.instrument(span));
                }
                Err(error) => {
                    // The sessions may go on for long, so the failure is shown at once.
                    plan.watched.failed(&error);
                    break Err(error);
                }
            },
            Some(_) = sessions.join_next() => {}
            () = stop.stopped() => break Ok(()),
        }
    };
    plan.watched.stopping();
    door.close().await;
    // A listener that failed has left its address: another one may take it while sessions go on.
    if !D::LISTENS_TO_THE_END || outcome.is_err() {
        tell(Event::Closed);
    }
    finish(sessions, tell).await;
    door.finish().await;
    outcome
}

/// Waits for the sessions of a gateway that stops.
pub(crate) async fn finish(mut sessions: JoinSet<()>, tell: Tell<'_>) {
    if !sessions.is_empty() {
        tell(Event::Stopping(sessions.len()));
    }
    while sessions.join_next().await.is_some() {}
}

/// Checks that the target accepts connections, if the plan says so: before the first client connects.
pub(crate) async fn check_target(plan: &Plan) -> Result<(), RunError> {
    let found = match &plan.to.at {
        _ if !plan.check => Ok(()),
        At::Ws(address) => accepts_web(address).await,
        #[cfg(feature = "http")]
        At::Http(address) | At::Exchange(address) => accepts_web(address).await,
        #[cfg(feature = "process")]
        At::Socket(address) => {
            let found = match address {
                SocketAddress::Tcp(authority) => accepts(authority, false).await,
                #[cfg(unix)]
                SocketAddress::Unix(path) => accepts_unix(path).await,
                #[cfg(not(unix))]
                SocketAddress::Unix(_) => Ok(()),
            };
            found.map_err(|error| OpenError::Unreachable {
                address: address.name(),
                error,
            })
        }
        #[cfg(feature = "loro")]
        At::Loro(address) => {
            let found = accepts(&address.authority, address.secure).await;
            found.map_err(|error| OpenError::Unreachable {
                address: address.authority.clone(),
                error,
            })
        }
        #[cfg(feature = "nats")]
        At::Nats(address) => {
            let found = accepts(&address.server, false).await;
            found.map_err(|error| OpenError::Unreachable {
                address: address.server.clone(),
                error,
            })
        }
        #[cfg(feature = "nostr")]
        At::Relays(address) => relays::check(address).await,
        #[cfg(feature = "process")]
        At::Stdio | At::Exec(_) => Ok(()),
    };
    found.map_err(|error| RunError::Check(error.expecting(open::expected(&plan.to))))
}

/// Whether a server of WebSockets or HTTP accepts connections.
async fn accepts_web(address: &WsAddress) -> Result<(), OpenError> {
    let found = match &address.socket {
        #[cfg(unix)]
        Some(path) => accepts_unix(path).await,
        _ => accepts(&address.authority, address.secure).await,
    };
    found.map_err(|error| OpenError::Unreachable {
        address: address.name(),
        error,
    })
}

/// Whether a server accepts connections there.
pub(crate) async fn accepts(authority: &str, secure: bool) -> Result<(), Unreachable> {
    let with_port = match authority.rsplit_once(':') {
        Some((_, port)) if !port.ends_with(']') => authority.to_owned(),
        _ => format!("{authority}:{}", if secure { 443 } else { 80 }),
    };
    match timeout(CHECK, TcpStream::connect(with_port)).await {
        Ok(connected) => Ok(connected.map(drop)?),
        Err(_) => Err(Unreachable::Silent(CHECK)),
    }
}

/// Whether a server accepts connections at a Unix socket.
#[cfg(unix)]
async fn accepts_unix(path: &std::path::Path) -> Result<(), Unreachable> {
    match timeout(CHECK, tokio::net::UnixStream::connect(path)).await {
        Ok(connected) => Ok(connected.map(drop)?),
        Err(_) => Err(Unreachable::Silent(CHECK)),
    }
}

/// Runs the session of one client, or hands a line to the session that it belongs to.
///
/// What happens only once is awaited in a boxed future: otherwise its room, up to 25 KB, would be kept for as
/// long as the session lasts.
async fn session(plan: &Plan, arrival: Arrival, stop: &Stop, watched: &SessionWatch) {
    let (listen_end, to_end) = plan.session_ends(watched);
    let Arrival { caller, open, .. } = arrival;
    let entered = match open(&listen_end) {
        Ok(entered) => entered,
        Err(error) => {
            watched.refused(Refused::NoStart, &error);
            return tracing::error!(%error, "closed a client: its connection does not fit the options of --listen");
        }
    };
    let config = listen_end.tunnel_config();
    let client = match entered {
        Entered::Port(opened, refuse) => Client::Other(opened, refuse),
        Entered::Line(line) => {
            let greeted = tokio::select! {
                greeted = Box::pin(plan.lobby.greet(line, &caller, &config)) => greeted,
                () = stop.stopped() => return,
            };
            match greeted {
                Ok(Greeted::Newcomer(newcomer)) => Client::Gateway(newcomer),
                Ok(Greeted::Resumed) => return,
                Ok(Greeted::Elsewhere(stray)) => {
                    return Box::pin(elsewhere(plan, stray, &caller, stop)).await;
                }
                Err(error) => {
                    watched.refused(Refused::NoStart, &error);
                    return tracing::error!(%error, "closed a client: it did not begin a session as a breakbulk gateway does");
                }
            }
        }
    };
    if plan.listen.tunnel == TunnelUse::Always && matches!(client, Client::Other(..)) {
        tracing::warn!(
            "refused a client: it is not a breakbulk gateway, and tunnel=always or framing=ipc needs one"
        );
        let reason = "this listener is for breakbulk gateways";
        watched.refused(Refused::NotGateway, reason);
        return Box::pin(client.refuse(1002, reason)).await;
    }
    let _seat = match plan.lobby.seat(caller.address) {
        Ok(seat) => seat,
        Err(full) => {
            tracing::warn!(
                "refused a client: {full} (those that wait for their client to connect again count too)"
            );
            watched.refused(Refused::TooManySessions, full);
            return Box::pin(client.refuse(1013, &full.to_string())).await;
        }
    };
    let to = tokio::select! {
        to = Box::pin(open::target(&to_end)) => to,
        () = stop.stopped() => Err(OpenError::Stopped),
    };
    let to = match to {
        Ok(to) => to,
        Err(OpenError::Stopped) => {
            watched.refused(Refused::Stopping, OpenError::Stopped);
            return Box::pin(client.refuse(1001, "the gateway is stopping")).await;
        }
        Err(error) => {
            watched.refused(Refused::NoTarget, &error);
            tracing::error!(%error, "closed a client: the gateway got no connection to its target (--to)");
            return Box::pin(client.refuse(NO_TARGET, NO_TARGET_REASON)).await;
        }
    };
    let listen = match client {
        Client::Other(opened, _) => match Box::pin(opened.greeted()).await {
            Ok(opened) => opened,
            Err(error) => {
                watched.refused(Refused::NoStart, &error);
                return tracing::error!(%error, "closed a client: the first exchange of its protocol failed");
            }
        },
        // The hello of the tunnel is sent only once the target is connected.
        Client::Gateway(newcomer) => match Box::pin(newcomer.accept(&config)).await {
            Ok(tunnelled) => Opened::tunnel(tunnelled),
            Err(error) => {
                watched.refused(Refused::NoStart, &error);
                return tracing::error!(%error, "closed a client: no tunnel could be set up with the gateway there");
            }
        },
    };
    tracing::info!(
        listen = listen.kind.name(),
        to = to.kind.name(),
        "session started"
    );
    pump(plan, listen, to, stop, watched).await;
}

/// A line whose session is in another process: a member of the same fleet, if there is one.
#[cfg_attr(
    not(feature = "nats"),
    expect(unused_variables, reason = "only members of a fleet find each other")
)]
async fn elsewhere(plan: &Plan, stray: Stray, caller: &Caller, stop: &Stop) {
    #[cfg(feature = "nats")]
    if let Some(fleet) = plan.fleet.get() {
        return tokio::select! {
            () = fleet.forward(stray, caller) => {}
            // The client goes on by another member.
            () = stop.stopped() => {}
        };
    }
    stray.refuse(Gone::Restarted).await;
}

/// A client whose session has not begun.
enum Client {
    Gateway(Newcomer),
    Other(Box<Opened>, Refuse),
}

impl Client {
    async fn refuse(self, code: u16, reason: &str) {
        match self {
            Self::Gateway(newcomer) => newcomer.refuse(code, reason).await,
            Self::Other(_, refuse) => refuse(code, reason).await,
        }
    }
}

#[cfg(all(test, feature = "process"))]
#[allow(clippy::unwrap_used)]
mod tests;
