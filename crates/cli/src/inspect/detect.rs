//! Detects the format of a capture from its beginning.

use std::collections::{BTreeMap, BTreeSet};

use breakbulk::link::{Frame, Inbound, Wire};
use breakbulk::message::ahp;
use breakbulk::message::jsonrpc::{Envelope, Kind, member, string};
use breakbulk::message::vscode::{self, ipc};
use breakbulk::message::{loro, mcp, tywrap};
use breakbulk::wire::{Ahp, Cep22, Tywrap};
use bytes::Bytes;

use super::format::{Format, Framing};

/// Frames that are examined.
const FRAMES: usize = 64;

/// Bytes that are examined of a line that is incomplete.
const HEAD: usize = 4096;

/// Points for a frame that can be of no other format, and for one that only hints at a format.
const SURE: u32 = 10;
const HINT: u32 = 3;

/// The detected format, and why.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Guess {
    pub(crate) format: Format,
    pub(crate) why: String,
}

/// The beginning of a capture.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample<'a> {
    pub(crate) bytes: &'a [u8],
    /// Whether that is all of it.
    pub(crate) whole: bool,
    /// The largest frame that is decoded.
    pub(crate) max_frame: usize,
}

/// Detects the format among the `allowed` ones. The error says which `--wire` to try.
pub(crate) fn detect(sample: Sample<'_>, allowed: &[Format]) -> Result<Guess, String> {
    let mut scores = Scores::default();
    lines(sample, &mut scores);
    prefixed(sample, &mut scores);
    ipc_stream(sample, &mut scores);
    scores
        .points
        .retain(|(format, _), _| allowed.contains(format));
    scores.best(sample)
}

#[derive(Debug, Default)]
struct Scores {
    /// Points per format and reason, with the number of frames that gave them.
    points: BTreeMap<(Format, &'static str), (u32, u32)>,
    /// The number of frames examined, by framing.
    looked: BTreeMap<Framing, u32>,
}

impl Scores {
    fn add(&mut self, format: Format, points: u32, reason: &'static str) {
        let (sum, frames) = self.points.entry((format, reason)).or_default();
        *sum += points;
        *frames += 1;
    }

    fn look(&mut self, framing: Framing) {
        *self.looked.entry(framing).or_default() += 1;
    }

    fn best(&self, sample: Sample<'_>) -> Result<Guess, String> {
        let mut sums: BTreeMap<Format, u32> = BTreeMap::new();
        for ((format, _), (points, _)) in &self.points {
            *sums.entry(*format).or_default() += points;
        }
        // Any wire may carry plain JSON-RPC: it is chosen only if nothing else was found.
        let plain = sums.remove(&Format::JsonRpc);
        let mut ranked: Vec<(u32, Format)> = sums
            .into_iter()
            .map(|(format, sum)| (sum, format))
            .collect();
        ranked.sort_by(|a, b| b.cmp(a));
        match (ranked.as_slice(), plain) {
            ([], Some(_)) => Ok(self.guess(Format::JsonRpc)),
            ([], None) => Err(unknown(sample)),
            ([(best, first), (next, second), ..], _)
                if next * 2 > *best && first.wire_name() != second.wire_name() =>
            {
                Err(format!(
                    "this looks like {} ({}) and like {} ({}); say which with --wire {} or --wire {}",
                    first.wire_name(),
                    self.guess(*first).why,
                    second.wire_name(),
                    self.guess(*second).why,
                    first.wire_name(),
                    second.wire_name()
                ))
            }
            ([(_, first), ..], _) => Ok(self.guess(*first)),
        }
    }

