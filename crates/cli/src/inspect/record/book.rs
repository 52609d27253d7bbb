//! What the records of gateways say, by session and connection. Only sums, the last frames and what is
//! unfinished are kept, so that a record of any size takes bounded memory.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use breakbulk::gateway::record::{
    By, End, Entry, FrameKind, Head, NotCarried, Note, Point, Says, SideName, Way,
};

/// The most sessions that are kept; those after them are counted.
const SESSIONS: usize = 20_000;

/// The last connections of a session that are kept.
const LINES: usize = 16;

/// The last frames of each direction of a connection that are kept.
const FRAMES: usize = 256;

/// The most unfinished transfers of a direction, and open requests of a side, that are kept.
const OPEN: usize = 256;

/// The most messages of a session that were not passed on that are kept.
const KEPT: usize = 16;

/// The error of a message that is too large.
const TOO_LARGE: i64 = -32011;

/// All sessions of all records.
#[derive(Default)]
pub(super) struct Book {
    pub(super) sessions: Vec<Session>,
    by_name: HashMap<(usize, String), usize>,
    /// Sessions that did not fit.
    pub(super) left_out: u64,
    /// Records that the gateways could not keep.
    pub(super) missed: u64,
    pub(super) entries: u64,
    /// Packets that no gateway wrote.
    pub(super) foreign: u64,
}

/// One session of one gateway.
pub(super) struct Session {
    /// The number of the record.
    pub(super) place: usize,
    pub(super) point: Arc<Point>,
    pub(super) first: u64,
    pub(super) last: u64,
    pub(super) peer: String,
    pub(super) end: Option<End>,
    /// It did not begin, or was ended at once.
    pub(super) is_refused: bool,
    pub(super) lines: VecDeque<Line>,
    /// Messages that were not passed on, each with the method of its request: the first of them.
    pub(super) not_carried: Vec<(NotCarried, Option<String>)>,
    /// How many more there were.
    pub(super) more_not_carried: u64,
    /// Answers with an error that say that a message is too large, by whomever: method and id.
    pub(super) too_large: Vec<(Option<String>, String)>,
    /// Requests that came in by a side and have no answer, with their methods.
    open: Requests,
    /// The open requests when the first of the session's connections ended badly.
    open_then: Option<Requests>,
}

/// Methods of requests, by the side that they came in by and their ids.
type Requests = BTreeMap<(SideName, String), String>;

/// One connection of a session.
pub(super) struct Line {
    pub(super) side: SideName,
    pub(super) number: u64,
    pub(super) ways: [OneWay; 2],
    pub(super) closed: Option<Closed>,
}

/// How a connection ended.
#[derive(Clone)]
pub(super) struct Closed {
    pub(super) micros: u64,
    pub(super) by: By,
    pub(super) code: u16,
    pub(super) reason: String,
}

impl Closed {
    /// Whether it ended as it should.
    pub(super) fn is_normal(&self) -> bool {
        matches!(self.code, 1000 | 1001 | 1005)
    }
}

/// One direction of a connection.
#[derive(Default)]
pub(super) struct OneWay {
    pub(super) frames: u64,
    pub(super) bytes: u64,
    /// Frames of the tunnel's session, without those of the line itself.
    carried: u64,
    /// How many frames of the other direction were acknowledged here.
    pub(super) acknowledged: u64,
    /// What the side that sends here said about itself.
    pub(super) hello: Option<Hello>,
    pub(super) last: VecDeque<FrameLog>,
    pub(super) transfers: BTreeMap<String, Transfer>,
}

/// What a gateway said in its hello.
#[derive(Clone)]
pub(super) struct Hello {
    pub(super) frame: u64,
    pub(super) resume_ms: u64,
    pub(super) label: Option<String>,
}

/// One frame.
#[derive(Clone)]
pub(super) struct FrameLog {
    pub(super) n: u64,
    pub(super) bytes: u64,
    /// Its number among the frames of the tunnel's session, without those of the line itself.
    pub(super) carried: u64,
    pub(super) kind: FrameKind,
    /// Its transfer, as it was with this frame.
    pub(super) transfer: Option<Transfer>,
    pub(super) method: Option<String>,
    pub(super) id: Option<String>,
}

