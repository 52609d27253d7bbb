//! Finds the frames in a stream of bytes: lines, `Content-Length` headers, or headers of a fixed size.
//!
//! The decoder has one buffer. A small frame is copied out of it; a large frame takes the whole
//! buffer, so that no large frame is copied. The search for a line's end continues where the last
//! one stopped.

mod headers;
mod http;
mod length_field;
mod unreadable;

use std::fmt;
use std::str::FromStr;

use breakbulk_link::Carries;
use bytes::Bytes;
use memchr::memchr;

use crate::json_scan::JsonScan;
pub use crate::json_scan::Members;
use headers::{content_length, headers_end};
use http::Beginning;
pub use length_field::LengthField;
use unreadable::HEADERS;
pub use unreadable::Unreadable;

/// How much is read at first. A stream with little traffic never holds a larger buffer.
const FIRST_STEP: usize = 8 << 10;

/// How much is read at a time after a read that brought as much as was asked for; for large frames more
/// is read.
const STEP: usize = 64 << 10;

/// The most that is read at a time: bytes that follow a large frame must be copied.
const MAX_STEP: usize = 256 << 10;

/// A frame of at least this size takes the whole buffer.
const LARGE: usize = 32 << 10;

/// A frame larger than this is not even skipped: it is an error.
const SKIP_MAX: u64 = 1 << 40;

/// How much of a truncated message an error shows.
const SHOWN: usize = 24;

/// How frames are delimited in a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Framing {
    /// One frame per line. `\r\n` is accepted too, and lines of white space only are skipped.
    #[default]
    Lines,
    /// `Content-Length: N`, an empty line, and N bytes, as LSP has it.
    ContentLength,
    /// Binary frames with a header of a fixed size.
    LengthField(LengthField),
}

impl FromStr for Framing {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "lines" => Ok(Self::Lines),
            "content-length" => Ok(Self::ContentLength),
            _ => Err(format!(
                "{text:?} is no framing; use lines or content-length"
            )),
        }
    }
}

impl fmt::Display for Framing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Lines => "lines",
            Self::ContentLength => "content-length",
            Self::LengthField(field) => field.name,
        })
    }
}

impl Framing {
    /// What is written before and after a frame of `len` bytes.
    pub fn around(self, len: usize) -> (String, &'static str) {
        match self {
            Self::Lines => (String::new(), "\n"),
            Self::ContentLength => (format!("Content-Length: {len}\r\n\r\n"), ""),
            Self::LengthField(_) => (String::new(), ""),
        }
    }

    /// Whether its frames are text or binary.
    pub fn carries(self) -> Carries {
        match self {
            Self::Lines | Self::ContentLength => Carries::Text,
            Self::LengthField(_) => Carries::Binary,
        }
    }
}

/// Finds frames in the bytes that were read.
#[derive(Debug)]
pub struct Decoder {
    framing: Framing,
    limit: usize,
    buffer: Vec<u8>,
    /// How much is read at a time.
    step: usize,
    /// Where the next frame begins. 0 before every read.
    start: usize,
    /// Up to here the search for the frame's end is done.
    scanned: usize,
    /// Where the body of the current frame begins and ends, once its headers were read.
    body: Option<(usize, usize)>,
    /// The JSON members to keep of frames over the limit, which are skipped; if `None`, such a
    /// frame is an error.
    keep_of_skipped: Option<&'static [&'static str]>,
    skip: Option<Skip>,
    /// Whether the beginning of the stream is still to be checked for HTTP.
    may_be_http: bool,
}

/// A frame that is being skipped.
#[derive(Debug, Default)]
struct Skip {
    scan: JsonScan,
    /// Bytes of it that were skipped so far.
    size: u64,
    /// The size that its header announced; `None` for a line.
    announced: Option<u64>,
    ends_in_cr: bool,
}

