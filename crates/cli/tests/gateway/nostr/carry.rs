//! Large requests and results.

use std::process::Stdio;

use breakbulk_testkit::bad_relay::BadRelay;
use rmcp::ServiceExt;
use rmcp::model::CallToolRequestParams;
use serde_json::{Value, json};

use super::{Scene, text};
use crate::common::gateway;

const MB: usize = 1_000_000;

/// A request of rmcp's.
fn call(name: &str, arguments: Value) -> CallToolRequestParams {
    let Value::Object(arguments) = arguments else {
        panic!("{arguments}")
    };
    CallToolRequestParams::new(name.to_owned()).with_arguments(arguments)
}

/// The client of the crate rmcp, as it is, with a gateway for its server.
async fn calls(to: &str, relay: &BadRelay) {
    let mut command = tokio::process::Command::from(gateway(&["--listen", "stdio:", "--to", to]));
    let mut near = command
        .stderr(Stdio::inherit())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let streams = (near.stdout.take().unwrap(), near.stdin.take().unwrap());
    let client = ().serve(streams).await.unwrap();
    for (kind, up, down) in [
        ("ascii", 10, 10),
        ("ascii", 10, 5 * MB),
        ("cjk", 10, 5 * MB),
        ("ascii", 5 * MB, 10),
        ("cjk", 5 * MB, 10),
    ] {
        relay.reset();
        let begun = std::time::Instant::now();
        let (name, arguments, expected) = if up > down {
            let data = text(kind, up);
            let digest = sha256(data.as_bytes());
            ("digest", json!({"data": data}), digest)
        } else {
            let arguments = json!({"kind": kind, "size": down});
            ("text", arguments, text(kind, down))
        };
        let result = client.call_tool(call(name, arguments)).await.unwrap();
        let got = &result.content[0].as_text().unwrap().text;
        assert!(
            *got == expected,
            "{to} {kind} {up} {down}: {} bytes",
            got.len()
        );
        println!(
            "{kind}: {up} up, {down} down: {} events, the largest {}, {:?}",
            relay.events(),
            relay.largest(),
            begun.elapsed()
        );
        assert!(relay.largest() <= 64 << 10, "{}", relay.largest());
        assert_eq!(relay.refused(), 0);
    }
    client.cancel().await.unwrap();
    assert_eq!(near.wait().await.unwrap().code(), Some(0));
}

/// By the system's own program: no other one is needed here.
fn sha256(data: &[u8]) -> String {
    use std::io::Write;
    let mut child = std::process::Command::new("sha256sum")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(data).unwrap();
    drop(input);
    let output = child.wait_with_output().unwrap();
    String::from_utf8_lossy(&output.stdout)[..64].to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_rmcp_client_has_5_mb_both_ways_with_a_server_behind_two_gateways() {
    for options in ["&encryption=disabled", "&encryption=required"] {
        let scene = Scene::start(options, &[]).await;
        calls(&scene.to(options), &scene.relay).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wraps_of_either_kind() {
    for wraps in ["&wraps=persistent", "&wraps=ephemeral"] {
        let scene = Scene::start(wraps, &[]).await;
        let mut client = scene.client(wraps);
        client.initialize("wraps");
        let answer = client.call(1, "text", json!({"kind": "cjk", "size": MB}));
        let got = answer["result"]["content"][0]["text"].as_str().unwrap();
        assert!(got == text("cjk", MB), "{wraps}: {} bytes", got.len());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_asks_for_no_progress_gets_none_and_large_answers_all_the_same() {
    let scene = Scene::start("", &[]).await;
    let mut client = scene.client("");
    client.initialize("no progress");
    // The server's own progress too.
    assert_eq!(
        client.call(1, "steps", json!({}))["result"]["content"][0]["text"],
        "done"
    );
    let answer = client.call(2, "text", json!({"kind": "ascii", "size": MB}));
    let got = answer["result"]["content"][0]["text"].as_str().unwrap();
    assert!(got == text("ascii", MB));

    // A client that asks for progress gets it under the token that it gave.
    let params = json!({"name": "steps", "arguments": {}, "_meta": {"progressToken": 7}});
    client.say(&json!({"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": params}));
    for step in [0, 1, 2] {
        let progress = client.hear();
        assert_eq!(progress["method"], "notifications/progress", "{progress}");
        assert_eq!(progress["params"]["progressToken"], 7, "{progress}");
        assert_eq!(progress["params"]["progress"], step, "{progress}");
        assert_eq!(progress["params"]["total"], 2, "{progress}");
    }
    assert_eq!(client.hear()["id"], 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_message_is_answered_and_the_rest_goes_on() {
    let scene = Scene::start("", &["--max-message", "1MB"]).await;
    let mut client = scene.client("");
    client.initialize("batches");
    client.say(&json!([{"jsonrpc": "2.0", "id": 1, "method": "ping"}]));
    let answer = client.hear();
    assert_eq!(answer["error"]["code"], -32600, "{answer}");
    let line = client.0.log.line("this is no JSON-RPC 2.0 message");
    assert!(line.contains(" WARN "), "{line}");
    // More than the far gateway takes from its server.
    let answer = client.call(2, "text", json!({"kind": "ascii", "size": 2 * MB}));
    assert_eq!(answer["error"]["code"], -32011, "{answer}");
    let line = "a response from the target is too large and was replaced by an error";
    assert!(scene.far.line(line).contains(" WARN "));
    // And more than it takes from its client.
    let answer = client.call(3, "digest", json!({"data": text("ascii", 2 * MB)}));
    assert!(answer["error"]["code"].is_i64(), "{answer}");
    let line = scene.far.line("a transfer of a client failed");
    assert!(line.contains("over the limit of 1000000"), "{line}");
    assert_eq!(client.about(4).0, "batches");
}

/// A relay that takes less than it should, and less than a second attempt needs: its client is answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_relay_does_not_take_is_answered_and_in_the_log() {
    let scene = Scene::start("", &[]).await;
    let mut client = scene.client("");
    client.initialize("large");
    scene.relay.limit(10_000);
    let answer = client.call(1, "text", json!({"kind": "ascii", "size": MB}));
    assert_eq!(answer["error"]["code"], -32011, "{answer}");
    let line = scene
        .far
        .line("a response could not be sent to a peer at relays");
    assert!(
        line.contains(" WARN ") && line.contains("too large"),
        "{line}"
    );
    assert_eq!(client.about(2).0, "large");
}

/// A notification cannot be cut: the log of the gateway at its sender says what became of it.
// CEP22-20
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sealed_notification_that_is_too_large_is_in_the_log_and_counts_as_lost() {
    let scene = Scene::start("", &[]).await;
    let mut client = scene.client("");
    client.initialize("noted");
    client.ask(1, "note", json!({"size": 40_000}));
    assert_eq!(client.hear()["method"], "notifications/message");
    assert_eq!(client.hear()["id"], 1);
    client.call(2, "note", json!({"size": 50_000}));
    let line = scene.far.line("a notification is dropped");
    assert!(line.contains("notifications/message"), "{line}");
    assert!(line.contains("exceeds the cap of 65536"), "{line}");
    assert!(
        line.contains("CEP-22 sends requests and their responses alone in chunks"),
        "{line}"
    );
    client.about(3);
    scene.far.signal("-TERM");
    scene.far.line("1 message was not sent");
}
