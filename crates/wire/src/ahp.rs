//! AHP message segments: `ahp/messageSegment` notifications that carry base64 of a JSON-RPC message.

use std::ops::Range;
use std::time::Duration;

use breakbulk_escape::base64;
use breakbulk_link::{
    Assembled, Cap, Carries, Config, Duplicate, Fault, FaultKind, Frame, Full, Inbound, Key,
    Numbering, OnCancel, Order, Part, PeerLimits, Piece, Pieces, Plan, PlanOptions, Random, Rules,
    Scope, Scopes, SendError, Shape, Timeouts, Uncut, Unknown, Wire,
};
use breakbulk_message::ahp::{Chunking, TimeoutFrom};
use breakbulk_message::jsonrpc::{Outline, is_batch, string, unsigned};
use breakbulk_message::raw_members;

use crate::json_text;
use crate::shape::shape;
use crate::whole::{counted, has_line_break, text, uncut};

const METHOD: &str = "ahp/messageSegment";
const HEAD: &[u8] = br#"{"jsonrpc":"2.0","method":"ahp/messageSegment","params":{"groupId":""#;
const INDEX: &[u8] = br#"","index":"#;
const TOTAL: &[u8] = br#","total":"#;
const DATA: &[u8] = br#","data":""#;
const TAIL: &[u8] = br#""}}"#;

/// The length of the envelope with five digits each for index and total, without the groupId.
const ENVELOPE: usize = HEAD.len() + INDEX.len() + TOTAL.len() + DATA.len() + TAIL.len() + 10;

/// How many quotes the envelope has: each costs one byte more if the frame is wrapped in a JSON string.
const ENVELOPE_QUOTES: usize = 22;

/// `total` is below 2^16.
const MAX_PIECES: u64 = 65_535;

const MAX_GROUP_ID: usize = 128;

/// The length of a generated groupId: 16 random bytes in hex.
const GENERATED: usize = 32;

/// The AHP wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ahp;

impl Ahp {
    /// What a peer's advertisement means to a sender.
    pub fn peer_limits(chunking: &Chunking) -> PeerLimits {
        let size = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        PeerLimits {
            frame: size(chunking.max_frame_bytes),
            message: size(chunking.max_message_bytes),
            transfers: size(chunking.groups_to_open()),
            timeout: chunking.group_timeout_ms.map(Duration::from_millis),
            timeout_from_last: chunking.timeout_from == TimeoutFrom::Last,
        }
    }

    /// The rules, with the limits that a receiver advertises by default.
    pub fn config() -> Config {
        let mut config = Config::new(Self::rules());
        config.limits.pieces = MAX_PIECES;
        config
    }

    /// Pieces come in strict order; a fault closes the link; a transfer that times out is dropped
    /// silently.
    pub fn rules() -> Rules {
        let idle = Duration::from_secs(30);
        Rules {
            unknown: Unknown::OpensFirst,
            numbering: Numbering::FromZero,
            order: Order::Strict,
            duplicate: Duplicate::Fault,
            full: Full::Refuse,
            closing: false,
            timeouts: Timeouts {
                idle: Some(idle),
                age: Some(idle * 20),
                age_rate: None,
                accept: Duration::from_secs(30),
            },
            interleave: true,
            cancel: OnCancel::Finish,
            accept: false,
            abort: false,
            contiguous: false,
            scopes: Scopes {
                frame: Scope::Link,
                piece: Scope::Link,
                reopened: Scope::Link,
                transfer: Scope::Link,
                busy: Scope::Link,
                timeout: Scope::Silent,
            },
            close: (4400, "invalid messageSegment"),
        }
    }

    /// Whether a JSON-RPC object of this size can be sent, judged by its size alone, without reading it.
    /// Where a transport escapes frames or carries them as lines, a message may pass here and still be
    /// refused when the link plans it.
    pub fn fits(
        size: usize,
        may_cut: bool,
        peer: Option<&PeerLimits>,
        cap: &Cap,
    ) -> Result<(), SendError> {
        within_message_limit(size, peer)?;
        let (whole, peer_frame) = (cap.counted(size), peer.map_or(usize::MAX, |it| it.frame));
        if whole <= cap.whole_limit() && size <= peer_frame {
            return Ok(());
        }
        match (peer, may_cut) {
            (Some(peer), true) => Self::pieces(size, None, peer, cap).map(drop),
            (peer, _) => {
                let why = peer.map_or(Uncut::NotNegotiated, |_| Uncut::NotAllowed);
                let (size, limit) = match size > peer_frame {
                    true => (size, peer_frame),
                    false => (whole, cap.max),
                };
                uncut(size, limit, false, why).map(drop)
            }
        }
    }

