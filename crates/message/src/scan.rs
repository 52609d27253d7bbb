//! Finds the members of a JSON object. The whole text is validated, nothing is copied, and long
//! strings are scanned at memory speed.

use std::borrow::Cow;
use std::ops::Range;

/// Reports the unescaped name and the range of each member of the object `text`; `None` if it is not a JSON
/// object. `text` must be UTF-8. Each nesting level takes one bit of memory and no stack.
pub(crate) fn members<'a>(
    text: &'a [u8],
    mut member: impl FnMut(Cow<'a, [u8]>, Range<usize>),
) -> Option<()> {
    let mut open = Open::default();
    let mut at = blank(text, 0);
    if text.get(at) != Some(&b'{') {
        return None;
    }
    at = blank(text, at + 1);
    if text.get(at) == Some(&b'}') {
        return (blank(text, at + 1) == text.len()).then_some(());
    }
    loop {
        let start = at;
        let (end, plain) = string(text, start)?;
        let from = colon(text, end)?;
        let to = value(text, from, &mut open)?;
        let name = match plain {
            true => Cow::Borrowed(&text[start + 1..end - 1]),
            false => Cow::Owned(unquoted(&text[start..end])?.into_owned().into_bytes()),
        };
        member(name, from..to);
        at = blank(text, to);
        match text.get(at)? {
            b',' => at = blank(text, at + 1),
            b'}' => return (blank(text, at + 1) == text.len()).then_some(()),
            _ => return None,
        }
    }
}

/// The unescaped content of a JSON string; `None` if it has a lone surrogate.
pub(crate) fn unquoted(string: &[u8]) -> Option<Cow<'_, str>> {
    let inner = string.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    if memchr::memchr(b'\\', inner).is_some() {
        return serde_json::from_slice(string).ok().map(Cow::Owned);
    }
    std::str::from_utf8(inner).ok().map(Cow::Borrowed)
}

/// The open brackets, innermost last: one bit each, set for an object. The first 64 need no allocation.
#[derive(Default)]
struct Open {
    first: u64,
    more: Vec<u64>,
    depth: usize,
}

impl Open {
    #[inline]
    fn push(&mut self, object: bool) {
        if self.depth < 64 {
            self.first = self.first & !(1 << self.depth) | u64::from(object) << self.depth;
            self.depth += 1;
        } else {
            self.push_deep(object);
        }
    }

    #[cold]
    fn push_deep(&mut self, object: bool) {
        let (word, bit) = (self.depth / 64, self.depth % 64);
        if word > self.more.len() {
            self.more.push(0);
        }
        let bits = self.word(word);
        *bits = *bits & !(1 << bit) | u64::from(object) << bit;
        self.depth += 1;
    }

    #[inline]
    fn is_object(&mut self) -> Option<bool> {
        let last = self.depth.checked_sub(1)?;
        let word = if last < 64 {
            self.first
        } else {
            *self.word(last / 64)
        };
        Some(word >> (last % 64) & 1 == 1)
    }

    fn word(&mut self, word: usize) -> &mut u64 {
        match word.checked_sub(1) {
            None => &mut self.first,
            Some(more) => &mut self.more[more],
        }
    }
}

/// The end of the value at `at`.
fn value(text: &[u8], mut at: usize, open: &mut Open) -> Option<usize> {
    loop {
        at = match *text.get(at)? {
            b'"' => quoted(text, at)?,
            bracket @ (b'{' | b'[') => {
                let object = bracket == b'{';
                at = blank(text, at + 1);
                if *text.get(at)? == if object { b'}' } else { b']' } {
                    at + 1
                } else {
                    open.push(object);
                    if object {
                        at = colon(text, quoted(text, at)?)?;
                    }
                    continue;
                }
            }
            b't' => literal(text, at, b"true")?,
            b'f' => literal(text, at, b"false")?,
            b'n' => literal(text, at, b"null")?,
            _ => number(text, at)?,
        };
        // A value has ended, and with it perhaps the object or array that contains it.
        loop {
            let Some(object) = open.is_object() else {
                return Some(at);
            };
            at = blank(text, at);
            match (*text.get(at)?, object) {
                (b',', false) => {
                    at = blank(text, at + 1);
                    break;
                }
                (b',', true) => {
                    at = colon(text, quoted(text, blank(text, at + 1))?)?;
                    break;
                }
                (b']', false) | (b'}', true) => {
                    open.depth -= 1;
                    at += 1;
                }
                _ => return None,
            }
        }
    }
}

