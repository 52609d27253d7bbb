//! Tests of arguments, results and thrown errors.

use std::sync::Arc;

use breakbulk_message::vscode::{
    Args, Passed, Reply, StockTransformer, Thrown, UriTransformer, Value,
};
use breakbulk_testkit::log::{Level, Log};
use breakbulk_vscode::machine::rpc;
use breakbulk_vscode::{CallError, Ended, Endpoint};
use bytes::Bytes;

use crate::common::{config, id, pair};

#[tokio::test]
async fn typed_values_and_raw_both_ways_at_once() {
    let (a, b) = pair(config(), config());
    for (from, _) in [(&a, &b), (&b, &a)] {
        let remote = from.remote(id());
        let sum: i64 = remote.call("$add", &(4, 1)).await.unwrap().typed().unwrap();
        assert_eq!(sum, 5);
        remote.call("$nothing", &[(); 0]).await.unwrap_err();
        let answer = remote.call_raw("$raw", Args::Json("[ 1.0,\"\\ud800\" ]".into()));
        assert_eq!(
            answer.await.unwrap().json().unwrap(),
            &"[ 1.0,\"\\ud800\" ]"
        );
        let back: i64 = remote.call("$back", &[0]).await.unwrap().typed().unwrap();
        assert_eq!(back, 30);
    }
}

#[tokio::test]
async fn every_kind_of_value_comes_back_as_it_went() {
    let (a, _b) = pair(config(), config());
    let buffer = || Value::Buffer(Bytes::from_static(b"\0\xff"));
    let large = Value::Buffer(vec![7; 300_000].into());
    let object: Value = [
        ("b", buffer()),
        ("u", Value::Undefined),
        ("l", vec![buffer()].into()),
    ]
    .into();
    let table = [
        Passed::Plain(Value::Null),
        Passed::Plain(true.into()),
        Passed::Plain(1e21.into()),
        Passed::Plain("h\u{e9}\u{2028}\"".into()),
        Passed::Plain(Value::Undefined),
        Passed::Plain(buffer()),
        Passed::Plain(large),
        Passed::WithBuffers(object),
        Passed::WithBuffers(Value::Undefined),
    ];
    for passed in table {
        let answer = a
            .remote(id())
            .call_values("$echo", vec![passed.clone()])
            .await;
        assert_eq!(answer.unwrap().value().unwrap(), passed);
    }
    let none = a.remote(id()).call_values("$echo", vec![]).await.unwrap();
    assert_eq!(none.raw(), &Reply::OkEmpty);
    none.typed::<()>().unwrap();
    let bytes = a
        .remote(id())
        .call_values("$echo", vec![Passed::Plain(buffer())]);
    let answer = bytes.await.unwrap();
    assert_eq!(answer.buffer().unwrap(), &b"\0\xff"[..]);
    assert!(answer.typed::<Vec<u8>>().is_err());
}

#[tokio::test]
async fn errors_keep_name_message_stack_code_and_cause() {
    let (a, _b) = pair(config(), config());
    let error = a.remote(id()).call("$fail", &[0]).await.unwrap_err();
    assert_eq!(error.to_string(), "TypeError: bad");
    let CallError::Thrown(Thrown::Error(error)) = error else {
        panic!()
    };
    assert_eq!(error.stack.as_deref(), Some("TypeError: bad\n    at x"));
    assert_eq!(error.code, Some("ENOENT".into()));
    let Some(Thrown::Error(cause)) = error.cause.as_deref() else {
        panic!()
    };
    assert_eq!(cause.message.as_deref(), Some("deep"));
    let error = a.remote(id()).call("$throw", &[0]).await.unwrap_err();
    assert_eq!(error, CallError::Thrown(Thrown::Other(42.into())));
}

