//! The trait for recorders, which keep the frames and the heads of messages.

use std::sync::Arc;

use breakbulk_net::Tap;

use super::{RecorderView, SessionId, SessionView};
use crate::error::SessionEnd;
use crate::pump::Side;
use crate::record::{Follower, NotCarried};

/// Keeps what sessions carry. It is called by the tasks of sessions, so it must be quick and never wait.
pub trait RecordSink: Send + Sync {
    /// A client came in; `peer` is its name in the log. Both ends are named without secrets.
    fn session(&self, id: &SessionId, route: &str, peer: &str, listen: &str, to: &str);

    /// A connection of a session. A tunnel has one `line` (connection) after another, numbered from 1; other
    /// ends have only line 1.
    fn tap(&self, id: &SessionId, side: Side, line: u64) -> Arc<dyn Tap>;

    /// A message came in by a side.
    fn message(&self, _id: &SessionId, _head: &MessageHead<'_>) {}

    /// A message was not passed on.
    fn not_carried(&self, _id: &SessionId, _what: NotCarried) {}

    /// The records from now on, for whoever follows the gateway; `None` if it makes none.
    fn follow(&self) -> Option<Follower> {
        None
    }

    /// A session has ended, or its client was refused (`end` is `None`).
    fn ended(&self, id: &SessionId, end: Option<&SessionEnd>, counts: &SessionView);

    /// Nothing more is told about a client that arrived: its session has ended, or the client resumed another
    /// one.
    fn forget(&self, _id: &SessionId) {}

    /// The state of the recorder.
    fn health(&self) -> Option<RecorderView> {
        None
    }
}

/// What is known of a message without reading all of it.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct MessageHead<'a> {
    /// The side that it came in by.
    pub from: Side,
    /// Its method, as it is written, shortened; responses have none.
    pub method: Option<&'a str>,
    /// Its id as JSON text, shortened.
    pub id: Option<&'a str>,
    /// Its size.
    pub bytes: usize,
    /// How many pieces it came in.
    pub pieces: u64,
}
