//! What a client knows, over the end of a transport, and what it does with what comes in.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use breakbulk_link::{Closed, Event as LinkEvent, Key, Message};
use breakbulk_message::ahp::{self, Chunking};
use breakbulk_message::jsonrpc::{Envelope, Kind, unsigned};
use breakbulk_net::Connection;
use tokio::sync::{Notify, oneshot};

use super::event::{Event, List};
use super::handshake::{self, Shaken};
use super::moved::{Moved, now};
use super::queue::{self, Queued, has_state};
use super::request::Asker;
use super::text::{Text, member};
use super::{ClientConfig, ClientError};
use crate::Defence;

/// What breaks the protocol beside segments is closed with the same code.
const BROKEN: u16 = 4400;

/// The WebSocket code for "try again later".
const BUSY: u16 = 1013;

/// Shared by the handles of a client and the task that hears its connection.
pub(super) struct Shared {
    pub(super) config: ClientConfig,
    state: Mutex<State>,
    /// Something came, or the connection ended.
    pub(super) changed: Notify,
    /// One dispatch at a time: their numbers go out in order.
    pub(super) turn: tokio::sync::Mutex<()>,
}

pub(super) struct State {
    pub(super) defence: Defence,
    /// What the host takes.
    pub(super) host: Option<Chunking>,
    /// The channels, and what is in the state that came for each.
    pub(super) subscriptions: BTreeMap<String, i64>,
    pub(super) next_id: u64,
    pub(super) next_client_seq: i64,
    /// The dispatch that waits for room, and whether it is out already.
    pub(super) dispatching: Option<(i64, bool)>,
    pub(super) session: Option<Session>,
    pub(super) last_closed: Option<Closed>,
    pub(super) queue: VecDeque<Queued>,
}

/// One connection.
pub(super) struct Session {
    /// The number of its handshake.
    pub(super) serial: u64,
    pub(super) connection: Connection,
    pub(super) moved: Moved,
    pub(super) pending: BTreeMap<u64, Pending>,
    /// Dispatched actions that are queued.
    pub(super) unsent: BTreeSet<i64>,
    /// What came before the handshake was answered; `None` once it is.
    pub(super) held: Option<VecDeque<Text>>,
    /// Groups that are open.
    pub(super) open: BTreeSet<Key>,
    /// When one of them last ended.
    pub(super) group_ended: Instant,
    /// The host broke the protocol: nothing more of it counts, or a hole would be hidden.
    pub(super) broken: bool,
}

/// A call that waits for its answer.
pub(super) struct Pending {
    pub(super) queued: Instant,
    /// When it was all out.
    pub(super) sent: Option<Instant>,
    pub(super) wants: Wants,
}

pub(super) enum Wants {
    Answer(oneshot::Sender<Result<Text, ClientError>>),
    /// The answer to `subscribe` for this channel, even if nobody waits for it any more.
    State(String, oneshot::Sender<Result<Text, ClientError>>),
    /// The answer to `initialize` with these subscriptions.
    Start(Vec<String>, oneshot::Sender<Result<Shaken, ClientError>>),
    /// The answer to `reconnect`.
    Return(oneshot::Sender<Result<Shaken, ClientError>>),
}

/// How a message is told of when it is out.
pub(super) fn request_tag(id: u64) -> u64 {
    id << 1
}

pub(super) fn dispatch_tag(seq: i64) -> u64 {
    (seq.unsigned_abs() << 1) | 1
}

impl Shared {
    pub(super) fn new(config: ClientConfig) -> Self {
        Self {
            config,
            state: Mutex::new(State {
                defence: Defence::default(),
                host: None,
                subscriptions: BTreeMap::new(),
                next_id: 1,
                next_client_seq: 1,
                dispatching: None,
                session: None,
                last_closed: None,
                queue: VecDeque::new(),
            }),
            changed: Notify::new(),
            turn: tokio::sync::Mutex::new(()),
        }
    }

    /// Locked before a connection, never within one.
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the connection tells.
    pub(super) fn hear(&self, event: LinkEvent) {
        let mut state = self.lock();
        state.hear(&self.config, event);
        drop(state);
        self.changed.notify_waiters();
    }

