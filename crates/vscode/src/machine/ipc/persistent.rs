//! The persistent protocol: frames are numbered, acknowledged, and sent again after a reconnect.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use breakbulk_message::vscode::ipc::{Frame, FrameType, IpcError, IpcReader};
use bytes::Bytes;

use super::super::Chunks;
use super::load::Load;
use super::replay::Replay;
use super::{Payload, check_len, put_header};

/// The shortest interval between checks of the timeout.
const CHECK_INTERVAL_MIN: Duration = Duration::from_millis(500);

/// Limits and times of a persistent session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct PersistentConfig {
    /// The largest payload that is accepted.
    pub payload: usize,
    /// Bytes of unacknowledged messages from which on no more are accepted for sending.
    pub replay_bytes: usize,
    /// The same in messages.
    pub replay_messages: usize,
    /// An acknowledgement is sent after this long without another message.
    pub ack_after: Duration,
    /// An acknowledgement is sent at once after this many received bytes: the peer keeps them until then.
    pub ack_bytes: usize,
    /// An acknowledgement is sent at once after this many received messages.
    pub ack_messages: u32,
    /// How often a keep-alive frame is sent.
    pub keep_alive: Option<Duration>,
    /// The stream is dead after this long without an acknowledgement and without any frame. A peer that
    /// sends frames but acknowledges nothing for this long, while the replay buffer is full, ends the
    /// session.
    pub timeout: Duration,
    /// The shortest interval between requests for a replay.
    pub replay_request_every: Duration,
}

impl Default for PersistentConfig {
    fn default() -> Self {
        Self {
            payload: 100 << 20,
            replay_bytes: 128 << 20,
            replay_messages: 262_144,
            ack_after: Duration::from_secs(2),
            ack_bytes: 1 << 20,
            ack_messages: 4096,
            keep_alive: Some(Duration::from_secs(5)),
            timeout: Duration::from_secs(20),
            replay_request_every: Duration::from_secs(10),
        }
    }
}

breakbulk_link::with!(PersistentConfig);

/// The content of a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Received {
    /// A message; each comes once and in order.
    Message(Bytes),
    /// A control message of the connection.
    Control(Bytes),
    /// The peer closed the session.
    Disconnect,
    /// Nothing for the caller.
    Nothing,
}

/// An event for the caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PersistentEvent {
    /// The stream is dead: drop it and connect again.
    StreamTimeout {
        /// Messages without an acknowledgement.
        unacknowledged: usize,
        /// How long ago the oldest of them was written.
        oldest: Duration,
        /// How long no frame was received.
        silence: Duration,
    },
    /// The session cannot go on.
    Failed(PersistentError),
}

/// Why a persistent session ends.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PersistentError {
    /// The peer sends no acknowledgements, and the replay buffer is full.
    #[error(
        "peer acknowledged nothing for {seconds} s while {messages} messages of {bytes} bytes wait \
         for it (limits: {message_limit} messages, {byte_limit} bytes); the session cannot be kept"
    )]
    ReplayFull {
        /// How long.
        seconds: u64,
        /// Messages kept.
        messages: usize,
        /// Bytes kept, with a charge for each message.
        bytes: usize,
        /// The limit on messages.
        message_limit: usize,
        /// The limit on bytes.
        byte_limit: usize,
    },
    /// Message numbers have four bytes; after a wrap-around the peer would drop messages as duplicates.
    #[error("all 4294967295 message numbers are used; begin a new session")]
    NumbersUsedUp,
    /// The message cannot be framed.
    #[error(transparent)]
    Frame(#[from] IpcError),
    /// The replay buffer is full.
    #[error(
        "{messages} messages of {bytes} bytes are not acknowledged (limits: {message_limit} \
         messages, {byte_limit} bytes); wait for the peer"
    )]
    NoRoom {
        /// Messages kept.
        messages: usize,
        /// Bytes kept.
        bytes: usize,
        /// The limit on messages.
        message_limit: usize,
        /// The limit on bytes.
        byte_limit: usize,
    },
}

/// `PersistentProtocol`: the session survives its streams.
///
/// A new machine has a stream. When that is lost call [`stream_lost`](Self::stream_lost), and
/// [`resume`](Self::resume) once there is another: unacknowledged messages are sent again.
#[derive(Debug)]
pub struct PersistentProtocol {
    config: PersistentConfig,
    reader: IpcReader,
    out: Chunks,
    events: VecDeque<PersistentEvent>,
    connected: bool,
    over: bool,
    /// The peer sent `Pause`: nothing is written.
    paused: bool,
    /// While paused: whether a keep-alive and whether an acknowledgement is queued already.
    queued_paused: (bool, bool),

