//! Parses the query of a request.

use std::borrow::Cow;

/// The first parameter of this name, decoded; `None` if it is absent or not UTF-8.
pub(crate) fn parameter(query: Option<&str>, name: &str) -> Option<String> {
    query?
        .split('&')
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .find(|(key, _)| decode(key).as_deref() == Some(name))
        .and_then(|(_, value)| decode(value).map(Cow::into_owned))
}

fn decode(text: &str) -> Option<Cow<'_, str>> {
    if !text.contains(['%', '+']) {
        return Some(Cow::Borrowed(text));
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let digit = |at: usize| char::from(*after.get(at)?).to_digit(16);
        match (first, digit(0), digit(1)) {
            (b'%', Some(high), Some(low)) => {
                bytes.push((high * 16 + low) as u8);
                rest = &after[2..];
            }
            (b'+', ..) => {
                bytes.push(b' ');
                rest = after;
            }
            (byte, ..) => {
                bytes.push(*byte);
                rest = after;
            }
        }
    }
    String::from_utf8(bytes).ok().map(Cow::Owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_the_name_is_decoded() {
        for (query, expected) in [
            ("peer=2000", Some("2000")),
            ("wait=3&peer=a+b%20c", Some("a b c")),
            ("peer=%C3%A4&peer=2", Some("ä")),
            ("p%65er=1", Some("1")),
            ("peer", Some("")),
            ("peer=%", Some("%")),
            ("peer=%zz%4", Some("%zz%4")),
            ("peer=%FF", None),
            ("Peer=1", None),
            ("", None),
        ] {
            let found = parameter(Some(query), "peer");
            assert_eq!(found.as_deref(), expected, "{query}");
        }
    }
}
