//! The state machine of a client: its subscriptions, its calls and their timeouts, what it missed when a
//! connection ended, and which of its actions were not sent.
//!
//! A [`Client`] outlives its connections. The link of a connection stays outside: a call returns the
//! message to queue there, and the link's events are passed to [`Client::handle_event`]. After each call
//! do what [`Client::poll_output`] says, and give the application what [`Client::poll_event`] returns.

mod error;
mod event;
mod handshake;
mod incoming;
mod question;
mod queue;
mod text;
mod types;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Instant;

use breakbulk_link::{Closed, Key, Link, Outgoing};
use breakbulk_message::ahp::{self, Chunking};
use breakbulk_message::jsonrpc::Kind;
use serde_json::value::RawValue;

pub use error::{ClientError, RpcError};
pub use event::{Action, Event, Origin, Snapshot, Snapshots};
pub use question::Question;
pub use text::Text;
pub use types::{Answer, CallId, ClientConfig, Direction, Initialized, Output, Resumed};

use self::incoming::Wants;
use self::question::fits;
use self::queue::Queued;
use crate::Defence;

/// The state machine of a client, without sockets and clock.
pub struct Client {
    config: ClientConfig,
    defence: Defence,
    /// The limits that the host advertised.
    host: Option<Chunking>,
    /// The subscribed channels, and the number of the last action that the received state of each
    /// contains.
    subscriptions: BTreeMap<String, i64>,
    next_id: u64,
    next_client_seq: i64,
    /// The action that is about to be queued.
    dispatching: Option<Dispatching>,
    session: Option<Session>,
    last_closed: Option<Closed>,
    queue: VecDeque<Queued>,
    out: VecDeque<Output>,
}

/// An action that is about to be queued.
#[derive(Clone, Copy, Debug)]
struct Dispatching {
    seq: i64,
    session: u64,
    /// The link sent it before [`Client::handle_queued`] was called.
    out: bool,
}

/// One connection.
struct Session {
    /// The number of its handshake.
    number: u64,
    pending: BTreeMap<CallId, Pending>,
    /// Dispatched actions that are queued.
    unsent: BTreeSet<i64>,
    /// Messages that arrived before the answer to the handshake; `None` once it is answered.
    held: Option<VecDeque<Result<Event, String>>>,
    /// Groups of segments that are incomplete.
    open: BTreeSet<Key>,
    /// When a group last became complete or failed.
    group_ended: Instant,
    /// When a frame was last received, and when one was last sent.
    moved: (Instant, Instant),
    /// The host broke the protocol: its further messages are ignored, since they would hide that one is
    /// missing.
    broken: bool,
}

/// A call that waits for its answer.
struct Pending {
    queued: Instant,
    /// When it was sent completely.
    sent: Option<Instant>,
    /// Whether somebody waits for the answer.
    awaited: bool,
    wants: Wants,
}

impl Client {
    /// A client without a connection.
    pub fn new(config: ClientConfig) -> Self {
        Self {
            config,
            defence: Defence::default(),
            host: None,
            subscriptions: BTreeMap::new(),
            next_id: 1,
            next_client_seq: 1,
            dispatching: None,
            session: None,
            last_closed: None,
            queue: VecDeque::new(),
            out: VecDeque::new(),
        }
    }

    /// A link for the next connection.
    pub fn link(&self, seed: [u8; 32]) -> Link {
        let config = &self.config.connection;
        let mut link = config.link(seed);
        link.set_receives_pieces(config.advertised().is_some());
        link
    }

