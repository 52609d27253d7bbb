//! The last messages of a session.

use std::time::{Instant, SystemTime};

use breakbulk_link::{Budget, Held, Shape};
use breakbulk_net::{now, plain_text};

use super::view::{MessageView, milliseconds};
use crate::pump::Side;

/// The longest method or id that is kept, in bytes.
const NAME: usize = 64;

/// What is noted about a message while it waits to be sent.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Noted {
    /// It arrived on the other side at this time; the number says which of the kept messages it is.
    Passed {
        /// When.
        at: Instant,
        /// Its number.
        number: u64,
    },
    /// The gateway made it, in the place of another one.
    Made,
    /// A word between two gateways, which is no message of a program.
    Word,
}

/// A short text without an allocation of its own.
#[derive(Clone, Copy)]
struct Name {
    bytes: [u8; NAME],
    length: u8,
}

impl Name {
    /// The beginning of a text.
    fn of(text: &[u8]) -> Option<Self> {
        let text = match std::str::from_utf8(text) {
            Ok(text) => text,
            Err(error) => std::str::from_utf8(&text[..error.valid_up_to()]).ok()?,
        };
        let cut = &text[..text.floor_char_boundary(NAME)];
        let mut bytes = [0; NAME];
        bytes[..cut.len()].copy_from_slice(cut.as_bytes());
        Some(Self {
            bytes,
            length: cut.len() as u8,
        })
    }

    fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..usize::from(self.length)]).unwrap_or_default()
    }
}

/// What is read of a message before it is passed on.
pub(crate) struct Head {
    method: Option<Name>,
    id: Option<Name>,
    body: Option<String>,
}

impl Head {
    /// Reads a message, and at most `body` bytes of its body.
    pub(super) fn read(bytes: &[u8], shape: &Shape, body: usize) -> Self {
        let part = |range: &Option<std::ops::Range<usize>>| {
            let range = range.clone()?;
            // Only the beginning of a long name is read.
            let end = range.end.min(range.start + NAME + 4);
            Name::of(bytes.get(range.start..end)?)
        };
        Self {
            method: part(&shape.method),
            id: part(&shape.id),
            body: (body > 0).then(|| {
                let beginning = &bytes[..bytes.len().min(body)];
                String::from_utf8_lossy(beginning).into_owned()
            }),
        }
    }

    pub(super) fn method(&self) -> Option<&str> {
        self.method.as_ref().map(Name::as_str)
    }

    pub(super) fn id(&self) -> Option<&str> {
        self.id.as_ref().map(Name::as_str)
    }
}

/// The last messages, in a ring that grows to its limit and is then used again.
#[derive(Default)]
pub(super) struct Messages {
    ring: Vec<Entry>,
    /// How many were added in all.
    added: u64,
}

/// A message that came in: when, by which side, its size and its pieces.
pub(super) struct Arrived {
    pub(super) at: Instant,
    pub(super) from: Side,
    pub(super) bytes: usize,
    pub(super) pieces: u64,
}

/// A message, as it is kept.
pub(super) struct Entry {
    /// When it arrived; converted to wall-clock time when somebody looks.
    at: Instant,
    from: Side,
    method: Option<Name>,
    id: Option<Name>,
    bytes: usize,
    frames: u64,
    milliseconds: Option<f64>,
    body: Option<(String, Held)>,
}

impl Entry {
    /// An entry for a message that arrived; its body is kept if there is memory for it.
    pub(super) fn new(arrived: Arrived, head: Head, budget: Option<&Budget>) -> Self {
        let held = |text: String| {
            let held = budget?.charge(text.capacity())?;
            Some((text, held))
        };
        Self {
            at: arrived.at,
            from: arrived.from,
            method: head.method,
            id: head.id,
            bytes: arrived.bytes,
            frames: arrived.pieces,
            milliseconds: None,
            body: head.body.and_then(held),
        }
    }
}

/// Notes that a message was sent.
#[derive(Clone, Copy)]
pub(super) struct Departed {
    /// Its number among those that were added.
    pub(super) number: u64,
    pub(super) frames: u64,
    /// How long it was in the gateway.
    pub(super) after: std::time::Duration,
}

impl Messages {
    /// Adds the next message; at most `most` are kept.
    pub(super) fn add(&mut self, most: usize, entry: Entry) {
        let number = self.added;
        self.added += 1;
        match self.ring.len() < most {
            true => self.ring.push(entry),
            false => {
                let length = self.ring.len() as u64;
                if let Some(place) = self.ring.get_mut((number % length.max(1)) as usize) {
                    *place = entry;
                }
            }
        }
    }

    /// Notes that a message was sent; false if it has not been added yet.
    pub(super) fn sent(&mut self, departed: Departed) -> bool {
        let Departed {
            number,
            frames,
            after,
        } = departed;
        if number >= self.added {
            return false;
        }
        let length = self.ring.len() as u64;
        // It may have been replaced by a later one.
        if number + length >= self.added
            && let Some(entry) = self.ring.get_mut((number % length.max(1)) as usize)
        {
            entry.frames = entry.frames.max(frames);
            entry.milliseconds = Some(after.as_secs_f64() * 1e3);
        }
        true
    }

    /// The last messages, oldest first.
    pub(super) fn view(&self) -> Vec<MessageView> {
        let (instant, wall) = (now(), SystemTime::now());
        let shown = |at: Instant| {
            let ago = instant.saturating_duration_since(at);
            milliseconds(wall.checked_sub(ago).unwrap_or(wall))
        };
        let length = self.ring.len() as u64;
        let first = self.added - length;
        let entries = (first..self.added)
            .filter_map(|number| self.ring.get((number % length.max(1)) as usize));
        entries
            .map(|entry| MessageView {
                at: shown(entry.at),
                direction: match entry.from {
                    Side::Listen => "in",
                    Side::To => "out",
                },
                method: entry.method.map(|name| plain_text(name.as_str())),
                id: entry.id.map(|name| plain_text(name.as_str())),
                bytes: entry.bytes,
                frames: entry.frames,
                ms: entry.milliseconds,
                body: entry.body.as_ref().map(|(text, _)| text.clone()),
            })
            .collect()
    }
}
