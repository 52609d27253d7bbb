//! `@modelcontextprotocol/inspector --cli` prints the same whatever is between it and a server.
//!
//! `cargo xtask interop mcp` runs it.

#![allow(clippy::unwrap_used, reason = "a test may")]

use anyhow::{Result, ensure};
use interop_mcp::conformance::server;
use interop_mcp::doors::{Between, Door};
use interop_mcp::inspector::says;
use interop_mcp::table::each;
use interop_mcp::told::Reach;

const ERAS: [&str; 2] = ["legacy", "modern"];

/// What is called, and a word of the answer.
const CALLS: [(&[&str], &str); 4] = [
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
            "resources/read",
            "--uri",
            "test://template/7/data",
        ],
        "Data for ID: 7",
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

/// Whether it goes to a URL, and what is between.
type Way = (bool, Between);

const WAYS: [Way; 3] = [
    (true, Between::Gateway),
    (true, Between::WebSocket),
    (false, Between::Gateway),
];

async fn check((by_url, between): Way) -> Result<()> {
    let server = server().await?;
    let door = match by_url {
        true => Some(Door::open(between, &server.address).await?),
        false => None,
    };
    let direct = Reach::Http(server.address.clone());
    let through = match &door {
        Some(door) => Reach::Http(door.url.clone()),
        None => Reach::Stdio(server.address.clone()),
    };
    for (era, (arguments, word)) in ERAS
        .into_iter()
        .flat_map(|era| CALLS.map(|call| (era, call)))
    {
        let expected = says(&direct, era, arguments).await?;
        ensure!(
            expected.contains(word),
            "{era} {arguments:?} without anything between: {expected}"
        );
        let said = says(&through, era, arguments).await?;
        ensure!(
            said == expected,
            "{era} {arguments:?}: {said} instead of {expected}"
        );
    }
    match door {
        Some(door) => door.stop().await,
        None => Ok(()),
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "cargo xtask interop mcp"]
async fn the_inspector_prints_the_same_whatever_is_between() {
    each(WAYS, check).await.unwrap();
}
