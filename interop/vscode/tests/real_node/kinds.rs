//! Every kind of argument and reply, between VSCode's own RPCProtocol and this project's, over every carrier.

use breakbulk::vscode::CallError;
use interop_vscode::bytes::{bytes, told};
use interop_vscode::ends::{Ends, ways};
use interop_vscode::values::{make, tell, tell_thrown};
use serde_json::{Value, json};

/// Each value that is passed, and how it looks after the way there and back.
fn kinds() -> Vec<(Value, Value)> {
    let same = |value: Value| (value.clone(), value);
    let small = json!({"$buffer": {"hex": "00ff10"}});
    let seeded = |seed: u32| json!({"$buffer": {"size": 1000, "seed": seed}});
    vec![
        same(json!(null)),
        same(json!(true)),
        same(json!(0)),
        same(json!(-1.5)),
        same(json!("")),
        same(json!("\"é漢🚢\\\n\u{1}")),
        same(json!([1, [], {}, null])),
        same(json!({"a": {"b": [false]}, "": 1})),
        same(json!({"$undefined": true})),
        (small, told(&[0, 255, 16])),
        (json!({"$buffer": {"hex": ""}}), told(&[])),
        (seeded(1), told(&bytes(1000, 1))),
        same(json!({"$withBuffers": {"no": ["buffers"]}})),
        (
            json!({"$withBuffers": {"one": seeded(1), "list": [seeded(2), 3, seeded(1)]}}),
            json!({"$withBuffers": {
                "one": told(&bytes(1000, 1)),
                "list": [told(&bytes(1000, 2)), 3, told(&bytes(1000, 1))],
            }}),
        ),
    ]
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "cargo xtask interop vscode"]
async fn what_we_pass_is_what_node_has_and_returns() {
    for way in ways() {
        let ends = Ends::open(way).await.unwrap();
        let mut all = Vec::new();
        let mut all_told = Vec::new();
        for (said, told) in kinds() {
            let passed = make(&said).unwrap();
            let call = ends.remote.call_values("$echo", vec![passed.clone()]);
            let answer = call.await.unwrap().value().unwrap();
            assert_eq!(tell(&answer), told, "{way:?}: {said}");
            all.push(passed);
            all_told.push(told);
        }
        // All values in one call, in the notation of node.
        let answer = ends.remote.call_values("$kinds", all).await.unwrap();
        assert_eq!(answer.typed::<Value>().unwrap(), json!(all_told), "{way:?}");
        let answer = ends.remote.call_values("$kinds", vec![]).await.unwrap();
        assert_eq!(answer.typed::<Value>().unwrap(), json!([]), "{way:?}");
        // Rust types, by serde.
        let answer = ends.remote.call("$echo", &[Some(1.5)]).await.unwrap();
        assert_eq!(answer.typed::<f64>().unwrap(), 1.5, "{way:?}");
        ends.close().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "cargo xtask interop vscode"]
async fn what_node_passes_is_what_we_have_and_return() {
    for way in ways() {
        let mut ends = Ends::open(way).await.unwrap();
        let (all, all_told): (Vec<_>, Vec<_>) = kinds().into_iter().unzip();
        for (said, told) in all.iter().zip(&all_told) {
            let outcome = ends.node.call("$echo", json!([said])).await.unwrap();
            assert_eq!(outcome.as_ref(), Ok(told), "{way:?}: {said}");
        }
        let outcome = ends.node.call("$kinds", json!(all)).await.unwrap();
        assert_eq!(outcome, Ok(json!(all_told)), "{way:?}");
        let outcome = ends.node.call("$kinds", json!([])).await.unwrap();
        assert_eq!(outcome, Ok(json!([])), "{way:?}");
        ends.close().await.unwrap();
    }
}

/// What `$withBuffers` returns at both ends: the same buffer twice, and an undefined, which the reader drops
/// or keeps.
fn with_buffers(nothing: Option<Value>) -> Value {
    let [one, two] = [told(&bytes(100, 1)), told(&bytes(100, 2))];
    let mut value = json!({"one": one, "list": [two, one]});
    if let Some(nothing) = nothing {
        value["nothing"] = nothing;
    }
    json!({ "$withBuffers": value })
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "cargo xtask interop vscode"]
async fn objects_with_buffers_come_back_whole() {
    for way in ways() {
        let mut ends = Ends::open(way).await.unwrap();
        let answer = ends.remote.call("$withBuffers", &(100, 1)).await.unwrap();
        let undefined = json!({"$undefined": true});
        assert_eq!(
            tell(&answer.value().unwrap()),
            with_buffers(Some(undefined)),
            "{way:?}"
        );
        // JavaScript's own reader drops a key whose value is undefined.
        let outcome = ends.node.call("$withBuffers", json!([100, 1])).await;
        assert_eq!(outcome.unwrap(), Ok(with_buffers(None)), "{way:?}");
        ends.close().await.unwrap();
    }
}

/// What `$throw` is given, and what its caller gets: falsy values do not travel.
fn thrown() -> Vec<(Value, Value)> {
    let same = |value: Value| (value.clone(), value);
    let nothing = json!({"$undefined": true});
    vec![
        same(json!({"plain": [1]})),
        same(json!("text")),
        same(json!(42)),
        (json!(0), nothing.clone()),
        (json!(""), nothing.clone()),
        (json!(null), nothing.clone()),
        (nothing.clone(), nothing),
    ]
}

fn error(name: &str, message: &str) -> Value {
    json!({"$error": {"name": name, "message": message, "stack": true}})
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "cargo xtask interop vscode"]
async fn what_node_throws_we_get_with_code_and_cause() {
    for way in ways() {
        let ends = Ends::open(way).await.unwrap();
        let mut expected = error("TypeError", "the error");
        expected["$error"]["code"] = json!("E_INTEROP");
        expected["$error"]["cause"] = error("RangeError", "the cause");
        expected["$error"]["cause"]["$error"]["code"] = json!(7);
        let unknown = error("Error", "Unknown method $nope on actor Actor1");
        for (method, args, expected) in [
            ("$fail", json!([]), expected),
            ("$nope", json!([]), unknown),
        ]
        .into_iter()
        .chain(
            thrown()
                .into_iter()
                .map(|(said, told)| ("$throw", json!([said]), told)),
        ) {
            let args = args
                .as_array()
                .unwrap()
                .iter()
                .map(|arg| make(arg).unwrap());
            match ends.remote.call_values(method, args.collect()).await {
                Err(CallError::Thrown(thrown)) => {
                    assert_eq!(tell_thrown(&thrown), expected, "{way:?}: {method}");
                }
                other => panic!("{way:?}: {method} gave {other:?}"),
            }
        }
        ends.close().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "cargo xtask interop vscode"]
async fn what_we_throw_node_gets() {
    for way in ways() {
        let mut ends = Ends::open(way).await.unwrap();
        // The message has a code and a cause, which the original drops.
        let outcome = ends.node.call("$fail", json!([])).await.unwrap();
        assert_eq!(outcome, Err(error("TypeError", "the error")), "{way:?}");
        let outcome = ends
            .node
            .call("$nope", json!([]))
            .await
            .unwrap()
            .unwrap_err();
        assert_eq!(
            outcome["$error"]["message"], "Unknown method $nope on actor Actor2",
            "{way:?}"
        );
        // A handler that cannot take its argument.
        let outcome = ends.node.call("$digest", json!([1])).await.unwrap();
        assert!(outcome.is_err(), "{way:?}: {outcome:?}");
        for (said, told) in thrown() {
            let outcome = ends.node.call("$throw", json!([said])).await.unwrap();
            assert_eq!(outcome, Err(told), "{way:?}: {said}");
        }
        ends.close().await.unwrap();
    }
}
