//! The state machine of a host: the connected clients and their subscriptions, handshakes, replays,
//! responses, and which clients are disconnected because they read too slowly.
//!
//! Each client's link stays outside; the host sends and receives whole messages. Pass it the events of
//! each link ([`Host::handle_event`]), the results of the [`Work`] it hands out, the actions that the
//! log has stored ([`Host::handle_committed`]) and the time; after each call do what
//! [`Host::poll_output`] says. Actions wait for the log in a separate [`Pending`] queue, so that
//! publishers never wait for the host.
//!
//! A client's messages are handled one after the other. The next one waits, charged to that client,
//! while the client has its maximum of open requests, while its last handshake, subscription or action
//! is in work, and while the log has no room for its action.

mod answers;
mod config;
mod dispatch;
mod error;
mod fit;
mod follow;
mod introduce;
mod messages;
mod outgoing;
mod pending;
mod rate;
mod reply;
mod sessions;
mod types;
mod version;
mod write;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use breakbulk_link::{Closed, Event, Message, Outgoing, ProgressOf, TransferId};
use breakbulk_message::ahp::Chunking;
use breakbulk_message::jsonrpc::Kind;
use serde_json::value::RawValue;

use self::answers::Doing;
use self::follow::Hold;
use self::rate::Rate;
use self::sessions::Sessions;

pub use config::{HostConfig, HostLimits, close};
pub use dispatch::{Dispatched, Dispatching};
pub use error::{PublishError, RpcError};
pub use introduce::{Introduced, Introduction};
pub use pending::{Draft, Next, Pending, Published};
pub use types::{
    Answer, Applied, Call, Channels, ClientId, Dispatch, Extras, Output, RequestId, State, When,
    Work,
};
pub use write::Writing;

/// The reason in the close frame when the replay log has failed.
const NOT_RECORDED: &str = "the host's replay log has failed: ask the operator of the host";
/// The reason in the close frame of a client that reads too slowly.
const TOO_SLOW: &str =
    "your send queue is full: read faster, reconnect, and replay what you missed";

/// Tags of outgoing messages: they tell what kind of message it was that could not be sent.
mod tag {
    pub(super) const ACTION: u64 = 1;
    pub(super) const NOTIFICATION: u64 = 2;
    pub(super) const RESPONSE: u64 = 3;
    /// The error in the place of a response that could not be sent.
    pub(super) const REFUSAL: u64 = 4;
    /// A response that contains states; the actions after it build on them.
    pub(super) const STATE: u64 = 5;
}

/// The state machine of a host, without sockets, log, application and clock.
pub struct Host {
    config: HostConfig,
    clients: BTreeMap<ClientId, Client>,
    /// The subscribers of each channel.
    channels: BTreeMap<Arc<str>, BTreeSet<ClientId>>,
    sessions: Sessions,
    /// The deadlines of clients whose handshake is not done.
    awaiting_handshake: BTreeSet<(Instant, ClientId)>,
    /// Clients whose action waits for room in the log.
    waiting_for_room: BTreeSet<ClientId>,
    /// Clients whose connections are being closed: their messages are ignored.
    closing: BTreeMap<ClientId, When>,
    /// The number of the last action that is visible.
    visible: i64,
    /// Once the host has ended: what new connections are closed with.
    ended: Option<Closed>,
    next_client: u64,
    next_request: u64,
    /// The number of handshakes that have begun.
    turns: u64,
    out: VecDeque<Output>,
}

struct Client {
    /// When its handshake must be done.
    deadline: Instant,
    /// Who it is, once its handshake is done.
    who: Option<Who>,
    /// The number of its handshake.
    turn: u64,
    subscriptions: BTreeSet<Arc<str>>,
    /// The total bytes of their names.
    names: usize,
    /// Messages to it that wait until an answer with states is written.
    hold: Option<Hold>,
    /// Messages that wait for their turn.
    waiting: VecDeque<Message>,
    /// The work in progress that its next message waits for.
    doing: Option<Doing>,
    /// Requests that the application works on.
    asked: BTreeMap<RequestId, Asked>,
    rate: Rate<TransferId>,
}

/// What the handshake of a client said.
struct Who {
    client_id: Arc<str>,
    chunking: Option<Chunking>,
}

struct Asked {
    id: Box<RawValue>,
    method: String,
}

