//! A command, or another target, for each client that asks by our key.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex as Lock, MutexGuard, PoisonError};
use std::time::Duration;

use breakbulk_contextvm::{PublicKey, Server, Session, npub};
use breakbulk_link::Closed;
use breakbulk_message::jsonrpc;
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::bind;
use super::introduce::{Introductions, introduce};
use super::port::SessionLine;
use super::session::Life;
use crate::endpoint::RelayAddress;
use crate::error::{OpenError, RunError};
use crate::open::{self, Face, Opened};
use crate::plan::Plan;
use crate::pump::{Port, Side};
use crate::serve::{Event, Tell, check_target, finish, log_end, pump, target};
use crate::stop::Stop;

/// Silent for so long, a session makes room for another where there is none.
const MAKES_ROOM: Duration = Duration::from_secs(60);

/// How long a newcomer waits for that room.
const WAIT_FOR_ROOM: Duration = Duration::from_secs(15);

/// What all sessions share.
struct House {
    plan: Arc<Plan>,
    server: Server,
    stop: Stop,
    places: Arc<Semaphore>,
    idle: Duration,
    lives: Lock<BTreeMap<PublicKey, Arc<Life>>>,
    introductions: Lock<Introductions>,
}

/// Serves until it is stopped.
pub(crate) async fn listen(
    plan: Arc<Plan>,
    address: &RelayAddress,
    stop: &Stop,
    tell: Tell<'_>,
) -> Result<(), RunError> {
    check_target(&plan).await?;
    let (server, end) = tokio::select! {
        bound = bind(&plan.listen, address) => bound.map_err(|error| RunError::Open {
            side: Side::Listen,
            error,
        })?,
        () = stop.stopped() => return Ok(()),
    };
    tell(Event::Listening(address.of_server(&server.public_key())));
    let house = Arc::new(House {
        places: Arc::new(Semaphore::new(plan.max_sessions)),
        idle: end.idle(),
        stop: stop.clone(),
        server: server.clone(),
        lives: Lock::default(),
        introductions: Lock::default(),
        plan,
    });
    let mut coming = server.sessions();
    let mut sessions = JoinSet::new();
    let outcome = loop {
        tokio::select! {
            session = coming.recv() => match session {
                Some(session) => house.open(session, &mut sessions),
                None => break Err(RunError::RelaysEnded),
            },
            Some(_) = sessions.join_next() => {}
            () = stop.stopped() => break Ok(()),
        }
    };
    finish(sessions, tell).await;
    if timeout(house.plan.grace, server.drained()).await.is_err() {
        tracing::error!(
            messages = server.stats().outgoing,
            "messages did not reach a relay in time"
        );
    }
    server.close();
    outcome
}

impl House {
    /// Begins a session; one that its client left behind ends first.
    fn open(self: &Arc<Self>, session: Session, sessions: &mut JoinSet<()>) {
        let (peer, life) = (session.peer, Arc::new(Life::new()));
        let before = self.lives().insert(peer, life.clone());
        if let Some(before) = before.as_ref().filter(|_| session.initializes) {
            before.abandon();
        }
        let house = self.clone();
        sessions.spawn(async move {
            if let Some(before) = before {
                before.over().await;
            }
            let session = Arc::new(Mutex::new(session));
            house.serve(&session, peer, &life).await;
            let mut lives = house.lives();
            if lives
                .get(&peer)
                .is_some_and(|last| Arc::ptr_eq(last, &life))
            {
                lives.remove(&peer);
            }
            life.mark_over();
        });
    }

    async fn serve(&self, session: &Arc<Mutex<Session>>, peer: PublicKey, life: &Arc<Life>) {
        if life.is_abandoned() {
            return;
        }
        let who = npub(&peer);
        let Some(_place) = self.place().await else {
            tracing::warn!(
                peer = who,
                "a client is refused: all {} sessions are in use",
                self.plan.max_sessions
            );
            let why = "the server has no room for another client; try again later";
            return self.answer_all(session, peer, life, "busy", why).await;
        };
        let opened = tokio::select! {
            opened = self.target(session, peer) => opened,
            () = self.stop.stopped() => Err(OpenError::Stopped),
        };
        let to = match opened {
            Ok(to) => to,
            Err(error) => {
                tracing::error!(peer = who, %error, "a client is sent away: the session cannot begin");
                let why = "the gateway has no connection to its server; its log says why";
                return self.answer_all(session, peer, life, "noServer", why).await;
            }
        };
        tracing::info!(peer = who, "a session begins");
        let line = SessionLine {
            session: session.clone(),
            server: self.server.clone(),
            peer,
            life: life.clone(),
            idle: self.idle,
        };
        let connection = match open::whole_messages(&self.plan.listen, line) {
            Ok(connection) => connection,
            Err(error) => return tracing::error!(peer = who, %error, "no session"),
        };
        let listen = Opened {
            face: Face::Whole,
            port: Port::new(connection),
        };
        let end = pump(&self.plan, listen, to, &self.stop).await;
        log_end(&who, &end);
        if let Some(text) = life.take_initialize() {
            self.introductions().keep(peer, text);
        }
        let why = format!("the server has ended: {}", reason(&end.ended.closed));
        self.answer_all(session, peer, life, "serverEnded", &why)
            .await;
    }

    /// A place among the sessions, where need be of one that nobody uses.
    async fn place(&self) -> Option<OwnedSemaphorePermit> {
        if let Ok(place) = self.places.clone().try_acquire_owned() {
            return Some(place);
        }
        let idle = {
            let lives = self.lives();
            let idle = lives
                .values()
                .filter_map(|life| Some((life.idle()?, life.clone())));
            idle.max_by_key(|(silent, _)| *silent)
        };
        let (_, life) = idle.filter(|(silent, _)| *silent >= MAKES_ROOM)?;
        life.end();
        let place = timeout(WAIT_FOR_ROOM, self.places.clone().acquire_owned()).await;
        place.ok()?.ok()
    }

    /// A target that is ready for what this client says next.
    async fn target(&self, session: &Mutex<Session>, peer: PublicKey) -> Result<Opened, OpenError> {
        let opened = target(&self.plan).await?;
        let initializes = session.lock().await.initializes;
        if !initializes && matches!(opened.face, Face::Whole | Face::Tunnel) {
            let before = self.introductions().of(&peer);
            introduce(&opened.port.connection, before).await?;
        }
        Ok(opened)
    }

    /// Whatever this client waits for, and whatever it said that nobody took, has an answer: an error.
    async fn answer_all(
        &self,
        session: &Mutex<Session>,
        peer: PublicKey,
        life: &Life,
        word: &str,
        why: &str,
    ) {
        let mut session = session.lock().await;
        session.close();
        while let Some(message) = session.recv().await {
            life.heard(&message.bytes);
        }
        let data = format!(r#"{{"reason":"{word}"}}"#);
        for id in life.take_owed() {
            let answer = jsonrpc::error(Some(&id), -32000, why, Some(&data));
            if let Err(error) = self.server.send(peer, answer).await {
                tracing::debug!(%error, "an answer is dropped");
            }
        }
    }

    fn lives(&self) -> MutexGuard<'_, BTreeMap<PublicKey, Arc<Life>>> {
        self.lives.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn introductions(&self) -> MutexGuard<'_, Introductions> {
        self.introductions
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why it ended, for strangers: how a connection was lost is for the log.
fn reason(closed: &Closed) -> &str {
    match closed.code {
        1000..=1003 | 1007..=1014 if !closed.reason.is_empty() => &closed.reason,
        _ => "its connection was lost",
    }
}
