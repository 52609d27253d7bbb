//! Several gateways in one process: they share one memory, and can be changed while they run.

mod fault;
mod place;
mod route;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::Instrument;

use crate::error::RunError;
use crate::plan::{Memory, Plan};
use crate::serve::{Event, Sockets, check_target};
use crate::stop::Stop;
use fault::{Checked, check, not_opened};
pub use fault::{RouteError, RouteFault};
use place::Place;
pub use route::Route;
use route::Started;

/// The function that is called with the events of routes, and their names.
type TellRoute = Arc<dyn Fn(&str, Event) + Send + Sync>;

/// Routes that run.
///
/// ```
/// use breakbulk_gateway::{Config, Route, Routes};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # if cfg!(not(feature = "process")) { return Ok(()); }
/// let route = |name: &str, command: &str| -> Result<Route, Box<dyn std::error::Error>> {
///     let (listen, to) = ("ws://127.0.0.1:0".parse()?, command.parse()?);
///     Ok(Route::new(name, listen, to, Config::default()))
/// };
/// let caps = Config::default().learned_caps;
/// let same = |mut route: Route| {
///     // What was learned about paths is one thing for all routes, and the same after a reload.
///     route.config.learned_caps = caps.clone();
///     route
/// };
/// let first = vec![same(route("a", "exec:cat")?), same(route("b", "exec:cat")?)];
/// let mut routes = Routes::start(first, 1 << 30, |_, _| {}).await.map_err(|mut it| it.remove(0))?;
/// // The clients of a route that did not change notice nothing.
/// let second = vec![same(route("a", "exec:cat")?), same(route("c", "exec:cat")?)];
/// let changes = routes.reload(second, 1 << 30).await.map_err(|mut it| it.remove(0))?;
/// assert_eq!((changes.kept, changes.started, changes.stopped), (1, vec!["c".into()], vec!["b".into()]));
/// routes.stop().await;
/// # Ok(())
/// # }
/// ```
pub struct Routes {
    running: Vec<Running>,
    tasks: JoinSet<(u64, Result<(), RunError>)>,
    /// Routes that have ended, and of which nobody was told yet.
    ended: VecDeque<(u64, RouteEnd)>,
    memory: Memory,
    sockets: Sockets,
    tell: TellRoute,
    /// The number of the next route that is started.
    next: u64,
}

/// A route whose task runs.
struct Running {
    id: u64,
    started: Started,
    place: Place,
    stop: Stop,
    /// Whether it was told to stop.
    is_stopping: bool,
    phase: watch::Receiver<Phase>,
}

/// How far a route is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Starting,
    Listening,
    /// Its address is free.
    Closed,
}

/// What [`Routes::reload`] did.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Changes {
    /// How many routes were not touched.
    pub kept: usize,
    /// The routes that were started, new ones and changed ones.
    pub started: Vec<String>,
    /// The routes that were told to stop, and are not started again.
    pub stopped: Vec<String>,
    /// Routes that could not be started after all. The others run.
    pub failed: Vec<RouteFault>,
}

/// How a route ended.
#[derive(Debug)]
#[non_exhaustive]
pub struct RouteEnd {
    /// Its name.
    pub name: String,
    /// Whether it was told to: by a change, or by [`Routes::stop`].
    pub was_stopped: bool,
    /// What [`Plan::run`] returned.
    pub outcome: Result<(), RunError>,
}

impl Routes {
    /// Checks all routes without opening anything: what both ends say, whether they fit together, the
    /// files that they name, and whether two routes listen at the same place.
    ///
    /// # Errors
    /// All that is wrong, in the order of the routes.
    pub fn check(routes: Vec<Route>, memory: usize) -> Result<(), Vec<RouteFault>> {
        let sessions = sessions(&routes);
        check(routes, memory, &Memory::new(memory, sessions)).map(drop)
    }