/// A message that travels in pieces.
#[derive(Clone, Default)]
pub(super) struct Transfer {
    pub(super) method: Option<String>,
    pub(super) id: Option<String>,
    /// The last piece, from 0, and how many there are.
    pub(super) seq: u64,
    pub(super) count: Option<u64>,
    /// Bytes of the message before and with that piece.
    pub(super) before: u64,
    pub(super) done: u64,
    /// The size of the message, if the format tells it.
    pub(super) total: Option<u64>,
    /// The most bytes of one piece.
    piece: u64,
}

impl Transfer {
    /// The size of the message, or the most that it can be.
    pub(super) fn size(&self) -> Option<(u64, bool)> {
        let most = || Some(self.count?.saturating_mul(self.piece));
        match self.total {
            Some(total) => Some((total, true)),
            None => most().map(|most| (most, false)),
        }
    }

    fn is_done(&self) -> bool {
        self.count
            .is_some_and(|count| self.seq.saturating_add(1) >= count)
    }
}

impl Book {
    pub(super) fn add(&mut self, place: usize, point: &Arc<Point>, entry: &Entry) {
        self.entries += 1;
        if let Note::Missed { records } = entry.note {
            self.missed = self.missed.saturating_add(records);
            return;
        }
        let key = (place, point.session.clone());
        let index = match self.by_name.get(&key) {
            Some(index) => *index,
            None if self.sessions.len() >= SESSIONS => {
                self.left_out += u64::from(matches!(entry.note, Note::Began { .. }));
                return;
            }
            None => {
                self.by_name.insert(key, self.sessions.len());
                self.sessions.push(Session {
                    place,
                    point: point.clone(),
                    first: entry.micros,
                    last: entry.micros,
                    peer: String::new(),
                    end: None,
                    is_refused: false,
                    lines: VecDeque::new(),
                    not_carried: Vec::new(),
                    more_not_carried: 0,
                    too_large: Vec::new(),
                    open: BTreeMap::new(),
                    open_then: None,
                });
                self.sessions.len() - 1
            }
        };
        self.sessions[index].add(point, entry);
    }
}

impl Session {
    fn add(&mut self, point: &Point, entry: &Entry) {
        self.first = self.first.min(entry.micros);
        self.last = self.last.max(entry.micros);
        match &entry.note {
            Note::Began { peer } => self.peer = peer.clone(),
            Note::Ended(end) => self.end = Some(end.clone()),
            Note::Frame { n, bytes, head } => {
                let (Some(side), Some(way)) = (point.side, entry.way) else {
                    return;
                };
                let line = self.line(side, point.line);
                let whole = line.ways[way as usize].add(*n, *bytes, head);
                if let Some((method, id)) = whole {
                    if head.error == Some(TOO_LARGE) {
                        self.answered_too_large(side, way, id.as_deref());
                    }
                    self.message(side, way, method, id);
                }
            }
            Note::Closed { by, code, reason } => {
                let Some(side) = point.side else { return };
                let closed = Closed {
                    micros: entry.micros,
                    by: *by,
                    code: *code,
                    reason: reason.clone(),
                };
                if !closed.is_normal() {
                    self.open_then.get_or_insert_with(|| self.open.clone());
                }
                self.line(side, point.line).closed.get_or_insert(closed);
            }
            Note::Refused => self.is_refused = true,
            Note::NotCarried(what) if self.not_carried.len() < KEPT => {
                let method = what.method.clone();
                let id = what.id.as_deref();
                let method = method.or_else(|| self.open_method(id?).map(ToOwned::to_owned));
                self.not_carried.push((what.clone(), method));
            }
            Note::NotCarried(_) => self.more_not_carried += 1,
            Note::Missed { .. } => {}
        }
    }

    fn line(&mut self, side: SideName, number: u64) -> &mut Line {
        let found = self
            .lines
            .iter()
            .position(|line| (line.side, line.number) == (side, number));
        let index = found.unwrap_or_else(|| {
            if self.lines.len() == LINES {
                self.lines.pop_front();
            }
            self.lines.push_back(Line {
                side,
                number,
                ways: Default::default(),
                closed: None,
            });
            self.lines.len() - 1
        });
        &mut self.lines[index]
    }

    /// The method of an open request.
    fn open_method(&self, id: &str) -> Option<&str> {
        let sides = [SideName::Listen, SideName::To];
        let mut found = sides.into_iter().map(|side| (side, id.to_owned()));
        found.find_map(|key| self.open.get(&key)).map(|it| &**it)
    }

