//! [`Text`]: a part of a received message, which keeps the message's memory charged.

use std::fmt;
use std::ops::{Deref, Range};
use std::sync::Arc;

use breakbulk_link::{Charge, Shape};
use breakbulk_message::jsonrpc::{range_in, string};
use bytes::Bytes;

/// A part of a received message. Clones share it.
///
/// The whole message stays in memory, and counts against the connection's budget, until the last of
/// its parts is dropped: copy a small part that is kept for long.
#[derive(Clone)]
pub struct Text {
    held: Arc<Held>,
    range: Range<usize>,
}

struct Held {
    text: String,
    _charge: Charge,
}

impl Text {
    /// A whole message; `None` if it is not UTF-8.
    pub(super) fn new(bytes: Bytes, charge: Charge) -> Option<Self> {
        let text = String::from_utf8(Vec::from(bytes)).ok()?;
        Some(Self {
            range: 0..text.len(),
            held: Arc::new(Held {
                text,
                _charge: charge,
            }),
        })
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        self.held.text.get(self.range.clone()).unwrap_or_default()
    }

    /// Makes a `Text` of `part`, a slice of [`as_str`](Self::as_str).
    pub(super) fn part(&self, part: &str) -> Self {
        let range = range_in(&self.held.text, part);
        Self {
            held: self.held.clone(),
            range,
        }
    }

    /// The part in this range of the whole message.
    pub(super) fn at(&self, range: Option<Range<usize>>) -> Option<Self> {
        let text = self.held.text.get(range?)?;
        Some(self.part(text))
    }

    /// The method of a whole message, unescaped.
    pub(super) fn method(&self, shape: &Shape) -> Option<String> {
        let range = shape.method.clone()?;
        let quoted = self
            .held
            .text
            .get(range.start.checked_sub(1)?..range.end + 1)?;
        Some(string(serde_json::from_str(quoted).ok()?)?.into_owned())
    }

    /// Drops this many bytes at the front.
    pub(super) fn skip(&mut self, bytes: usize) {
        self.range.start = (self.range.start + bytes).min(self.range.end);
    }
}

impl Deref for Text {
    type Target = str;

    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl PartialEq<&str> for Text {
    fn eq(&self, other: &&str) -> bool {
        self.as_str() == *other
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self)
    }
}

/// Shortens long texts: a state may have megabytes.
impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 120;
        let text = self.as_str();
        let end = text.floor_char_boundary(SHOWN);
        write!(f, "{:?}", &text[..end])?;
        if end < text.len() {
            write!(f, "… {} bytes", text.len())?;
        }
        Ok(())
    }
}
