//! Messages that a transport skipped because they were over its limit.

use tokio::sync::mpsc;

#[cfg(feature = "process")]
type Report = breakbulk_net::process::Unreadable;

/// Only streams skip messages.
#[cfg(not(feature = "process"))]
type Report = std::convert::Infallible;

/// A message that was over the limit of the side it came by, and the members that were read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Oversized {
    /// Its bytes.
    pub size: u64,
    /// The limit.
    pub limit: usize,
    /// Its `id` as JSON text, if it was a JSON object with a short one.
    pub id: Option<String>,
    /// Its `method` as JSON text, likewise.
    pub method: Option<String>,
    /// Whether it has a `result` or an `error`.
    pub is_answer: bool,
}

/// The messages that one transport skips.
#[derive(Debug)]
pub struct Skipped(mpsc::Receiver<Report>);

impl Skipped {
    /// The messages that this stream skips. To be called before its connection is opened: without this
    /// call such a message closes the stream.
    #[cfg(feature = "process")]
    pub fn of(ends: &breakbulk_net::process::Ends) -> Self {
        Self(ends.skipped(&["id", "method", "result", "error"]))
    }

    /// The next one; `None` when there will be no more. Cancel-safe.
    pub(super) async fn next(&mut self) -> Option<Oversized> {
        self.0.recv().await.map(oversized)
    }

    /// The next one, if it is there already.
    pub(super) fn try_next(&mut self) -> Option<Oversized> {
        self.0.try_recv().ok().map(oversized)
    }

    /// Whether none is waiting.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(feature = "process")]
fn oversized(report: Report) -> Oversized {
    match report {
        Report::Oversized {
            size,
            limit,
            members,
        } => {
            let text = |name| members.get(name).map(ToOwned::to_owned);
            Oversized {
                size,
                limit,
                id: text("id"),
                method: text("method"),
                is_answer: members.has("result") || members.has("error"),
            }
        }
        // Streams report nothing else. Without an id and a method it is not answered.
        _ => Oversized::default(),
    }
}

#[cfg(not(feature = "process"))]
fn oversized(report: Report) -> Oversized {
    match report {}
}