    replay: Replay,
    last_sent: u32,
    acknowledged: u32,
    /// The peer asked for a replay, which begins when the write buffer is empty.
    replay_due: bool,
    check_at: Option<Instant>,
    full_since: Option<Instant>,

    received: u32,
    /// The last message number that was acknowledged to the peer.
    ack_sent: u32,
    unacked_bytes: usize,
    ack_at: Option<Instant>,
    last_message: Instant,
    replay_requested: Option<Instant>,

    keep_alive_at: Option<Instant>,
    last_read: Instant,
    last_timeout: Instant,
    load: Load,
}

impl PersistentProtocol {
    /// A new session with its first stream.
    pub fn new(now: Instant, config: PersistentConfig) -> Self {
        Self {
            reader: IpcReader::new(config.payload).sharing(),
            out: Chunks::default(),
            events: VecDeque::new(),
            connected: true,
            over: false,
            paused: false,
            queued_paused: (false, false),
            replay: Replay::default(),
            last_sent: 0,
            acknowledged: 0,
            replay_due: false,
            check_at: None,
            full_since: None,
            received: 0,
            ack_sent: 0,
            unacked_bytes: 0,
            ack_at: None,
            last_message: now,
            replay_requested: None,
            keep_alive_at: config.keep_alive.map(|every| now + every),
            last_read: now,
            last_timeout: now,
            load: Load::new(now),
            config,
        }
    }

    /// Queues a message, even while there is no stream.
    pub fn send(&mut self, now: Instant, message: &impl Payload) -> Result<(), PersistentError> {
        check_len(message.len())?;
        if !self.has_room() {
            return Err(PersistentError::NoRoom {
                messages: self.replay.len(),
                bytes: self.replay.bytes(),
                message_limit: self.config.replay_messages,
                byte_limit: self.config.replay_bytes,
            });
        }
        let Some(id) = self.last_sent.checked_add(1) else {
            self.fail(PersistentError::NumbersUsedUp);
            return Err(PersistentError::NumbersUsedUp);
        };
        self.last_sent = id;
        self.mark_acked();
        // If a replay is pending, that will write the message.
        let out = (self.connected && !self.replay_due).then_some(&mut self.out);
        if self.replay.is_empty() {
            self.load.reset(now);
        }
        self.replay.push(now, (id, self.ack_sent), message, out);
        if !self.has_room() {
            self.full_since.get_or_insert(now);
        }
        self.schedule_check(now);
        Ok(())
    }

    /// Queues a control message of the connection. It is lost with its stream.
    pub fn send_control(&mut self, message: &Bytes) -> Result<(), PersistentError> {
        check_len(message.len())?;
        put_header(&mut self.out, FrameType::Control, 0, 0, message.len());
        message.write(&mut self.out);
        Ok(())
    }

    /// Asks the peer to write nothing until [`send_resume`](Self::send_resume).
    pub fn send_pause(&mut self) {
        self.send_header_only(FrameType::Pause, 0);
    }

    /// Lets the peer write again.
    pub fn send_resume(&mut self) {
        self.send_header_only(FrameType::Resume, 0);
    }

    /// Closes the session: the peer will not wait for another stream.
    pub fn send_disconnect(&mut self) {
        if !std::mem::replace(&mut self.over, true) {
            self.send_header_only(FrameType::Disconnect, 0);
        }
    }

    /// Whether another message would be accepted. A peer may acknowledge messages that it has not read,
    /// so the write buffer has its own limit.
    pub fn has_room(&self) -> bool {
        self.replay.bytes() < self.config.replay_bytes
            && self.replay.len() < self.config.replay_messages
            && self.out.len() < self.config.replay_bytes
    }

    /// Handles the next frame in `input`; the result shares its memory. Call again until `None`; an error
    /// ends the stream.
    pub fn handle_bytes(
        &mut self,
        now: Instant,
        input: &mut Bytes,
    ) -> Result<Option<Received>, IpcError> {
        let frame = self.reader.read(input)?;
        Ok(frame.map(|frame| self.handle_frame(now, frame)))
    }

