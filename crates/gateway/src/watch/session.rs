//! The counters and the state of a session: what its tasks count, and what is looked up when somebody looks.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, SystemTime};

use breakbulk_link::{Budget, Closed, Frame, lock};
use breakbulk_message::tunnel::Label;
use breakbulk_net::{ClosedBy, Direction, Tap, WeakConnection, plain_text};

use super::counts::{ConnectionFrames, Flows};
use super::messages::Messages;
use super::record::RecordSink;
use super::route::{Refused, Route};
use super::times::Times;
use super::view::{SessionView, SideView};
use super::{Fault, Inner, SessionId, since};
use crate::error::SessionEnd;
use crate::open::Opened;
use crate::pump::Side;
use crate::record::NotCarried;
use crate::stop::Stop;

/// How many frames of a line are kept until the line says which session it belongs to, which it does first.
const EARLY: usize = 4;

/// What is known of a session.
pub(super) struct Session {
    pub(super) id: SessionId,
    pub(super) inner: Arc<Inner>,
    pub(super) route: Arc<Route>,
    pub(super) peer: String,
    pub(super) since: SystemTime,
    /// What the programs at both ends speak, once it has begun.
    pub(super) kinds: OnceLock<(&'static str, &'static str)>,
    pub(super) listen: SessionSide,
    pub(super) to: SessionSide,
    pub(super) messages: Mutex<Messages>,
    /// How many messages were noted for those that are kept. Only the pump of the session writes here.
    pub(super) noted: AtomicU64,
    /// How long messages to the target (`inward`) and to the client (`outward`) were in the gateway.
    inward: Times,
    outward: Times,
    /// Fires when an operator ends it.
    pub(super) close: Stop,
    pub(super) record: Option<Arc<dyn RecordSink>>,
}

/// One end of a session.
#[derive(Default)]
pub(super) struct SessionSide {
    pub(super) flows: Flows,
    pub(super) open_requests: AtomicUsize,
    pub(super) is_lost: AtomicBool,
    /// Messages that wait in the gateway for room in the queue of this end.
    pub(super) waiting: AtomicUsize,
    lines: AtomicU64,
    pub(super) connection: OnceLock<WeakConnection>,
    pub(super) budget: OnceLock<Budget>,
}

impl SessionSide {
    pub(super) fn view(&self) -> SideView {
        self.flows.view()
    }
}

impl Session {
    pub(super) fn new(inner: &Arc<Inner>, route: &Arc<Route>, peer: &str) -> Arc<Self> {
        let session = Self {
            id: SessionId::next(),
            inner: inner.clone(),
            route: route.clone(),
            peer: plain_text(peer),
            since: SystemTime::now(),
            kinds: OnceLock::new(),
            listen: SessionSide::default(),
            to: SessionSide::default(),
            messages: Mutex::default(),
            noted: AtomicU64::new(0),
            inward: Times::default(),
            outward: Times::default(),
            close: Stop::new(),
            record: inner.record.get().cloned(),
        };
        if let Some(record) = &session.record {
            let (id, listen) = (&session.id, lock(&route.listen).clone());
            record.session(id, &route.name, peer, &listen, &route.to);
        }
        Arc::new(session)
    }

    pub(super) fn side(&self, side: Side) -> &SessionSide {
        match side {
            Side::Listen => &self.listen,
            Side::To => &self.to,
        }
    }

    /// How long messages that arrived by a side were in the gateway.
    pub(super) fn times(&self, from: Side) -> &Times {
        match from {
            Side::Listen => &self.inward,
            Side::To => &self.outward,
        }
    }

    fn fault(&self, side: Side, what: &dyn std::fmt::Display) {
        self.route.side(side).faults.fetch_add(1, Relaxed);
        self.inner.fault(Fault {
            route: &self.route.name,
            session: Some(&self.id),
            side: Some(side),
            what,
        });
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(record) = &self.record {
            record.forget(&self.id);
        }
    }
}

/// The handle by which the tasks of a session count.
#[derive(Clone)]
pub(crate) struct SessionWatch {
    id: SessionId,
    session: Option<Arc<Session>>,
}

impl Default for SessionWatch {
    fn default() -> Self {
        Self::new(None)
    }
}

impl SessionWatch {
    pub(super) fn new(session: Option<Arc<Session>>) -> Self {
        let id = session.as_ref().map(|session| session.id.clone());
        Self {
            id: id.unwrap_or_else(SessionId::next),
            session,
        }
    }

