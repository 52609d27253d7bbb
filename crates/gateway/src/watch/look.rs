//! Takes the snapshots: adds up what sessions counted, and asks their connections for the rest.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::SystemTime;

use breakbulk_link::{Key, Link, lock};
use breakbulk_net::plain_text;

use super::route::{Past, Refused, Route};
use super::session::{Session, SessionSide};
use super::view::{
    CapView, LaneView, MemoryView, OwnerView, RouteSideView, RouteState, RouteView, SessionDetail,
    SessionView, StateView, TransferView, milliseconds,
};
use super::{Watch, view};
use crate::plan::Memory;
use crate::pump::Side;

/// So many sessions are shown one by one.
const SESSIONS: usize = 1000;

/// So many transfers of one end are shown one by one.
const TRANSFERS: usize = 32;

/// The longest name of a transfer that is shown, in characters.
const KEY: usize = 48;

const SIDES: [(Side, &str); 2] = [(Side::Listen, "listen"), (Side::To, "to")];

impl Watch {
    /// All that is watched.
    pub fn state(&self) -> StateView {
        let (_, sessions, faults) = self.parts();
        let shown = sessions.iter().take(SESSIONS).map(|it| it.view());
        StateView {
            sessions: shown.collect(),
            more_sessions: sessions.len().saturating_sub(SESSIONS),
            faults,
            ..self.totals()
        }
    }

    /// All that is watched but single sessions and faults.
    pub fn totals(&self) -> StateView {
        let (routes, sessions, _) = self.parts();
        let started = self.0.as_ref().map(|inner| milliseconds(inner.started));
        StateView {
            version: env!("CARGO_PKG_VERSION"),
            started: started.unwrap_or_default(),
            now: milliseconds(SystemTime::now()),
            memory: memory(&routes, &sessions),
            recorder: self
                .0
                .as_ref()
                .and_then(|inner| inner.record.get()?.health()),
            sessions: Vec::new(),
            more_sessions: sessions.len(),
            routes: self.routes(),
            faults: Vec::new(),
        }
    }

    /// Whether all routes take clients, but for those that a reload stopped.
    ///
    /// # Errors
    /// Which route does not, in words that anybody may read.
    pub fn ready(&self) -> Result<(), String> {
        let (routes, ..) = self.parts();
        let of = |state| routes.iter().find(|route| route.state() == state);
        if let Some(route) = of(RouteState::Failed) {
            // The reason names targets and files, and whoever asks needs no token: `RouteView::failure`.
            return Err(format!("the route {} has failed", route.name));
        }
        if let Some(route) = of(RouteState::Starting) {
            return Err(format!("the route {} does not listen yet", route.name));
        }
        // A route that drains after a reload does not matter while others listen.
        match (of(RouteState::Listening), of(RouteState::Stopping)) {
            (Some(_), _) => Ok(()),
            (None, Some(route)) => Err(format!("the route {} is draining", route.name)),
            (None, None) => Err("no route has started".to_owned()),
        }
    }

    /// The routes, in the order in which they were made.
    pub fn routes(&self) -> Vec<RouteView> {
        let Some(inner) = &self.0 else {
            return Vec::new();
        };
        let mut found: Vec<(RouteView, Vec<Arc<Session>>)> = {
            // Summed under the lock: a session that ends meanwhile counts either among the sessions or among
            // the past ones.
            let registry = inner.registry();
            let routes = registry.routes.values().map(|route| {
                let of_route = |session: &&Arc<Session>| Arc::ptr_eq(&session.route, route);
                let sessions = registry.sessions.values().filter(of_route);
                let sessions: Vec<_> = sessions.cloned().collect();
                (route_view(route, &sessions), sessions)
            });
            routes.collect()
        };
        for (view, sessions) in &mut found {
            for session in sessions {
                live(&mut view.listen_side, &session.listen);
                live(&mut view.to_side, &session.to);
            }
        }
        found.into_iter().map(|(view, _)| view).collect()
    }

    /// The sessions, oldest first.
    pub fn sessions(&self) -> Vec<SessionView> {
        self.parts()
            .1
            .iter()
            .map(|session| session.view())
            .collect()
    }

    /// A session and its last messages.
    pub fn session(&self, id: &str) -> Option<SessionDetail> {
        let session = self.0.as_ref()?.session(id)?;
        let messages = lock(&session.messages).view();
        Some(SessionDetail {
            session: session.view(),
            messages,
        })
    }

    /// The memory of all routes.
    pub fn memory(&self) -> MemoryView {
        let (routes, sessions, _) = self.parts();
        memory(&routes, &sessions)
    }

    fn parts(&self) -> (Vec<Arc<Route>>, Vec<Arc<Session>>, Vec<view::FaultView>) {
        let Some(inner) = &self.0 else {
            return Default::default();
        };
        let registry = inner.registry();
        let routes = registry.routes.values().cloned().collect();
        let sessions = registry.sessions.values().cloned().collect();
        (routes, sessions, registry.faults.iter().cloned().collect())
    }
}

