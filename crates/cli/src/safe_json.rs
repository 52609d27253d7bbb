//! JSON of a peer that may go to a terminal: the same JSON, with other escapes.

use breakbulk::net::is_unsafe_to_show;

/// Hands on JSON as it is, but for characters beyond ASCII that may not go to a terminal: those are escaped.
pub(crate) fn put_escaped<E>(
    json: &str,
    put: &mut impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let mut from = 0;
    // Mostly there is nothing but ASCII.
    if !json.is_ascii() {
        for (at, character) in json.char_indices() {
            if character.is_ascii() || !is_unsafe_to_show(character) {
                continue;
            }
            put(&json.as_bytes()[from..at])?;
            for unit in character.encode_utf16(&mut [0; 2]) {
                put(format!("\\u{unit:04x}").as_bytes())?;
            }
            from = at + character.len_utf8();
        }
    }
    put(&json.as_bytes()[from..])
}
