//! Finds WebSocket frames in a byte stream, and decides which of them may be forwarded.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::close::Violation;
use super::counts::Passed;
use super::meter::Left;
use super::weather::{Direction, Refusal, Way};

/// The longest HTTP head of a handshake.
const HEAD_CAP: usize = 64 * 1024;

/// The longest frame header: two bytes, a 64-bit length, a masking key.
const HEADER_CAP: usize = 14;

/// The longest payload of a control frame.
const CONTROL_CAP: u64 = 125;

/// Follows one direction of a connection. It holds back only an unfinished frame header.
#[derive(Debug)]
pub(super) struct Scanner {
    direction: Direction,
    stage: Stage,
    held: Bytes14,
    /// The payload size of the current message, including the current frame.
    message: u64,
    /// What follows the current payload is left out: so many bytes of its frame, and whether further
    /// frames of its message.
    cut_off: Option<(u64, bool)>,
    /// The rest of a message that was cut off is left out.
    skips_message: bool,
    /// Set when the target answered the handshake with a status other than 101.
    not_upgraded: Arc<AtomicBool>,
}

#[derive(Debug)]
enum Stage {
    /// In the HTTP head: its size so far, its first bytes, and how much of the blank line was seen.
    Head {
        size: usize,
        start: [u8; 12],
        blank: usize,
    },
    Header,
    Payload {
        header: Header,
        left: u64,
    },
    /// In the part of a frame that is left out.
    Skip {
        left: u64,
    },
    /// A stream without frames.
    Plain,
}

/// What to do with a chunk: write `lead`, then `chunk[start..end]`, then act on the verdict.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Scan {
    /// A header whose first part was held back.
    pub(super) lead: Bytes14,
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) passed: Passed,
    pub(super) verdict: Verdict,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Pass,
    /// The chunk is to be scanned again from `end` on.
    Again,
    /// Everything before the scheduled cut was forwarded.
    CutReached,
    Violation(Violation),
    LongHead,
}

impl Scanner {
    /// One scanner for each direction of a connection, that from the client first.
    pub(super) fn pair(websocket: bool) -> [Self; 2] {
        let not_upgraded = Arc::new(AtomicBool::new(false));
        [Direction::FromClient, Direction::FromTarget].map(|direction| Self {
            direction,
            stage: if websocket {
                Stage::Head {
                    size: 0,
                    start: [0; 12],
                    blank: 0,
                }
            } else {
                Stage::Plain
            },
            held: Bytes14::default(),
            message: 0,
            cut_off: None,
            skips_message: false,
            not_upgraded: not_upgraded.clone(),
        })
    }

    /// Whether a frame of the proxy's own may be written now.
    pub(super) fn at_boundary(&self) -> bool {
        matches!(self.stage, Stage::Header)
    }

    pub(super) fn in_head(&self) -> bool {
        matches!(self.stage, Stage::Head { .. })
    }

    /// Scans a chunk; if `stop_requested`, up to the next frame boundary.
    pub(super) fn scan(
        &mut self,
        chunk: &[u8],
        way: &Way,
        mut left: Left,
        stop_requested: bool,
    ) -> Scan {
        let mut scan = Scan {
            lead: Bytes14::default(),
            start: 0,
            end: 0,
            passed: Passed::default(),
            verdict: Verdict::Pass,
        };
        loop {
            if left.is_used_up() && !self.in_head() {
                scan.verdict = Verdict::CutReached;
                return scan;
            }
            let rest = &chunk[scan.end..];
            if rest.is_empty() || (stop_requested && self.at_boundary()) {
                return scan;
            }
            match &mut self.stage {
                Stage::Head { .. } => match self.head(rest) {
                    Some(taken) => scan.end += taken,
                    None => {
                        scan.verdict = Verdict::LongHead;
                        return scan;
                    }
                },
                Stage::Skip { left: skipped } => {
                    if scan.has_bytes() {
                        scan.verdict = Verdict::Again;
                        return scan;
                    }
                    let taken = rest.len().min(clip(*skipped));
                    *skipped -= taken as u64;
                    let is_over = *skipped == 0;
                    (scan.start, scan.end) = (scan.end + taken, scan.end + taken);
                    if is_over {
                        self.stage = Stage::Header;
                    }
                }
                Stage::Plain => {
                    let taken = rest.len().min(clip(left.bytes));
                    scan.end += taken;
                    self.pass(&mut scan, &mut left, taken);
                }
                Stage::Header => {
                    // A client whose handshake was refused goes on with HTTP.
                    if self.held.is_empty() && self.not_upgraded.load(Ordering::Relaxed) {
                        self.stage = Stage::Plain;
                    } else if !self.header(rest, way, &mut left, &mut scan) {
                        return scan;
                    }
                }
                Stage::Payload { left: payload, .. } => {
                    let taken = rest.len().min(clip(*payload)).min(clip(left.bytes));
                    *payload -= taken as u64;
                    scan.end += taken;
                    self.pass(&mut scan, &mut left, taken);
                    self.finish_frame(&mut scan, &mut left);
                }
            }
        }
    }

