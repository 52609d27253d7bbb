//! tywrap-frame/1: one JSON line per frame, with a slice of the message as a JSON string.

use std::time::Duration;

use breakbulk_link::{
    Assembled, Cap, Carries, Config, Count, Duplicate, Fault, FaultKind, Frame, Full, Inbound, Key,
    Limits, Numbering, OnCancel, Order, Part, Piece, Pieces, Plan, PlanOptions, Random, Rules,
    Scope, Scopes, SendError, Shape, Timeouts, Uncut, Unknown, Wire,
};
use breakbulk_message::jsonrpc::{Outline, integer, string, unsigned};
use breakbulk_message::raw_members;
use serde_json::value::RawValue;

use crate::json_text::{self, Growth};
use crate::shape::{shape, shape_of};
use crate::whole::{has_line_break, text, uncut};

const PROTOCOL: &str = "tywrap-frame/1";

/// The smallest slice: room for any character.
const MIN_PIECE: usize = 4;

/// The largest integer that JavaScript represents exactly.
const MAX_SAFE: u64 = (1 << 53) - 1;

/// The direction of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Host to bridge.
    Request,
    /// Bridge to host.
    Response,
}

impl Stream {
    /// Its name on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Response => "response",
        }
    }

    /// The stream of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Request, Self::Response]
            .into_iter()
            .find(|stream| stream.name() == name)
    }

    /// The key of a transfer: `request:7`.
    pub fn key(self, id: i64) -> Key {
        Key::new(format!("{}:{id}", self.name()).as_bytes())
    }
}

/// How JSON is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Style {
    /// As the TypeScript host does: no spaces, raw UTF-8.
    #[default]
    Compact,
    /// As the Python bridge does: a space after comma and colon, ASCII only.
    Ascii,
}

impl Style {
    const fn separators(self) -> (&'static [u8], &'static [u8]) {
        match self {
            Self::Compact => (b",", b":"),
            Self::Ascii => (b", ", b": "),
        }
    }

    /// The growth if the frame is wrapped in a JSON string.
    const fn growth_wrapped(self) -> Growth {
        match self {
            Self::Compact => Growth::Twice,
            Self::Ascii => Growth::AsciiTwice,
        }
    }

    const fn growth(self) -> Growth {
        match self {
            Self::Compact => Growth::Once,
            Self::Ascii => Growth::Ascii,
        }
    }
}

/// The tywrap wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tywrap {
    /// How frames are written; all forms are read.
    pub style: Style,
    /// The direction of incoming frames; `None` accepts both.
    pub expects: Option<Stream>,
    /// Whether to send even messages in frames that would fit in one line.
    pub always: bool,
}

impl Tywrap {
    /// Whether a key has the form of this wire: `request:7`.
    pub fn is_key(key: &Key) -> bool {
        parse_key(key).is_some()
    }

    /// A host's rules, with the limits of the original implementation; to carry more, raise them on
    /// both sides.
    pub fn config() -> Config {
        let mut config = Config::new(Self::rules());
        config.limits = Limits::default().with(|limits| {
            limits.message = 10 << 20;
            limits.frame = 100 << 20;
            limits.pieces = u64::MAX;
            limits.transfers = 1024;
        });
        config
    }

    /// A host's rules: responses of several calls may be interleaved.
    pub fn rules() -> Rules {
        Rules {
            unknown: Unknown::Opens,
            numbering: Numbering::FromZero,
            order: Order::Any,
            duplicate: Duplicate::Fault,
            full: Full::Refuse,
            closing: false,
            timeouts: Timeouts {
                idle: None,
                age: None,
                age_rate: None,
                accept: Duration::from_secs(30),
            },
            interleave: false,
            cancel: OnCancel::Stop,
            accept: false,
            abort: false,
            contiguous: false,
            scopes: Scopes {
                frame: Scope::Transfer,
                piece: Scope::Transfer,
                reopened: Scope::Transfer,
                transfer: Scope::Transfer,
                busy: Scope::Transfer,
                timeout: Scope::Transfer,
            },
            close: (1008, "refused"),
        }
    }