    /// How a message of this size is cut.
    fn pieces(
        size: usize,
        key: Option<&Key>,
        peer: &PeerLimits,
        cap: &Cap,
    ) -> Result<Pieces, SendError> {
        let group = key.map_or(GENERATED, |key| escaped_len(key, cap.escapes()));
        if key.is_some_and(|key| !is_group_id(key.as_bytes())) {
            return Err(SendError::BadKey {
                expected: "a groupId of 1 to 128 bytes of UTF-8",
            });
        }
        let envelope = ENVELOPE + group + if cap.escapes() { ENVELOPE_QUOTES } else { 0 };
        let frame = cap.cut_room().min(peer.frame);
        let room = frame.saturating_sub(envelope) / 4 * 3;
        if room == 0 {
            let missing = envelope + 4 - frame;
            return Err(SendError::CapTooSmall {
                cap: cap.whole_limit().min(peer.frame),
                needed: cap.whole_limit().min(peer.frame) + missing,
            });
        }
        let count = size.div_ceil(room).max(1) as u64;
        if count > MAX_PIECES {
            return Err(SendError::TooManyPieces {
                size,
                limit: MAX_PIECES,
                cap: cap.max.min(peer.frame),
            });
        }
        Ok(Pieces::new(size, room, count, *cap))
    }
}

/// A receiver refuses a message over its limit in one frame, too.
fn within_message_limit(size: usize, peer: Option<&PeerLimits>) -> Result<(), SendError> {
    match peer.map(|peer| peer.message) {
        Some(limit) if size > limit => Err(SendError::MessageTooLarge { size, limit }),
        _ => Ok(()),
    }
}

