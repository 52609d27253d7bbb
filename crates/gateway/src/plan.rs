//! Makes a plan of two endpoints and a configuration: everything is checked before anything is opened.

mod end;
mod exposure;
mod kinds;
mod memory;
mod sizes;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use breakbulk_ahp::foreign::Sessions;
#[cfg(feature = "nostr")]
use breakbulk_contextvm::Keys;
use breakbulk_link::Preset;
use breakbulk_net::AddressLimits;
use breakbulk_net::ws::Bearer;

#[cfg(any(feature = "process", feature = "nats"))]
use crate::endpoint::At;
use crate::endpoint::Endpoint;
#[cfg(feature = "process")]
use crate::error::EndError;
use crate::error::PlanError;
#[cfg(feature = "nats")]
use crate::fleet::FleetAddress;
use crate::pump::{Side, session_memory};
use crate::serve::Sockets;
use crate::tunnel::{LearnedCaps, Lobby};
use crate::watch::{RouteWatch, SessionWatch, Watch};
pub(crate) use end::End;
pub(crate) use kinds::Carried;
pub(crate) use memory::Memory;
pub use sizes::Overruled;

/// The configuration of both ends of a gateway, and of all its sessions.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// The largest frame where messages are cut, if an endpoint does not say it.
    pub max_frame: Option<usize>,
    /// The largest message that is taken, if an endpoint does not say it.
    pub max_message: Option<usize>,
    /// The largest WebSocket fragment that is sent, if an endpoint does not say it. A preset may have a
    /// smaller one.
    pub fragment: Option<usize>,
    /// What the capped path is known to let through.
    pub preset: Option<Preset>,
    /// The memory of all sessions, in bytes. Up to a quarter of it is for what sessions take beside their
    /// messages (80 KiB for each of `max_sessions`), and an eighth for what the allocator cannot use.
    pub memory: usize,
    /// The most sessions at a time.
    pub max_sessions: usize,
    /// What one client address may take of the listener. Its limit of connections is at most
    /// `max_sessions`.
    pub per_address: AddressLimits,
    /// How many handshakes of clients may be in progress.
    pub handshakes: usize,
    /// The origins of web pages that may connect; `None` allows those of this machine.
    pub allowed_origins: Option<Vec<String>>,
    /// The names in `Host` by which clients may address the listener, beside those of this machine.
    /// `None` allows any name where there is a token, or the client came from another machine.
    pub allowed_hosts: Option<Vec<String>>,
    /// The numbers of the users who may connect to a Unix socket, beside our own and root.
    #[cfg(unix)]
    pub allowed_users: Vec<u32>,
    /// Whether a listener without a token may be open to other machines.
    pub allow_remote: bool,
    /// Whether a WebSocket listener answers probes of clients that it lets in: see [`crate::probe`].
    pub probes: bool,
    /// Whether to look for the target before listening.
    pub check: bool,
    /// How long queued messages may take to be sent at the end.
    pub grace: Duration,
    /// How long a tunnel is kept after its line was lost; zero ends it with its line. The smaller one of
    /// both gateways applies.
    pub resume_for: Duration,
    /// The caps of paths that tunnels learned, and learn.
    pub learned_caps: Arc<LearnedCaps>,
    /// The fleet that this gateway is a member of.
    #[cfg(feature = "nats")]
    pub fleet: Option<FleetAddress>,
    /// The secret of the fleet, if its address names no file with it.
    #[cfg(feature = "nats")]
    pub fleet_secret: Option<String>,
    /// What the gateway tells about itself while it runs.
    pub watch: Watch,
    /// The name of this gateway in what it tells, where several run in one process.
    pub route: String,
    /// Takes a span of each request that passes.
    #[cfg(feature = "otlp")]
    pub traces: Option<crate::traces::Traces>,
    /// The bearer token of the listener or, if that is neither a WebSocket nor HTTP, of the target.
    pub token: Option<Bearer>,
    /// The key of the listener at relays or, if the listener is none, of the target at relays.
    #[cfg(feature = "nostr")]
    pub key: Option<Keys>,
}

breakbulk_link::with!(Config);

