//! Where settings come from, and what is said if they are wrong.

use std::path::PathBuf;
use std::sync::Arc;

use breakbulk::gateway::watch::Watch;
use breakbulk::gateway::{LearnedCaps, RouteError, RouteFault, Routes, Traces};

use super::admin::AdminOptions;
use super::config::{self, Source};
use super::explain::Spelling;
use super::settings::{Problem, Settings, Understood};
use super::state;
use super::traces::TracesOptions;
use crate::failure::Failure;
use crate::log::LogOptions;
use crate::record::Record;

/// The command line, or a file that can be read again, and what stays the same when it is.
pub(super) struct Setup {
    origin: Origin,
    /// What gateways tell about themselves.
    pub(super) watch: Watch,
    /// Where spans of requests go.
    pub(super) traces: Option<Traces>,
    /// The file of learned caps, and what is in it.
    caps: Option<(Option<PathBuf>, Arc<LearnedCaps>)>,
    /// What only a start reads.
    at_start: Option<AtStart>,
}

/// The tables of a file that only a start reads.
#[derive(Clone, PartialEq)]
struct AtStart {
    admin: Option<AdminOptions>,
    log: Option<LogOptions>,
    record: Option<Record>,
    traces: Option<TracesOptions>,
}

enum Origin {
    /// The settings, until they are taken.
    CommandLine(Option<Box<Settings>>),
    File(PathBuf),
}

/// What was read, before it is understood.
pub(super) struct Parsed {
    pub(super) settings: Settings,
    source: Option<Source>,
    problems: Vec<Problem>,
}

/// What is asked for, and the routes that follow from it.
pub(super) struct Wanted {
    pub(super) settings: Settings,
    pub(super) source: Option<Source>,
    pub(super) understood: Understood,
}

/// Why the settings cannot be applied.
pub(super) enum Refusal {
    /// It cannot be read, or the environment is wrong.
    Failure(Failure),
    /// All that is wrong with it.
    Problems {
        source: Option<Source>,
        problems: Vec<Problem>,
        /// Whether the setup must be corrected.
        is_setup: bool,
    },
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        Self::Failure(failure)
    }
}

impl Setup {
    pub(super) fn of_command_line(settings: Settings) -> Self {
        Self::new(Origin::CommandLine(Some(Box::new(settings))))
    }

    pub(super) fn of_file(path: PathBuf) -> Self {
        Self::new(Origin::File(path))
    }

    fn new(origin: Origin) -> Self {
        Self {
            origin,
            watch: Watch::default(),
            traces: None,
            caps: None,
            at_start: None,
        }
    }

    pub(super) fn spelling(&self) -> Spelling {
        match self.origin {
            Origin::CommandLine(_) => Spelling::CommandLine,
            Origin::File(_) => Spelling::File,
        }
    }

    /// Reads what is asked for.
    ///
    /// # Errors
    /// If the file cannot be read at all.
    pub(super) fn parse(&mut self) -> Result<Parsed, Failure> {
        let (source, settings, problems) = match &mut self.origin {
            Origin::CommandLine(settings) => {
                let settings = settings.take();
                let settings = settings
                    .ok_or_else(|| Failure::Usage("a command line is read once".to_owned()))?;
                (None, *settings, Vec::new())
            }
            Origin::File(path) => {
                let (source, settings, problems) = config::read(path)?;
                (Some(source), settings, problems)
            }
        };
        Ok(Parsed {
            settings,
            source,
            problems,
        })
    }

    /// The routes that follow from it, if nothing is wrong.
    pub(super) fn understand(&mut self, parsed: Parsed) -> Result<Wanted, Refusal> {
        let Parsed {
            settings,
            source,
            mut problems,
        } = parsed;
        let caps = self.caps(&settings);
        let mut understood = settings.understand(&caps, &self.watch, self.traces.as_ref())?;
        problems.append(&mut understood.problems);
        let wanted = Wanted {
            settings,
            source,
            understood,
        };
        if problems.is_empty() {
            self.note_what_a_start_reads(&wanted.settings);
            return Ok(wanted);
        }
        // The other routes are looked at too, so that all is said at once.
        let faults = wanted.check().err().unwrap_or_default();
        Err(wanted.refuse(&faults, problems))
    }

    /// What was learned about paths; read again only if it is kept somewhere else.
    fn caps(&mut self, settings: &Settings) -> Arc<LearnedCaps> {
        let wanted = &settings.state;
        match &self.caps {
            Some((file, caps)) if file == wanted => caps.clone(),
            _ => {
                let read = Arc::new(state::learned_caps(wanted.as_deref()));
                self.caps = Some((wanted.clone(), read.clone()));
                read
            }
        }
    }

    /// Logs a warning if a reload would change what only a start reads.
    fn note_what_a_start_reads(&mut self, settings: &Settings) {
        let now = AtStart {
            admin: settings.admin.clone(),
            log: settings.log.clone(),
            record: settings.record.clone(),
            traces: settings.traces.clone(),
        };
        let before = self.at_start.get_or_insert_with(|| now.clone());
        if *before != now {
            tracing::warn!(
                "[admin], [log], [record] and [traces] are read at the start only: restart the program to apply the change"
            );
        }
    }
}

impl Wanted {
    /// Checks all that can be checked without opening anything.
    pub(super) fn check(&self) -> Result<(), Vec<RouteFault>> {
        Routes::check(self.understood.routes.clone(), self.settings.memory)
    }

    /// Why these routes are not started; further problems may be known already.
    pub(super) fn refuse(self, faults: &[RouteFault], mut problems: Vec<Problem>) -> Refusal {
        let indexes = &self.understood.indexes;
        let found = faults
            .iter()
            .map(|fault| self.settings.problem(fault, indexes));
        problems.extend(found);
        problems.sort_by_key(|problem| problem.at.as_ref().map(|at| at.start));
        problems.dedup();
        let is_setup = faults.iter().all(|fault| match &fault.error {
            RouteError::Run(error) => error.is_setup(),
            _ => true,
        });
        Refusal::Problems {
            source: self.source,
            problems,
            is_setup,
        }
    }
}

impl Refusal {
    /// One line for each thing that is wrong, for the log.
    pub(super) fn lines(&self) -> Vec<String> {
        match self {
            Self::Failure(failure) => vec![failure.to_string()],
            Self::Problems {
                source: Some(source),
                problems,
                ..
            } => source.lines(problems),
            Self::Problems { problems, .. } => problems
                .iter()
                .map(|problem| problem.text.clone())
                .collect(),
        }
    }

    /// The failure that ends the program, with the lines of the file that are wrong.
    pub(super) fn into_failure(self) -> Failure {
        let (text, is_setup) = match self {
            Self::Failure(failure) => return failure,
            Self::Problems {
                source: Some(source),
                problems,
                is_setup,
            } => (source.show(&problems), is_setup),
            Self::Problems { is_setup, .. } => (self.lines().join("\n"), is_setup),
        };
        match is_setup {
            true => Failure::Usage(text),
            false => Failure::Session(text),
        }
    }
}
