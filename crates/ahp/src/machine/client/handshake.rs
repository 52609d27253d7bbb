//! `initialize` and `reconnect`, and what their answers change: subscriptions, states, and the number of
//! the last action.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use breakbulk_link::Outgoing;
use breakbulk_message::ahp::{self, Elements, InitializeResult, ReadError, ReconnectResult};
use breakbulk_message::jsonrpc::member;
use serde_json::value::RawValue;

use super::event::{Event, List, Snapshots};
use super::incoming::Wants;
use super::question::fits;
use super::queue::{Known, Queued};
use super::text::Text;
use super::{
    Answer, CallId, Client, ClientError, Initialized, Output, Resumed, Session, bad_answer,
};

impl Client {
    /// Starts over on a new connection. The returned message is the first to be queued on its
    /// [`link`](Self::link). A previous connection is given up.
    pub fn initialize(
        &mut self,
        now: Instant,
        subscriptions: &[impl AsRef<str>],
    ) -> Result<(CallId, Outgoing), ClientError> {
        let channels = subscriptions.iter().map(|one| one.as_ref().to_owned());
        let channels: Vec<String> = channels.collect();
        let (id, config) = (self.next_id, &self.config);
        let chunking = config.connection.advertised();
        let text = ahp::initialize(id, &config.client_id, &channels, &config.versions, chunking);
        self.begin(now, text, Wants::Start(channels))
    }

    /// Resumes on a new connection, see [`initialize`](Self::initialize): the host replays the actions
    /// that were missed, or sends the current states.
    pub fn reconnect(&mut self, now: Instant) -> Result<(CallId, Outgoing), ClientError> {
        let (id, config) = (self.next_id, &self.config);
        let channels: Vec<_> = self.subscriptions.keys().collect();
        let from = self.defence.reconnect_from(self.defence.last_seen());
        let chunking = config.connection.advertised();
        let text = ahp::reconnect(id, &config.client_id, from, &channels, chunking);
        self.begin(now, text, Wants::Return)
    }

    fn begin(
        &mut self,
        now: Instant,
        text: String,
        wants: Wants,
    ) -> Result<(CallId, Outgoing), ClientError> {
        // The host's support is not known yet on this connection, so this message must fit one frame.
        fits(&self.config.connection, None, text.len(), false)?;
        self.end(breakbulk_link::Closed {
            code: 1000,
            reason: "a new connection takes over".to_owned(),
        });
        let session = self.session.insert(Session::new(now, self.next_id));
        let call = session.ask(now, self.next_id, wants);
        self.next_id += 1;
        let message = Outgoing::text(text).uncut().tagged(call.tag());
        Ok((call, message))
    }

    /// `initialize` was answered.
    pub(super) fn started(
        &mut self,
        text: &Text,
        channels: Vec<String>,
        result: &RawValue,
    ) -> Result<Answer, ClientError> {
        let bad = |error: ReadError| bad_answer("initialize", error);
        let read = InitializeResult::read(result).map_err(bad)?;
        let subscriptions = channels.into_iter().map(|one| (one, i64::MIN)).collect();
        let states = States::read(read.snapshots, subscriptions).map_err(bad)?;
        let snapshots = states.snapshots(text, result);
        self.host = read.chunking();
        let initialized = Initialized {
            server_seq: read.server_seq,
            protocol_version: read.protocol_version.into_owned(),
            chunking: self.host,
            result: text.part(result.get()),
            snapshots: snapshots.clone(),
        };
        self.start_anew(states, snapshots, read.server_seq);
        Ok(Answer::Initialized(initialized))
    }

