//! The open calls of one bridge: matches answers to them, and decides which ones a fault fails.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::{Duration, Instant};

use breakbulk_link::{Fault, FaultKind, Key, Wire};
use breakbulk_message::tywrap::{DecodeError, DecodeErrorKind, ErrorBody, Response, UNKNOWN_ID};
use breakbulk_wire::Tywrap;

use super::{Breach, Config, Raised};

/// How long a call that was given up is remembered, to recognize its late answer.
const LATE_AGE: Duration = Duration::from_secs(600);

/// How many calls that were given up are remembered.
const LATE_MAX: usize = 1000;

/// Characters of a line that an error shows.
const SHOWN: usize = 200;

/// The calls of one bridge. `A` identifies the caller that waits.
#[derive(Debug)]
pub struct Calls<A> {
    pending: BTreeMap<i64, A>,
    late: BTreeMap<i64, GivenUp>,
    tolerant: bool,
    ids_may_differ: bool,
    broken: Option<Breach>,
}

/// A call that was given up, whose answer may still come.
#[derive(Debug)]
struct GivenUp {
    since: Instant,
    /// The bridge has received the whole call, so it runs it and will answer.
    is_running: bool,
}

/// What to do after a message or a fault.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict<A> {
    /// Nothing.
    Nothing,
    /// This call has a result, which is that part of the text.
    Answer(A, Range<usize>),
    /// This call raised an exception.
    Raised(A, Raised),
    /// These calls fail, and the bridge must be restarted.
    Failed(Vec<A>, Breach),
    /// A line that is not a message: log and skip it.
    Stray(String),
}

impl<A> Calls<A> {
    /// A table without calls.
    pub fn new(config: &Config) -> Self {
        Self {
            pending: BTreeMap::new(),
            late: BTreeMap::new(),
            tolerant: config.tolerant,
            ids_may_differ: config.ids_may_differ,
            broken: None,
        }
    }

    /// Why this bridge must not be used any more, if so.
    pub fn broken(&self) -> Option<&Breach> {
        self.broken.as_ref()
    }

    /// Registers a call that is sent.
    pub fn begin(&mut self, id: i64, caller: A) {
        self.pending.insert(id, caller);
    }

    /// Removes a call that ended without an answer of the bridge.
    pub fn take(&mut self, id: i64) -> Option<A> {
        self.pending.remove(&id)
    }

    /// Marks the bridge as unusable; returns all callers that wait.
    pub fn break_off(&mut self, breach: Breach) -> Vec<A> {
        self.broken.get_or_insert(breach);
        self.late.clear();
        std::mem::take(&mut self.pending).into_values().collect()
    }

    /// The caller gave up. The answer is dropped when it comes.
    pub fn give_up(&mut self, now: Instant, id: i64) -> Option<A> {
        let caller = self.pending.remove(&id)?;
        let late = GivenUp {
            since: now,
            // Answering `meta` does not keep a bridge busy.
            is_running: id != UNKNOWN_ID,
        };
        self.late.insert(id, late);
        self.late
            .retain(|_, late| now.saturating_duration_since(late.since) < LATE_AGE);
        while self.late.len() > LATE_MAX {
            self.late.pop_first();
        }
        Some(caller)
    }

    /// The bridge never received all of a call that was given up, so it does not run it.
    pub fn not_received(&mut self, id: i64) {
        if let Some(late) = self.late.get_mut(&id) {
            late.is_running = false;
        }
    }

    /// Forgets a call that was given up: the bridge received nothing of it, or has answered.
    pub fn done(&mut self, id: i64) {
        self.late.remove(&id);
    }

    /// The number of calls that were given up and that the bridge still runs.
    pub fn still_running(&self) -> usize {
        self.late.values().filter(|late| late.is_running).count()
    }

    /// Whether an earlier call than this one is open.
    pub fn has_earlier(&self, id: i64) -> bool {
        self.pending.keys().next().is_some_and(|first| *first < id)
    }

    /// Handles a message; `frame` is the id of its frames if it came in frames.
    pub fn handle_message(&mut self, text: &str, frame: Option<i64>) -> Verdict<A> {
        let response = match Response::read(text) {
            Ok(response) => response,
            Err(error) => return self.unreadable(error, text, frame),
        };
        let id = response.id;
        if let Some(frame) = frame.filter(|frame| *frame != id && !self.ids_may_differ) {
            let breach = Breach::IdsDiffer { frame, message: id };
            return self.fail([frame, id], breach);
        }
        if let Some(caller) = self.pending.remove(&id) {
            return answer(caller, text, response);
        }
        if self.late.remove(&id).is_some() {
            return Verdict::Nothing;
        }
        match response.outcome {
            Err(error) if id == UNKNOWN_ID => self.unnamed(&error),
            _ => self.fail_all(Breach::UnknownId { id }),
        }
    }

    /// Handles an invalid frame. `line` is the last line received that was not a JSON object.
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
            // An answer may lack its protocol; a line without it that is not an answer either was printed.
            _ => !text.contains("\"protocol\""),
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

    /// Handles an error without an id: the bridge could not parse the request.
    fn unnamed(&mut self, error: &ErrorBody<'_>) -> Verdict<A> {
        match (self.pending.len(), self.still_running()) {
            (1, 0) => match self.pending.pop_first() {
                Some((_, caller)) => Verdict::Raised(caller, raised(error)),
                None => Verdict::Nothing,
            },
            (0, 1) => {
                self.late.retain(|_, late| !late.is_running);
                Verdict::Nothing
            }
            _ => self.fail_all(Breach::Unnamed {
                error: excerpt(error.to_string().as_bytes()),
            }),
        }
    }

    /// Fails the calls with these ids. If none of them is known, all calls fail.
    fn fail(&mut self, ids: impl IntoIterator<Item = i64>, breach: Breach) -> Verdict<A> {
        let (mut callers, mut is_late) = (Vec::new(), false);
        for id in ids {
            callers.extend(self.pending.remove(&id));
            is_late |= self.late.remove(&id).is_some();
        }
        if callers.is_empty() && !is_late {
            return self.fail_all(breach);
        }
        self.broken.get_or_insert(breach.clone());
        Verdict::Failed(callers, breach)
    }

    fn fail_all(&mut self, breach: Breach) -> Verdict<A> {
        Verdict::Failed(self.break_off(breach.clone()), breach)
    }
}

fn answer<A>(caller: A, text: &str, response: Response<'_>) -> Verdict<A> {
    match response.outcome {
        Ok(result) => {
            let start = result.get().as_ptr().addr() - text.as_ptr().addr();
            Verdict::Answer(caller, start..start + result.get().len())
        }
        Err(error) => Verdict::Raised(caller, raised(&error)),
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
    // A character has at most 4 bytes.
    let text = String::from_utf8_lossy(&line[..line.len().min(4 * SHOWN)]);
    text.chars().take(SHOWN).collect()
}

#[cfg(test)]
mod tests;
