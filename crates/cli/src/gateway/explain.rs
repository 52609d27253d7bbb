//! The texts of the library's errors, with the options and variables of this program that correct them.

use breakbulk::gateway::{
    EndError, EndpointError, FleetError, KeyFileError, OpenError, PlanError, RunError, Side,
};

use crate::key::VARIABLE as KEY;

/// Why two endpoints make no gateway.
pub(super) fn plan(error: &PlanError) -> String {
    match error {
        PlanError::End { side, error } => end(*side, error),
        PlanError::Fleet(FleetError::NoSecret) => {
            format!("--{error}, or set BREAKBULK_FLEET_SECRET")
        }
        PlanError::Fleet(_) => format!("--{error}"),
        PlanError::NoSessions => "--max-sessions 0 accepts no client; give at least 1".to_owned(),
        PlanError::Memory { .. } => format!("--memory: {error}"),
        error => error.to_string(),
    }
}

/// Why an end cannot be used as it was written.
pub(super) fn end(side: Side, error: &EndError) -> String {
    let remedy = match error {
        EndError::OnlyFor {
            option,
            side: other,
        } => {
            return format!("--{side}: {option} is for --{other}");
        }
        EndError::OpenToOthers { .. } => {
            ", or set BREAKBULK_TOKEN (--allow-remote accepts clients without a token)".to_owned()
        }
        EndError::StreamOpenToOthers { .. } => {
            " (--allow-remote accepts whoever connects)".to_owned()
        }
        EndError::NoProxyHeader => return format!("--trust-proxy: {error}"),
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
    format!("--{side}: {error}{remedy}")
}

/// Why the gateway ended.
pub(super) fn run(error: &RunError) -> String {
    match error {
        RunError::Check(_) => format!("--{error}, or give --no-check"),
        RunError::Listen(_) | RunError::Fleet(_) => format!("--{error}"),
        RunError::Open {
            side,
            error: OpenError::End(error),
        } => end(*side, error),
        RunError::Open { .. } => format!("--{error}"),
        RunError::Session(end) if end.ended.refused.is_some() => {
            format!("{error} (--preset NAME, --max-frame SIZE)")
        }
        error => error.to_string(),
    }
}
