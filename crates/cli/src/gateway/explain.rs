//! The texts of the library's errors, with the options and variables of this program that correct them.

use breakbulk::gateway::{
    EndError, EndpointError, FleetError, KeyFileError, OpenError, PlanError, RouteError, RunError,
    Side,
};
use breakbulk::net::ws::ListenError;

use crate::key::VARIABLE as KEY;

/// How options are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spelling {
    /// With two dashes.
    CommandLine,
    /// As keys.
    File,
}

impl Spelling {
    /// An option, as it is written there.
    pub(super) fn option(self, name: &str) -> String {
        match self {
            Self::CommandLine => format!("--{name}"),
            Self::File => name.to_owned(),
        }
    }
}

/// Why a route cannot be started.
pub(super) fn route(spelling: Spelling, error: &RouteError) -> String {
    match error {
        RouteError::Plan(error) => plan(spelling, error),
        RouteError::Run(error) => run(spelling, error),
        RouteError::SameName { .. } => format!("name: {error}"),
        RouteError::SamePlace { .. } | RouteError::StandardStreams => format!("listen: {error}"),
        error => error.to_string(),
    }
}

/// The keys of a file that an error may be about: the first that is there.
pub(super) fn keys(error: &RouteError) -> &'static [&'static str] {
    let of_end = |side: Side, error: &EndError| -> &'static [&'static str] {
        match (error, side) {
            (EndError::FrameTooSmall { .. }, Side::Listen) => &["max-frame", "listen"],
            (EndError::FrameTooSmall { .. }, Side::To) => &["max-frame", "to"],
            (EndError::FragmentTooSmall { .. }, Side::Listen) => &["fragment", "listen"],
            (EndError::FragmentTooSmall { .. }, Side::To) => &["fragment", "to"],
            (EndError::MessageTooSmall { .. }, Side::Listen) => &["max-message", "listen"],
            (EndError::MessageTooSmall { .. }, Side::To) => &["max-message", "to"],
            (EndError::NoProxyHeader, _) => &["trust-proxy", "listen"],
            (EndError::Token(_), Side::Listen) => &["token-file", "listen"],
            (_, Side::Listen) => &["listen"],
            (_, Side::To) => &["to"],
        }
    };
    match error {
        RouteError::Plan(PlanError::End { side, error }) => of_end(*side, error),
        RouteError::Plan(PlanError::Fleet(_)) | RouteError::Run(RunError::Fleet(_)) => {
            &["fleet", "name"]
        }
        RouteError::Plan(PlanError::NoSessions) => &["max-sessions", "name"],
        RouteError::Plan(PlanError::Memory { .. }) => &["max-message", "memory", "name"],
        RouteError::Run(RunError::Listen(ListenError::Identity { .. })) => &["cert", "listen"],
        RouteError::Run(RunError::Open {
            side,
            error: OpenError::End(error),
        }) => of_end(*side, error),
        RouteError::SameName { .. } => &["name"],
        error => match error.side() {
            Some(Side::Listen) => &["listen"],
            Some(Side::To) | None => &["to"],
        },
    }
}

/// Why two endpoints make no gateway.
fn plan(spelling: Spelling, error: &PlanError) -> String {
    match error {
        PlanError::End { side, error } => end(spelling, *side, error),
        PlanError::NoSessions => {
            let option = spelling.option("max-sessions");
            format!("{option} 0 accepts no client; give at least 1")
        }
        PlanError::Memory { .. } => format!("{}: {error}", spelling.option("memory")),
        PlanError::Fleet(FleetError::NoSecret) => {
            let words = spelling.option(&error.to_string());
            format!("{words}, or set BREAKBULK_FLEET_SECRET")
        }
        PlanError::Fleet(_) => spelling.option(&error.to_string()),
        error => error.to_string(),
    }
}

/// Why an end cannot be used as it was written.
pub(super) fn end(spelling: Spelling, side: Side, error: &EndError) -> String {
    let option = |name: &str| spelling.option(name);
    let named = option(&side.to_string());
    let remedy = match error {
        EndError::OnlyFor {
            option: name,
            side: other,
        } => {
            return format!("{named}: {name} is for {}", option(&other.to_string()));
        }
        EndError::OpenToOthers { .. } => {
            let allow = option("allow-remote");
            format!(", or set BREAKBULK_TOKEN ({allow} accepts clients without a token)")
        }
        EndError::StreamOpenToOthers { .. } => {
            format!(" ({} accepts whoever connects)", option("allow-remote"))
        }
        EndError::FrameTooSmall { .. } => set_by(&option("max-frame"), "max-frame"),
        EndError::MessageTooSmall { .. } => set_by(&option("max-message"), "max-message"),
        EndError::FragmentTooSmall { .. } => set_by(&option("fragment"), "fragment"),
        EndError::NoProxyHeader => return format!("{}: {error}", option("trust-proxy")),
        EndError::NoKey => format!(" (breakbulk keygen FILE makes one), or set {KEY}"),
        EndError::SharedKey => format!("; unset {KEY} too"),
        EndError::Key(KeyFileError::NotFound(file)) => {
            format!("; make one with breakbulk keygen {}", file.display())
        }
        EndError::Key(KeyFileError::OpenToOthers { .. }) => {
            ", or make another with breakbulk keygen".to_owned()
        }
        EndError::Endpoint(EndpointError::TokenInText | EndpointError::Credentials) => {
            " or BREAKBULK_TOKEN".to_owned()
        }
        EndError::Endpoint(EndpointError::KeyInText) => {
            format!(" (breakbulk keygen FILE makes one) or {KEY}")
        }
        _ => String::new(),
    };
    format!("{named}: {error}{remedy}")
}

/// Where a size was given.
fn set_by(option: &str, name: &str) -> String {
    format!(" ({option} SIZE, or ?{name}=SIZE at this end)")
}

/// Why the gateway ended.
pub(super) fn run(spelling: Spelling, error: &RunError) -> String {
    let option = |name: &str| spelling.option(name);
    match error {
        RunError::Check(_) => {
            let words = option(&error.to_string());
            format!("{words}, or give {}", option("no-check"))
        }
        RunError::Open {
            side,
            error: OpenError::End(error),
        } => end(spelling, *side, error),
        RunError::Listen(_) | RunError::Fleet(_) | RunError::Open { .. } => {
            option(&error.to_string())
        }
        error => error.to_string(),
    }
}
