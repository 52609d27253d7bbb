//! Examines a capture frame by frame: a link decides what is valid, as it would for a real receiver.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use breakbulk::link::{
    Budget, Config, Event, Fault, FaultKind, Frame, Inbound, Key, Limits, Link, Message, Piece,
    Received, Rules, Scope, Unknown, Wire,
};
use breakbulk::message::vscode::ipc;

use super::capture::Item;
use super::describe::describe;
use super::format::Format;
use super::rows::{FrameRow, Kind, MessageRow, Problem, Report, Section};
use super::safe::shorten;
use super::tracker::{At, PieceOf, Runs, Tracker};

/// Transfers that the link holds at once.
const TRANSFERS: usize = 1024;

/// How many keys of failed transfers are remembered.
const DEAD_MAX: usize = 4096;

/// Limits of an inspection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) frame: usize,
    pub(crate) message: usize,
    /// Rows of each section.
    pub(crate) rows: usize,
}

/// The state of an inspection.
pub(crate) struct Examiner {
    format: Format,
    wire: Arc<dyn Wire>,
    rules: Rules,
    bounds: Bounds,
    link: Link,
    now: Instant,
    number: u64,
    frames: Section<FrameRow>,
    messages: Section<MessageRow>,
    tracker: Tracker,
    /// Keys of failed transfers, for wires where a later piece would otherwise begin a new transfer.
    dead: BTreeSet<Key>,
    faults: u64,
    scratch: Vec<u8>,
    /// The ids of regular messages in an ipc.net stream.
    ids: Runs,
}

impl Examiner {
    pub(crate) fn new(format: Format, bounds: Bounds) -> Self {
        let (wire, rules) = (format.wire(), format.rules());
        Self {
            format,
            link: link(&wire, &rules, bounds),
            tracker: Tracker::new(rules.numbering, bounds.rows),
            wire,
            rules,
            bounds,
            now: Instant::now(),
            number: 0,
            frames: Section::new(bounds.rows),
            messages: Section::new(bounds.rows),
            dead: BTreeSet::new(),
            faults: 0,
            scratch: Vec::new(),
            ids: Runs::default(),
        }
    }

    /// Examines the next item of the capture.
    pub(crate) fn examine(&mut self, item: Item) {
        self.number += 1;
        match item {
            Item::Frame(frame) => self.frame(frame),
            Item::Ipc(frame) => self.ipc(frame),
            Item::TooLong(bytes) => {
                let text = format!(
                    "longer than the limit of {} bytes; raise --max-frame to decode it",
                    self.bounds.frame
                );
                self.broken(bytes, "frame-too-large", &text);
            }
            Item::Cut { what, want, have } => {
                let text = format!("the capture ends after {have} of {want} bytes of {what}");
                self.broken(have, "truncated", &text);
            }
        }
    }

    pub(crate) fn finish(mut self, why: String) -> Report {
        self.tracker.finish();
        Report {
            format: self.format,
            why,
            frames: self.frames,
            messages: self.messages,
            complete: self.tracker.complete,
            unfinished: self.tracker.unfinished,
            failed: self.tracker.failed,
            transfers: self.tracker.done,
            faults: self.faults,
        }
    }

    fn broken(&mut self, bytes: u64, code: &'static str, text: &str) {
        let mut row = FrameRow::new(self.number, bytes, Kind::Broken);
        row.fault = Some(Box::new(Problem {
            code,
            text: text.into(),
        }));
        self.push(row);
    }

    fn push(&mut self, row: FrameRow) {
        let faulty = row.fault.is_some();
        self.faults += u64::from(faulty);
        self.frames.push(row, faulty);
    }

    fn frame(&mut self, frame: Frame) {
        let at = At {
            frame: self.number,
            bytes: frame.bytes().len() as u64,
        };
        if self.format == Format::LoroJson && is_control_text(frame.bytes()) {
            let mut row = FrameRow::new(at.frame, at.bytes, Kind::Control);
            row.note = Some(shorten(&String::from_utf8_lossy(frame.bytes())));
            return self.push(row);
        }
        let wire = self.wire.clone();
        let read = wire.read(&frame);
        let mut row = self.row(at, &read);
        if let Ok(Inbound::Piece(piece)) = &read
            && self.dead.contains(&piece.key)
        {
            if piece.seq != 0 {
                let piece = piece_of(piece, &row);
                self.record_late(at, &mut row, &piece);
                return self.push(row);
            }
            self.dead.remove(&piece.key);
        }
        let received = self.link.handle_frame(self.now, frame.clone());
        self.record_outcome(at, &mut row, &read, &received);
        self.push(row);
        self.events(at);
    }

