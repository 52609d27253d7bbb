//! Receipts for frames that came by HTTP POST: a POST is answered with the verdict that its receipt gets.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use breakbulk_link::lock;
use breakbulk_link::{Fault, MessageId, Received, Unmatched};
use tokio::sync::oneshot;

/// Answers the POST that brought a frame. If it is dropped unanswered, the POST is answered that the
/// connection ended.
#[derive(Clone)]
pub struct Receipt(Arc<Mutex<Option<oneshot::Sender<Verdict>>>>);

/// What became of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It completed a message, which the application kept, or refused for this reason.
    Settled(Result<(), Refusal>),
    /// Its message is not complete yet, or the frame was ignored.
    Pending,
    /// It violated the wire's rules, or its message was given up.
    Fault(Fault),
}

/// Why the application refused a message, as an HTTP status and error text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{status}: {error}")]
pub struct Refusal {
    /// The HTTP status: 400 if the message is invalid, 403, 503 and so on.
    pub status: u16,
    /// What is wrong, for the member `error` of the answer.
    pub error: String,
}

impl Refusal {
    /// A refusal.
    pub fn new(status: u16, error: impl Into<String>) -> Self {
        Self {
            status,
            error: error.into(),
        }
    }
}

impl Receipt {
    /// A receipt, and the channel that yields its verdict.
    pub fn new() -> (Self, oneshot::Receiver<Verdict>) {
        let (sender, verdict) = oneshot::channel();
        (Self(Arc::new(Mutex::new(Some(sender)))), verdict)
    }

    /// Sends the verdict; only the first call has an effect.
    pub fn answer(&self, verdict: Verdict) {
        let sender = lock(&self.0).take();
        if let Some(sender) = sender {
            let _ = sender.send(verdict);
        }
    }

    /// Whether nothing waits for the verdict any more.
    fn is_abandoned(&self) -> bool {
        let sender = lock(&self.0);
        sender.as_ref().is_none_or(oneshot::Sender::is_closed)
    }
}

impl PartialEq for Receipt {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Receipt {}

impl fmt::Debug for Receipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Receipt")
    }
}

/// The receipts of complete messages that the application has not settled yet.
#[derive(Debug, Default)]
pub(crate) struct Receipts(BTreeMap<MessageId, Receipt>);

impl Receipts {
    /// Answers the receipt of a frame by what the link made of the frame; that of a complete
    /// message waits until [`settle`](Self::settle).
    pub(crate) fn received(&mut self, received: Received, receipt: Receipt) {
        match received {
            Received::Done(message) => {
                // Receipts whose POST was given up are dropped, so there are at most as many as
                // open POSTs.
                self.0.retain(|_, receipt| !receipt.is_abandoned());
                self.0.insert(message, receipt);
            }
            // The piece's transfer was given up: its sender must learn that sending the rest is useless.
            Received::Unmatched(Unmatched {
                key,
                ended: Some(kind),
                ..
            }) => receipt.answer(Verdict::Fault(kind.of(&key))),
            Received::Pending | Received::Ignored | Received::Unmatched(_) => {
                receipt.answer(Verdict::Pending)
            }
            Received::Fault(fault) => receipt.answer(Verdict::Fault(fault)),
        }
    }

    /// Answers the receipt of a message that the application kept or refused.
    pub(crate) fn settle(&mut self, message: MessageId, outcome: Result<(), Refusal>) {
        if let Some(receipt) = self.0.remove(&message) {
            receipt.answer(Verdict::Settled(outcome));
        }
    }

    /// Drops all receipts: the connection ended.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use breakbulk_link::{FaultKind, Key};

    use super::*;

    // LORO-22
    #[test]
    fn a_piece_of_a_transfer_that_was_given_up_is_no_success() {
        let key = Key::new(b"12345678");
        let given_up = FaultKind::TimedOut {
            timer: "idle",
            received: 5,
            declared: Some(10),
        };
        for (ended, verdict) in [
            (None, Verdict::Pending),
            (
                Some(given_up.clone()),
                Verdict::Fault(given_up.clone().of(&key)),
            ),
        ] {
            let (receipt, mut answered) = Receipt::new();
            let unmatched = Unmatched {
                key: key.clone(),
                abort: None,
                ended,
            };
            Receipts::default().received(Received::Unmatched(unmatched), receipt);
            assert_eq!(answered.try_recv(), Ok(verdict));
        }
    }
}
