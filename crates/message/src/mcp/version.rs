//! The MCP version in the `_meta` of a request, from MCP 2026-07-28 on. With earlier versions, client and
//! server agree on the version once, by `initialize`.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::value::RawValue;

use crate::jsonrpc::{Envelope, member};
use crate::splice::quoted;

/// The request by which a client of MCP 2026-07-28 begins.
pub const DISCOVER: &str = "server/discover";

/// The names in `_meta` that MCP keeps for itself.
const RESERVED: &str = "io.modelcontextprotocol/";

/// The name in `_meta` of a request's version.
const VERSION: &str = "io.modelcontextprotocol/protocolVersion";

/// MCP's own members of a request's `_meta`, as an object; `None` if they do not name a version.
pub fn version_meta(text: &str) -> Option<String> {
    let envelope = Envelope::parse(text)?;
    let meta = member(envelope.params?.get(), "_meta")?;
    let members: BTreeMap<Cow<'_, str>, &RawValue> = serde_json::from_str(meta.get()).ok()?;
    members.get(VERSION)?;
    let reserved = members
        .iter()
        .filter(|(name, _)| name.starts_with(RESERVED))
        .map(|(name, value)| format!("{}:{}", quoted(name), value.get()));
    Some(format!("{{{}}}", reserved.collect::<Vec<_>>().join(",")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_says_its_version_or_not() {
        let request = |meta: &str| {
            format!(r#"{{"jsonrpc":"2.0","id":1,"method":"m","params":{{"a":1,"_meta":{meta}}}}}"#)
        };
        for (meta, expected) in [
            (
                r#"{"progressToken":1,"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{ "name":"x"},"other":2}"#,
                Some(
                    r#"{"io.modelcontextprotocol/clientInfo":{ "name":"x"},"io.modelcontextprotocol/protocolVersion":"2026-07-28"}"#,
                ),
            ),
            (r#"{"io.modelcontextprotocol/clientInfo":{}}"#, None),
            (r#"{"progressToken":1}"#, None),
            ("null", None),
            ("[]", None),
        ] {
            assert_eq!(version_meta(&request(meta)).as_deref(), expected, "{meta}");
        }
        assert_eq!(
            version_meta(r#"{"jsonrpc":"2.0","id":1,"method":"m"}"#),
            None
        );
    }
}
