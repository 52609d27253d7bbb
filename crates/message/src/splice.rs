//! Changes one value in a JSON text and no other byte.

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::jsonrpc::range_in;
use crate::scan::members;

/// Sets the value at `path` below `object`, which is a slice of `text`. Missing objects on the path
/// are inserted after the last member; `null` counts as missing. `None` if the path leads through
/// something that is not an object.
pub(crate) fn set(text: &str, object: &str, path: &[&str], value: &str) -> Option<String> {
    let (name, rest) = path.split_first()?;
    match find(object, name)? {
        None => Some(insert(text, object, name, &wrapped(rest, value))),
        Some(old) if rest.is_empty() || old.get() == "null" => {
            Some(replace(text, old.get(), &wrapped(rest, value)))
        }
        Some(old) => set(text, old.get(), rest, value),
    }
}

/// Replaces `part`, which must be a slice of `text`, by another value.
pub(crate) fn replace(text: &str, part: &str, with: &str) -> String {
    let range = range_in(text, part);
    let mut out = String::with_capacity(text.len() - part.len() + with.len());
    out.push_str(&text[..range.start]);
    out.push_str(with);
    out.push_str(&text[range.end..]);
    out
}

/// Removes every member of this name from `object`, which is a slice of `text`, each with one comma.
/// `None` if it has none, or is not an object.
pub(crate) fn remove(text: &str, object: &str, name: &str) -> Option<String> {
    let object = range_in(text, object);
    let mut out = String::new();
    // Everything before `copied` was copied to `out` or removed.
    let mut copied = 0;
    let (mut kept_end, mut first_gone, mut gone_end) = (None, None, None);
    let mut name_start = after_blank(text, object.start + 1);
    members(text[object.clone()].as_bytes(), |found, value| {
        let (start, end) = (name_start, object.start + value.end);
        // If there is no comma no member follows.
        name_start = after_blank(text, after_blank(text, end) + 1);
        if *found == *name.as_bytes() {
            first_gone.get_or_insert(start);
            gone_end = Some(end);
            return;
        }
        if let Some(gone) = first_gone.take() {
            // The run is removed with the comma after it.
            out.push_str(&text[copied..gone]);
            copied = start;
        }
        kept_end = Some(end);
    })?;
    let gone_end = gone_end?;
    if let Some(gone) = first_gone {
        // A run at the end is removed with the comma before it.
        out.push_str(&text[copied..kept_end.unwrap_or(gone)]);
        copied = gone_end;
    }
    out.push_str(&text[copied..]);
    Some(out)
}

/// Where the blank space that begins at `at` ends.
fn after_blank(text: &str, at: usize) -> usize {
    let rest = text.get(at..).unwrap_or_default();
    at + rest.len() - rest.trim_start_matches([' ', '\n', '\t', '\r']).len()
}

/// A member of an object (the last one if the name occurs twice); the outer `None` means that it is
/// not an object.
pub(crate) fn find<'a>(object: &'a str, name: &str) -> Option<Option<&'a RawValue>> {
    let mut json = serde_json::Deserializer::from_str(object);
    let found = json.deserialize_map(Find { name }).ok()?;
    json.end().ok()?;
    Some(found)
}

/// `text` as a JSON string.
pub(crate) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn insert(text: &str, object: &str, name: &str, value: &str) -> String {
    let object = object.trim_end();
    let members = object.strip_suffix('}').unwrap_or(object).trim_end();
    let at = range_in(text, members).end;
    let comma = if members.ends_with('{') { "" } else { "," };
    let mut out = String::with_capacity(text.len() + name.len() + value.len() + 4);
    out.push_str(&text[..at]);
    out.push_str(comma);
    out.push('"');
    out.push_str(name);
    out.push_str("\":");
    out.push_str(value);
    out.push_str(&text[at..]);
    out
}

