//! How a record is cut into messages, and how it is put together again. Pure.
//!
//! A piece names the message of its topic that it must follow, and JetStream is asked to store it only there.
//! Readers check that once more, since a cluster may store two messages that were on their way at the same
//! time (servers before 2.11): a piece that follows another message than it names does not count. So the
//! pieces of a record follow each other directly, a message between them means that their writer was
//! overtaken, and all readers agree.

use std::collections::BTreeMap;
use std::fmt;

use bytes::Bytes;

/// The header that says which piece of which record a message is: `ID INDEX COUNT SIZE BEHIND`.
pub(super) const PIECE: &str = "Breakbulk-Piece";

/// What is left for the headers of a message and the subject.
const HEADERS: usize = 1024;

/// The most pieces of a record.
const MOST: u32 = 1 << 20;

/// The longest id of a record.
const ID: usize = 128;

/// What a message says about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PieceHead {
    /// The id of the record, which no other record has.
    pub(super) id: String,
    /// From 0.
    pub(super) index: u32,
    /// How many pieces the record has.
    pub(super) count: u32,
    /// How many bytes it has.
    pub(super) size: u64,
    /// The sequence number of the message of its topic that is right before it; 0: it is the first.
    pub(super) behind: u64,
}

impl fmt::Display for PieceHead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            id,
            index,
            count,
            size,
            behind,
        } = self;
        write!(f, "{id} {index} {count} {size} {behind}")
    }
}

impl PieceHead {
    /// `None` if it is not one.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let id = words.next().filter(|id| (1..=ID).contains(&id.len()))?;
        let head = Self {
            id: id.to_owned(),
            index: words.next()?.parse().ok()?,
            count: words.next()?.parse().ok()?,
            size: words.next()?.parse().ok()?,
            behind: words.next()?.parse().ok()?,
        };
        let sound = words.next().is_none() && head.index < head.count && head.count <= MOST;
        sound.then_some(head)
    }
}

/// How many bytes of a record a message takes, where messages have at most `max_payload` bytes.
pub(super) fn room(max_payload: usize) -> usize {
    max_payload.saturating_sub(HEADERS).max(1)
}

/// A record cut into pieces of at most `room` bytes; one without bytes has one piece.
pub(super) fn cut(record: &Bytes, room: usize) -> Vec<Bytes> {
    if record.is_empty() {
        return vec![Bytes::new()];
    }
    let starts = (0..record.len()).step_by(room);
    starts
        .map(|at| record.slice(at..record.len().min(at + room)))
        .collect()
}

/// Puts the records of all topics together.
#[derive(Debug)]
pub(super) struct Assembler {
    max_record: usize,
    topics: BTreeMap<String, Topic>,
}

#[derive(Debug, Default)]
struct Topic {
    /// The last message.
    last: u64,
    open: Option<Open>,
}

/// A record whose last piece has not come.
#[derive(Debug)]
struct Open {
    head: PieceHead,
    bytes: Vec<u8>,
    messages: Vec<u64>,
}

/// What a piece leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// The record is whole.
    Whole {
        /// Its content.
        bytes: Bytes,
        /// Its pieces.
        messages: Vec<u64>,
    },
    /// Others have to follow. These are the messages so far.
    Open(Vec<u64>),
    /// It belongs to no record: its writer was overtaken, or its beginning is deleted.
    Dead,
    /// It declares a record that is too large, or has other bytes than it declared.
    Wrong(String),
}

impl Assembler {
    pub(super) fn new(max_record: usize) -> Self {
        Self {
            max_record,
            topics: BTreeMap::new(),
        }
    }

    /// Takes the message at this sequence number.
    pub(super) fn take(&mut self, topic: &str, at: u64, head: PieceHead, piece: &[u8]) -> Taken {
        let max_record = self.max_record;
        let topic = self.topic(topic);
        let last = std::mem::replace(&mut topic.last, at);
        let before = topic.open.take();
        // `behind` may be larger than `last`, if messages were deleted before they were read.
        if head.behind < last {
            return Taken::Dead;
        }
        let mut open = match before {
            Some(open) if open.continued_by(&head) => open,
            _ if head.index == 0 => Open {
                head: head.clone(),
                bytes: Vec::new(),
                messages: Vec::new(),
            },
            _ => return Taken::Dead,
        };
        let size = usize::try_from(head.size).unwrap_or(usize::MAX);
        if size > max_record {
            let limit = max_record;
            return Taken::Wrong(format!("a record of {size} bytes; {limit} are allowed"));
        }
        let last = head.index + 1 == head.count;
        let now = open.bytes.len() + piece.len();
        if now > size || (last && now != size) {
            return Taken::Wrong(format!(
                "its pieces have {now} bytes, and it declares {size}"
            ));
        }
        // Not allocated in advance: the size is only declared.
        open.bytes.extend_from_slice(piece);
        open.messages.push(at);
        open.head = head;
        if last {
            return Taken::Whole {
                bytes: open.bytes.into(),
                messages: open.messages,
            };
        }
        let messages = open.messages.clone();
        topic.open = Some(open);
        Taken::Open(messages)
    }

    /// Takes a message that is not a piece: it ends the unfinished record of its topic.
    pub(super) fn interrupt(&mut self, topic: &str, at: u64) {
        let topic = self.topic(topic);
        topic.open = None;
        topic.last = at;
    }

    fn topic(&mut self, name: &str) -> &mut Topic {
        self.topics.entry(name.to_owned()).or_default()
    }
}