impl Host {
    /// A host whose last visible action has this number: what the log has, or
    /// [`HostConfig::start_after`] if that is larger.
    pub fn new(config: HostConfig, visible: i64) -> Self {
        Self {
            sessions: Sessions::new(config.limits.sessions.max(config.limits.clients)),
            config,
            clients: BTreeMap::new(),
            channels: BTreeMap::new(),
            awaiting_handshake: BTreeSet::new(),
            waiting_for_room: BTreeSet::new(),
            closing: BTreeMap::new(),
            visible,
            ended: None,
            next_client: 0,
            next_request: 0,
            turns: 0,
            out: VecDeque::new(),
        }
    }

    /// The configuration.
    pub fn config(&self) -> &HostConfig {
        &self.config
    }

    /// The number of the last action that is visible.
    pub fn last_visible(&self) -> i64 {
        self.visible
    }

    /// Admits a new connection. `Err` is what to close it with.
    pub fn connect(&mut self, now: Instant) -> Result<ClientId, Closed> {
        if let Some(ended) = &self.ended {
            return Err(ended.clone());
        }
        let most = self.config.limits.clients;
        if self.clients.len() >= most {
            return Err(Closed {
                code: close::TRY_LATER,
                reason: format!(
                    "{most} clients are connected, which is the limit: try again later"
                ),
            });
        }
        self.next_client += 1;
        let id = ClientId(self.next_client);
        let deadline = now + self.config.handshake_timeout;
        self.awaiting_handshake.insert((deadline, id));
        let client = Client {
            deadline,
            who: None,
            turn: 0,
            subscriptions: BTreeSet::new(),
            names: 0,
            hold: None,
            waiting: VecDeque::new(),
            doing: None,
            asked: BTreeMap::new(),
            rate: Rate::NEW,
        };
        self.clients.insert(id, client);
        Ok(id)
    }

    /// Whether the handshake of a client is not done yet.
    pub fn awaits_handshake(&self, client: ClientId) -> bool {
        let client = self.clients.get(&client);
        client.is_some_and(|client| client.who.is_none())
    }

    /// Whether [`handle_event`](Self::handle_event) does anything with this event: a link reports every
    /// message that it sends, and those reports need no lock.
    pub fn wants_event(event: &Event) -> bool {
        !matches!(
            event,
            Event::Sent { .. } | Event::Opened(_) | Event::Writable
        )
    }

    /// Handles an event of a client's link.
    pub fn handle_event(
        &mut self,
        now: Instant,
        client: ClientId,
        event: Event,
        app: &impl Channels,
    ) {
        match event {
            Event::Message(message) => self.receive(client, message, app),
            Event::SendFailed {
                id,
                tag,
                error,
                bytes,
            } => self.not_sent(client, id, tag, &error, &bytes),
            Event::Progress {
                of: ProgressOf::Outgoing(id),
                done,
                total: Some(total),
            } => self.progress(now, client, id, done, total),
            Event::GaveUp { error, .. } => self.gave_up(now, client, &error),
            Event::Fault(fault) => {
                tracing::debug!(client = ?self.name(client), %fault, "a client sent an invalid frame");
            }
            Event::Closed(_) => self.handle_closed(client),
            _ => {}
        }
    }

    /// A client's connection is closed: nothing more is sent to it, and its messages that wait are
    /// dropped.
    pub fn handle_closed(&mut self, id: ClientId) {
        self.silence(id);
        if let Some(client) = self.clients.get_mut(&id) {
            self.awaiting_handshake.remove(&(client.deadline, id));
            self.closing.insert(id, When::Now);
            client.doing = None;
            client.waiting.clear();
            client.asked.clear();
        }
    }

    /// A client's transport is gone: its place is free for another client.
    pub fn disconnect(&mut self, id: ClientId) {
        self.handle_closed(id);
        self.closing.remove(&id);
        if let Some(client) = self.clients.remove(&id)
            && let Some(who) = client.who
        {
            self.sessions.disconnect(&who.client_id, id);
        }
    }

    /// The application's answer to a request.
    pub fn handle_answer(
        &mut self,
        id: ClientId,
        request: RequestId,
        answer: &Answer,
        app: &impl Channels,
    ) {
        let client = self.clients.get_mut(&id);
        let Some(asked) = client.and_then(|client| client.asked.remove(&request)) else {
            return;
        };
        match answer {
            Ok(result) => {
                self.answer(id, &asked.method, reply::result(&asked.id, result.get()));
            }
            Err(error) => self.refuse(id, Some(&asked.id), &asked.method, error),
        }
        self.advance(id, app);
    }

