//! What the command line or a file asks for, and the routes that follow from it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use breakbulk::gateway::watch::Watch;
use breakbulk::gateway::{
    Endpoint, EndpointError, LearnedCaps, PlanError, Route, RouteError, RouteFault, Side, Traces,
};

use super::admin::AdminOptions;
use super::explain::{self, Spelling};
use super::options::RouteOptions;
use super::traces::TracesOptions;
use crate::failure::Failure;
use crate::guests::Room;
use crate::log::LogOptions;
use crate::record::Record;
use crate::{key, token};

/// Where the keys of a table stand in their file; empty for a command line.
pub(super) type Places = BTreeMap<String, Range<usize>>;

/// All that one process is asked for.
#[derive(Debug)]
pub(super) struct Settings {
    /// How options are written there.
    pub(super) spelling: Spelling,
    /// The memory for the messages of all sessions of all routes.
    pub(super) memory: usize,
    /// Where learned caps are kept.
    pub(super) state: Option<PathBuf>,
    pub(super) routes: Vec<RouteSettings>,
    /// The table of the admin port.
    pub(super) admin: Option<AdminOptions>,
    /// The table of the log.
    pub(super) log: Option<LogOptions>,
    /// The table of the flight recorder.
    pub(super) record: Option<Record>,
    /// The table of the collector of traces.
    pub(super) traces: Option<TracesOptions>,
    pub(super) places: Places,
}

/// What is asked for one route.
#[derive(Clone, Debug)]
pub(super) struct RouteSettings {
    pub(super) name: String,
    pub(super) listen: String,
    pub(super) to: String,
    pub(super) options: RouteOptions,
    pub(super) files: ListenerFiles,
    pub(super) places: Places,
}

/// The files of a listener, where they are not named in its endpoint.
#[derive(Clone, Debug, Default)]
pub(super) struct ListenerFiles {
    pub(super) token_file: Option<PathBuf>,
    pub(super) cert: Option<PathBuf>,
    pub(super) key: Option<PathBuf>,
    pub(super) ca: Option<PathBuf>,
}

/// Something that is wrong, and where it stands if it came from a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    pub(super) at: Option<Range<usize>>,
    pub(super) text: String,
}

/// The routes that can be understood, and which of the settings each of them is.
pub(super) struct Understood {
    pub(super) routes: Vec<Route>,
    pub(super) indexes: Vec<usize>,
    pub(super) problems: Vec<Problem>,
}

impl Settings {
    /// Makes routes of the texts, and gathers what is wrong with them.
    ///
    /// # Errors
    /// What is wrong with the environment.
    pub(super) fn understand(
        &self,
        caps: &Arc<LearnedCaps>,
        watch: &Watch,
        traces: Option<&Traces>,
    ) -> Result<Understood, Failure> {
        let (mut routes, mut indexes, mut problems) = (Vec::new(), Vec::new(), Vec::new());
        for (index, settings) in self.routes.iter().enumerate() {
            match self.route(settings, (caps, watch, traces), &mut problems)? {
                Some(route) => {
                    routes.push(route);
                    indexes.push(index);
                }
                None => debug_assert!(!problems.is_empty()),
            }
        }
        self.fit_in_open_files(&mut routes);
        Ok(Understood {
            routes,
            indexes,
            problems,
        })
    }

    /// One route; `None` if something is wrong, which is added to the problems.
    fn route(
        &self,
        settings: &RouteSettings,
        (caps, watch, traces): (&Arc<LearnedCaps>, &Watch, Option<&Traces>),
        problems: &mut Vec<Problem>,
    ) -> Result<Option<Route>, Failure> {
        let before = problems.len();
        let mut parse = |side: Side, text: &str| {
            let parsed = text.parse::<Endpoint>();
            // The text itself is not repeated, since it may contain a secret.
            let wrong = |error: EndpointError| Problem {
                at: settings.places.get(&side.to_string()).cloned(),
                text: explain::end(self.spelling, side, &error.into()),
            };
            parsed.map_err(|error| problems.push(wrong(error))).ok()
        };
        let (listen, to) = (
            parse(Side::Listen, &settings.listen),
            parse(Side::To, &settings.to),
        );
        let config = settings.options.config().map_err(|(key, error)| {
            let option = self.spelling.option(key);
            problems.push(Problem {
                at: self.place(settings, &[key]),
                text: format!("{option}{error}"),
            });
        });
        let (Some(mut listen), Some(to), Ok(mut config)) = (listen, to, config) else {
            return Ok(None);
        };
        problems.extend(self.add_files(settings, &mut listen));
        if problems.len() > before {
            return Ok(None);
        }
        config.learned_caps = caps.clone();
        config.watch = watch.clone();
        config.traces = traces.cloned();
        config.route.clone_from(&settings.name);
        config.token = token::from_environment()?;
        if listen.is_relays() || to.is_relays() {
            config.key = key::from_environment()?;
        }
        let mut route = Route::new(&settings.name, listen, to, config);
        route.named_in_log = self.spelling == Spelling::File;
        Ok(Some(route))
    }

