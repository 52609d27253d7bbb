//! The subscribers of channels, and the messages that are held back from a client while an answer with
//! states is written for it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use breakbulk_link::Outgoing;
use breakbulk_message::jsonrpc::Kind;
use bytes::Bytes;

use super::config::close;
use super::introduce::Names;
use super::sessions::{Late, Session};
use super::types::{Channels, ClientId, Output, When};
use super::write::Seen;
use super::{Host, Who, tag};
use crate::Config;

/// Messages that are sent after the answer that is being written.
#[derive(Debug, Default)]
pub(super) struct Hold {
    messages: Vec<(Arc<str>, Bytes, u64)>,
    bytes: usize,
}

impl Host {
    /// Sends a message to the subscribers of a channel. A client that cannot keep up is disconnected;
    /// nobody waits for it.
    pub(super) fn tell(&mut self, channel: &str, message: &Bytes, tag: u64) {
        let Some((name, followers)) = self.channels.get_key_value(channel) else {
            return;
        };
        let config = &self.config.connection;
        let mut slow = Vec::new();
        for id in followers {
            let Some(client) = self.clients.get_mut(id) else {
                continue;
            };
            let Some(hold) = &mut client.hold else {
                let message = shared(config, message, tag);
                let client = *id;
                self.out.push_back(Output::Send { client, message });
                continue;
            };
            if hold.push(config, name, message, tag) {
                continue;
            }
            let waiting = hold.full(config);
            if tag == tag::NOTIFICATION {
                tracing::warn!(client = ?id, %channel, bytes = message.len(), "dropped a notification: {waiting}");
            } else {
                slow.push((*id, waiting));
            }
        }
        for (id, waiting) in slow {
            self.cut_off(id, &waiting);
        }
    }

    /// Subscribes the client to these channels, and holds their messages until `release`.
    pub(super) fn hold(
        &mut self,
        app: &impl Channels,
        id: ClientId,
        client_id: &str,
        channels: &Names,
    ) -> Seen {
        let seen = self.look(app, client_id, channels);
        // A channel may have vanished since an earlier attempt at the same answer.
        for channel in &seen.missing {
            self.unsubscribe(id, channel);
        }
        let Some(client) = self.clients.get_mut(&id) else {
            return seen;
        };
        if client.who.is_none() && client.hold.is_none() {
            self.turns += 1;
            client.turn = self.turns;
        }
        // The new snapshot contains the actions that were held behind an earlier one.
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

    /// Sends the answer that was written, then what was held; `gone` are unsubscribed.
    pub(super) fn release(&mut self, id: ClientId, answer: Option<Outgoing>, gone: &Names) {
        for channel in gone {
            self.unsubscribe(id, channel);
        }
        let Some(client) = self.clients.get_mut(&id) else {
            return;
        };
        let hold = client.hold.take().unwrap_or_default();
        let held = hold.messages.into_iter();
        let held = held.filter(|(channel, ..)| !gone.contains(channel));
        let held = held.map(|(_, message, tag)| shared(&self.config.connection, &message, tag));
        let messages = answer.into_iter().chain(held);
        let sends = messages.map(|message| Output::Send {
            client: id,
            message,
        });
        self.out.extend(sends);
    }

    /// Makes this the connection of a clientId, and closes the one that it had before. `Err`: another
    /// connection of the same clientId began its handshake later and is done already, so this one is
    /// closed.
    pub(super) fn introduce(
        &mut self,
        id: ClientId,
        client_id: &Arc<str>,
        session: Session,
    ) -> Result<(), Late> {
        let Some(client) = self.clients.get_mut(&id) else {
            return Err(Late);
        };
        let connected = self.sessions.connect(client_id, id, client.turn, session);
        let replaced = match connected {
            Ok(old) => {
                self.awaiting_handshake.remove(&(client.deadline, id));
                client.who = Some(Who {
                    client_id: client_id.clone(),
                    chunking: session.chunking,
                });
                old
            }
            Err(Late) => Some(id),
        };
        if let Some(replaced) = replaced {
            let reason = "another connection with this clientId has taken over";
            self.close(replaced, close::REPLACED, reason, When::Now);
        }
        connected.map(|_| ())
    }

    pub(super) fn unsubscribe(&mut self, id: ClientId, channel: &str) {
        if let Some(client) = self.clients.get_mut(&id)
            && client.subscriptions.remove(channel)
        {
            client.names -= channel.len();
        }
        forget(&mut self.channels, channel, id);
    }

    /// The current states of channels, and those that the client may not see or that do not exist.
    fn look(&self, app: &impl Channels, client_id: &str, channels: &Names) -> Seen {
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

    /// Unsubscribes a client from everything and drops what is held for it.
    pub(super) fn silence(&mut self, id: ClientId) {
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
    /// Holds a message, within the limits of the send queue; false if there is no room.
    fn push(&mut self, config: &Config, channel: &Arc<str>, message: &Bytes, tag: u64) -> bool {
        let bytes = self.bytes.saturating_add(message.len());
        if self.messages.len() >= config.limits.queued
            || (self.bytes > 0 && bytes > config.limits.queued_bytes)
        {
            return false;
        }
        self.bytes = bytes;
        self.messages.push((channel.clone(), message.clone(), tag));
        true
    }

    /// Why there is no room, for the log.
    fn full(&self, config: &Config) -> String {
        format!(
            "{} messages of {} bytes wait behind an answer that is being written for this client, the limits are {} messages and {} bytes",
            self.messages.len(),
            self.bytes,
            config.limits.queued,
            config.limits.queued_bytes
        )
    }
}

/// A message to one of several subscribers, who share its memory.
fn shared(config: &Config, message: &Bytes, tag: u64) -> Outgoing {
    let lane = config.lane(Kind::Notification, Some("action"));
    let message = Outgoing::new(message.clone()).known_text();
    message.in_lane(lane).tagged(tag)
}

fn forget(channels: &mut BTreeMap<Arc<str>, BTreeSet<ClientId>>, channel: &str, id: ClientId) {
    if let Some(followers) = channels.get_mut(channel) {
        followers.remove(&id);
        if followers.is_empty() {
            channels.remove(channel);
        }
    }
}
