//! The queue of events for the application. Lists of states and actions are parsed as they are taken.

use std::collections::{BTreeMap, VecDeque};

use breakbulk_link::{MessageKind, Shape};
use breakbulk_message::ahp;

use super::event::{Action, Event, List, Snapshot};
use super::question::Question;
use super::text::Text;
use crate::Defence;

/// One event, or the many of one answer.
pub(super) enum Queued {
    One(Event),
    /// States.
    Snapshots(List),
    /// A replay, and what to leave out of it.
    Replay(List, Box<Known>),
}

/// The actions that the application has already.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    /// What was received before the reconnect, and the last number that the client had seen then.
    pub(super) defence: Option<(Defence, i64)>,
    /// The number of the last action that the state of each channel contains.
    pub(super) states: BTreeMap<String, i64>,
}

impl Known {
    /// Whether the application has this action.
    pub(super) fn has(&self, channel: &str, seq: i64) -> bool {
        let applied = |(defence, own): &(Defence, i64)| defence.has_applied(seq, *own);
        self.defence.as_ref().is_some_and(applied) || has_state(&self.states, channel, seq)
    }
}

/// Whether the state of the channel contains this action.
pub(super) fn has_state(states: &BTreeMap<String, i64>, channel: &str, seq: i64) -> bool {
    states.get(channel).is_some_and(|&from| seq <= from)
}

/// Takes the next event.
pub(super) fn pop(queue: &mut VecDeque<Queued>) -> Option<Event> {
    loop {
        let next = match queue.front_mut()? {
            Queued::Snapshots(list) => {
                let one = list.next().and_then(|one| Snapshot::read(&one));
                one.map(Event::Snapshot)
            }
            Queued::Replay(list, known) => replayed(list, known).map(Event::Action),
            Queued::One(_) => match queue.pop_front()? {
                Queued::One(event) => return Some(event),
                _ => None,
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
        if let Ok(action) = ahp::Action::read(raw)
            && !known.has(&action.channel, action.server_seq)
        {
            return Some(Action::new(&params, action));
        }
    }
}

/// The event of a message that is not an answer; `Err` says what is wrong with an action.
pub(super) fn read(text: Text, shape: &Shape) -> Result<Event, String> {
    let Some(method) = text.method(shape) else {
        return Ok(Event::Other(text));
    };
    let params = text.at(shape.body.clone());
    match (shape.kind, params) {
        (MessageKind::Notification, params) if method == "action" => {
            let params = params.ok_or("`params` is missing")?;
            let raw = serde_json::from_str(&params).map_err(|error| error.to_string())?;
            let action = ahp::Action::read(raw).map_err(|error| error.to_string())?;
            Ok(Event::Action(Action::new(&params, action)))
        }
        (MessageKind::Notification, params) => Ok(Event::Notification { method, params }),
        (MessageKind::Request, params) => Ok(match text.at(shape.id.clone()) {
            Some(id) => Event::Request(Question::new(method, params, id)),
            None => Event::Other(text),
        }),
        _ => Ok(Event::Other(text)),
    }
}
