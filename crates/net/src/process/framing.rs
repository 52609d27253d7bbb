//! Where a frame begins and ends in a stream of bytes.
//!
//! The decoder holds one buffer. A small frame is copied out of it; a large one takes the buffer with
//! it, so that nothing large is copied twice. The search for a line's end goes on where it stopped.

mod glance;
mod unreadable;

use std::fmt;
use std::str::FromStr;

use bytes::Bytes;
use memchr::{memchr, memchr_iter, memmem};

use glance::Glance;
pub use glance::Members;
use unreadable::HEADERS;
pub use unreadable::Unreadable;

/// So much is read at a time, until a frame is larger than that.
const STEP: usize = 64 << 10;

/// The most that is read at a time: what lies behind a large frame is copied.
const MAX_STEP: usize = 256 << 10;

/// A frame at least this large takes the buffer with it.
const LARGE: usize = 32 << 10;

/// Nobody waits for the end of a frame that is larger than this, not even to skip it.
const SKIP_MAX: u64 = 1 << 40;

/// How much of a message that was cut off is shown.
const SHOWN: usize = 24;

/// How frames lie in a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Framing {
    /// One text a line. `\r\n` is read too, and empty lines are skipped.
    #[default]
    Lines,
    /// `Content-Length: N`, an empty line, and N bytes, as LSP has it.
    ContentLength,
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
        })
    }
}

impl Framing {
    /// What goes before a frame of so many bytes, and what goes after it.
    pub fn around(self, len: usize) -> (String, &'static str) {
        match self {
            Self::Lines => (String::new(), "\n"),
            Self::ContentLength => (format!("Content-Length: {len}\r\n\r\n"), ""),
        }
    }
}

/// Finds frames in what was read.
#[derive(Debug)]
pub struct Decoder {
    framing: Framing,
    limit: usize,
    buffer: Vec<u8>,
    /// Where the next frame begins. 0 before every read.
    start: usize,
    /// Up to here nobody needs to look again.
    scanned: usize,
    /// Of a frame whose headers are read: where its body begins and ends.
    body: Option<(usize, usize)>,
    /// The members that are kept of what is skipped; `None`: what is over the limit is an error.
    skips: Option<&'static [&'static str]>,
    skip: Option<Skip>,
}

/// A frame that is skipped.
#[derive(Debug, Default)]
struct Skip {
    glance: Glance,
    /// Bytes of it that went by.
    size: u64,
    /// The size that was announced; without one it goes to the line's end.
    announced: Option<u64>,
    ends_in_cr: bool,
}

impl Decoder {
    /// Frames of at most `limit` bytes; a larger one cannot be read.
    pub fn new(framing: Framing, limit: usize) -> Self {
        Self {
            framing,
            limit,
            buffer: Vec::new(),
            start: 0,
            scanned: 0,
            body: None,
            skips: None,
            skip: None,
        }
    }

