//! What a session tells, and why it refuses.

use breakbulk_message::vscode::{DecodeError, EncodeError, Reply, Request};

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The peer calls a method: run it, [`acknowledge`](super::Rpc::acknowledge) it, and
    /// [`reply`](super::Rpc::reply).
    Request {
        /// By which it is answered.
        id: RequestId,
        /// What is called.
        request: Request,
    },
    /// The peer lost interest in a request. It still waits for the reply.
    Cancelled {
        /// Which one.
        id: RequestId,
    },
    /// A call of ours is over.
    Reply {
        /// The number that [`call`](super::Rpc::call) gave.
        req: u32,
        /// How it ended.
        outcome: Result<Reply, CallFailed>,
    },
    /// The peer acknowledged something after all.
    Responsive,
    /// The peer owes acknowledgements for too long.
    Unresponsive,
    /// The session is over.
    Failed(RpcError),
}

impl Event {
    pub(super) fn is_of_request(&self) -> bool {
        matches!(self, Self::Request { .. } | Self::Cancelled { .. })
    }
}

/// A request that runs. The peer may use a number twice; these are never the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RequestId {
    pub(super) slot: u32,
    pub(super) turn: u32,
    pub(super) req: u32,
}

impl RequestId {
    /// The peer's number of the request.
    pub fn req(self) -> u32 {
        self.req
    }
}

/// Why a call has no reply.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallFailed {
    /// The session was ended.
    #[error("Canceled")]
    Canceled,
    /// There was one, but it cannot be read.
    #[error("the reply cannot be read: {0}")]
    Undecodable(DecodeError),
}

/// Why something is not sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// The session was ended.
    #[error("Canceled")]
    Disposed,
    /// There is no such request, or it has its reply.
    #[error("the request has its reply already")]
    NotRunning,
    /// Too many calls have no reply.
    #[error("{limit} calls have no reply, which is the limit; wait for some of them")]
    TooManyCalls {
        /// How many may be under way.
        limit: usize,
    },
    /// Too much waits to be sent.
    #[error("{queued} bytes wait to be sent, over the limit of {limit}; wait for the peer to read")]
    QueueFull {
        /// How much waits.
        queued: usize,
        /// How much may.
        limit: usize,
    },
    /// The message is too large.
    #[error("message of {len} bytes is over the limit of {limit}; send less or raise the limit")]
    TooLarge {
        /// Its size.
        len: usize,
        /// What is sent at most.
        limit: usize,
    },
    /// The format has no way to say it.
    #[error(transparent)]
    Encode(#[from] EncodeError),
}

/// A call that was not taken, with its request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{refused}")]
pub struct RefusedCall {
    /// Why.
    pub refused: Refused,
    /// What was to be called.
    pub request: Box<Request>,
}

/// Why a session ended by itself.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RpcError {
    /// The peer asks and does not read the answers.
    #[error(
        "{queued} bytes wait for a peer that does not read, over the limit of {limit}; \
         ask it to read, or raise the limit"
    )]
    NotRead {
        /// How much waits.
        queued: usize,
        /// How much may.
        limit: usize,
    },
}

/// How many messages of the peer's could not mean anything, by kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ignored {
    /// Without a readable header.
    pub messages: u64,
    /// Replies to no call.
    pub replies: u64,
    /// Acknowledgements of nothing.
    pub acknowledgements: u64,
    /// Cancels of nothing that could be cancelled.
    pub cancels: u64,
}