    /// Notes an answer that went to the client and says that a message is too large.
    fn answered_too_large(&mut self, side: SideName, way: Way, id: Option<&str>) {
        if let (SideName::Listen, Way::Out, Some(id)) = (side, way, id)
            && self.too_large.len() < KEPT
        {
            let method = self.open_method(id).map(ToOwned::to_owned);
            self.too_large.push((method, id.to_owned()));
        }
    }

    /// A whole message passed.
    fn message(&mut self, side: SideName, way: Way, method: Option<String>, id: Option<String>) {
        let Some(id) = id else { return };
        match (way, method) {
            (Way::In, Some(method)) if self.open.len() < OPEN => {
                self.open.insert((side, id), method);
            }
            (Way::Out, None) => {
                self.open.remove(&(side, id));
            }
            _ => {}
        }
    }

    /// Method and id of the requests that had no answer when the first of its connections ended badly, or
    /// have none yet.
    pub(super) fn open_requests(&self) -> impl Iterator<Item = (&str, &str)> {
        let open = self.open_then.as_ref().unwrap_or(&self.open);
        open.iter().map(|((_, id), method)| (&**method, &**id))
    }

    /// What the other gateway at a side calls the session.
    pub(super) fn other(&self, side: SideName) -> Option<&str> {
        let lines = self.lines.iter().filter(|line| line.side == side);
        let mut hellos = lines.filter_map(|line| line.ways[Way::In as usize].hello.as_ref());
        hellos.find_map(|hello| hello.label.as_deref())
    }

    /// Frames and bytes of both sides together: those that came by `listen`, and those that left by it.
    pub(super) fn sums(&self) -> [(u64, u64); 2] {
        let mut sums = [(0, 0); 2];
        for line in self.lines.iter().filter(|it| it.side == SideName::Listen) {
            for (sum, way) in sums.iter_mut().zip(&line.ways) {
                sum.0 = way.frames.saturating_add(sum.0);
                sum.1 = way.bytes.saturating_add(sum.1);
            }
        }
        sums
    }
}

impl OneWay {
    /// Adds a frame; returns method and id of the message that is whole with it.
    fn add(&mut self, n: u64, bytes: u64, head: &Head) -> Option<(Option<String>, Option<String>)> {
        self.frames = self.frames.max(n);
        self.bytes = self.bytes.saturating_add(bytes);
        if let Some(Says::Hello {
            frame,
            resume_ms,
            label,
            ..
        }) = &head.tunnel
        {
            self.hello = Some(Hello {
                frame: *frame,
                resume_ms: *resume_ms,
                label: label.clone(),
            });
        }
        match &head.tunnel {
            Some(Says::Ack { taken }) => self.acknowledged = self.acknowledged.max(*taken),
            Some(_) => {}
            None => self.carried += 1,
        }
        let mut whole = None;
        let mut transfer = None;
        match head.kind {
            FrameKind::Whole => whole = Some((head.method.clone(), head.id.clone())),
            FrameKind::Open | FrameKind::Piece => {
                let found = self.transfer(head);
                transfer = Some(found.clone());
                if found.is_done() && head.kind == FrameKind::Piece {
                    whole = Some((found.method, found.id));
                    self.transfers
                        .remove(head.key.as_deref().unwrap_or_default());
                }
            }
            FrameKind::Tunnel | FrameKind::Word => {}
        }
        if self.last.len() == FRAMES {
            self.last.pop_front();
        }
        self.last.push_back(FrameLog {
            n,
            bytes,
            carried: self.carried,
            kind: head.kind,
            transfer,
            method: head.method.clone(),
            id: head.id.clone(),
        });
        whole
    }

    /// The transfer of a frame, with this frame.
    fn transfer(&mut self, head: &Head) -> Transfer {
        let key = head.key.clone().unwrap_or_default();
        if !self.transfers.contains_key(&key) && self.transfers.len() >= OPEN {
            self.transfers.pop_first();
        }
        let transfer = self.transfers.entry(key).or_default();
        transfer.method = transfer.method.take().or_else(|| head.method.clone());
        transfer.id = transfer.id.take().or_else(|| head.id.clone());
        transfer.count = head.count.or(transfer.count);
        transfer.total = head.total.or(transfer.total);
        transfer.seq = head.seq.unwrap_or(transfer.seq);
        let data = head.data.unwrap_or_default();
        transfer.before = transfer.done;
        transfer.done = transfer.done.saturating_add(data);
        transfer.piece = transfer.piece.max(data);
        transfer.clone()
    }
}
