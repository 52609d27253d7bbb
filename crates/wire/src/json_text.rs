//! The inside of JSON strings, without the quotes: escaping, unescaping, and computing escaped lengths.
//!
//! Text is processed in blocks. A block without escapes is copied; a block with escapes is
//! processed byte by byte without branches that depend on the data, since quote-heavy text defeats
//! branch prediction.

use breakbulk_link::FaultKind;

/// The size of a block.
const BLOCK: usize = 64;

/// The buffer for an escaped block, which has at most six times its length. Indexing modulo a power
/// of two needs no bounds checks.
const GROWN: usize = 512;

/// The character after the backslash for each byte; 0 for bytes that need no escape, `u` for those that
/// need four digits.
const ESCAPE: [u8; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 0x20 {
        table[byte] = b'u';
        byte += 1;
    }
    table[0x08] = b'b';
    table[0x09] = b't';
    table[0x0a] = b'n';
    table[0x0c] = b'f';
    table[0x0d] = b'r';
    table[b'"' as usize] = b'"';
    table[b'\\' as usize] = b'\\';
    table
};

/// The last character of each byte's escape: the byte itself, or the character after the backslash.
const ESCAPED: [u8; 256] = {
    let mut table = ESCAPE;
    let mut byte = 0;
    while byte < 256 {
        if table[byte] == 0 {
            table[byte] = byte as u8;
        }
        byte += 1;
    }
    table
};

/// The meaning of each byte: first without, then after a backslash; 0 if it is not a simple one.
const UNESCAPED: [[u8; 256]; 2] = {
    let mut bare = [0; 256];
    let mut byte = 0x20;
    while byte < 256 {
        bare[byte] = byte as u8;
        byte += 1;
    }
    bare[b'"' as usize] = 0;
    bare[b'\\' as usize] = 0;
    let mut behind = [0; 256];
    behind[b'"' as usize] = b'"';
    behind[b'\\' as usize] = b'\\';
    behind[b'/' as usize] = b'/';
    behind[b'b' as usize] = 0x08;
    behind[b'f' as usize] = 0x0c;
    behind[b'n' as usize] = b'\n';
    behind[b'r' as usize] = b'\r';
    behind[b't' as usize] = b'\t';
    [bare, behind]
};

const HEX: &[u8; 16] = b"0123456789abcdef";

/// Appends `text` escaped for a JSON string: only control characters, quotes and backslashes are
/// escaped.
pub fn escape(text: &[u8], out: &mut Vec<u8>) {
    out.reserve(text.len() + text.len() / 16 + GROWN);
    let mut grown = [0u8; GROWN];
    let mut clean_from = 0;
    let mut at = 0;
    while at < text.len() {
        let block = &text[at..text.len().min(at + BLOCK)];
        if is_plain(block) {
            at += block.len();
            continue;
        }
        out.extend_from_slice(&text[clean_from..at]);
        let mut len = 0;
        for &byte in block {
            let code = ESCAPE[usize::from(byte)];
            let escaped = usize::from(code != 0);
            grown[len % GROWN] = b'\\';
            grown[(len + escaped) % GROWN] = ESCAPED[usize::from(byte)];
            len += 1 + escaped;
            if code == b'u' {
                let digits = [
                    b'0',
                    b'0',
                    HEX[usize::from(byte >> 4)],
                    HEX[usize::from(byte & 15)],
                ];
                grown[len..len + 4].copy_from_slice(&digits);
                len += 4;
            }
        }
        out.extend_from_slice(&grown[..len]);
        at += block.len();
        clean_from = at;
    }
    out.extend_from_slice(&text[clean_from..]);
}

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
    let mut unescaped = [0u8; BLOCK];
    let mut clean_from = 0;
    let mut at = 0;
    while at < raw.len() {
        let block = &raw[at..raw.len().min(at + BLOCK)];
        if is_plain(block) {
            at += block.len();
            continue;
        }
        out.extend_from_slice(&raw[clean_from..at]);
        let mut len = 0;
        // An escape may reach into the next block, so the output is counted, not the input.
        while len < BLOCK && at < raw.len() {
            let escaped = usize::from(raw[at] == b'\\');
            let Some(&byte) = raw.get(at + escaped) else {
                return Err(FaultKind::NotJson);
            };
            let value = UNESCAPED[escaped][usize::from(byte)];
            if value == 0 {
                break;
            }
            unescaped[len % BLOCK] = value;
            len += 1;
            at += 1 + escaped;
        }
        out.extend_from_slice(&unescaped[..len]);
        if len < BLOCK && at < raw.len() {
            at = unescape_unicode(raw, at, out)?;
        }
        clean_from = at;
    }
    out.extend_from_slice(&raw[clean_from..]);
    Ok(())
}

