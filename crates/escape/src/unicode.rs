//! Escapes with four hexadecimal digits.

use crate::Invalid;
use crate::tables::{DIGIT, HEX};

/// The escape of a control character.
pub(crate) fn escaped(byte: u8) -> [u8; 6] {
    let digit = |value: u8| HEX[usize::from(value & 15)];
    [b'\\', b'u', b'0', b'0', digit(byte >> 4), digit(byte)]
}

/// Unescapes the `\uXXXX` at `at`, or a surrogate pair of them; returns where it ends.
pub(crate) fn unescape(raw: &[u8], at: usize, out: &mut Vec<u8>) -> Result<usize, Invalid> {
    let first = unit(raw, at).ok_or(Invalid::Syntax)?;
    let (character, length) = match first {
        0xd800..0xdc00 => {
            let second = unit(raw, at + 6)
                .filter(|unit| (0xdc00..0xe000).contains(unit))
                .ok_or(Invalid::LoneSurrogate)?;
            let character = 0x10000 + ((first - 0xd800) << 10 | (second - 0xdc00));
            (char::from_u32(character), 12)
        }
        unit => (char::from_u32(unit), 6),
    };
    let character = character.ok_or(Invalid::LoneSurrogate)?;
    out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
    Ok(at + length)
}

fn unit(raw: &[u8], at: usize) -> Option<u32> {
    let [b'\\', b'u', digits @ ..] = raw.get(at..at + 6)? else {
        return None;
    };
    digits.iter().try_fold(0, |unit, &digit| {
        let value = DIGIT[usize::from(digit)];
        (value < 16).then_some(unit << 4 | u32::from(value))
    })
}
