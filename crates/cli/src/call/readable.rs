//! JSON for people: bridges write everything beyond ASCII as escapes, and people want to read it. What may not go to a
//! terminal is escaped instead: it is the same JSON.

use breakbulk::net::is_unsafe_to_show;

use crate::safe_json::put_escaped;

/// Hands on JSON, with the characters that its `\u` escapes stand for in place of the escapes. Control
/// characters, and those that reorder or break lines, stay escaped: the text may go to a terminal.
pub(super) fn readable<E>(
    json: &str,
    mut put: impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let mut rest = json;
    // Backslashes are in strings only.
    while let Some(at) = rest.find('\\') {
        put_escaped(&rest[..at], &mut put)?;
        rest = &rest[at..];
        let (character, len) = escaped(rest);
        match character.filter(|c| !is_unsafe_to_show(*c)) {
            Some(character) => put(character.encode_utf8(&mut [0; 4]).as_bytes())?,
            None => put(&rest.as_bytes()[..len])?,
        }
        rest = &rest[len..];
    }
    put_escaped(rest, &mut put)
}

/// The character beyond ASCII that an escape stands for, if so, and the length of the escape.
fn escaped(text: &str) -> (Option<char>, usize) {
    let Some(unit) = unit(text) else {
        // Two bytes, of which the second is ASCII in all JSON.
        return (
            None,
            text.char_indices().nth(2).map_or(text.len(), |(at, _)| at),
        );
    };
    let pair = text.get(6..).and_then(self::unit);
    let mut units = char::decode_utf16([Some(unit), pair].into_iter().flatten());
    match units.next() {
        Some(Ok(character)) if !character.is_ascii() => {
            (Some(character), 6 * character.len_utf16())
        }
        _ => (None, 6),
    }
}

/// The number in an escape such as `\u00e9`.
fn unit(text: &str) -> Option<u16> {
    let digits = text.strip_prefix("\\u")?.get(..4)?;
    let is_hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hex
        .then(|| u16::from_str_radix(digits, 16).ok())
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_become_what_they_stand_for() {
        for (json, expected) in [
            ("[1, \"a\"]", "[1, \"a\"]"),
            (r#""\u00e9""#, "\"é\""),
            (r#"{"\u4e2d": "\ud83d\ude00x"}"#, "{\"中\": \"😀x\"}"),
            ("\"é\"", "\"é\""),
            // What a peer did not escape is escaped where a terminal would obey it.
            (
                "\"a\u{9b}2Jé\u{202e}\u{e0001}\" \n",
                "\"a\\u009b2Jé\\u202e\\udb40\\udc01\" \n",
            ),
            // What JSON or a terminal needs escaped stays so.
            (
                r#""\u0041\u0022\u001b\u009b\n\"""#,
                r#""\u0041\u0022\u001b\u009b\n\"""#,
            ),
            (r#""\u2028\u202e\u2066""#, r#""\u2028\u202e\u2066""#),
            // A backslash that is escaped itself does not begin an escape.
            (r#""\\u00e9\\\u00e9""#, "\"\\\\u00e9\\\\é\""),
            // Surrogates without their other half.
            (
                r#""\ud83d \ude00 \ud83d\u00e9""#,
                r#""\ud83d \ude00 \ud83dé""#,
            ),
            (r#""\ud83d"#, r#""\ud83d"#),
            ("\\", "\\"),
        ] {
            let mut written = Vec::new();
            let put = |bytes: &[u8]| -> Result<(), ()> {
                written.extend_from_slice(bytes);
                Ok(())
            };
            readable(json, put).unwrap();
            assert_eq!(String::from_utf8(written).unwrap(), expected, "{json}");
        }
    }
}