/// The first byte from `at` on that is not white space.
#[inline]
fn blank(text: &[u8], at: usize) -> usize {
    match text.get(at) {
        Some(b' ' | b'\n' | b'\t' | b'\r') => blanks(text, at),
        _ => at,
    }
}

fn blanks(text: &[u8], mut at: usize) -> usize {
    // Some writers indent by many spaces: these are skipped eight at a time.
    while text.get(at..at + 8) == Some(b"        ") {
        at += 8;
    }
    while matches!(text.get(at), Some(b' ' | b'\n' | b'\t' | b'\r')) {
        at += 1;
    }
    at
}

/// Skips the colon after a member's name.
#[inline]
fn colon(text: &[u8], at: usize) -> Option<usize> {
    let at = blank(text, at);
    (text.get(at) == Some(&b':')).then(|| blank(text, at + 1))
}

fn literal(text: &[u8], at: usize, word: &[u8]) -> Option<usize> {
    text[at..].starts_with(word).then_some(at + word.len())
}

fn number(text: &[u8], mut at: usize) -> Option<usize> {
    let digits = |at: usize| {
        let count = text[at..]
            .iter()
            .take_while(|it| it.is_ascii_digit())
            .count();
        (count > 0).then_some(at + count)
    };
    if text.get(at) == Some(&b'-') {
        at += 1;
    }
    let start = at;
    at = digits(at)?;
    if text[start] == b'0' && at > start + 1 {
        return None;
    }
    if text.get(at) == Some(&b'.') {
        at = digits(at + 1)?;
    }
    if matches!(text.get(at), Some(b'e' | b'E')) {
        at += 1;
        if matches!(text.get(at), Some(b'+' | b'-')) {
            at += 1;
        }
        at = digits(at)?;
    }
    Some(at)
}

/// The end of the string at `at`, including its quotes.
fn quoted(text: &[u8], at: usize) -> Option<usize> {
    string(text, at).map(|(end, _)| end)
}

/// The end of the string at `at`, including its quotes, and whether it is known to have no escapes.
fn string(text: &[u8], at: usize) -> Option<(usize, bool)> {
    if text.get(at) != Some(&b'"') {
        return None;
    }
    let mut at = at + 1;
    // Most strings are short: their first bytes are looked at a word at a time.
    for _ in 0..2 {
        let Some(word) = text[at..].first_chunk() else {
            break;
        };
        let found = endings(u64::from_le_bytes(*word));
        if found != 0 {
            at += found.trailing_zeros() as usize / 8;
            if text[at] == b'"' {
                return Some((at + 1, true));
            }
            break;
        }
        at += 8;
    }
    let end = breakbulk_escape::string_end(&text[at..])?;
    Some((at + end + 1, false))
}