    /// The row of a frame, from its own fields.
    fn row(&mut self, at: At, read: &Result<Inbound<'_>, Fault>) -> FrameRow {
        let row = |kind| FrameRow::new(at.frame, at.bytes, kind);
        let keyed = |kind, key: &Key| FrameRow {
            key: Some(name(&*self.wire, key)),
            ..row(kind)
        };
        match read {
            Ok(Inbound::Whole(message, _)) => FrameRow {
                data: Some(message.len() as u64),
                ..row(Kind::Whole)
            },
            Ok(Inbound::Open(opening)) => FrameRow {
                seq: (opening.seq > 0).then_some(opening.seq),
                total: Some(opening.count),
                ..keyed(Kind::Open, &opening.key)
            },
            Ok(Inbound::Piece(piece)) => {
                let total = piece.count.or_else(|| self.tracker.total(&piece.key));
                let row = FrameRow {
                    seq: Some(piece.seq),
                    total,
                    ..keyed(Kind::Piece, &piece.key)
                };
                self.scratch.clear();
                let decoded = self.wire.decode(piece, &mut self.scratch).is_ok();
                FrameRow {
                    data: decoded.then_some(self.scratch.len() as u64),
                    ..row
                }
            }
            Ok(Inbound::Close { key, seq }) => FrameRow {
                seq: Some(*seq),
                ..keyed(Kind::Close, key)
            },
            Ok(Inbound::Accept { key }) => keyed(Kind::Accept, key),
            Ok(Inbound::Abort { key, reason }) => FrameRow {
                note: Some(shorten(reason)),
                ..keyed(Kind::Abort, key)
            },
            Ok(Inbound::Control(text)) => FrameRow {
                note: Some(shorten(&String::from_utf8_lossy(text))),
                ..row(Kind::Control)
            },
            Err(fault) => match &fault.key {
                Some(key) => keyed(Kind::Broken, key),
                None => row(Kind::Broken),
            },
        }
    }

    /// Records what the link did with the frame, in its row and in its transfer.
    fn record_outcome(
        &mut self,
        at: At,
        row: &mut FrameRow,
        read: &Result<Inbound<'_>, Fault>,
        received: &Received,
    ) {
        let fault = match received {
            Received::Fault(fault) => Some(fault),
            _ => None,
        };
        row.fault = fault.map(|fault| Box::new(self.problem(&fault.kind)));
        let ignored = matches!(received, Received::Ignored | Received::Unmatched(_));
        match read {
            Ok(Inbound::Piece(piece)) => {
                let name = row.key.clone().unwrap_or_default();
                let piece = piece_of(piece, row);
                match fault {
                    Some(fault) if !was_placed(&fault.kind) => {
                        self.tracker.refused(at, name, &piece);
                    }
                    _ if !ignored => self.tracker.piece(at, name, &piece),
                    _ if self.tracker.is_live(piece.key) => {
                        row.note = Some("ignored: a duplicate".into());
                        self.tracker.refused(at, name, &piece);
                    }
                    _ if self.tracker.is_failed(piece.key) => self.record_late(at, row, &piece),
                    _ if self.tracker.is_over(piece.key) => {
                        row.note = Some("ignored: its transfer is over".into());
                    }
                    _ => {
                        row.note = Some("ignored: its transfer was not opened".into());
                        self.tracker.headless(at, name, &piece);
                    }
                }
            }
            Ok(Inbound::Open(opening)) if ignored => {
                row.note = Some("ignored: opened again while under way".into());
                self.tracker.other(at, &opening.key);
            }
            Ok(Inbound::Open(opening)) if fault.is_none() => {
                let name = row.key.clone().unwrap_or_default();
                self.tracker.open(at, name, opening);
            }
            Ok(Inbound::Open(opening)) => self.tracker.other(at, &opening.key),
            Ok(Inbound::Close { key, seq }) => {
                if ignored {
                    row.note = Some("ignored: no such transfer is open".into());
                }
                self.tracker.closing(at, key, *seq);
            }
            Ok(Inbound::Accept { key }) => self.tracker.accepted(at, key),
            Ok(Inbound::Abort { key, .. }) => self.tracker.other(at, key),
            _ => {}
        }
        if let Some(fault) = fault {
            self.end_transfer(at, fault);
        }
    }

    /// Records a piece of a transfer that failed before.
    fn record_late(&mut self, at: At, row: &mut FrameRow, piece: &PieceOf<'_>) {
        row.note = Some("ignored: its transfer failed".into());
        let name = row.key.clone().unwrap_or_default();
        self.tracker.refused(at, name, piece);
    }

    /// Ends what the fault ends by the wire's rules: nothing, the transfer or the link.
    fn end_transfer(&mut self, at: At, fault: &Fault) {
        let scope = self.rules.scopes.of(&fault.kind);
        let ends = matches!(scope, Scope::Transfer | Scope::Link);
        if let Some(key) = fault.key.as_ref().filter(|_| ends) {
            let why = self.problem(&fault.kind);
            let name = name(&*self.wire, key);
            self.tracker.fail(at, name, key, &fault.kind, why);
            self.mark_dead([key.clone()]);
        }
        if self.link.closed().is_some() {
            // A real receiver would stop here; the inspection goes on with a new link.
            let why = Problem {
                code: "closed",
                text: format!("frame {} closed the connection", at.frame).into(),
            };
            let lost = self.tracker.fail_all(&why);
            self.mark_dead(lost);
            self.events(at);
            self.link = link(&self.wire, &self.rules, self.bounds);
        }
    }

