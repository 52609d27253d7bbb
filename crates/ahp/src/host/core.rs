//! Who is connected, who follows which channel, and what is visible. No clock, no waiting.
//!
//! While an answer with a state in it is being made, its client's actions are *held*: the answer
//! goes out first, then what was held. So the answer can be made outside of the lock, however large
//! it is, and there is neither a gap nor a double between a snapshot and what follows it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use breakbulk_link::{Closed, Outgoing, SendError};
use breakbulk_message::jsonrpc::Kind;
use breakbulk_net::Connection;
use bytes::Bytes;

use super::application::{Application, State};
use super::config::close;
use super::pending::Published;
use super::sessions::{Late, Session, Sessions};
use crate::Settings;

/// What a message is, to be known again when it could not be sent.
pub(super) mod tag {
    pub(in super::super) const ACTION: u64 = 1;
    pub(in super::super) const NOTIFICATION: u64 = 2;
    pub(in super::super) const RESPONSE: u64 = 3;
    /// A response with a state in it, on which what follows depends.
    pub(in super::super) const STATE: u64 = 5;
    /// What stands for a response that could not be sent.
    pub(in super::super) const REFUSAL: u64 = 4;
}

pub(super) struct Core {
    settings: Settings,
    max_clients: usize,
    clients: BTreeMap<u64, Client>,
    next: u64,
    /// Handshakes that have begun.
    turns: u64,
    channels: BTreeMap<Arc<str>, BTreeSet<u64>>,
    pub(super) sessions: Sessions,
    pub(super) visible: i64,
    /// Why nobody may come any more.
    ended: Option<Closed>,
}

struct Client {
    connection: Connection,
    client_id: Option<Arc<str>>,
    /// The number of its handshake.
    turn: u64,
    subscriptions: BTreeSet<Arc<str>>,
    /// Bytes of their names.
    names: usize,
    hold: Option<Hold>,
}

/// What waits behind an answer that is being made.
#[derive(Default)]
struct Hold {
    messages: Vec<(Arc<str>, Bytes, u64)>,
    bytes: usize,
}

/// The states of some channels as of one action.
pub(super) struct Seen {
    pub(super) states: Vec<(Arc<str>, State)>,
    /// Those that do not exist, or not for this client.
    pub(super) missing: Vec<Arc<str>>,
    pub(super) seq: i64,
}

impl Core {
    pub(super) fn new(
        settings: Settings,
        max_clients: usize,
        max_sessions: usize,
        visible: i64,
    ) -> Self {
        Self {
            settings,
            max_clients,
            clients: BTreeMap::new(),
            next: 0,
            turns: 0,
            channels: BTreeMap::new(),
            sessions: Sessions::new(max_sessions),
            visible,
            ended: None,
        }
    }

    /// A connection came. `Err` is what to close it with.
    pub(super) fn admit(&mut self, connection: &Connection) -> Result<u64, Closed> {
        if let Some(ended) = &self.ended {
            return Err(ended.clone());
        }
        if self.clients.len() >= self.max_clients {
            return Err(Closed {
                code: close::TRY_LATER,
                reason: format!(
                    "{} clients are connected, which is the limit: try again later",
                    self.max_clients
                ),
            });
        }
        self.next += 1;
        let client = Client {
            connection: connection.clone(),
            client_id: None,
            turn: 0,
            subscriptions: BTreeSet::new(),
            names: 0,
            hold: None,
        };
        self.clients.insert(self.next, client);
        Ok(self.next)
    }

    /// A connection is gone.
    pub(super) fn leave(&mut self, id: u64) {
        self.silence(id);
        if let Some(client) = self.clients.remove(&id)
            && let Some(client_id) = client.client_id
        {
            self.sessions.disconnect(&client_id, id);
        }
    }

    /// The log has it: now it counts, and everybody who follows is told.
    pub(super) fn show<A: Application>(&mut self, app: &A, published: &Published) {
        app.apply(&published.applied());
        self.visible = published.seq;
        self.tell(&published.channel, &published.message, tag::ACTION);
    }