    /// Gives the listener the files that are named beside its endpoint. Files that are named at the top of
    /// the file are ignored by listeners that cannot use them.
    fn add_files(&self, settings: &RouteSettings, listen: &mut Endpoint) -> Vec<Problem> {
        let files = &settings.files;
        let mut problems = Vec::new();
        let mut check = |key: &str, used: bool, only: &str| {
            let place = settings.places.get(key).filter(|_| !used);
            problems.extend(place.map(|place| Problem {
                at: Some(place.clone()),
                text: format!("{key} is for {only}; this route listens at something else"),
            }));
        };
        if let Some(file) = &files.token_file {
            let used = listen.or_token_file(file);
            check("token-file", used, "WebSockets and HTTP");
        }
        let secure = "wss:// and https://";
        match (&files.cert, &files.key) {
            (Some(cert), Some(key)) => {
                let used = listen.or_certificate(cert, key);
                check("cert", used, secure);
            }
            (None, None) => {}
            (cert, _) => problems.push(Problem {
                at: self.place(settings, &[if cert.is_some() { "cert" } else { "key" }]),
                text: "cert and key go together; give both".to_owned(),
            }),
        }
        if let Some(file) = &files.ca {
            let used = listen.or_authority(file);
            let place = settings.places.get("ca").filter(|_| !used);
            problems.extend(place.map(|place| Problem {
                at: Some(place.clone()),
                text: format!("ca is for {secure}; this route listens at something else"),
            }));
        }
        problems
    }

    /// Lowers the sessions of each route to what the limit of open files has room for.
    fn fit_in_open_files(&self, routes: &mut [Route]) {
        if routes.is_empty() {
            return;
        }
        // A session has the client's socket, and the target's socket or a command's pipes; over HTTP each
        // request that is open has a socket.
        let files = |route: &Route| {
            let ends = [&route.listen, &route.to];
            6 + ends
                .map(|end| 3 * usize::from(end.is_http()))
                .iter()
                .sum::<usize>()
        };
        let most = routes.iter().map(files).max().unwrap_or_default();
        let sessions = routes.iter().map(|route| route.config.max_sessions);
        let sessions = sessions.fold(0, usize::saturating_add);
        let room = Room::make(sessions, most, Some(&self.spelling.option("max-sessions")));
        for route in routes {
            // What one route gets does not depend on the others: they may change while it runs.
            let sessions = &mut route.config.max_sessions;
            *sessions = (*sessions).min(room.connections);
            route.config.handshakes = room.handshakes;
        }
    }

    /// What is wrong with a route, where it stands.
    pub(super) fn problem(&self, fault: &RouteFault, indexes: &[usize]) -> Problem {
        let settings = indexes.get(fault.index).map(|index| &self.routes[*index]);
        let keys = explain::keys(&fault.error);
        let at = settings.and_then(|settings| self.place(settings, keys));
        let of_key = settings.and_then(|settings| self.place(settings, &keys[..1]));
        let text = match &fault.error {
            // Where the limit stands itself, it does not matter which end it is too small for.
            RouteError::Plan(PlanError::End { error, .. })
                if keys.len() > 1 && of_key.is_some() =>
            {
                error.to_string()
            }
            error => explain::route(self.spelling, error),
        };
        Problem { at, text }
    }

    /// The place of the first of these keys that the route has or, if it has none, the top of the file.
    fn place(&self, settings: &RouteSettings, keys: &[&str]) -> Option<Range<usize>> {
        let place = |key: &&str| settings.places.get(*key).or_else(|| self.places.get(*key));
        keys.iter().find_map(place).cloned()
    }
}
