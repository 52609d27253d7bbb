//! Several gateways behind one load balancer, which share a NATS: a fleet. A client that comes back to
//! another member than the one that has its session goes on there.
//!
//! A session lives in one member: its command or its connection to the target cannot be moved, and nothing of
//! it is copied. When a line (one connection of a tunnel) or an HTTP request arrives at another member, that
//! member forwards it over NATS. The session's name says which member has it (`directory.rs` says what
//! follows from that); if that member is dead, the client is told so and begins anew, and never finds a
//! second command behind the old name.
//!
//! What one member sends to another is sealed with the fleet's secret (`seal.rs`): when a line is forwarded,
//! only a member is believed about who the client is.

mod directory;
mod forward;
mod head;
#[cfg(feature = "http")]
mod http;
mod line;
mod member;
mod seal;
mod settings;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use breakbulk_link::{Budget, Frame, Held, lock};
use breakbulk_net::nats::{NatsError, NatsHub, NatsListener, NatsTransport};
use breakbulk_net::{Incoming, Sink, Source, Transport, now};
use tokio::sync::{Semaphore, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{sleep, sleep_until, timeout};
use tracing::Instrument;

pub(crate) use directory::Doubt;
use directory::{Answer, Directory, Step};
use head::{Head, LineHead};
use line::MemberLine;
pub(crate) use member::Member;
pub(crate) use settings::Settings;
pub use settings::{FleetAddress, FleetError};

use crate::error::RunError;
use crate::plan::Plan;
use crate::tunnel::{Greeted, Line};
use crate::watch::SessionWatch;

/// How much may be on its way to one side of a line between two members.
const LINE_WINDOW: usize = 256 << 10;

/// What a line between two members may hold: its window, and one piece more.
const LINE_MEMORY: usize = LINE_WINDOW + line::PIECE_MAX;

/// How many clients may wait at a time until it is known whether a member lives.
const SEARCHES: usize = 64;

/// How long a member may take to answer. Together with the time that a missing member is given
/// (`directory.rs`, `GRACE`) this is less than the 10 seconds that a client waits.
const ASK_TIME: Duration = Duration::from_secs(3);

/// How often to check that a member that lines were forwarded to still lives.
const WATCH: Duration = Duration::from_secs(2);

/// How long another member's first frame may take.
const HEAD_TIME: Duration = Duration::from_secs(10);

/// Requests over HTTP for each session, that may be forwarded at a time.
const REQUESTS: usize = 4;

/// Why a member could not be reached, or did not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unreached {
    /// It is dead: its sessions are gone.
    Dead,
    /// It is not known whether it lives.
    Later(Doubt),
    /// It got the request, and was lost before it answered.
    #[cfg(feature = "http")]
    Lost,
}

/// This member of a fleet.
pub(crate) struct Fleet {
    hub: NatsHub,
    settings: Settings,
    own: Member,
    directory: Mutex<Directory>,
    searches: Semaphore,
    /// How many lines may be forwarded.
    lines: Arc<Semaphore>,
    /// How many requests may be forwarded.
    #[cfg(feature = "http")]
    requests: Arc<Semaphore>,
    budget: Budget,
    /// The members that lines go to, and whether they turned out to be dead.
    watched: Mutex<HashMap<Member, watch::Sender<bool>>>,
    #[cfg(feature = "http")]
    router: std::sync::OnceLock<axum::Router>,
}

/// The task that serves what other members forward; dropping this ends it.
pub(crate) struct Joined(AbortHandle);

