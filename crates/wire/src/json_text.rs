//! Text inside JSON strings, without the quotes: escaping, unescaping, and computing escaped lengths.

use breakbulk_escape::Invalid;
pub use breakbulk_escape::escape;
use breakbulk_link::FaultKind;

/// Escaped lengths are computed for spans of these sizes while all of a span fits, the larger ones first.
const SPANS: [usize; 2] = [1024, 64];

const HEX: &[u8; 16] = b"0123456789abcdef";

/// Appends `text` escaped for a JSON string, in printable ASCII only.
pub fn escape_ascii(text: &str, out: &mut Vec<u8>) {
    let printable = |byte: &u8| *byte < 0x7f;
    for run in text
        .as_bytes()
        .chunk_by(|a, b| printable(a) == printable(b))
    {
        if printable(&run[0]) {
            escape(run, out);
            continue;
        }
        // A run of bytes from 0x7f upwards consists of whole characters.
        for unit in std::str::from_utf8(run).unwrap_or_default().encode_utf16() {
            let digit = |shift: u16| HEX[usize::from(unit >> shift & 15)];
            out.extend_from_slice(&[b'\\', b'u', digit(12), digit(8), digit(4), digit(0)]);
        }
    }
}

/// Appends the unescaped inside of a JSON string.
///
/// A lone surrogate is [`FaultKind::NotUtf8`]; an unescaped quote, a control character or a wrong
/// escape is [`FaultKind::NotJson`]. On a fault, a part may have been appended.
pub fn unescape(raw: &[u8], out: &mut Vec<u8>) -> Result<(), FaultKind> {
    breakbulk_escape::unescape(raw, out).map_err(|invalid| match invalid {
        Invalid::Syntax => FaultKind::NotJson,
        Invalid::LoneSurrogate => FaultKind::NotUtf8,
    })
}

/// Reads a plain number without leading zeros, of at most 15 digits.
pub(crate) fn digits(text: &[u8]) -> Option<(u64, &[u8])> {
    let len = text
        .iter()
        .take(16)
        .position(|byte| !byte.is_ascii_digit())?;
    let (digits, rest) = text.split_at(len);
    if len == 0 || len > 1 && digits[0] == b'0' {
        return None;
    }
    Some((
        digits
            .iter()
            .fold(0, |number, digit| number * 10 + u64::from(digit - b'0')),
        rest,
    ))
}

/// How text grows when it is escaped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Growth {
    /// Not at all.
    None,
    /// Escaped once.
    Once,
    /// Escaped, and the result escaped again by the text that wraps the frame.
    Twice,
    /// Escaped once, in ASCII only.
    Ascii,
    /// Escaped in ASCII only, and the result escaped again by the text that wraps the frame.
    AsciiTwice,
}

impl Growth {
    /// How many bytes one byte of UTF-8 becomes. In the ASCII forms, a character's whole length is
    /// counted at its first byte.
    const fn of(self, byte: u8) -> usize {
        let [itself, letter, unicode] = self.escapes();
        match (byte, self) {
            (b'"' | b'\\', _) => 1 + itself,
            (0x08..=0x0a | 0x0c..=0x0d, _) => 1 + letter,
            (0..0x20, _) => 1 + unicode,
            (0xf0.., Self::Ascii) => 12,
            (0xf0.., Self::AsciiTwice) => 14,
            (0xc0.., Self::Ascii) => 6,
            (0xc0.., Self::AsciiTwice) => 7,
            (0x80.., Self::Ascii | Self::AsciiTwice) => 0,
            (0x7f, Self::Ascii) => 6,
            (0x7f, Self::AsciiTwice) => 7,
            _ => 1,
        }
    }

    /// How many bytes are added to a quote or backslash, to a control character with a letter, and to one
    /// without.
    const fn escapes(self) -> [usize; 3] {
        match self {
            Self::None => [0, 0, 0],
            Self::Once | Self::Ascii => [1, 1, 5],
            Self::Twice | Self::AsciiTwice => [3, 2, 6],
        }
    }

    const fn table(self) -> [u8; 256] {
        let mut table = [0; 256];
        let mut byte = 0;
        while byte < 256 {
            table[byte] = self.of(byte as u8) as u8;
            byte += 1;
        }
        table
    }

