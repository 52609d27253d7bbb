//! What is known of one session while it lives: when it spoke, what it owes, whether it is to end.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use breakbulk_message::jsonrpc::{Envelope, Kind};
use breakbulk_message::mcp;
use bytes::Bytes;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

/// Requests of one session that are kept in mind; a server takes fewer.
const REQUESTS: usize = 1024;

/// Nobody waits longer for an answer.
const LONGEST_REQUEST: Duration = Duration::from_secs(3600);

/// An `initialize` that is longer is not kept for later.
const LONGEST_INITIALIZE: usize = 16 << 10;

/// One session.
pub(super) struct Life {
    state: Mutex<State>,
    /// It is to end.
    ending: watch::Sender<bool>,
    /// It has ended, with all that belonged to it.
    over: watch::Sender<bool>,
}

struct State {
    last: Instant,
    /// The ids of requests without an answer, as JSON.
    owed: BTreeSet<String>,
    /// Its `initialize`, until somebody takes it.
    initialize: Option<Bytes>,
    /// Its client has begun anew or is gone: what it was owed is nobody's.
    abandoned: bool,
}

impl Life {
    pub(super) fn new() -> Self {
        Self {
            state: Mutex::new(State {
                last: Instant::now(),
                owed: BTreeSet::new(),
                initialize: None,
                abandoned: false,
            }),
            ending: watch::Sender::new(false),
            over: watch::Sender::new(false),
        }
    }

    /// The client said something.
    pub(super) fn heard(&self, bytes: &Bytes) {
        let envelope = std::str::from_utf8(bytes).ok().and_then(Envelope::parse);
        let mut state = self.state();
        state.last = Instant::now();
        let Some(envelope) = envelope else { return };
        match (envelope.kind(), envelope.id) {
            (Some(Kind::Request), Some(id)) => {
                if state.owed.len() < REQUESTS {
                    state.owed.insert(id.get().to_owned());
                }
                if bytes.len() <= LONGEST_INITIALIZE
                    && envelope.method().as_deref() == Some("initialize")
                {
                    state.initialize = Some(bytes.clone());
                }
            }
            (Some(Kind::Notification), _) => {
                if envelope.method().as_deref() == Some(mcp::CANCELLED)
                    && let Some(id) = envelope.params.and_then(mcp::cancelled_request)
                {
                    state.owed.remove(id.get());
                }
            }
            _ => {}
        }
    }

    /// The program said something to the client. False: nobody is there for it any more.
    pub(super) fn said(&self, bytes: &Bytes) -> bool {
        let envelope = std::str::from_utf8(bytes).ok().and_then(Envelope::parse);
        let mut state = self.state();
        state.last = Instant::now();
        if let Some(envelope) = envelope
            && let Some(Kind::Result | Kind::Error) = envelope.kind()
            && let Some(id) = envelope.id
        {
            state.owed.remove(id.get());
        }
        !state.abandoned
    }

    /// The ids of all requests that have no answer, for whoever answers them now.
    pub(super) fn take_owed(&self) -> Vec<String> {
        let mut state = self.state();
        let owed = std::mem::take(&mut state.owed);
        if state.abandoned {
            return Vec::new();
        }
        owed.into_iter().collect()
    }

    /// The client's own `initialize`, once.
    pub(super) fn take_initialize(&self) -> Option<Bytes> {
        self.state().initialize.take()
    }

    /// Nobody waits for what it still says.
    pub(super) fn abandon(&self) {
        self.state().abandoned = true;
        self.end();
    }

    pub(super) fn is_abandoned(&self) -> bool {
        self.state().abandoned
    }

    /// How long it has been silent, if it owes nothing.
    pub(super) fn idle(&self) -> Option<Duration> {
        let state = self.state();
        state.owed.is_empty().then(|| state.last.elapsed())
    }

    /// Done once it was silent for this long; longer where an answer is waited for.
    pub(super) async fn silent(&self, limit: Duration) {
        loop {
            let (now, due) = (Instant::now(), self.silent_at(limit));
            if due <= now {
                return;
            }
            // An answer may come meanwhile, and then it is sooner.
            sleep_until(due.min(now + limit)).await;
        }
    }

    fn silent_at(&self, limit: Duration) -> Instant {
        let state = self.state();
        let limit = match state.owed.is_empty() {
            true => limit,
            false => limit.max(LONGEST_REQUEST),
        };
        state.last + limit
    }

    /// Asks it to end.
    pub(super) fn end(&self) {
        self.ending.send_replace(true);
    }

    /// Done once it was asked to.
    pub(super) async fn asked_to_end(&self) {
        // The sender is right here.
        let _ = self.ending.subscribe().wait_for(|ending| *ending).await;
    }

    /// It has ended.
    pub(super) fn mark_over(&self) {
        self.over.send_replace(true);
    }

    /// Done once it has ended.
    pub(super) async fn over(&self) {
        let _ = self.over.subscribe().wait_for(|over| *over).await;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn what_is_owed_is_what_was_asked_and_neither_answered_nor_cancelled() {
        let life = Life::new();
        for text in [
            r#"{"jsonrpc":"2.0","id":1,"method":"a"}"#,
            r#"{"jsonrpc":"2.0","id":"1","method":"b"}"#,
            r#"{"jsonrpc":"2.0","id":2,"method":"c"}"#,
            r#"{"jsonrpc":"2.0","id":3,"method":"d"}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}"#,
            r#"{"jsonrpc":"2.0","id":9,"result":{}}"#,
            "no message",
        ] {
            life.heard(&Bytes::from_static(text.as_bytes()));
        }
        assert_eq!(life.idle(), None);
        for text in [
            r#"{"jsonrpc":"2.0","id":3,"result":{}}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"ours"}"#,
        ] {
            assert!(life.said(&Bytes::from_static(text.as_bytes())));
        }
        assert_eq!(life.take_owed(), [r#""1""#, "1"]);
        assert!(life.idle().is_some());
    }

    #[test]
    fn a_client_that_began_anew_is_owed_nothing() {
        let life = Life::new();
        let request = br#"{"jsonrpc":"2.0","id":1,"method":"initialize"}"#;
        life.heard(&Bytes::from_static(request));
        assert_eq!(life.take_initialize().unwrap(), &request[..]);
        assert_eq!(life.take_initialize(), None);
        life.abandon();
        assert!(!life.said(&Bytes::from_static(
            br#"{"jsonrpc":"2.0","id":7,"result":1}"#
        )));
        assert!(life.take_owed().is_empty());
    }

    #[test]
    fn silence_ends_a_session_later_if_an_answer_is_waited_for() {
        let (life, limit) = (Life::new(), Duration::from_secs(10));
        let after = |life: &Life| life.silent_at(limit) - life.state().last;
        assert_eq!(after(&life), limit);
        life.heard(&Bytes::from_static(
            br#"{"jsonrpc":"2.0","id":1,"method":"a"}"#,
        ));
        assert_eq!(after(&life), Duration::from_secs(3600));
    }
}