impl Drop for Joined {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Makes a gateway a member of its fleet, if it has one.
///
/// # Errors
/// If NATS cannot be reached, or does not let members hear each other.
pub(crate) async fn join(plan: &Arc<Plan>) -> Result<Option<Joined>, RunError> {
    let Some(settings) = plan.fleet_settings.clone() else {
        return Ok(None);
    };
    let sessions = plan.max_sessions;
    let hub = NatsHub::connect(&settings.nats).await;
    let hub = hub.map_err(RunError::Fleet)?;
    let own = plan.lobby.member();
    let subject = settings.subject(own);
    let places = sessions.saturating_mul(1 + REQUESTS);
    let listener = hub.listen(&subject, places).await;
    let listener = listener.map_err(RunError::Fleet)?;
    let fleet = Arc::new(Fleet {
        hub,
        settings,
        own,
        directory: Mutex::new(Directory::new(own)),
        searches: Semaphore::new(SEARCHES),
        lines: Arc::new(Semaphore::new(sessions)),
        #[cfg(feature = "http")]
        requests: Arc::new(Semaphore::new(sessions.saturating_mul(REQUESTS))),
        budget: plan.listen.budget.clone(),
        watched: Mutex::default(),
        #[cfg(feature = "http")]
        router: std::sync::OnceLock::new(),
    });
    let hearing = {
        let (plan, fleet) = (plan.clone(), fleet.clone());
        tokio::spawn(async move { hear(&plan, &fleet, listener).await })
    };
    let joined = Joined(hearing.abort_handle());
    // Check that this member receives what is sent to its own subject: a NATS account may lack the
    // permission.
    let heard = timeout(ASK_TIME, fleet.hub.ask_whether_there(&subject)).await;
    match heard {
        Ok(Ok(())) => {}
        Ok(Err(NatsError::NobodyListens { server, subject })) => {
            return Err(RunError::Fleet(NatsError::Denied {
                server,
                reason: format!("messages to this member's own subject {subject} do not arrive"),
            }));
        }
        Ok(Err(error)) => return Err(RunError::Fleet(error)),
        Err(_) => {
            return Err(RunError::Fleet(NatsError::Silent {
                server: fleet.settings.servers().to_owned(),
                subject,
                after: ASK_TIME,
            }));
        }
    }
    tracing::info!(member = %own, servers = fleet.settings.servers(), "joined the fleet");
    // A plan is run once.
    let _ = plan.fleet.set(fleet);
    Ok(Some(joined))
}

/// Serves what other members forward.
async fn hear(plan: &Arc<Plan>, fleet: &Arc<Fleet>, mut listener: NatsListener) {
    let mut lines = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok(transport) => {
                    let (plan, fleet) = (plan.clone(), fleet.clone());
                    let span = tracing::error_span!("member", line = %transport.name());
                    let serving = async move { fleet.serve(&plan, transport).await };
                    lines.spawn(serving.instrument(span));
                }
                Err(error) => {
                    tracing::error!(%error, "this member has lost the NATS subject by which other members reach it: clients that connect to another member cannot resume sessions of this one; start it again");
                    return while_open(lines).await;
                }
            },
            Some(_) = lines.join_next() => {}
        }
    }
}

async fn while_open(mut lines: JoinSet<()>) {
    while lines.join_next().await.is_some() {}
}

impl Fleet {
    /// Whether there is a connection to NATS at the moment.
    pub(crate) fn is_connected(&self) -> bool {
        self.hub.is_connected()
    }

    /// The memory of one line.
    fn room(&self) -> Option<Held> {
        self.budget.charge(LINE_MEMORY)
    }

    /// Opens a line to another member.
    async fn reach(&self, member: Member) -> Result<MemberLine, Unreached> {
        let search = self.searches.try_acquire();
        let step =
            lock(&self.directory).look_for(now(), member, self.is_connected(), search.is_ok());
        match step {
            Step::Ask => {}
            Step::Later(doubt) => return Err(Unreached::Later(doubt)),
            // The directory answers `Here` for this member's own sessions, and those are never looked for.
            _ => return Err(Unreached::Dead),
        }
        let subject = self.settings.subject(member);
        loop {
            let opened = timeout(ASK_TIME, self.hub.open(&subject)).await;
            let opened = opened.unwrap_or_else(|_| {
                Err(NatsError::Silent {
                    server: self.settings.servers().to_owned(),
                    subject: subject.clone(),
                    after: ASK_TIME,
                })
            });
            let answer = self.answer_of(&opened);
            let step = lock(&self.directory).answered(now(), member, answer);
            match (step, opened) {
                (Step::Forward, Ok(transport)) => {
                    let line = MemberLine::new(transport, &self.settings.secret, true);
                    return line.ok_or(Unreached::Later(Doubt::Silent));
                }
                (Step::AskAgain(at), _) => sleep_until(at.into()).await,
                (Step::Later(doubt), _) => return Err(Unreached::Later(doubt)),
                _ => return Err(Unreached::Dead),
            }
        }
    }

    fn answer_of<T>(&self, asked: &Result<T, NatsError>) -> Answer {
        match asked {
            Ok(_) => Answer::There,
            Err(NatsError::NobodyListens { .. }) => Answer::Nobody,
            Err(error) => {
                tracing::debug!(%error, "asked another member of the fleet whether it has a session, and got no answer");
                Answer::Unclear(match self.is_connected() {
                    true => Doubt::Silent,
                    false => Doubt::CutOff,
                })
            }
        }
    }