    /// Handles a frame.
    pub fn handle_frame(&mut self, now: Instant, frame: Frame) -> Received {
        self.last_read = now;
        if self.over {
            return Received::Nothing;
        }
        self.handle_ack(now, frame.ack);
        match frame.frame_type {
            FrameType::Regular => return self.handle_regular(now, frame),
            FrameType::Control => return Received::Control(frame.payload),
            FrameType::Disconnect => {
                self.over = true;
                return Received::Disconnect;
            }
            FrameType::ReplayRequest => {
                // One replay at a time: many requests must not queue many copies.
                self.replay_due = !self.replay.is_empty();
                self.replay_if_due(now);
            }
            FrameType::Pause => {
                self.paused = true;
                self.queued_paused = (false, false);
            }
            FrameType::Resume => self.paused = false,
            FrameType::Ack | FrameType::KeepAlive | FrameType::Unknown(_) => {}
        }
        Received::Nothing
    }

    /// Call while this side pauses reading, so that the pause does not count as the peer's silence.
    pub fn reading_paused(&mut self, now: Instant) {
        self.last_read = now;
    }

    /// The stream was lost: of what was to be written only messages are kept.
    pub fn stream_lost(&mut self) {
        self.connected = false;
        self.out.clear();
        self.paused = false;
        self.replay_due = false;
        self.check_at = None;
        self.full_since = None;
    }

    /// There is another stream: acknowledges what was received, and sends unacknowledged messages again.
    pub fn resume(&mut self, now: Instant) {
        self.stream_lost();
        self.reader = IpcReader::new(self.config.payload).sharing();
        self.connected = true;
        self.replay_requested = None;
        self.last_read = now;
        self.last_timeout = now;
        self.load.reset(now);
        self.mark_acked();
        self.send_header_only(FrameType::Ack, self.ack_sent);
        self.replay.write_all(now, &mut self.out);
        if !self.has_room() {
            self.full_since = Some(now);
        }
        self.schedule_check(now);
    }

    /// The bytes to write; `None` while the peer has paused this side.
    pub fn outgoing(&mut self, now: Instant) -> Option<&mut Chunks> {
        if self.paused || !self.connected {
            return None;
        }
        self.replay_if_due(now);
        (!self.out.is_empty()).then_some(&mut self.out)
    }