impl Wire for Ahp {
    fn name(&self) -> &'static str {
        "ahp"
    }

    fn carries(&self) -> Carries {
        Carries::Text
    }

    fn mint(&self, random: &mut Random) -> Option<Key> {
        Some(Key::new(
            format!("{:016x}{:016x}", random.next(), random.next()).as_bytes(),
        ))
    }

    fn plan(&self, message: &[u8], options: &PlanOptions<'_>) -> Result<Plan, SendError> {
        let cap = options.cap;
        let (size, whole) = (message.len(), counted(message, cap));
        if !options.known_text && simdutf8::basic::from_utf8(message).is_err() {
            return Err(SendError::NotUtf8);
        }
        let peer = options.peer.limits();
        let peer_frame = peer.map_or(usize::MAX, |peer| peer.frame);
        within_message_limit(size, peer)?;
        // Searched only if it matters, so that a large message is read no more than once.
        let broken = || cap.lines && has_line_break(message);
        if whole <= cap.whole_limit() && size <= peer_frame && !broken() {
            return Ok(Plan::Whole);
        }
        let why = match peer {
            None => Err(Uncut::NotNegotiated),
            Some(_) if !options.may_cut => Err(Uncut::NotAllowed),
            Some(_) if is_batch(message) => Err(Uncut::Batch),
            Some(peer) => Ok(peer),
        };
        match why {
            Ok(peer) => {
                let pieces = Self::pieces(size, options.key, peer, cap)?;
                Ok(Plan::Pieces(Box::new(pieces)))
            }
            Err(why) if size > peer_frame => uncut(size, peer_frame, broken(), why),
            Err(why) => uncut(whole, cap.max, broken(), why),
        }
    }

    fn cut(&self, pieces: &Pieces, message: &[u8], from: usize) -> usize {
        message.len().min(from + pieces.room)
    }

    fn write(&self, part: Part<'_>, out: &mut Vec<u8>) {
        match part {
            Part::Whole(message) => out.extend_from_slice(message),
            Part::Piece {
                pieces,
                index,
                data,
            } => {
                let coded = data.len().div_ceil(3) * 4;
                out.reserve(ENVELOPE + pieces.key.as_bytes().len() + coded);
                out.extend_from_slice(HEAD);
                json_text::escape(pieces.key.as_bytes(), out);
                out.extend_from_slice(INDEX);
                out.extend_from_slice(index.to_string().as_bytes());
                out.extend_from_slice(TOTAL);
                out.extend_from_slice(pieces.count.to_string().as_bytes());
                out.extend_from_slice(DATA);
                base64::encode(data, out);
                out.extend_from_slice(TAIL);
            }
            // The format has no such frames, and its rules never request one.
            Part::Open(_) | Part::Close(_) | Part::Accept { .. } | Part::Abort { .. } => {}
        }
    }

    fn read_canonical<'a>(&self, frame: &'a Frame) -> Option<Piece<'a>> {
        let Frame::Text(text) = frame else {
            return None;
        };
        let rest = text.strip_prefix(HEAD)?;
        let (group, rest) = rest.split_at(memchr::memchr(b'"', rest)?);
        if !is_group_id(group) || group.contains(&b'\\') || group.iter().any(|&byte| byte < 0x20) {
            return None;
        }
        let (index, rest) = json_text::digits(rest.strip_prefix(INDEX)?)?;
        let (count, rest) = json_text::digits(rest.strip_prefix(TOTAL)?)?;
        let data = rest.strip_prefix(DATA)?.strip_suffix(TAIL)?;
        // If the data contains a quote, decoding fails, and the general reader decides.
        if index >= count || count > MAX_PIECES {
            return None;
        }
        Some(Piece {
            key: Key::new(group),
            seq: index,
            count: Some(count),
            bytes: None,
            data,
        })
    }

    fn read<'a>(&self, frame: &'a Frame) -> Result<Inbound<'a>, Fault> {
        let (bytes, text) = text(frame)?;
        // A text that is not JSON-RPC is passed on unchanged: it may belong to another protocol.
        let mut outline = Outline::default();
        if !outline.fill(bytes, |_| {}) {
            return Ok(Inbound::Whole(bytes, Shape::default()));
        }
        if outline.method(bytes).as_deref() != Some(METHOD) {
            return Ok(Inbound::Whole(bytes, shape(bytes, &outline)));
        }
        segment(text, &outline)
    }

    fn decoded_max(&self, piece: &Piece<'_>) -> usize {
        piece.data.len() / 4 * 3
    }

    fn decode(&self, piece: &Piece<'_>, into: &mut Vec<u8>) -> Result<(), FaultKind> {
        if base64::decode(piece.data, into) {
            return Ok(());
        }
        // Some JSON writers escape slashes.
        let mut plain = Vec::new();
        let escaped =
            piece.data.contains(&b'\\') && json_text::unescape(piece.data, &mut plain).is_ok();
        if escaped && base64::decode(&plain, into) {
            return Ok(());
        }
        Err(FaultKind::malformed("data", "canonical padded base64"))
    }

    fn finish(&self, whole: &Assembled<'_>) -> Result<Shape, FaultKind> {
        let text = whole.bytes;
        if !whole.ascii && simdutf8::basic::from_utf8(text).is_err() {
            return Err(FaultKind::NotUtf8);
        }
        let Some(outline) = Outline::parse(text) else {
            return Err(if is_batch(text) {
                FaultKind::Batch
            } else {
                FaultKind::NotJsonRpc
            });
        };
        if outline.kind(text).is_none() {
            return Err(FaultKind::NotJsonRpc);
        }
        if outline.method(text).as_deref() == Some(METHOD) {
            return Err(FaultKind::Nested);
        }
        Ok(shape(text, &outline))
    }
}

raw_members! {
    struct Params {
        group: "groupId",
        index: "index",
        total: "total",
        data: "data",
    }
}

/// Reads a segment in any form of JSON.
fn segment<'a>(text: &'a str, outline: &Outline) -> Result<Inbound<'a>, Fault> {
    if outline.id.is_some() {
        return Err(FaultKind::malformed("id", "absent: a segment is a notification").into());
    }
    let part = |range: &Option<Range<usize>>| text.get(range.clone()?);
    if part(&outline.version) != Some(r#""2.0""#) {
        return Err(FaultKind::malformed("jsonrpc", "\"2.0\"").into());
    }
    let params: Option<Params<'a>> =
        part(&outline.params).and_then(|params| serde_json::from_str(params).ok());
    let Some(params) = params else {
        return Err(FaultKind::malformed("params", "an object").into());
    };
    let group = params
        .group
        .and_then(string)
        .filter(|group| is_group_id(group.as_bytes()));
    let Some(group) = group else {
        return Err(FaultKind::malformed("groupId", "1 to 128 bytes of text").into());
    };
    let key = Key::new(group.as_bytes());
    let Some(count) = params
        .total
        .and_then(unsigned)
        .filter(|total| (1..=MAX_PIECES).contains(total))
    else {
        return Err(FaultKind::malformed("total", "an integer from 1 to 65535").of(&key));
    };
    let Some(index) = params
        .index
        .and_then(unsigned)
        .filter(|index| *index < count)
    else {
        return Err(FaultKind::malformed("index", "an integer from 0 to total - 1").of(&key));
    };
    let data = params
        .data
        .and_then(|data| data.get().strip_prefix('"')?.strip_suffix('"'));
    let Some(data) = data else {
        return Err(FaultKind::malformed("data", "a string").of(&key));
    };
    Ok(Inbound::Piece(Piece {
        key,
        seq: index,
        count: Some(count),
        bytes: None,
        data: data.as_bytes(),
    }))
}