#[tokio::test]
async fn nobody_is_left_waiting() {
    let log = Log::capture();
    let (a, _b) = pair(config(), config());
    let remote = a.remote(id());
    let stranger = a.remote(breakbulk_message::vscode::RpcId::new(9).unwrap());
    let table = [
        (stranger.call("$add", &(1, 2)), "Unknown actor 9"),
        (
            remote.call("$missing", &(1, 2)),
            "Unknown method $missing on actor Tester",
        ),
        (remote.call("toString", &(1, 2)), "Unknown method toString"),
        (remote.call("$add", &("x", 2)), "bad arguments of $add"),
        (remote.call("$add", &[1]), "bad arguments of $add"),
        (remote.call("$panic", &[0]), "the handler panicked"),
        (remote.call("$huge", &[0]), "over the limit of 104857600"),
        (
            remote.call("$add", "no array"),
            "the arguments are not an array",
        ),
        (
            remote.call("m".repeat(256).as_str(), &[0]),
            "method name is 256 bytes",
        ),
    ];
    for (call, words) in table {
        let error = call.await.unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
    let reply = "a reply cannot be sent; the peer gets an error instead";
    log.assert_line(Level::DEBUG, &[reply, "over the limit of 104857600"]);
    // The endpoint still works.
    let sum: i64 = remote.call("$add", &(4, 1)).await.unwrap().typed().unwrap();
    assert_eq!(sum, 5);
}

#[tokio::test]
async fn uris_change_on_their_way() {
    let stock = StockTransformer {
        authority: "ssh+h".to_owned(),
    };
    let uris: Arc<dyn UriTransformer> = Arc::new(stock);
    let remote_host = config().with(|config| config.uris = Some(uris));
    let (renderer, host) = pair(config(), remote_host);
    let theirs = serde_json::json!({"$mid": 1, "path": "/a", "scheme": "vscode-remote", "authority": "ssh+h"});
    let ours = serde_json::json!({"$mid": 1, "path": "/a", "scheme": "file"});
    // The host gets it as a file of its own, and returns it as one of the remote's.
    let echoed = renderer
        .remote(id())
        .call("$echo", &[&theirs])
        .await
        .unwrap();
    assert_eq!(echoed.typed::<serde_json::Value>().unwrap(), theirs);
    // A raw result is sent unchanged.
    let raw = renderer.remote(id()).call("$raw", &[&ours]).await.unwrap();
    assert_eq!(
        raw.typed::<serde_json::Value>().unwrap(),
        serde_json::json!([ours])
    );
    // The transformer rewrites it on the way out, and again on the way in.
    let echoed = host.remote(id()).call("$echo", &[&ours]).await.unwrap();
    assert!(echoed.json().unwrap().as_str().contains("vscode-remote"));
    assert_eq!(echoed.typed::<serde_json::Value>().unwrap(), ours);
}

#[tokio::test]
async fn dispose_cancels_calls_and_tells_the_peer() {
    let (a, b) = pair(config(), config());
    let remote = a.remote(id()).cancellable();
    let pending = remote.call("$never", &[0]);
    a.dispose();
    assert_eq!(pending.await.unwrap_err().to_string(), "Canceled");
    assert_eq!(a.ended().await, Ended::Disposed);
    let later = remote.call("$add", &(1, 2)).await;
    assert_eq!(later.unwrap_err(), CallError::Canceled);
    assert_eq!(b.ended().await, Ended::Left);
    let there = b.remote(id()).call("$add", &(1, 2)).await;
    assert_eq!(there.unwrap_err(), CallError::Ended(Ended::Left));
}

#[tokio::test]
async fn the_last_handle_ends_the_session() {
    let (a, b) = pair(config(), config());
    let again = a.clone();
    drop(a);
    let sum = again.remote(id()).call("$add", &(4, 1)).await.unwrap();
    assert_eq!(sum.json().unwrap(), &"5");
    drop(again);
    assert_eq!(b.ended().await, Ended::Left);
}

#[tokio::test]
async fn calls_beyond_the_limits_wait_for_room() {
    let narrow = config().with(|config| {
        config.rpc = rpc::Config::default().with(|config| {
            config.pending_calls = 4;
            config.queued_bytes = 2000;
            config.running = 4;
        })
    });
    let (a, b) = pair(narrow.clone(), narrow);
    let calls = |endpoint: &Endpoint, base: u64| {
        let remote = endpoint.remote(id());
        let calls = (base..base + 500).map(move |number| {
            let call = remote.call("$count", &[number]);
            tokio::spawn(async move { call.await.unwrap().typed::<u64>().unwrap() == number })
        });
        calls.collect::<Vec<_>>()
    };
    let all: Vec<_> = calls(&a, 0).into_iter().chain(calls(&b, 1000)).collect();
    for call in all {
        assert!(call.await.unwrap());
    }
}

#[tokio::test(start_paused = true)]
async fn an_unresponsive_peer_is_told_and_comes_back() {
    let (left, mut right) = tokio::io::duplex(1 << 16);
    let a = Endpoint::over_stream(left, config());
    let mut status = a.status();
    let call = tokio::spawn(a.remote(id()).call("$x", &[0]));
    status.wait_for(|status| !status.responsive).await.unwrap();
    use tokio::io::AsyncWriteExt;
    // An acknowledgement, then the reply.
    right
        .write_all(b"\x01\0\0\0\0\0\0\0\0\0\0\0\x05\x05\0\0\0\x01")
        .await
        .unwrap();
    status.wait_for(|status| status.responsive).await.unwrap();
    right
        .write_all(b"\x01\0\0\0\0\0\0\0\0\0\0\0\x05\x07\0\0\0\x01")
        .await
        .unwrap();
    call.await.unwrap().unwrap();
}
