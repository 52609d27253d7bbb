//! Which arguments of which tool are repeated in headers (`x-mcp-header`), learned from the lists of tools
//! that pass. Does no IO.
//!
//! A server over HTTP refuses a call whose headers do not repeat them, so whoever sends the call by HTTP
//! must know, also for a client that speaks over pipes; and a listener refuses such a call itself, since
//! the server behind it may be reached in another way.

use std::collections::BTreeMap;

use breakbulk_message::jsonrpc::{Envelope, elements, member, string};
use serde_json::Value;

use super::message::CALL_TOOL;
use super::mirror;

/// What stands before the name in a header.
pub(super) const PREFIX: &str = "mcp-param-";

/// The most tools that are remembered, and the most headers of one.
const TOOLS: usize = 4096;
const HEADERS: usize = 32;

/// The longest name of a tool, a header or a path that is remembered.
const NAME: usize = 256;

/// The longest argument that can be repeated: heads of requests are shorter.
const VALUE: usize = 64 << 10;

/// A larger list of tools is not read, and a larger tool of it is left out.
const LIST: usize = 8 << 20;
const TOOL: usize = 256 << 10;

/// About how much memory all that is remembered may take: each argument is counted with the names on the path
/// to it.
const REMEMBERED: usize = 4 << 20;

/// The tools that want arguments in headers.
#[derive(Debug, Default)]
pub(super) struct ToolHeaders {
    tools: BTreeMap<String, Vec<Declared>>,
    /// About how much memory they take.
    bytes: usize,
}

/// An argument that is repeated in a header.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Declared {
    /// The header after [`PREFIX`], in small letters.
    header: String,
    /// Where the argument is.
    path: Vec<String>,
}

impl ToolHeaders {
    /// Learns from an answer to `tools/list`. What is said of a tool replaces what was known.
    pub(super) fn learn(&mut self, answer: &[u8]) {
        if answer.len() > LIST {
            return;
        }
        let text = std::str::from_utf8(answer).ok();
        let result = text.and_then(Envelope::parse).and_then(|it| it.result);
        let tools = result.and_then(|result| member(result.get(), "tools"));
        for tool in tools.and_then(elements).into_iter().flatten() {
            // One by one: a parsed list takes many times the memory of its text.
            if tool.get().len() > TOOL {
                continue;
            }
            let Ok(tool) = serde_json::from_str::<Value>(tool.get()) else {
                continue;
            };
            let Some(name) = tool.get("name").and_then(Value::as_str) else {
                continue;
            };
            let mut declared = Vec::new();
            if let Some(schema) = tool.get("inputSchema") {
                collect(schema, &mut Vec::new(), &mut declared);
            }
            if let Some(known) = self.tools.remove(name) {
                self.bytes -= memory(name, &known);
            }
            let bytes = self.bytes + memory(name, &declared);
            let fits = self.tools.len() < TOOLS && bytes <= REMEMBERED;
            if !declared.is_empty() && name.len() <= NAME && fits {
                self.bytes = bytes;
                self.tools.insert(name.to_owned(), declared);
            }
        }
    }

    /// The headers of a request and their values, as they are written there.
    pub(super) fn headers(&self, method: &str, body: &[u8]) -> Vec<(String, String)> {
        let values = self.values(method, body).into_iter();
        values
            .map(|(header, value)| (format!("{PREFIX}{header}"), mirror::encode(&value)))
            .collect()
    }

    /// Checks that the headers of a request repeat its arguments; the error is a sentence.
    pub(super) fn check(
        &self,
        method: &str,
        body: &[u8],
        header: impl Fn(&str) -> Option<String>,
    ) -> Result<(), String> {
        for (name, value) in self.values(method, body) {
            let name = format!("{PREFIX}{name}");
            let Some(given) = header(&name) else {
                return Err(format!("the header {name} is missing"));
            };
            match mirror::decode(&given) {
                Some(given) if given == value || same_number(&given, &value) => {}
                Some(_) => return Err(format!("the header {name} differs from the argument")),
                None => return Err(format!("the header {name} is not written as it must be")),
            }
        }
        Ok(())
    }

