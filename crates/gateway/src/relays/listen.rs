//! A listener at relays: each client that sends to its key gets a session with a target of its own.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex as Lock, MutexGuard, OnceLock};
use std::time::Duration;

use breakbulk_contextvm::{PublicKey, Server, Session, npub};
use breakbulk_link::lock;
use breakbulk_message::jsonrpc;
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tracing::Instrument;

use super::bind;
use super::clients::KnownClients;
use super::introduce::{Introductions, initialize_params, introduce};
use super::port::SessionPort;
use super::session::SessionState;
use crate::endpoint::RelayAddress;
use crate::error::{OpenError, RunError};
use crate::open::{self, EndKind, Opened};
use crate::plan::Plan;
use crate::pump::{Channel, Port, Side};
use crate::serve::{Event, Tell, check_target, finish, pump};
use crate::stop::Stop;
use crate::watch::{Refused, SessionWatch};

/// A session that was silent for this long ends when another client needs its place.
const MAKES_ROOM: Duration = Duration::from_secs(60);

/// How long a new client waits until such a session has ended.
const WAIT_FOR_ROOM: Duration = Duration::from_secs(15);

/// How often at most a refused client is logged.
const TELL_REFUSED: Duration = Duration::from_secs(10);

/// The code of the errors by which open requests are answered when their session ends.
const SESSION_ENDED: i32 = -32000;

/// A server at relays, and its sessions.
struct RelayListener {
    plan: Arc<Plan>,
    server: Server,
    stop: Stop,
    /// A permit for each session.
    places: Arc<Semaphore>,
    /// A permit for each session of an unknown client.
    strangers: Arc<Semaphore>,
    /// Whether only clients of a list are served, so that none of them is unknown.
    listed: bool,
    known: KnownClients,
    /// A session ends after this much time without a message.
    idle: Duration,
    /// The latest session of each client.
    sessions: Lock<BTreeMap<PublicKey, Arc<SessionState>>>,
    introductions: Lock<Introductions>,
    /// When the log was last told that an unknown and that a known client was refused.
    told_refused: Lock<[Option<Instant>; 2]>,
}

/// Serves clients until it is stopped.
pub(crate) async fn listen(
    plan: Arc<Plan>,
    address: &RelayAddress,
    stop: &Stop,
    tell: Tell<'_>,
) -> Result<(), RunError> {
    check_target(&plan).await?;
    let relay = plan.listen.relay.as_ref();
    let known = KnownClients::beside(relay.and_then(|relay| relay.file.as_deref()));
    let (server, end) = tokio::select! {
        bound = bind(&plan.listen, address, &known) => bound.map_err(|error| RunError::Open {
            side: Side::Listen,
            error,
        })?,
        () = stop.stopped() => return Ok(()),
    };
    let heard_at = address.of_server(&server.public_key());
    plan.watched.listening(&heard_at);
    tell(Event::Listening(heard_at));
    let listener = Arc::new(RelayListener {
        places: Arc::new(Semaphore::new(plan.max_sessions)),
        strangers: Arc::new(Semaphore::new(strangers(plan.max_sessions))),
        listed: end.options.allow.is_some(),
        known,
        idle: end.idle(),
        stop: stop.clone(),
        server: server.clone(),
        sessions: Lock::default(),
        introductions: Lock::default(),
        told_refused: Lock::default(),
        plan,
    });
    let mut coming = server.sessions();
    let mut tasks = JoinSet::new();
    let outcome = loop {
        tokio::select! {
            session = coming.recv() => match session {
                Some(session) => listener.open(session, &mut tasks),
                None => break Err(RunError::RelaysEnded),
            },
            Some(_) = tasks.join_next() => {}
            () = stop.stopped() => break Ok(()),
        }
    };
    listener.plan.watched.stopping();
    finish(tasks, tell).await;
    if timeout(end.grace, server.drained()).await.is_err() {
        tracing::error!(
            messages = server.stats().outgoing,
            "messages did not reach a relay within the grace time of {} s; raise --grace",
            end.grace.as_secs()
        );
    }
    server.close();
    outcome
}