    /// Checks all routes and starts them; they share this many bytes of memory. Returns once all of them
    /// listen. `tell` is called with the name of a route and what happens to it.
    ///
    /// # Errors
    /// All that is wrong; nothing runs then.
    pub async fn start(
        routes: Vec<Route>,
        memory: usize,
        tell: impl Fn(&str, Event) + Send + Sync + 'static,
    ) -> Result<Self, Vec<RouteFault>> {
        let mut all = Self {
            running: Vec::new(),
            tasks: JoinSet::new(),
            ended: VecDeque::new(),
            memory: Memory::new(memory, sessions(&routes)),
            sockets: Sockets::default(),
            tell: Arc::new(tell),
            next: 0,
        };
        match all.reload(routes, memory).await?.failed {
            failed if failed.is_empty() => Ok(all),
            failed => Err(failed),
        }
    }

    /// Runs these routes from now on. One that did not change keeps its listener and its sessions. One
    /// that changed, or is gone, closes its listener, and its sessions end within their grace time; in
    /// place of the changed one another is started, which accepts from the same socket if the address is
    /// the same. Returns once all of them listen. It is safe to drop the future: what was begun goes on.
    ///
    /// A route is the same if its ends and its configuration are, and the content of the files that are
    /// read at the start: certificates, keys, headers and the tokens of targets.
    ///
    /// # Errors
    /// All that is wrong; nothing was changed then.
    pub async fn reload(
        &mut self,
        routes: Vec<Route>,
        memory: usize,
    ) -> Result<Changes, Vec<RouteFault>> {
        self.collect_ended();
        let sessions = sessions(&routes);
        let checked = check(routes, memory, &self.memory)?;
        let (kept, new): (Vec<Checked>, Vec<Checked>) = checked.into_iter().partition(|it| {
            let is_it = |running: &Running| running.started.is_same(&it.started);
            self.current().any(is_it)
        });
        self.check_streams(&new)?;
        let new = check_targets(new).await?;
        // If only the listener of an unchanged route has failed, its sessions go on beside the new listener.
        let stays = |running: &Running| {
            let is_it = |it: &Checked| it.started.is_same(&running.started);
            kept.iter().chain(&new).any(is_it)
        };
        let running = self.running.iter();
        let leaving = running.filter(|running| !running.is_stopping && !stays(running));
        let leaving: Vec<u64> = leaving.map(|running| running.id).collect();
        self.open_sockets(&new, &leaving).await?;
        // From here on the reload cannot be refused, and nothing is awaited until all routes are stopped or
        // started.
        self.memory.resize(memory, sessions);
        let mut changes = Changes {
            kept: kept.len(),
            started: new.iter().map(|it| it.started.route.name.clone()).collect(),
            ..Changes::default()
        };
        if let Some(any) = kept.iter().chain(&new).next() {
            let names: BTreeSet<&str> = kept
                .iter()
                .chain(&new)
                .map(|it| it.started.route.name.as_str())
                .collect();
            // All routes have the same watch.
            any.started
                .route
                .config
                .watch
                .forget_failed(|name| names.contains(name));
        }
        let wanted: Vec<Place> = kept.iter().chain(&new).map(|it| it.place.clone()).collect();
        let is_wanted = |at| wanted.iter().any(|place| place.is_at(at));
        self.sockets.keep(is_wanted);
        for running in &mut self.running {
            if leaving.contains(&running.id) {
                let name = &running.started.route.name;
                if !changes.started.contains(name) && !changes.stopped.contains(name) {
                    changes.stopped.push(name.clone());
                }
                running.is_stopping = true;
                running.stop.stop();
            }
        }
        let new: Vec<(usize, u64)> = new
            .into_iter()
            .map(|checked| (checked.index, self.spawn(checked)))
            .collect();
        for (index, id) in new {
            if let Some((name, error)) = self.failed_to_start(id).await {
                changes.started.retain(|started| *started != name);
                let error = RouteError::Run(error);
                changes.failed.push(RouteFault { index, name, error });
            }
        }
        Ok(changes)
    }

    /// The next route that ends, by itself or because it was stopped; `None` if none is left. Cancel-safe.
    pub async fn ended(&mut self) -> Option<RouteEnd> {
        loop {
            if let Some((_, end)) = self.ended.pop_front() {
                return Some(end);
            }
            let joined = self.tasks.join_next().await?;
            self.remember(joined);
        }
    }