    /// A format, with the reason that gave it most points.
    fn guess(&self, format: Format) -> Guess {
        let most = self
            .points
            .iter()
            .filter(|((of, _), _)| *of == format)
            .max_by_key(|(_, (points, _))| *points);
        let why = most.map_or(String::new(), |((_, reason), (_, frames))| {
            let looked = self.looked.get(&format.framing()).unwrap_or(frames);
            format!("{reason} in {frames} of the first {looked} frames")
        });
        Guess { format, why }
    }
}

fn unknown(sample: Sample<'_>) -> String {
    if sample.bytes.is_empty() {
        return "the capture is empty".into();
    }
    let text = std::str::from_utf8(&sample.bytes[..sample.bytes.len().min(64)])
        .map_or_else(|error| error.error_len().is_none(), |_| true)
        && !sample.bytes.iter().take(64).any(|&byte| byte < 9);
    if text {
        "no line of it is a frame or a message of a known kind; if it should be, try --wire ahp, --wire tywrap, --wire cep22 or --wire loro"
    } else {
        "it is neither lines, nor length-prefixed frames, nor an ipc.net stream of a known kind; if it should be, try --wire loro or --wire vscode"
    }
    .into()
}

fn lines(sample: Sample<'_>, scores: &mut Scores) {
    let mut rest = sample.bytes;
    for _ in 0..FRAMES {
        if rest.is_empty() {
            break;
        }
        scores.look(Framing::Lines);
        match rest.iter().position(|&byte| byte == b'\n') {
            Some(end) => {
                line(&rest[..end], scores);
                rest = &rest[end + 1..];
            }
            None => {
                let cut =
                    std::str::from_utf8(rest).map_or(true, |text| Envelope::parse(text).is_none());
                if sample.whole {
                    line(rest, scores);
                }
                if cut {
                    score_line_start(&rest[..rest.len().min(HEAD)], scores);
                }
                break;
            }
        }
    }
}

/// Scores a complete line.
fn line(line: &[u8], scores: &mut Scores) {
    let Ok(text) = std::str::from_utf8(line) else {
        return;
    };
    if matches!(text.trim(), "ready" | "ping" | "pong") {
        scores.add(Format::LoroJson, 1, "loro's control texts");
        return;
    }
    let Some(envelope) = Envelope::parse(text) else {
        return;
    };
    let frame = Frame::Text(Bytes::copy_from_slice(line));
    // An invalid frame is still a frame of that wire.
    let is_frame = |wire: &dyn Wire| !matches!(wire.read(&frame), Ok(Inbound::Whole(..)));
    for (format, wire, reason) in [
        (Format::Ahp, &Ahp as &dyn Wire, "ahp/messageSegment"),
        (Format::Tywrap, &Tywrap::default(), "tywrap-frame/1"),
        (
            Format::Cep22,
            &Cep22::default(),
            "oversized-transfer progress",
        ),
    ] {
        if is_frame(wire) {
            scores.add(format, SURE, reason);
            return;
        }
    }
    let word = |name| member(text, name).and_then(string);
    if word("protocol").as_deref() == Some(tywrap::PROTOCOL) {
        scores.add(Format::Tywrap, SURE, "tywrap/1");
    } else if word("type").is_some_and(|kind| kind.starts_with("channel/")) {
        scores.add(Format::LoroJson, SURE, "channel messages");
    } else if let Some(kind) = envelope.kind() {
        json_rpc(&envelope, kind, scores);
    }
}

fn json_rpc(envelope: &Envelope<'_>, kind: Kind, scores: &mut Scores) {
    scores.add(Format::JsonRpc, 1, "JSON-RPC");
    let channel = envelope
        .params
        .and_then(|params| member(params.get(), "channel"))
        .and_then(string);
    if channel.is_some_and(|channel| channel.starts_with("ahp-")) {
        scores.add(Format::Ahp, SURE, "an AHP channel");
    } else if kind == Kind::Result
        && envelope
            .result
            .is_some_and(|result| ahp::InitializeResult::read(result).is_ok())
    {
        scores.add(Format::Ahp, HINT, "AHP's initialize result");
    } else if mcp::progress_token(envelope).is_some() {
        scores.add(Format::Cep22, SURE, "an MCP progress token");
    } else if envelope.method().is_some_and(|method| {
        ["notifications/", "tools/", "resources/", "prompts/"]
            .iter()
            .any(|prefix| method.starts_with(prefix))
    }) {
        scores.add(Format::Cep22, HINT, "MCP methods");
    }
}

/// Scores the beginning of an incomplete line. Inside a JSON string the quotes of these marks would be
/// escaped.
fn score_line_start(head: &[u8], scores: &mut Scores) {
    let head = String::from_utf8_lossy(head).replace(": ", ":");
    for (format, mark, reason) in [
        (
            Format::Ahp,
            r#""method":"ahp/messageSegment""#,
            "ahp/messageSegment",
        ),
        (Format::Tywrap, r#""__tywrap_frame__":"#, "tywrap-frame/1"),
        (Format::Tywrap, r#""protocol":"tywrap/1""#, "tywrap/1"),
        (
            Format::Cep22,
            r#""type":"oversized-transfer""#,
            "oversized-transfer progress",
        ),
        (Format::LoroJson, r#"{"type":"channel/"#, "channel messages"),
        (Format::Ahp, r#""channel":"ahp-"#, "an AHP channel"),
        (Format::JsonRpc, r#""jsonrpc":"2.0""#, "JSON-RPC"),
    ] {
        if head.contains(mark) {
            scores.add(
                format,
                if format == Format::JsonRpc { 1 } else { HINT },
                reason,
            );
            break;
        }
    }
}

/// A frame that may be incomplete.
struct Part<'a> {
    /// The bytes that are there.
    bytes: &'a [u8],
    /// Its full length.
    len: usize,
}

impl Part<'_> {
    fn is_whole(&self) -> bool {
        self.bytes.len() == self.len
    }
}

fn prefixed(sample: Sample<'_>, scores: &mut Scores) {
    let mut rest = sample.bytes;
    let mut batches = BTreeSet::new();
    for _ in 0..FRAMES {
        let Some((length, behind)) = rest.split_first_chunk::<4>() else {
            break;
        };
        let len = u32::from_be_bytes(*length) as usize;
        if len > sample.max_frame {
            break;
        }
        let (bytes, behind) = behind.split_at(len.min(behind.len()));
        let part = Part { bytes, len };
        scores.look(Framing::Prefixed);
        loro_payload(&part, &mut batches, scores);
        if is_loro_frame(&part) {
            scores.add(Format::LoroFrames, SURE, "loro frames");
        }
        if let Some(points) = rpc(&part) {
            scores.add(Format::Vscode, points, "VSCode RPC messages");
        }
        rest = behind;
    }
}

fn loro_payload<'a>(part: &Part<'a>, batches: &mut BTreeSet<&'a [u8]>, scores: &mut Scores) {
    match part.bytes {
        [0, frame @ ..] => {
            let inner = Part {
                bytes: frame,
                len: part.len - 1,
            };
            let sure = is_loro_frame(&inner) || rpc(&inner).is_some();
            let points = if sure { SURE } else { HINT };
            scores.add(Format::Loro, points, "loro payloads");
        }
        [1, header @ ..] if part.len == 17 && header.len() == 16 => {
            batches.insert(&header[..8]);
            let points = if header[8..12] == [0; 4] { HINT } else { SURE };
            scores.add(Format::Loro, points, "loro fragments");
        }
        [2, data @ ..] if part.len >= 14 && data.len() >= 12 => {
            let points = if batches.contains(&data[..8]) {
                SURE
            } else {
                2
            };
            scores.add(Format::Loro, points, "loro fragments");
        }
        _ => {}
    }
}

/// Whether version, flags and length match a loro frame.
fn is_loro_frame(part: &Part<'_>) -> bool {
    let Some(([loro::WIRE_VERSION, flags, length @ ..], _)) =
        part.bytes.split_first_chunk::<{ loro::HEADER_LEN }>()
    else {
        return false;
    };
    let declared = u32::from_be_bytes(*length) as usize;
    *flags <= 3 && declared > 0 && loro::HEADER_LEN + declared == part.len
}

/// The points of a frame as a VSCode RPC message.
fn rpc(part: &Part<'_>) -> Option<u32> {
    if let [1..=3] = part.bytes
        && part.is_whole()
    {
        return Some(2);
    }
    let header = vscode::Header::read(part.bytes)?;
    let decoded = vscode::decode(
        Bytes::copy_from_slice(part.bytes),
        &vscode::Limits::default(),
    );
    let sure = match decoded {
        // The original allows trailing bytes, but no implementation sends any.
        Ok(message) => vscode::encoded_len(&message).is_ok_and(|len| len == part.len),
        Err(_) if part.is_whole() => false,
        Err(_) if header.message_type.is_request() => has_method(part.bytes),
        Err(_) => {
            let length = part.bytes.get(5..9).and_then(|bytes| bytes.try_into().ok());
            length.is_some_and(|length| u32::from_be_bytes(length) as usize + 9 <= part.len)
        }
    };
    sure.then_some(SURE)
}

/// Whether an incomplete request names an object and a method.
fn has_method(bytes: &[u8]) -> bool {
    let Some((&[rpc_id, len], rest)) = bytes.get(5..).and_then(|rest| rest.split_first_chunk())
    else {
        return false;
    };
    let method = rest.get(..usize::from(len));
    rpc_id > 0
        && method.is_some_and(|method| {
            !method.is_empty() && method.iter().all(|byte| byte.is_ascii_graphic())
        })
}

fn ipc_stream(sample: Sample<'_>, scores: &mut Scores) {
    let mut rest = sample.bytes;
    for _ in 0..FRAMES {
        let Some((header, behind)) = rest.split_first_chunk::<{ ipc::Header::LEN }>() else {
            break;
        };
        let header = ipc::Header::read(header);
        let len = header.len as usize;
        if matches!(header.frame_type, ipc::FrameType::Unknown(_)) || len > sample.max_frame {
            break;
        }
        let (bytes, behind) = behind.split_at(len.min(behind.len()));
        let part = Part { bytes, len };
        scores.look(Framing::Ipc);
        let points = match header.frame_type {
            ipc::FrameType::Regular => match rpc(&part) {
                Some(points) => points,
                None if bytes.first() == Some(&b'{') => HINT,
                None => 1,
            },
            ipc::FrameType::Control => 1,
            _ if len == 0 => HINT,
            _ => break,
        };
        scores.add(Format::Ipc, points, "ipc.net headers");
        rest = behind;
    }
}