/// Sets the high bit of the first byte that needs an escape or ends the string, and of some later ones.
fn endings(word: u64) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    // Subtracting borrows from the next byte only where a byte is less: so the first one is exact.
    let less = |word: u64, than: u64| word.wrapping_sub(ONES * than) & !word;
    let quote = less(word ^ (ONES * b'"' as u64), 1);
    let backslash = less(word ^ (ONES * b'\\' as u64), 1);
    (less(word, 0x20) | quote | backslash) & ONES << 7
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::de::IgnoredAny;

    /// Whether the scan and serde_json agree on whether a text is an object.
    fn agree(text: &str) -> bool {
        let scanned = members(text.as_bytes(), |_, _| {}).is_some();
        let parsed: Result<std::collections::BTreeMap<String, IgnoredAny>, _> =
            serde_json::from_str(text);
        scanned == parsed.is_ok()
    }

    #[test]
    fn members_are_found_where_they_lie() {
        let text = r#" { "a" : [1, {"b":2}] ,"\u0063":"x\"y", "a":-0.5e+3 } "#;
        let mut found = Vec::new();
        members(text.as_bytes(), |name, at| {
            found.push((String::from_utf8(name.into_owned()).unwrap(), &text[at]));
        })
        .unwrap();
        let found: Vec<_> = found.iter().map(|(name, at)| (&**name, *at)).collect();
        assert_eq!(
            found,
            [
                ("a", r#"[1, {"b":2}]"#),
                ("c", r#""x\"y""#),
                ("a", "-0.5e+3")
            ]
        );
    }

    #[test]
    fn it_takes_and_refuses_what_serde_does() {
        let long = "é".repeat(100);
        let values = [
            "1",
            "-1",
            "01",
            "-",
            "1.",
            ".5",
            "1.5",
            "1e5",
            "1E+5",
            "1e-",
            "1e",
            "+1",
            "true",
            "tru",
            "false",
            "null",
            "nul",
            "nulll",
            "\"\"",
            "\"",
            "\"\\n\"",
            "\"\\x\"",
            "\"\\u12\"",
            "\"\\u00e9\"",
            "\"\\ud800\"",
            "\"\\u00g0\"",
            "\"\n\"",
            "\"\t\"",
            "[]",
            "[",
            "]",
            "[1]",
            "[1,]",
            "[,1]",
            "[1 2]",
            "[ 1 , 2 ]",
            "{}",
            "{",
            "}",
            "{\"a\":1}",
            "{\"a\":1,}",
            "{,}",
            "{\"a\"}",
            "{a:1}",
            "{\"a\":1 \"b\":2}",
            "[[]",
            "[}",
            "{]",
            "[{\"a\":[[],{}]},[[1]]]",
            "{\"\\ud800\":1}",
            "",
            " ",
            "\u{c}1",
            "1\u{b}",
            "/**/1",
            "NaN",
            "[\u{a0}]",
            "\"\\",
        ];
        let strings = [
            long.as_str(),
            "plain",
            "\\\\",
            "\\\"",
            "\u{1}",
            "\u{7f}",
            "\"",
        ];
        for value in values {
            for frame in [
                format!("{{\"k\":{value}}}"),
                format!("{{\"k\":[{value}]}}"),
                format!(" {{ \"k\" : {value} , \"l\" : {value} }} "),
                format!("{{\"k\":{{\"n\":{value}}}}}"),
                format!("{{\"k\":1}}{value}"),
                value.to_owned(),
            ] {
                assert!(agree(&frame), "{frame}");
            }
        }
        for (string, count) in strings
            .iter()
            .flat_map(|it| [0, 1, 15, 16, 17, 79, 80, 81, 200].map(|n| (it, n)))
        {
            for frame in [
                format!("{{\"k\":\"{}{string}\"}}", "x".repeat(count)),
                format!(
                    "{{\"k\":\"{}{string}{}\"}}",
                    "x".repeat(count),
                    "y".repeat(90)
                ),
                format!("{{\"{}{string}\":1}}", "x".repeat(count)),
            ] {
                assert!(agree(&frame), "{frame}");
            }
        }
    }

    #[test]
    fn every_cut_and_every_changed_byte_is_judged_as_serde_does() {
        let text = r#"{"jsonrpc":"2.0","id":-1.5e3,"params":{"a":[true,false,null,"\u00e9\\ long enough for a wide look: 0123456789012345678901234567890123456789"],"b":{}}}"#;
        for end in 0..=text.len() {
            assert!(agree(&text[..end]), "{}", &text[..end]);
        }
        for at in 0..text.len() {
            for byte in [
                b'"', b'\\', b'{', b'}', b'[', b']', b',', b':', b' ', b'0', b'x', 1,
            ] {
                let mut changed = text.as_bytes().to_vec();
                changed[at] = byte;
                let changed = String::from_utf8(changed).unwrap();
                assert!(agree(&changed), "{changed}");
            }
        }
    }
}