    /// Does what is due: acknowledgement, keep-alive, timeout checks.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.over {
            return;
        }
        if self.connected {
            self.load.tick(now);
        }
        if self.ack_at.is_some_and(|at| now >= at) {
            self.ack_at = None;
            self.check_ack(now);
        }
        if self.keep_alive_at.is_some_and(|at| now >= at) {
            self.keep_alive_at = self.config.keep_alive.map(|every| now + every);
            if self.connected && !(self.paused && self.queued_paused.0) {
                self.queued_paused.0 = true;
                self.mark_acked();
                self.send_header_only(FrameType::KeepAlive, self.ack_sent);
            }
        }
        if self.check_at.is_some_and(|at| now >= at) {
            self.check_at = None;
            self.check_stream(now);
        }
        if self.has_room() {
            self.full_since = None; // there is room again
        }
        let full_at = self.full_since.map(|since| since + self.config.timeout);
        if full_at.is_some_and(|at| now >= at) {
            self.fail(PersistentError::ReplayFull {
                seconds: self.config.timeout.as_secs(),
                messages: self.replay.len(),
                bytes: self.replay.bytes(),
                message_limit: self.config.replay_messages,
                byte_limit: self.config.replay_bytes,
            });
        }
    }

    /// When to call [`handle_timeout`](Self::handle_timeout), and why.
    pub fn poll_timeout(&self) -> Option<(Instant, &'static str)> {
        if self.over {
            return None;
        }
        let full_at = self.full_since.map(|since| since + self.config.timeout);
        let tick = self.check_at.map(|_| self.load.due());
        let due = [
            (self.ack_at, "an acknowledgement"),
            (self.keep_alive_at, "a keep-alive frame"),
            (self.check_at, "the check whether the stream is dead"),
            (tick, "the measurement of this process's load"),
            (full_at, "the end of the wait for an acknowledgement"),
        ];
        let due = due.into_iter().filter_map(|(at, what)| Some((at?, what)));
        due.min_by_key(|(at, _)| *at)
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<PersistentEvent> {
        self.events.pop_front()
    }

    /// The number of messages that the peer has not acknowledged.
    pub fn unacknowledged(&self) -> usize {
        self.replay.len()
    }

    /// The bytes of these messages, with a charge for each.
    pub fn replay_bytes(&self) -> usize {
        self.replay.bytes()
    }

    /// Bytes in the write buffer.
    pub fn queued_bytes(&self) -> usize {
        self.out.len()
    }

    /// Whether either side closed the session, or it failed.
    pub fn is_over(&self) -> bool {
        self.over
    }

    fn handle_ack(&mut self, now: Instant, ack: u32) {
        // An acknowledgement beyond the last message sent is clamped.
        let ack = ack.min(self.last_sent);
        if ack <= self.acknowledged {
            return;
        }
        self.acknowledged = ack;
        if self.replay.acknowledge(ack) {
            self.full_since = (!self.has_room()).then_some(now);
        }
    }

    fn handle_regular(&mut self, now: Instant, frame: Frame) -> Received {
        if frame.id <= self.received {
            return Received::Nothing; // a duplicate
        }
        if frame.id != self.received + 1 {
            self.request_replay(now);
            return Received::Nothing;
        }
        self.received = frame.id;
        self.last_message = now;
        self.unacked_bytes += frame.payload.len();
        let many = self.received - self.ack_sent >= self.config.ack_messages;
        if many || self.unacked_bytes >= self.config.ack_bytes {
            self.acknowledge();
        } else {
            self.check_ack(now);
        }
        Received::Message(frame.payload)
    }

    fn request_replay(&mut self, now: Instant) {
        let every = self.config.replay_request_every;
        let lately = |at: Instant| now.duration_since(at) <= every;
        if !self.replay_requested.is_some_and(lately) {
            self.replay_requested = Some(now);
            self.send_header_only(FrameType::ReplayRequest, 0);
        }
    }

    /// Sends an acknowledgement if no message came for a while, or schedules the next check.
    fn check_ack(&mut self, now: Instant) {
        if self.received <= self.ack_sent || self.ack_at.is_some() {
            return;
        }
        let at = self.last_message + self.config.ack_after;
        match now >= at {
            true => self.acknowledge(),
            false => self.ack_at = Some(at),
        }
    }

    fn acknowledge(&mut self) {
        if !self.connected || (self.paused && self.queued_paused.1) {
            return; // sent when there is a stream again, or queued already
        }
        self.queued_paused.1 = true;
        self.mark_acked();
        self.send_header_only(FrameType::Ack, self.ack_sent);
    }

    /// Records that the next frame written acknowledges everything received.
    fn mark_acked(&mut self) {
        self.ack_sent = self.received;
        self.unacked_bytes = 0;
    }

    fn send_header_only(&mut self, frame_type: FrameType, ack: u32) {
        put_header(&mut self.out, frame_type, 0, ack, 0);
    }

    fn replay_if_due(&mut self, now: Instant) {
        if self.replay_due && self.out.is_empty() {
            self.replay_due = false;
            self.replay.write_all(now, &mut self.out);
            self.schedule_check(now);
        }
    }

    fn schedule_check(&mut self, now: Instant) {
        if self.check_at.is_none() {
            self.check_stream(now);
        }
    }

    /// Checks whether the stream is dead: no acknowledgement, no frame, and this process is not too busy
    /// to have read one.
    fn check_stream(&mut self, now: Instant) {
        let (true, Some(oldest)) = (self.connected, self.replay.oldest()) else {
            return;
        };
        let timeout = self.config.timeout;
        let since = |at: Instant| now.duration_since(at);
        let waits = [
            since(oldest),
            since(self.last_read),
            since(self.last_timeout),
        ];
        let dead = waits.iter().all(|wait| *wait >= timeout);
        if dead && !self.load.is_high(now) {
            self.last_timeout = now;
            self.events.push_back(PersistentEvent::StreamTimeout {
                unacknowledged: self.replay.len(),
                oldest: waits[0],
                silence: waits[1],
            });
            return;
        }
        let left = waits.iter().map(|wait| timeout.saturating_sub(*wait));
        let left = left.max().unwrap_or_default().max(CHECK_INTERVAL_MIN);
        self.check_at = Some(now + left);
    }

    fn fail(&mut self, error: PersistentError) {
        self.over = true;
        self.full_since = None;
        self.out.clear();
        self.events.push_back(PersistentEvent::Failed(error));
    }
}
