//! The counters and the state of a route: a listener and its target.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock};

use breakbulk_link::lock;
use breakbulk_net::{Refusals, plain_text};

use super::session::{Session, SessionWatch};
use super::times::TimesView;
use super::view::{RouteState, SideView};
use super::{Fault, Inner, Watch};
use crate::plan::Memory;
use crate::pump::{Ended, Side};
use crate::tunnel::LearnedCaps;

/// Why a client that a listener let in has no session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// All sessions are in use.
    TooManySessions,
    /// The listener is for gateways alone.
    NotGateway,
    /// The target cannot be reached.
    NoTarget,
    /// The gateway stops.
    Stopping,
    /// Its connection cannot be used, or it ended before its session began.
    NoStart,
}

impl Refused {
    pub(super) const ALL: [Self; 5] = [
        Self::TooManySessions,
        Self::NotGateway,
        Self::NoTarget,
        Self::Stopping,
        Self::NoStart,
    ];

    /// The value of the label `reason`.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::TooManySessions => "too_many_sessions",
            Self::NotGateway => "not_a_gateway",
            Self::NoTarget => "no_target",
            Self::Stopping => "stopping",
            Self::NoStart => "no_start",
        }
    }
}

/// What is known of a route.
pub(super) struct Route {
    pub(super) number: u64,
    pub(super) name: String,
    pub(super) to: String,
    /// Where clients find it, once it listens.
    pub(super) listen: Mutex<String>,
    state: AtomicU8,
    /// Why it failed, once it has.
    failure: OnceLock<String>,
    pub(super) accepted: AtomicU64,
    pub(super) refused: [AtomicU64; Refused::ALL.len()],
    /// The clients that the listener itself refused.
    pub(super) turned_away: Refusals,
    pub(super) listen_side: RouteSide,
    pub(super) to_side: RouteSide,
    /// The sums of the sessions that have ended.
    pub(super) past: Mutex<Past>,
    pub(super) memory: OnceLock<Memory>,
    pub(super) caps: Arc<LearnedCaps>,
}

/// Counts of rare events at one end of a route.
#[derive(Debug, Default)]
pub(super) struct RouteSide {
    pub(super) resumes: AtomicU64,
    pub(super) lines_lost: AtomicU64,
    pub(super) faults: AtomicU64,
}

/// The sums of sessions that have ended.
#[derive(Clone, Debug, Default)]
pub(super) struct Past {
    pub(super) listen: SideView,
    pub(super) to: SideView,
    pub(super) clean: u64,
    pub(super) failed: u64,
    pub(super) lost: u64,
    pub(super) unanswered: u64,
    pub(super) incomplete: u64,
    /// How long messages to the target (`inward`) and to clients (`outward`) were in the gateway.
    pub(super) inward: TimesView,
    pub(super) outward: TimesView,
}

impl Route {
    pub(super) fn side(&self, side: Side) -> &RouteSide {
        match side {
            Side::Listen => &self.listen_side,
            Side::To => &self.to_side,
        }
    }

    pub(super) fn state(&self) -> RouteState {
        match self.state.load(Relaxed) {
            0 => RouteState::Starting,
            1 => RouteState::Listening,
            2 => RouteState::Stopping,
            _ => RouteState::Failed,
        }
    }

    /// Why it failed, if it has.
    pub(super) fn failure(&self) -> Option<&str> {
        self.failure.get().map(String::as_str)
    }

    /// Adds what a session counted.
    pub(super) fn add(&self, session: &Session, ended: Option<&Ended>) {
        let mut past = lock(&self.past);
        past.listen += session.side(Side::Listen).view();
        past.to += session.side(Side::To).view();
        past.inward += &session.times(Side::Listen).view();
        past.outward += &session.times(Side::To).view();
        match ended {
            Some(ended) => {
                match ended.is_clean() {
                    true => past.clean += 1,
                    false => past.failed += 1,
                }
                past.lost += ended.lost as u64;
                past.unanswered += ended.unanswered as u64;
                past.incomplete += ended.incomplete as u64;
            }
            None => past.failed += 1,
        }
    }
}

