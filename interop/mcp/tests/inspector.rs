//! `@modelcontextprotocol/inspector --cli` prints the same through gateways as over a direct connection.
//!
//! `cargo xtask interop mcp` runs it.

#![allow(clippy::unwrap_used, reason = "a test may")]

use anyhow::Result;
use interop_mcp::conformance::server;
use interop_mcp::doors::{Between, Door};
use interop_mcp::inspector::says;
use interop_mcp::paths::Over;
use interop_mcp::told::Reach;

const ERAS: [&str; 2] = ["legacy", "modern"];

/// The inspector's arguments for a call, and a word that the answer must have.
const CALLS: [(&[&str], &str); 3] = [
    (&["--method", "tools/list"], "json_schema_2020_12_tool"),
    (
        &[
            "--method",
            "tools/call",
            "--tool-name",
            "test_multiple_content_types",
        ],
        "test://mixed-content-resource",
    ),
    (
        &[
            "--method",
            "prompts/get",
            "--prompt-name",
            "test_prompt_with_arguments",
            "--prompt-args",
            "arg1=hello",
            "arg2=world",
        ],
        "arg1='hello', arg2='world'",
    ),
];

/// The ways in which the inspector reaches a server through gateways.
async fn ways(server: &str) -> Result<(Vec<Door>, Vec<(&'static str, Reach)>)> {
    let near = Door::open(Between::Gateway, server).await?;
    let far = Door::open(Between::Tunnel(Over::WebSocket), server).await?;
    let ways = vec![
        ("a door", Reach::Http(near.url.clone())),
        ("a door and a tunnel", Reach::Http(far.url.clone())),
        ("standard streams", Reach::stdio(server)),
    ];
    Ok((vec![near, far], ways))
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "cargo xtask interop mcp"]
async fn the_inspector_prints_the_same_whatever_is_between() {
    let server = server().await.unwrap();
    let direct = Reach::Http(server.address.clone());
    let (doors, ways) = ways(&server.address).await.unwrap();
    let calls = ERAS
        .into_iter()
        .flat_map(|era| CALLS.map(|call| (era, call)));
    for (era, (arguments, word)) in calls {
        let expected = says(&direct, era, arguments).await.unwrap();
        assert!(expected.contains(word), "{era} {arguments:?}: {expected}");
        for (way, reach) in &ways {
            let said = says(reach, era, arguments).await;
            let said = said.unwrap_or_else(|error| panic!("{way}, {era} {arguments:?}: {error:#}"));
            assert_eq!(said, expected, "{way}, {era} {arguments:?}");
        }
    }
    for door in doors {
        door.stop().await.unwrap();
    }
}
