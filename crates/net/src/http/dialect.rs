//! What differs between protocols over HTTP: paths, parameter names and answer texts.

use breakbulk_link::FaultKind;

/// The paths, names and texts of one protocol over HTTP, for its server and its clients. The default is
/// a set of our own.
#[derive(Clone, Copy, Debug)]
pub struct Dialect {
    /// Paths that accept WebSockets, below the mount point; the empty path is the mount point itself.
    pub websocket: &'static [&'static str],
    /// The path of the event stream.
    pub events: &'static str,
    /// The path that is polled.
    pub poll: &'static str,
    /// The path that frames are posted to.
    pub post: &'static str,
    /// The path that sessions of [exchanges](crate::exchange) are opened at.
    pub open: &'static str,
    /// The path that data channel offers are posted to.
    pub offer: &'static str,
    /// The query parameter with a client's id.
    pub peer_parameter: &'static str,
    /// The header with a client's id, for POSTs.
    pub peer_header: &'static str,
    /// The query parameter with the milliseconds that a poll may wait.
    pub wait_parameter: &'static str,
    /// The member of a poll's answer that lists the messages.
    pub messages_member: &'static str,
    /// The member of a poll's answer that tells whether the connection is new.
    pub new_member: &'static str,
    /// The prefix of the id that the server generates for a WebSocket client that gives none.
    pub unnamed_prefix: &'static str,
    /// The label of the data channel that carries frames. Channels with other labels are ignored.
    pub channel_label: &'static str,
    /// The JSON answer to a POST whose message the application kept.
    pub kept: &'static str,
    /// The JSON answer to a POST whose message is not complete yet.
    pub pending: &'static str,
    /// The error for a request without a client id.
    pub no_peer: &'static str,
    /// The error for a POST whose content type is not `application/octet-stream`.
    pub not_binary: &'static str,
    /// Errors for POSTs of event stream clients.
    pub event_posts: PostErrors,
    /// Errors for POSTs of polling clients.
    pub poll_posts: PostErrors,
    /// The protocol's own error text for a faulty frame; `None` uses the fault's own text.
    pub fault_text: fn(&FaultKind) -> Option<&'static str>,
}

/// The errors for a POST that belongs to no connection.
#[derive(Clone, Copy, Debug)]
pub struct PostErrors {
    /// The POST gives no client id.
    pub no_peer: &'static str,
    /// No connection has the client id.
    pub unknown: &'static str,
}

impl Default for Dialect {
    fn default() -> Self {
        let posts = PostErrors {
            no_peer: "the header x-peer is required",
            unknown: "no connection has this id: connect first",
        };
        Self {
            websocket: &["", "ws"],
            events: "events",
            poll: "poll",
            post: "frames",
            open: "open",
            offer: "offer",
            peer_parameter: "peer",
            peer_header: "x-peer",
            wait_parameter: "wait",
            messages_member: "messages",
            new_member: "isNew",
            unnamed_prefix: "ws-",
            channel_label: "frames",
            kept: r#"{"ok":true}"#,
            pending: r#"{"pending":true}"#,
            no_peer: "the parameter peer is required",
            not_binary: "the body must be application/octet-stream",
            event_posts: posts,
            poll_posts: posts,
            fault_text: |_| None,
        }
    }
}