    /// The names of the routes that run and were not told to stop.
    pub fn names(&self) -> Vec<String> {
        let names = self.current().map(|running| &running.started.route.name);
        names.cloned().collect()
    }

    /// Stops all routes: their listeners are closed, and their sessions end within their grace time.
    /// Returns how each of them ended. If the future is dropped, all sessions end at once.
    pub async fn stop(mut self) -> Vec<RouteEnd> {
        self.sockets.keep(|_| false);
        for running in &mut self.running {
            running.is_stopping = true;
            running.stop.stop();
        }
        let mut ends = Vec::new();
        while let Some(end) = self.ended().await {
            ends.push(end);
        }
        ends
    }

    /// The routes that were not told to stop, and whose listener has not failed. A route whose listener has
    /// failed is started again, although its sessions may go on.
    fn current(&self) -> impl Iterator<Item = &Running> {
        let is_closed = |running: &Running| *running.phase.borrow() == Phase::Closed;
        let running = self.running.iter();
        running.filter(move |running| !running.is_stopping && !is_closed(running))
    }

    /// Refuses a new route at the standard streams, unless the process is just starting.
    fn check_streams(&self, new: &[Checked]) -> Result<(), Vec<RouteFault>> {
        let is_streams = |checked: &&Checked| first_phase(&checked.plan) == Phase::Listening;
        match new.iter().find(is_streams).filter(|_| self.next > 0) {
            None => Ok(()),
            Some(checked) => Err(vec![RouteFault {
                index: checked.index,
                name: checked.started.route.name.clone(),
                error: RouteError::StandardStreams,
            }]),
        }
    }

    /// Opens the sockets of new routes before anything is changed, so that a reload fails if another program
    /// uses an address. An address that becomes free only when another route has left is not opened yet.
    async fn open_sockets(&self, new: &[Checked], leaving: &[u64]) -> Result<(), Vec<RouteFault>> {
        let (mut opened, mut faults) = (Vec::new(), Vec::new());
        for checked in new {
            let Place::Tcp { host, port, .. } = &checked.place else {
                continue;
            };
            let leaves = |running: &&Running| running.is_stopping || leaving.contains(&running.id);
            let mut leaving = self.running.iter().filter(leaves);
            match self.sockets.open(host, *port).await {
                Ok(at) => opened.extend(at),
                Err(_) if leaving.any(|it| it.place.overlaps(&checked.place)) => {}
                Err(error) => faults.push(RouteFault {
                    index: checked.index,
                    name: checked.started.route.name.clone(),
                    error: not_opened(host, *port, error),
                }),
            }
        }
        if faults.is_empty() {
            return Ok(());
        }
        self.sockets.keep(|at| !opened.contains(&at));
        Err(faults)
    }

    /// Starts a route, once its address is free.
    fn spawn(&mut self, checked: Checked) -> u64 {
        let Checked {
            started,
            mut plan,
            place,
            ..
        } = checked;
        let before = self.running.iter().filter(|it| it.place.overlaps(&place));
        let before: Vec<_> = before.map(|it| it.phase.clone()).collect();
        let (id, stop, name) = (self.next, Stop::new(), started.route.name.clone());
        self.next += 1;
        let (phase, watched) = watch::channel(first_phase(&plan));
        plan.sockets = self.sockets.clone();
        plan.show(&started.route.config.watch, &name);
        let span = match started.route.named_in_log {
            true => tracing::error_span!("route", name = %name),
            false => tracing::Span::none(),
        };
        let task = run(plan, stop.clone(), before, phase, self.tell.clone(), name);
        let task = async move { (id, task.await) };
        self.tasks.spawn(task.instrument(span));
        self.running.push(Running {
            id,
            started,
            place,
            stop,
            is_stopping: false,
            phase: watched,
        });
        id
    }

