//! The functions of this crate in plain Rust: for processors without AVX2, and for the rare blocks that the
//! AVX2 code leaves to them.
//!
//! A block without escapes is copied; a block with escapes is processed byte by byte without branches
//! that depend on the data, since quote-heavy text defeats branch prediction.

use crate::tables::{ESCAPE, ESCAPED, UNESCAPED};
use crate::{Escapes, Invalid, unicode};

/// The size of a block: the compiler vectorizes a loop over it.
const BLOCK: usize = 64;

/// The buffer for an escaped block, which has at most six times its length. Indexing modulo a power
/// of two needs no bounds checks.
const GROWN: usize = 512;

/// As [`crate::escape`].
pub fn escape(text: &[u8], out: &mut Vec<u8>) {
    out.reserve(text.len());
    let mut clean_from = 0;
    let mut at = 0;
    while at < text.len() {
        let block = &text[at..text.len().min(at + BLOCK)];
        if !is_plain(block) {
            out.extend_from_slice(&text[clean_from..at]);
            escape_block(block, out);
            clean_from = at + block.len();
        }
        at += block.len();
    }
    out.extend_from_slice(&text[clean_from..]);
}

/// Appends at most [`BLOCK`] bytes escaped.
pub(crate) fn escape_block(block: &[u8], out: &mut Vec<u8>) {
    let mut grown = [0u8; GROWN];
    let mut len = 0;
    for &byte in block {
        let code = ESCAPE[usize::from(byte)];
        if code == b'u' {
            grown[len..len + 6].copy_from_slice(&unicode::escaped(byte));
            len += 6;
            continue;
        }
        let escaped = usize::from(code != 0);
        grown[len % GROWN] = b'\\';
        grown[(len + escaped) % GROWN] = ESCAPED[usize::from(byte)];
        len += 1 + escaped;
    }
    out.extend_from_slice(&grown[..len]);
}

/// As [`crate::unescape`].
///
/// # Errors
/// If it is not the inside of a JSON string.
pub fn unescape(raw: &[u8], out: &mut Vec<u8>) -> Result<(), Invalid> {
    out.reserve(raw.len());
    let mut clean_from = 0;
    let mut at = 0;
    while at < raw.len() {
        let block = &raw[at..raw.len().min(at + BLOCK)];
        if is_plain(block) {
            at += block.len();
            continue;
        }
        out.extend_from_slice(&raw[clean_from..at]);
        at = unescape_block(raw, at, at + block.len(), out)?;
        clean_from = at;
    }
    out.extend_from_slice(&raw[clean_from..]);
    Ok(())
}

/// Unescapes from `at` to `end`, which may be at most [`BLOCK`] bytes away, or a little further if an
/// escape lies across the end; returns where it stopped.
pub(crate) fn unescape_block(
    raw: &[u8],
    mut at: usize,
    end: usize,
    out: &mut Vec<u8>,
) -> Result<usize, Invalid> {
    let mut unescaped = [0u8; BLOCK];
    while at < end {
        let mut len = 0;
        while at < end {
            let escaped = usize::from(raw[at] == b'\\');
            let Some(&byte) = raw.get(at + escaped) else {
                return Err(Invalid::Syntax);
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
        if at < end {
            at = unicode::unescape(raw, at, out)?;
        }
    }
    Ok(at)
}

/// As [`crate::string_end`].
pub fn string_end(text: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        match text.get(at..at + BLOCK) {
            Some(block) if is_plain(block) => at += BLOCK,
            _ => match string_end_block(text, at, text.len().min(at + BLOCK))? {
                Found::End(end) => return Some(end),
                Found::GoOn(next) if next >= text.len() => return None,
                Found::GoOn(next) => at = next,
            },
        }
    }
}

/// What is found in a part of a string.
pub(crate) enum Found {
    /// The quote that ends it.
    End(usize),
    /// No such quote before this place.
    GoOn(usize),
}

/// Looks for the end of a string from `at` to `to`, or a little further if an escape lies across.
pub(crate) fn string_end_block(text: &[u8], mut at: usize, to: usize) -> Option<Found> {
    while at < to {
        at += match (text[at], text.get(at + 1)) {
            (b'"', _) => return Some(Found::End(at)),
            (b'\\', Some(b'u')) => {
                let digits = text.get(at + 2..at + 6)?;
                if !digits.iter().all(u8::is_ascii_hexdigit) {
                    return None;
                }
                6
            }
            (b'\\', Some(&letter)) if UNESCAPED[1][usize::from(letter)] != 0 => 2,
            (b'\\' | 0..0x20, _) => return None,
            _ => 1,
        };
    }
    Some(Found::GoOn(at))
}

/// As [`crate::count`].
pub fn count(text: &[u8]) -> Escapes {
    let mut sum = Escapes::default();
    for block in text.chunks(BLOCK) {
        if is_plain(block) {
            continue;
        }
        for &byte in block {
            let code = ESCAPE[usize::from(byte)];
            let itself = usize::from(code == b'"') + usize::from(code == b'\\');
            let unicode = usize::from(code == b'u');
            sum.itself += itself;
            sum.unicode += unicode;
            sum.letter += usize::from(code != 0) - itself - unicode;
        }
    }
    sum
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
