//! The answers to `initialize` and `reconnect`: where the client stands from then on.

use std::collections::{BTreeMap, BTreeSet};

use breakbulk_message::ahp::{self, Elements, InitializeResult, ReadError, ReconnectResult};
use breakbulk_message::jsonrpc::{Envelope, Kind};
use serde_json::value::RawValue;

use super::event::{List, Snapshots};
use super::queue::{Known, Queued};
use super::state::State;
use super::text::{Text, member};
use super::{ClientConfig, ClientError, Initialized, Resumed};

/// What a handshake came to.
pub(super) enum Shaken {
    Initialized(Initialized),
    Resumed(Resumed),
}

/// `initialize` was answered.
pub(super) fn started(
    state: &mut State,
    config: &ClientConfig,
    text: &Text,
    channels: Vec<String>,
    result: &RawValue,
) -> Result<Shaken, ClientError> {
    let bad = |error: ReadError| bad("initialize", error);
    let read = InitializeResult::read(result).map_err(bad)?;
    let subscriptions = channels.into_iter().map(|one| (one, i64::MIN)).collect();
    let states = States::read(read.snapshots, subscriptions).map_err(bad)?;
    let snapshots = states.snapshots(text, result);
    state.host = read.chunking();
    let initialized = Initialized {
        server_seq: read.server_seq,
        protocol_version: read.protocol_version.into_owned(),
        chunking: state.host,
        result: text.part(result.get()),
        snapshots: snapshots.clone(),
    };
    states.begin(state, config, snapshots, read.server_seq);
    Ok(Shaken::Initialized(initialized))
}

/// `reconnect` was answered.
pub(super) fn returned(
    state: &mut State,
    config: &ClientConfig,
    text: &Text,
    result: &RawValue,
) -> Result<Shaken, ClientError> {
    let bad = |error: ReadError| bad("reconnect", error);
    match ReconnectResult::read(result).map_err(bad)? {
        ReconnectResult::Snapshot { snapshots } => {
            let states = States::read(snapshots, state.subscriptions.clone()).map_err(bad)?;
            let snapshots = states.snapshots(text, result);
            let last = states.last.unwrap_or(state.defence.last_seen());
            states.begin(state, config, snapshots.clone(), last);
            Ok(Shaken::Resumed(Resumed::Snapshot(snapshots)))
        }
        ReconnectResult::Replay { actions, missing } => {
            let known = Known {
                defence: config
                    .defends
                    .then(|| (state.defence.clone(), state.defence.last_seen())),
                states: state.subscriptions.clone(),
            };
            let mut ahead = held_numbers(state);
            let (mut count, mut last) = (0, None);
            for action in actions {
                let action = ahp::Action::read(action).map_err(bad)?;
                let seq = action.server_seq;
                if last.is_some_and(|last| seq <= last) {
                    return Err(ClientError::BadAnswer {
                        method: "reconnect",
                        why: format!("action {seq} is out of order in the replay"),
                    });
                }
                last = Some(seq);
                count += u64::from(!known.has(&action));
                ahead.remove(&seq);
            }
            // Only names that we said ourselves are kept.
            let gone = missing.filter_map(|one| state.subscriptions.remove_entry(&*one));
            let missing = gone.map(|(channel, _)| channel).collect();
            state.defence.caught_up(last.unwrap_or(i64::MIN));
            let list = list(text, result, "actions");
            state.queue.push_back(Queued::Replay(list, Box::new(known)));
            release(state, config, |seq| ahead.contains(&seq));
            Ok(Shaken::Resumed(Resumed::Replay {
                actions: count,
                missing,
            }))
        }
    }
}

/// States that came with an answer: how many, the largest number, and those of our channels.
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

    /// All starts anew from here.
    fn begin(self, state: &mut State, config: &ClientConfig, snapshots: Snapshots, seq: i64) {
        state.subscriptions = self.subscriptions;
        state.defence.start(seq);
        state.queue.push_back(Queued::Snapshots(snapshots.list));
        release(state, config, |_| true);
    }
}

/// The numbers of the actions that came before the answer.
fn held_numbers(state: &State) -> BTreeSet<i64> {
    let held = state.session.iter().flat_map(|session| &session.held);
    held.flatten().filter_map(|text| number(text)).collect()
}

/// The number of an action.
fn number(text: &str) -> Option<i64> {
    let envelope = Envelope::parse(text)?;
    let is_action = envelope.kind() == Some(Kind::Notification)
        && envelope.method().as_deref() == Some("action");
    let params = envelope.params.filter(|_| is_action)?;
    Some(ahp::Action::read(params).ok()?.server_seq)
}

/// The handshake is done: what came before it follows, but for actions that the answer has.
fn release(state: &mut State, config: &ClientConfig, is_new: impl Fn(i64) -> bool) {
    let host = state.host;
    let Some(session) = &mut state.session else {
        return;
    };
    session
        .connection
        .with(|link| config.settings.shake(link, host.as_ref()));
    for text in session.held.take().unwrap_or_default() {
        if number(&text).is_none_or(&is_new) {
            state.deliver(config, text);
        }
    }
}

fn list(text: &Text, result: &RawValue, name: &str) -> List {
    List::new(text, member(result.get(), name).map_or("", RawValue::get))
}

fn bad(method: &'static str, error: ReadError) -> ClientError {
    ClientError::BadAnswer {
        method,
        why: error.to_string(),
    }
}
