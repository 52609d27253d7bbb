//! All that a client decides: its subscriptions, which answer belongs to which call, how long a call
//! waits, what was missed over the end of a connection, and which of its actions were not sent.
//!
//! A [`Client`] outlives its connections. The link of a connection stays outside, with whatever drives
//! it: a call gives the message that is to be queued there, and what the link tells goes to
//! [`Client::handle_event`]. After each call do what [`Client::poll_output`] says, and take what is for
//! the application from [`Client::poll_event`].

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

/// All that a client does, without sockets and clock.
pub struct Client {
    config: ClientConfig,
    defence: Defence,
    /// What the host takes.
    host: Option<Chunking>,
    /// The channels, and what is in the state that came for each.
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
    /// It went out before anybody said that it was queued.
    out: bool,
}

/// One connection.
struct Session {
    /// The number of its handshake.
    number: u64,
    pending: BTreeMap<CallId, Pending>,
    /// Dispatched actions that are queued.
    unsent: BTreeSet<i64>,
    /// What came before the handshake was answered; `None` once it is.
    held: Option<VecDeque<Result<Event, String>>>,
    /// Groups that are open.
    open: BTreeSet<Key>,
    /// When one of them last ended.
    group_ended: Instant,
    /// When a frame last moved, in and out.
    moved: (Instant, Instant),
    /// The host broke the protocol: nothing more of it counts, or a hole would be hidden.
    broken: bool,
}

/// A call that waits for its answer.
struct Pending {
    queued: Instant,
    /// When it was all out.
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

    /// A link for its next connection.
    pub fn link(&self, seed: [u8; 32]) -> Link {
        let config = &self.config.connection;
        let mut link = config.link(seed);
        link.set_receives_pieces(config.advertised().is_some());
        link
    }

    /// Asks the host something; params are an object or an array.
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

    /// Asks the host for a word. It overtakes what is large.
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

    /// Wants nothing more of a channel.
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

    /// An action of our own, with the number (`clientSeq`) after the last one that was queued. One at a
    /// time: once the link has taken it, [`handle_queued`](Self::handle_queued).
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

    /// The last action is queued, under the number that this returns. An error means that it was
    /// dropped with its connection.
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

    /// Nobody waits for this call any more. What it does to the subscriptions counts still; a handshake
    /// ends its connection.
    pub fn abandon(&mut self, call: CallId) {
        if self.session.as_mut().and_then(|it| it.forget(call)) == Some(true) {
            self.close(1000, "the handshake was given up".to_owned());
        }
    }

    /// A frame moved at this time.
    pub fn handle_moved(&mut self, at: Instant, direction: Direction) {
        if let Some(session) = &mut self.session {
            match direction {
                Direction::In => session.moved.0 = session.moved.0.max(at),
                Direction::Out => session.moved.1 = session.moved.1.max(at),
            }
        }
    }

    /// What is to be done; take all of it after every other call.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.out.pop_front()
    }

    /// What comes next for the application.
    pub fn poll_event(&mut self) -> Option<Event> {
        queue::pop(&mut self.queue)
    }

    /// When to call [`handle_timeout`](Self::handle_timeout).
    pub fn poll_timeout(&self) -> Option<Instant> {
        let calls = self.session.iter().flat_map(|it| it.pending.keys());
        calls.filter_map(|call| self.deadline(*call)).min()
    }

    /// When this call fails unless something of it moves.
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

    /// Whether the connection that this question came by is still there.
    pub fn can_answer(&self, question: &Question) -> bool {
        let session = self.session.as_ref();
        session.is_some_and(|it| it.number == question.session)
    }

    /// How it is set up.
    pub fn config(&self) -> &ClientConfig {
        &self.config
    }

    /// The largest number of an action that came.
    pub fn last_seen(&self) -> i64 {
        self.defence.last_seen()
    }

    /// The channels that a reconnect asks for.
    pub fn subscriptions(&self) -> impl Iterator<Item = &str> {
        self.subscriptions.keys().map(String::as_str)
    }

    /// What the host is willing to receive, as it last said.
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

    /// The connection for a call.
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

    /// Nobody waits for this call any more; whether it was the handshake.
    fn forget(&mut self, call: CallId) -> Option<bool> {
        let pending = self.pending.get_mut(&call)?;
        pending.awaited = false;
        let is_handshake = pending.wants.is_handshake();
        if !matches!(pending.wants, Wants::State(_)) {
            self.pending.remove(&call);
        }
        Some(is_handshake)
    }

    /// A group has become a message, or never will.
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
