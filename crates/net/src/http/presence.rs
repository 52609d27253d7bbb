//! Tracks whether a client that sends single requests is still there: it is, while one of its requests
//! waits for an answer, and for some time after the last one.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::connection::HttpConnection;

/// Whether a client is there.
#[derive(Debug)]
pub(crate) struct Presence(watch::Sender<State>);

#[derive(Debug)]
struct State {
    /// Whether the client has sent a request that waits for its answer (a poll).
    seen: bool,
    waiting: usize,
    /// When the last request was answered, if none waits now.
    absent_since: Option<Instant>,
}

impl Presence {
    pub(crate) fn new() -> Self {
        Self(watch::Sender::new(State {
            seen: false,
            waiting: 0,
            absent_since: Some(Instant::now()),
        }))
    }

    /// Notes a sign of life.
    pub(crate) fn touch(&self) {
        self.0.send_if_modified(|state| {
            let absent = state.absent_since.as_mut();
            absent.map(|since| *since = Instant::now()).is_some()
        });
    }

    /// Waits for the client's first request that waits for its answer.
    pub(crate) async fn seen(&self) {
        // The sender is `self`, so that this cannot fail.
        let _ = self.0.subscribe().wait_for(|state| state.seen).await;
    }

    /// Waits until the client was not there for this long.
    pub(crate) async fn absent_for(&self, after: Duration) {
        let mut presence = self.0.subscribe();
        loop {
            let due = presence
                .borrow_and_update()
                .absent_since
                .map(|at| at + after);
            if due.is_some_and(|due| due <= Instant::now()) {
                return;
            }
            let wait = async {
                match due {
                    Some(due) => sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = wait => {}
                _ = presence.changed() => {}
            }
        }
    }
}

/// Marks the client as present while a request waits, and while its answer is sent.
#[derive(Debug)]
pub(crate) struct PresentGuard(Arc<HttpConnection>);

impl PresentGuard {
    pub(crate) fn new(connection: Arc<HttpConnection>) -> Self {
        let guard = Self(connection);
        guard.change(|state| {
            state.seen = true;
            state.waiting += 1;
            state.absent_since = None;
        });
        guard
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        if let Some(presence) = self.0.presence() {
            presence.0.send_modify(change);
        }
    }
}

impl Drop for PresentGuard {
    fn drop(&mut self) {
        self.change(|state| {
            state.waiting -= 1;
            state.absent_since = (state.waiting == 0).then(Instant::now);
        });
    }
}