    /// A bridge's rules: a plain line or the first frame of another message ends unfinished transfers.
    pub fn bridge_rules() -> Rules {
        Rules {
            contiguous: true,
            ..Self::rules()
        }
    }

    /// Writes a frame up to its data.
    fn head(&self, key: &Key, seq: u64, pieces: &Pieces, out: &mut Vec<u8>) {
        let (comma, colon) = self.style.separators();
        let (stream, id) = parse_key(key).unwrap_or((Stream::Request, "0"));
        let mut first = true;
        let mut member = |name: &str, value: &[u8]| {
            out.extend_from_slice(if first { b"{" } else { comma });
            first = false;
            out.push(b'"');
            out.extend_from_slice(name.as_bytes());
            out.push(b'"');
            out.extend_from_slice(colon);
            out.extend_from_slice(value);
        };
        member("__tywrap_frame__", br#""chunk""#);
        member("frameProtocol", br#""tywrap-frame/1""#);
        member("stream", format!("\"{}\"", stream.name()).as_bytes());
        member("id", id.as_bytes());
        member("seq", seq.to_string().as_bytes());
        member("total", pieces.count.to_string().as_bytes());
        member("totalBytes", pieces.bytes.to_string().as_bytes());
        member("encoding", br#""utf8-slice""#);
        member("data", b"\"");
    }

    /// The capacity of one piece: bytes of data, or bytes of escaped data if the cap is on the
    /// whole line.
    fn room(&self, key: &Key, size: usize, options: &PlanOptions<'_>) -> Result<usize, SendError> {
        let cap = options.cap;
        let peer = options.peer.limits().map_or(usize::MAX, |peer| peer.frame);
        let limit = cap.cut_room().min(peer);
        let needed = match cap.count {
            Count::Piece => MIN_PIECE,
            // No number in a frame has more digits than the message has bytes.
            Count::Frame | Count::Wrapped(_) => {
                let most = Pieces::new(size, 0, size as u64, *cap);
                let mut head = Vec::new();
                self.head(key, size as u64, &most, &mut head);
                let envelope = if cap.escapes() {
                    Growth::Once.len(&head) + 3
                } else {
                    head.len() + 2
                };
                envelope + if cap.escapes() { 14 } else { 12 }
            }
        };
        if limit < needed {
            return Err(SendError::CapTooSmall {
                cap: cap.whole_limit().min(peer),
                needed: cap.whole_limit().min(peer) + needed - limit,
            });
        }
        Ok(match cap.count {
            Count::Piece => limit,
            Count::Frame => limit - needed + 12,
            Count::Wrapped(_) => limit - needed + 14,
        })
    }

    /// Plans a message; only if it is sent in pieces, it was checked to be UTF-8.
    fn plan_unchecked(&self, message: &[u8], options: &PlanOptions<'_>) -> Result<Plan, SendError> {
        let cap = options.cap;
        let size = message.len();
        let whole = crate::whole::counted(message, cap);
        let peer = options.peer.limits();
        let peer_frame = peer.map_or(usize::MAX, |peer| peer.frame);
        let fits = whole <= cap.whole_limit().min(peer_frame) && !self.always;
        if fits && !has_line_break(message) {
            return Ok(Plan::Whole);
        }
        let (peer, key) = match (peer, options.key) {
            (Some(peer), Some(key)) if options.may_cut => (peer, key),
            (peer, key) => {
                let why = match (peer, key) {
                    (None, _) => Uncut::NotNegotiated,
                    (Some(_), None) => Uncut::NoKey,
                    (Some(_), Some(_)) => Uncut::NotAllowed,
                };
                let broken = has_line_break(message);
                return uncut(whole, cap.max.min(peer_frame), broken, why);
            }
        };
        if parse_key(key).is_none() {
            return Err(SendError::BadKey {
                expected: "request:ID or response:ID, with an integer ID within ±(2^53 − 1)",
            });
        }
        if size > peer.message {
            return Err(SendError::MessageTooLarge {
                size,
                limit: peer.message,
            });
        }
        let room = self.room(key, size, options)?;
        let growth = self.growth(cap);
        let (mut count, mut at) = (0, 0);
        while at < size {
            let end = growth.fit(message, at, room);
            let piece = &message[at..end];
            // A text is cut between characters, so it is valid if all its pieces are; only bytes that are not
            // UTF-8 can be cut so that a piece is empty.
            if piece.is_empty() || !options.known_text && simdutf8::basic::from_utf8(piece).is_err()
            {
                return Err(SendError::NotUtf8);
            }
            at = end;
            count += 1;
        }
        let pieces = Pieces::new(size, room, count.max(1), *cap);
        Ok(Plan::Pieces(Box::new(pieces)))
    }

    fn growth(&self, cap: &Cap) -> Growth {
        match cap.count {
            Count::Piece => Growth::None,
            Count::Frame => self.style.growth(),
            Count::Wrapped(_) => self.style.growth_wrapped(),
        }
    }
}

impl Wire for Tywrap {
    fn name(&self) -> &'static str {
        "tywrap"
    }

    fn carries(&self) -> Carries {
        Carries::Text
    }

    fn mint(&self, _random: &mut Random) -> Option<Key> {
        None
    }

    fn plan(&self, message: &[u8], options: &PlanOptions<'_>) -> Result<Plan, SendError> {
        // A message in pieces is looked at once: each piece is checked while it is counted.
        let plan = self.plan_unchecked(message, options);
        match &plan {
            Ok(Plan::Pieces(_)) | Err(SendError::NotUtf8) => plan,
            _ if options.known_text || simdutf8::basic::from_utf8(message).is_ok() => plan,
            _ => Err(SendError::NotUtf8),
        }
    }

    fn cut(&self, pieces: &Pieces, message: &[u8], from: usize) -> usize {
        self.growth(&pieces.cap).fit(message, from, pieces.room)
    }

    fn write(&self, part: Part<'_>, out: &mut Vec<u8>) {
        match part {
            Part::Whole(message) => out.extend_from_slice(message),
            Part::Piece {
                pieces,
                index,
                data,
            } => {
                self.head(&pieces.key, index, pieces, out);
                match self.style {
                    Style::Compact => json_text::escape(data, out),
                    // The message is UTF-8, as checked by `plan`, and is cut between characters.
                    Style::Ascii => {
                        json_text::escape_ascii(std::str::from_utf8(data).unwrap_or_default(), out)
                    }
                }
                out.extend_from_slice(b"\"}");
            }
            // The format has no such frames, and its rules never request one.
            Part::Open(_) | Part::Close(_) | Part::Accept { .. } | Part::Abort { .. } => {}
        }
    }

    fn read_canonical<'a>(&self, frame: &'a Frame) -> Option<Piece<'a>> {
        let Frame::Text(text) = frame else {
            return None;
        };
        let style = if text.get(19..21) == Some(b": ") {
            Style::Ascii
        } else {
            Style::Compact
        };
        let mut scan = Scan {
            rest: text,
            comma: style.separators().0,
            colon: style.separators().1,
        };
        scan.literal(b"{")?;
        scan.member(b"__tywrap_frame__")?.literal(br#""chunk""#)?;
        scan.next(b"frameProtocol")?
            .literal(br#""tywrap-frame/1""#)?;
        scan.next(b"stream")?;
        let stream = if scan.literal(br#""request""#).is_some() {
            Stream::Request
        } else {
            scan.literal(br#""response""#)?;
            Stream::Response
        };
        let id = scan.next(b"id")?.number()? as i64;
        let seq = scan.next(b"seq")?.number()?;
        let count = scan.next(b"total")?.number()?;
        let bytes = scan.next(b"totalBytes")?.number()?;
        scan.next(b"encoding")?.literal(br#""utf8-slice""#)?;
        scan.next(b"data")?.literal(b"\"")?;
        let data = scan.rest.strip_suffix(b"\"}")?;
        if seq >= count || self.expects.is_some_and(|expected| expected != stream) {
            return None;
        }
        simdutf8::basic::from_utf8(data).ok()?;
        Some(Piece {
            key: stream.key(id),
            seq,
            count: Some(count),
            bytes: Some(bytes),
            data,
        })
    }

    fn read<'a>(&self, frame: &'a Frame) -> Result<Inbound<'a>, Fault> {
        let (bytes, text) = text(frame)?;
        // Most lines are messages: one scan recognizes a message and finds its parts. The general parser
        // decides on every line that the scan does not accept.
        let mut is_frame = false;
        let mut outline = Outline::default();
        let is_object = outline.fill(bytes, |name| {
            is_frame |= name == b"__tywrap_frame__" || name == b"frameProtocol";
        });
        if is_object && !is_frame {
            return Ok(Inbound::Whole(bytes, shape(bytes, &outline)));
        }
        if !text.trim_ascii_start().starts_with('{') {
            let json = serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok();
            return Err(if json {
                FaultKind::malformed("frame", "an object")
            } else {
                FaultKind::NotJson
            }
            .into());
        }
        let members: Members<'a> = serde_json::from_str(text).map_err(|_| FaultKind::NotJson)?;
        if members.kind.is_none() && members.protocol.is_none() {
            let shape = shape_of(text);
            return Ok(Inbound::Whole(bytes, shape));
        }
        self.piece(&members).map(Inbound::Piece)
    }

    fn decoded_max(&self, piece: &Piece<'_>) -> usize {
        piece.data.len()
    }

    fn decode(&self, piece: &Piece<'_>, into: &mut Vec<u8>) -> Result<(), FaultKind> {
        json_text::unescape(piece.data, into)
    }

    fn finish(&self, _whole: &Assembled<'_>) -> Result<Shape, FaultKind> {
        // Nothing is left to check: the link has checked size and order, and each piece is valid UTF-8.
        Ok(Shape::default())
    }

    fn code(&self, fault: &FaultKind) -> &'static str {
        match fault {
            FaultKind::NotJson => "BAD_JSON",
            FaultKind::UnknownProtocol => "FRAME_UNKNOWN_PROTOCOL",
            FaultKind::WrongStream => "FRAME_WRONG_STREAM",
            FaultKind::TooManyTransfers { .. } => "FRAME_TOO_MANY_STREAMS",
            FaultKind::MessageTooLarge { .. } | FaultKind::StashFull { .. } => {
                "FRAME_PAYLOAD_TOO_LARGE"
            }
            FaultKind::Inconsistent { .. } => "FRAME_INCONSISTENT",
            FaultKind::Duplicate { .. } => "FRAME_DUPLICATE_SEQ",
            FaultKind::Incomplete { .. } => "FRAME_SEQ_GAP",
            FaultKind::Overrun { .. } | FaultKind::SizeMismatch { .. } => "FRAME_BYTES_MISMATCH",
            FaultKind::NotUtf8 => "FRAME_INVALID_UTF8",
            FaultKind::Malformed { .. } | FaultKind::UnknownKind | FaultKind::WrongCarrier => {
                "FRAME_MALFORMED"
            }
            other => other.name(),
        }
    }
}

raw_members! {
    struct Members {
        kind: "__tywrap_frame__",
        protocol: "frameProtocol",
        stream: "stream",
        id: "id",
        seq: "seq",
        total: "total",
        total_bytes: "totalBytes",
        encoding: "encoding",
        data: "data",
    }
}

impl Tywrap {
    /// Checks a frame's members, in the order of the real receivers.
    fn piece<'a>(&self, members: &Members<'a>) -> Result<Piece<'a>, Fault> {
        let text = |raw: Option<&'a RawValue>| raw.and_then(string);
        let id = members.id.and_then(integer);
        let key = |stream: Stream, id: i128| Key::new(format!("{}:{id}", stream.name()).as_bytes());
        // A fault carries the key if the frame has one, whatever else is wrong with the frame.
        let stream = text(members.stream).and_then(|name| Stream::from_name(&name));
        let known = stream.zip(id).map(|(stream, id)| key(stream, id));
        let fault = |kind: FaultKind| Fault {
            key: known.clone(),
            kind,
        };
        if text(members.kind).as_deref() != Some("chunk") {
            return Err(fault(FaultKind::malformed("__tywrap_frame__", "\"chunk\"")));
        }
        if text(members.protocol).as_deref() != Some(PROTOCOL) {
            return Err(fault(FaultKind::UnknownProtocol));
        }
        let Some(stream) = stream else {
            return Err(fault(FaultKind::malformed(
                "stream",
                "\"request\" or \"response\"",
            )));
        };
        if text(members.encoding).as_deref() != Some("utf8-slice") {
            return Err(fault(FaultKind::malformed("encoding", "\"utf8-slice\"")));
        }
        let Some(id) = id else {
            return Err(fault(FaultKind::malformed("id", "an integer")));
        };
        let number = |raw: Option<&'a RawValue>, field, expected| {
            raw.and_then(unsigned)
                .ok_or_else(|| fault(FaultKind::malformed(field, expected)))
        };
        let seq = number(members.seq, "seq", "an integer from 0")?;
        let count = number(members.total, "total", "an integer from 1")?;
        if count == 0 {
            return Err(fault(FaultKind::malformed("total", "an integer from 1")));
        }
        let bytes = number(members.total_bytes, "totalBytes", "an integer from 0")?;
        let data = members
            .data
            .and_then(|data| data.get().strip_prefix('"')?.strip_suffix('"'));
        let Some(data) = data else {
            return Err(fault(FaultKind::malformed("data", "a string")));
        };
        if seq >= count {
            return Err(fault(FaultKind::malformed("seq", "below total")));
        }
        if self.expects.is_some_and(|expected| expected != stream) {
            return Err(fault(FaultKind::WrongStream));
        }
        let key = key(stream, id);
        Ok(Piece {
            key,
            seq,
            count: Some(count),
            bytes: Some(bytes),
            data: data.as_bytes(),
        })
    }
}

