//! CEP-22 oversized transfers: MCP progress notifications that carry a message in chunks.

use std::time::Duration;

use breakbulk_link::{
    Announce, Assembled, Cap, Carries, Config, Count, Duplicate, Fault, FaultKind, Frame, Full,
    Inbound, Key, Limits, Numbering, OnCancel, Opening, Order, Part, PeerSupport, Piece, Pieces,
    Plan, PlanOptions, Random, Rules, RunningDigest, Scope, Scopes, SendError, Shape, Timeouts,
    Uncut, Unknown, Wire, Wrap,
};
use breakbulk_message::jsonrpc::{Outline, integer, string, unsigned};
use breakbulk_message::raw_members;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use crate::json_text::{self, Growth};
use crate::shape::shape;
use crate::whole::{counted, counted_at_least, has_line_break, text, uncut};

const METHOD: &str = "notifications/progress";
const PROFILE: &str = "oversized-transfer";
const HEAD: &[u8] =
    br#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":""#;
const PROGRESS: &[u8] = br#"","progress":"#;
const CVM: &[u8] = br#","cvm":{"type":"oversized-transfer","frameType":"#;
const CHUNK: &[u8] = br#""chunk","data":""#;
const CHUNK_TAIL: &[u8] = br#""}}}"#;

/// The limit of both real implementations; a peer may announce a larger one.
const MAX_MESSAGE: usize = 100 << 20;
const MAX_PIECES: u64 = 10_000;

/// The most digits of a progress number.
const DIGITS: usize = 5;

/// The longest progress token that is accepted, in bytes.
const MAX_TOKEN: usize = 1024;

/// How chunks are numbered: whether a number is reserved for the `accept` frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Layout {
    /// A number is reserved only if this side waits for an `accept`.
    #[default]
    ByPeer,
    /// A number is reserved, but this side does not wait, as the real TypeScript client does.
    Unasked,
}

/// The CEP-22 wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cep22 {
    /// How outgoing chunks are numbered.
    pub layout: Layout,
    /// Whether an assembled message must be a single JSON-RPC 2.0 message that is not itself a frame
    /// of this wire. Its [`Shape`] is known then.
    pub json_rpc: bool,
}

impl Cep22 {
    /// A client's rules, with the limits of the real implementations. The memory suffices for a few
    /// transfers of the largest size; more are refused as busy.
    pub fn config() -> Config {
        let mut config = Config::new(Self::rules());
        config.limits = Limits::default().with(|limits| {
            limits.message = MAX_MESSAGE;
            limits.pieces = MAX_PIECES;
            limits.transfers = 64;
            limits.memory = 4 * MAX_MESSAGE;
        });
        config
    }

    /// A client's rules: it sends no `accept`, since only servers do.
    pub fn rules() -> Rules {
        Rules {
            unknown: Unknown::Ignored,
            numbering: Numbering::AfterOpening { reserved: 21 },
            order: Order::Window {
                ahead: 21,
                stashed: 42,
            },
            duplicate: Duplicate::IgnoreIfEqual,
            full: Full::Refuse,
            closing: true,
            timeouts: Timeouts {
                idle: None,
                age: Some(Duration::from_secs(300)),
                age_rate: None,
                accept: Duration::from_secs(30),
            },
            interleave: true,
            cancel: OnCancel::Abort,
            accept: false,
            abort: true,
            contiguous: false,
            scopes: Scopes {
                frame: Scope::Transfer,
                piece: Scope::Transfer,
                reopened: Scope::Report,
                transfer: Scope::Transfer,
                busy: Scope::Transfer,
                timeout: Scope::Transfer,
            },
            close: (1008, "refused"),
        }
    }

    /// A server's rules: it answers every admitted `start` with `accept`, since some clients wait
    /// for it for ever.
    pub fn server_rules() -> Rules {
        Rules {
            accept: true,
            ..Self::rules()
        }
    }
}