impl Default for Config {
    fn default() -> Self {
        Self {
            max_frame: None,
            max_message: None,
            fragment: None,
            preset: None,
            memory: 1 << 30,
            max_sessions: 256,
            per_address: AddressLimits {
                connections: 64,
                ..AddressLimits::default()
            },
            handshakes: 256,
            allowed_origins: None,
            allowed_hosts: None,
            #[cfg(unix)]
            allowed_users: Vec::new(),
            allow_remote: false,
            probes: true,
            check: true,
            grace: Duration::from_secs(10),
            resume_for: Duration::from_secs(60),
            learned_caps: Arc::default(),
            #[cfg(feature = "nats")]
            fleet: None,
            #[cfg(feature = "nats")]
            fleet_secret: None,
            watch: Watch::default(),
            route: "gateway".to_owned(),
            #[cfg(feature = "otlp")]
            traces: None,
            token: None,
            #[cfg(feature = "nostr")]
            key: None,
        }
    }
}

/// A gateway that can be run, once: see [`run`](Self::run).
pub struct Plan {
    pub(crate) listen: End,
    pub(crate) to: End,
    pub(crate) max_sessions: usize,
    pub(crate) guests: Guests,
    /// Whether probes are answered.
    pub(crate) probes: bool,
    pub(crate) check: bool,
    pub(crate) grace: Duration,
    /// Where clients find the listener, once it listens.
    pub(crate) heard_at: OnceLock<String>,
    /// The sessions of tunnels, which outlive their lines.
    pub(crate) lobby: Lobby,
    /// How to join the fleet.
    #[cfg(feature = "nats")]
    pub(crate) fleet_settings: Option<crate::fleet::Settings>,
    /// The fleet, once it is joined.
    #[cfg(feature = "nats")]
    pub(crate) fleet: OnceLock<Arc<crate::fleet::Fleet>>,
    /// The sessions of AHP hosts and of AHP clients, which outlive their connections.
    pub(crate) sessions: (Sessions, Sessions),
    /// The counters and the state of this route, for whoever looks.
    pub(crate) watched: RouteWatch,
    /// Listening sockets that are open already.
    pub(crate) sockets: Sockets,
    /// Takes a span of each request.
    #[cfg(feature = "otlp")]
    pub(crate) traces: Option<crate::traces::RouteTraces>,
    memory: Memory,
}

/// Who may connect to the listener, and how often.
pub(crate) struct Guests {
    pub(crate) per_address: AddressLimits,
    pub(crate) handshakes: usize,
    pub(crate) origins: Option<Vec<String>>,
    pub(crate) hosts: Option<Vec<String>>,
    #[cfg(unix)]
    pub(crate) users: Vec<u32>,
}

impl Guests {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            per_address: config.per_address.clone(),
            handshakes: config.handshakes,
            origins: config.allowed_origins.clone(),
            hosts: config.allowed_hosts.clone(),
            #[cfg(unix)]
            users: config.allowed_users.clone(),
        }
    }
}

impl Plan {
    /// Checks what both ends and the configuration ask for. Files with tokens and keys are read here.
    ///
    /// # Errors
    /// If the two ends do not fit together, or one of them cannot be used.
    pub fn new(listen: Endpoint, to: Endpoint, config: Config) -> Result<Self, PlanError> {
        let memory = Memory::new(config.memory, config.max_sessions);
        let (watch, name) = (config.watch.clone(), config.route.clone());
        let plan = Self::within(&memory, listen, to, config);
        let mut plan = plan.map_err(|(first, _)| first)?;
        plan.show(&watch, &name);
        Ok(plan)
    }

