//! What a protocol over HTTP calls things: its paths, its parameters and the words of its answers.

use breakbulk_link::FaultKind;

/// The names and words of one protocol over HTTP, for its server and its clients. The default is plain
/// words of our own.
#[derive(Clone, Copy, Debug)]
pub struct Dialect {
    /// Paths at which a WebSocket may begin, below the mount; an empty one is the mount itself.
    pub websocket: &'static [&'static str],
    /// The path of the event stream.
    pub events: &'static str,
    /// The path that is polled.
    pub poll: &'static str,
    /// The path that frames are posted to.
    pub post: &'static str,
    /// The path that data channels are offered to.
    pub offer: &'static str,
    /// The query parameter with a client's id.
    pub peer_parameter: &'static str,
    /// The header with a client's id, where there is no query.
    pub peer_header: &'static str,
    /// The query parameter with the milliseconds that a poll may wait.
    pub wait_parameter: &'static str,
    /// The member of a poll's answer that lists the messages.
    pub messages_member: &'static str,
    /// The member of a poll's answer that says that the connection is new.
    pub new_member: &'static str,
    /// What the id of a client that gives none begins with.
    pub unnamed_prefix: &'static str,
    /// The label of the data channel that carries frames. Others are let alone.
    pub channel_label: &'static str,
    /// The answer to a POST whose message was kept, as JSON.
    pub kept: &'static str,
    /// The answer to a POST whose message is not whole yet, as JSON.
    pub pending: &'static str,
    /// What a client without an id is told.
    pub no_peer: &'static str,
    /// What a POST is told whose body is not bytes.
    pub not_binary: &'static str,
    /// What POSTs beside an event stream are told.
    pub event_posts: PostWords,
    /// What POSTs beside polls are told.
    pub poll_posts: PostWords,
    /// The protocol's own word for a frame that cannot be used; `None`: ours.
    pub fault_word: fn(&FaultKind) -> Option<&'static str>,
}

/// What a POST is told that belongs to no connection.
#[derive(Clone, Copy, Debug)]
pub struct PostWords {
    /// It gives no id.
    pub no_peer: &'static str,
    /// No connection has its id.
    pub unknown: &'static str,
}

impl Default for Dialect {
    fn default() -> Self {
        let posts = PostWords {
            no_peer: "the header x-peer is required",
            unknown: "no connection has this id: connect first",
        };
        Self {
            websocket: &["", "ws"],
            events: "events",
            poll: "poll",
            post: "frames",
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
            fault_word: |_| None,
        }
    }
}
