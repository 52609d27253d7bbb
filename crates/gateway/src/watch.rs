//! What a gateway tells about itself while it runs: counters, sessions, transfers, the last messages and
//! faults.
//!
//! A [`Watch`] is given to a gateway in its [`Config`](crate::Config), and looked at from anywhere. Sessions
//! count into atomics of their own; sums, transfers, queues and memory are found when somebody looks. So a
//! gateway that nobody looks at pays for a few additions per frame and message, and for nothing else.
//!
//! The public types named `…View` are snapshots: plain values that can be written as JSON.

mod counts;
mod id;
mod look;
mod messages;
mod pumped;
mod record;
mod route;
mod session;
mod times;
mod view;

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, SystemTime};

use breakbulk_link::lock;
use breakbulk_net::plain_text;

pub use id::SessionId;
pub use record::{MessageHead, RecordSink};
pub use times::{BUCKETS, TimesView};
pub use view::{
    CapView, FaultView, FlowView, LaneView, MemoryView, MessageView, OwnerView, RecorderView,
    RouteSideView, RouteState, RouteView, SessionDetail, SessionView, SideView, StateView,
    TransferView,
};

pub(crate) use messages::{Head, Noted};
pub(crate) use pumped::PumpedEnd;
pub(crate) use route::{Refused, RouteWatch};
pub use session::SideWatch;
pub(crate) use session::{SessionTap, SessionWatch};

use crate::record::Follower;
use route::Route;
use session::Session;
use view::milliseconds;

/// How many faults are remembered.
const FAULTS: usize = 100;

/// What is kept for whoever looks, beyond counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WatchOptions {
    /// How many of the last messages of each session are remembered by method, id, size and time.
    pub messages: usize,
    /// How many bytes of the body of each of them are kept, too. Bodies are charged to the memory of
    /// their session, and left out where there is none.
    pub bodies: usize,
}

breakbulk_link::with!(WatchOptions);

impl WatchOptions {
    /// Counters alone.
    pub const COUNTERS: Self = Self {
        messages: 0,
        bodies: 0,
    };
}

impl Default for WatchOptions {
    /// The last 100 messages of each session, without their bodies.
    fn default() -> Self {
        Self {
            messages: 100,
            bodies: 0,
        }
    }
}

/// What gateways of this process tell about themselves. Clones share it, and so may several gateways.
#[derive(Clone)]
pub struct Watch(Option<Arc<Inner>>);

struct Inner {
    options: WatchOptions,
    started: SystemTime,
    record: OnceLock<Arc<dyn RecordSink>>,
    registry: Mutex<Registry>,
}

/// The routes and sessions that there are. The counts of a session are added to those of its route under
/// this lock, when the session is removed, so that a sum never misses or repeats one.
#[derive(Default)]
struct Registry {
    next_route: u64,
    routes: BTreeMap<u64, Arc<Route>>,
    sessions: BTreeMap<u64, Arc<Session>>,
    faults: VecDeque<FaultView>,
}

impl Watch {
    /// A watch that keeps this much.
    pub fn new(options: WatchOptions) -> Self {
        Self(Some(Arc::new(Inner {
            options,
            started: SystemTime::now(),
            record: OnceLock::new(),
            registry: Mutex::default(),
        })))
    }

    /// Counts nothing and shows nothing: to measure what the others cost.
    pub fn off() -> Self {
        Self(None)
    }

    /// Gives the frames and message heads of all sessions that begin from now on to a recorder. Only the
    /// first call counts.
    pub fn set_record(&self, record: Arc<dyn RecordSink>) {
        if let Some(inner) = &self.0 {
            // A second recorder is not wanted by anybody.
            let _ = inner.record.set(record);
        }
    }

    /// The records of all sessions from now on; `None` if there is no recorder that can be followed.
    pub fn follow(&self) -> Option<Follower> {
        self.0.as_ref()?.record.get()?.follow()
    }

    /// Removes the failed routes from what is shown, except those that are still wanted.
    pub(crate) fn forget_failed(&self, is_wanted: impl Fn(&str) -> bool) {
        if let Some(inner) = &self.0 {
            let stays =
                |route: &Route| route.state() != RouteState::Failed || is_wanted(&route.name);
            inner.registry().routes.retain(|_, route| stays(route));
        }
    }

    /// Ends a session as the stop of the gateway would: what is queued is still sent, and open requests
    /// are waited for, within the grace time. False: there is no such session.
    pub fn close(&self, id: &str) -> bool {
        let session = self.0.as_ref().and_then(|inner| inner.session(id));
        match session {
            Some(session) => {
                session.close.stop();
                true
            }
            None => false,
        }
    }
}

/// What went wrong, and where.
struct Fault<'a> {
    route: &'a str,
    session: Option<&'a SessionId>,
    side: Option<crate::pump::Side>,
    what: &'a dyn fmt::Display,
}

impl Inner {
    fn registry(&self) -> std::sync::MutexGuard<'_, Registry> {
        lock(&self.registry)
    }

    fn session(&self, id: &str) -> Option<Arc<Session>> {
        let registry = self.registry();
        let mut sessions = registry.sessions.values();
        sessions.find(|session| session.id.as_str() == id).cloned()
    }

    fn fault(&self, fault: Fault<'_>) {
        let Fault {
            route,
            session,
            side,
            what,
        } = fault;
        let view = FaultView {
            at: milliseconds(SystemTime::now()),
            route: route.to_owned(),
            session: session.map(ToString::to_string),
            side: side.map(|side| side.to_string()),
            what: plain_text(what),
        };
        let mut registry = self.registry();
        if registry.faults.len() >= FAULTS {
            registry.faults.pop_front();
        }
        registry.faults.push_back(view);
    }
}

impl Default for Watch {
    /// Counters alone: for whoever uses the library and looks at sums.
    fn default() -> Self {
        Self::new(WatchOptions::COUNTERS)
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let options = self.0.as_ref().map(|inner| inner.options);
        f.debug_struct("Watch")
            .field("options", &options)
            .finish_non_exhaustive()
    }
}

/// How long ago a time was; zero if the clock was set back since.
fn since(time: SystemTime) -> Duration {
    time.elapsed().unwrap_or_default()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