    /// Scans the HTTP head up to its blank line; `None` if it is too long.
    fn head(&mut self, bytes: &[u8]) -> Option<usize> {
        let Stage::Head { size, start, blank } = &mut self.stage else {
            return Some(0);
        };
        for (taken, byte) in (1..).zip(bytes) {
            if *size == HEAD_CAP {
                return None;
            }
            if let Some(place) = start.get_mut(*size) {
                *place = *byte;
            }
            *size += 1;
            *blank = match (*blank, byte) {
                (0 | 2, b'\r') | (1 | 3, b'\n') => *blank + 1,
                (_, b'\r') => 1,
                _ => 0,
            };
            if *blank == 4 {
                let refused = self.direction == Direction::FromTarget && &start[8..] != b" 101";
                self.stage = if refused {
                    self.not_upgraded.store(true, Ordering::Relaxed);
                    Stage::Plain
                } else {
                    Stage::Header
                };
                return Some(taken);
            }
        }
        Some(bytes.len())
    }

    /// Scans a frame's header; `false` ends the scan.
    fn header(&mut self, bytes: &[u8], way: &Way, left: &mut Left, scan: &mut Scan) -> bool {
        let held = std::mem::take(&mut self.held);
        let mut all = held;
        let added = all.fill(bytes);
        let Some(header) = Header::read(all.as_slice()) else {
            // The rest of the chunk is a part of a header; a cut by bytes may be within it.
            if all.len() as u64 >= left.bytes {
                self.clipped(&all, &held, left, scan);
                return false;
            }
            self.held = all;
            scan.start = if held.is_empty() { scan.start } else { added };
            scan.end = scan.end.max(scan.start);
            return false;
        };
        let is_rest = self.skips_message && header.opcode == 0;
        let violation = match is_rest {
            true => None,
            false => self.check(&header, way).err(),
        };
        let refusal = violation.map(|violation| (violation, violation.refusal(way)));
        if let Some((violation, Refusal::Close(_) | Refusal::End | Refusal::Reset)) = refusal {
            scan.passed.block(violation.size());
            scan.verdict = Verdict::Violation(violation);
            return false;
        }
        if is_rest || refusal.is_some() {
            // What is left out, or changed, stands at the beginning of a scan.
            if scan.has_bytes() {
                scan.verdict = Verdict::Again;
                return false;
            }
            let after = scan.end + header.size - held.len();
            (scan.start, scan.end) = (after, after);
            self.leave_out(&header, &all, refusal, scan);
            return true;
        }
        all.truncate(header.size);
        if header.size as u64 > left.bytes {
            self.clipped(&all, &held, left, scan);
            return false;
        }
        let taken = header.size - held.len();
        scan.end += taken;
        if !held.is_empty() {
            // Only the first header of a chunk can have been held back.
            scan.lead = all;
            scan.start = taken;
        }
        self.pass(scan, left, header.size);
        self.stage = Stage::Payload {
            left: header.length,
            header,
        };
        self.finish_frame(scan, left);
        true
    }

    /// Leaves out a frame, or a part of it, without ending the connection.
    fn leave_out(
        &mut self,
        header: &Header,
        all: &Bytes14,
        refusal: Option<(Violation, Refusal)>,
        scan: &mut Scan,
    ) {
        if let Some((violation, _)) = refusal {
            scan.passed.block(violation.size());
        }
        match refusal {
            Some((
                Violation::Frame { cap, .. } | Violation::Message { cap, .. },
                Refusal::Truncate,
            )) => {
                self.truncate(header, all, cap, scan);
            }
            // Everything that follows is left out: more bytes than ever come.
            Some((_, Refusal::Silence)) => self.skip(u64::MAX),
            Some(_) => self.skip(header.length),
            None => {
                self.skips_message = !header.last;
                self.skip(header.length);
            }
        }
    }

    /// Leaves out this many bytes.
    fn skip(&mut self, left: u64) {
        self.stage = match left {
            0 => Stage::Header,
            left => Stage::Skip { left },
        };
    }

    /// Forwards what fits of a frame as the last one of its message.
    fn truncate(&mut self, header: &Header, all: &Bytes14, cap: u64, scan: &mut Scan) {
        let begun = if header.opcode == 0 { self.message } else { 0 };
        let fits = cap.saturating_sub(begun).min(header.length);
        scan.lead = header.shortened(all.as_slice(), fits);
        self.message = begun + fits;
        self.cut_off = Some((header.length - fits, !header.last));
        self.stage = Stage::Payload {
            left: fits,
            header: Header {
                last: true,
                length: fits,
                ..*header
            },
        };
        scan.passed.bytes += scan.lead.len() as u64;
        self.finish_frame(scan, &mut { Left::ALL });
    }