    /// Tells all who follow a channel. Who cannot keep up is cut off, and nobody waits.
    pub(super) fn tell(&mut self, channel: &str, message: &Bytes, tag: u64) {
        let Some((name, followers)) = self.channels.get_key_value(channel) else {
            return;
        };
        let mut slow = Vec::new();
        for id in followers {
            let Some(client) = self.clients.get_mut(id) else {
                continue;
            };
            let full = match &mut client.hold {
                Some(hold) => hold.push(&self.settings, name, message, tag),
                None => send(&self.settings, &client.connection, message, tag),
            };
            match full {
                Ok(()) => {}
                Err(_) if tag == tag::NOTIFICATION => {
                    tracing::warn!(client = ?client.client_id, %channel, bytes = message.len(), "a notification was dropped: the client reads too slowly");
                }
                Err(limit) => slow.push((*id, limit)),
            }
        }
        for (id, limit) in slow {
            self.cut_off(id, &limit);
        }
    }

    /// The client follows these channels from now on, and what comes is held until `release`.
    pub(super) fn hold<A: Application>(
        &mut self,
        app: &A,
        id: u64,
        client_id: &str,
        channels: &BTreeSet<Arc<str>>,
    ) -> Seen {
        let seen = self.look(app, client_id, channels);
        // What vanished since an earlier look of the same answer is not followed.
        for channel in &seen.missing {
            self.unsubscribe(id, channel);
        }
        let Some(client) = self.clients.get_mut(&id) else {
            return seen;
        };
        if client.client_id.is_none() && client.hold.is_none() {
            self.turns += 1;
            client.turn = self.turns;
        }
        // An earlier snapshot of the same answer is void, and with it what was held behind it.
        let hold = client.hold.get_or_insert_default();
        hold.messages
            .retain(|(channel, _, tag)| *tag != tag::ACTION && !seen.missing.contains(channel));
        hold.bytes = hold.messages.iter().map(|(_, text, _)| text.len()).sum();
        for (channel, _) in &seen.states {
            if client.subscriptions.insert(channel.clone()) {
                client.names += channel.len();
            }
            let followers = self.channels.entry(channel.clone()).or_default();
            followers.insert(id);
        }
        seen
    }

    /// The answer is made: it goes out, and behind it what was held. `gone` are not followed.
    pub(super) fn release(&mut self, id: u64, answer: Option<Outgoing>, gone: &BTreeSet<Arc<str>>) {
        for channel in gone {
            self.unsubscribe(id, channel);
        }
        let Some(client) = self.clients.get_mut(&id) else {
            return;
        };
        let hold = client.hold.take().unwrap_or_default();
        if let Some(answer) = answer
            && let Err(rejected) = client.connection.send(answer)
        {
            return self.cut_off(id, &rejected.error.to_string());
        }
        for (channel, message, tag) in hold.messages {
            if gone.contains(&channel) {
                continue;
            }
            if let Err(limit) = send(&self.settings, &client.connection, &message, tag) {
                return self.cut_off(id, &limit);
            }
        }
    }

    /// The client is who it says, by this connection from now on; unless it has come by another one
    /// since this one began its handshake.
    pub(super) fn introduce(
        &mut self,
        id: u64,
        client_id: &Arc<str>,
        session: Session,
    ) -> Result<(), Late> {
        let Some(client) = self.clients.get_mut(&id) else {
            return Err(Late);
        };
        let connected = self.sessions.connect(client_id, id, client.turn, session);
        let replaced = match connected {
            Ok(old) => {
                client.client_id = Some(client_id.clone());
                old
            }
            Err(Late) => Some(id),
        };
        if let Some(replaced) = replaced {
            self.silence(replaced);
            if let Some(replaced) = self.clients.get(&replaced) {
                let reason = "another connection with this clientId has taken over";
                replaced.connection.close(close::REPLACED, reason);
            }
        }
        connected.map(|_| ())
    }