    /// Waits until `look` finds something.
    pub(super) async fn until<R>(&self, mut look: impl FnMut(&mut State) -> Option<R>) -> R {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // What changes between the look and the wait counts too.
            changed.as_mut().enable();
            if let Some(found) = look(&mut self.lock()) {
                return found;
            }
            changed.await;
        }
    }
}

/// The last handle is gone: the connection goes with it.
impl Drop for Shared {
    fn drop(&mut self) {
        if let Some(session) = &self.lock().session {
            session.connection.close(1000, "");
        }
    }
}

impl State {
    /// What comes next for the application; the outer `None` while something may still come.
    pub(super) fn next(&mut self) -> Option<Option<Event>> {
        match queue::pop(&mut self.queue) {
            None if self.session.is_some() => None,
            next => Some(next),
        }
    }

    /// The connection for a call.
    pub(super) fn session(&mut self) -> Result<&mut Session, ClientError> {
        match &mut self.session {
            Some(session) if session.held.is_none() => Ok(session),
            Some(_) => Err(ClientError::NotConnected),
            None => Err(match self.last_closed.clone() {
                Some(closed) => closed.into(),
                None => ClientError::NotConnected,
            }),
        }
    }

    fn hear(&mut self, config: &ClientConfig, event: LinkEvent) {
        let Some(session) = &mut self.session else {
            return;
        };
        match event {
            LinkEvent::Message(message) => self.message(config, message),
            LinkEvent::Opened(key) => {
                session.open.insert(key.clone());
                if config.defends {
                    self.defence.opened(key);
                }
            }
            LinkEvent::TransferFailed(fault) => {
                if let Some(key) = &fault.key {
                    session.open.remove(key);
                    session.group_ended = now();
                    self.defence.failed(key);
                }
            }
            LinkEvent::Sent { tag, .. } => self.sent(tag),
            LinkEvent::SendFailed { error, .. } => {
                // Whatever it was, what comes behind it would hide that it is missing.
                session.connection.close(4413, &error.to_string());
            }
            LinkEvent::Closed(closed) => self.closed(closed),
            LinkEvent::Fault(fault) => tracing::debug!(%fault, "the host sent a wrong frame"),
            _ => {}
        }
    }

    fn sent(&mut self, tag: u64) {
        let Some(session) = &mut self.session else {
            return;
        };
        if tag & 1 == 0 {
            if let Some(pending) = session.pending.get_mut(&(tag >> 1)) {
                pending.sent = Some(now());
            }
            return;
        }
        let seq = i64::try_from(tag >> 1).unwrap_or(i64::MAX);
        match &mut self.dispatching {
            Some((waiting, out)) if *waiting == seq => *out = true,
            _ => drop(session.unsent.remove(&seq)),
        }
    }

    fn closed(&mut self, closed: Closed) {
        let Some(session) = self.session.take() else {
            return;
        };
        self.defence.disconnected();
        for pending in session.pending.into_values() {
            pending.wants.fail(closed.clone().into());
        }
        if session.held.is_none() {
            let unsent = session.unsent.into_iter().collect();
            self.queue
                .push_back(Queued::Disconnected(closed.clone(), unsent));
        }
        self.last_closed = Some(closed);
    }

    fn message(&mut self, config: &ClientConfig, message: Message) {
        let key = message.key.clone();
        let (bytes, charge) = message.into_parts();
        // Wires of text let nothing else through.
        let text = Text::new(bytes, charge);
        if let Some(text) = text.filter(|_| self.session.as_ref().is_some_and(|one| !one.broken)) {
            self.text(config, text);
        }
        if let Some(key) = key {
            self.defence.whole(&key);
            if let Some(session) = &mut self.session {
                session.open.remove(&key);
                session.group_ended = now();
            }
        }
    }

