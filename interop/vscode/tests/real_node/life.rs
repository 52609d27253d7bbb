//! Cancellation, callbacks, hanging and ending, between VSCode's own RPCProtocol and this project's.

use breakbulk::vscode::{CallError, Ended};
use interop_vscode::ends::{Ends, carriers, ways};
use interop_vscode::node::Token;
use interop_vscode::values::tell_thrown;
use serde_json::{Value, json};

fn canceled() -> Value {
    json!({"$error": {"name": "Canceled", "message": "Canceled", "stack": true}})
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "cargo xtask interop vscode"]
async fn a_call_of_ours_is_cancelled_and_answered() {
    for way in ways() {
        let ends = Ends::open(way).await.unwrap();
        let remote = ends.remote.cancellable();
        // A call cancelled before it is sent is never sent; once a later call is answered, it has been sent.
        let sent = || ends.remote.call("$echo", &[1]);

        let live = remote.call("$isCancelled", &[(); 0]).await.unwrap();
        assert!(!live.typed::<bool>().unwrap(), "{way:?}");

        let mut answers = remote.call("$untilCancelled", &[(); 0]);
        let mut fails = remote.call("$failWhenCancelled", &[(); 0]);
        let dropped = remote.call("$untilCancelled", &[(); 0]);
        sent().await.unwrap();
        answers.cancel();
        fails.cancel();
        drop(dropped);
        let answer: String = answers.await.unwrap().typed().unwrap();
        assert_eq!(answer, "cancelled", "{way:?}");
        match fails.await {
            Err(CallError::Thrown(thrown)) => assert_eq!(tell_thrown(&thrown), canceled()),
            other => panic!("{way:?}: {other:?}"),
        }
        // A cancellation may arrive after calls that were made later, but not after an answer to one.
        sent().await.unwrap();
        let cancelled = ends.remote.call("$cancelled", &[(); 0]).await.unwrap();
        assert_eq!(cancelled.typed::<u32>().unwrap(), 3, "{way:?}");
        ends.close().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "cargo xtask interop vscode"]
async fn a_call_of_nodes_is_cancelled_and_answered() {
    for way in ways() {
        let mut ends = Ends::open(way).await.unwrap();
        let node = &mut ends.node;
        for (method, token, cancel, expected) in [
            ("$isCancelled", Token::Live, false, Ok(json!(false))),
            ("$untilCancelled", Token::Live, true, Ok(json!("cancelled"))),
            ("$echo", Token::Cancelled, false, Err(canceled())),
        ] {
            let id = node.begin(method, json!([]), token).await.unwrap();
            if cancel {
                node.cancel(id).await.unwrap();
            }
            let outcome = node.outcome(id).await.unwrap();
            assert_eq!(outcome, expected, "{way:?}: {method}");
        }
        let id = node.begin("$failWhenCancelled", json!([]), Token::Live);
        let id = id.await.unwrap();
        node.cancel(id).await.unwrap();
        let error = node.outcome(id).await.unwrap().unwrap_err();
        assert_eq!(error["$error"]["name"], "Canceled", "{way:?}");
        assert_eq!(error["$error"]["message"], "Canceled", "{way:?}");
        ends.close().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "cargo xtask interop vscode"]
async fn calls_call_back_a_hundred_deep() {
    for way in ways() {
        let mut ends = Ends::open(way).await.unwrap();
        let depth: u32 = ends
            .remote
            .call("$down", &[100])
            .await
            .unwrap()
            .typed()
            .unwrap();
        assert_eq!(depth, 100, "{way:?}");
        let outcome = ends.node.call("$down", json!([100])).await.unwrap();
        assert_eq!(outcome, Ok(json!(100)), "{way:?}");
        // An error that a callback throws comes back through the call during which it was called.
        let call = ends.remote.call("$callBack", &["$fail"]).await;
        match call {
            Err(CallError::Thrown(thrown)) => {
                let thrown = tell_thrown(&thrown);
                assert_eq!(thrown["$error"]["message"], "the error", "{way:?}");
            }
            other => panic!("{way:?}: {other:?}"),
        }
        ends.close().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "cargo xtask interop vscode"]
async fn a_node_that_hangs_is_unresponsive_until_it_answers() {
    for way in carriers() {
        let ends = Ends::open(way).await.unwrap();
        let mut status = ends.endpoint.status();
        assert!(status.borrow().responsive);
        // A peer is unresponsive when it owes an acknowledgement for 3 s; this is checked every second.
        let call = ends.remote.call("$block", &[4500]);
        status.wait_for(|status| !status.responsive).await.unwrap();
        status.wait_for(|status| status.responsive).await.unwrap();
        assert_eq!(call.await.unwrap().typed::<u32>().unwrap(), 4500, "{way:?}");
        ends.close().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "cargo xtask interop vscode"]
async fn a_hanging_side_of_ours_is_unresponsive_until_it_answers() {
    for way in carriers() {
        let mut ends = Ends::open(way).await.unwrap();
        let call = ends
            .node
            .begin("$block", json!([]), Token::None)
            .await
            .unwrap();
        let responsive = ends.node.hear("responsive").await.unwrap();
        assert_eq!(responsive, json!({"responsive": false}), "{way:?}");
        ends.seen.go_on.send(()).unwrap();
        let responsive = ends.node.hear("responsive").await.unwrap();
        assert_eq!(responsive, json!({"responsive": true}), "{way:?}");
        let outcome = ends.node.outcome(call).await.unwrap();
        assert_eq!(outcome, Ok(json!(true)), "{way:?}");
        ends.close().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "cargo xtask interop vscode"]
async fn who_disposes_cancels_its_calls_and_the_other_side_hears_of_the_end() {
    for way in ways() {
        let mut ends = Ends::open(way).await.unwrap();
        let ours = ends.remote.cancellable().call("$untilCancelled", &[(); 0]);
        let node = &mut ends.node;
        let theirs = node.begin("$untilCancelled", json!([]), Token::Live);
        let theirs = theirs.await.unwrap();
        // Both calls have arrived once later ones are answered.
        ends.remote.call("$echo", &[1]).await.unwrap();
        node.call("$echo", json!([1])).await.unwrap().unwrap();

        ends.endpoint.dispose();
        assert_eq!(ours.await.unwrap_err(), CallError::Canceled, "{way:?}");
        assert_eq!(ends.endpoint.ended().await, Ended::Disposed, "{way:?}");
        let later = ends.remote.call("$echo", &[1]).await;
        assert_eq!(later.unwrap_err(), CallError::Canceled, "{way:?}");
        node.hear("closed").await.unwrap();
        let outcome = node.outcome(theirs).await.unwrap();
        assert_eq!(outcome, Err(canceled()), "{way:?}");
        ends.node.stop().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "cargo xtask interop vscode"]
async fn calls_that_wait_fail_when_node_leaves() {
    for way in ways() {
        let ends = Ends::open(way).await.unwrap();
        let call = ends.remote.cancellable().call("$untilCancelled", &[(); 0]);
        ends.remote.call("$echo", &[1]).await.unwrap();
        ends.node.stop().await.unwrap();
        let error = call.await.unwrap_err();
        assert_eq!(error, CallError::Ended(Ended::Left), "{way:?}");
    }
}