fn is_group_id(group: &[u8]) -> bool {
    (1..=MAX_GROUP_ID).contains(&group.len()) && std::str::from_utf8(group).is_ok()
}

fn escaped_len(key: &Key, wrapped: bool) -> usize {
    let growth = if wrapped {
        json_text::Growth::Twice
    } else {
        json_text::Growth::Once
    };
    growth.len(key.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use breakbulk_link::PeerSupport;

    #[test]
    fn the_envelope_is_as_long_as_the_decisions_say() {
        assert_eq!(ENVELOPE - 10, 99);
        let quotes = [HEAD, INDEX, TOTAL, DATA, TAIL]
            .concat()
            .iter()
            .filter(|&&byte| byte == b'"')
            .count();
        assert_eq!(quotes, ENVELOPE_QUOTES);
    }

    #[test]
    fn by_its_size_alone_a_message_fits_as_it_does_when_it_is_planned() {
        let limits = |frame, message| PeerLimits {
            frame,
            message,
            transfers: 8,
            timeout: None,
            timeout_from_last: false,
        };
        let peers = [None, Some(limits(300, 1500)), Some(limits(140, usize::MAX))];
        let caps = [Cap::frame(200), Cap::frame(1000), Cap::frame(usize::MAX)];
        for (number, peer) in (0..).zip(peers.iter().flat_map(|peer| [peer; 6])) {
            let (cap, may_cut) = (caps[number % 3], number % 2 == 0);
            for size in [1, 140, 141, 200, 201, 300, 301, 1000, 1500, 1501, 99_999] {
                let options = PlanOptions {
                    key: None,
                    may_cut,
                    known_text: true,
                    peer: &peer.clone().map_or(PeerSupport::No, PeerSupport::Yes),
                    cap: &cap,
                };
                let planned = Ahp.plan(&vec![b'x'; size], &options).map(drop);
                let fits = Ahp::fits(size, may_cut, peer.as_ref(), &cap);
                assert_eq!(fits, planned, "{size} {peer:?} {cap:?} {may_cut}");
            }
        }
    }

    #[test]
    fn a_message_over_the_receivers_limit_is_not_sent_in_one_frame_either() {
        let peer = PeerSupport::Yes(PeerLimits {
            frame: 1000,
            message: 500,
            ..PeerLimits::NONE
        });
        let cap = Cap::frame(1000);
        for (size, fits) in [(500, true), (501, false)] {
            let options = PlanOptions {
                key: None,
                may_cut: true,
                known_text: true,
                peer: &peer,
                cap: &cap,
            };
            let planned = Ahp.plan(&vec![b' '; size], &options).map(drop);
            let expected = match fits {
                true => Ok(()),
                false => Err(SendError::MessageTooLarge { size, limit: 500 }),
            };
            assert_eq!(planned, expected);
            assert_eq!(Ahp::fits(size, true, peer.limits(), &cap), expected);
        }
    }

    // AHP-2
    #[test]
    fn base64_may_hide_behind_json_escapes() {
        // `\/` is a legal way to write a slash, and base64 has slashes.
        let frame = Frame::Text(br#"{"jsonrpc":"2.0","method":"ahp\/messageSegment","params":{"groupId":"g","index":0,"total":1,"data":"\/\/\/\/"}}"#.to_vec().into());
        let Ok(Inbound::Piece(piece)) = Ahp.read(&frame) else {
            panic!("a segment in another form")
        };
        let mut data = vec![];
        Ahp.decode(&piece, &mut data).unwrap();
        assert_eq!(data, [0xff; 3]);
    }
}