    /// The log has stored this action: it is applied, and sent to the subscribers of its channel.
    pub fn handle_committed(&mut self, published: &Published, app: &impl Channels) {
        app.apply(&published.applied());
        self.visible = published.seq;
        self.tell(&published.channel, &published.message, tag::ACTION);
    }

    /// The [`Pending`] queue has become shorter: clients whose action waited for room go on.
    pub fn handle_room(&mut self, app: &impl Channels) {
        for client in std::mem::take(&mut self.waiting_for_room) {
            self.advance(client, app);
        }
    }

    /// The replay log failed, or the application panicked while it applied an action: no further action
    /// becomes visible. Publishers and the process's log get the details, clients do not.
    pub fn handle_log_failed(&mut self) {
        self.end(close::FAILED, NOT_RECORDED, When::Now);
    }

    /// Closes all connections, and refuses new ones, with this code and reason.
    pub fn end(&mut self, code: u16, reason: &str, when: When) {
        let closed = Closed {
            code,
            reason: reason.to_owned(),
        };
        self.ended.get_or_insert(closed);
        for client in self.clients.keys().copied().collect::<Vec<_>>() {
            self.close(client, code, reason, when);
        }
    }

    /// Sends a notification to the subscribers of a channel. It has no number and is not replayed.
    pub fn notify(&mut self, channel: &str, method: &str, params: &RawValue) {
        let (method, params) = (reply::quoted(method), params.get());
        let text = format!(r#"{{"jsonrpc":"2.0","method":{method},"params":{params}}}"#);
        self.tell(channel, &text.into(), tag::NOTIFICATION);
    }

    /// What the caller has to do next; poll until `None` after every other call.
    pub fn poll_output(&mut self) -> Option<Output> {
        // A client that missed a message gets no later one, which would hide the gap.
        while !self.closing.is_empty()
            && let Some(Output::Send { client, .. }) = self.out.front()
            && self.closing.get(client) == Some(&When::Now)
        {
            self.out.pop_front();
        }
        self.out.pop_front()
    }

    /// When to call [`handle_timeout`](Self::handle_timeout).
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.awaiting_handshake.first().map(|(at, _)| *at)
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some((at, client)) = self.awaiting_handshake.first().copied()
            && at <= now
        {
            self.awaiting_handshake.pop_first();
            let seconds = self.config.handshake_timeout.as_secs_f64();
            let reason = format!("no initialize or reconnect within {seconds} s");
            self.close(client, close::NO_HANDSHAKE, &reason, When::Now);
        }
    }

    /// Answers a request.
    fn answer(&mut self, client: ClientId, method: &str, text: String) {
        let lane = self.config.connection.lane(Kind::Result, Some(method));
        let message = Outgoing::text(text).in_lane(lane);
        self.send(client, message.tagged(tag::RESPONSE));
    }

    fn refuse(&mut self, client: ClientId, id: Option<&RawValue>, method: &str, error: &RpcError) {
        self.answer(client, method, reply::error(id, error));
    }

    fn send(&mut self, client: ClientId, message: Outgoing) {
        self.out.push_back(Output::Send { client, message });
    }

    fn close(&mut self, client: ClientId, code: u16, reason: &str, when: When) {
        self.silence(client);
        let before = self.closing.get(&client).copied();
        let changes = before.is_none() || (before, when) == (Some(When::AfterQueue), When::Now);
        if changes && self.clients.contains_key(&client) {
            self.closing.insert(client, when);
            let reason = reason.to_owned();
            self.out.push_back(Output::Close {
                client,
                code,
                reason,
                when,
            });
        }
    }

    /// Disconnects a client that reads too slowly. It replays what it missed when it reconnects.
    fn cut_off(&mut self, client: ClientId, waiting: &str) {
        tracing::warn!(client = ?self.name(client), "disconnected a client that reads too slowly: {waiting}");
        self.close(client, close::TRY_LATER, TOO_SLOW, When::Now);
    }

    /// The clientId of a client, for log lines.
    fn name(&self, client: ClientId) -> Option<&str> {
        let who = self.clients.get(&client)?.who.as_ref()?;
        Some(&who.client_id)
    }
}