impl RelayListener {
    /// Begins a session. The session that its client had before ends first.
    fn open(self: &Arc<Self>, session: Session, tasks: &mut JoinSet<()>) {
        let peer = session.peer;
        self.known.seen(peer, Instant::now());
        let known = self.listed || self.known.contains(&peer);
        let state = Arc::new(SessionState::new(known));
        let before = self.sessions().insert(peer, state.clone());
        if let Some(before) = before.as_ref().filter(|_| session.initializes) {
            before.abandon();
        }
        let listener = self.clone();
        let watched = listener.plan.watched.arrived(&npub(&peer));
        let span = tracing::error_span!("session", peer = npub(&peer), session = %watched.id());
        let task = async move {
            if let Some(before) = before {
                before.over().await;
            }
            let session = Arc::new(Mutex::new(session));
            listener.serve(&session, peer, &state, &watched).await;
            listener.known.seen(peer, Instant::now());
            let mut sessions = listener.sessions();
            let latest = sessions.get(&peer);
            if latest.is_some_and(|latest| Arc::ptr_eq(latest, &state)) {
                sessions.remove(&peer);
            }
            state.mark_over();
        };
        tasks.spawn(task.instrument(span));
    }

    async fn serve(
        &self,
        session: &Arc<Mutex<Session>>,
        peer: PublicKey,
        state: &Arc<SessionState>,
        watched: &SessionWatch,
    ) {
        if state.is_abandoned() {
            return;
        }
        let Some(_place) = self.place(state.known).await else {
            self.tell_refused(state.known);
            let share = self.share(state.known);
            let why = format!("all {share} sessions are in use (--max-sessions): try again later");
            watched.refused(Refused::TooManySessions, &why);
            return self.answer_all(session, peer, state, "busy", &why).await;
        };
        let opened = tokio::select! {
            opened = self.target(session, peer, watched) => opened,
            () = self.stop.stopped() => Err(OpenError::Stopped),
        };
        let to = match opened {
            Ok(to) => to,
            Err(error) => {
                watched.refused(refused(&error), &error);
                tracing::error!(%error, "refused a client: the gateway got no connection to its target (--to)");
                let why = "the gateway has no connection to its server; its log says why";
                return self.answer_all(session, peer, state, "noServer", why).await;
            }
        };
        tracing::info!(to = to.kind.name(), "session started");
        let port = SessionPort {
            session: session.clone(),
            server: self.server.clone(),
            peer,
            state: state.clone(),
            idle: self.idle,
            ending: AtomicBool::new(false),
            closed: OnceLock::new(),
        };
        let listen = Opened::whole(Port::of(Channel::Session(port)));
        let end = pump(&self.plan, listen, to, &self.stop, watched).await;
        if let Some(text) = state.take_initialize() {
            self.introductions().keep(peer, text);
        }
        // The log says how the target ended, which is not for clients; that the gateway stops may be told.
        let why = match end.ended.closed.code == 1001 && !end.ended.by_peer {
            true => "the server has ended: the gateway is stopping",
            false => "the server has ended",
        };
        self.answer_all(session, peer, state, "serverEnded", why)
            .await;
    }

    /// How many sessions known, or unknown, clients may have.
    fn share(&self, known: bool) -> usize {
        let most = self.plan.max_sessions;
        if known { most } else { strangers(most) }
    }

    /// Logs that a client is refused, not for each of many: anybody can cause it.
    fn tell_refused(&self, known: bool) {
        let now = Instant::now();
        let told = &mut lock(&self.told_refused)[usize::from(known)];
        if told.is_some_and(|told| now.duration_since(told) < TELL_REFUSED) {
            return;
        }
        *told = Some(now);
        let most = self.plan.max_sessions;
        let share = self.share(known);
        if share == most {
            tracing::warn!(
                "refused a client: all {most} sessions are in use; raise --max-sessions"
            );
        } else {
            tracing::warn!(
                "refused an unknown client: all {share} sessions for unknown clients, of {most} in all, are in use; raise --max-sessions, or list the client's key with allow= or in the file of known clients"
            );
        }
    }