    /// Waits until a route listens; its name and the reason if it does not.
    async fn failed_to_start(&mut self, id: u64) -> Option<(String, RunError)> {
        loop {
            if let Some(at) = self.ended.iter().position(|(ended, _)| *ended == id) {
                let (_, end) = self.ended.remove(at)?;
                return Some((end.name, end.outcome.err()?));
            }
            let running = self.running.iter().find(|running| running.id == id)?;
            let mut phase = running.phase.clone();
            if *phase.borrow_and_update() == Phase::Listening {
                return None;
            }
            tokio::select! {
                Some(joined) = self.tasks.join_next() => self.remember(joined),
                Ok(()) = phase.changed() => {}
            }
        }
    }

    /// Takes note of all routes that have ended.
    fn collect_ended(&mut self) {
        while let Some(joined) = self.tasks.try_join_next() {
            self.remember(joined);
        }
    }

    fn remember(&mut self, joined: Result<(u64, Result<(), RunError>), tokio::task::JoinError>) {
        let (id, outcome) = match joined {
            Ok(ended) => ended,
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            // A task is cancelled only when this is dropped.
            Err(_) => return,
        };
        let Some(at) = self.running.iter().position(|running| running.id == id) else {
            return;
        };
        let running = self.running.remove(at);
        // No route accepts from the ended one's socket any more, unless another one has the same address.
        let is_used = |at| self.running.iter().any(|running| running.place.is_at(at));
        self.sockets.keep(is_used);
        let end = RouteEnd {
            name: running.started.route.name,
            was_stopped: running.is_stopping,
            outcome,
        };
        self.ended.push_back((id, end));
    }
}

/// How many sessions these routes may have.
fn sessions(routes: &[Route]) -> usize {
    let sessions = routes.iter().map(|route| route.config.max_sessions);
    sessions.fold(0, usize::saturating_add)
}

/// The phase in which a route begins: at the standard streams it listens at once, since they are open
/// already.
fn first_phase(plan: &Plan) -> Phase {
    #[cfg(feature = "process")]
    if plan.listen.at == crate::endpoint::At::Stdio {
        return Phase::Listening;
    }
    #[cfg(not(feature = "process"))]
    let _ = plan;
    Phase::Starting
}

/// Runs one route, once those that listen at its address have left.
async fn run(
    plan: Plan,
    stop: Stop,
    before: Vec<watch::Receiver<Phase>>,
    phase: watch::Sender<Phase>,
    tell: TellRoute,
    name: String,
) -> Result<(), RunError> {
    for mut phase in before {
        tokio::select! {
            // An error says that the route has ended.
            _ = phase.wait_for(|phase| *phase == Phase::Closed) => {}
            () = stop.stopped() => return Ok(()),
        }
    }
    let tell = |event: Event| {
        match &event {
            Event::Listening(_) => drop(phase.send_replace(Phase::Listening)),
            Event::Closed => drop(phase.send_replace(Phase::Closed)),
            _ => {}
        }
        tell(&name, event);
    };
    plan.run(&stop, tell).await
}

/// Looks for the targets of new routes, side by side.
async fn check_targets(new: Vec<Checked>) -> Result<Vec<Checked>, Vec<RouteFault>> {
    let mut checks = JoinSet::new();
    for mut checked in new {
        checks.spawn(async move {
            // A session over the standard streams begins at once, and its target is opened then.
            let outcome = match first_phase(&checked.plan) {
                Phase::Listening => Ok(()),
                _ => check_target(&checked.plan).await,
            };
            // The plan need not check its target again when it runs.
            checked.plan.check = false;
            (checked, outcome)
        });
    }
    let (mut found, mut faults) = (Vec::new(), Vec::new());
    for (checked, outcome) in checks.join_all().await {
        faults.extend(outcome.err().map(|error| RouteFault {
            index: checked.index,
            name: checked.started.route.name.clone(),
            error: RouteError::Run(error),
        }));
        found.push(checked);
    }
    found.sort_by_key(|checked| checked.index);
    faults.sort_by_key(|fault| fault.index);
    match faults.is_empty() {
        true => Ok(found),
        false => Err(faults),
    }
}

#[cfg(all(test, feature = "process"))]
#[allow(clippy::unwrap_used)]
mod tests;