    /// `reconnect` was answered.
    pub(super) fn returned(
        &mut self,
        text: &Text,
        result: &RawValue,
    ) -> Result<Answer, ClientError> {
        let bad = |error: ReadError| bad_answer("reconnect", error);
        match ReconnectResult::read(result).map_err(bad)? {
            ReconnectResult::Snapshot { snapshots } => {
                let states = States::read(snapshots, self.subscriptions.clone()).map_err(bad)?;
                let snapshots = states.snapshots(text, result);
                let last = states.last.unwrap_or(self.defence.last_seen());
                self.start_anew(states, snapshots.clone(), last);
                Ok(Answer::Resumed(Resumed::Snapshot(snapshots)))
            }
            ReconnectResult::Replay { actions, missing } => {
                let stood = (self.defence.clone(), self.defence.last_seen());
                let known = Known {
                    defence: self.config.connection.switches.defends.then_some(stood),
                    states: self.subscriptions.clone(),
                };
                let mut ahead = self.held_numbers();
                let (mut count, mut last) = (0, None);
                for action in actions {
                    let action = ahp::Action::read(action).map_err(bad)?;
                    let seq = action.server_seq;
                    if last.is_some_and(|last| seq <= last) {
                        let why = format!("action {seq} is out of order in the replay");
                        return Err(bad_answer("reconnect", why));
                    }
                    last = Some(seq);
                    count += u64::from(!known.has(&action.channel, seq));
                    ahead.remove(&seq);
                }
                // Names that this client did not send are ignored.
                let gone = missing.filter_map(|one| self.subscriptions.remove_entry(&*one));
                let missing = gone.map(|(channel, _)| channel).collect();
                self.defence.caught_up(last.unwrap_or(i64::MIN));
                let list = list(text, result, "actions");
                self.queue.push_back(Queued::Replay(list, Box::new(known)));
                self.release(|seq| ahead.contains(&seq));
                let actions = count;
                Ok(Answer::Resumed(Resumed::Replay { actions, missing }))
            }
        }
    }

    /// Starts over from these states.
    fn start_anew(&mut self, states: States, snapshots: Snapshots, seq: i64) {
        self.subscriptions = states.subscriptions;
        self.defence.start(seq);
        self.queue.push_back(Queued::Snapshots(snapshots.list));
        self.release(|_| true);
    }

    /// The numbers of the actions that arrived before the answer.
    fn held_numbers(&self) -> BTreeSet<i64> {
        let held = self.session.iter().flat_map(|session| &session.held);
        let number = |event: &Result<Event, String>| match event {
            Ok(Event::Action(action)) => Some(action.seq),
            _ => None,
        };
        held.flatten().filter_map(number).collect()
    }

    /// The handshake is done: delivers what arrived before its answer, except actions that the answer
    /// contains.
    fn release(&mut self, is_new: impl Fn(i64) -> bool) {
        let Some(session) = &mut self.session else {
            return;
        };
        let held = session.held.take().unwrap_or_default();
        self.out.push_back(Output::Negotiated { peer: self.host });
        for event in held {
            match &event {
                Ok(Event::Action(action)) if !is_new(action.seq) => {}
                _ => self.deliver(event),
            }
        }
    }
}

/// The states in an answer: how many, the largest number, and the numbers of the subscribed channels.
struct States {
    count: usize,
    last: Option<i64>,
    subscriptions: BTreeMap<String, i64>,
}

impl States {
    fn read(list: Elements<'_>, channels: BTreeMap<String, i64>) -> Result<Self, ReadError> {
        let mut states = Self {
            count: 0,
            last: None,
            subscriptions: channels,
        };
        for snapshot in list {
            let snapshot = ahp::Snapshot::read(snapshot)?;
            states.count += 1;
            states.last = states.last.max(Some(snapshot.from_seq));
            if let Some(from) = states.subscriptions.get_mut(&*snapshot.resource) {
                *from = snapshot.from_seq;
            }
        }
        Ok(states)
    }

    fn snapshots(&self, text: &Text, result: &RawValue) -> Snapshots {
        Snapshots {
            list: list(text, result, "snapshots"),
            count: self.count,
        }
    }
}

fn list(text: &Text, result: &RawValue, name: &str) -> List {
    List::new(text, member(result.get(), name).map_or("", RawValue::get))
}