    /// Its name.
    pub(crate) fn id(&self) -> &SessionId {
        &self.id
    }

    pub(crate) fn side(&self, side: Side) -> SideWatch {
        SideWatch(self.session.clone().map(|session| (session, side)))
    }

    /// Its client is refused.
    pub(crate) fn refused(&self, why: Refused, what: impl std::fmt::Display) {
        if let Some(session) = &self.session {
            session.inner.refused(session, why, &what);
            if let Some(record) = &session.record {
                record.ended(&session.id, None, &session.view());
            }
        }
    }

    /// It begins, with both ends connected.
    pub(crate) fn started(&self, listen: &Opened, to: &Opened) -> Live {
        if let Some(session) = &self.session {
            // It begins once.
            let _ = session.kinds.set((listen.kind.name(), to.kind.name()));
            for (side, opened) in [(Side::Listen, listen), (Side::To, to)] {
                let side = session.side(side);
                if let Some(connection) = opened.port.connection() {
                    let _ = side.connection.set(connection.downgrade());
                    let budget = connection.with(|link| link.shared_budget().clone());
                    let _ = side.budget.set(budget);
                }
            }
        }
        self.begun()
    }

    /// Adds the session to those that are shown.
    pub(super) fn begun(&self) -> Live {
        if let Some(session) = &self.session {
            session.route.accepted.fetch_add(1, Relaxed);
            let mut registry = session.inner.registry();
            registry
                .sessions
                .insert(session.id.number(), session.clone());
        }
        Live {
            watch: self.clone(),
            is_over: false,
        }
    }

    /// Completes when an operator ends it.
    pub(crate) fn closed(&self) -> impl Future<Output = ()> + Send + use<> {
        let stopped = self.session.as_ref().map(|session| session.close.stopped());
        async move {
            match stopped {
                Some(stopped) => stopped.await,
                None => std::future::pending().await,
            }
        }
    }
}

/// A session that has begun. Dropped without [`ended`](Self::ended), it counts as failed.
pub(crate) struct Live {
    watch: SessionWatch,
    is_over: bool,
}

impl Live {
    /// The session has ended: logs how, in one line with what it carried. If it is the only session of a
    /// gateway, its end is the gateway's own, which the caller reports; the line is then logged for debugging
    /// only.
    pub(crate) fn ended(mut self, end: &SessionEnd, is_only: bool) {
        self.remove(Some(end));
        let Some(session) = &self.watch.session else {
            return log(end, is_only, &SessionView::default(), Duration::ZERO);
        };
        log(end, is_only, &session.view(), since(session.since));
    }

    fn remove(&mut self, end: Option<&SessionEnd>) {
        let Some(session) = &self.watch.session else {
            return;
        };
        if std::mem::replace(&mut self.is_over, true) {
            return;
        }
        let mut registry = session.inner.registry();
        if registry.sessions.remove(&session.id.number()).is_some() {
            session.route.add(session, end.map(|end| &end.ended));
        }
        drop(registry);
        if let Some(end) = end.filter(|end| !end.ended.is_clean()) {
            session.fault(end.ended.side, end);
        }
        if let Some(record) = &session.record {
            record.ended(&session.id, end, &session.view());
        }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.remove(None);
    }
}

/// The line about the end of a session: how it ended, and what was carried at the side of its client.
fn log(end: &SessionEnd, is_only: bool, view: &SessionView, lasted: Duration) {
    let (inward, outward) = (view.inward, view.outward);
    let seconds = (lasted.as_secs_f64() * 1e3).round() / 1e3;
    macro_rules! line {
        ($level:ident) => {
            tracing::$level!(
                messages_in = inward.messages,
                messages_out = outward.messages,
                bytes_in = inward.bytes,
                bytes_out = outward.bytes,
                frames_in = inward.frames,
                frames_out = outward.frames,
                longest = inward.longest.max(outward.longest),
                seconds,
                "{end}"
            )
        };
    }
    match (is_only, end.ended.is_clean()) {
        (true, _) => line!(debug),
        (false, true) => line!(info),
        (false, false) => line!(error),
    }
}

/// The handle by which one end of a session counts. The default counts nothing.
#[derive(Clone, Default)]
pub struct SideWatch(pub(super) Option<(Arc<Session>, Side)>);

impl std::fmt::Debug for SideWatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let seen = self.0.as_ref().map(|(session, side)| (&session.id, *side));
        f.debug_tuple("SideWatch").field(&seen).finish()
    }
}

