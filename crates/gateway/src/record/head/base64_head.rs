//! The size, the beginning and the end of bytes that are written in base64, without decoding the rest.

use breakbulk_link::{Key, Piece, Wire};
use breakbulk_wire::Ahp;

/// How many bytes a padded base64 text stands for.
pub(super) fn decoded_len(text: &[u8]) -> u64 {
    let padding = text.iter().rev().take(2).filter(|&&it| it == b'=').count();
    (text.len() as u64 / 4 * 3).saturating_sub(padding as u64)
}

/// The first bytes that the text stands for, about this many.
pub(super) fn decoded_start(text: &[u8], bytes: usize) -> Vec<u8> {
    let length = bytes.div_ceil(3) * 4;
    decoded(&text[..length.min(text.len())])
}

/// The last bytes that the text stands for, about this many.
pub(super) fn decoded_end(text: &[u8], bytes: usize) -> Vec<u8> {
    let length = bytes.div_ceil(3) * 4;
    // Base64 is cut between its groups of four.
    let from = text.len().saturating_sub(length).next_multiple_of(4);
    decoded(text.get(from..).unwrap_or_default())
}

/// Decodes base64; empty if the text is none.
fn decoded(data: &[u8]) -> Vec<u8> {
    let piece = Piece {
        key: Key::new(b""),
        seq: 0,
        count: None,
        bytes: None,
        data,
    };
    let mut out = Vec::new();
    match Ahp.decode(&piece, &mut out) {
        Ok(()) => out,
        Err(_) => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_ends() {
        for (text, len, start, end) in [
            ("", 0, "", ""),
            ("YQ==", 1, "a", "a"),
            ("YWI=", 2, "ab", "ab"),
            ("YWJj", 3, "abc", "abc"),
            ("YWJjZGVmZ2hpamtsbQ==", 13, "abcdef", "jklm"),
            ("no base64!!!", 9, "", ""),
        ] {
            assert_eq!(decoded_len(text.as_bytes()), len, "{text}");
            assert_eq!(
                decoded_start(text.as_bytes(), 6),
                start.as_bytes(),
                "{text}"
            );
            assert_eq!(decoded_end(text.as_bytes(), 6), end.as_bytes(), "{text}");
        }
    }
}
