//! What waits for the application: messages as they came, read when they are taken.

use std::collections::{BTreeMap, VecDeque};

use breakbulk_link::Closed;
use breakbulk_message::ahp;
use breakbulk_message::jsonrpc::{Envelope, Kind};

use super::event::{Action, Event, List, Snapshot};
use super::request::{Asker, Request};
use super::text::Text;
use crate::Defence;

/// One thing that waits, or many that came in one answer.
pub(super) enum Queued {
    /// A message that is no question.
    Message(Text),
    /// A question of the host's, and where it came from.
    Request(Text, Box<Asker>),
    /// States.
    Snapshots(List),
    /// A replay, and what to leave out of it.
    Replay(List, Box<Known>),
    /// The end of a connection.
    Disconnected(Closed, Vec<i64>),
}

/// What the application has already.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    /// Where it stood when it reconnected, if anything was overtaken then.
    pub(super) defence: Option<(Defence, i64)>,
    /// The state of each channel has all up to this number in it.
    pub(super) states: BTreeMap<String, i64>,
}

impl Known {
    /// Whether the application has this action.
    pub(super) fn has(&self, action: &ahp::Action<'_>) -> bool {
        let seq = action.server_seq;
        let applied = |(defence, own): &(Defence, i64)| defence.has_applied(seq, *own);
        self.defence.as_ref().is_some_and(applied) || has_state(&self.states, action)
    }
}

/// Whether the state of its channel has this action in it.
pub(super) fn has_state(states: &BTreeMap<String, i64>, action: &ahp::Action<'_>) -> bool {
    let from = states.get(&*action.channel);
    from.is_some_and(|&from| action.server_seq <= from)
}

/// Takes what comes next.
pub(super) fn pop(queue: &mut VecDeque<Queued>) -> Option<Event> {
    loop {
        let next = match queue.front_mut()? {
            Queued::Snapshots(list) => list
                .next()
                .and_then(|one| Snapshot::read(&one))
                .map(Event::Snapshot),
            Queued::Replay(list, known) => replayed(list, known).map(Event::Action),
            _ => match queue.pop_front()? {
                Queued::Message(text) => return Some(message(text)),
                Queued::Request(text, from) => return Some(request(text, from)),
                Queued::Disconnected(closed, unsent) => {
                    return Some(Event::Disconnected { closed, unsent });
                }
                Queued::Snapshots(_) | Queued::Replay(..) => None,
            },
        };
        if next.is_some() {
            return next;
        }
        queue.pop_front();
    }
}

fn replayed(list: &mut List, known: &Known) -> Option<Action> {
    loop {
        let params = list.next()?;
        let raw = serde_json::from_str(&params).ok()?;
        if ahp::Action::read(raw).is_ok_and(|action| !known.has(&action)) {
            return Action::read(&params);
        }
    }
}

fn message(text: Text) -> Event {
    let whole = text.clone();
    let Some(envelope) = Envelope::parse(&whole) else {
        return Event::Other(text);
    };
    let params = envelope.params.map(|params| text.part(params.get()));
    match (envelope.kind(), envelope.method()) {
        (Some(Kind::Notification), Some(method)) => {
            let action = (method == "action").then_some(params.as_ref()).flatten();
            match action.and_then(Action::read) {
                Some(action) => Event::Action(action),
                None => Event::Notification {
                    method: method.into_owned(),
                    params,
                },
            }
        }
        _ => Event::Other(text),
    }
}

fn request(text: Text, from: Box<Asker>) -> Event {
    let whole = text.clone();
    let envelope = Envelope::parse(&whole);
    let parts = envelope.and_then(|envelope| {
        let params = envelope.params.map(|params| text.part(params.get()));
        Some((envelope.method()?, params, text.part(envelope.id?.get())))
    });
    match parts {
        Some((method, params, id)) => {
            Event::Request(Request::new(method.into_owned(), params, id, from))
        }
        None => Event::Other(text),
    }
}
