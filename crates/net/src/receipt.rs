//! What the sender of a frame waits for, where the transport answers each one: HTTP.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use breakbulk_link::{Fault, MessageId, Received};
use tokio::sync::oneshot;

/// What is owed to the sender of one frame. Dropped unanswered, the sender hears that the connection
/// ended.
#[derive(Clone)]
pub struct Receipt(Arc<Mutex<Option<oneshot::Sender<Verdict>>>>);

/// What became of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It completed a message that was decoded and kept, or not and why.
    Settled(Result<(), Refusal>),
    /// There is more to come, or it changed nothing.
    Pending,
    /// It was wrong.
    Fault(Fault),
}

/// Why a message was not kept, in HTTP's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{status}: {error}")]
pub struct Refusal {
    /// The status of the answer: 400 where the message was wrong, 403, 503 and so on.
    pub status: u16,
    /// What is wrong, for the answer's `error`.
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
    /// A receipt, and where its verdict comes out.
    pub fn new() -> (Self, oneshot::Receiver<Verdict>) {
        let (tell, verdict) = oneshot::channel();
        (Self(Arc::new(Mutex::new(Some(tell)))), verdict)
    }

    /// Tells the sender; the first word counts.
    pub fn answer(&self, verdict: Verdict) {
        let tell = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(tell) = tell {
            let _ = tell.send(verdict);
        }
    }

    /// Whether nobody waits for it any more.
    fn is_void(&self) -> bool {
        let tell = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        tell.as_ref().is_none_or(oneshot::Sender::is_closed)
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

/// Messages that are whole and whose senders wait until they are kept.
#[derive(Debug, Default)]
pub(crate) struct Receipts(BTreeMap<MessageId, Receipt>);

impl Receipts {
    /// The link said what became of a frame.
    pub(crate) fn received(&mut self, received: Received, receipt: Receipt) {
        match received {
            Received::Done(message) => {
                // Whoever hung up waits for nothing: so there are never more than senders.
                self.0.retain(|_, receipt| !receipt.is_void());
                self.0.insert(message, receipt);
            }
            Received::Pending | Received::Ignored => receipt.answer(Verdict::Pending),
            Received::Fault(fault) => receipt.answer(Verdict::Fault(fault)),
        }
    }

    /// The peer said what became of a message.
    pub(crate) fn settle(&mut self, message: MessageId, outcome: Result<(), Refusal>) {
        if let Some(receipt) = self.0.remove(&message) {
            receipt.answer(Verdict::Settled(outcome));
        }
    }

    /// Nobody will settle anything any more.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}
