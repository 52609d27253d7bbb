//! URIs between two ends that see different file systems: through our transformer, and through
//! VSCode's own.

use std::sync::Arc;

use breakbulk::message::vscode::StockTransformer;
use interop_vscode::ends::{Ends, Uris, ways};
use serde_json::{Value, json};

const AUTHORITY: &str = "test+host";

/// A URI in the form that it has in JSON.
fn uri(scheme: &str, authority: &str) -> Value {
    let mut uri = json!({"$mid": 1, "path": "/a b/ä", "scheme": scheme});
    if !authority.is_empty() {
        uri["authority"] = authority.into();
    }
    uri
}

/// Scheme, authority and path of a URI, without other members.
fn place(uri: &Value) -> Value {
    let authority = uri.get("authority").and_then(Value::as_str);
    self::uri(
        uri["scheme"].as_str().unwrap(),
        authority.unwrap_or_default(),
    )
}

/// A URI of the end without a transformer, and how the end with one sees it. On the way back it becomes
/// the original again.
const SEEN: [(&str, &str, &str); 4] = [
    ("vscode-remote", AUTHORITY, "file:///a b/ä"),
    ("file", "", "vscode-local:/a b/ä"),
    ("untitled", "", "untitled:/a b/ä"),
    ("http", "example.org", "http://example.org/a b/ä"),
];

#[tokio::test(flavor = "multi_thread")]
#[ignore = "cargo xtask interop vscode"]
async fn nodes_transformer_sees_our_uris() {
    for way in ways() {
        let uris = Uris {
            nodes: Some(AUTHORITY),
            ..Uris::default()
        };
        let ends = Ends::open_with(way, uris).await.unwrap();
        for (scheme, authority, seen) in SEEN {
            let said = uri(scheme, authority);
            let answer = ends.remote.call("$uri", &[&said]).await.unwrap();
            let answer: Value = answer.typed().unwrap();
            assert_eq!(answer["seen"], seen, "{way:?}");
            assert_eq!(place(&answer["uri"]), said, "{way:?}");
        }
        ends.close().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "cargo xtask interop vscode"]
async fn our_transformer_sees_nodes_uris_and_changes_ours() {
    for way in ways() {
        let transformer = StockTransformer {
            authority: AUTHORITY.into(),
        };
        let uris = Uris {
            ours: Some(Arc::new(transformer)),
            ..Uris::default()
        };
        let mut ends = Ends::open_with(way, uris).await.unwrap();
        for (scheme, authority, seen) in SEEN {
            let said = match authority {
                "" if scheme == "file" => "file:///a b/ä".to_owned(),
                "" => format!("{scheme}:/a b/ä"),
                _ => format!("{scheme}://{authority}/a b/ä"),
            };
            let outcome = ends.node.call("$uri", json!([{"$uri": said}])).await;
            let outcome = outcome.unwrap().unwrap();
            // This project's end always writes all three parts.
            let seen = match seen.split_once(":/") {
                Some((scheme, rest)) if !rest.starts_with('/') => format!("{scheme}:///{rest}"),
                _ => seen.to_owned(),
            };
            assert_eq!(outcome["seen"], seen, "{way:?}");
            assert_eq!(outcome["uri"], json!({"$uri": said}), "{way:?}");
        }
        // URIs of this project's end arrive transformed and come back as they were, by serde and as values.
        for (scheme, seen) in [
            ("file", "vscode-remote://test+host/a b/ä"),
            ("vscode-local", "file:///a b/ä"),
        ] {
            let said = uri(scheme, "");
            let answer = ends.remote.call("$uri", &[&said]).await.unwrap();
            let answer: Value = answer.typed().unwrap();
            assert_eq!(answer["seen"], seen, "{way:?}");
            assert_eq!(place(&answer["uri"]), said, "{way:?}");
        }
        ends.close().await.unwrap();
    }
}
