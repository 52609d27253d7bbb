//! What is wrong with routes: all of it is found before anything is started or stopped.

use super::place::Place;
use super::route::{Route, Started};
use crate::error::{PlanError, RunError};
use crate::plan::{Memory, Plan};
use crate::pump::Side;
use crate::serve::bind;

/// What is wrong with one route.
#[derive(Debug, thiserror::Error)]
#[error("route {name}: {error}")]
pub struct RouteFault {
    /// Which one, counted from 0.
    pub index: usize,
    /// Its name.
    pub name: String,
    /// What is wrong.
    pub error: RouteError,
}

/// Why a route cannot be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RouteError {
    /// Its ends and its configuration make no gateway.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// It cannot start.
    #[error(transparent)]
    Run(#[from] RunError),
    /// Another route has its name.
    #[error("another route has this name; each needs one of its own")]
    SameName {
        /// Which one, counted from 0.
        other: usize,
    },
    /// The standard streams are in use, and cannot be opened twice.
    #[error(
        "the standard streams belong to a session that runs; start the program again to change this route"
    )]
    StandardStreams,
    /// Another route listens there.
    #[error("route {name} listens at {place} too; give each route an address of its own")]
    SamePlace {
        /// Which one, counted from 0.
        other: usize,
        /// Its name.
        name: String,
        /// Where it listens.
        place: String,
    },
}

impl RouteError {
    /// The end that it is about, if it is about one.
    pub fn side(&self) -> Option<Side> {
        match self {
            Self::Plan(PlanError::End { side, .. }) => Some(*side),
            Self::Run(RunError::Open { side, .. }) => Some(*side),
            Self::Run(RunError::Check(_)) => Some(Side::To),
            Self::Run(RunError::Listen(_)) | Self::SamePlace { .. } | Self::StandardStreams => {
                Some(Side::Listen)
            }
            #[cfg(feature = "nats")]
            Self::Run(RunError::ListenNats(_)) => Some(Side::Listen),
            _ => None,
        }
    }
}

/// A route that can be started.
pub(super) struct Checked {
    /// Which one, counted from 0.
    pub(super) index: usize,
    pub(super) started: Started,
    pub(super) plan: Plan,
    pub(super) place: Place,
}

/// Checks all routes, without opening anything.
pub(super) fn check(
    routes: Vec<Route>,
    bytes: usize,
    memory: &Memory,
) -> Result<Vec<Checked>, Vec<RouteFault>> {
    let (mut checked, mut faults): (Vec<Checked>, Vec<RouteFault>) = (Vec::new(), Vec::new());
    let mut seen: Vec<(String, Place)> = Vec::new();
    for (index, mut route) in routes.into_iter().enumerate() {
        route.config.memory = bytes;
        let (name, started) = (route.name.clone(), route.started());
        let mut found: Vec<RouteError> = Vec::new();
        let same = seen.iter().position(|(known, _)| *known == name);
        found.extend(same.map(|other| RouteError::SameName { other }));
        let place = Place::of(&route.listen.at);
        let same = seen.iter().position(|(_, known)| known.overlaps(&place));
        found.extend(same.map(|other| RouteError::SamePlace {
            other,
            name: seen[other].0.clone(),
            place: seen[other].1.to_string(),
        }));
        seen.push((name.clone(), place.clone()));
        match Plan::within(memory, route.listen, route.to, route.config) {
            Ok(plan) => {
                found.extend(plan.check_files().into_iter().map(RouteError::Run));
                checked.push(Checked {
                    index,
                    started,
                    plan,
                    place,
                });
            }
            Err((first, more)) => {
                let all = std::iter::once(first).chain(more);
                found.extend(all.map(RouteError::Plan));
            }
        }
        faults.extend(found.into_iter().map(|error| RouteFault {
            index,
            name: name.clone(),
            error,
        }));
    }
    match faults.is_empty() {
        true => Ok(checked),
        false => Err(faults),
    }
}

impl Plan {
    /// What is wrong with the files and the command that a start would use.
    fn check_files(&self) -> Vec<RunError> {
        let mut found = Vec::new();
        #[cfg(feature = "tls")]
        {
            use breakbulk_net::ws::{check_client_files, check_server_files};
            let (listen, to) = (&self.listen, &self.to);
            // The listener of a tunnel over NATS is a client of the NATS server.
            let is_client = listen.at.is_nats();
            let of_server = listen.identity.as_ref().filter(|_| !is_client);
            let authority = listen.client_authority.as_deref();
            let checked = of_server.map_or(Ok(()), |files| check_server_files(files, authority));
            found.extend(checked.err().map(RunError::Listen));
            let ends = [(Side::Listen, listen), (Side::To, to)];
            for (side, end) in ends
                .into_iter()
                .filter(|(side, _)| *side == Side::To || is_client)
            {
                let checked = check_client_files(&end.roots, end.identity.as_ref());
                found.extend(checked.err().map(|error| RunError::Open {
                    side,
                    error: error.into(),
                }));
            }
        }
        let command = self.to.check_command();
        found.extend(command.err().map(|error| RunError::Open {
            side: Side::To,
            error,
        }));
        found
    }
}

/// The error of a socket that cannot be opened.
pub(super) fn not_opened(host: &str, port: u16, error: std::io::Error) -> RouteError {
    RouteError::Run(bind::not_bound(host, port, error))
}

#[cfg(all(test, feature = "process"))]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::plan::Config;
    use crate::watch::SessionWatch;

    // OPS-3
    #[test]
    fn routes_share_one_memory() {
        let route = |name: &str| {
            let config = Config::default().with(|config| {
                config.max_sessions = 5;
                config.max_message = Some(1 << 20);
            });
            Route::new(
                name,
                "tcp://0".parse().unwrap(),
                "exec:cat".parse().unwrap(),
                config,
            )
        };
        let bytes = 64 << 20;
        let memory = Memory::new(bytes, 10);
        let checked = check(vec![route("a"), route("b")], bytes, &memory)
            .ok()
            .unwrap();
        let [one, two] = [0, 1].map(|index: usize| {
            let plan = &checked[index].plan;
            plan.session_ends(&SessionWatch::default()).0.budget
        });
        // A tenth of a quarter is reserved for each session, the rest is shared by both routes.
        let (reserved, shared) = (bytes / 4 / 10, memory.shared().limit());
        let _held = one.charge(reserved + shared / 2).unwrap();
        assert_eq!(memory.shared().used(), shared / 2);
        assert!(
            two.charge(reserved + shared / 2).is_none(),
            "the other route took it"
        );
        assert!(two.charge(reserved + shared / 3).is_some());
    }
}