/// The cap of a Nostr relay that accepts events of `max` bytes, for frames in a signed event with a
/// `p` and an `e` tag, gift-wrapped if `gift_wrap` is set. Messages are cut above `cut_above`.
pub fn nostr_cap(max: usize, cut_above: usize, gift_wrap: bool) -> Cap {
    let hex = "0".repeat(64);
    let event = |kind: &str, tags: &str| {
        let head = format!(
            r#"{{"id":"{hex}","pubkey":"{hex}","created_at":1700000000,"kind":{kind},"tags":["#
        );
        head.len() + tags.len() + format!(r#"],"content":"","sig":"{hex}{hex}"}}"#).len()
    };
    let (p, e) = (format!(r#"["p","{hex}"]"#), format!(r#"["e","{hex}"]"#));
    // The first frame of a session also carries the discovery tags.
    let discovery = r#",["support_encryption"],["support_encryption_ephemeral"],["support_oversized_transfer"]"#;
    let envelope = event("25910", &format!("{p},{e}{discovery}"));
    let sealed = gift_wrap.then(|| event("21059", &p));
    let mut cap = Cap::wrapped(max, Wrap { envelope, sealed });
    cap.cut_above = Some(cut_above);
    cap
}

impl Wire for Cep22 {
    fn name(&self) -> &'static str {
        "cep22"
    }

    fn carries(&self) -> Carries {
        Carries::Text
    }

    fn mint(&self, _random: &mut Random) -> Option<Key> {
        None
    }

    fn plan(&self, message: &[u8], options: &PlanOptions<'_>) -> Result<Plan, SendError> {
        // A message in pieces is looked at once: `count` checks each piece while it counts and digests it.
        let plan = self.plan_unchecked(message, options);
        match &plan {
            Ok(Plan::Pieces(_)) | Err(SendError::NotUtf8) => plan,
            _ if options.known_text || is_utf8(message) => plan,
            _ => Err(SendError::NotUtf8),
        }
    }

    fn cut(&self, pieces: &Pieces, message: &[u8], from: usize) -> usize {
        growth(&pieces.cap).fit(message, from, pieces.room)
    }

    fn write(&self, part: Part<'_>, out: &mut Vec<u8>) {
        match part {
            Part::Whole(message) => out.extend_from_slice(message),
            Part::Open(pieces) => {
                head(&pieces.key, 1, Some("starting oversized transfer"), out);
                out.extend_from_slice(br#""start","completionMode":"render","digest":"sha256:"#);
                for byte in pieces.digest.unwrap_or_default() {
                    out.extend_from_slice(format!("{byte:02x}").as_bytes());
                }
                let totals = format!(
                    r#"","totalBytes":{},"totalChunks":{}}}}}}}"#,
                    pieces.bytes, pieces.count
                );
                out.extend_from_slice(totals.as_bytes());
            }
            Part::Piece {
                pieces,
                index,
                data,
            } => {
                out.reserve(HEAD.len() + CVM.len() + data.len() + 128);
                head(&pieces.key, pieces.first + index, None, out);
                out.extend_from_slice(CHUNK);
                json_text::escape(data, out);
                out.extend_from_slice(CHUNK_TAIL);
            }
            Part::Close(pieces) => {
                head(
                    &pieces.key,
                    pieces.first + pieces.count,
                    Some("oversized transfer complete"),
                    out,
                );
                out.extend_from_slice(br#""end"}}}"#);
            }
            Part::Accept { key, seq } => {
                head(key, seq, Some("oversized request accepted"), out);
                out.extend_from_slice(br#""accept"}}}"#);
            }
            Part::Abort { key, seq, reason } => {
                head(key, seq, None, out);
                out.extend_from_slice(br#""abort","reason":""#);
                json_text::escape(reason.as_bytes(), out);
                out.extend_from_slice(CHUNK_TAIL);
            }
        }
    }

    fn read_canonical<'a>(&self, frame: &'a Frame) -> Option<Piece<'a>> {
        let Frame::Text(text) = frame else {
            return None;
        };
        let rest = text.strip_prefix(HEAD)?;
        let (token, rest) = rest.split_at(memchr::memchr2(
            b'"',
            b'\\',
            rest.get(..rest.len().min(MAX_TOKEN + 1))?,
        )?);
        let (seq, rest) = json_text::digits(rest.strip_prefix(PROGRESS)?)?;
        let data = rest
            .strip_prefix(CVM)?
            .strip_prefix(CHUNK)?
            .strip_suffix(CHUNK_TAIL)?;
        simdutf8::basic::from_utf8(text).ok()?;
        if seq == 0 || token.is_empty() || token.iter().any(|&byte| byte < 0x20) {
            return None;
        }
        Some(Piece {
            key: Key::new(token),
            seq,
            count: None,
            bytes: None,
            data,
        })
    }

    fn read<'a>(&self, frame: &'a Frame) -> Result<Inbound<'a>, Fault> {
        let (bytes, text) = text(frame)?;
        let mut outline = Outline::default();
        if !outline.fill(bytes, |_| {}) {
            return Ok(Inbound::Whole(bytes, Shape::default()));
        }
        if let Some((params, cvm)) = frame_members(text, &outline) {
            return transfer_frame(&params, &cvm);
        }
        Ok(Inbound::Whole(bytes, shape(bytes, &outline)))
    }

    fn decoded_max(&self, piece: &Piece<'_>) -> usize {
        piece.data.len()
    }

    fn decode(&self, piece: &Piece<'_>, into: &mut Vec<u8>) -> Result<(), FaultKind> {
        json_text::unescape(piece.data, into)
    }

    fn digest(&self) -> Option<Box<dyn RunningDigest>> {
        Some(Box::new(Running(Sha256::new())))
    }

    fn finish(&self, whole: &Assembled<'_>) -> Result<Shape, FaultKind> {
        let announced = whole.opening.and_then(|opening| opening.digest);
        if let Some(announced) = announced {
            let digest = whole.digest;
            let digest = digest.unwrap_or_else(|| Sha256::digest(whole.bytes).into());
            if announced != digest {
                return Err(FaultKind::DigestMismatch);
            }
        }
        if !self.json_rpc {
            return Ok(Shape::default());
        }
        let text = simdutf8::basic::from_utf8(whole.bytes).map_err(|_| FaultKind::NotUtf8)?;
        let outline = Outline::parse(whole.bytes).ok_or(FaultKind::NotJsonRpc)?;
        if outline.kind(whole.bytes).is_none() {
            return Err(FaultKind::NotJsonRpc);
        }
        if frame_members(text, &outline).is_some() {
            return Err(FaultKind::Nested);
        }
        Ok(shape(whole.bytes, &outline))
    }
}

impl Cep22 {
    /// Plans a message; only if it is sent in pieces, it was checked to be UTF-8.
    fn plan_unchecked(&self, message: &[u8], options: &PlanOptions<'_>) -> Result<Plan, SendError> {
        let cap = options.cap;
        let (size, whole) = (message.len(), counted_at_least(message, cap));
        let fits = whole <= cap.whole_limit();
        let broken = || cap.lines && has_line_break(message);
        if fits && !broken() {
            return Ok(Plan::Whole);
        }
        let peer = match options.peer {
            PeerSupport::No => Err(Uncut::NotNegotiated),
            _ if !options.may_cut => Err(Uncut::NotAllowed),
            PeerSupport::Unknown => Ok(None),
            PeerSupport::Yes(limits) => Ok(Some(limits)),
        };
        let (peer, key) = match (peer, options.key) {
            (Ok(peer), Some(key)) => (peer, key),
            // Between `cut_above` and `max` it is still sent in one frame.
            (peer, _) => {
                let why = peer.err().unwrap_or(Uncut::NoKey);
                let size = if whole > cap.max {
                    // A text that is too long to encrypt has no encrypted size: report its own.
                    Some(counted(message, cap))
                        .filter(|&size| size < usize::MAX)
                        .unwrap_or(message.len())
                } else {
                    whole
                };
                return uncut(size, cap.max, broken(), why);
            }
        };
        let token = key.as_bytes();
        if token.is_empty() || token.len() > MAX_TOKEN || std::str::from_utf8(token).is_err() {
            return Err(SendError::BadKey {
                expected: "a progress token of 1 to 1024 bytes of text",
            });
        }
        let limit = peer.map_or(MAX_MESSAGE, |peer| peer.message);
        if size > limit {
            return Err(SendError::MessageTooLarge { size, limit });
        }
        let (announce, first) = match (peer, self.layout) {
            (_, Layout::Unasked) => (Announce::Proceed, 3),
            (None, Layout::ByPeer) => (Announce::Wait, 3),
            (Some(_), Layout::ByPeer) => (Announce::Proceed, 2),
        };
        let mut pieces = Pieces {
            key: key.clone(),
            first,
            digest: Some([0; 32]),
            opening: announce,
            closing: true,
            ..Pieces::new(size, 0, MAX_PIECES, *cap)
        };
        pieces.room = self.room(&pieces, cap)?;
        let (count, digest) = count(message, pieces.room, options)?;
        (pieces.count, pieces.digest) = (count, Some(digest));
        Ok(Plan::Pieces(Box::new(pieces)))
    }

    /// The capacity of one chunk, in bytes as `growth` counts.
    fn room(&self, pieces: &Pieces, cap: &Cap) -> Result<usize, SendError> {
        if cap.count == Count::Piece {
            let needed = 4;
            return if cap.max < needed {
                Err(SendError::CapTooSmall {
                    cap: cap.max,
                    needed,
                })
            } else {
                Ok(cap.max)
            };
        }
        let wrapped = cap.escapes();
        let grown = |frame: &[u8]| {
            if wrapped {
                Growth::Once.len(frame)
            } else {
                frame.len()
            }
        };
        let (mut start, mut chunk) = (Vec::new(), Vec::new());
        self.write(Part::Open(pieces), &mut start);
        self.write(
            Part::Piece {
                pieces,
                index: 0,
                data: b"",
            },
            &mut chunk,
        );
        let envelope = grown(&chunk) - 1 + DIGITS;
        // Any single character must fit: a control character grows the most.
        let needed = grown(&start).max(envelope + if wrapped { 7 } else { 6 });
        let limit = cap.cut_room();
        if limit < needed {
            return Err(SendError::CapTooSmall {
                cap: cap.whole_limit(),
                needed: cap.counted(needed),
            });
        }
        Ok(limit - envelope)
    }
}

fn growth(cap: &Cap) -> Growth {
    match cap.count {
        Count::Piece => Growth::None,
        Count::Frame => Growth::Once,
        Count::Wrapped(_) => Growth::Twice,
    }
}

/// SHA-256 of pieces as they come.
#[derive(Debug)]
struct Running(Sha256);

impl RunningDigest for Running {
    fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn value(&self) -> [u8; 32] {
        self.0.clone().finalize().into()
    }
}

fn is_utf8(text: &[u8]) -> bool {
    simdutf8::basic::from_utf8(text).is_ok()
}

/// How many pieces a message has, and its digest, which the format wants in the first frame. Checks that it
/// is UTF-8 on the way: a text is cut between characters, so it is valid if all its pieces are.
fn count(
    message: &[u8],
    room: usize,
    options: &PlanOptions<'_>,
) -> Result<(u64, [u8; 32]), SendError> {
    let cap = options.cap;
    let (growth, size) = (growth(cap), message.len());
    let mut digest = Sha256::new();
    let (mut count, mut at) = (0, 0);
    while at < size {
        let end = growth.fit(message, at, room);
        let piece = &message[at..end];
        // Only bytes that are not UTF-8 can be cut so that a piece is empty.
        if piece.is_empty() || !options.known_text && !is_utf8(piece) {
            return Err(SendError::NotUtf8);
        }
        digest.update(piece);
        at = end;
        count += 1;
        if count > MAX_PIECES {
            return Err(SendError::TooManyPieces {
                size,
                limit: MAX_PIECES,
                cap: cap.max,
            });
        }
    }
    Ok((count.max(1), digest.finalize().into()))
}

/// Writes a frame up to its frame type.
fn head(token: &Key, progress: u64, message: Option<&str>, out: &mut Vec<u8>) {
    out.extend_from_slice(HEAD);
    json_text::escape(token.as_bytes(), out);
    out.extend_from_slice(PROGRESS);
    out.extend_from_slice(progress.to_string().as_bytes());
    if let Some(message) = message {
        out.extend_from_slice(br#","message":""#);
        out.extend_from_slice(message.as_bytes());
        out.push(b'"');
    }
    out.extend_from_slice(CVM);
}

raw_members! {
    struct Params {
        token: "progressToken",
        progress: "progress",
        cvm: "cvm",
    }
}

raw_members! {
    struct Cvm {
        profile: "type",
        frame: "frameType",
        mode: "completionMode",
        digest: "digest",
        bytes: "totalBytes",
        chunks: "totalChunks",
        data: "data",
        reason: "reason",
    }
}

/// The members of a frame of this wire; `None` if the message is anything else.
fn frame_members<'a>(text: &'a str, outline: &Outline) -> Option<(Params<'a>, Cvm<'a>)> {
    if outline.method(text.as_bytes()).as_deref() != Some(METHOD) {
        return None;
    }
    let params: Params<'a> = serde_json::from_str(text.get(outline.params.clone()?)?).ok()?;
    let cvm: Cvm<'a> = serde_json::from_str(params.cvm?.get()).ok()?;
    (cvm.profile.and_then(string).as_deref() == Some(PROFILE)).then_some((params, cvm))
}

fn transfer_frame<'a>(params: &Params<'a>, cvm: &Cvm<'a>) -> Result<Inbound<'a>, Fault> {
    let Some(key) = params.token.and_then(token) else {
        return Err(FaultKind::malformed(
            "progressToken",
            "a string of 1 to 1024 bytes or an integer",
        )
        .into());
    };
    let frame = cvm.frame.and_then(string);
    if frame.as_deref() == Some("abort") {
        let reason = cvm
            .reason
            .and_then(string)
            .unwrap_or_default()
            .chars()
            .take(500)
            .collect();
        return Ok(Inbound::Abort { key, reason });
    }
    let Some(seq) = params.progress.and_then(unsigned).filter(|&seq| seq > 0) else {
        return Err(FaultKind::malformed("progress", "a positive integer").of(&key));
    };
    match frame.as_deref() {
        Some("start") => start(key, seq, cvm),
        Some("accept") => Ok(Inbound::Accept { key }),
        Some("chunk") => match cvm
            .data
            .and_then(|data| data.get().strip_prefix('"')?.strip_suffix('"'))
        {
            Some(data) => Ok(Inbound::Piece(Piece {
                key,
                seq,
                count: None,
                bytes: None,
                data: data.as_bytes(),
            })),
            None => Err(FaultKind::malformed("data", "a string").of(&key)),
        },
        Some("end") => Ok(Inbound::Close { key, seq }),
        _ => Err(FaultKind::UnknownKind.of(&key)),
    }
}

fn start<'a>(key: Key, seq: u64, cvm: &Cvm<'_>) -> Result<Inbound<'a>, Fault> {
    if cvm.mode.and_then(string).as_deref() != Some("render") {
        return Err(FaultKind::UnknownMode.of(&key));
    }
    let Some(digest) = cvm.digest.and_then(string).and_then(|text| digest(&text)) else {
        return Err(bad_opening("digest", "sha256: and 64 lower-case hex digits").of(&key));
    };
    let Some(bytes) = cvm.bytes.and_then(unsigned) else {
        return Err(bad_opening("totalBytes", "an integer from 0").of(&key));
    };
    match cvm.chunks.and_then(unsigned) {
        Some(count) if (1..=bytes).contains(&count) => Ok(Inbound::Open(Opening {
            key,
            seq,
            count,
            bytes,
            digest: Some(digest),
        })),
        _ => Err(bad_opening("totalChunks", "an integer from 1 to totalBytes").of(&key)),
    }
}

