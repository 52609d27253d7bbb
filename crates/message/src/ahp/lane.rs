//! What may overtake what.

use crate::jsonrpc::Kind;

/// Where a message waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// With all that carries order: the real client keeps the largest `serverSeq` it saw, so that
    /// an action which overtakes another hides it for good.
    Ordered,
    /// It carries no state and may overtake.
    Free,
}

/// The lane of a message, either way. A response has no method: the caller passes that of the
/// request it answers, and none where it does not know.
pub fn lane_of(kind: Kind, method: Option<&str>) -> Lane {
    let free = match (kind, method) {
        (Kind::Request, Some(method)) => method == "ping",
        (Kind::Result | Kind::Error, Some(method)) => {
            matches!(method, "ping" | "completions") || method.starts_with("resource")
        }
        _ => false,
    };
    if free { Lane::Free } else { Lane::Ordered }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_carries_no_state_is_free() {
        use Kind::{Error, Notification, Request, Result};
        for (kind, method, lane) in [
            (Request, Some("ping"), Lane::Free),
            (Result, Some("ping"), Lane::Free),
            (Error, Some("ping"), Lane::Free),
            (Notification, Some("ping"), Lane::Ordered),
            (Request, Some("resourceRead"), Lane::Ordered),
            (Result, Some("resourceRead"), Lane::Free),
            (Error, Some("resourceWrite"), Lane::Free),
            (Request, Some("completions"), Lane::Ordered),
            (Result, Some("completions"), Lane::Free),
            (Result, Some("createResourceWatch"), Lane::Ordered),
            (Result, Some("initialize"), Lane::Ordered),
            (Result, Some("reconnect"), Lane::Ordered),
            (Error, Some("subscribe"), Lane::Ordered),
            (Request, Some("createSession"), Lane::Ordered),
            (Notification, Some("action"), Lane::Ordered),
            (Notification, Some("dispatchAction"), Lane::Ordered),
            (Notification, Some("resourceChanged"), Lane::Ordered),
            (Result, Some(""), Lane::Ordered),
            (Result, None, Lane::Ordered),
            (Request, None, Lane::Ordered),
        ] {
            assert_eq!(lane_of(kind, method), lane, "{kind:?} {method:?}");
        }
    }
}