    /// Tells when a member that lines were forwarded to has died, by asking for it regularly: NATS does not
    /// report it.
    fn watch(self: &Arc<Self>, member: Member) -> watch::Receiver<bool> {
        let mut watched = lock(&self.watched);
        if let Some(known) = watched.get(&member)
            && known.receiver_count() > 0
        {
            return known.subscribe();
        }
        watched.retain(|_, known| known.receiver_count() > 0);
        let tell = watch::Sender::new(false);
        watched.insert(member, tell.clone());
        let heard = tell.subscribe();
        let fleet = self.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = fleet.until_dead(member) => {
                    tell.send_replace(true);
                    lock(&fleet.watched).remove(&member);
                }
                () = tell.closed() => {}
            }
        });
        heard
    }

    async fn until_dead(&self, member: Member) {
        let subject = self.settings.subject(member);
        loop {
            sleep(WATCH).await;
            let asked = timeout(ASK_TIME, self.hub.ask_whether_there(&subject)).await;
            let Ok(asked) = asked else { continue };
            let answer = self.answer_of(&asked);
            let step = lock(&self.directory).answered(now(), member, answer);
            if step == Step::Dead {
                return tracing::warn!(%member, "a member of the fleet is gone, and its sessions with it: their clients must begin new ones");
            }
        }
    }

    /// Serves a line that another member opened.
    async fn serve(&self, plan: &Plan, transport: NatsTransport) {
        let Some(mut line) = MemberLine::new(transport, &self.settings.secret, false) else {
            return;
        };
        line.charge_to(&self.budget);
        let room = self.room();
        let head = match timeout(HEAD_TIME, head_of(&mut line)).await {
            Ok(Ok(head)) => head,
            Ok(Err(why)) => {
                tracing::warn!("refused a connection of another member of the fleet: {why}");
                return close(line, 1008, &why).await;
            }
            Err(_) => return,
        };
        let Some(_room) = room else {
            tracing::warn!(
                "refused a connection of another member of the fleet: there is no memory for it; raise --memory"
            );
            return close(line, 1013, &Doubt::Busy.to_string()).await;
        };
        match head {
            Head::Line(head) => resume(plan, head, line).await,
            #[cfg(feature = "http")]
            Head::Request(head) => self.answer(head, line).await,
            #[cfg(not(feature = "http"))]
            Head::Request(_) => {
                close(
                    line,
                    1002,
                    "this member of the fleet takes no HTTP requests",
                )
                .await
            }
        }
    }
}

/// The first frame of a line.
async fn head_of(line: &mut MemberLine) -> Result<Head, String> {
    loop {
        return match line.source.next().await {
            Incoming::Frame(Frame::Text(text)) => {
                Head::read(&text).ok_or_else(|| "its first frame does not say what it is for; do all members have the same version?".to_owned())
            }
            Incoming::Alive => continue,
            Incoming::Closed(closed) | Incoming::Broken(closed) => Err(closed.reason),
            _ => Err("its first frame does not say what it is for; do all members have the same version?".to_owned()),
        };
    }
}

async fn close(mut line: MemberLine, code: u16, reason: &str) {
    let _ = timeout(HEAD_TIME, line.sink.close(code, reason)).await;
}

/// Hands a forwarded line to its session in this member. The line is not forwarded again: two members that
/// each take the other for the owner would do so for ever.
async fn resume(plan: &Plan, head: LineHead, line: MemberLine) {
    let LineHead { caller, cap, pings } = head;
    let mut line = Line::new(line);
    if let Some(cap) = cap {
        line = line.capped(cap);
    }
    if !pings {
        line = line.without_pings();
    }
    let (listen, _) = plan.session_ends(&SessionWatch::default());
    let config = listen.tunnel_config();
    match plan.lobby.greet(line, &caller, &config).await {
        Ok(Greeted::Resumed) => {}
        Ok(Greeted::Elsewhere(stray)) => {
            stray
                .refuse(breakbulk_message::tunnel::Gone::Restarted)
                .await;
        }
        Ok(Greeted::Newcomer(newcomer)) => {
            newcomer
                .refuse(
                    1002,
                    "only existing sessions are forwarded to another member of the fleet",
                )
                .await;
        }
        Err(error) => {
            tracing::warn!(%error, "closed a connection of another member of the fleet, which wanted to resume a session here")
        }
    }
}