    fn text(&mut self, config: &ClientConfig, text: Text) {
        let whole = text.clone();
        let envelope = Envelope::parse(&whole);
        match envelope.as_ref().and_then(Envelope::kind) {
            Some(Kind::Result | Kind::Error) => {
                if let Some(envelope) = &envelope {
                    self.answer(config, &text, envelope);
                }
            }
            _ => match &mut self.session {
                // Behind the answer, where it belongs.
                Some(Session {
                    held: Some(held), ..
                }) => held.push_back(text),
                _ => self.deliver(config, text),
            },
        }
    }

    /// Something that is no answer goes to the application.
    pub(super) fn deliver(&mut self, config: &ClientConfig, text: Text) {
        let whole = text.clone();
        let envelope = Envelope::parse(&whole);
        let kind = envelope.as_ref().and_then(Envelope::kind);
        let Some(session) = &mut self.session else {
            return;
        };
        if kind == Some(Kind::Request) {
            let from = Asker {
                connection: session.connection.clone(),
                settings: config.settings.clone(),
                host: self.host,
            };
            self.queue.push_back(Queued::Request(text, Box::new(from)));
            return;
        }
        let params = envelope.and_then(|envelope| {
            let is_action = envelope.method().as_deref() == Some("action");
            (kind == Some(Kind::Notification) && is_action).then_some(envelope.params)
        });
        if let Some(params) = params {
            match params.map(ahp::Action::read) {
                Some(Ok(action)) => {
                    if let Err(overtaken) = self.defence.applied(action.server_seq) {
                        session.broken = true;
                        return session.connection.close(BUSY, &overtaken.to_string());
                    }
                    if has_state(&self.subscriptions, &action) {
                        return;
                    }
                }
                wrong => {
                    let why = wrong.and_then(Result::err).map(|error| error.to_string());
                    let why = why.unwrap_or_else(|| "`params` is missing".to_owned());
                    session.broken = true;
                    return session
                        .connection
                        .close(BROKEN, &format!("invalid action: {why}"));
                }
            }
        }
        self.queue.push_back(Queued::Message(text));
    }

    fn answer(&mut self, config: &ClientConfig, text: &Text, envelope: &Envelope<'_>) {
        let id = envelope.id.and_then(unsigned);
        let Some(session) = &mut self.session else {
            return;
        };
        let Some(pending) = id.and_then(|id| session.pending.remove(&id)) else {
            // Late, twice, or never asked for.
            tracing::debug!(
                id = envelope.id.map(|id| id.get().get(..64)),
                "an answer to nothing"
            );
            return;
        };
        let result = match (envelope.result, envelope.error) {
            (Some(result), _) => Ok(result),
            (None, Some(error)) => Err(ClientError::answered(text, error)),
            (None, None) => return,
        };
        match (pending.wants, result) {
            (wants, Err(error)) => wants.fail(error),
            (Wants::Answer(to), Ok(result)) => drop(to.send(Ok(text.part(result.get())))),
            (Wants::State(channel, to), Ok(result)) => {
                let answer = self.subscribed(text, channel, result.get());
                drop(to.send(answer));
            }
            (Wants::Start(channels, to), Ok(result)) => {
                drop(to.send(handshake::started(self, config, text, channels, result)));
            }
            (Wants::Return(to), Ok(result)) => {
                drop(to.send(handshake::returned(self, config, text, result)));
            }
        }
    }

    fn subscribed(
        &mut self,
        text: &Text,
        channel: String,
        result: &str,
    ) -> Result<Text, ClientError> {
        let snapshot = member(result, "snapshot").filter(|raw| raw.get() != "null");
        let mut from = i64::MIN;
        if let Some(raw) = snapshot {
            let read = ahp::Snapshot::read(raw).map_err(|error| ClientError::BadAnswer {
                method: "subscribe",
                why: error.to_string(),
            })?;
            from = read.from_seq;
            let list = List::new(text, raw.get());
            self.queue.push_back(Queued::Snapshots(list));
        }
        self.subscriptions.insert(channel, from);
        Ok(text.part(result))
    }
}

impl Wants {
    fn fail(self, error: ClientError) {
        match self {
            Self::Answer(to) | Self::State(_, to) => drop(to.send(Err(error))),
            Self::Start(_, to) | Self::Return(to) => drop(to.send(Err(error))),
        }
    }
}
