//! Scans a JSON text in a single pass without buffering it: whether it is complete, and the values of a
//! few top-level members. Holds at most a few hundred bytes; does not validate the JSON.

use std::collections::BTreeMap;

use memchr::memchr2;

/// The longest value that is kept.
const SHORT: usize = 256;

/// The state of a scan.
#[derive(Debug, Default)]
pub struct JsonScan {
    /// How many braces and brackets are open.
    depth: u64,
    is_object: bool,
    in_string: bool,
    escaped: bool,
    in_value: bool,
    /// The outermost brace or bracket was closed.
    ended: bool,
    /// The text is no object or array, or something comes after it.
    other: bool,
    name: ShortText,
    value: ShortText,
    /// The names of the members to keep.
    wanted: &'static [&'static str],
    members: Members,
}

/// Top-level members of a JSON object that was skipped: those of the requested names that it had.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Members(BTreeMap<&'static str, Option<String>>);

impl Members {
    /// The value of a member as JSON text, if it is present and a short number, literal or string.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name)?.as_deref()
    }

    /// Whether the member is present, whatever its value.
    pub fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }
}

impl FromIterator<(&'static str, Option<String>)> for Members {
    fn from_iter<I: IntoIterator<Item = (&'static str, Option<String>)>>(members: I) -> Self {
        Self(members.into_iter().collect())
    }
}

/// Collects bytes, unless there are more than [`SHORT`].
#[derive(Debug, Default)]
struct ShortText {
    bytes: Vec<u8>,
    over: bool,
}

impl ShortText {
    fn push(&mut self, bytes: &[u8]) {
        self.over |= self.bytes.len() + bytes.len() > SHORT;
        if !self.over {
            self.bytes.extend_from_slice(bytes);
        }
    }

    /// Takes the text; `None` if it was too long, empty or not UTF-8.
    fn take(&mut self) -> Option<String> {
        let Self { bytes, over } = std::mem::take(self);
        String::from_utf8(bytes)
            .ok()
            .filter(|text| !over && !text.is_empty())
    }
}

