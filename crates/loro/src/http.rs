//! The paths, parameters and texts of loro-extended's HTTP endpoints, as recorded from the original.

use breakbulk_link::FaultKind;
use breakbulk_net::http::{ClientOptions, Dialect, PostErrors, ServeOptions};

/// The paths, parameters and words of loro-extended.
pub const DIALECT: Dialect = Dialect {
    websocket: &["", "ws"],
    events: "events",
    poll: "poll",
    post: "sync",
    open: "open",
    offer: "offer",
    peer_parameter: "peerId",
    peer_header: "x-peer-id",
    wait_parameter: "wait",
    messages_member: "messages",
    new_member: "isNewConnection",
    unnamed_prefix: "ws-",
    channel_label: "loro-sync",
    kept: r#"{"ok":true}"#,
    pending: r#"{"pending":true}"#,
    no_peer: "peerId is required",
    not_binary: "Expected binary body",
    event_posts: PostErrors {
        no_peer: "Missing peer ID",
        unknown: "Peer not connected",
    },
    poll_posts: PostErrors {
        no_peer: "x-peer-id header is required",
        unknown: "Connection not found. Poll first to establish connection.",
    },
    fault_text,
};

/// The default options of a server with these paths and texts.
pub fn serve_options() -> ServeOptions {
    ServeOptions {
        dialect: DIALECT,
        ..ServeOptions::default()
    }
}

/// The default options of a client with these paths and texts.
pub fn client_options(peer_id: impl Into<String>) -> ClientOptions {
    ClientOptions {
        dialect: DIALECT,
        ..ClientOptions::new(peer_id)
    }
}

fn fault_text(fault: &FaultKind) -> Option<&'static str> {
    Some(match fault {
        // The original has one code for everything that it cannot parse.
        FaultKind::Malformed { .. } | FaultKind::UnknownKind => "parse_error",
        FaultKind::Duplicate { .. } | FaultKind::Conflict { .. } => "duplicate_fragment",
        FaultKind::BadIndex { .. } => "invalid_index",
        FaultKind::SizeMismatch { .. } | FaultKind::Overrun { .. } => "size_mismatch",
        FaultKind::Evicted => "evicted",
        _ => return None,
    })
}
