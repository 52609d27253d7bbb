//! The state of one session at relays: when its last message was, which requests are open, whether it is
//! to end.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use breakbulk_link::lock;
use breakbulk_message::jsonrpc::{Envelope, Kind, shortest_id};
use breakbulk_message::mcp;
use bytes::Bytes;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

/// The most open requests of one session that are remembered; a server takes fewer.
const REQUESTS: usize = 1024;

/// The longest id that is remembered, in bytes of JSON: nobody is charged for them, and anybody may send them.
const ID: usize = 256;

/// A session with open requests ends after this much silence.
const LONGEST_REQUEST: Duration = Duration::from_secs(3600);

/// The longest `initialize` that is kept for another command.
const LONGEST_INITIALIZE: usize = 16 << 10;

/// One session.
pub(super) struct SessionState {
    state: Mutex<State>,
    /// Its client is known, and has a place that strangers cannot take.
    pub(super) known: bool,
    /// It was asked to end.
    ending: watch::Sender<bool>,
    /// It has ended, and its command too.
    over: watch::Sender<bool>,
}

struct State {
    last: Instant,
    /// The ids of the client's requests without an answer, as JSON in its shortest form.
    open: BTreeSet<String>,
    /// The client's `initialize`, until it is taken.
    initialize: Option<Bytes>,
    /// The client has begun another session or is gone, and does not wait for answers.
    abandoned: bool,
}

impl SessionState {
    pub(super) fn new(known: bool) -> Self {
        Self {
            known,
            state: Mutex::new(State {
                last: Instant::now(),
                open: BTreeSet::new(),
                initialize: None,
                abandoned: false,
            }),
            ending: watch::Sender::new(false),
            over: watch::Sender::new(false),
        }
    }

    /// The client sent a message.
    pub(super) fn heard(&self, bytes: &Bytes) {
        let envelope = std::str::from_utf8(bytes).ok().and_then(Envelope::parse);
        let mut state = self.state();
        state.last = Instant::now();
        let Some(envelope) = envelope else { return };
        match (envelope.kind(), envelope.id) {
            (Some(Kind::Request), Some(id)) => {
                if state.open.len() < REQUESTS && id.get().len() <= ID {
                    state.open.insert(shortest_id(id.get()).into_owned());
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
                    state.open.remove(&*shortest_id(id.get()));
                }
            }
            _ => {}
        }
    }

    /// Notes a message for the client. False: the client has gone, and the message is to be dropped.
    pub(super) fn sends(&self, bytes: &Bytes) -> bool {
        let envelope = std::str::from_utf8(bytes).ok().and_then(Envelope::parse);
        let mut state = self.state();
        state.last = Instant::now();
        if let Some(envelope) = envelope
            && let Some(Kind::Result | Kind::Error) = envelope.kind()
            && let Some(id) = envelope.id
        {
            state.open.remove(&*shortest_id(id.get()));
        }
        !state.abandoned
    }

    /// Takes the ids of all open requests, to answer them.
    pub(super) fn take_open(&self) -> Vec<String> {
        let mut state = self.state();
        let open = std::mem::take(&mut state.open);
        if state.abandoned {
            return Vec::new();
        }
        open.into_iter().collect()
    }

    /// Takes the client's own `initialize`, if it sent one.
    pub(super) fn take_initialize(&self) -> Option<Bytes> {
        self.state().initialize.take()
    }

    /// Ends the session, whose client does not wait for answers any more.
    pub(super) fn abandon(&self) {
        self.state().abandoned = true;
        self.end();
    }

    pub(super) fn is_abandoned(&self) -> bool {
        self.state().abandoned
    }

    /// How long it has been silent, if no request is open.
    pub(super) fn idle(&self) -> Option<Duration> {
        let state = self.state();
        state.open.is_empty().then(|| state.last.elapsed())
    }

    /// Completes once it was silent for this long, or an hour if a request is open.
    pub(super) async fn silent(&self, limit: Duration) {
        loop {
            let (now, due) = (Instant::now(), self.silent_at(limit));
            if due <= now {
                return;
            }
            // The last open request may be answered meanwhile, and then the limit is nearer.
            sleep_until(due.min(now + limit)).await;
        }
    }

    fn silent_at(&self, limit: Duration) -> Instant {
        let state = self.state();
        let limit = match state.open.is_empty() {
            true => limit,
            false => limit.max(LONGEST_REQUEST),
        };
        state.last + limit
    }

    /// Asks it to end.
    pub(super) fn end(&self) {
        self.ending.send_replace(true);
    }

    /// Completes once it was asked to end.
    pub(super) async fn asked_to_end(&self) {
        // Cannot fail: the sender is `self.ending`.
        let _ = self.ending.subscribe().wait_for(|ending| *ending).await;
    }

    /// It has ended.
    pub(super) fn mark_over(&self) {
        self.over.send_replace(true);
    }

    /// Completes once it has ended.
    pub(super) async fn over(&self) {
        let _ = self.over.subscribe().wait_for(|over| *over).await;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn what_is_owed_is_what_was_asked_and_neither_answered_nor_cancelled() {
        let state = SessionState::new(false);
        for text in [
            r#"{"jsonrpc":"2.0","id":1,"method":"a"}"#,
            r#"{"jsonrpc":"2.0","id":"1","method":"b"}"#,
            r#"{"jsonrpc":"2.0","id":2,"method":"c"}"#,
            r#"{"jsonrpc":"2.0","id":3,"method":"d"}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}"#,
            r#"{"jsonrpc":"2.0","id":9,"result":{}}"#,
            "no message",
        ] {
            state.heard(&Bytes::from_static(text.as_bytes()));
        }
        // A longer id takes memory that nobody is charged for.
        let long = format!(
            r#"{{"jsonrpc":"2.0","id":"{}","method":"e"}}"#,
            "x".repeat(ID)
        );
        state.heard(&Bytes::from(long));
        assert_eq!(state.idle(), None);
        for text in [
            r#"{"jsonrpc":"2.0","id":3,"result":{}}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"ours"}"#,
        ] {
            assert!(state.sends(&Bytes::from_static(text.as_bytes())));
        }
        assert_eq!(state.take_open(), [r#""1""#, "1"]);
        assert!(state.idle().is_some());
    }

    // PROG-10
    #[test]
    fn a_client_that_began_anew_is_owed_nothing() {
        let state = SessionState::new(false);
        let request = br#"{"jsonrpc":"2.0","id":1,"method":"initialize"}"#;
        state.heard(&Bytes::from_static(request));
        assert_eq!(state.take_initialize().unwrap(), &request[..]);
        assert_eq!(state.take_initialize(), None);
        state.abandon();
        assert!(!state.sends(&Bytes::from_static(
            br#"{"jsonrpc":"2.0","id":7,"result":1}"#
        )));
        assert!(state.take_open().is_empty());
    }

    #[test]
    fn silence_ends_a_session_later_if_an_answer_is_waited_for() {
        let (state, limit) = (SessionState::new(false), Duration::from_secs(10));
        let after = |state: &SessionState| state.silent_at(limit) - state.state().last;
        assert_eq!(after(&state), limit);
        state.heard(&Bytes::from_static(
            br#"{"jsonrpc":"2.0","id":1,"method":"a"}"#,
        ));
        assert_eq!(after(&state), Duration::from_secs(3600));
    }
}