    /// Whether a frame over the limit is skipped to its end and told as [`Unreadable::Oversized`], with
    /// the members of these names, after which the stream is read on. No more than the limit is ever held
    /// of it.
    pub fn skip_oversized(&mut self, wanted: Option<&'static [&'static str]>) {
        self.skips = wanted;
    }

    /// Bytes of an unfinished frame.
    pub fn unfinished(&self) -> usize {
        self.buffer.len() - self.start
    }

    /// The buffer to append to, and at most how many bytes; call [`next`](Self::next) until it gives
    /// nothing before.
    pub fn space(&mut self) -> (&mut Vec<u8>, usize) {
        if self.start > 0 {
            // Only the beginning of one frame is left, and it moves once.
            self.buffer.drain(..self.start);
            self.scanned -= self.start;
            if let Some((from, to)) = &mut self.body {
                (*from, *to) = (*from - self.start, *to - self.start);
            }
            self.start = 0;
        }
        let len = self.buffer.len();
        // One byte over the limit, and the line's end, are enough to tell that it is over.
        let most = match (self.framing, self.body) {
            (Framing::Lines, _) => self.limit.saturating_add(2) - len,
            (_, Some((_, end))) if end - len > STEP => end - len,
            _ => self.limit.saturating_add(HEADERS + 4).saturating_sub(len),
        };
        let step = (len / 4).clamp(STEP, MAX_STEP).min(most).max(1);
        if self.buffer.capacity() - len < step {
            let more = (len / 4).max(step).min(most.max(1));
            self.buffer.reserve_exact(more);
        }
        (&mut self.buffer, step)
    }

    /// The next whole frame, as text. After an error the stream cannot be read on, but for
    /// [`Unreadable::Oversized`].
    #[expect(clippy::should_implement_trait, reason = "it goes on after None")]
    pub fn next(&mut self) -> Option<Result<Bytes, Unreadable>> {
        loop {
            if self.skip.is_some() {
                return self.skip_on();
            }
            let found = match self.framing {
                Framing::Lines => self.line(),
                Framing::ContentLength => self.announced(),
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
            let text = simdutf8::basic::from_utf8(&self.buffer[from..to]);
            if text.is_err() {
                return Some(Err(Unreadable::NotUtf8 { size: to - from }));
            }
            let frame = self.take(from, to, end);
            if !frame.is_empty() {
                return Some(Ok(frame));
            }
        }
    }

    /// What is left at the end of the input, when [`next`](Self::next) gives nothing more: a last line
    /// without its line break, if it is whole.
    pub fn finish(&mut self) -> Option<Result<Bytes, Unreadable>> {
        let cut_body = |size, announced| Some(Err(Unreadable::CutBody { size, announced }));
        if let Some(skip) = self.skip.take() {
            return match skip.announced {
                Some(announced) => cut_body(skip.size, announced),
                None => Some(Err(skip.told(self.limit))),
            };
        }
        if let Some((from, to)) = self.body {
            let size = self.buffer.len() - from;
            return cut_body(size as u64, (to - from) as u64);
        }
        let size = self.unfinished();
        let rest = self.buffer[self.start..].trim_ascii_end();
        if rest.is_empty() {
            return None;
        }
        if self.framing == Framing::ContentLength {
            return Some(Err(Unreadable::CutHeaders { size }));
        }
        if Glance::is_whole_json(rest) && simdutf8::basic::from_utf8(rest).is_ok() {
            let (to, end) = (self.start + rest.len(), self.buffer.len());
            return Some(Ok(self.take(self.start, to, end)));
        }
        let start = &rest[..rest.len().min(SHOWN)];
        let start = String::from_utf8_lossy(start).into_owned();
        Some(Err(Unreadable::CutLine { size, start }))
    }

    /// Whether the frame at `start` can be skipped.
    fn begin_skip(&self, error: &Unreadable) -> Option<Skip> {
        let announced = match *error {
            Unreadable::LineTooLong { .. } => None,
            Unreadable::TooLong { size, .. } if size <= SKIP_MAX => Some(size),
            _ => return None,
        };
        self.skips.map(|wanted| Skip {
            glance: Glance::at(wanted),
            announced,
            ..Skip::default()
        })
    }

    /// Lets go of what is there of the frame that is skipped.
    fn skip_on(&mut self) -> Option<Result<Bytes, Unreadable>> {
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
        skip.see(&bytes[..seen]);
        if skip.size > SKIP_MAX {
            let limit = self.limit;
            return Some(Err(Unreadable::LineTooLong { limit }));
        }
        self.start += seen + line_end;
        if self.start == self.buffer.len() {
            // It may have grown to the limit.
            self.buffer = Vec::new();
            self.start = 0;
        }
        self.scanned = self.start;
        if !is_done {
            return None;
        }
        let skip = self.skip.take()?;
        Some(Err(skip.told(self.limit)))
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

    /// The next body, likewise.
    fn announced(&mut self) -> Result<Option<(usize, usize, usize)>, Unreadable> {
        let (from, to) = match self.body {
            Some(body) => body,
            None => match self.headers()? {
                None => return Ok(None),
                Some(body) => *self.body.insert(body),
            },
        };
        Ok((self.buffer.len() >= to).then_some((from, to, to)))
    }

    fn headers(&mut self) -> Result<Option<(usize, usize)>, Unreadable> {
        // Empty lines between two frames are nothing.
        let is_break = |byte: &&u8| matches!(byte, b'\r' | b'\n');
        let breaks = self.buffer[self.start..].iter().take_while(is_break);
        self.start += breaks.count();
        self.scanned = self.scanned.max(self.start);
        let bytes = &self.buffer[self.start..];
        // Lines would be waited for until they are longer than headers may be.
        if let Some(b'{' | b'[') = bytes.first() {
            return Err(Unreadable::WrongFraming {
                seen: Framing::Lines,
                expected: self.framing,
            });
        }
        // An end may lie across what was looked at before.
        let look = self.scanned.saturating_sub(self.start + 3);
        let Some((head, skip)) = headers_end(bytes, look) else {
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
            // Who skips it begins with the body.
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
            taken.truncate(to);
            if from > LARGE {
                taken.drain(..from);
                taken.shrink_to_fit();
                Bytes::from(taken)
            } else {
                // What is before it is small: headers, or small frames that came with it.
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
    fn see(&mut self, bytes: &[u8]) {
        self.glance.see(bytes);
        self.size += bytes.len() as u64;
        if let Some(last) = bytes.last() {
            self.ends_in_cr = *last == b'\r';
        }
    }

    /// What is told of it.
    fn told(self, limit: usize) -> Unreadable {
        let line_end = self.announced.is_none() && self.ends_in_cr;
        Unreadable::Oversized {
            size: self.size - u64::from(line_end),
            limit,
            members: self.glance.members(),
        }
    }
}

/// Whether a line is a header of the other framing: no JSON text begins so.
fn is_header(line: &[u8]) -> bool {
    [&b"content-length:"[..], b"content-type:"]
        .iter()
        .any(|name| {
            let begin = line.get(..name.len());
            begin.is_some_and(|begin| begin.eq_ignore_ascii_case(name))
        })
}

/// Where the headers end, and how long the empty line after them is. Lines may end without `\r`.
fn headers_end(bytes: &[u8], from: usize) -> Option<(usize, usize)> {
    let from = from.min(bytes.len());
    let after = |at: usize| from + at + 1;
    memchr_iter(b'\n', &bytes[from..])
        .map(after)
        .find_map(|at| match bytes[at..] {
            [b'\n', ..] => Some((at, 1)),
            [b'\r', b'\n', ..] => Some((at, 2)),
            _ => None,
        })
}

fn content_length(headers: &[u8]) -> Result<u64, Unreadable> {
    let bad = |what| Unreadable::BadHeader { what };
    let mut length = None;
    for line in headers.split(|&byte| byte == b'\n') {
        let line = line.trim_ascii();
        if line.is_empty() {
            continue;
        }
        let colon = memchr(b':', line).ok_or(bad("a line without a colon"))?;
        let (name, value) = (line[..colon].trim_ascii(), line[colon + 1..].trim_ascii());
        if name.eq_ignore_ascii_case(b"content-length") {
            if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
                return Err(bad("a Content-Length that is no number"));
            }
            let digit = |sum: u64, digit: &u8| {
                let digit = u64::from(digit - b'0');
                sum.saturating_mul(10).saturating_add(digit)
            };
            let value = value.iter().fold(0, digit);
            if length.is_some_and(|before| before != value) {
                return Err(bad("two different Content-Lengths"));
            }
            length = Some(value);
        } else if name.eq_ignore_ascii_case(b"content-type") && !is_utf8(value) {
            return Err(bad("a charset that is not utf-8"));
        }
    }
    length.ok_or(Unreadable::NoLength)
}

/// Whether a content type says UTF-8, or nothing of it. LSP has `utf8` as well.
fn is_utf8(content_type: &[u8]) -> bool {
    let lower = content_type.to_ascii_lowercase();
    let Some(at) = memmem::find(&lower, b"charset=") else {
        return true;
    };
    let charset = lower[at + b"charset=".len()..].trim_ascii_start();
    let charset = charset.strip_prefix(b"\"").unwrap_or(charset);
    charset.starts_with(b"utf-8") || charset.starts_with(b"utf8")
}
