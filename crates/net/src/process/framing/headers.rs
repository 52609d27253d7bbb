//! The headers before a frame: where they end, and the `Content-Length` in them.

use memchr::{memchr, memchr_iter, memmem};

use super::Unreadable;

/// Where the headers end, and how long the empty line after them is. Lines may end without `\r`.
pub(super) fn headers_end(bytes: &[u8], from: usize) -> Option<(usize, usize)> {
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

pub(super) fn content_length(headers: &[u8]) -> Result<u64, Unreadable> {
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

/// Whether a content type names UTF-8 or no charset. LSP also allows `utf8`.
fn is_utf8(content_type: &[u8]) -> bool {
    let lower = content_type.to_ascii_lowercase();
    let Some(at) = memmem::find(&lower, b"charset=") else {
        return true;
    };
    let charset = lower[at + b"charset=".len()..].trim_ascii_start();
    let charset = charset.strip_prefix(b"\"").unwrap_or(charset);
    charset.starts_with(b"utf-8") || charset.starts_with(b"utf8")
}
