//! Tests of a pool: which bridge is leased, who waits, and what happens to a late or dead bridge.

#![cfg(all(feature = "net", unix))]
#![allow(clippy::unwrap_used, reason = "a test may")]

#[path = "host/common.rs"]
mod common;

use std::time::Duration;

use breakbulk_tywrap::{CallError, Pool, PoolConfig, PoolError};
use common::{Flag, config, program};

fn pool(change: impl FnOnce(&mut PoolConfig)) -> Pool {
    let mut pool = PoolConfig::default().with(|config| config.patience = Duration::from_secs(60));
    change(&mut pool);
    Pool::new(&program(), &config(), pool)
}

#[tokio::test]
async fn calls_are_spread_and_none_is_mixed_up() {
    let pool = pool(|_| ());
    pool.warm().await.unwrap();
    let calls: Vec<_> = (0..200)
        .map(|number| {
            let pool = pool.clone();
            tokio::spawn(async move {
                let text = format!("\"{}\"", number.to_string().repeat(200));
                let echoed = pool.call("t", "echo", format!("[{text}]"), None).await;
                assert_eq!(echoed.unwrap().json(), text);
            })
        })
        .collect();
    for call in calls {
        call.await.unwrap();
    }
    assert_eq!((pool.starts(), pool.free(), pool.waiting()), (2, 2, 0));
    pool.stop().await;
    let stopped = pool.call("t", "echo", "[1]", None).await.unwrap_err();
    assert!(
        matches!(stopped, CallError::Pool(PoolError::Stopped)),
        "{stopped}"
    );
}

#[tokio::test]
async fn a_queue_has_an_end_and_a_time() {
    let pool = pool(|pool| {
        pool.bridges = 1;
        pool.queue = 1;
        pool.queue_timeout = Duration::from_millis(50);
    });
    let lease = pool.lease().await.unwrap();
    assert_eq!(
        lease.call("t", "echo", "[1]", None).await.unwrap().json(),
        "1"
    );
    let late = pool.lease().await.err().unwrap();
    let expected = PoolError::TimedOut {
        bridges: 1,
        after: Duration::from_millis(50),
    };
    assert_eq!(late, expected);
    let (first, second) = tokio::join!(pool.lease(), pool.lease());
    assert_eq!(first.err(), Some(expected));
    assert_eq!(second.err(), Some(PoolError::Full { limit: 1 }));
    drop(lease);
    assert_eq!(
        pool.call("t", "echo", "[2]", None).await.unwrap().json(),
        "2"
    );
    assert_eq!((pool.starts(), pool.waiting()), (1, 0));
}

// TYWRAP-7
#[tokio::test]
async fn a_bridge_that_is_late_is_not_leased() {
    let pool = pool(|_| ());
    pool.warm().await.unwrap();
    let flag = Flag::new();
    let lease = pool.lease().await.unwrap();
    // The call is given up once the bridge runs it.
    tokio::select! {
        biased;
        outcome = lease.call("t", "wait", flag.args(""), None) => panic!("{outcome:?}"),
        () = flag.half() => {}
    }
    assert!(lease.is_busy());
    drop(lease);
    assert_eq!(pool.free(), 1);
    // All calls go to the other bridge.
    let mut pids = Vec::new();
    for _ in 0..20 {
        pids.push(pool.call("t", "pid", "[]", None).await.unwrap());
    }
    pids.dedup();
    assert_eq!(pids.len(), 1);
    // Once the late answer came the same bridge is leased again.
    flag.raise();
    let both = [pool.lease().await.unwrap(), pool.lease().await.unwrap()];
    let again = both[0].call("t", "pid", "[]", None).await.unwrap();
    let other = both[1].call("t", "pid", "[]", None).await.unwrap();
    assert_ne!(again, other);
    assert_eq!(pool.starts(), 2, "nobody was restarted");
}

#[tokio::test]
async fn a_bridge_that_is_late_for_too_long_is_restarted() {
    let pool = pool(|pool| {
        pool.bridges = 1;
        pool.patience = Duration::from_millis(100);
    });
    let flag = Flag::new();
    let pid = pool.call("t", "pid", "[]", None).await.unwrap();
    {
        let lease = pool.lease().await.unwrap();
        tokio::select! {
            biased;
            outcome = lease.call("t", "wait", flag.args(""), None) => panic!("{outcome:?}"),
            () = flag.half() => {}
        }
    }
    let new = pool.call("t", "pid", "[]", None).await.unwrap();
    assert_ne!(pid, new);
    assert_eq!(pool.starts(), 2);
}

#[tokio::test]
async fn a_dead_bridge_is_replaced() {
    let pool = pool(|_| ());
    pool.warm().await.unwrap();
    for round in 0..10 {
        let dead = pool.call("t", "die", "[\"request\"]", None).await;
        assert!(matches!(dead, Err(CallError::Exited { .. })), "{round}");
        let echoed = pool.call("t", "echo", format!("[{round}]"), None).await;
        assert_eq!(echoed.unwrap().json(), round.to_string());
    }
    // A bridge that was replaced is ready before it is leased again.
    let both = [pool.lease().await.unwrap(), pool.lease().await.unwrap()];
    assert!(both.iter().all(|lease| lease.is_up()));
    assert_eq!(pool.starts(), 12);
}
