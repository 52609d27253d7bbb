//! The polls of one connection: who waits, and what is handed to them.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::Stream;
use tokio::sync::{Mutex, mpsc, oneshot, watch};
use tokio::time::{Instant, sleep_until};

use crate::http::Dialect;
use crate::http::connection::{HttpConnection, closed};

/// What the HTTP library gets at once.
const CHUNK: usize = 32 << 10;

/// A message on its way to a poll.
#[derive(Debug)]
pub(crate) struct Handed {
    pub(crate) text: Bytes,
    /// Told once a poll has it.
    pub(crate) taken: oneshot::Sender<()>,
}

/// What polls find of a connection. The newest has its turn; an older one is answered at once.
#[derive(Debug)]
pub(crate) struct Polls {
    messages: Mutex<mpsc::Receiver<Handed>>,
    turn: watch::Sender<u64>,
    presence: watch::Sender<Presence>,
}

/// Whether somebody polls.
#[derive(Debug)]
pub(crate) struct Presence {
    waiting: usize,
    /// When the last poll was answered, while there is no other.
    pub(crate) absent_since: Option<Instant>,
}

/// How long a poll waits, and for how much.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    pub(crate) wait: Duration,
    pub(crate) linger: Duration,
    pub(crate) bytes: usize,
}

impl Polls {
    pub(crate) fn new(messages: mpsc::Receiver<Handed>) -> Self {
        let presence = Presence {
            waiting: 0,
            absent_since: Some(Instant::now()),
        };
        Self {
            messages: Mutex::new(messages),
            turn: watch::channel(0).0,
            presence: watch::channel(presence).0,
        }
    }

    pub(crate) fn presence(&self) -> watch::Receiver<Presence> {
        self.presence.subscribe()
    }

    /// One poll: the messages that there are, or the first that come.
    pub(crate) async fn collect(
        &self,
        connection: &Arc<HttpConnection>,
        patience: Patience,
    ) -> Batch {
        let _here = Here::new(self);
        let mut turn = self.turn.subscribe();
        let mut mine = 0;
        self.turn.send_modify(|turn| {
            *turn += 1;
            mine = *turn;
        });
        let mut batch = Batch::new(connection.clone());
        let ended = async {
            tokio::select! {
                _ = turn.wait_for(|turn| *turn != mine) => {}
                () = connection.over() => {}
            }
        };
        tokio::pin!(ended);
        let mut messages = tokio::select! {
            messages = self.messages.lock() => messages,
            () = &mut ended => return batch,
        };
        // A message that is on its way from the link is there in a moment.
        let mut until = Instant::now() + patience.wait.max(patience.linger);
        while batch.bytes < patience.bytes {
            tokio::select! {
                biased;
                Some(handed) = messages.recv() => {
                    batch.push(handed.text);
                    let _ = handed.taken.send(());
                    until = Instant::now() + patience.linger;
                }
                () = sleep_until(until) => break,
                () = &mut ended => break,
            }
        }
        batch
    }
}

/// While somebody polls.
struct Here<'p>(&'p Polls);

impl<'p> Here<'p> {
    fn new(polls: &'p Polls) -> Self {
        polls.presence.send_modify(|presence| {
            presence.waiting += 1;
            presence.absent_since = None;
        });
        Self(polls)
    }
}

impl Drop for Here<'_> {
    fn drop(&mut self) {
        self.0.presence.send_modify(|presence| {
            presence.waiting -= 1;
            presence.absent_since = (presence.waiting == 0).then(Instant::now);
        });
    }
}

/// Messages that were taken from the link, and the answer they go out by. If that is given up the
/// connection is over: its other end would miss them and not know.
#[derive(Debug)]
pub(crate) struct Batch {
    connection: Arc<HttpConnection>,
    messages: Vec<Bytes>,
    bytes: usize,
    delivered: bool,
}

impl Batch {
    fn new(connection: Arc<HttpConnection>) -> Self {
        Self {
            connection,
            messages: Vec::new(),
            bytes: 0,
            delivered: false,
        }
    }

    fn push(&mut self, text: Bytes) {
        // A place in the answer counts too.
        self.bytes += text.len() + size_of::<Bytes>();
        self.messages.push(text);
    }

    /// The body of the answer. The messages are not copied.
    pub(crate) fn into_body(mut self, dialect: &Dialect) -> Answering {
        let end = format!(r#"],"{}":false}}"#, dialect.new_member);
        let mut parts = vec![Bytes::from(end)];
        let last_first = std::mem::take(&mut self.messages).into_iter().rev();
        for (index, message) in last_first.enumerate() {
            if index > 0 {
                parts.push(Bytes::from_static(b","));
            }
            parts.push(message);
        }
        let start = format!(r#"{{"{}":["#, dialect.messages_member);
        parts.push(Bytes::from(start));
        Answering { batch: self, parts }
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        if self.bytes > 0 && !self.delivered {
            let gone = "a poll was given up before it had its answer";
            self.connection.end(closed(1006, gone));
        }
    }
}

/// An answer on its way.
#[derive(Debug)]
pub(crate) struct Answering {
    batch: Batch,
    /// What is left, the last part first.
    parts: Vec<Bytes>,
}

impl Stream for Answering {
    type Item = Result<Bytes, std::convert::Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Some(part) = self.parts.last_mut() else {
            self.batch.delivered = true;
            return Poll::Ready(None);
        };
        let chunk = part.split_to(part.len().min(CHUNK));
        if part.is_empty() {
            self.parts.pop();
        }
        Poll::Ready(Some(Ok(chunk)))
    }
}