impl SideWatch {
    /// The name of the session, if it is watched.
    pub fn id(&self) -> Option<&SessionId> {
        self.0.as_ref().map(|(session, _)| &session.id)
    }

    /// The session's name for the other gateway of a tunnel, to be shown in its log.
    pub(crate) fn label(&self) -> Option<Label> {
        let (session, _) = self.0.as_ref()?;
        Label::new(session.id.as_str())
    }

    /// A tap for a connection of this end.
    pub(crate) fn tap(&self) -> Arc<SessionTap> {
        let tap = SessionTap::unknown();
        tap.bind(self);
        tap
    }

    /// Something went wrong at this end.
    pub(crate) fn fault(&self, what: impl std::fmt::Display) {
        if let Some((session, side)) = &self.0 {
            session.fault(*side, &what);
        }
    }

    /// Tells the recorder, if there is one, that a message was not passed on because of a limit of this end.
    pub(crate) fn not_carried(&self, what: impl FnOnce() -> NotCarried) {
        if let Some((session, _)) = &self.0
            && let Some(record) = &session.record
        {
            record.not_carried(&session.id, what());
        }
    }

    /// The line of a tunnel at this end is lost.
    pub(crate) fn line_lost(&self, why: &str) {
        if let Some((session, side)) = &self.0 {
            session.side(*side).is_lost.store(true, Relaxed);
            let route = session.route.side(*side);
            route.lines_lost.fetch_add(1, Relaxed);
            session.fault(
                *side,
                &format_args!("the connection to the other gateway was lost: {why}"),
            );
        }
    }

    /// The tunnel at this end goes on with another line.
    pub(crate) fn resumed(&self) {
        if let Some((session, side)) = &self.0 {
            session.side(*side).is_lost.store(false, Relaxed);
            session.route.side(*side).resumes.fetch_add(1, Relaxed);
        }
    }
}

/// Counts the frames of one connection, and shows them to a recorder. It is known to which session a line of
/// a tunnel belongs only when the line has said so.
#[derive(Default)]
pub(crate) struct SessionTap {
    bound: OnceLock<Bound>,
    early: Mutex<Vec<(Direction, Frame)>>,
}

/// The session that the connection belongs to.
struct Bound {
    counted: Option<Counted>,
    record: Option<Arc<dyn Tap>>,
}

/// The frames of a connection, which are a part of those of its end.
struct Counted {
    frames: Arc<ConnectionFrames>,
    session: Arc<Session>,
    side: Side,
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.session.side(self.side).flows.disconnect(&self.frames);
    }
}

impl Bound {
    fn frame(&self, direction: Direction, frame: &Frame) {
        if let Some(counted) = &self.counted {
            counted.frames.frame(direction, frame.bytes().len());
        }
        if let Some(record) = &self.record {
            record.frame(direction, frame);
        }
    }
}

impl SessionTap {
    /// The tap of a connection whose session is not known yet.
    pub(crate) fn unknown() -> Arc<Self> {
        Arc::default()
    }

    /// Sets the end of the session that the connection belongs to. Only the first call counts.
    pub(crate) fn bind(&self, to: &SideWatch) {
        let mut early = lock(&self.early);
        self.bound.get_or_init(|| {
            let record = to.0.as_ref().and_then(|(session, side)| {
                let line = session.side(*side).lines.fetch_add(1, Relaxed) + 1;
                let record = session.record.as_ref()?;
                Some(record.tap(&session.id, *side, line))
            });
            let counted = to.0.as_ref().map(|(session, side)| Counted {
                frames: session.side(*side).flows.connect(),
                session: session.clone(),
                side: *side,
            });
            let bound = Bound { counted, record };
            for (direction, frame) in early.drain(..) {
                bound.frame(direction, &frame);
            }
            bound
        });
    }
}

impl Tap for SessionTap {
    fn frame(&self, direction: Direction, frame: &Frame) {
        if let Some(bound) = self.bound.get() {
            return bound.frame(direction, frame);
        }
        let mut early = lock(&self.early);
        // It may have become known in between.
        match self.bound.get() {
            Some(bound) => bound.frame(direction, frame),
            None if early.len() < EARLY => early.push((direction, frame.clone())),
            None => {}
        }
    }

    fn closed(&self, by: ClosedBy, closed: &Closed) {
        if let Some(record) = self.bound.get().and_then(|bound| bound.record.as_ref()) {
            record.closed(by, closed);
        }
    }
}