    pub(super) fn unsubscribe(&mut self, id: u64, channel: &str) {
        if let Some(client) = self.clients.get_mut(&id)
            && client.subscriptions.remove(channel)
        {
            client.names -= channel.len();
        }
        forget(&mut self.channels, channel, id);
    }

    /// How many channels a client follows, the bytes of their names, and whether this is one.
    pub(super) fn follows(&self, id: u64, channel: &str) -> (usize, usize, bool) {
        self.clients.get(&id).map_or((0, 0, false), |client| {
            let subscriptions = &client.subscriptions;
            (
                subscriptions.len(),
                client.names,
                subscriptions.contains(channel),
            )
        })
    }

    /// Nobody may come any more, and who is here goes now.
    pub(super) fn end(&mut self, code: u16, reason: &str) {
        self.refuse(code, reason);
        for client in self.clients.values() {
            client.connection.close(code, reason);
        }
    }

    /// Nobody may come any more.
    pub(super) fn refuse(&mut self, code: u16, reason: &str) {
        let reason = reason.to_owned();
        self.ended.get_or_insert(Closed { code, reason });
    }

    pub(super) fn connections(&self) -> Vec<Connection> {
        self.clients
            .values()
            .map(|client| client.connection.clone())
            .collect()
    }

    fn look<A: Application>(
        &self,
        app: &A,
        client_id: &str,
        channels: &BTreeSet<Arc<str>>,
    ) -> Seen {
        let mut seen = Seen {
            states: Vec::new(),
            missing: Vec::new(),
            seq: self.visible,
        };
        for channel in channels {
            let permitted = app.permits(client_id, channel);
            match permitted.then(|| app.snapshot(channel)).flatten() {
                Some(state) => seen.states.push((channel.clone(), state)),
                None => seen.missing.push(channel.clone()),
            }
        }
        seen
    }

    /// The client does not read fast enough. It replays when it comes back.
    fn cut_off(&mut self, id: u64, limit: &str) {
        self.silence(id);
        if let Some(client) = self.clients.get(&id) {
            tracing::warn!(client = ?client.client_id, limit, "a client that reads too slowly was cut off");
            let reason = "too much waits to be read by you: reconnect, and replay what you missed";
            client.connection.close(close::TRY_LATER, reason);
        }
    }

    /// Nothing more is told to this connection.
    pub(super) fn silence(&mut self, id: u64) {
        if let Some(client) = self.clients.get_mut(&id) {
            client.hold = None;
            client.names = 0;
            for channel in std::mem::take(&mut client.subscriptions) {
                forget(&mut self.channels, &channel, id);
            }
        }
    }
}

impl Hold {
    /// As bounded as the queue that it stands for; `Err` names the limit.
    fn push(
        &mut self,
        settings: &Settings,
        channel: &Arc<str>,
        message: &Bytes,
        tag: u64,
    ) -> Result<(), String> {
        let bytes = self.bytes.saturating_add(message.len());
        let (queued, queued_bytes) = (settings.queued, settings.queued_bytes);
        if self.messages.len() >= queued || (self.bytes > 0 && bytes > queued_bytes) {
            return Err(format!("{queued} messages or {queued_bytes} bytes"));
        }
        self.bytes = bytes;
        self.messages.push((channel.clone(), message.clone(), tag));
        Ok(())
    }
}

/// `Err` names the limit; a connection that is closed needs nothing.
fn send(
    settings: &Settings,
    connection: &Connection,
    message: &Bytes,
    tag: u64,
) -> Result<(), String> {
    let lane = settings.lane(Kind::Notification, Some("action"));
    let message = Outgoing::new(message.clone())
        .known_text()
        .in_lane(lane)
        .tagged(tag);
    match connection.send(message) {
        Err(rejected) if rejected.error != SendError::Closed => Err(rejected.error.to_string()),
        _ => Ok(()),
    }
}

fn forget(channels: &mut BTreeMap<Arc<str>, BTreeSet<u64>>, channel: &str, id: u64) {
    if let Some(followers) = channels.get_mut(channel) {
        followers.remove(&id);
        if followers.is_empty() {
            channels.remove(channel);
        }
    }
}