    /// Remembers failed transfers, so that their later pieces do not begin new ones.
    fn mark_dead(&mut self, keys: impl IntoIterator<Item = Key>) {
        if self.rules.unknown != Unknown::Ignored {
            for key in keys {
                if self.dead.len() < DEAD_MAX {
                    self.dead.insert(key);
                }
            }
        }
    }

    fn events(&mut self, at: At) {
        while let Some(event) = self.link.poll_event() {
            match event {
                Event::Message(message) => self.message(at, &message),
                // Skipped if a fault of this frame has ended the transfer already.
                Event::TransferFailed(Fault {
                    key: Some(key),
                    kind,
                }) if self.tracker.is_live(&key) => {
                    let why = self.problem(&kind);
                    let name = name(&*self.wire, &key);
                    self.tracker.fail(at, name, &key, &kind, why);
                }
                _ => {}
            }
        }
    }

    fn message(&mut self, at: At, message: &Message) {
        if let Some(key) = &message.key {
            self.tracker.complete(key);
        }
        let key = message.key.as_ref().map(|key| name(&*self.wire, key));
        for description in describe(self.format, &message.bytes, self.bounds.message) {
            let faulty = description.fault.is_some();
            self.faults += u64::from(faulty);
            let row = MessageRow {
                number: self.messages.count() + 1,
                frame: at.frame,
                key: key.clone(),
                bytes: message.bytes.len() as u64,
                description,
            };
            self.messages.push(row, faulty);
        }
    }

    fn ipc(&mut self, frame: ipc::Frame) {
        let at = At {
            frame: self.number,
            bytes: (ipc::Header::LEN + frame.payload.len()) as u64,
        };
        let regular = frame.frame_type == ipc::FrameType::Regular;
        let kind = if regular { Kind::Whole } else { Kind::Control };
        let mut row = FrameRow::new(at.frame, at.bytes, kind);
        row.data = Some(frame.payload.len() as u64);
        let mut note = format!(
            "{:?} id={} ack={} length={}",
            frame.frame_type,
            frame.id,
            frame.ack,
            frame.payload.len()
        );
        let mut again = false;
        // Id 0 means the plain protocol, which does not number messages.
        if regular && frame.id > 0 {
            let (id, last) = (u64::from(frame.id), self.ids.last());
            again = !self.ids.insert(id);
            if again {
                note.push_str("; ignored: a duplicate");
            } else if let Some(due) = last.map(|last| last + 1)
                && id > due
            {
                row.fault = Some(Box::new(Problem {
                    code: "gap",
                    text: format!("message {id} came where {due} was due").into(),
                }));
            }
        }
        row.note = Some(note.into());
        if regular && !again {
            let message = Frame::Binary(frame.payload);
            if let Received::Fault(fault) = self.link.handle_frame(self.now, message) {
                row.fault = Some(Box::new(self.problem(&fault.kind)));
                self.end_transfer(at, &fault);
            }
        }
        self.push(row);
        self.events(at);
    }

    fn problem(&self, kind: &FaultKind) -> Problem {
        Problem {
            code: self.wire.code(kind),
            text: shorten(&kind.to_string()),
        }
    }
}

fn link(wire: &Arc<dyn Wire>, rules: &Rules, bounds: Bounds) -> Link {
    let mut config = Config::new(rules.clone());
    config.progress = 0;
    config.limits = Limits::default().with(|limits| {
        // The capture's reader enforces the limit, which ipc.net and lines count differently.
        limits.frame = usize::MAX;
        limits.message = bounds.message;
        limits.pieces = u64::from(u32::MAX);
        limits.transfers = TRANSFERS;
        limits.memory = bounds.message.saturating_mul(2).saturating_add(64 << 20);
    });
    Link::new(
        wire.clone(),
        wire.clone(),
        config,
        Budget::unlimited(),
        [0; 32],
    )
}

fn name(wire: &dyn Wire, key: &Key) -> Arc<str> {
    shorten(&wire.key_text(key)).into()
}

fn piece_of<'a>(piece: &'a Piece<'_>, row: &FrameRow) -> PieceOf<'a> {
    PieceOf {
        key: &piece.key,
        seq: piece.seq,
        count: piece.count,
        bytes: piece.bytes,
        data: row.data.unwrap_or(0),
    }
}

/// Whether the piece itself was accepted: these faults are about the assembled message.
fn was_placed(kind: &FaultKind) -> bool {
    matches!(
        kind,
        FaultKind::SizeMismatch { .. }
            | FaultKind::DigestMismatch
            | FaultKind::NotJsonRpc
            | FaultKind::Batch
            | FaultKind::Nested
    )
}

/// Whether this is one of loro's control texts.
fn is_control_text(text: &[u8]) -> bool {
    matches!(text.trim_ascii(), b"ready" | b"ping" | b"pong")
}
