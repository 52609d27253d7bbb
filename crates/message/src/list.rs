//! JSON arrays that are read element by element: even a list of a million empty strings takes no
//! memory.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::jsonrpc::{range_in, string};

/// Iterates over the elements of a JSON array.
#[derive(Clone, Copy, Debug, Default)]
pub struct Elements<'a> {
    /// The unread text between the brackets.
    rest: &'a str,
}

impl<'a> Elements<'a> {
    /// `None` if it is not an array.
    pub fn of(array: &'a RawValue) -> Option<Self> {
        let rest = array.get().strip_prefix('[')?.strip_suffix(']')?;
        Some(Self {
            rest: rest.trim_start(),
        })
    }
}

impl<'a> Iterator for Elements<'a> {
    type Item = &'a RawValue;

    fn next(&mut self) -> Option<&'a RawValue> {
        // The array is valid JSON, so an error can only mean its end.
        let element = <&RawValue>::deserialize(&mut serde_json::Deserializer::from_str(self.rest));
        let element = element.ok()?;
        let behind = self.rest[range_in(self.rest, element.get()).end..].trim_start();
        self.rest = behind.strip_prefix(',').unwrap_or(behind).trim_start();
        Some(element)
    }
}

/// Iterates over the elements of an array of strings.
#[derive(Clone, Copy, Debug, Default)]
pub struct Strings<'a> {
    elements: Elements<'a>,
}

impl<'a> Strings<'a> {
    /// `None` if it is not an array of strings.
    pub fn of(array: &'a RawValue) -> Option<Self> {
        let mut elements = Elements::of(array)?;
        let strings = Self { elements };
        elements
            .all(|element| string(element).is_some())
            .then_some(strings)
    }
}

impl<'a> Iterator for Strings<'a> {
    type Item = Cow<'a, str>;

    fn next(&mut self) -> Option<Cow<'a, str>> {
        string(self.elements.next()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(text: &str) -> &RawValue {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn elements_are_found_one_by_one() {
        for (text, expected) in [
            ("[]", &[][..]),
            ("[ ]", &[]),
            ("[1]", &["1"]),
            (
                "[ 1 ,\n\"a,]\" , [2,[3]],{\"b\":[]} ]",
                &["1", "\"a,]\"", "[2,[3]]", "{\"b\":[]}"],
            ),
        ] {
            let found: Vec<_> = Elements::of(raw(text))
                .unwrap()
                .map(RawValue::get)
                .collect();
            assert_eq!(found, expected, "{text}");
        }
        for no_array in ["{}", "1", "null", "\"[]\""] {
            assert!(Elements::of(raw(no_array)).is_none(), "{no_array}");
        }
    }

    #[test]
    fn strings_are_checked_when_the_list_is_read() {
        let found: Vec<_> = Strings::of(raw(r#"["a", "\u00e9"]"#)).unwrap().collect();
        assert_eq!(found, ["a", "é"]);
        for no_strings in [r#"["a",1]"#, r#"[null]"#, r#"["\ud800"]"#, "{}", "\"a\""] {
            assert!(Strings::of(raw(no_strings)).is_none(), "{no_strings}");
        }
    }

    #[test]
    fn deep_elements_cost_no_stack() {
        let deep = format!("[{}{},2]", "[".repeat(1 << 20), "]".repeat(1 << 20));
        assert_eq!(Elements::of(raw(&deep)).unwrap().count(), 2);
    }
}