/// The stream, and the id as text, of a key such as `request:7`.
fn parse_key(key: &Key) -> Option<(Stream, &str)> {
    let (stream, id) = std::str::from_utf8(key.as_bytes()).ok()?.split_once(':')?;
    let number: i64 = id.parse().ok()?;
    let safe = number.unsigned_abs() <= MAX_SAFE
        && !id.starts_with('+')
        && (id == "0" || !id.trim_start_matches('-').starts_with('0'));
    Some((Stream::from_name(stream)?, id)).filter(|_| safe)
}

/// Reads a frame that has exactly the form that this wire writes.
struct Scan<'a> {
    rest: &'a [u8],
    comma: &'static [u8],
    colon: &'static [u8],
}

impl Scan<'_> {
    fn literal(&mut self, literal: &[u8]) -> Option<&mut Self> {
        self.rest = self.rest.strip_prefix(literal)?;
        Some(self)
    }

    fn member(&mut self, name: &[u8]) -> Option<&mut Self> {
        let colon = self.colon;
        self.literal(b"\"")?
            .literal(name)?
            .literal(b"\"")?
            .literal(colon)
    }

    fn next(&mut self, name: &[u8]) -> Option<&mut Self> {
        let comma = self.comma;
        self.literal(comma)?.member(name)
    }

    fn number(&mut self) -> Option<u64> {
        let (number, rest) = json_text::digits(self.rest)?;
        self.rest = rest;
        Some(number)
    }
}