impl Open {
    fn continued_by(&self, next: &PieceHead) -> bool {
        let PieceHead {
            id,
            index,
            count,
            size,
            ..
        } = &self.head;
        *id == next.id && index + 1 == next.index && *count == next.count && *size == next.size
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may")]
mod tests {
    use super::*;

    #[test]
    fn heads_are_written_and_read_back() {
        let head = PieceHead {
            id: "a-1".into(),
            index: 2,
            count: 3,
            size: 7,
            behind: 9,
        };
        assert_eq!(head.to_string(), "a-1 2 3 7 9");
        assert_eq!(PieceHead::parse("a-1 2 3 7 9"), Some(head));
        for text in [
            "",
            "a",
            "a 0 1 1",
            " 0 1 1 1",
            "a 1 1 1 1",
            "a 0 0 0 1",
            "a -1 1 1 1",
            "a 0 1 1 1 1",
            "a 0 9999999 1 1",
            "a  0 1 1 1",
        ] {
            assert_eq!(PieceHead::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn records_are_cut_within_their_room() {
        for (size, room, lengths) in [
            (0, 4, &[0][..]),
            (1, 4, &[1]),
            (4, 4, &[4]),
            (5, 4, &[4, 1]),
            (9, 4, &[4, 4, 1]),
        ] {
            let record = Bytes::from(vec![7; size]);
            let pieces = cut(&record, room);
            let found: Vec<usize> = pieces.iter().map(Bytes::len).collect();
            assert_eq!(found, lengths, "{size}");
        }
        assert_eq!(room(1 << 20), (1 << 20) - 1024);
        assert_eq!(room(10), 1);
    }

    /// `a:0/2:4=xy` is piece 0 of 2 of the record `a`, which has 4 bytes, with the bytes `xy`. It is behind the
    /// message before it, or with `^3` behind message 3.
    fn run(max_record: usize, messages: &str) -> String {
        let mut assembler = Assembler::new(max_record);
        let mut said = Vec::new();
        for (at, message) in messages.split_whitespace().enumerate() {
            let at = at as u64 + 1;
            let (topic, message) = message.split_once('.').unwrap_or(("t", message));
            if message == "?" {
                assembler.interrupt(topic, at);
                continue;
            }
            let (head, bytes) = message.split_once('=').unwrap();
            let (bytes, behind) = match bytes.split_once('^') {
                Some((bytes, behind)) => (bytes, behind.parse().unwrap()),
                None => (bytes, at - 1),
            };
            let text = format!("{} {behind}", head.replace([':', '/'], " "));
            let head = PieceHead::parse(&text).unwrap();
            said.push(match assembler.take(topic, at, head, bytes.as_bytes()) {
                Taken::Whole { bytes, messages } => {
                    let begins = messages[0];
                    format!("{}@{begins}", String::from_utf8(bytes.to_vec()).unwrap())
                }
                Taken::Open(messages) => format!("{messages:?}").replace(' ', ""),
                Taken::Dead => "dead".to_owned(),
                Taken::Wrong(_) => "wrong".to_owned(),
            });
        }
        said.join(" ")
    }

    #[test]
    fn a_record_is_visible_whole_or_not_at_all() {
        // JET-1
        for (what, messages, expected) in [
            ("one piece", "a:0/1:2=xy", "xy@1"),
            ("no bytes", "a:0/1:0=", "@1"),
            ("several", "a:0/2:4=xy a:1/2:4=zz", "[1] xyzz@1"),
            (
                "another writer came between",
                "a:0/2:4=xy b:0/1:1=b a:1/2:4=zz",
                "[1] b@2 dead",
            ),
            (
                "another writer came between, with pieces of its own",
                "a:0/3:3=1 a:1/3:3=2 b:0/2:2=x b:1/2:2=y",
                "[1] [1,2] [3] xy@3",
            ),
            (
                "the beginning is deleted",
                "a:1/2:4=zz b:0/1:1=b",
                "dead b@2",
            ),
            (
                "a piece is missing",
                "a:0/3:3=1 a:2/3:3=3 b:0/1:1=b",
                "[1] dead b@3",
            ),
            (
                "a writer that begins again under another id",
                "a:0/2:2=1 b:0/2:2=1 b:1/2:2=2",
                "[1] [2] 12@2",
            ),
            (
                "topics do not disturb each other",
                "t.a:0/2:2=1 u.b:0/1:1=x t.a:1/2:2=2",
                "[1] x@2 12@1",
            ),
            (
                "a foreign message in the topic",
                "a:0/2:2=1 ? a:1/2:2=2",
                "[1] dead",
            ),
            (
                "two that are stored behind the same message",
                "a:0/1:1=1 b:0/1:1=2 c:0/1:1=3^1 b:0/1:1=4",
                "1@1 2@2 dead 4@4",
            ),
            (
                "one that is stored between the pieces of another",
                "a:0/2:2=1 b:0/1:1=x^0 a:1/2:2=2^1 c:0/1:1=3",
                "[1] dead dead 3@4",
            ),
            (
                "messages before it are deleted",
                "a:0/1:1=1 b:0/1:1=2^9",
                "1@1 2@2",
            ),
            ("too many bytes", "a:0/1:1=xy", "wrong"),
            ("too few bytes", "a:0/1:3=xy", "wrong"),
            ("too large", "a:0/1:9=123456789", "wrong"),
            ("another count", "a:0/2:2=1 a:1/3:2=2", "[1] dead"),
        ] {
            assert_eq!(run(8, messages), expected, "{what}");
        }
    }
}
