//! One session over the standard streams, or as many as come to a listener.

use std::sync::Arc;
use std::time::Duration;

use crate::pump::{Ended, Side};
use breakbulk_link::Closed;
use breakbulk_message::tunnel::TUNNEL;
use breakbulk_net::ws::{Accepted, ListenError, ListenOptions, Listener};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::endpoint::{At, TunnelUse, WsAddress};
use crate::open::{self, Opened};
use crate::plan::Plan;
use crate::relays;
use crate::stop::Stop;

/// How long a look at the target may take.
const CHECK: Duration = Duration::from_secs(5);

/// What a client is told when there is no target for it.
const NO_TARGET: u16 = 1014;

/// Why there is none may name what is no business of strangers: that is for the log.
const NO_TARGET_REASON: &str = "the gateway has no connection to its target; its log says why";

/// What a program that runs a gateway may want to tell its user.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// Programs can connect now, at this address.
    Listening(String),
    /// What was asked for of an end and does not count, in words.
    Overruled(Side, String),
    /// The gateway stops; so many sessions still have something to send.
    Stopping(usize),
}

/// Why a gateway ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// Something must be mended first.
    #[error("{0}")]
    Setup(String),
    /// What had begun could not be finished.
    #[error("{0}")]
    Session(String),
}

impl Plan {
    /// Runs the gateway until its one session ends or, where it listens, until `stop` says so.
    ///
    /// # Errors
    /// If it cannot begin, or the one session fails.
    pub async fn run(
        self,
        stop: &Stop,
        tell: impl Fn(Event) + Send + Sync,
    ) -> Result<(), RunError> {
        self.to.check_command().map_err(RunError::Setup)?;
        for (side, end) in [(Side::Listen, &self.listen), (Side::To, &self.to)] {
            if let Some(words) = &end.overruled {
                tell(Event::Overruled(side, words.clone()));
            }
        }
        match &self.listen.at {
            At::Ws(address) => {
                let address = address.clone();
                listen(Arc::new(self), &address, stop, &tell).await
            }
            At::Nostr(address) => {
                let address = address.clone();
                relays::listen(Arc::new(self), &address, stop, &tell).await
            }
            _ => once(&self, stop).await,
        }
    }
}

/// The one session over our own standard streams.
async fn once(plan: &Plan, stop: &Stop) -> Result<(), RunError> {
    let unreachable = |error: String| RunError::Setup(format!("--to: {error}"));
    let target = async {
        open::target(&plan.to)
            .await
            .map_err(unreachable)?
            .greeted(&plan.to)
            .await
            .map_err(unreachable)
    };
    let to = tokio::select! {
        to = target => to?,
        () = stop.stopped() => return Ok(()),
    };
    // Only now: what is read from the standard input cannot be put back.
    let listen = open::stdio(&plan.listen).map_err(RunError::Session)?;
    let client = to.client.clone();
    let ended = pump(plan, listen, to, stop.stopped()).await;
    let unsent = client.map_or(0, |client| client.stats().outgoing);
    match unsent {
        _ if !ended.is_clean() => Err(RunError::Session(told(plan, &ended))),
        0 => Ok(()),
        unsent => Err(RunError::Session(format!(
            "{unsent} messages did not reach a relay in the {} s that there were; raise --grace",
            plan.grace.as_secs()
        ))),
    }
}

pub(crate) async fn pump(
    plan: &Plan,
    listen: Opened,
    to: Opened,
    stop: impl Future<Output = ()> + Send,
) -> Ended {
    let passing = open::passing(plan, listen.face, to.face);
    let options = crate::pump::Options { grace: plan.grace };
    tracing::debug!(listen = ?listen.face, to = ?to.face, "a session begins");
    crate::pump::relay(listen.port, to.port, passing, stop, options).await
}

/// The end of a session in words.
pub(crate) fn told(plan: &Plan, ended: &Ended) -> String {
    let Ended {
        side,
        closed: Closed { code, reason },
        lost,
        ..
    } = ended;
    let (at, is_listen) = match side {
        Side::Listen => (&plan.listen.at, true),
        Side::To => (&plan.to.at, false),
    };
    let other = match at {
        At::Stdio => "the program at the standard streams",
        At::Exec(_) => "the command",
        At::Ws(_) | At::Nostr(_) if is_listen => "the client",
        At::Ws(_) => "the target",
        At::Nostr(_) => "the server",
    };
    let who = match ended.by_peer {
        true => format!("{other} closed"),
        false => format!("this gateway closed its connection to {other}"),
    };
    let reason = match reason.as_str() {
        "" => String::new(),
        reason => format!(": {reason}"),
    };
    let lost = match lost {
        0 => String::new(),
        1 => "; 1 message did not go out".to_owned(),
        lost => format!("; {lost} messages did not go out"),
    };
    format!("{who} with {code}{reason}{lost}")
}