    fn costs(self) -> &'static [u8; 256] {
        const NONE: [u8; 256] = Growth::None.table();
        const ONCE: [u8; 256] = Growth::Once.table();
        const TWICE: [u8; 256] = Growth::Twice.table();
        const ASCII: [u8; 256] = Growth::Ascii.table();
        const ASCII_TWICE: [u8; 256] = Growth::AsciiTwice.table();
        match self {
            Self::None => &NONE,
            Self::Once => &ONCE,
            Self::Twice => &TWICE,
            Self::Ascii => &ASCII,
            Self::AsciiTwice => &ASCII_TWICE,
        }
    }

    /// The length of `text` once escaped.
    pub fn len(self, text: &[u8]) -> usize {
        match self {
            Self::None => text.len(),
            Self::Once | Self::Twice => {
                let (count, [itself, letter, unicode]) =
                    (breakbulk_escape::count(text), self.escapes());
                text.len() + count.itself * itself + count.letter * letter + count.unicode * unicode
            }
            Self::Ascii | Self::AsciiTwice => {
                let costs = self.costs();
                let cost = |&byte: &u8| usize::from(costs[usize::from(byte)]);
                text.iter().map(cost).sum()
            }
        }
    }

    /// The end of the longest run of whole characters from `from` that has at most `room` bytes
    /// once escaped.
    pub fn fit(self, text: &[u8], from: usize, room: usize) -> usize {
        if self == Self::None {
            return boundary(text, from.saturating_add(room).min(text.len()), from);
        }
        let (mut at, mut left) = (from, room);
        for span in SPANS {
            while let Some(part) = text.get(at..at + span) {
                let cost = self.len(part);
                if cost > left {
                    break;
                }
                left -= cost;
                at += span;
            }
        }
        let costs = self.costs();
        while at < text.len() {
            let cost = usize::from(costs[usize::from(text[at])]);
            if cost > left {
                break;
            }
            left -= cost;
            at += 1;
        }
        boundary(text, at, from)
    }
}

/// The last character boundary at or before `at`.
fn boundary(text: &[u8], mut at: usize, from: usize) -> usize {
    while at > from && at < text.len() && text[at] & 0xc0 == 0x80 {
        at -= 1;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;
    use breakbulk_link::Random;

    fn random_text(random: &mut Random) -> String {
        let alphabet = [
            'a', 'b', '"', '\\', '\n', '\u{1}', '\u{7f}', 'é', '日', '😀', '\u{2028}', '/',
        ];
        let dense = random.below(12) + 1;
        (0..random.below(200))
            .map(|_| alphabet[random.below(dense) as usize])
            .collect()
    }

    #[test]
    fn agrees_with_serde_json() {
        for seed in 0..3000 {
            let text = random_text(&mut Random::from_number(seed));
            let expected = serde_json::to_string(&text).unwrap();
            let inner = &expected.as_bytes()[1..expected.len() - 1];
            let (mut escaped, mut back, mut ascii, mut back_ascii) =
                (vec![], vec![], vec![], vec![]);
            escape(text.as_bytes(), &mut escaped);
            assert_eq!(escaped, inner, "seed {seed}");
            unescape(&escaped, &mut back).unwrap();
            assert_eq!(back, text.as_bytes(), "seed {seed}");
            escape_ascii(&text, &mut ascii);
            assert!(ascii.is_ascii());
            unescape(&ascii, &mut back_ascii).unwrap();
            assert_eq!(back_ascii, text.as_bytes(), "seed {seed}");
            let (mut twice, mut ascii_twice) = (vec![], vec![]);
            escape(&escaped, &mut twice);
            escape(&ascii, &mut ascii_twice);
            for (growth, written) in [
                (Growth::Once, &escaped),
                (Growth::Twice, &twice),
                (Growth::Ascii, &ascii),
                (Growth::AsciiTwice, &ascii_twice),
            ] {
                assert_eq!(
                    growth.len(text.as_bytes()),
                    written.len(),
                    "seed {seed} {growth:?}"
                );
            }
        }
    }

    #[test]
    fn fit_takes_all_that_fits_and_cuts_no_character() {
        for seed in 0..3000 {
            let mut random = Random::from_number(seed);
            let text = random_text(&mut random);
            for growth in [
                Growth::None,
                Growth::Once,
                Growth::Twice,
                Growth::Ascii,
                Growth::AsciiTwice,
            ] {
                let room = random.below(150) as usize;
                let end = growth.fit(text.as_bytes(), 0, room);
                assert!(text.is_char_boundary(end), "seed {seed}");
                assert!(growth.len(&text.as_bytes()[..end]) <= room, "seed {seed}");
                if let Some(next) = text[end..].chars().next() {
                    let longer = &text.as_bytes()[..end + next.len_utf8()];
                    assert!(growth.len(longer) > room, "seed {seed} {growth:?}");
                }
            }
        }
    }

    #[test]
    fn what_is_no_json_text() {
        for (raw, fault) in [
            (r#"a"b"#, FaultKind::NotJson),
            ("a\nb", FaultKind::NotJson),
            (r"\x", FaultKind::NotJson),
            (r"\", FaultKind::NotJson),
            (r"\u12", FaultKind::NotJson),
            (r"\u12g4", FaultKind::NotJson),
            (r"\ud83d", FaultKind::NotUtf8),
            (r"\ude00", FaultKind::NotUtf8),
            (r"\ud83d\u0041", FaultKind::NotUtf8),
        ] {
            assert_eq!(unescape(raw.as_bytes(), &mut vec![]), Err(fault), "{raw}");
        }
    }
}