/// Unescapes `\uXXXX`, or a surrogate pair of them.
fn unescape_unicode(raw: &[u8], at: usize, out: &mut Vec<u8>) -> Result<usize, FaultKind> {
    let first = unit(raw, at).ok_or(FaultKind::NotJson)?;
    let (character, length) = match first {
        0xd800..0xdc00 => {
            let second = unit(raw, at + 6)
                .filter(|unit| (0xdc00..0xe000).contains(unit))
                .ok_or(FaultKind::NotUtf8)?;
            (
                char::from_u32(0x10000 + ((first - 0xd800) << 10 | (second - 0xdc00))),
                12,
            )
        }
        unit => (char::from_u32(unit), 6),
    };
    let character = character.ok_or(FaultKind::NotUtf8)?;
    out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
    Ok(at + length)
}

fn unit(raw: &[u8], at: usize) -> Option<u32> {
    let digits = raw.get(at..at + 6)?.strip_prefix(b"\\u")?;
    digits.iter().try_fold(0, |unit, &digit| {
        Some(unit << 4 | char::from(digit).to_digit(16)?)
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
        let code = ESCAPE[byte as usize];
        match (self, code) {
            (Self::None, _) => 1,
            (Self::Once | Self::Ascii, b'u') => 6,
            (Self::Twice | Self::AsciiTwice, b'u') => 7,
            (Self::Twice | Self::AsciiTwice, b'"' | b'\\') => 4,
            (Self::Twice | Self::AsciiTwice, 1..) => 3,
            (Self::Once | Self::Ascii, 1..) => 2,
            (Self::Ascii, 0) if byte >= 0xf0 => 12,
            (Self::Ascii, 0) if byte >= 0xc0 => 6,
            (Self::Ascii, 0) if byte >= 0x80 => 0,
            (Self::Ascii, 0) if byte == 0x7f => 6,
            (Self::AsciiTwice, 0) if byte >= 0xf0 => 14,
            (Self::AsciiTwice, 0) if byte >= 0xc0 => 7,
            (Self::AsciiTwice, 0) if byte >= 0x80 => 0,
            (Self::AsciiTwice, 0) if byte == 0x7f => 7,
            _ => 1,
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

    fn block(self, block: &[u8]) -> usize {
        // The usual case, without a look-up per byte.
        if !matches!(self, Self::Ascii | Self::AsciiTwice) && is_plain(block) {
            return block.len();
        }
        let costs = self.costs();
        block
            .iter()
            .map(|&byte| usize::from(costs[usize::from(byte)]))
            .sum()
    }

    /// The length of `text` once escaped.
    pub fn len(self, text: &[u8]) -> usize {
        match self {
            Self::None => text.len(),
            _ => text.chunks(BLOCK).map(|block| self.block(block)).sum(),
        }
    }

    /// The end of the longest run of whole characters from `from` that has at most `room` bytes
    /// once escaped.
    pub fn fit(self, text: &[u8], from: usize, room: usize) -> usize {
        if self == Self::None {
            return boundary(text, from.saturating_add(room).min(text.len()), from);
        }
        let (mut at, mut left) = (from, room);
        while let Some(block) = text.get(at..at + BLOCK) {
            let cost = self.block(block);
            if cost > left {
                break;
            }
            left -= cost;
            at += BLOCK;
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

/// Whether a block needs no escapes. Written so that the compiler vectorizes it.
fn is_plain(block: &[u8]) -> bool {
    let special =
        |byte: u8| u8::from(byte < 0x20) | u8::from(byte == b'"') | u8::from(byte == b'\\');
    match <&[u8; BLOCK]>::try_from(block) {
        Ok(block) => block.iter().fold(0, |found, &byte| found | special(byte)) == 0,
        Err(_) => block.iter().all(|&byte| special(byte) == 0),
    }
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
