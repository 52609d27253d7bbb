//! Which messages must stay in order, and which may overtake others.

use crate::jsonrpc::Kind;

/// The lane of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// The lane of all messages whose order matters: the real client keeps the largest `serverSeq`
    /// that it saw, so an action that overtakes another makes the client miss that one for good.
    Ordered,
    /// The lane of messages that carry no state and may overtake others.
    Free,
}

/// The lane of a message in either direction. A response has no method: the caller passes that of its
/// request, or `None` if it does not know it.
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