    /// [`new`](Self::new) within a memory that other plans share; the plan is not shown in the watch yet. The
    /// error is the first thing that is wrong, and what else was found.
    pub(crate) fn within(
        memory: &Memory,
        listen: Endpoint,
        to: Endpoint,
        config: Config,
    ) -> Result<Self, (PlanError, Vec<PlanError>)> {
        let only = |error| (error, Vec::new());
        let wrong = |side| move |error| PlanError::End { side, error };
        let (of_listen, of_to) = (wrong(Side::Listen), wrong(Side::To));
        let carried = fit(&listen, &to, &config).map_err(only)?;
        let (at, shared) = (listen.at.clone(), memory.shared());
        #[cfg(feature = "nats")]
        let fleet = fleet_settings(&config, &at);
        let ends = (
            End::new(listen, None, &config, carried, shared).map_err(of_listen),
            End::new(to, Some(&at), &config, carried, shared).map_err(of_to),
        );
        let (listen, to) = match ends {
            (Ok(listen), Ok(to)) => (listen, to),
            (Err(first), second) => return Err((first, second.err().into_iter().collect())),
            (_, Err(first)) => return Err(only(first)),
        };
        #[cfg(feature = "nats")]
        let fleet_settings = fleet.map_err(only)?;
        let needed =
            session_memory(listen.max_message).saturating_add(session_memory(to.max_message));
        let too_small = (needed > config.memory).then_some(PlanError::Memory {
            memory: config.memory,
            needed,
        });
        let open = listen.may_listen(&config).map_err(of_listen).err();
        let mut found = too_small.into_iter().chain(open);
        if let Some(first) = found.next() {
            return Err((first, found.collect()));
        }
        let of_address = config.per_address.connections;
        let lobby = Lobby::new(config.max_sessions, of_address)
            .map_err(|error| only(PlanError::Random(error)))?;
        Ok(Self {
            listen,
            to,
            max_sessions: config.max_sessions,
            guests: Guests::new(&config),
            probes: config.probes,
            check: config.check,
            grace: config.grace,
            heard_at: OnceLock::new(),
            lobby,
            #[cfg(feature = "nats")]
            fleet_settings,
            #[cfg(feature = "nats")]
            fleet: OnceLock::new(),
            sessions: Default::default(),
            watched: RouteWatch::new(&Watch::off(), "", Default::default(), Arc::default()),
            sockets: Sockets::default(),
            #[cfg(feature = "otlp")]
            traces: config.traces.map(|traces| traces.of_route(&config.route)),
            memory: memory.clone(),
        })
    }

    /// Shows the plan in the watch, as the route of this name.
    pub(crate) fn show(&mut self, watch: &Watch, name: &str) {
        let shown = (self.listen.shown(), self.to.shown());
        let caps = self.listen.caps.learned.clone();
        self.watched = RouteWatch::new(watch, name, shown, caps);
        self.watched.set_memory(&self.memory);
    }

    /// The prefix of the names of sessions over HTTP: the name of this member, if it is one of a fleet.
    #[cfg(all(feature = "nats", feature = "http"))]
    pub(crate) fn session_prefix(&self) -> String {
        match &self.fleet_settings {
            Some(_) => self.lobby.member().to_string(),
            None => String::new(),
        }
    }

    /// Both ends for one session, with its own share of the memory.
    pub(crate) fn session_ends(&self, watched: &SessionWatch) -> (End, End) {
        let (mut listen, mut to) = (self.listen.clone(), self.to.clone());
        let budget = self.memory.of_session();
        to.budget = budget.clone();
        listen.budget = budget;
        listen.watched = watched.side(Side::Listen);
        to.watched = watched.side(Side::To);
        (listen, to)
    }
}

/// The kind of message that both ends carry, if the two can be a listener and its target.
fn fit(listen: &Endpoint, to: &Endpoint, config: &Config) -> Result<Carried, PlanError> {
    #[cfg(feature = "process")]
    {
        let wrong = |side, error| Err(PlanError::End { side, error });
        match (&listen.at, &to.at) {
            (At::Exec(_), _) => return wrong(Side::Listen, EndError::ListenExec),
            (At::Stdio, At::Stdio) => return Err(PlanError::BothStdio),
            (_, At::Stdio) => return wrong(Side::To, EndError::TargetStdio),
            _ => {}
        }
    }
    if config.max_sessions == 0 {
        return Err(PlanError::NoSessions);
    }
    let target = to.at.check_target();
    target.map_err(|error| PlanError::End {
        side: Side::To,
        error,
    })?;
    kinds::in_common(listen, to)
}

/// How to join the fleet that the configuration names.
#[cfg(feature = "nats")]
fn fleet_settings(
    config: &Config,
    listener: &At,
) -> Result<Option<crate::fleet::Settings>, PlanError> {
    let secret = config.fleet_secret.as_deref();
    let settings = config.fleet.clone().map(|fleet| {
        let settings = crate::fleet::Settings::new(fleet, secret, listener);
        settings.map_err(PlanError::from)
    });
    settings.transpose()
}
