//! What a transport lets through in one frame, and how it counts.

/// The longest text that NIP-44 encrypts.
const SEALED_TEXT_MAX: usize = 65_535;

/// The limit of one frame, as data, so that pure code plans exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cap {
    /// Nothing larger than this ever goes out, in the unit that `count` says.
    pub max: usize,
    /// Cut a message above this size and keep its pieces below it; `None`: only above `max`.
    pub cut_above: Option<usize>,
    /// What counts against `max`.
    pub count: Count,
    /// Frames are lines: a raw CR or LF inside a message cannot travel as it is.
    pub lines: bool,
}

/// What counts against a cap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// The bytes of the frame.
    Frame,
    /// The bytes of the piece before it is coded; the envelope is free.
    Piece,
    /// The frame once it lies inside something larger.
    Wrapped(Wrap),
}

/// A frame inside a JSON string of another text, which may be sealed in its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wrap {
    /// Bytes around the escaped frame.
    pub envelope: usize,
    /// Where the wrapping text is encrypted: bytes around the padded, base64ed result.
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

    /// A cap on the bytes of a piece, with a free envelope.
    pub const fn piece(max: usize) -> Self {
        Self {
            max,
            cut_above: None,
            count: Count::Piece,
            lines: false,
        }
    }

    /// A cap on what a frame becomes once wrapped.
    pub const fn wrapped(max: usize, wrap: Wrap) -> Self {
        Self {
            max,
            cut_above: None,
            count: Count::Wrapped(wrap),
            lines: false,
        }
    }

    /// The same for a transport whose frames are lines.
    pub const fn lines(mut self) -> Self {
        self.lines = true;
        self
    }

    /// Where a frame is escaped once more by what wraps it.
    pub fn escapes(&self) -> bool {
        matches!(self.count, Count::Wrapped(_))
    }

    /// How a frame counts whose bytes, escaped where [`escapes`](Self::escapes) says so, are `len`.
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

    /// How a finished frame counts; where only pieces do, nothing is known of it.
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

    /// The longest frame (escaped where [`escapes`](Self::escapes) says so) that may go out in one piece.
    pub fn room(&self) -> usize {
        self.longest(self.max)
    }

    /// Above this, as the cap counts, a message is cut where it can be.
    pub fn whole_limit(&self) -> usize {
        self.cut_above.map_or(self.max, |soft| soft.min(self.max))
    }

    /// The longest frame that a cut message is packed into.
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
                // `counted` grows in steps with the padding: search the last length that fits.
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

/// Length of a NIP-44 payload: version, nonce, length, padded text and MAC, in base64. No cap holds a
/// text that cannot be sealed.
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