    fn values(&self, method: &str, body: &[u8]) -> Vec<(&str, String)> {
        // Most servers have no such tools, and most calls are of others: those are not parsed.
        if method != CALL_TOOL || self.tools.is_empty() {
            return Vec::new();
        }
        let text = std::str::from_utf8(body).ok();
        let Some(params) = text.and_then(Envelope::parse).and_then(|it| it.params) else {
            return Vec::new();
        };
        let name = member(params.get(), "name").and_then(string);
        let Some(declared) = name.and_then(|name| self.tools.get(&*name)) else {
            return Vec::new();
        };
        let Some(arguments) = member(params.get(), "arguments") else {
            return Vec::new();
        };
        let found = declared.iter().filter_map(|declared| {
            let mut at = arguments;
            for step in &declared.path {
                at = member(at.get(), step)?;
            }
            Some((declared.header.as_str(), value(at.get())?))
        });
        found.collect()
    }
}

/// About how much memory a tool takes.
fn memory(name: &str, declared: &[Declared]) -> usize {
    let text = |text: &str| size_of::<String>() + text.len();
    let of_each = |one: &Declared| {
        let path: usize = one.path.iter().map(|step| text(step)).sum();
        size_of::<Declared>() + one.header.len() + path
    };
    text(name) + declared.iter().map(of_each).sum::<usize>()
}

/// A text, number or truth value as a header has it.
fn value(json: &str) -> Option<String> {
    // Only the value is parsed: that of all arguments may take many times their memory. A text that is longer than
    // any header is cut, so that it differs from all of them.
    let is_long = json.len() > VALUE;
    match json.as_bytes().first()? {
        b'"' if is_long => Some(json[..json.floor_char_boundary(VALUE)].to_owned()),
        b'"' | b't' | b'f' | b'-' | b'0'..=b'9' if !is_long => {
            Some(match serde_json::from_str(json).ok()? {
                Value::String(text) => text,
                value => value.to_string(),
            })
        }
        _ => None,
    }
}

/// Finds the declarations below a schema; those that are reached by `properties` alone.
fn collect(schema: &Value, path: &mut Vec<String>, declared: &mut Vec<Declared>) {
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else {
        return;
    };
    for (name, property) in properties {
        if path.len() >= HEADERS || declared.len() >= HEADERS || name.len() > NAME {
            return;
        }
        path.push(name.clone());
        if let Some(header) = property.get("x-mcp-header").and_then(Value::as_str)
            && header.len() <= NAME
            && !header.is_empty()
            && header.bytes().all(is_token)
        {
            declared.push(Declared {
                header: header.to_ascii_lowercase(),
                path: path.clone(),
            });
        }
        collect(property, path, declared);
        path.pop();
    }
}

