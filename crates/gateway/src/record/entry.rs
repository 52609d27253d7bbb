//! One record: when something happened, at which connection, and what. It is stored as a packet with a
//! comment in JSON.

use std::fmt::Write as _;

use breakbulk_link::Closed;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::head::{FrameKind, Head, Says, short};
use crate::pump::{Ended, Side};

/// Where something was seen: a session, and one connection of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Point {
    /// The session; empty if the record is about none.
    pub session: String,
    /// The route of the session.
    #[serde(default)]
    pub route: String,
    /// What the session listens at, without secrets.
    #[serde(default)]
    pub listen: String,
    /// What the session connects to, without secrets.
    #[serde(default)]
    pub to: String,
    /// The side of the connection; `None` if the record is about the session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub side: Option<SideName>,
    /// The number of the connection on that side, from 1: a tunnel may have several, one after another.
    #[serde(default)]
    pub line: u64,
}

impl Point {
    /// A short name.
    pub fn name(&self) -> String {
        match self.side {
            Some(side) => format!("{} {} {}", self.session, side.word(), self.line),
            None => self.session.clone(),
        }
    }
}

/// [`Side`], in records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SideName {
    /// The end that programs connect to.
    Listen,
    /// The target.
    To,
}

impl SideName {
    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Listen => "listen",
            Self::To => "to",
        }
    }
}

impl From<Side> for SideName {
    fn from(side: Side) -> Self {
        match side {
            Side::Listen => Self::Listen,
            Side::To => Self::To,
        }
    }
}

/// Which way something went, seen from the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Way {
    /// To the gateway.
    In,
    /// From the gateway.
    Out,
}

/// Who ended a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum By {
    /// Its other end, or the path between.
    Peer,
    /// This gateway.
    Us,
    /// Nobody: it broke.
    Lost,
}

/// What a record says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "lowercase")]
pub enum Note {
    /// A frame passed.
    Frame {
        /// Its number among those of its connection that went the same way, from 1.
        n: u64,
        /// Its size.
        bytes: u64,
        /// What identifies it.
        #[serde(flatten)]
        head: Head,
    },
    /// A connection was closed.
    Closed {
        /// By whom.
        by: By,
        /// The close code.
        code: u16,
        /// The reason.
        reason: String,
    },
    /// A session began.
    Began {
        /// The client, as the log names it.
        #[serde(default)]
        peer: String,
    },
    /// A session ended.
    Ended(End),
    /// A session did not begin, or it was cut off because the gateway itself ended at once.
    Refused,
    /// A message was not passed on, mostly for its size.
    NotCarried(NotCarried),
    /// Records that did not fit: the disk was slower than the traffic.
    Missed {
        /// How many.
        records: u64,
    },
}

/// A message that was not passed on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotCarried {
    /// The side whose limit the message exceeds.
    pub side: SideName,
    /// Its size.
    pub bytes: u64,
    /// The limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// Whether the limit is this gateway's own (`max-message`), and not one of the other end or the path.
    #[serde(default)]
    pub own: bool,
    /// Its method; answers have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// Its id, as JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// What was done instead of passing it on.
    pub instead: Fate,
    /// Why it was not passed on.
    pub why: String,
}

/// What is done about a message that is not passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Fate {
    /// A request: it is answered with an error.
    Answered,
    /// An answer: an error takes its place.
    Replaced,
    /// It is dropped.
    Dropped,
    /// Both connections are closed.
    Closed,
}

/// How a session ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// The side that was closed first.
    pub side: SideName,
    /// Whether its other end closed it.
    pub by_peer: bool,
    /// The close code.
    pub code: u16,
    /// The reason.
    pub reason: String,
    /// Messages that arrived and were not sent.
    pub lost: u64,
    /// Requests without an answer.
    pub unanswered: u64,
    /// Messages of which only a part arrived.
    pub incomplete: u64,
    /// Whether all went well.
    pub clean: bool,
}

