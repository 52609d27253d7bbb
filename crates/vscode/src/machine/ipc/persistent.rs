//! Frames that outlive their stream: numbered, acknowledged, and sent again after a reconnect.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use breakbulk_message::vscode::ipc::{Frame, FrameType, IpcError, IpcReader};
use bytes::Bytes;

use super::super::Chunks;
use super::load::Load;
use super::replay::Replay;
use super::{Payload, check_len, put_header};

/// A timeout is looked at again after this at the earliest.
const LEAST_WAIT: Duration = Duration::from_millis(500);

/// The numbers of a persistent session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PersistentConfig {
    /// The largest payload that is taken.
    pub payload: usize,
    /// Bytes kept to be sent again, from which on nothing more is taken to send.
    pub replay_bytes: usize,
    /// The same in messages.
    pub replay_messages: usize,
    /// After so long without another message an acknowledgement goes out by itself.
    pub ack_after: Duration,
    /// After so many bytes received it goes out at once: the other end keeps what is not acknowledged.
    pub ack_bytes: usize,
    /// After so many messages it goes out at once.
    pub ack_messages: u32,
    /// How often a sign of life goes out.
    pub keep_alive: Option<Duration>,
    /// After so long without an acknowledgement and without a word the stream counts as dead. A peer
    /// that speaks but acknowledges nothing for so long, while the replay is full, ends the session.
    pub timeout: Duration,
    /// A gap is asked about at most this often.
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

/// What a frame brought.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Received {
    /// A message, each once and in order.
    Message(Bytes),
    /// A message of the connection's own.
    Control(Bytes),
    /// The peer leaves on purpose: the session is over.
    Disconnect,
    /// Nothing for anybody above.
    Nothing,
}

/// What happened by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PersistentEvent {
    /// The stream is dead: drop it and connect again.
    StreamTimeout {
        /// Messages without an acknowledgement.
        unacknowledged: usize,
        /// How long the oldest of them waits.
        oldest: Duration,
        /// How long nothing came in.
        silence: Duration,
    },
    /// The session cannot go on.
    Failed(PersistentError),
}