/// The handle by which a gateway counts for its route. When it is dropped, the route is not shown any more,
/// unless it failed: a failed route is shown until another one of its name takes its place, or a reload
/// leaves it out.
pub(crate) struct RouteWatch {
    watch: Watch,
    route: Option<Arc<Route>>,
    /// Where the listener counts the clients that it refuses.
    turned_away: Refusals,
}

impl RouteWatch {
    /// Adds a route, by its name and both ends without secrets.
    pub(crate) fn new(
        watch: &Watch,
        name: &str,
        (listen, to): (String, String),
        caps: Arc<LearnedCaps>,
    ) -> Self {
        let turned_away = Refusals::default();
        let route = watch.0.as_ref().map(|inner| {
            let mut registry = inner.registry();
            registry.next_route += 1;
            let is_before =
                |known: &Route| known.name == name && known.state() == RouteState::Failed;
            registry.routes.retain(|_, known| !is_before(known));
            let route = Arc::new(Route {
                number: registry.next_route,
                name: name.to_owned(),
                to,
                listen: Mutex::new(listen),
                state: AtomicU8::new(0),
                failure: OnceLock::new(),
                accepted: AtomicU64::new(0),
                refused: Default::default(),
                turned_away: turned_away.clone(),
                listen_side: RouteSide::default(),
                to_side: RouteSide::default(),
                past: Mutex::default(),
                memory: OnceLock::new(),
                caps,
            });
            registry.routes.insert(route.number, route.clone());
            route
        });
        Self {
            watch: watch.clone(),
            route,
            turned_away,
        }
    }

    /// The memory of its sessions, which other routes may share.
    pub(crate) fn set_memory(&self, memory: &Memory) {
        if let Some(route) = &self.route {
            // It is set once, by the plan.
            let _ = route.memory.set(memory.clone());
        }
    }

    /// Clients find it at this address now.
    pub(crate) fn listening(&self, heard_at: &str) {
        if let Some(route) = &self.route {
            heard_at.clone_into(&mut lock(&route.listen));
            route.state.fetch_max(1, Relaxed);
        }
    }

    /// It takes no more clients.
    pub(crate) fn stopping(&self) {
        if let Some(route) = &self.route {
            route.state.fetch_max(2, Relaxed);
        }
    }

    /// It takes no more clients, and was not told to stop.
    pub(crate) fn failed(&self, why: &dyn std::fmt::Display) {
        let Some((inner, route)) = self.inner().zip(self.route.as_ref()) else {
            return;
        };
        // A route that is stopping does not count as failed, since another route may have its name by then:
        // only the log tells.
        let fails = |state| (state < 2).then_some(3);
        if route.state.fetch_update(Relaxed, Relaxed, fails).is_err() {
            return;
        }
        // It fails once.
        let _ = route.failure.set(plain_text(why));
        inner.fault(Fault {
            route: &route.name,
            session: None,
            side: None,
            what: why,
        });
    }

    /// Where a listener counts the clients that it refuses.
    pub(crate) fn turned_away(&self) -> Refusals {
        self.turned_away.clone()
    }

    /// A client came in, whose session has not begun.
    pub(crate) fn arrived(&self, peer: &str) -> SessionWatch {
        let inner = self.inner().zip(self.route.as_ref());
        SessionWatch::new(inner.map(|(inner, route)| Session::new(inner, route, peer)))
    }

    fn inner(&self) -> Option<&Arc<Inner>> {
        self.watch.0.as_ref()
    }
}

impl Drop for RouteWatch {
    fn drop(&mut self) {
        if let Some((inner, route)) = self.inner().zip(self.route.as_ref())
            && route.state() != RouteState::Failed
        {
            inner.registry().routes.remove(&route.number);
        }
    }
}

impl Inner {
    /// A client that came in has no session.
    pub(super) fn refused(&self, session: &Session, why: Refused, what: &dyn std::fmt::Display) {
        let route = &session.route;
        route.refused[why as usize].fetch_add(1, Relaxed);
        self.fault(Fault {
            route: &route.name,
            session: Some(&session.id),
            side: None,
            what,
        });
    }
}
