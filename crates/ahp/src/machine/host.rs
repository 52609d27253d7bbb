//! All that a host decides: the connected clients and their subscriptions, handshakes, replays,
//! which answer goes where, and who is cut off.
//!
//! Each client's link stays outside, with whatever drives it; the host speaks in whole messages. Feed
//! it what each link tells ([`Host::handle_event`]), what became of the [`Work`] it gave out, what the
//! log has taken ([`Host::handle_committed`]) and the time; after each call do what
//! [`Host::poll_output`] says. Actions wait for the log in a [`Pending`] of their own, so that whoever
//! publishes never waits for the host.
//!
//! A client's messages are handled one after the other. They wait, charged to that client, while it
//! has as many requests as it may, while its last handshake, subscription or action is being worked
//! on, and while the log has no room for its action.

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

/// What clients are told of a host that failed under way.
const NOT_RECORDED: &str = "the host cannot record what happens: ask whoever runs it";
const TOO_SLOW: &str = "too much waits to be read by you: reconnect, and replay what you missed";

/// What a message is, to be known again when it could not be sent.
mod tag {
    pub(super) const ACTION: u64 = 1;
    pub(super) const NOTIFICATION: u64 = 2;
    pub(super) const RESPONSE: u64 = 3;
    /// What stands for a response that could not be sent.
    pub(super) const REFUSAL: u64 = 4;
    /// A response with a state in it, on which what follows depends.
    pub(super) const STATE: u64 = 5;
}

/// All that a host does, without sockets, log, application and clock.
pub struct Host {
    config: HostConfig,
    clients: BTreeMap<ClientId, Client>,
    /// Who follows each channel.
    channels: BTreeMap<Arc<str>, BTreeSet<ClientId>>,
    sessions: Sessions,
    /// When each client without a handshake is closed.
    strangers: BTreeSet<(Instant, ClientId)>,
    /// Clients whose action waits for room in the log.
    crowded: BTreeSet<ClientId>,
    /// Clients whose connections end: nothing more of them is taken.
    closing: BTreeMap<ClientId, When>,
    visible: i64,
    /// Why nobody may come any more.
    ended: Option<Closed>,
    next_client: u64,
    next_request: u64,
    /// Handshakes that have begun.
    turns: u64,
    out: VecDeque<Output>,
}

struct Client {
    /// When it must have introduced itself.
    deadline: Instant,
    who: Option<Who>,
    /// The number of its handshake.
    turn: u64,
    subscriptions: BTreeSet<Arc<str>>,
    /// Bytes of their names.
    names: usize,
    hold: Option<Hold>,
    /// Messages that wait for their turn.
    waiting: VecDeque<Message>,
    /// What its next message waits for.
    doing: Option<Doing>,
    /// Requests that the application works on.
    asked: BTreeMap<RequestId, Asked>,
    rate: Rate<TransferId>,
}

/// A client that has introduced itself.
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
            strangers: BTreeSet::new(),
            crowded: BTreeSet::new(),
            closing: BTreeMap::new(),
            visible,
            ended: None,
            next_client: 0,
            next_request: 0,
            turns: 0,
            out: VecDeque::new(),
        }
    }

    /// How it is set up.
    pub fn config(&self) -> &HostConfig {
        &self.config
    }

    /// The number of the last action that is visible.
    pub fn last_visible(&self) -> i64 {
        self.visible
    }

    /// A connection came. `Err` is what to close it with.
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
        self.strangers.insert((deadline, id));
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

    /// Whether a client has not introduced itself yet.
    pub fn is_stranger(&self, client: ClientId) -> bool {
        let client = self.clients.get(&client);
        client.is_some_and(|client| client.who.is_none())
    }

    /// Whether [`handle_event`](Self::handle_event) would do anything with this. Of each message that
    /// goes out a link tells at least once.
    pub fn heeds(event: &Event) -> bool {
        !matches!(
            event,
            Event::Sent { .. } | Event::Opened(_) | Event::Writable
        )
    }

    /// What a client's link tells.
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
                tracing::debug!(client = ?self.name(client), %fault, "a client sent a wrong frame");
            }
            Event::Closed(_) => self.handle_closed(client),
            _ => {}
        }
    }

    /// A client's connection is closed: it is told nothing more, and what it said and was not handled
    /// is dropped.
    pub fn handle_closed(&mut self, id: ClientId) {
        self.silence(id);
        if let Some(client) = self.clients.get_mut(&id) {
            self.strangers.remove(&(client.deadline, id));
            self.closing.insert(id, When::Now);
            client.doing = None;
            client.waiting.clear();
            client.asked.clear();
        }
    }

    /// A client's transport is let go of: there is room for another client.
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

    /// The log has this action: now it counts, and everybody who follows its channel is told.
    pub fn handle_committed(&mut self, published: &Published, app: &impl Channels) {
        app.apply(&published.applied());
        self.visible = published.seq;
        self.tell(&published.channel, &published.message, tag::ACTION);
    }

    /// Actions that were visible have left the [`Pending`] queue: there may be room for what clients
    /// dispatched.
    pub fn handle_room(&mut self, app: &impl Channels) {
        for client in std::mem::take(&mut self.crowded) {
            self.advance(client, app);
        }
    }

    /// The log failed, or the application did under an action: nothing becomes visible any more. The
    /// details are for publishers and the log of this machine, not for clients.
    pub fn handle_log_failed(&mut self) {
        self.end(close::FAILED, NOT_RECORDED, When::Now);
    }

    /// Nobody may come any more, and whoever is here goes.
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

    /// Tells who follows a channel something that has no number and is not replayed.
    pub fn notify(&mut self, channel: &str, method: &str, params: &RawValue) {
        let (method, params) = (reply::quoted(method), params.get());
        let text = format!(r#"{{"jsonrpc":"2.0","method":{method},"params":{params}}}"#);
        self.tell(channel, &text.into(), tag::NOTIFICATION);
    }

    /// What is to be done; take all of it after every other call.
    pub fn poll_output(&mut self) -> Option<Output> {
        // What follows a message that was not taken must not hide that it is missing.
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
        self.strangers.first().map(|(at, _)| *at)
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some((at, client)) = self.strangers.first().copied()
            && at <= now
        {
            self.strangers.pop_first();
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

    /// The client does not read fast enough. It replays when it comes back.
    fn cut_off(&mut self, client: ClientId, limit: &str) {
        tracing::warn!(client = ?self.name(client), limit, "a client that reads too slowly was cut off");
        self.close(client, close::TRY_LATER, TOO_SLOW, When::Now);
    }

    /// The name of a client, for log lines.
    fn name(&self, client: ClientId) -> Option<&str> {
        let who = self.clients.get(&client)?.who.as_ref()?;
        Some(&who.client_id)
    }
}