    /// A request to the host; params are an object or an array.
    pub fn request(
        &mut self,
        now: Instant,
        method: &str,
        params: Option<&RawValue>,
    ) -> Result<(CallId, Outgoing), ClientError> {
        if params.is_some_and(|params| !params.get().starts_with(['{', '['])) {
            return Err(ClientError::BadParams);
        }
        let name = serde_json::Value::from(method);
        let params = params.map_or_else(String::new, |params| {
            format!(r#","params":{}"#, params.get())
        });
        let write = |id| format!(r#"{{"jsonrpc":"2.0","id":{id},"method":{name}{params}}}"#);
        self.call(now, write, Wants::Answer(method.to_owned()))
    }

    /// A `ping` request. It may overtake large messages that are being sent.
    pub fn ping(&mut self, now: Instant) -> Result<(CallId, Outgoing), ClientError> {
        self.call(now, ahp::ping, Wants::Answer("ping".to_owned()))
    }

    /// Subscribes to a channel; once answered, it is asked for again in every reconnect.
    pub fn subscribe(
        &mut self,
        now: Instant,
        channel: &str,
    ) -> Result<(CallId, Outgoing), ClientError> {
        let wants = Wants::State(channel.to_owned());
        self.call(now, |id| ahp::subscribe(id, channel), wants)
    }

    /// Unsubscribes from a channel.
    pub fn unsubscribe(&mut self, channel: &str) -> Result<Outgoing, ClientError> {
        self.subscriptions.remove(channel);
        self.connected()?;
        let channel = serde_json::Value::from(channel);
        let text = format!(
            r#"{{"jsonrpc":"2.0","method":"unsubscribe","params":{{"channel":{channel}}}}}"#
        );
        self.fits(text.len())?;
        Ok(Outgoing::text(text))
    }

    /// An action of this client, with the number (`clientSeq`) after the last one that was queued. One at
    /// a time: call [`handle_queued`](Self::handle_queued) once the link has queued it.
    pub fn dispatch(&mut self, channel: &str, action: &RawValue) -> Result<Outgoing, ClientError> {
        let (seq, session) = (self.next_client_seq, self.connected()?.number);
        let text = ahp::dispatch_action(channel, seq, action);
        self.fits(text.len())?;
        let config = &self.config.connection;
        let lane = config.lane(Kind::Notification, Some("dispatchAction"));
        let out = false;
        self.dispatching = Some(Dispatching { seq, session, out });
        let tag = (seq.unsigned_abs() << 1) | 1;
        Ok(Outgoing::text(text).in_lane(lane).tagged(tag))
    }

    /// The last action is queued; returns its number. An error means that it was dropped with its
    /// connection.
    pub fn handle_queued(&mut self) -> Result<i64, ClientError> {
        let dispatched = self.dispatching.take().ok_or(ClientError::NotConnected)?;
        self.next_client_seq = dispatched.seq + 1;
        if dispatched.out {
            return Ok(dispatched.seq);
        }
        match &mut self.session {
            Some(session) if session.number == dispatched.session => {
                session.unsent.insert(dispatched.seq);
                Ok(dispatched.seq)
            }
            _ => Err(self.not_connected()),
        }
    }

    /// The caller does not wait for this call any more. A subscription still takes effect; a handshake
    /// that is abandoned closes its connection.
    pub fn abandon(&mut self, call: CallId) {
        if self.session.as_mut().and_then(|it| it.forget(call)) == Some(true) {
            self.close(1000, "the client abandoned the handshake".to_owned());
        }
    }

    /// A frame was received or sent at this time.
    pub fn handle_moved(&mut self, at: Instant, direction: Direction) {
        if let Some(session) = &mut self.session {
            match direction {
                Direction::In => session.moved.0 = session.moved.0.max(at),
                Direction::Out => session.moved.1 = session.moved.1.max(at),
            }
        }
    }

    /// What the caller has to do next; poll until `None` after every other call.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.out.pop_front()
    }

    /// The next event for the application.
    pub fn poll_event(&mut self) -> Option<Event> {
        queue::pop(&mut self.queue)
    }

    /// When to call [`handle_timeout`](Self::handle_timeout).
    pub fn poll_timeout(&self) -> Option<Instant> {
        let calls = self.session.iter().flat_map(|it| it.pending.keys());
        calls.filter_map(|call| self.deadline(*call)).min()
    }

    /// When this call times out, if no further frame of it is sent or received.
    pub fn deadline(&self, call: CallId) -> Option<Instant> {
        let session = self.session.as_ref()?;
        let pending = session.pending.get(&call).filter(|it| it.awaited)?;
        let moved = match pending.sent {
            None => pending.queued.max(session.moved.1),
            Some(sent) if session.open.is_empty() => sent.max(session.group_ended),
            Some(sent) => sent.max(session.group_ended).max(session.moved.0),
        };
        moved.checked_add(self.config.request_timeout?)
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        let calls = self
            .session
            .iter()
            .flat_map(|it| it.pending.keys().copied());
        let late = |call: &CallId| self.deadline(*call).is_some_and(|at| at <= now);
        for call in calls.filter(late).collect::<Vec<_>>() {
            let Some(session) = &mut self.session else {
                return;
            };
            let method = session.pending.get(&call).map(|it| it.wants.method());
            let error = ClientError::TimedOut {
                method: method.unwrap_or_default().to_owned(),
                after: self.config.request_timeout.unwrap_or_default(),
            };
            let is_handshake = session.forget(call) == Some(true);
            self.settle(call, is_handshake, Err(error));
        }
    }

    /// Whether there is a connection, its handshake done or not.
    pub fn has_connection(&self) -> bool {
        self.session.is_some()
    }

    /// Whether the connection on which this question arrived still exists.
    pub fn can_answer(&self, question: &Question) -> bool {
        let session = self.session.as_ref();
        session.is_some_and(|it| it.number == question.session)
    }

    /// The configuration.
    pub fn config(&self) -> &ClientConfig {
        &self.config
    }

    /// The largest number of an action that was received.
    pub fn last_seen(&self) -> i64 {
        self.defence.last_seen()
    }

    /// The channels that a reconnect asks for.
    pub fn subscriptions(&self) -> impl Iterator<Item = &str> {
        self.subscriptions.keys().map(String::as_str)
    }

    /// The limits that the host last advertised.
    pub fn host_takes(&self) -> Option<&Chunking> {
        self.host.as_ref()
    }

    fn call(
        &mut self,
        now: Instant,
        write: impl FnOnce(u64) -> String,
        wants: Wants,
    ) -> Result<(CallId, Outgoing), ClientError> {
        self.connected()?;
        let text = write(self.next_id);
        self.fits(text.len())?;
        let lane = self
            .config
            .connection
            .lane(Kind::Request, Some(wants.method()));
        let id = self.next_id;
        self.next_id += 1;
        let call = self.connected()?.ask(now, id, wants);
        let message = Outgoing::text(text).in_lane(lane);
        Ok((call, message.tagged(call.tag())))
    }

    fn fits(&self, size: usize) -> Result<(), ClientError> {
        fits(&self.config.connection, self.host.as_ref(), size, true)
    }

    /// The connection, if its handshake is done.
    fn connected(&mut self) -> Result<&mut Session, ClientError> {
        if self.session.as_ref().is_none_or(|it| it.held.is_some()) {
            return Err(self.not_connected());
        }
        self.session.as_mut().ok_or(ClientError::NotConnected)
    }

    fn not_connected(&self) -> ClientError {
        match self.last_closed.clone().filter(|_| self.session.is_none()) {
            Some(closed) => closed.into(),
            None => ClientError::NotConnected,
        }
    }
}

impl Session {
    fn new(now: Instant, number: u64) -> Self {
        Self {
            number,
            pending: BTreeMap::new(),
            unsent: BTreeSet::new(),
            held: Some(VecDeque::new()),
            open: BTreeSet::new(),
            group_ended: now,
            moved: (now, now),
            broken: false,
        }
    }

    fn ask(&mut self, now: Instant, id: u64, wants: Wants) -> CallId {
        let pending = Pending {
            queued: now,
            sent: None,
            awaited: true,
            wants,
        };
        self.pending.insert(CallId(id), pending);
        CallId(id)
    }

    /// The caller does not wait for this call any more. Returns whether it was the handshake.
    fn forget(&mut self, call: CallId) -> Option<bool> {
        let pending = self.pending.get_mut(&call)?;
        pending.awaited = false;
        let is_handshake = pending.wants.is_handshake();
        if !matches!(pending.wants, Wants::State(_)) {
            self.pending.remove(&call);
        }
        Some(is_handshake)
    }

    /// A group is complete, or has failed.
    fn group_over(&mut self, now: Instant, key: &Key) {
        self.open.remove(key);
        self.group_ended = now;
    }
}

fn bad_answer(method: &'static str, why: impl ToString) -> ClientError {
    ClientError::BadAnswer {
        method,
        why: why.to_string(),
    }
}