impl Decoder {
    /// A decoder for frames of at most `limit` bytes; a larger one is an error.
    pub fn new(framing: Framing, limit: usize) -> Self {
        Self {
            framing,
            limit,
            buffer: Vec::new(),
            step: FIRST_STEP,
            start: 0,
            scanned: 0,
            body: None,
            keep_of_skipped: None,
            skip: None,
            may_be_http: false,
        }
    }

    /// Refuses a stream that begins like a request or an answer of HTTP. Any web page can make a browser
    /// send a request to a port of this machine, and its body may hold valid frames.
    pub fn refuse_http(&mut self) {
        self.may_be_http = true;
    }

    /// With member names, a frame over the limit is skipped and reported as
    /// [`Unreadable::Oversized`] with these members of its JSON, and reading goes on after it. At
    /// most `limit` bytes of it are buffered.
    pub fn skip_oversized(&mut self, wanted: Option<&'static [&'static str]>) {
        self.keep_of_skipped = wanted;
    }

    /// Whether its frames are text or binary.
    pub fn carries(&self) -> Carries {
        self.framing.carries()
    }

    /// The buffered bytes of an unfinished frame.
    pub fn unfinished(&self) -> usize {
        self.buffer.len() - self.start
    }

    /// The memory of the buffer.
    pub(crate) fn capacity(&self) -> usize {
        self.buffer.capacity()
    }

    /// The memory that the buffer will have after [`space`](Self::space).
    pub(crate) fn needed(&self) -> usize {
        self.next_read().1
    }

    /// Reads less at a time, because there is no memory for more; false if that is the least already.
    pub(crate) fn read_less(&mut self) -> bool {
        let before = self.needed();
        self.release_empty();
        self.step = FIRST_STEP;
        self.needed() < before
    }

    /// If nothing is in the buffer, frees it unless it is small, and reads little at a time again.
    pub(crate) fn release_empty(&mut self) {
        if self.unfinished() == 0 {
            self.step = FIRST_STEP;
            if self.buffer.capacity() > FIRST_STEP {
                self.buffer = Vec::new();
                (self.start, self.scanned) = (0, 0);
            }
        }
    }

    /// Drops what is buffered: nothing more is read.
    pub(crate) fn forget(&mut self) {
        self.buffer = Vec::new();
        (self.start, self.scanned) = (0, 0);
        (self.body, self.skip) = (None, None);
    }

    /// The bytes that were read and belong to no frame yet, without blank space: the beginning of a frame,
    /// what of it is skipped already, and what follows the last frame.
    pub fn unframed(&self) -> u64 {
        /// A longer rest is not searched: it is hardly all white space.
        const BLANK: usize = 256;
        let skipped = self.skip.as_ref().map_or(0, |skip| skip.size);
        let rest = &self.buffer[self.start..];
        let is_text = self.framing.carries() == Carries::Text;
        match rest.is_empty() || is_text && rest.len() <= BLANK && rest.trim_ascii().is_empty() {
            true => skipped,
            false => skipped + rest.len() as u64,
        }
    }

    /// The buffer to append to, and how many bytes at most. Before this, call [`next`](Self::next)
    /// until it returns `None`.
    pub fn space(&mut self) -> (&mut Vec<u8>, usize) {
        if self.start > 0 {
            // Only the beginning of one frame is left, so each byte is moved at most once.
            self.buffer.drain(..self.start);
            self.scanned -= self.start;
            if let Some((from, to)) = &mut self.body {
                (*from, *to) = (*from - self.start, *to - self.start);
            }
            self.start = 0;
        }
        let (step, capacity) = self.next_read();
        if self.buffer.capacity() < capacity {
            self.buffer.reserve_exact(capacity - self.buffer.len());
        }
        (&mut self.buffer, step)
    }

    /// How many bytes are read next, and the memory that the buffer needs for that.
    fn next_read(&self) -> (usize, usize) {
        let len = self.unfinished();
        // A line needs room for the limit, one byte more and the line break to be recognized as too
        // long.
        let most = match (self.framing, self.body) {
            (Framing::Lines, _) => self.limit.saturating_add(2).saturating_sub(len),
            (_, Some((_, end))) if end - self.buffer.len() > STEP => end - self.buffer.len(),
            _ => self.limit.saturating_add(HEADERS + 4).saturating_sub(len),
        };
        let step = (len / 4).clamp(self.step, MAX_STEP).min(most).max(1);
        let capacity = match self.buffer.capacity() - len < step {
            true => len + (len / 4).max(step).min(most.max(1)),
            false => self.buffer.capacity(),
        };
        (step, capacity)
    }

    /// A read brought all that [`space`](Self::space) asked for: there may be much more.
    pub fn read_was_full(&mut self) {
        self.step = STEP;
    }

    /// The next complete frame: UTF-8 text, unless the framing is binary. After an error the stream cannot be
    /// read further, except after [`Unreadable::Oversized`].
    #[expect(clippy::should_implement_trait, reason = "it goes on after None")]
    pub fn next(&mut self) -> Option<Result<Bytes, Unreadable>> {
        loop {
            if self.skip.is_some() {
                return self.continue_skip();
            }
            if self.may_be_http {
                match http::beginning(&self.buffer[self.start..]) {
                    Beginning::Http => return Some(Err(Unreadable::Http)),
                    Beginning::Unknown => return None,
                    Beginning::Other => self.may_be_http = false,
                }
            }
            let found = match self.framing {
                Framing::Lines => self.line(),
                Framing::ContentLength => self.body(),
                Framing::LengthField(field) => self.field(field),
            };
            let (from, to, end) = match found {
                Err(error) => {
                    self.skip = self.begin_skip(&error);
                    if self.skip.is_none() {
                        return Some(Err(error));
                    }
                    continue;
                }
                Ok(None) => return None,
                Ok(Some(found)) => found,
            };
            if let Framing::LengthField(_) = self.framing {
                return Some(Ok(self.take(from, to, end)));
            }
            let Ok(text) = simdutf8::basic::from_utf8(&self.buffer[from..to]) else {
                return Some(Err(Unreadable::NotUtf8 { size: to - from }));
            };
            let is_skipped = match self.framing {
                Framing::Lines => is_blank(text),
                _ => text.is_empty(),
            };
            let frame = self.take(from, to, end);
            if !is_skipped {
                return Some(Ok(frame));
            }
        }
    }

    /// What is left at the end of the input, after [`next`](Self::next) has returned `None`: the
    /// last line without its line break if it is a complete JSON text, or an error.
    pub fn finish(&mut self) -> Option<Result<Bytes, Unreadable>> {
        let cut_body = |size, announced| Some(Err(Unreadable::CutBody { size, announced }));
        if let Some(skip) = self.skip.take() {
            return match skip.announced {
                Some(announced) => cut_body(skip.size, announced),
                None => Some(Err(skip.into_error(self.limit))),
            };
        }
        if let Some((from, to)) = self.body {
            let size = self.buffer.len() - from;
            return cut_body(size as u64, (to - from) as u64);
        }
        let size = self.unfinished();
        if let Framing::LengthField(_) = self.framing {
            return (size > 0).then_some(Err(Unreadable::CutHeaders { size }));
        }
        let rest = self.buffer[self.start..].trim_ascii_end();
        if rest.is_empty() {
            return None;
        }
        if self.framing == Framing::Lines && std::str::from_utf8(rest).is_ok_and(is_blank) {
            return None;
        }
        if self.framing == Framing::ContentLength {
            return Some(Err(Unreadable::CutHeaders { size }));
        }
        if JsonScan::is_complete_json(rest) && simdutf8::basic::from_utf8(rest).is_ok() {
            let (to, end) = (self.start + rest.len(), self.buffer.len());
            return Some(Ok(self.take(self.start, to, end)));
        }
        let start = &rest[..rest.len().min(SHOWN)];
        let start = String::from_utf8_lossy(start).into_owned();
        Some(Err(Unreadable::CutLine { size, start }))
    }

    /// Begins to skip the frame at `start`, if it is too large and frames are skipped.
    fn begin_skip(&self, error: &Unreadable) -> Option<Skip> {
        let announced = match *error {
            // A peer that counts binary frames would wait for the skipped one.
            _ if self.framing.carries() == Carries::Binary => return None,
            Unreadable::LineTooLong { .. } => None,
            Unreadable::TooLong { size, .. } if size <= SKIP_MAX => Some(size),
            _ => return None,
        };
        self.keep_of_skipped.map(|wanted| Skip {
            scan: JsonScan::new(wanted),
            announced,
            ..Skip::default()
        })
    }

    /// Discards the buffered part of the frame that is being skipped.
    fn continue_skip(&mut self) -> Option<Result<Bytes, Unreadable>> {
        let skip = self.skip.as_mut()?;
        let bytes = &self.buffer[self.start..];
        let (seen, line_end, is_done) = match skip.announced {
            None => match memchr(b'\n', bytes) {
                Some(at) => (at, 1, true),
                None => (bytes.len(), 0, false),
            },
            Some(announced) => {
                let left = announced - skip.size;
                let seen = usize::try_from(left).map_or(bytes.len(), |left| left.min(bytes.len()));
                (seen, 0, seen as u64 == left)
            }
        };
        skip.feed(&bytes[..seen]);
        if skip.size > SKIP_MAX {
            let limit = self.limit;
            return Some(Err(Unreadable::LineTooLong { limit }));
        }
        self.start += seen + line_end;
        if self.start == self.buffer.len() {
            // Releases the buffer, which may have grown to the limit.
            self.buffer = Vec::new();
            self.start = 0;
        }
        self.scanned = self.start;
        if !is_done {
            return None;
        }
        let skip = self.skip.take()?;
        Some(Err(skip.into_error(self.limit)))
    }

    /// The next line: where it begins, where it ends, where the next one begins.
    fn line(&mut self) -> Result<Option<(usize, usize, usize)>, Unreadable> {
        let found = memchr(b'\n', &self.buffer[self.scanned..]).map(|at| self.scanned + at);
        let end = found.unwrap_or(self.buffer.len());
        let crlf = end > self.start && self.buffer[end - 1] == b'\r';
        let to = end - usize::from(crlf);
        if found.is_some() && is_header(&self.buffer[self.start..to]) {
            return Err(Unreadable::WrongFraming {
                seen: Framing::ContentLength,
                expected: self.framing,
            });
        }
        if to - self.start > self.limit {
            return Err(Unreadable::LineTooLong { limit: self.limit });
        }
        self.scanned = end;
        Ok(found.map(|end| (self.start, to, end + 1)))
    }

    /// The next body after its headers: where it begins, where it ends, where the next frame begins.
    fn body(&mut self) -> Result<Option<(usize, usize, usize)>, Unreadable> {
        let (from, to) = match self.body {
            Some(body) => body,
            None => match self.headers()? {
                None => return Ok(None),
                Some(body) => *self.body.insert(body),
            },
        };
        Ok((self.buffer.len() >= to).then_some((from, to, to)))
    }

    /// The next frame with a length in its header: where it begins, where it ends, where the next one
    /// begins.
    fn field(&mut self, field: LengthField) -> Result<Option<(usize, usize, usize)>, Unreadable> {
        let Some(size) = field.frame_len(&self.buffer[self.start..]) else {
            return Ok(None);
        };
        let limit = self.limit;
        let length = usize::try_from(size).ok().filter(|&len| len <= limit);
        let Some(length) = length else {
            let name = field.name;
            return Err(Unreadable::FrameTooLong { name, size, limit });
        };
        let (from, to) = (self.start, self.start + length);
        self.body = Some((from, to));
        Ok((self.buffer.len() >= to).then_some((from, to, to)))
    }

    /// Parses the headers of the next frame: where its body begins and ends.
    fn headers(&mut self) -> Result<Option<(usize, usize)>, Unreadable> {
        // Skips empty lines between two frames.
        let is_break = |byte: &&u8| matches!(byte, b'\r' | b'\n');
        let breaks = self.buffer[self.start..].iter().take_while(is_break);
        self.start += breaks.count();
        self.scanned = self.scanned.max(self.start);
        let bytes = &self.buffer[self.start..];
        // JSON lines would otherwise be taken for headers until they are too long.
        if let Some(b'{' | b'[') = bytes.first() {
            return Err(Unreadable::WrongFraming {
                seen: Framing::Lines,
                expected: self.framing,
            });
        }
        // The end of the headers may begin in bytes that were searched before.
        let from = self.scanned.saturating_sub(self.start + 3);
        let Some((head, skip)) = headers_end(bytes, from) else {
            if bytes.len() > HEADERS {
                return Err(Unreadable::HeadersTooLong);
            }
            self.scanned = self.buffer.len();
            return Ok(None);
        };
        if head > HEADERS {
            return Err(Unreadable::HeadersTooLong);
        }
        let size = content_length(&bytes[..head])?;
        let length = usize::try_from(size).ok().filter(|&len| len <= self.limit);
        let from = self.start + head + skip;
        let Some(length) = length else {
            let limit = self.limit;
            // If the frame is skipped, skipping begins at the body.
            self.start = from;
            return Err(Unreadable::TooLong { size, limit });
        };
        Ok(Some((from, from + length)))
    }

    /// Takes a frame out of the buffer.
    fn take(&mut self, from: usize, to: usize, end: usize) -> Bytes {
        let frame = if to - from < LARGE {
            self.start = end;
            Bytes::copy_from_slice(&self.buffer[from..to])
        } else {
            let rest = self.buffer[end..].to_vec();
            let mut taken = std::mem::replace(&mut self.buffer, rest);
            self.start = 0;
            self.step = FIRST_STEP;
            taken.truncate(to);
            if from > LARGE {
                taken.drain(..from);
                taken.shrink_to_fit();
                Bytes::from(taken)
            } else {
                // Keeps the small part before it (headers, or small frames that came with it).
                taken.shrink_to_fit();
                Bytes::from(taken).slice(from..)
            }
        };
        if self.start == self.buffer.len() {
            self.buffer.clear();
            self.start = 0;
        }
        (self.scanned, self.body) = (self.start, None);
        frame
    }
}

