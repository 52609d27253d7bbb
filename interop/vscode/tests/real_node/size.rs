//! Large buffers and many concurrent calls, between VSCode's own RPCProtocol and this project's.

use std::sync::atomic::Ordering;

use breakbulk::message::vscode::{Passed, Value as Passing};
use interop_vscode::bytes::{bytes, digest, seeded, told};
use interop_vscode::ends::{Ends, ways};
use serde_json::{Value, json};

const LARGE: usize = 64_000_000;
const MANY: u32 = 10_000;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "cargo xtask interop vscode"]
async fn buffers_of_64_mb_arrive_as_they_were_sent() {
    let (ours, nodes) = (bytes(LARGE, 1), bytes(LARGE, 2));
    for way in ways() {
        let mut ends = Ends::open(way).await.unwrap();
        let start = std::time::Instant::now();
        let passed = Passed::Plain(Passing::Buffer(ours.clone()));
        let answer = ends.remote.call_values("$digest", vec![passed]).await;
        let seen: Value = answer.unwrap().typed().unwrap();
        assert_eq!(seen, digest(&ours), "{way:?}");
        let answer = ends.remote.call("$buffer", &(LARGE, 2)).await.unwrap();
        assert!(answer.buffer() == Some(&nodes), "{way:?}: other bytes");

        let args = json!([seeded(LARGE, 2)]);
        let outcome = ends.node.call("$digest", args).await.unwrap();
        assert_eq!(outcome, Ok(digest(&nodes)), "{way:?}");
        let outcome = ends.node.call("$buffer", json!([LARGE, 1])).await.unwrap();
        assert_eq!(outcome, Ok(told(&ours)), "{way:?}");
        println!(
            "{way:?}: four times 64 MB in {:.1} s",
            start.elapsed().as_secs_f64()
        );
        ends.close().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "cargo xtask interop vscode"]
async fn ten_thousand_calls_at_once_both_ways() {
    for way in ways() {
        let mut ends = Ends::open(way).await.unwrap();
        let start = std::time::Instant::now();
        let theirs = ends.node.begin_many(MANY).await.unwrap();
        let calls: Vec<_> = (0..MANY)
            .map(|number| ends.remote.call("$add", &(number, 1)))
            .collect();
        for (number, call) in (0..MANY).zip(calls) {
            let sum: u32 = call.await.unwrap().typed().unwrap();
            assert_eq!(sum, number + 1, "{way:?}");
        }
        assert_eq!(ends.node.right(theirs).await.unwrap(), MANY, "{way:?}");
        assert_eq!(ends.seen.sums.load(Ordering::Relaxed), u64::from(MANY));
        println!(
            "{way:?}: {MANY} calls each way in {:.2} s",
            start.elapsed().as_secs_f64()
        );
        ends.close().await.unwrap();
    }
}
