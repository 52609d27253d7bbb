//! Makes text from a capture safe for a terminal.

use breakbulk::net::is_unsafe_to_show;

/// Characters of a text that are stored in a row.
const STORED_MAX: usize = 128;

/// Shortens a text of the capture for storage, without other changes.
pub(crate) fn shorten(text: &str) -> Box<str> {
    match text.char_indices().nth(STORED_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]).into(),
        None => text.into(),
    }
}

/// Escapes a text of the capture for a terminal: nothing in it moves the cursor, changes a colour or
/// reverses the text direction. At most `width` characters.
pub(crate) fn printable(text: &str, width: usize) -> String {
    let mut out = String::new();
    let mut len = 0;
    for c in text.chars() {
        let escaped = is_unsafe_to_show(c).then(|| c.escape_default().to_string());
        let more = escaped.as_ref().map_or(1, String::len);
        if len + more > width {
            out.push('…');
            break;
        }
        len += more;
        match escaped {
            Some(escaped) => out.push_str(&escaped),
            None => out.push(c),
        }
    }
    out
}

/// The same for JSON text: unsafe characters in its strings become JSON escapes.
pub(crate) fn json(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if is_unsafe_to_show(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                out.push_str(&format!("\\u{unit:04x}"));
            }
        } else {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_reaches_the_terminal_raw() {
        for (text, width, expected) in [
            ("plain é 漢", 80, "plain é 漢"),
            ("\u{1b}[31mred\u{7}", 80, "\\u{1b}[31mred\\u{7}"),
            ("a\nb\r\tc\u{9b}2J", 80, "a\\nb\\r\\tc\\u{9b}2J"),
            ("\u{202e}evil", 80, "\\u{202e}evil"),
            ("12345678", 8, "12345678"),
            ("123456789", 8, "12345678…"),
            ("1234567\u{1b}", 8, "1234567…"),
        ] {
            assert_eq!(printable(text, width), expected);
        }
        assert_eq!(json("\"\u{9b}\u{e0001}é\""), "\"\\u009b\\udb40\\udc01é\"");
        assert_eq!(shorten(&"é".repeat(200)).chars().count(), STORED_MAX + 1);
    }
}
