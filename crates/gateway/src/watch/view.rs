//! Snapshots of what is watched. Times are milliseconds since the Unix epoch, durations milliseconds, sizes
//! bytes. `in` is from the client to the target, `out` from the target to the client.

use std::collections::BTreeMap;
use std::ops::AddAssign;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;

use super::times::TimesView;

/// A time in milliseconds since the Unix epoch.
pub(super) fn milliseconds(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// All that is watched.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct StateView {
    /// The version of this library.
    pub version: &'static str,
    /// When the watch was made.
    pub started: u64,
    /// The time of the snapshot.
    pub now: u64,
    /// The memory.
    pub memory: MemoryView,
    /// The recorder, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recorder: Option<RecorderView>,
    /// The routes.
    pub routes: Vec<RouteView>,
    /// The sessions, oldest first.
    pub sessions: Vec<SessionView>,
    /// How many sessions there are beyond those.
    pub more_sessions: usize,
    /// The last faults, oldest first.
    pub faults: Vec<FaultView>,
}

/// The recorder of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RecorderView {
    /// Whether it still writes: an error of the disk ends it.
    pub records: bool,
    /// How many records were not written, since they came faster than the disk took them.
    pub missed: u64,
}

impl RecorderView {
    /// A recorder that writes or has ended, and what it missed.
    pub fn new(records: bool, missed: u64) -> Self {
        Self { records, missed }
    }
}

/// Who holds how much of the memory for messages.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct MemoryView {
    /// The configured limit.
    pub budget: usize,
    /// What is held.
    pub used: usize,
    /// By whom.
    pub owners: Vec<OwnerView>,
}

/// A holder of memory.
#[derive(Clone, Debug, Serialize)]
pub struct OwnerView {
    /// `messages`: messages of sessions, whole or not; `frames`: frames in flight, and frames that a tunnel
    /// keeps until they are acknowledged; `listeners`: bodies and probes of clients without a session.
    pub name: &'static str,
    /// How much.
    pub bytes: usize,
}

/// What goes one way at one end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct FlowView {
    /// Messages of programs.
    pub messages: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The bytes of the longest one.
    pub longest: u64,
    /// Frames.
    pub frames: u64,
    /// Their bytes.
    pub frame_bytes: u64,
}

impl AddAssign for FlowView {
    fn add_assign(&mut self, other: Self) {
        self.messages += other.messages;
        self.bytes += other.bytes;
        self.longest = self.longest.max(other.longest);
        self.frames += other.frames;
        self.frame_bytes += other.frame_bytes;
    }
}

/// What was received and sent at one end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct SideView {
    /// From the program there.
    pub received: FlowView,
    /// To the program there.
    pub sent: FlowView,
}

impl AddAssign for SideView {
    fn add_assign(&mut self, other: Self) {
        self.received += other.received;
        self.sent += other.sent;
    }
}

/// Whether a route takes clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum RouteState {
    /// Not yet.
    Starting,
    /// It does.
    Listening,
    /// Not any more.
    Stopping,
    /// It should, and its listener has failed: it needs a reload.
    Failed,
}

/// A route.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct RouteView {
    /// The route's number: a changed route and the old one, which drains, have the same name.
    pub id: u64,
    /// Its name.
    pub name: String,
    /// Where clients find it.
    pub listen: String,
    /// Its target, without secrets.
    pub to: String,
    /// Whether it takes clients.
    pub state: RouteState,
    /// Why it failed, if it has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// Its sessions at the moment.
    pub sessions: usize,
    /// The sessions that began.
    pub accepted: u64,
    /// Those that ended normally, with everything sent and answered.
    pub ended_clean: u64,
    /// Those that did not.
    pub ended_failed: u64,
    /// How many clients were refused, by reason.
    pub refused: BTreeMap<&'static str, u64>,
    /// How often a tunnel went on with another line.
    pub resumes: u64,
    /// Messages that arrived and were not sent, in sessions that have ended.
    pub lost: u64,
    /// Requests that were not answered, in sessions that have ended.
    pub unanswered: u64,
    /// Messages that did not arrive whole, in sessions that have ended.
    pub incomplete: u64,
    /// From clients, at the listener.
    #[serde(rename = "in")]
    pub inward: FlowView,
    /// To clients, at the listener.
    #[serde(rename = "out")]
    pub outward: FlowView,
    /// At the listener.
    pub listen_side: RouteSideView,
    /// At the target.
    pub to_side: RouteSideView,
    /// How long messages from clients were in the gateway until they were sent.
    #[serde(skip)]
    pub inward_times: TimesView,
    /// The same for messages to clients.
    #[serde(skip)]
    pub outward_times: TimesView,
    /// The frame sizes that paths turned out to let through.
    pub learned_caps: Vec<CapView>,
}

