//! Messages that a transport did not deliver: those over its limit, and those that it lost.

use tokio::sync::mpsc;

/// A message that was over the limit of the side it came by, and the members that were read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Oversized {
    /// The size of the message, in bytes.
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

/// What a transport did not deliver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Missed {
    /// A message that came in and is too large.
    #[cfg_attr(
        not(feature = "process"),
        expect(dead_code, reason = "only streams skip messages")
    )]
    Oversized(Oversized),
    /// A message that could not be sent, and that nobody waits for an answer to; or one that came in and
    /// was dropped. The words say why.
    #[cfg_attr(
        not(feature = "http"),
        expect(dead_code, reason = "only HTTP loses messages one by one")
    )]
    Lost(String),
}

/// The messages that one transport does not deliver.
#[derive(Debug)]
pub struct Skipped(Reports);

#[derive(Debug)]
enum Reports {
    #[cfg(feature = "process")]
    Stream(mpsc::Receiver<breakbulk_net::process::Unreadable>),
    #[cfg_attr(
        not(feature = "http"),
        expect(dead_code, reason = "only HTTP has them")
    )]
    Transport(mpsc::Receiver<Missed>),
}

impl Skipped {
    /// The messages that this stream skips. To be called before its connection is opened: without this
    /// call such a message closes the stream.
    #[cfg(feature = "process")]
    pub fn of(ends: &breakbulk_net::process::Ends) -> Self {
        let members = &["id", "method", "result", "error"];
        Self(Reports::Stream(ends.skipped(members)))
    }

    /// Reports what a transport itself sends on this channel.
    #[cfg(feature = "http")]
    pub(crate) fn of_transport(reports: mpsc::Receiver<Missed>) -> Self {
        Self(Reports::Transport(reports))
    }

    /// The next one; `None` when there will be no more. Cancel-safe.
    pub(super) async fn next(&mut self) -> Option<Missed> {
        match &mut self.0 {
            #[cfg(feature = "process")]
            Reports::Stream(reports) => reports.recv().await.map(oversized),
            Reports::Transport(reports) => reports.recv().await,
        }
    }

    /// The next one, if it is there already.
    pub(super) fn try_next(&mut self) -> Option<Missed> {
        match &mut self.0 {
            #[cfg(feature = "process")]
            Reports::Stream(reports) => reports.try_recv().ok().map(oversized),
            Reports::Transport(reports) => reports.try_recv().ok(),
        }
    }

    /// Whether none is waiting.
    pub(super) fn is_empty(&self) -> bool {
        match &self.0 {
            #[cfg(feature = "process")]
            Reports::Stream(reports) => reports.is_empty(),
            Reports::Transport(reports) => reports.is_empty(),
        }
    }
}

#[cfg(feature = "process")]
fn oversized(report: breakbulk_net::process::Unreadable) -> Missed {
    use breakbulk_net::process::Unreadable;
    Missed::Oversized(match report {
        Unreadable::Oversized {
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
        // Streams make no other report. Without an id and a method this one would not be answered.
        _ => Oversized::default(),
    })
}