/// Why a persistent session ends.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PersistentError {
    /// The peer acknowledges nothing.
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
    /// Numbers have four bytes, and what comes after the last would be taken for a duplicate.
    #[error("all 4294967295 message numbers are used; begin a new session")]
    NumbersUsedUp,
    /// The message cannot be framed.
    #[error(transparent)]
    Frame(#[from] IpcError),
    /// No more is kept to be sent again.
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

/// `PersistentProtocol`: the session outlives its streams.
///
/// A new machine has a stream. When that is lost say [`stream_lost`](Self::stream_lost), and
/// [`resume`](Self::resume) once there is another: what was not acknowledged is sent again.
#[derive(Debug)]
pub struct PersistentProtocol {
    config: PersistentConfig,
    reader: IpcReader,
    out: Chunks,
    events: VecDeque<PersistentEvent>,
    connected: bool,
    over: bool,
    /// The peer said `Pause`: nothing is written.
    paused: bool,
    /// While paused, what was already queued once.
    queued_paused: (bool, bool),

    replay: Replay,
    last_sent: u32,
    acknowledged: u32,
    /// The peer asked for a replay, which begins when all that is queued is out.
    replay_due: bool,
    check_at: Option<Instant>,
    full_since: Option<Instant>,

    received: u32,
    /// What we have acknowledged.
    told: u32,
    untold_bytes: usize,
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
            told: 0,
            untold_bytes: 0,
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

    /// Queues a message, also while there is no stream.
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
        self.tell_all();
        // A replay that is due will write it.
        let out = (self.connected && !self.replay_due).then_some(&mut self.out);
        if self.replay.is_empty() {
            self.load.rest(now);
        }
        self.replay.push(now, (id, self.told), message, out);
        if !self.has_room() {
            self.full_since.get_or_insert(now);
        }
        self.arm_check(now);
        Ok(())
    }

    /// Queues a message of the connection's own. It is lost with its stream.
    pub fn send_control(&mut self, message: &Bytes) -> Result<(), PersistentError> {
        check_len(message.len())?;
        put_header(&mut self.out, FrameType::Control, 0, 0, message.len());
        message.write(&mut self.out);
        Ok(())
    }

    /// Asks the peer to write nothing until [`send_resume`](Self::send_resume).
    pub fn send_pause(&mut self) {
        self.bare(FrameType::Pause, 0);
    }

    /// Lets the peer write again.
    pub fn send_resume(&mut self) {
        self.bare(FrameType::Resume, 0);
    }

    /// Leaves on purpose: the peer will not wait for another stream.
    pub fn send_disconnect(&mut self) {
        if !std::mem::replace(&mut self.over, true) {
            self.bare(FrameType::Disconnect, 0);
        }
    }

    /// Whether another message would be taken. A peer may acknowledge what it has never read, so that
    /// what waits to be written counts by itself.
    pub fn has_room(&self) -> bool {
        self.replay.bytes() < self.config.replay_bytes
            && self.replay.len() < self.config.replay_messages
            && self.out.len() < self.config.replay_bytes
    }

    /// What the next frame in `input` brought, sharing its memory. Call again until it gives `None`; an
    /// error ends the stream.
    pub fn handle_bytes(
        &mut self,
        now: Instant,
        input: &mut Bytes,
    ) -> Result<Option<Received>, IpcError> {
        let frame = self.reader.read(input)?;
        Ok(frame.map(|frame| self.handle_frame(now, frame)))
    }

    /// What a frame brought.
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
                // One at a time: many requests must not pile up as many copies.
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

    /// Nothing is read on purpose for now, so that silence is not the peer's.
    pub fn reading_paused(&mut self, now: Instant) {
        self.last_read = now;
    }

    /// The stream is gone: what was to be written on it is kept only if it is a message.
    pub fn stream_lost(&mut self) {
        self.connected = false;
        self.out.clear();
        self.paused = false;
        self.replay_due = false;
        self.check_at = None;
        self.full_since = None;
    }

    /// There is another stream: says what was received, and sends again what was not acknowledged.
    pub fn resume(&mut self, now: Instant) {
        self.stream_lost();
        self.reader = IpcReader::new(self.config.payload).sharing();
        self.connected = true;
        self.replay_requested = None;
        self.last_read = now;
        self.last_timeout = now;
        self.load.rest(now);
        self.tell_all();
        self.bare(FrameType::Ack, self.told);
        self.replay.write_all(now, &mut self.out);
        if !self.has_room() {
            self.full_since = Some(now);
        }
        self.arm_check(now);
    }

    /// What is to be written; nothing while the peer has said `Pause`.
    pub fn outgoing(&mut self, now: Instant) -> Option<&mut Chunks> {
        if self.paused || !self.connected {
            return None;
        }
        self.replay_if_due(now);
        (!self.out.is_empty()).then_some(&mut self.out)
    }

    /// Does what is due.
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
                self.tell_all();
                self.bare(FrameType::KeepAlive, self.told);
            }
        }
        if self.check_at.is_some_and(|at| now >= at) {
            self.check_at = None;
            self.check_stream(now);
        }
        if self.has_room() {
            self.full_since = None; // what was full was written meanwhile
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

    /// When to call [`handle_timeout`](Self::handle_timeout), and what for.
    pub fn poll_timeout(&self) -> Option<(Instant, &'static str)> {
        if self.over {
            return None;
        }
        let full_at = self.full_since.map(|since| since + self.config.timeout);
        let tick = self.check_at.map(|_| self.load.due());
        let due = [
            (self.ack_at, "an acknowledgement"),
            (self.keep_alive_at, "a sign of life"),
            (self.check_at, "the check whether the stream is dead"),
            (tick, "the look at our own load"),
            (full_at, "the end of the wait for an acknowledgement"),
        ];
        let due = due.into_iter().filter_map(|(at, what)| Some((at?, what)));
        due.min_by_key(|(at, _)| *at)
    }

    /// What happened by itself.
    pub fn poll_event(&mut self) -> Option<PersistentEvent> {
        self.events.pop_front()
    }

    /// Messages that the peer has not acknowledged.
    pub fn unacknowledged(&self) -> usize {
        self.replay.len()
    }

    /// Bytes kept of them, with a charge for each.
    pub fn replay_bytes(&self) -> usize {
        self.replay.bytes()
    }

    /// Bytes that wait to be written.
    pub fn queued_bytes(&self) -> usize {
        self.out.len()
    }

    /// Whether somebody left, or the session failed.
    pub fn is_over(&self) -> bool {
        self.over
    }

    fn handle_ack(&mut self, now: Instant, ack: u32) {
        // What was never sent cannot be acknowledged, but does no harm.
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
        self.untold_bytes += frame.payload.len();
        let many = self.received - self.told >= self.config.ack_messages;
        if many || self.untold_bytes >= self.config.ack_bytes {
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
            self.bare(FrameType::ReplayRequest, 0);
        }
    }

    /// Acknowledges if nothing came for a while, or looks again later.
    fn check_ack(&mut self, now: Instant) {
        if self.received <= self.told || self.ack_at.is_some() {
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
            return; // said when there is a stream again, or queued already
        }
        self.queued_paused.1 = true;
        self.tell_all();
        self.bare(FrameType::Ack, self.told);
    }

    /// From now on all that was received counts as acknowledged by what is written next.
    fn tell_all(&mut self) {
        self.told = self.received;
        self.untold_bytes = 0;
    }

    fn bare(&mut self, frame_type: FrameType, ack: u32) {
        put_header(&mut self.out, frame_type, 0, ack, 0);
    }

    fn replay_if_due(&mut self, now: Instant) {
        if self.replay_due && self.out.is_empty() {
            self.replay_due = false;
            self.replay.write_all(now, &mut self.out);
            self.arm_check(now);
        }
    }

    fn arm_check(&mut self, now: Instant) {
        if self.check_at.is_none() {
            self.check_stream(now);
        }
    }

    /// Whether the stream is dead: nothing acknowledged, nothing heard, and not for our own load.
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
        let left = left.max().unwrap_or_default().max(LEAST_WAIT);
        self.check_at = Some(now + left);
    }

    fn fail(&mut self, error: PersistentError) {
        self.over = true;
        self.full_since = None;
        self.out.clear();
        self.events.push_back(PersistentEvent::Failed(error));
    }
}
