//! Writes JSON in different styles: separators, and which characters are escaped.

use std::fmt::Write;

use serde_json::value::RawValue;

/// A style of writing JSON.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Style {
    /// No spaces, raw UTF-8: for a host's requests.
    #[default]
    Compact,
    /// No spaces, ASCII only: required of a bridge, since the real host decodes its input chunk by
    /// chunk and corrupts a character that is split between two chunks.
    Ascii,
    /// As Python's `json.dumps`: a space after `,` and `:`, ASCII only.
    Python,
}

impl Style {
    fn is_ascii(self) -> bool {
        self != Self::Compact
    }
}

/// Writes JSON objects into one line.
pub(super) struct Writer {
    out: String,
    style: Style,
}

impl Writer {
    pub(super) fn new(style: Style) -> Self {
        Self {
            out: String::new(),
            style,
        }
    }

    pub(super) fn finish(self) -> String {
        self.out
    }

    pub(super) fn open(&mut self) -> &mut Self {
        self.out.push('{');
        self
    }

    pub(super) fn close(&mut self) -> &mut Self {
        self.out.push('}');
        self
    }

    /// Writes a member's name, which must need no escapes.
    pub(super) fn name(&mut self, name: &str) -> &mut Self {
        // Only a new object ends with an open brace: a string ends with its quote.
        if !self.out.ends_with('{') {
            self.separator(',');
        }
        self.out.push('"');
        self.out.push_str(name);
        self.out.push('"');
        self.separator(':');
        self
    }

    /// Writes a number, a boolean or null.
    pub(super) fn plain(&mut self, value: impl std::fmt::Display) -> &mut Self {
        // Writing into a string cannot fail.
        let _ = write!(self.out, "{value}");
        self
    }

    pub(super) fn string(&mut self, text: &str) -> &mut Self {
        self.out.push('"');
        let mut run = 0;
        for (at, byte) in text.bytes().enumerate() {
            let escape = match byte {
                b'"' => "\\\"",
                b'\\' => "\\\\",
                b'\n' => "\\n",
                b'\r' => "\\r",
                b'\t' => "\\t",
                0x08 => "\\b",
                0x0c => "\\f",
                0..0x20 => "",
                _ => continue,
            };
            self.characters(&text[run..at]);
            if escape.is_empty() {
                self.escape(byte.into());
            } else {
                self.out.push_str(escape);
            }
            run = at + 1;
        }
        self.characters(&text[run..]);
        self.out.push('"');
        self
    }

    /// Writes given JSON in this style. Numbers and escapes stay as they are.
    pub(super) fn raw(&mut self, json: &RawValue) -> &mut Self {
        let mut rest = json.get();
        self.out.reserve(rest.len());
        while let Some(quote) = memchr::memchr(b'"', rest.as_bytes()) {
            self.structure(&rest[..quote]);
            let end = quote + string_len(&rest[quote..]);
            self.characters(&rest[quote..end]);
            rest = &rest[end..];
        }
        self.structure(rest);
        self
    }

    /// Writes the JSON between two strings.
    fn structure(&mut self, text: &str) {
        let mut run = 0;
        for (at, byte) in text.bytes().enumerate() {
            match byte {
                b' ' | b'\n' | b'\r' | b'\t' => {
                    self.out.push_str(&text[run..at]);
                    run = at + 1;
                }
                b',' | b':' if self.style == Style::Python => {
                    self.out.push_str(&text[run..=at]);
                    self.out.push(' ');
                    run = at + 1;
                }
                _ => {}
            }
        }
        self.out.push_str(&text[run..]);
    }

    /// Writes text that needs no escapes, except for characters that are not ASCII. Python also
    /// escapes DEL.
    fn characters(&mut self, text: &str) {
        let is_plain = text.is_ascii() && memchr::memchr(0x7f, text.as_bytes()).is_none();
        if !self.style.is_ascii() || is_plain {
            self.out.push_str(text);
            return;
        }
        for character in text.chars() {
            if matches!(character, ' '..='~') {
                self.out.push(character);
            } else {
                for unit in character.encode_utf16(&mut [0; 2]) {
                    self.escape(*unit);
                }
            }
        }
    }

    fn escape(&mut self, unit: u16) {
        let _ = write!(self.out, "\\u{unit:04x}");
    }

    fn separator(&mut self, separator: char) {
        self.out.push(separator);
        if self.style == Style::Python {
            self.out.push(' ');
        }
    }
}

/// The length of the string at the start of `text`, including its quotes.
fn string_len(text: &str) -> usize {
    let mut at = 1;
    while let Some(found) = text
        .as_bytes()
        .get(at..)
        .and_then(|rest| memchr::memchr2(b'"', b'\\', rest))
    {
        at += found;
        if text.as_bytes()[at] == b'"' {
            return at + 1;
        }
        at += 2;
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    // TYWRAP-2
    #[test]
    fn strings() {
        // As JSON.stringify and json.dumps write them.
        for (text, compact, ascii) in [
            ("", r#""""#, r#""""#),
            ("a/b", r#""a/b""#, r#""a/b""#),
            (
                "\"\\\n\r\t\u{8}\u{c}\0\u{1f}",
                r#""\"\\\n\r\t\b\f\u0000\u001f""#,
                r#""\"\\\n\r\t\b\f\u0000\u001f""#,
            ),
            ("é中😀", "\"é中😀\"", r#""\u00e9\u4e2d\ud83d\ude00""#),
            ("é\"é", "\"é\\\"é\"", r#""\u00e9\"\u00e9""#),
            ("\u{7f}\u{2028}", "\"\u{7f}\u{2028}\"", r#""\u007f\u2028""#),
        ] {
            for (style, expected) in [
                (Style::Compact, compact),
                (Style::Ascii, ascii),
                (Style::Python, ascii),
            ] {
                let mut out = Writer::new(style);
                out.string(text);
                assert_eq!(out.finish(), expected, "{style:?} {text:?}");
            }
        }
    }

    #[test]
    fn foreign_json() {
        for (json, compact, ascii, python) in [
            ("1.50", "1.50", "1.50", "1.50"),
            (" [ ] ", "[]", "[]", "[]"),
            (
                "{\"a\" :[1,\n2 , {\"é, :\\\"\":\"\\u00E9\\\\\"}]\t}",
                "{\"a\":[1,2,{\"é, :\\\"\":\"\\u00E9\\\\\"}]}",
                "{\"a\":[1,2,{\"\\u00e9, :\\\"\":\"\\u00E9\\\\\"}]}",
                "{\"a\": [1, 2, {\"\\u00e9, :\\\"\": \"\\u00E9\\\\\"}]}",
            ),
            (
                "\"\u{7f}\\ud800\"",
                "\"\u{7f}\\ud800\"",
                "\"\\u007f\\ud800\"",
                "\"\\u007f\\ud800\"",
            ),
        ] {
            for (style, expected) in [
                (Style::Compact, compact),
                (Style::Ascii, ascii),
                (Style::Python, python),
            ] {
                let mut out = Writer::new(style);
                out.raw(serde_json::from_str(json).unwrap());
                assert_eq!(out.finish(), expected, "{style:?} {json:?}");
            }
        }
    }

    #[test]
    fn deep_json_costs_no_stack() {
        let deep = format!("{}{}", "[".repeat(1 << 20), "]".repeat(1 << 20));
        let mut out = Writer::new(Style::Python);
        out.raw(serde_json::from_str(&deep).unwrap());
        assert_eq!(out.finish(), deep);
    }
}
