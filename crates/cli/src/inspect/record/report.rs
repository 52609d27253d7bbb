//! The report about records: each conversation in figures, with an explanation if it failed.

use std::io::{self, Write};

use serde_json::{Value, json};

use super::book::{Book, Session};
use super::chain::Chain;
use super::explain::{Explanation, explain};
use super::not_carried::{self, Uncarried};
use crate::inspect::safe;

/// All that is printed.
pub(super) struct Report<'a> {
    pub(super) conversations: Vec<Conversation<'a>>,
    /// The records, as they were given.
    pub(super) records: Vec<String>,
    pub(super) damaged: Vec<String>,
    pub(super) missed: u64,
    pub(super) left_out: u64,
}

/// One conversation.
pub(super) struct Conversation<'a> {
    pub(super) sessions: Chain<'a>,
    pub(super) first: u64,
    pub(super) last: u64,
    pub(super) state: State,
    pub(super) why: Option<Explanation>,
    /// Messages that did not get through for their size.
    pub(super) not_carried: Vec<Uncarried>,
}

/// How a conversation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// All was sent and answered.
    Clean,
    /// It ended as it should, but a message was too large on its way.
    TooLarge,
    /// Something was lost, or a connection ended badly and with it the conversation.
    Failed,
    /// A connection was lost, and the conversation went on.
    Resumed,
    /// It did not begin, or was ended at once.
    Refused,
    /// Its end is not in the record.
    Open,
}

impl State {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Clean => "ended well",
            Self::TooLarge => "message too large",
            Self::Failed => "failed",
            Self::Resumed => "went on after a lost connection",
            Self::Refused => "refused, or ended at once",
            Self::Open => "its end is not in the record",
        }
    }
}

impl<'a> Report<'a> {
    pub(super) fn new(
        book: &Book,
        chains: Vec<Chain<'a>>,
        records: Vec<String>,
        damaged: Vec<String>,
    ) -> Self {
        Self {
            conversations: chains.into_iter().map(Conversation::new).collect(),
            records,
            damaged,
            missed: book.missed,
            left_out: book.left_out,
        }
    }

    pub(super) fn failed(&self) -> usize {
        let failed = |it: &&Conversation<'_>| matches!(it.state, State::Failed | State::TooLarge);
        self.conversations.iter().filter(failed).count()
    }
}

impl<'a> Conversation<'a> {
    fn new(sessions: Chain<'a>) -> Self {
        let why = explain(&sessions);
        let not_carried = not_carried::of(&sessions);
        let ends: Vec<_> = sessions.iter().filter_map(|it| it.end.as_ref()).collect();
        let state = match (&why, ends.iter().all(|end| end.clean)) {
            (_, false) => State::Failed,
            _ if sessions.iter().any(|it| it.is_refused) => State::Refused,
            (Some(_), true) if ends.is_empty() => State::Failed,
            (None, true) if ends.is_empty() => State::Open,
            (Some(_), true) => State::Resumed,
            (None, true) if !not_carried.is_empty() => State::TooLarge,
            (None, true) => State::Clean,
        };
        Self {
            first: sessions.iter().map(|it| it.first).min().unwrap_or_default(),
            last: sessions.iter().map(|it| it.last).max().unwrap_or_default(),
            sessions,
            state,
            why,
            not_carried,
        }
    }
}

/// One JSON object for programs.
pub(super) fn print_json(report: &Report<'_>, out: &mut dyn Write) -> io::Result<()> {
    let conversations: Vec<Value> = report.conversations.iter().map(conversation).collect();
    let all = json!({
        "records": report.records,
        "damaged": report.damaged,
        "missed": report.missed,
        "leftOut": report.left_out,
        "conversations": conversations,
    });
    writeln!(out, "{}", safe::json(&all.to_string()))
}

fn conversation(it: &Conversation<'_>) -> Value {
    let session = |session: &&Session| {
        let [(in_frames, in_bytes), (out_frames, out_bytes)] = session.sums();
        let end = session.end.as_ref();
        json!({
            "id": session.point.session,
            "record": session.place,
            "route": session.point.route,
            "listen": session.point.listen,
            "to": session.point.to,
            "peer": session.peer,
            "in": {"frames": in_frames, "bytes": in_bytes},
            "out": {"frames": out_frames, "bytes": out_bytes},
            "end": end.and_then(|end| serde_json::to_value(end).ok()),
        })
    };
    let sessions: Vec<Value> = it.sessions.iter().map(session).collect();
    json!({
        "state": it.state.word(),
        "began": it.first,
        "last": it.last,
        "sessions": sessions,
        "why": it.why.as_ref().map(why),
        "notCarried": it.not_carried.iter().map(Uncarried::to_json).collect::<Vec<Value>>(),
    })
}

fn why(it: &Explanation) -> Value {
    let open: Vec<Value> = it
        .open
        .iter()
        .map(|(method, id)| json!({"method": method, "id": id}))
        .collect();
    let frame = it.frame.as_ref().map(|bad| {
        let transfer = bad.frame.transfer.as_ref();
        json!({
            "from": bad.from,
            "to": bad.to,
            "number": bad.frame.n,
            "bytes": bad.frame.bytes,
            "missing": bad.missing,
            "method": transfer.map_or(bad.frame.method.as_ref(), |it| it.method.as_ref()),
            "id": transfer.map_or(bad.frame.id.as_ref(), |it| it.id.as_ref()),
            "piece": transfer.map(|it| it.seq.saturating_add(1)),
            "pieces": transfer.and_then(|it| it.count),
            "fromByte": transfer.map(|it| it.before),
        })
    });
    json!({
        "from": it.hop.from,
        "to": it.hop.to,
        "line": it.hop.line,
        "at": it.closed.micros,
        "code": it.closed.code,
        "reason": it.closed.reason,
        "who": it.who,
        "frame": frame,
        "cap": it.cap,
        "maxFrame": it.max_frame,
        "open": open,
        "option": it.option,
    })
}