    /// A place for a session. An unknown client also needs one of the places for unknown clients.
    async fn place(&self, known: bool) -> Option<Place> {
        let stranger = match known {
            true => None,
            false => Some(self.permit(&self.strangers, false).await?),
        };
        Some(Place {
            _place: self.permit(&self.places, known).await?,
            _stranger: stranger,
        })
    }

    /// A permit; if none is free, ends the session that was silent for longest, an unknown client's first,
    /// and waits for its permit. A known client's session is ended only for another known client.
    async fn permit(&self, of: &Arc<Semaphore>, for_known: bool) -> Option<OwnedSemaphorePermit> {
        if let Ok(permit) = of.clone().try_acquire_owned() {
            return Some(permit);
        }
        let silent = {
            let sessions = self.sessions();
            let silent = sessions
                .values()
                .filter(|state| for_known || !state.known)
                .filter_map(|state| Some((state.idle()?, state.clone())))
                .filter(|(silent, _)| *silent >= MAKES_ROOM);
            silent.max_by_key(|(silent, state)| (!state.known, *silent))
        };
        let (_, state) = silent?;
        state.end();
        let permit = timeout(WAIT_FOR_ROOM, of.clone().acquire_owned()).await;
        permit.ok()?.ok()
    }

    /// A target that is ready for the next message of this client.
    async fn target(
        &self,
        session: &Mutex<Session>,
        peer: PublicKey,
        watched: &SessionWatch,
    ) -> Result<Opened, OpenError> {
        let opened = open::target(&self.plan.session_ends(watched).1).await?;
        let initializes = session.lock().await.initializes;
        if !initializes && matches!(opened.kind, EndKind::Whole | EndKind::Tunnel) {
            // Nothing is sent for a client that never sent `initialize`: its version of MCP may have none,
            // and an `initialize` would hold a server of several versions to an old one.
            let before = self.introductions().of(&peer);
            if let Some(params) = before.as_deref().and_then(initialize_params) {
                introduce(&opened.port.channel, &params).await?;
            }
        }
        Ok(opened)
    }

    /// Answers all open requests of this client with an error, those among its unread messages too.
    async fn answer_all(
        &self,
        session: &Mutex<Session>,
        peer: PublicKey,
        state: &SessionState,
        word: &str,
        why: &str,
    ) {
        let mut session = session.lock().await;
        session.close();
        while let Some(message) = session.recv().await {
            state.heard(&message.bytes);
        }
        let data = format!(r#"{{"reason":"{word}"}}"#);
        for id in state.take_open() {
            let answer = jsonrpc::error(Some(&id), SESSION_ENDED, why, Some(&data));
            if let Err(error) = self.server.send(peer, answer).await {
                tracing::debug!(id, %error, "an open request could not be answered with an error");
            }
        }
    }

    fn sessions(&self) -> MutexGuard<'_, BTreeMap<PublicKey, Arc<SessionState>>> {
        lock(&self.sessions)
    }

    fn introductions(&self) -> MutexGuard<'_, Introductions> {
        lock(&self.introductions)
    }
}

fn refused(error: &OpenError) -> Refused {
    match error {
        OpenError::Stopped => Refused::Stopping,
        _ => Refused::NoTarget,
    }
}

/// A place that a session has until it ends.
struct Place {
    _place: OwnedSemaphorePermit,
    _stranger: Option<OwnedSemaphorePermit>,
}

/// How many sessions unknown clients may have: a quarter is left for known ones. Anybody can make any
/// number of keys.
fn strangers(max_sessions: usize) -> usize {
    max_sessions - max_sessions / 4
}