fn route_view(route: &Route, sessions: &[Arc<Session>]) -> RouteView {
    let Past {
        mut listen,
        mut to,
        clean,
        failed,
        lost,
        unanswered,
        incomplete,
        mut inward,
        mut outward,
    } = lock(&route.past).clone();
    let (mut listen_side, mut to_side) = (rare(route, Side::Listen), rare(route, Side::To));
    for session in sessions {
        listen += session.listen.view();
        to += session.to.view();
        inward += &session.times(Side::Listen).view();
        outward += &session.times(Side::To).view();
    }
    (listen_side.flows, to_side.flows) = (listen, to);
    let known = Refused::ALL.map(|why| (why.word(), route.refused[why as usize].load(Relaxed)));
    let refused = known.into_iter().chain(route.turned_away.counts());
    let caps = route.caps.all().into_iter();
    RouteView {
        id: route.number,
        name: route.name.clone(),
        listen: lock(&route.listen).clone(),
        to: route.to.clone(),
        state: route.state(),
        failure: route.failure().map(str::to_owned),
        sessions: sessions.len(),
        accepted: route.accepted.load(Relaxed),
        ended_clean: clean,
        ended_failed: failed,
        refused: refused.collect(),
        resumes: listen_side.resumes + to_side.resumes,
        lost,
        unanswered,
        incomplete,
        inward: listen.received,
        outward: listen.sent,
        listen_side,
        to_side,
        inward_times: inward,
        outward_times: outward,
        learned_caps: caps.map(|(path, frame)| CapView { path, frame }).collect(),
    }
}

fn rare(route: &Route, side: Side) -> RouteSideView {
    let side = route.side(side);
    RouteSideView {
        lines_lost: side.lines_lost.load(Relaxed),
        resumes: side.resumes.load(Relaxed),
        faults: side.faults.load(Relaxed),
        ..RouteSideView::default()
    }
}

fn live(sum: &mut RouteSideView, side: &SessionSide) {
    sum.open_requests += side.open_requests.load(Relaxed);
    side.with(|link| {
        sum.transfers_received += link.open_transfers();
        sum.transfers_sent += link.under_way().count();
    });
}

/// The memory that sessions hold, and what listeners hold of the shared memory.
fn memory(routes: &[Arc<Route>], sessions: &[Arc<Session>]) -> MemoryView {
    let (mut budget, mut messages, mut frames, mut listeners) = (0_usize, 0, 0, 0_usize);
    let mut seen: Vec<&Memory> = Vec::new();
    for memory in routes.iter().filter_map(|route| route.memory.get()) {
        // Several routes may share one memory, which counts once.
        if !seen.iter().any(|known| known.is(memory)) {
            budget += memory.bytes();
            listeners += memory.shared().used();
            seen.push(memory);
        }
    }
    for session in sessions {
        let Some(used) = session.used() else { continue };
        let held: usize = [&session.listen, &session.to]
            .into_iter()
            .filter_map(|side| side.with(|link| link.memory()))
            .sum();
        let held = held.min(used);
        messages += held;
        frames += used - held;
        let reserved = session.route.memory.get().map_or(0, Memory::reserved);
        listeners = listeners.saturating_sub(used.saturating_sub(reserved));
    }
    let owner = |name, bytes| OwnerView { name, bytes };
    MemoryView {
        budget,
        used: messages + frames + listeners,
        owners: vec![
            owner("messages", messages),
            owner("frames", frames),
            owner("listeners", listeners),
        ],
    }
}

impl SessionSide {
    /// Asks the link of its connection, if it still exists.
    fn with<R>(&self, work: impl FnOnce(&mut Link) -> R) -> Option<R> {
        self.connection.get()?.with(work)
    }
}

impl Session {
    /// The memory that it holds; both ends share one account.
    fn used(&self) -> Option<usize> {
        let budget = self.listen.budget.get().or(self.to.budget.get());
        Some(budget?.used())
    }

    /// A snapshot.
    pub(super) fn view(&self) -> SessionView {
        let (listen, to) = (self.listen.view(), self.to.view());
        let kinds = self.kinds.get().copied().unwrap_or_default();
        let is_lost = self.listen.is_lost.load(Relaxed) || self.to.is_lost.load(Relaxed);
        let (mut transfers, mut lanes) = (Vec::new(), Vec::new());
        for (side, name) in SIDES {
            let state = self.side(side);
            let waiting = state.waiting.load(Relaxed);
            state.with(|link| {
                transfers.extend(arriving(link, side, name));
                transfers.extend(leaving(link, side, name));
                lanes.push(LaneView {
                    side: name,
                    queued_messages: link.queued() + waiting,
                    queued_bytes: link.queued_bytes(),
                });
            });
        }
        SessionView {
            id: self.id.to_string(),
            route: self.route.name.clone(),
            peer: self.peer.clone(),
            since: milliseconds(self.since),
            listen: kinds.0,
            to: kinds.1,
            line: if is_lost { "lost" } else { "up" },
            inward: listen.received,
            outward: listen.sent,
            target: to,
            open_requests: [&self.listen, &self.to]
                .map(|side| side.open_requests.load(Relaxed))
                .iter()
                .sum(),
            transfers,
            lanes,
        }
    }
}

fn arriving(link: &Link, side: Side, name: &'static str) -> Vec<TransferView> {
    let direction = match side {
        Side::Listen => "in",
        Side::To => "out",
    };
    let transfers = link.unfinished().take(TRANSFERS);
    transfers
        .map(|transfer| TransferView {
            side: name,
            direction,
            key: shown(transfer.key),
            done: transfer.bytes as u64,
            total: transfer.declared,
        })
        .collect()
}

fn leaving(link: &Link, side: Side, name: &'static str) -> Vec<TransferView> {
    let direction = match side {
        Side::Listen => "out",
        Side::To => "in",
    };
    let transfers = link.under_way().take(TRANSFERS);
    transfers
        .map(|transfer| TransferView {
            side: name,
            direction,
            key: shown(transfer.key),
            done: transfer.bytes as u64,
            total: Some(transfer.total as u64),
        })
        .collect()
}

/// The name of a transfer: as text if it is one, else in hexadecimal digits.
fn shown(key: &Key) -> String {
    let bytes = key.as_bytes();
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.chars().any(char::is_control) => {
            plain_text(text.chars().take(KEY).collect::<String>())
        }
        _ => {
            let digits = bytes.iter().take(KEY / 2);
            digits.map(|byte| format!("{byte:02x}")).collect()
        }
    }
}