impl From<&Ended> for End {
    fn from(ended: &Ended) -> Self {
        Self {
            side: ended.side.into(),
            by_peer: ended.by_peer,
            code: ended.closed.code,
            reason: short(&ended.closed.reason),
            lost: ended.lost as u64,
            unanswered: ended.unanswered as u64,
            incomplete: ended.incomplete as u64,
            clean: ended.is_clean(),
        }
    }
}

impl Note {
    /// The end of a connection.
    pub fn closed(by: By, closed: &Closed) -> Self {
        Self::Closed {
            by,
            code: closed.code,
            reason: short(&closed.reason),
        }
    }

    /// The note in one line of plain words, without its time.
    pub fn summary(&self) -> String {
        let mut out = String::new();
        // Writing to a string does not fail.
        let _ = match self {
            Note::Frame { n, bytes, head } => write!(out, "{n} {} {bytes} B", words(head)),
            Note::Closed { by, code, reason } => {
                let by = match by {
                    By::Peer => "closed by the other end",
                    By::Us => "closed by this gateway",
                    By::Lost => "lost",
                };
                write!(out, "{by} {code} {reason}")
            }
            Note::Began { peer } if peer.is_empty() => write!(out, "session began"),
            Note::Began { peer } => write!(out, "session began: {peer}"),
            Note::Ended(end) => write!(out, "session ended: {} {}", end.code, end.reason),
            Note::Refused => write!(out, "session refused"),
            Note::NotCarried(what) => {
                let became = match what.instead {
                    Fate::Answered => "a request was answered with an error",
                    Fate::Replaced => "an answer was replaced by an error",
                    Fate::Dropped => "a message was dropped",
                    Fate::Closed => "a message ended the session",
                };
                write!(out, "{became}: {} B, {}", what.bytes, what.why)
            }
            Note::Missed { records } => write!(out, "{records} records are missing here"),
        };
        out
    }
}

/// A record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// When, in microseconds since 1970.
    pub micros: u64,
    /// Which way the frame went.
    pub way: Option<Way>,
    /// What is said.
    pub note: Note,
    /// What is kept of the bytes of the frame.
    pub body: Bytes,
}

impl Entry {
    /// The size of the frame.
    pub(super) fn length(&self) -> u64 {
        match &self.note {
            Note::Frame { bytes, .. } => *bytes,
            _ => 0,
        }
    }
}

/// What identifies a frame, in a few words.
pub fn words(head: &Head) -> String {
    let mut out = String::new();
    let named = [head.method.as_deref(), head.id.as_deref()];
    let named: Vec<String> = named
        .into_iter()
        .zip(["", "id "])
        .filter_map(|(text, before)| Some(format!("{before}{}", text?)))
        .collect();
    let named = named.join(" ");
    let _ = match (&head.kind, &head.tunnel) {
        (_, Some(says)) => write!(out, "tunnel {}", said(says)),
        (FrameKind::Piece, _) => {
            let seq = head.seq.unwrap_or_default().saturating_add(1);
            match head.count {
                Some(count) => write!(out, "piece {seq}/{count} {named}"),
                None => write!(out, "piece {seq} {named}"),
            }
        }
        (FrameKind::Open, _) => {
            write!(out, "start of {} pieces", head.count.unwrap_or_default())
        }
        (FrameKind::Word, _) => write!(out, "control text {named}"),
        (FrameKind::Whole | FrameKind::Tunnel, _) => write!(out, "whole {named}"),
    };
    out.truncate(out.trim_end().len());
    out
}

fn said(says: &Says) -> String {
    match says {
        Says::Hello { frame, message, .. } => format!("hello frame {frame} message {message}"),
        Says::Resume { received } => format!("resume after {received}"),
        Says::Resumed { received } => format!("resumed after {received}"),
        Says::Gone { why } => format!("gone {why}"),
        Says::Ack { taken } => format!("ack {taken}"),
        Says::Part { last, bytes } => format!("part {bytes}{}", if *last { " last" } else { "" }),
        Says::Close { code, reason } => format!("close {code} {reason}"),
        Says::Other => "unreadable".to_owned(),
    }
}
