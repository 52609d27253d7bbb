//! The largest frame that a transport passes, and how its size is counted.

/// The longest text that NIP-44 encrypts.
const SEALED_TEXT_MAX: usize = 65_535;

/// The limit on the size of one frame, described as data, so that planning can compute exact sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cap {
    /// No frame is larger than this, counted as `count` says.
    pub max: usize,
    /// A message above this size is cut, and its frames stay below it; `None` cuts only above `max`.
    pub cut_above: Option<usize>,
    /// What counts against `max`.
    pub count: Count,
    /// Frames are sent as lines: a message with a raw CR or LF cannot be sent in one frame.
    pub lines: bool,
}

/// What counts against a cap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// The bytes of the frame.
    Frame,
    /// The bytes of the piece before it is coded; the envelope does not count.
    Piece,
    /// The bytes of the text that the frame is wrapped in.
    Wrapped(Wrap),
}

/// The frame is a JSON string inside another text, such as a Nostr event, which may be encrypted in
/// turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wrap {
    /// Bytes of the outer text around the escaped frame.
    pub envelope: usize,
    /// If the outer text is encrypted with NIP-44: the bytes around the padded and base64-coded result.
    pub sealed: Option<usize>,
}

impl Cap {
    /// A cap on the bytes of a frame.
    pub const fn frame(max: usize) -> Self {
        Self {
            max,
            cut_above: None,
            count: Count::Frame,
            lines: false,
        }
    }

    /// A cap on the bytes of a piece; the envelope does not count.
    pub const fn piece(max: usize) -> Self {
        Self {
            max,
            cut_above: None,
            count: Count::Piece,
            lines: false,
        }
    }

    /// A cap on the size of the text that a frame is wrapped in.
    pub const fn wrapped(max: usize, wrap: Wrap) -> Self {
        Self {
            max,
            cut_above: None,
            count: Count::Wrapped(wrap),
            lines: false,
        }
    }

    /// The same cap for a transport that sends frames as lines.
    pub const fn lines(mut self) -> Self {
        self.lines = true;
        self
    }

    /// Whether the frame is escaped as a JSON string inside an outer text.
    pub fn escapes(&self) -> bool {
        matches!(self.count, Count::Wrapped(_))
    }

    /// The size that counts, for a frame of `len` bytes (after escaping, if
    /// [`escapes`](Self::escapes)).
    pub fn counted(&self, len: usize) -> usize {
        match self.count {
            Count::Frame | Count::Piece => len,
            Count::Wrapped(Wrap {
                envelope,
                sealed: None,
            }) => len + envelope,
            Count::Wrapped(Wrap {
                envelope,
                sealed: Some(outer),
            }) => sealed_len(len + envelope).saturating_add(outer),
        }
    }

    /// The size of a finished frame that counts; 0 if only pieces count.
    pub fn weigh(&self, frame: &[u8]) -> usize {
        match self.count {
            Count::Piece => 0,
            Count::Frame => frame.len(),
            Count::Wrapped(_) => {
                let escaped = |byte: &u8| match byte {
                    b'"' | b'\\' => 2,
                    0..0x20 => 6,
                    _ => 1,
                };
                self.counted(frame.iter().map(escaped).sum())
            }
        }
    }

    /// The longest frame (after escaping, if [`escapes`](Self::escapes)) that the cap allows.
    pub fn room(&self) -> usize {
        self.longest(self.max)
    }

    /// A message above this size, as the cap counts, is cut if it may be.
    pub fn whole_limit(&self) -> usize {
        self.cut_above.map_or(self.max, |soft| soft.min(self.max))
    }

    /// The longest frame for a message that is cut.
    pub fn cut_room(&self) -> usize {
        self.longest(self.whole_limit())
    }

    fn longest(&self, max: usize) -> usize {
        match self.count {
            Count::Frame | Count::Piece => max,
            Count::Wrapped(Wrap {
                envelope,
                sealed: None,
            }) => max.saturating_sub(envelope),
            Count::Wrapped(Wrap {
                envelope,
                sealed: Some(_),
            }) => {
                // `counted` grows in steps because of the padding: a binary search finds the
                // longest that fits.
                let (mut fits, mut too_long) = (0, (SEALED_TEXT_MAX + 1).saturating_sub(envelope));
                while fits + 1 < too_long {
                    let middle = fits.midpoint(too_long);
                    *if self.counted(middle) <= max {
                        &mut fits
                    } else {
                        &mut too_long
                    } = middle;
                }
                fits
            }
        }
    }
}

/// The length of a NIP-44 payload: version, nonce, length, padded text and MAC, in base64. `usize::MAX`
/// for a text that is too long to encrypt, so that it exceeds every cap.
fn sealed_len(text: usize) -> usize {
    if text > SEALED_TEXT_MAX {
        return usize::MAX;
    }
    let padded = if text <= 32 {
        32
    } else {
        let power = text.next_power_of_two();
        let chunk = if power <= 256 { 32 } else { power / 8 };
        text.div_ceil(chunk) * chunk
    };
    (1 + 32 + 2 + padded + 32).div_ceil(3) * 4
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_follows_nip44() {
        // Pairs of the specification's own table of padded lengths.
        for (text, padded) in [
            (16, 32),
            (33, 64),
            (65, 96),
            (100, 128),
            (250, 256),
            (320, 320),
            (383, 384),
            (515, 640),
            (700, 768),
            (1020, 1024),
            (65515, 65536),
        ] {
            assert_eq!(
                sealed_len(text),
                ((67 + padded) as usize).div_ceil(3) * 4,
                "{text}"
            );
        }
    }

    #[test]
    fn room_is_the_longest_that_fits() {
        let wraps = [
            Wrap {
                envelope: 300,
                sealed: None,
            },
            Wrap {
                envelope: 300,
                sealed: Some(400),
            },
        ];
        for cap in wraps.map(|wrap| Cap::wrapped(48_000, wrap)) {
            assert!(cap.counted(cap.room()) <= 48_000);
            assert!(cap.counted(cap.room() + 1) > 48_000);
        }
        let huge = Cap::wrapped(
            1 << 20,
            Wrap {
                envelope: 300,
                sealed: Some(400),
            },
        );
        assert_eq!(
            huge.room(),
            SEALED_TEXT_MAX - 300,
            "a sealed text has a limit of its own"
        );
    }
}