fn bad_opening(field: &'static str, expected: &'static str) -> FaultKind {
    FaultKind::BadOpening { field, expected }
}

/// Reads a token. Tokens are compared as text, since real peers turn numbers into strings.
fn token(raw: &RawValue) -> Option<Key> {
    let text = match string(raw) {
        Some(text) => text,
        None => integer(raw)?.to_string().into(),
    };
    (1..=MAX_TOKEN)
        .contains(&text.len())
        .then(|| Key::new(text.as_bytes()))
}

fn digest(text: &str) -> Option<[u8; 32]> {
    let hex = text.strip_prefix("sha256:")?.as_bytes();
    if hex.len() != 64
        || !hex
            .iter()
            .all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'))
    {
        return None;
    }
    let mut digest = [0; 32];
    for (byte, pair) in digest.iter_mut().zip(hex.chunks_exact(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(digest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use breakbulk_link::PeerLimits;

    fn plan(message: &[u8], known_text: bool) -> Result<Plan, SendError> {
        let options = PlanOptions {
            key: Some(&Key::new(b"token")),
            may_cut: true,
            known_text,
            peer: &PeerSupport::Yes(PeerLimits::NONE),
            cap: &Cap::piece(100),
        };
        Cep22::default().plan(message, &options)
    }

    #[test]
    fn a_message_in_pieces_is_checked_and_digested_as_it_is_counted() {
        let text = "é\"日".repeat(300).into_bytes();
        let Ok(Plan::Pieces(pieces)) = plan(&text, false) else {
            panic!("a plan in pieces")
        };
        assert_eq!(pieces.digest, Some(Sha256::digest(&text).into()));
        // Pieces of at most 100 bytes end before a character that does not fit.
        assert_eq!(pieces.count, 19);
        for at in [0, 1, 95, 96, 97, 98, 99, 100, 101, 1000, text.len() - 1] {
            for wrong in [0xff, 0x80, 0xe6] {
                let mut message = text.clone();
                message[at] = wrong;
                let expected = match std::str::from_utf8(&message) {
                    Ok(_) => 19,
                    Err(_) => 0,
                };
                let counted = match plan(&message, false) {
                    Ok(Plan::Pieces(pieces)) => pieces.count,
                    other => {
                        assert_eq!(other, Err(SendError::NotUtf8), "{wrong:x} at {at}");
                        0
                    }
                };
                assert_eq!(counted, expected, "{wrong:x} at {at}");
            }
        }
        // A message in one frame, and bytes that are not UTF-8.
        assert_eq!(plan(b"short", false), Ok(Plan::Whole));
        assert_eq!(plan(b"short \xff", false), Err(SendError::NotUtf8));
        assert_eq!(plan(&[0x80; 500], true), Err(SendError::NotUtf8));
    }

    #[test]
    fn the_digest_of_the_pieces_is_compared_and_not_made_again() {
        let wire = Cep22::default();
        let mut running = wire.digest().unwrap();
        running.update(b"one ");
        running.update(b"two");
        let right: [u8; 32] = Sha256::digest(b"one two").into();
        assert_eq!(running.value(), right);
        let opening = Opening {
            key: Key::new(b"token"),
            seq: 1,
            count: 2,
            bytes: 7,
            digest: Some(right),
        };
        for (digest, outcome) in [
            (Some(right), Ok(Shape::default())),
            (Some([7; 32]), Err(FaultKind::DigestMismatch)),
            (None, Ok(Shape::default())),
        ] {
            let whole = Assembled {
                opening: Some(&opening),
                bytes: b"one two",
                ascii: true,
                digest,
            };
            assert_eq!(wire.finish(&whole), outcome);
        }
    }
}