fn wrapped(path: &[&str], value: &str) -> String {
    path.iter().rev().fold(value.to_owned(), |value, name| {
        format!(r#"{{"{name}":{value}}}"#)
    })
}

struct Find<'n> {
    name: &'n str,
}

impl<'de> Visitor<'de> for Find<'_> {
    type Value = Option<&'de RawValue>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        while let Some(is_it) = map.next_key_seed(Is { name: self.name })? {
            if is_it {
                found = Some(map.next_value()?);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }
}

struct Is<'n> {
    name: &'n str,
}

impl<'de> DeserializeSeed<'de> for Is<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, key: D) -> Result<bool, D::Error> {
        key.deserialize_identifier(self)
    }
}

impl Visitor<'_> for Is<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a member's name")
    }

    fn visit_str<E>(self, name: &str) -> Result<bool, E> {
        Ok(name == self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_member_goes() {
        for (text, expected) in [
            (r#"{"a":1}"#, Some("{}")),
            (r#"{ "a" : {"a":[1]} , "b":2 }"#, Some(r#"{ "b":2 }"#)),
            (r#"{"b":2 , "a":1 }"#, Some(r#"{"b":2 }"#)),
            (
                r#"{"b":{"a":1},"a":1,"c":3}"#,
                Some(r#"{"b":{"a":1},"c":3}"#),
            ),
            // All members of the name are removed: none of them is left to count instead.
            (r#"{"a":1,"b":2,"\u0061":3,"a":4}"#, Some(r#"{"b":2}"#)),
            (
                r#"{"b":2,"a":1,"a":2,"c":3,"a":4}"#,
                Some(r#"{"b":2,"c":3}"#),
            ),
            (r#"{"a":1,"a":2}"#, Some("{}")),
            (r#"{"b":"a"}"#, None),
            ("{}", None),
            ("[]", None),
            (r#"{"a":1"#, None),
        ] {
            let around = format!("x{text}y");
            let object = &around[1..around.len() - 1];
            let expected = expected.map(|it| format!("x{it}y"));
            assert_eq!(remove(&around, object, "a"), expected, "{text}");
        }
    }

    #[test]
    fn only_the_value_changes() {
        for (text, path, expected) in [
            ("{}", &["a"][..], Some(r#"{"a":1}"#)),
            ("{ }", &["a"], Some(r#"{"a":1 }"#)),
            (" {\"b\" : {}\n} ", &["a"], Some(" {\"b\" : {},\"a\":1\n} ")),
            (r#"{"a":[2]}"#, &["a"], Some(r#"{"a":1}"#)),
            (r#"{"a": null ,"b":0}"#, &["a"], Some(r#"{"a": 1 ,"b":0}"#)),
            ("{}", &["a", "b", "c"], Some(r#"{"a":{"b":{"c":1}}}"#)),
            (r#"{"a":null}"#, &["a", "b"], Some(r#"{"a":{"b":1}}"#)),
            (
                r#"{"a":{"x":{}}}"#,
                &["a", "b"],
                Some(r#"{"a":{"x":{},"b":1}}"#),
            ),
            (
                r#"{"a":{"b":2},"a":{"b":3}}"#,
                &["a", "b"],
                Some(r#"{"a":{"b":2},"a":{"b":1}}"#),
            ),
            (r#"{"\u0061":2}"#, &["a"], Some(r#"{"\u0061":1}"#)),
            (r#"{"a":"}"}"#, &["b"], Some(r#"{"a":"}","b":1}"#)),
            (r#"{"a":7}"#, &["a", "b"], None),
            (r#"{"a":[]}"#, &["a", "b"], None),
            ("[]", &["a"], None),
            ("", &["a"], None),
            (r#"{"a":1}x"#, &["a"], None),
            ("{}", &[], None),
        ] {
            assert_eq!(
                set(text, text, path, "1").as_deref(),
                expected,
                "{text} {path:?}"
            );
        }
    }
}
