//! Which calls are open, and what an answer or a fault means for whom.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::{Duration, Instant};

use breakbulk_link::{Fault, FaultKind, Key, Wire};
use breakbulk_message::tywrap::{DecodeError, DecodeErrorKind, ErrorBody, Response, UNKNOWN_ID};
use breakbulk_wire::Tywrap;

use super::{Breach, Raised, Settings};

/// For how long an answer to a call that was given up is expected.
const LATE_AGE: Duration = Duration::from_secs(600);

/// So many answers to calls that were given up are expected.
const LATE: usize = 1000;

/// How much of a line an error shows.
const SHOWN: usize = 200;

/// The calls of one bridge. `A` is whoever waits.
#[derive(Debug)]
pub struct Calls<A> {
    pending: BTreeMap<i64, A>,
    late: BTreeMap<i64, Late>,
    tolerant: bool,
    ids_may_differ: bool,
    broken: Option<Breach>,
}

/// A call that was given up.
#[derive(Debug)]
struct Late {
    since: Instant,
    /// The bridge has all of it, and so works on it or will.
    is_owed: bool,
}

/// What follows from something that the bridge said.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict<A> {
    /// Nothing.
    Nothing,
    /// This one has a result, which lies there in the text.
    Answer(A, Range<usize>),
    /// This one has an exception.
    Raised(A, Raised),
    /// These fail, and the bridge is not to be used again.
    Failed(Vec<A>, Breach),
    /// A line is to be logged and forgotten.
    Stray(String),
}

impl<A> Calls<A> {
    /// No call is open yet.
    pub fn new(settings: &Settings) -> Self {
        Self {
            pending: BTreeMap::new(),
            late: BTreeMap::new(),
            tolerant: settings.tolerant,
            ids_may_differ: settings.ids_may_differ,
            broken: None,
        }
    }

    /// Why nothing more may be sent to this bridge.
    pub fn broken(&self) -> Option<&Breach> {
        self.broken.as_ref()
    }

    /// A call is on its way.
    pub fn begin(&mut self, id: i64, who: A) {
        self.pending.insert(id, who);
    }

    /// A call that ended without the bridge.
    pub fn take(&mut self, id: i64) -> Option<A> {
        self.pending.remove(&id)
    }

    /// The bridge is not to be used again; all who wait.
    pub fn break_off(&mut self, breach: Breach) -> Vec<A> {
        self.broken.get_or_insert(breach);
        self.late.clear();
        std::mem::take(&mut self.pending).into_values().collect()
    }

    /// Nobody waits for this one any more. Its answer is expected, and dropped when it comes.
    pub fn give_up(&mut self, now: Instant, id: i64) -> Option<A> {
        let who = self.pending.remove(&id)?;
        let late = Late {
            since: now,
            // What a bridge is does not keep it from working.
            is_owed: id != UNKNOWN_ID,
        };
        self.late.insert(id, late);
        self.late
            .retain(|_, late| now.saturating_duration_since(late.since) < LATE_AGE);
        while self.late.len() > LATE {
            self.late.pop_first();
        }
        Some(who)
    }

    /// The bridge never got all of a call that was given up.
    pub fn not_owed(&mut self, id: i64) {
        if let Some(late) = self.late.get_mut(&id) {
            late.is_owed = false;
        }
    }

    /// The bridge got nothing of a call that was given up, or has answered all of it.
    pub fn done(&mut self, id: i64) {
        self.late.remove(&id);
    }

    /// Calls that were given up and that the bridge works on.
    pub fn owed(&self) -> usize {
        self.late.values().filter(|late| late.is_owed).count()
    }

    /// Whether someone waits for a call that went out before this one.
    pub fn is_before(&self, id: i64) -> bool {
        self.pending.keys().next().is_some_and(|first| *first < id)
    }

    /// A message, and the id of its frames if it came in frames.
    pub fn hear(&mut self, text: &str, frame: Option<i64>) -> Verdict<A> {
        let response = match Response::read(text) {
            Ok(response) => response,
            Err(error) => return self.unreadable(error, text, frame),
        };
        let id = response.id;
        if let Some(frame) = frame.filter(|frame| *frame != id && !self.ids_may_differ) {
            let breach = Breach::IdsDiffer { frame, message: id };
            return self.fail([frame, id], breach);
        }
        if let Some(who) = self.pending.remove(&id) {
            return answer(who, text, response);
        }
        if self.late.remove(&id).is_some() {
            return Verdict::Nothing;
        }
        match response.outcome {
            Err(error) if id == UNKNOWN_ID => self.unnamed(&error),
            _ => self.fail_all(Breach::UnknownId { id }),
        }
    }

