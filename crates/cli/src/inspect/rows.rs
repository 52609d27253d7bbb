//! The report of an inspection: a small row per frame, transfer and message.

use std::sync::Arc;

use super::format::Format;

/// The kind of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Whole,
    Open,
    Piece,
    Close,
    Accept,
    Abort,
    Control,
    /// Cannot be decoded.
    Broken,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Whole => "whole",
            Self::Open => "open",
            Self::Piece => "piece",
            Self::Close => "close",
            Self::Accept => "accept",
            Self::Abort => "abort",
            Self::Control => "control",
            Self::Broken => "broken",
        }
    }
}

/// What is wrong: the format's own error code if it has one, and a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) code: &'static str,
    pub(crate) text: Box<str>,
}

/// One frame.
#[derive(Debug)]
pub(crate) struct FrameRow {
    pub(crate) number: u64,
    pub(crate) bytes: u64,
    pub(crate) kind: Kind,
    pub(crate) key: Option<Arc<str>>,
    pub(crate) seq: Option<u64>,
    pub(crate) total: Option<u64>,
    /// Bytes of the message in this frame.
    pub(crate) data: Option<u64>,
    pub(crate) fault: Option<Box<Problem>>,
    pub(crate) note: Option<Box<str>>,
}

impl FrameRow {
    pub(crate) fn new(number: u64, bytes: u64, kind: Kind) -> Self {
        Self {
            number,
            bytes,
            kind,
            key: None,
            seq: None,
            total: None,
            data: None,
            fault: None,
            note: None,
        }
    }
}

/// The state of a transfer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Complete,
    Unfinished,
    /// Its opening frame is not in the capture.
    Headless,
    Failed(Box<Problem>),
}

/// One transfer.
#[derive(Debug)]
pub(crate) struct TransferRow {
    pub(crate) key: Arc<str>,
    pub(crate) first_frame: u64,
    pub(crate) last_frame: u64,
    pub(crate) have: u64,
    pub(crate) want: Option<u64>,
    pub(crate) bytes: u64,
    pub(crate) declared: Option<u64>,
    /// Bytes of all its frames.
    pub(crate) carried: u64,
    /// The first ranges of missing indices, ends included.
    pub(crate) gaps: Vec<(u64, u64)>,
    /// Whether there are more.
    pub(crate) more_gaps: bool,
    pub(crate) duplicates: u64,
    /// Whether the digest is right; `None` if there is none or it was not compared.
    pub(crate) digest: Option<bool>,
    pub(crate) state: State,
}

impl TransferRow {
    /// The bytes of the frames beyond the data, in percent of the data.
    pub(crate) fn overhead(&self) -> Option<f64> {
        (self.bytes > 0).then(|| (self.carried as f64 / self.bytes as f64 - 1.0) * 100.0)
    }
}

/// A value of a message's description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Field {
    Text(Box<str>),
    Number(i64),
    /// A number of bytes.
    Size(u64),
}

/// The description of a message.
#[derive(Debug)]
pub(crate) struct Description {
    pub(crate) protocol: &'static str,
    pub(crate) kind: Box<str>,
    pub(crate) fields: Vec<(&'static str, Field)>,
    pub(crate) fault: Option<Box<Problem>>,
}

/// One message.
#[derive(Debug)]
pub(crate) struct MessageRow {
    pub(crate) number: u64,
    /// The frame that completed it.
    pub(crate) frame: u64,
    pub(crate) key: Option<Arc<str>>,
    pub(crate) bytes: u64,
    pub(crate) description: Description,
}

/// The rows of one kind. Beyond the limit only rows with problems are kept, up to the limit again; the
/// rest is counted.
#[derive(Debug)]
pub(crate) struct Section<T> {
    limit: usize,
    pub(crate) rows: Vec<T>,
    /// Rows with problems from beyond the limit.
    pub(crate) beyond: Vec<T>,
    pub(crate) left_out: u64,
}

impl<T> Section<T> {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            limit,
            rows: Vec::new(),
            beyond: Vec::new(),
            left_out: 0,
        }
    }

    pub(crate) fn push(&mut self, row: T, matters: bool) {
        if self.rows.len() < self.limit {
            self.rows.push(row);
        } else if matters && self.beyond.len() < self.limit {
            self.beyond.push(row);
        } else {
            self.left_out += 1;
        }
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &T> {
        self.rows.iter().chain(&self.beyond)
    }

    pub(crate) fn count(&self) -> u64 {
        (self.rows.len() + self.beyond.len()) as u64 + self.left_out
    }
}

/// The result of an inspection.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) format: Format,
    pub(crate) why: String,
    pub(crate) frames: Section<FrameRow>,
    pub(crate) transfers: Section<TransferRow>,
    pub(crate) messages: Section<MessageRow>,
    pub(crate) complete: u64,
    pub(crate) unfinished: u64,
    pub(crate) failed: u64,
    pub(crate) faults: u64,
}

impl Report {
    /// A summary of what is wrong with the capture.
    pub(crate) fn verdict(&self) -> Option<String> {
        let problems: Vec<String> = [
            (self.faults, "fault"),
            (self.failed, "failed transfer"),
            (self.unfinished, "unfinished transfer"),
        ]
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| counted(count, what))
        .collect();
        (!problems.is_empty()).then(|| problems.join(", "))
    }
}

/// `1 frame`, `2 frames`.
pub(crate) fn counted(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}
