//! The polls of one connection on the server: collects messages into an answer.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::Stream;
use tokio::sync::{Mutex, mpsc, oneshot, watch};
use tokio::time::{Instant, sleep_until};

use crate::bytes_with;
use crate::http::Dialect;
use crate::http::connection::{HttpConnection, closed};
use crate::http::presence::PresentGuard;

/// The size of the chunks given to hyper.
const CHUNK: usize = 32 << 10;

/// A poll that has collected no more than this takes further messages, and lets the sender go on at once. The
/// message by which it collects more is the last one, and its sender waits until the answer was sent.
const SHARED: usize = 64 << 10;

/// A message for the next poll.
#[derive(Debug)]
pub(crate) struct OutgoingMessage {
    pub(crate) text: Bytes,
    /// Notified once a poll has taken the message, or, if it is large, once all of the answer was given to the
    /// socket.
    pub(crate) taken: oneshot::Sender<()>,
    /// Dropped with the memory of the message if it is large, else at once: until then it stays charged.
    pub(crate) held: oneshot::Sender<Infallible>,
}

/// What the polls of a connection share. If several wait at once, the newest gets the messages, and the
/// older ones are answered immediately.
#[derive(Debug)]
pub(crate) struct Polls {
    messages: Mutex<mpsc::Receiver<OutgoingMessage>>,
    /// The number of the newest poll.
    newest: watch::Sender<u64>,
}

/// When a poll is answered: after `wait` without a message, `linger` after a message, or once it has
/// `bytes`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PollLimits {
    pub(crate) wait: Duration,
    pub(crate) linger: Duration,
    pub(crate) bytes: usize,
}

impl Polls {
    pub(crate) fn new(messages: mpsc::Receiver<OutgoingMessage>) -> Self {
        Self {
            messages: Mutex::new(messages),
            newest: watch::channel(0).0,
        }
    }

    /// Collects the messages for one poll: those that are ready, or the first that come.
    pub(crate) async fn collect(
        &self,
        connection: &Arc<HttpConnection>,
        limits: PollLimits,
    ) -> Batch {
        let polling = PresentGuard::new(connection.clone());
        let mut newest = self.newest.subscribe();
        let mut number = 0;
        self.newest.send_modify(|newest| {
            *newest += 1;
            number = *newest;
        });
        let mut batch = Batch::new(connection.clone(), polling);
        let ended = async {
            tokio::select! {
                _ = newest.wait_for(|newest| *newest != number) => {}
                () = connection.ended() => {}
            }
        };
        tokio::pin!(ended);
        let mut messages = tokio::select! {
            messages = self.messages.lock() => messages,
            () = &mut ended => return batch,
        };
        // Even a poll that does not want to wait gives the link a moment to deliver a message.
        let mut until = Instant::now() + limits.wait.max(limits.linger);
        while batch.bytes < limits.bytes {
            tokio::select! {
                biased;
                Some(message) = messages.recv() => {
                    let OutgoingMessage { text, taken, held } = message;
                    let fills = batch.bytes + size_of::<Bytes>() + text.len() > SHARED;
                    if fills {
                        // The last part of it, in the buffer of the socket, keeps the memory of all.
                        batch.push(bytes_with(text, held));
                        batch.taken = Some(taken);
                        break;
                    }
                    batch.push(text);
                    let _ = taken.send(());
                    until = Instant::now() + limits.linger;
                }
                () = sleep_until(until) => break,
                () = &mut ended => break,
            }
        }
        batch
    }
}

/// Messages that were taken from the link for one answer. If the answer is dropped before it was sent,
/// the connection is ended: the client would miss the messages without knowing.
#[derive(Debug)]
pub(crate) struct Batch {
    connection: Arc<HttpConnection>,
    messages: Vec<Bytes>,
    bytes: usize,
    /// Notified when the answer was sent.
    taken: Option<oneshot::Sender<()>>,
    delivered: bool,
    _polling: PresentGuard,
}

impl Batch {
    fn new(connection: Arc<HttpConnection>, polling: PresentGuard) -> Self {
        Self {
            connection,
            _polling: polling,
            messages: Vec::new(),
            bytes: 0,
            taken: None,
            delivered: false,
        }
    }

    fn push(&mut self, text: Bytes) {
        // The entry in the list counts too.
        self.bytes += text.len() + size_of::<Bytes>();
        self.messages.push(text);
    }

    /// The body of the answer. The messages are not copied.
    pub(crate) fn into_body(mut self, dialect: &Dialect) -> BatchBody {
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
        BatchBody { batch: self, parts }
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        if self.bytes > 0 && !self.delivered {
            let gone = "the client dropped a poll before it was answered";
            self.connection.end(closed(1006, gone));
        }
    }
}

/// The body of an answer while it is sent.
#[derive(Debug)]
pub(crate) struct BatchBody {
    batch: Batch,
    /// The parts that are not sent yet, in reverse order.
    parts: Vec<Bytes>,
}

impl Stream for BatchBody {
    type Item = Result<Bytes, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Some(part) = self.parts.last_mut() else {
            self.batch.delivered = true;
            if let Some(taken) = self.batch.taken.take() {
                let _ = taken.send(());
            }
            return Poll::Ready(None);
        };
        let chunk = part.split_to(part.len().min(CHUNK));
        if part.is_empty() {
            self.parts.pop();
        }
        Poll::Ready(Some(Ok(chunk)))
    }
}

#[cfg(test)]
mod tests {
    use futures_util::StreamExt;
    use tokio::sync::oneshot::error::TryRecvError;

    use super::*;

    #[tokio::test]
    async fn a_large_message_is_taken_once_its_answer_was_sent() {
        let (sender, messages) = mpsc::channel(4);
        let (polls, connection) = (Polls::new(messages), HttpConnection::for_tests());
        let limits = PollLimits {
            wait: Duration::from_secs(60),
            linger: Duration::ZERO,
            bytes: 1 << 30,
        };
        let send = |size: usize| {
            let (taken, until_taken) = oneshot::channel();
            let (held, while_held) = oneshot::channel();
            let text = Bytes::from(vec![b'1'; size]);
            let message = OutgoingMessage { text, taken, held };
            sender.try_send(message).unwrap();
            (until_taken, while_held)
        };
        let (mut small, mut large, mut next) = (send(10), send(SHARED), send(10));
        let batch = polls.collect(&connection, limits).await;
        assert!(small.0.try_recv().is_ok());
        assert_eq!(small.1.try_recv(), Err(TryRecvError::Closed));
        assert!(large.0.try_recv().is_err() && next.0.try_recv().is_err());
        let mut sent: Vec<_> = batch.into_body(&Dialect::default()).collect().await;
        assert!(sent.len() > 4);
        assert!(large.0.try_recv().is_ok());
        // The socket still holds the last part of it, and with it the memory of all.
        sent.drain(..sent.len() - 2);
        assert_eq!(large.1.try_recv(), Err(TryRecvError::Empty));
        drop(sent);
        assert_eq!(large.1.try_recv(), Err(TryRecvError::Closed));
        drop(polls.collect(&connection, limits).await);
        assert!(next.0.try_recv().is_ok());
    }
}