/// One end of a route.
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct RouteSideView {
    /// What passed there.
    #[serde(flatten)]
    pub flows: SideView,
    /// How often a tunnel there lost its line.
    pub lines_lost: u64,
    /// How often it went on with another line.
    pub resumes: u64,
    /// What went wrong there.
    pub faults: u64,
    /// Messages that are arriving in pieces.
    pub transfers_received: usize,
    /// Messages that are being sent in pieces.
    pub transfers_sent: usize,
    /// Requests of the program there that have no answer.
    pub open_requests: usize,
}

/// What a path lets through.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CapView {
    /// The path.
    pub path: String,
    /// The largest frame.
    pub frame: usize,
}

/// A session.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct SessionView {
    /// Its name.
    pub id: String,
    /// Its route.
    pub route: String,
    /// Its client, as the log names it.
    pub peer: String,
    /// When its client came.
    pub since: u64,
    /// What its client speaks.
    pub listen: &'static str,
    /// What its target speaks.
    pub to: &'static str,
    /// `lost` while a tunnel waits for another line, else `up`.
    pub line: &'static str,
    /// From the client, at the listener.
    #[serde(rename = "in")]
    pub inward: FlowView,
    /// To the client, at the listener.
    #[serde(rename = "out")]
    pub outward: FlowView,
    /// At the target.
    pub target: SideView,
    /// Requests of both ends without an answer.
    pub open_requests: usize,
    /// Messages that are on their way in pieces.
    pub transfers: Vec<TransferView>,
    /// What waits to be sent.
    pub lanes: Vec<LaneView>,
}

/// A message on its way in pieces.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct TransferView {
    /// The end: `listen` or `to`.
    pub side: &'static str,
    /// `in` or `out`.
    pub direction: &'static str,
    /// Its name on the wire.
    pub key: String,
    /// Bytes that have passed.
    pub done: u64,
    /// Bytes in all, if they are known.
    pub total: Option<u64>,
}

/// What waits to be sent at one end.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct LaneView {
    /// The end: `listen` or `to`.
    pub side: &'static str,
    /// Messages that are not completely sent.
    pub queued_messages: usize,
    /// Their bytes, as far as they are in the queue of the connection.
    pub queued_bytes: usize,
}

/// A session and its last messages.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct SessionDetail {
    /// The session.
    #[serde(flatten)]
    pub session: SessionView,
    /// Its last messages, oldest first.
    pub messages: Vec<MessageView>,
}

/// A message that came in.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct MessageView {
    /// When.
    pub at: u64,
    /// `in` or `out`.
    pub direction: &'static str,
    /// Its method, shortened; responses have none.
    pub method: Option<String>,
    /// Its id as JSON text, shortened.
    pub id: Option<String>,
    /// Its size.
    pub bytes: usize,
    /// The frames it came in or left in: the larger number of both.
    pub frames: u64,
    /// How long it was in the gateway until all of it was sent; `None` while it is not.
    pub ms: Option<f64>,
    /// The beginning of the message, if bodies are kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
}

/// Something that went wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct FaultView {
    /// When.
    pub at: u64,
    /// The route.
    pub route: String,
    /// The session, if there was one.
    pub session: Option<String>,
    /// The end: `listen` or `to`.
    pub side: Option<String>,
    /// What.
    pub what: String,
}
