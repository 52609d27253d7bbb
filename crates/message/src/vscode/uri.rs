//! Rewrites URIs in messages between two ends that see different file systems.

use super::value::{MAX_DEPTH, Value};

/// How deep the original searches for URIs in incoming values.
const INCOMING_DEPTH: usize = 200;

/// The scheme and authority of a URI.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Such as `file` or `vscode-remote`.
    pub scheme: String,
    /// Such as `ssh-remote+host`; empty for none.
    pub authority: String,
}

/// Maps the scheme and authority of URIs; `None` leaves a URI unchanged.
pub trait UriTransformer: Send + Sync {
    /// Maps an incoming URI.
    fn incoming(&self, scheme: &str, authority: &str) -> Option<Place>;

    /// Maps an outgoing URI.
    fn outgoing(&self, scheme: &str, authority: &str) -> Option<Place>;
}

/// The mapping of a remote extension host: its own files are `vscode-remote` for the other side,
/// and the other side's files are `vscode-local` for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StockTransformer {
    /// The authority of this host in `vscode-remote` URIs.
    pub authority: String,
}

impl UriTransformer for StockTransformer {
    fn incoming(&self, scheme: &str, _authority: &str) -> Option<Place> {
        let scheme = match scheme {
            "vscode-remote" => "file",
            "file" => "vscode-local",
            _ => return None,
        };
        Some(Place {
            scheme: scheme.into(),
            authority: String::new(),
        })
    }

    fn outgoing(&self, scheme: &str, _authority: &str) -> Option<Place> {
        let (scheme, authority) = match scheme {
            "file" => ("vscode-remote", self.authority.as_str()),
            "vscode-local" => ("file", ""),
            _ => return None,
        };
        Some(Place {
            scheme: scheme.into(),
            authority: authority.into(),
        })
    }
}

/// Rewrites the URIs in an incoming value; `depth` is the depth of `value` itself.
pub(super) fn transform_incoming(value: &mut Value, uris: &dyn UriTransformer, depth: usize) {
    let left = (INCOMING_DEPTH + 1).saturating_sub(depth);
    transform(value, left, &|scheme, authority| {
        uris.incoming(scheme, authority)
    });
}

/// Rewrites the URIs in an outgoing value, as deep as values can be written.
pub(super) fn transform_outgoing(value: &mut Value, uris: &dyn UriTransformer) {
    transform(value, MAX_DEPTH, &|scheme, authority| {
        uris.outgoing(scheme, authority)
    });
}

fn transform(value: &mut Value, levels: usize, place: &dyn Fn(&str, &str) -> Option<Place>) {
    let Some(below) = levels.checked_sub(1) else {
        return;
    };
    if is_uri(value) {
        if let Some(rewritten) = rewritten(value, place) {
            *value = rewritten;
        }
        return;
    }
    match value {
        Value::Array(items) => items
            .iter_mut()
            .for_each(|item| transform(item, below, place)),
        Value::Object(entries) => entries
            .iter_mut()
            .for_each(|(_, value)| transform(value, below, place)),
        _ => {}
    }
}

fn is_uri(value: &Value) -> bool {
    value.get("$mid").and_then(Value::as_f64) == Some(1.0)
}

/// Rewrites a URI, with its keys in the original's order and without empty ones. `fsPath`, `_sep` and
/// `external` contain the old location, and are dropped, as in the original.
fn rewritten(uri: &Value, place: &dyn Fn(&str, &str) -> Option<Place>) -> Option<Value> {
    let part = |key| uri.get(key).and_then(Value::as_str).unwrap_or_default();
    let place = place(part("scheme"), part("authority"))?;
    let parts = [
        ("path", part("path")),
        ("scheme", &place.scheme),
        ("authority", &place.authority),
        ("query", part("query")),
        ("fragment", part("fragment")),
    ];
    let mid = [("$mid".into(), Value::Number(1.0))].into_iter();
    let parts = parts.into_iter().filter(|(_, part)| !part.is_empty());
    let parts = parts.map(|(key, part)| (key.into(), part.into()));
    Some(Value::Object(mid.chain(parts).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stock() -> StockTransformer {
        StockTransformer {
            authority: "ssh+h".into(),
        }
    }

    fn through(json: &str, change: impl Fn(&mut Value)) -> String {
        let mut value = Value::parse(json).unwrap();
        change(&mut value);
        value.to_json().unwrap().to_string()
    }

    #[test]
    fn stock_moves() {
        let incoming = [
            (
                r#"{"$mid":1,"path":"/a","scheme":"vscode-remote","authority":"ssh+h"}"#,
                r#"{"$mid":1,"path":"/a","scheme":"file"}"#,
            ),
            (
                r#"{"$mid":1,"fsPath":"/l","_sep":1,"external":"file:///l","path":"/l","scheme":"file","query":"q"}"#,
                r#"{"$mid":1,"path":"/l","scheme":"vscode-local","query":"q"}"#,
            ),
            (
                r#"[{"x":{"$mid":1,"path":"/w","scheme":"https","external":"e"}},{"$mid":2,"scheme":"file"},{"scheme":"file"}]"#,
                r#"[{"x":{"$mid":1,"path":"/w","scheme":"https","external":"e"}},{"$mid":2,"scheme":"file"},{"scheme":"file"}]"#,
            ),
        ];
        for (before, after) in incoming {
            assert_eq!(
                through(before, |value| transform_incoming(value, &stock(), 0)),
                after
            );
        }
        let outgoing = [
            (
                r#"{"f":[{"$mid":1,"path":"/a","scheme":"file","fragment":"L1"}]}"#,
                r#"{"f":[{"$mid":1,"path":"/a","scheme":"vscode-remote","authority":"ssh+h","fragment":"L1"}]}"#,
            ),
            (
                r#"{"$mid":1,"path":"/a","scheme":"vscode-local"}"#,
                r#"{"$mid":1,"path":"/a","scheme":"file"}"#,
            ),
        ];
        for (before, after) in outgoing {
            assert_eq!(
                through(before, |value| transform_outgoing(value, &stock())),
                after
            );
        }
    }

    #[test]
    fn incoming_uris_deeper_than_200_are_left_alone() {
        let uri = r#"{"$mid":1,"scheme":"file"}"#;
        let nested = |depth| "[".repeat(depth) + uri + &"]".repeat(depth);
        for (depth, changes) in [(0, true), (200, true), (201, false)] {
            let json = nested(depth);
            let after = through(&json, |value| transform_incoming(value, &stock(), 0));
            assert_eq!(after != json, changes, "{depth}");
        }
        let json = nested(300);
        assert_ne!(
            through(&json, |value| transform_outgoing(value, &stock())),
            json
        );
    }
}