/// A session for each that comes.
async fn listen(
    plan: Arc<Plan>,
    address: &WsAddress,
    stop: &Stop,
    tell: &(dyn Fn(Event) + Send + Sync),
) -> Result<(), RunError> {
    if plan.check {
        reachable(&plan).await?;
    }
    let mut listener = bind(&plan, address).await?;
    tell(Event::Listening(format!(
        "{}://{}{}",
        address.scheme(),
        listener.local_addr(),
        shown(address)
    )));
    let mut sessions = JoinSet::new();
    let outcome = loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok(accepted) => {
                    let (plan, stop) = (plan.clone(), stop.clone());
                    sessions.spawn(async move { session(&plan, accepted, &stop).await });
                }
                Err(error) => break Err(RunError::Session(error.to_string())),
            },
            Some(_) = sessions.join_next() => {}
            () = stop.stopped() => break Ok(()),
        }
    };
    drop(listener);
    if !sessions.is_empty() {
        tell(Event::Stopping(sessions.len()));
    }
    while sessions.join_next().await.is_some() {}
    outcome
}

/// The path, where there is more than the root.
fn shown(address: &WsAddress) -> &str {
    if address.path == "/" {
        ""
    } else {
        &address.path
    }
}

async fn bind(plan: &Plan, address: &WsAddress) -> Result<Listener, RunError> {
    let end = &plan.listen;
    let usage = |error: String| RunError::Setup(format!("--listen: {error}"));
    let (host, port) = address.listen_at().map_err(usage)?;
    let options = ListenOptions {
        bearer: end.token.clone(),
        path: (address.path != "/").then(|| address.path.clone()),
        subprotocols: open::subprotocols(end),
        connections: plan.max_sessions,
        frame_limit: end.frame_limit(),
        fragment: end.fragment,
        identity: end.identity.clone().filter(|_| address.secure),
        ..ListenOptions::default()
    };
    let named = match host.contains(':') {
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    };
    Listener::bind((host.as_str(), port), options)
        .await
        .map_err(|error| match error {
            ListenError::Bind { error, .. } => usage(format!(
                "cannot listen at {named}: {error}; is another program there, or is it not ours?"
            )),
            error => usage(error.to_string()),
        })
}

/// Looks whether somebody is at the target: better now than when the first client is there.
pub(crate) async fn reachable(plan: &Plan) -> Result<(), RunError> {
    let (at, found) = match &plan.to.at {
        At::Ws(address) => (
            address.authority.clone(),
            answers(&address.authority, address.secure).await,
        ),
        At::Nostr(address) => (
            address.relays.join(","),
            relays::some_relay_answers(address).await,
        ),
        At::Stdio | At::Exec(_) => return Ok(()),
    };
    found.map_err(|what| {
        RunError::Setup(format!(
            "--to: {at} cannot be reached: {what}; start it first, check the address, or give --no-check"
        ))
    })
}

/// Whether somebody takes connections there.
pub(crate) async fn answers(authority: &str, secure: bool) -> Result<(), String> {
    let with_port = match authority.rsplit_once(':') {
        Some((_, port)) if !port.ends_with(']') => authority.to_owned(),
        _ => format!("{authority}:{}", if secure { 443 } else { 80 }),
    };
    match timeout(CHECK, TcpStream::connect(with_port)).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("no answer within {} s", CHECK.as_secs())),
    }
}

async fn session(plan: &Plan, accepted: Accepted, stop: &Stop) {
    let peer = accepted.peer;
    let must_tunnel = plan.listen.tunnel == TunnelUse::Always;
    let is_tunnel = accepted.subprotocol() == Some(TUNNEL);
    let listen = match open::web_socket(&plan.listen, accepted.websocket) {
        Ok(listen) => listen,
        Err(error) => return tracing::error!(%peer, error, "no session"),
    };
    let client = listen.port.connection.clone();
    if must_tunnel && !is_tunnel {
        tracing::warn!(%peer, "a client is refused: it is no breakbulk gateway, and tunnel=always");
        client.close(
            1002,
            "this listener is for breakbulk gateways (tunnel=always)",
        );
        client.ended().await;
        return;
    }
    // The client's gateway hears nothing before there is a target: until then nothing has begun.
    let both = async {
        let to = open::target(&plan.to).await?.greeted(&plan.to).await?;
        Ok::<_, String>((listen.greeted(&plan.listen).await?, to))
    };
    let opened = tokio::select! {
        opened = both => opened,
        () = stop.stopped() => {
            client.close(1001, "the gateway stops");
            client.ended().await;
            return;
        }
    };
    let (listen, to) = match opened {
        Ok(opened) => opened,
        Err(error) => {
            tracing::error!(%peer, error, "no session");
            client.close(NO_TARGET, NO_TARGET_REASON);
            client.ended().await;
            return;
        }
    };
    drop(client);
    tracing::info!(%peer, face = ?listen.face, "a session begins");
    let ended = pump(plan, listen, to, stop.stopped()).await;
    if ended.is_clean() {
        tracing::info!(%peer, "{}", told(plan, &ended));
    } else {
        tracing::error!(%peer, "{}", told(plan, &ended));
    }
}