/// Whether a byte may be in the name of a header.
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// Whether two texts are one number: `42.0` is `42`.
fn same_number(one: &str, other: &str) -> bool {
    match (one.parse::<f64>(), other.parse::<f64>()) {
        (Ok(one), Ok(other)) => one == other,
        _ => false,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const LISTED: &str = r#"{"jsonrpc":"2.0","id":1,"result":{"tools":[
        {"name":"sql","inputSchema":{"type":"object","properties":{
            "region":{"type":"string","x-mcp-header":"Region"},
            "deep":{"type":"object","properties":{"n":{"type":"integer","x-mcp-header":"N"}}},
            "list":{"type":"array","items":{"properties":{"a":{"x-mcp-header":"Never"}}}},
            "bad":{"type":"string","x-mcp-header":"a b"},
            "query":{"type":"string"}}}},
        {"name":"plain","inputSchema":{"type":"object"}}]}}"#;

    fn call(arguments: &str) -> String {
        format!(
            r#"{{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{{"name":"sql","arguments":{arguments}}}}}"#
        )
    }

    // MCPH-4
    #[test]
    fn arguments_that_a_tool_wants_in_headers_are_repeated_and_checked() {
        let mut tools = ToolHeaders::default();
        assert_eq!(tools.headers(CALL_TOOL, call("{}").as_bytes()), []);
        tools.learn(LISTED.as_bytes());
        let region = |value: &str| ("mcp-param-region".to_owned(), value.to_owned());
        let number = |value: &str| ("mcp-param-n".to_owned(), value.to_owned());
        for (arguments, headers) in [
            (r#"{"region":"us"}"#, vec![region("us")]),
            (r#"{"region":"ü"}"#, vec![region("=?base64?w7w=?=")]),
            (r#"{"deep":{"n":42},"query":"x"}"#, vec![number("42")]),
            (r#"{"region":null}"#, vec![]),
            (r#"{"region":["us"]}"#, vec![]),
            (r#"{"region":true,"region":"eu"}"#, vec![region("eu")]),
            (r#"{"region":"\u0075s","deep":[]}"#, vec![region("us")]),
        ] {
            let body = call(arguments);
            assert_eq!(
                tools.headers(CALL_TOOL, body.as_bytes()),
                headers,
                "{arguments}"
            );
            let given = |name: &str| {
                let found = headers.iter().find(|(known, _)| known == name);
                found.map(|(_, value)| value.clone())
            };
            assert_eq!(tools.check(CALL_TOOL, body.as_bytes(), given), Ok(()));
        }
        let check = |arguments: &str, header: Option<&str>| {
            let header = header.map(ToOwned::to_owned);
            let body = call(arguments);
            tools.check(CALL_TOOL, body.as_bytes(), |_| header.clone())
        };
        assert!(check(r#"{"region":"us"}"#, None).is_err());
        assert!(check(r#"{"region":"us"}"#, Some("eu")).is_err());
        assert!(check(r#"{"region":"us"}"#, Some("=?base64?*?=")).is_err());
        assert!(check(r#"{"deep":{"n":42}}"#, Some("42.0")).is_ok());
        let long = format!(r#"{{"region":"{}"}}"#, "x".repeat(2 * VALUE));
        assert!(check(&long, Some("x")).is_err());
        // A list that says of the tool that it wants nothing makes it forgotten.
        tools.learn(LISTED.replace("x-mcp-header", "x").as_bytes());
        assert_eq!(tools.tools.len(), 0);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut tools = ToolHeaders::default();
        for number in 0..TOOLS + 10 {
            let properties = r#"{"a":{"x-mcp-header":"A"}}"#;
            tools.learn(list(&format!("t{number}"), properties).as_bytes());
        }
        assert_eq!(tools.tools.len(), TOOLS);
        let known = tools.bytes;
        // What is known already is replaced, and counted once.
        tools.learn(list("t0", r#"{"a":{"x-mcp-header":"A"}}"#).as_bytes());
        assert_eq!((tools.tools.len(), tools.bytes), (TOOLS, known));
        tools.learn(list("t0", "{}").as_bytes());
        assert!(tools.tools.len() == TOOLS - 1 && tools.bytes < known);
    }

    #[test]
    fn headers_far_below_take_no_more_memory_than_others() {
        let leaves: Vec<String> = (0..HEADERS)
            .map(|number| format!(r#""{number}":{{"x-mcp-header":"H{number}"}}"#))
            .collect();
        let mut schema = format!("{{{}}}", leaves.join(","));
        for _ in 1..HEADERS {
            schema = format!(r#"{{"{}":{{"properties":{schema}}}}}"#, "n".repeat(NAME));
        }
        let mut tools = ToolHeaders::default();
        for number in 0..100 {
            tools.learn(list(&format!("t{number}"), &schema).as_bytes());
        }
        assert!(tools.bytes <= REMEMBERED, "{}", tools.bytes);
        assert!(
            (1..100).contains(&tools.tools.len()),
            "{}",
            tools.tools.len()
        );
    }

    fn list(tool: &str, properties: &str) -> String {
        format!(
            r#"{{"jsonrpc":"2.0","id":1,"result":{{"tools":[{{"name":"{tool}","inputSchema":{{"properties":{properties}}}}}]}}}}"#
        )
    }
}