impl JsonScan {
    /// A scan that keeps the members of these names.
    pub fn new(wanted: &'static [&'static str]) -> Self {
        Self {
            wanted,
            ..Self::default()
        }
    }

    /// Whether a text is one complete object or array.
    #[cfg(any(feature = "process", test))]
    pub(crate) fn is_complete_json(text: &[u8]) -> bool {
        let mut scan = Self::default();
        scan.feed(text);
        scan.is_complete()
    }

    /// Whether the text so far is one complete object or array.
    pub(crate) fn is_complete(&self) -> bool {
        self.ended && !self.other
    }

    /// The requested members; none if the text is not complete.
    pub fn members(self) -> Members {
        match self.is_complete() {
            true => self.members,
            false => Members::default(),
        }
    }

    /// Scans the next bytes.
    pub fn feed(&mut self, mut bytes: &[u8]) {
        while let Some(&byte) = bytes.first() {
            if self.other {
                return;
            }
            let seen = match self.in_string {
                true => self.string(bytes),
                false => {
                    self.token(byte);
                    1
                }
            };
            bytes = &bytes[seen..];
        }
    }

    /// Scans within a string, up to the next quote or backslash; returns how many bytes it used.
    fn string(&mut self, bytes: &[u8]) -> usize {
        let end = match self.escaped {
            true => 0,
            false => memchr2(b'"', b'\\', bytes).unwrap_or(bytes.len()),
        };
        let Some(&byte) = bytes.get(end) else {
            self.keep(bytes);
            return bytes.len();
        };
        self.keep(&bytes[..=end]);
        if std::mem::take(&mut self.escaped) {
            return end + 1;
        }
        match byte {
            b'\\' => self.escaped = true,
            _ => self.in_string = false,
        }
        end + 1
    }

    fn token(&mut self, byte: u8) {
        match byte {
            b' ' | b'\t' | b'\r' | b'\n' => {}
            _ if self.ended => self.other = true,
            b'{' | b'[' => {
                if self.depth == 0 {
                    self.is_object = byte == b'{';
                }
                // A nested object or array is not kept as a value.
                self.value.over |= self.depth > 0;
                self.depth += 1;
            }
            _ if self.depth == 0 => self.other = true,
            b'}' | b']' => {
                self.depth -= 1;
                if self.depth == 0 {
                    self.member();
                    self.ended = true;
                }
            }
            b',' if self.depth == 1 => self.member(),
            b':' if self.depth == 1 => self.in_value = true,
            _ => {
                self.in_string = byte == b'"';
                self.keep(&[byte]);
            }
        }
    }

    fn keep(&mut self, bytes: &[u8]) {
        match (self.depth, self.is_object, self.in_value) {
            (1, true, false) => self.name.push(bytes),
            (1, true, true) => self.value.push(bytes),
            _ => {}
        }
    }

    /// Ends a member of the outermost object. If a name occurs twice, the last value is kept.
    fn member(&mut self) {
        let (name, value) = (self.name.take(), self.value.take());
        self.in_value = false;
        let Some(name) = name.as_deref().map(|name| name.trim_matches('"')) else {
            return;
        };
        if let Some(name) = self.wanted.iter().find(|wanted| **wanted == name) {
            self.members.0.insert(name, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_found_wherever_they_are() {
        let long = "x".repeat(1000);
        let none = (None, None, false);
        let found = |id: &str, method: Option<&str>, answer| {
            (Some(id.to_owned()), method.map(ToOwned::to_owned), answer)
        };
        for (text, expected) in [
            (
                r#"{"v":"2.0","id":7,"method":"m","params":{"id":8}}"#.to_owned(),
                found("7", Some("\"m\""), false),
            ),
            (
                format!(r#"{{"method":"m","params":{{"id":1,"t":"{long}"}},"id":"a\"}}b"}} "#),
                found(r#""a\"}b""#, Some("\"m\""), false),
            ),
            (
                format!(r#"{{"result":["{long}",{{"method":"x"}}],"id": -1 }}"#),
                found("-1", None, true),
            ),
            (
                r#"{"id":1,"error":{},"id":2}"#.to_owned(),
                found("2", None, true),
            ),
            (
                r#"{"method":"m"}"#.to_owned(),
                (None, Some("\"m\"".to_owned()), false),
            ),
            // A value that is too long or nested; texts that are cut off, more than one, not an
            // object, empty.
            (format!(r#"{{"id":"{long}"}}"#), none.clone()),
            (r#"{"id":{"a":1}}"#.to_owned(), none.clone()),
            (
                r#"{"id":7,"method":"m","params":["#.to_owned(),
                none.clone(),
            ),
            (r#"{"id":7}{"id":8}"#.to_owned(), none.clone()),
            (r#"[{"id":7,"method":"m"}]"#.to_owned(), none.clone()),
            (r#""id":7"#.to_owned(), none.clone()),
            (String::new(), none),
        ] {
            for step in [1, 2, 3, 7, 64, usize::MAX] {
                let mut scan = JsonScan::new(&["id", "method", "result", "error"]);
                for bytes in text.as_bytes().chunks(step.min(text.len().max(1))) {
                    scan.feed(bytes);
                }
                let shown: String = text.chars().take(60).collect();
                let members = scan.members();
                let text = |name| members.get(name).map(ToOwned::to_owned);
                let is_answer = members.has("result") || members.has("error");
                let seen = (text("id"), text("method"), is_answer);
                assert_eq!(seen, expected, "{shown} by {step}");
            }
        }
    }

    #[test]
    fn a_text_is_whole_at_its_last_brace() {
        let text = r#"{"a":["}",{"b":"\\"}],"c":"\"{"}"#;
        assert!(JsonScan::is_complete_json(text.as_bytes()));
        assert!(JsonScan::is_complete_json(b" [1] \r"));
        for end in 0..text.len() {
            assert!(
                !JsonScan::is_complete_json(&text.as_bytes()[..end]),
                "{end}"
            );
        }
        for other in ["12", "\"x\"", "{}x", "}", "{}{}", "null"] {
            assert!(!JsonScan::is_complete_json(other.as_bytes()), "{other}");
        }
    }
}