    /// Something was wrong with a frame. `line` is the last line that was no object.
    pub fn fault(&mut self, fault: Fault, line: String) -> Verdict<A> {
        let id = fault.key.as_ref().and_then(key_id);
        let is_stray = match fault.kind {
            FaultKind::NotJson => true,
            FaultKind::Malformed { field, .. } => field == "frame",
            _ => false,
        };
        if id.is_none() && is_stray {
            return self.stray(line);
        }
        let code = Tywrap::default().code(&fault.kind);
        let fault = Box::new(fault);
        self.fail(id, Breach::Frame { code, fault })
    }

    fn unreadable(&mut self, error: DecodeError, text: &str, frame: Option<i64>) -> Verdict<A> {
        let line = excerpt(text.as_bytes());
        let is_stray = match &error.kind {
            DecodeErrorKind::NotJson
            | DecodeErrorKind::NotObject
            | DecodeErrorKind::Protocol { .. } => true,
            DecodeErrorKind::Missing { member } => *member == "protocol",
            _ => false,
        };
        if frame.is_none() && is_stray {
            return self.stray(line);
        }
        let known = Some(error.id).filter(|id| *id != UNKNOWN_ID);
        let why = error.kind;
        self.fail(frame.or(known), Breach::Unreadable { why, line })
    }

    fn stray(&mut self, line: String) -> Verdict<A> {
        match self.tolerant {
            true => Verdict::Stray(line),
            false => self.fail_all(Breach::Pollution { line }),
        }
    }

    /// An error of a bridge that could not read whose it is.
    fn unnamed(&mut self, error: &ErrorBody<'_>) -> Verdict<A> {
        match (self.pending.len(), self.owed()) {
            (1, 0) => match self.pending.pop_first() {
                Some((_, who)) => Verdict::Raised(who, raised(error)),
                None => Verdict::Nothing,
            },
            (0, 1) => {
                self.late.retain(|_, late| !late.is_owed);
                Verdict::Nothing
            }
            _ => self.fail_all(Breach::Unnamed {
                error: excerpt(error.to_string().as_bytes()),
            }),
        }
    }

    /// Those of the calls that are known fail; if none is, all.
    fn fail(&mut self, ids: impl IntoIterator<Item = i64>, breach: Breach) -> Verdict<A> {
        let (mut who, mut is_late) = (Vec::new(), false);
        for id in ids {
            who.extend(self.pending.remove(&id));
            is_late |= self.late.remove(&id).is_some();
        }
        if who.is_empty() && !is_late {
            return self.fail_all(breach);
        }
        self.broken.get_or_insert(breach.clone());
        Verdict::Failed(who, breach)
    }

    fn fail_all(&mut self, breach: Breach) -> Verdict<A> {
        Verdict::Failed(self.break_off(breach.clone()), breach)
    }
}

fn answer<A>(who: A, text: &str, response: Response<'_>) -> Verdict<A> {
    match response.outcome {
        Ok(result) => {
            let start = result.get().as_ptr().addr() - text.as_ptr().addr();
            Verdict::Answer(who, start..start + result.get().len())
        }
        Err(error) => Verdict::Raised(who, raised(&error)),
    }
}

fn raised(error: &ErrorBody<'_>) -> Raised {
    Raised {
        kind: error.kind.clone().into_owned(),
        message: error.message.clone().into_owned(),
        traceback: error.traceback.clone().map(std::borrow::Cow::into_owned),
        stderr: String::new(),
    }
}

/// The id in a key such as `response:7`, whichever the direction.
pub fn key_id(key: &Key) -> Option<i64> {
    let (_, id) = std::str::from_utf8(key.as_bytes()).ok()?.split_once(':')?;
    id.parse().ok()
}

/// The beginning of a line.
pub fn excerpt(line: &[u8]) -> String {
    // No character has more bytes.
    let text = String::from_utf8_lossy(&line[..line.len().min(4 * SHOWN)]);
    text.chars().take(SHOWN).collect()
}

#[cfg(test)]
mod tests;
