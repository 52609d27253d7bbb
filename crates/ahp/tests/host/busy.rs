//! Actions that come while a client has its maximum of open requests, or while its replay is being read.

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use breakbulk_ahp::Host;
use breakbulk_ahp::log::{Entry, LogError, MemoryLog, Replay, ReplayLog, ReplayReader};
use breakbulk_link::Cap;

use super::common::*;

#[tokio::test(start_paused = true)]
async fn an_action_that_is_too_large_is_told_to_a_busy_client_too() {
    let host = host(config().with(|it| {
        it.connection.cap = Cap::frame(1000);
        it.limits.requests = 1;
    }));
    let client = Client::new(&host);
    client.ask(initialize("c", r#""ahp-root://""#, "")).await;
    client.say(r#"{"jsonrpc":"2.0","id":3,"method":"wait"}"#);
    while *host.app().begun.lock().unwrap() == 0 {
        tokio::task::yield_now().await;
    }
    publish(&host, ROOT, &format!("\"{}\"", "x".repeat(2000))).await;
    publish(&host, ROOT, "1").await;
    let closed = tokio::time::timeout(Duration::from_secs(3600), client.closed()).await;
    assert_eq!(closed.unwrap().code, 4413);
}

/// Whether a replay was asked for, and whether it may be read.
#[derive(Default)]
struct Gate {
    state: Mutex<(bool, bool)>,
    changed: Condvar,
}

struct SlowLog(MemoryLog, Arc<Gate>);

struct SlowReader(Arc<dyn ReplayReader>, Arc<Gate>);

impl ReplayLog for SlowLog {
    fn last(&self) -> i64 {
        self.0.last()
    }

    fn append(&mut self, batch: &[Entry]) -> Result<(), LogError> {
        self.0.append(batch)
    }

    fn reader(&self) -> Arc<dyn ReplayReader> {
        Arc::new(SlowReader(self.0.reader(), self.1.clone()))
    }

    fn blocks(&self) -> bool {
        true
    }
}

impl ReplayReader for SlowReader {
    fn since(
        &self,
        seq: i64,
        upto: i64,
        wants: &dyn Fn(&str) -> bool,
        max_bytes: usize,
    ) -> Result<Replay, LogError> {
        let mut state = self.1.state.lock().unwrap();
        state.0 = true;
        self.1.changed.notify_all();
        while !state.1 {
            state = self.1.changed.wait(state).unwrap();
        }
        drop(state);
        self.0.since(seq, upto, wants, max_bytes)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_reconnect_does_not_take_over_from_its_successor() {
    let gate = Arc::new(Gate::default());
    let log = SlowLog(MemoryLog::default(), gate.clone());
    let host = Host::new(Board::with(&[ROOT, CHAT]), log, config());
    publish(&host, ROOT, "1").await;
    let dead = Client::new(&host);
    dead.say(reconnect("c", 0, r#""ahp-root://""#, ""));
    let asked = gate.clone();
    let asked = tokio::task::spawn_blocking(move || {
        let mut state = asked.state.lock().unwrap();
        while !state.0 {
            state = asked.changed.wait(state).unwrap();
        }
    });
    asked.await.unwrap();
    dead.connection.close(1000, "");
    dead.connection.ended().await;
    let successor = Client::new(&host);
    successor.initialize("c", r#""ahp-root://""#).await;
    gate.state.lock().unwrap().1 = true;
    gate.changed.notify_all();
    dead.served.await.unwrap();
    publish(&host, ROOT, "2").await;
    let heard = tokio::time::timeout(Duration::from_secs(5), successor.hear()).await;
    assert_eq!(heard.unwrap(), action(ROOT, "2", 2));
}
