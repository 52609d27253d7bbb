//! A persistent session whose sockets are cut, between VSCode's own PersistentProtocol and ours.

use std::sync::atomic::Ordering;

use breakbulk::message::vscode::{Passed, Value as Passing};
use interop_vscode::bytes::{bytes, digest};
use interop_vscode::ends::{Ends, persistent_ways};
use serde_json::{Value, json};

const CUTS: u32 = 10;
const CALLS: u32 = 1000;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "cargo xtask interop vscode"]
async fn every_call_is_made_once_and_in_order_whatever_is_cut() {
    for way in persistent_ways() {
        let mut ends = Ends::open(way).await.unwrap();
        for cut in 0..CUTS {
            let theirs = ends.node.begin_many(CALLS).await.unwrap();
            let first = cut * CALLS;
            let mut calls: Vec<_> = (first..first + CALLS)
                .map(|number| ends.remote.call("$mark", &[number]))
                .collect();
            let rest = calls.split_off(1);
            // All calls have been sent when the first one is answered.
            for call in calls {
                call.await.unwrap();
            }
            ends.node.cut().await.unwrap();
            for (number, call) in (first + 1..).zip(rest) {
                let marked: u32 = call.await.unwrap().typed().unwrap();
                assert_eq!(marked, number, "{way:?}");
            }
            assert_eq!(ends.node.right(theirs).await.unwrap(), CALLS, "{way:?}");
            ends.node.hear("reconnected").await.unwrap();
        }
        let marks = ends.remote.call("$marks", &[(); 0]).await.unwrap();
        let marks: Value = marks.typed().unwrap();
        let total = CUTS * CALLS;
        assert_eq!(marks, json!({"count": total, "inOrder": true}), "{way:?}");
        let sums = ends.seen.sums.load(Ordering::Relaxed);
        assert_eq!(sums, u64::from(total), "{way:?}");
        ends.close().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "cargo xtask interop vscode"]
async fn a_large_buffer_that_was_cut_arrives_whole() {
    let large = bytes(32_000_000, 3);
    for way in persistent_ways() {
        let mut ends = Ends::open(way).await.unwrap();
        let start = std::time::Instant::now();
        let passed = Passed::Plain(Passing::Buffer(large.clone()));
        let ours = ends.remote.call_values("$digest", vec![passed]);
        let theirs = ends.remote.call("$buffer", &(large.len(), 3));
        ends.node.cut().await.unwrap();
        let seen: Value = ours.await.unwrap().typed().unwrap();
        assert_eq!(seen, digest(&large), "{way:?}");
        let answer = theirs.await.unwrap();
        assert!(answer.buffer() == Some(&large), "{way:?}: other bytes");
        ends.node.hear("reconnected").await.unwrap();
        println!(
            "{way:?}: cut and whole again in {:.1} s",
            start.elapsed().as_secs_f64()
        );
        ends.close().await.unwrap();
    }
}
