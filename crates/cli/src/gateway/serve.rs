//! One session over the standard streams, or as many as come to a listener.

use std::sync::Arc;
use std::time::Duration;

use breakbulk::gateway::{self, Ended};
use breakbulk::link::Closed;
use breakbulk::message::ahp::TUNNEL;
use breakbulk::net::ws::{Accepted, ListenError, ListenOptions, Listener};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::nostr;
use super::open::{self, Opened};
use super::plan::Plan;
use crate::endpoint::{At, TunnelUse, WsAddress};
use crate::failure::Failure;
use crate::signals::Stop;

/// How long a look at the target may take.
const CHECK: Duration = Duration::from_secs(5);

/// What a client is told when there is no target for it.
const NO_TARGET: u16 = 1014;

/// Why there is none may name what is no business of strangers: that is for the log.
const NO_TARGET_REASON: &str = "the gateway has no connection to its target; its log says why";

pub(crate) async fn serve(plan: Plan) -> Result<(), Failure> {
    let stop = Stop::on_signals().map_err(|error| Failure::Io("signals".to_owned(), error))?;
    plan.to.check_command().map_err(Failure::Usage)?;
    for (option, end) in [("--listen", &plan.listen), ("--to", &plan.to)] {
        if let Some(words) = &end.overruled {
            tracing::warn!("{option}: {words}");
        }
    }
    let insisted = stop.insisted();
    let work = async {
        match &plan.listen.at {
            At::Ws(address) => {
                let address = address.clone();
                listen(Arc::new(plan), &address, &stop).await
            }
            At::Nostr(address) => {
                let address = address.clone();
                nostr::listen(Arc::new(plan), &address, &stop).await
            }
            _ => once(&plan, &stop).await,
        }
    };
    tokio::select! {
        outcome = work => outcome,
        () = insisted => Err(Failure::Session("stopped at once by a second signal".to_owned())),
    }
}

/// The one session over our own standard streams.
async fn once(plan: &Plan, stop: &Stop) -> Result<(), Failure> {
    let unreachable = |error: String| Failure::Usage(format!("--to: {error}"));
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
        () = stop.asked() => return Ok(()),
    };
    // Only now: what is read from the standard input cannot be put back.
    let listen = open::stdio(&plan.listen).map_err(Failure::Session)?;
    let client = to.client.clone();
    let ended = pump(plan, listen, to, stop.asked()).await;
    let unsent = client.map_or(0, |client| client.stats().outgoing);
    match unsent {
        _ if !ended.is_clean() => Err(Failure::Session(told(plan, &ended))),
        0 => Ok(()),
        unsent => Err(Failure::Session(format!(
            "{unsent} messages did not reach a relay in the {} s that there were; raise --grace",
            plan.grace.as_secs()
        ))),
    }
}

pub(super) async fn pump(
    plan: &Plan,
    listen: Opened,
    to: Opened,
    stop: impl Future<Output = ()> + Send,
) -> Ended {
    let passing = open::passing(plan, listen.face, to.face);
    let options = gateway::Options { grace: plan.grace };
    tracing::debug!(listen = ?listen.face, to = ?to.face, "a session begins");
    gateway::relay(listen.port, to.port, passing, stop, options).await
}

/// The end of a session in words.
pub(super) fn told(plan: &Plan, ended: &Ended) -> String {
    let Ended {
        side,
        closed: Closed { code, reason },
        lost,
        ..
    } = ended;
    let (at, is_listen) = match side {
        gateway::Side::Listen => (&plan.listen.at, true),
        gateway::Side::To => (&plan.to.at, false),
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
async fn listen(plan: Arc<Plan>, address: &WsAddress, stop: &Stop) -> Result<(), Failure> {
    if plan.check {
        reachable(&plan).await?;
    }
    let mut listener = bind(&plan, address).await?;
    eprintln!(
        "listening on {}://{}{}",
        address.scheme(),
        listener.local_addr(),
        shown(address)
    );
    let mut sessions = JoinSet::new();
    let outcome = loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok(accepted) => {
                    let (plan, stop) = (plan.clone(), stop.clone());
                    sessions.spawn(async move { session(&plan, accepted, &stop).await });
                }
                Err(error) => break Err(Failure::Session(error.to_string())),
            },
            Some(_) = sessions.join_next() => {}
            () = stop.asked() => break Ok(()),
        }
    };
    drop(listener);
    if !sessions.is_empty() {
        tracing::info!(
            sessions = sessions.len(),
            "stopping: what is queued goes out; another signal after a second stops at once"
        );
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

async fn bind(plan: &Plan, address: &WsAddress) -> Result<Listener, Failure> {
    let end = &plan.listen;
    let usage = |error: String| Failure::Usage(format!("--listen: {error}"));
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
pub(super) async fn reachable(plan: &Plan) -> Result<(), Failure> {
    let (at, found) = match &plan.to.at {
        At::Ws(address) => (
            address.authority.clone(),
            answers(&address.authority, address.secure).await,
        ),
        At::Nostr(address) => (
            address.relays.join(","),
            nostr::some_relay_answers(address).await,
        ),
        At::Stdio | At::Exec(_) => return Ok(()),
    };
    found.map_err(|what| {
        Failure::Usage(format!(
            "--to: {at} cannot be reached: {what}; start it first, check the address, or give --no-check"
        ))
    })
}

/// Whether somebody takes connections there.
pub(super) async fn answers(authority: &str, secure: bool) -> Result<(), String> {
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
        () = stop.asked() => {
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
    let ended = pump(plan, listen, to, stop.asked()).await;
    if ended.is_clean() {
        tracing::info!(%peer, "{}", told(plan, &ended));
    } else {
        tracing::error!(%peer, "{}", told(plan, &ended));
    }
}