impl Skip {
    fn feed(&mut self, bytes: &[u8]) {
        self.scan.feed(bytes);
        self.size += bytes.len() as u64;
        if let Some(last) = bytes.last() {
            self.ends_in_cr = *last == b'\r';
        }
    }

    /// The error that reports the skipped frame.
    fn into_error(self, limit: usize) -> Unreadable {
        let line_end = self.announced.is_none() && self.ends_in_cr;
        Unreadable::Oversized {
            size: self.size - u64::from(line_end),
            limit,
            members: self.scan.members(),
        }
    }
}

/// Whether a line holds nothing but white space, as JavaScript or Python trims it.
fn is_blank(line: &str) -> bool {
    line.chars()
        .all(|c| c.is_whitespace() || matches!(c, '\u{feff}' | '\u{1c}'..='\u{1f}'))
}

/// Whether a line is a header of the other framing; no JSON text begins like that.
fn is_header(line: &[u8]) -> bool {
    [&b"content-length:"[..], b"content-type:"]
        .iter()
        .any(|name| {
            let begin = line.get(..name.len());
            begin.is_some_and(|begin| begin.eq_ignore_ascii_case(name))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A search that starts again with each byte would look at 80 GB for a line of 400,000 bytes.
    #[test]
    fn the_search_for_a_lines_end_is_linear() {
        let mut decoder = Decoder::new(Framing::Lines, 1 << 20);
        let mut looked_at = 0;
        for byte in [vec![b'x'; 400_000], vec![b'\n']].concat() {
            decoder.space().0.push(byte);
            looked_at += decoder.buffer.len() - decoder.scanned;
            let line = decoder.next();
            assert_eq!(line.is_some(), byte == b'\n');
        }
        assert_eq!(looked_at, 400_001, "each byte once");
    }
}