    /// Forwards the part of a header that is before the cut.
    fn clipped(&mut self, all: &Bytes14, held: &Bytes14, left: &mut Left, scan: &mut Scan) {
        let taken = clip(left.bytes).min(all.len());
        if held.is_empty() {
            scan.end += taken;
        } else {
            scan.lead = *all;
            scan.lead.truncate(taken);
        }
        self.pass(scan, left, taken);
        scan.verdict = Verdict::CutReached;
    }

    /// Checks whether a frame may be forwarded, before any of it is.
    fn check(&mut self, header: &Header, way: &Way) -> Result<(), Violation> {
        let size = header.length;
        if header.is_control() && size <= CONTROL_CAP {
            return Ok(());
        }
        if let Some(cap) = way.frame_cap.filter(|cap| size > *cap) {
            return Err(Violation::Frame { size, cap });
        }
        if header.is_control() {
            return Ok(());
        }
        if way.text_only && header.opcode == 2 {
            return Err(Violation::Binary);
        }
        let begun = if header.opcode == 0 { self.message } else { 0 };
        let size = begun.saturating_add(size);
        if let Some(cap) = way.message_cap.filter(|cap| size > *cap) {
            return Err(Violation::Message { size, cap });
        }
        self.message = size;
        Ok(())
    }

    fn pass(&self, scan: &mut Scan, left: &mut Left, bytes: usize) {
        scan.passed.bytes += bytes as u64;
        if left.bytes != u64::MAX {
            left.bytes -= bytes as u64;
        }
    }

    fn finish_frame(&mut self, scan: &mut Scan, left: &mut Left) {
        let Stage::Payload { header, left: 0 } = &self.stage else {
            return;
        };
        let passed = &mut scan.passed;
        if header.is_control() {
            passed.control_frames += 1;
        } else {
            passed.frames += 1;
            passed.largest_frame = passed.largest_frame.max(header.length);
            if left.frames != u64::MAX {
                left.frames -= 1;
            }
            if header.last {
                passed.messages += 1;
                passed.largest_message = passed.largest_message.max(self.message);
            }
        }
        self.stage = Stage::Header;
        if let Some((rest, further)) = self.cut_off.take() {
            self.skips_message = further;
            self.skip(rest);
        }
    }
}

impl Scan {
    /// Whether there is anything to write yet.
    fn has_bytes(&self) -> bool {
        !self.lead.is_empty() || self.end > self.start
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Header {
    last: bool,
    opcode: u8,
    length: u64,
    size: usize,
}

impl Header {
    fn read(bytes: &[u8]) -> Option<Self> {
        let (&[first, second], rest) = bytes.split_first_chunk()?;
        let (length, rest) = match second & 0x7f {
            126 => {
                let (length, rest) = rest.split_first_chunk()?;
                (u16::from_be_bytes(*length).into(), rest)
            }
            127 => {
                let (length, rest) = rest.split_first_chunk()?;
                (u64::from_be_bytes(*length), rest)
            }
            length => (length.into(), rest),
        };
        let key = if second & 0x80 == 0 { 0 } else { 4 };
        let rest = rest.get(key..)?;
        Some(Self {
            last: first & 0x80 != 0,
            opcode: first & 0x0f,
            length,
            size: bytes.len() - rest.len(),
        })
    }

    fn is_control(&self) -> bool {
        self.opcode & 8 != 0
    }

    /// The same header for a last frame of another length.
    fn shortened(&self, bytes: &[u8], length: u64) -> Bytes14 {
        let masked = bytes[1] & 0x80;
        let key = if masked == 0 { 0 } else { 4 };
        let mut header = Bytes14::default();
        header.fill(&[bytes[0] | 0x80]);
        match length {
            0..126 => header.fill(&[masked | length as u8]),
            126..0x1_0000 => {
                header.fill(&[masked | 126]);
                header.fill(&(length as u16).to_be_bytes())
            }
            _ => {
                header.fill(&[masked | 127]);
                header.fill(&length.to_be_bytes())
            }
        };
        header.fill(&bytes[self.size - key..self.size]);
        header
    }
}

/// A buffer for at most one frame header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Bytes14 {
    bytes: [u8; HEADER_CAP],
    length: usize,
}

impl Bytes14 {
    pub(super) fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    pub(super) fn is_empty(&self) -> bool {
        self.length == 0
    }

    fn len(&self) -> usize {
        self.length
    }

    /// Appends as much as fits, and returns how much.
    fn fill(&mut self, from: &[u8]) -> usize {
        let room = &mut self.bytes[self.length..];
        let added = room.len().min(from.len());
        room[..added].copy_from_slice(&from[..added]);
        self.length += added;
        added
    }

    fn truncate(&mut self, length: usize) {
        self.length = self.length.min(length);
    }
}

/// Converts a 64-bit length, which only limits a slice here and never allocates.
fn clip(length: u64) -> usize {
    usize::try_from(length).unwrap_or(usize::MAX)
}

#[cfg(test)]
#[path = "frames_tests.rs"]
mod tests;
