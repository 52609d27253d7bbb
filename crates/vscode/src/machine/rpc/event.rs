//! Events and errors of a session.

use breakbulk_message::vscode::{DecodeError, EncodeError, Reply, Request};

/// An event of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The peer calls a method: run it, [`acknowledge`](super::Rpc::acknowledge) it, and
    /// [`reply`](super::Rpc::reply).
    Request {
        /// Identifies the request in the reply.
        id: RequestId,
        /// The method and its arguments.
        request: Request,
    },
    /// The peer cancelled a request. It still expects a reply.
    Cancelled {
        /// The request.
        id: RequestId,
    },
    /// A call is over.
    Reply {
        /// The number that [`call`](super::Rpc::call) returned.
        req: u32,
        /// How it ended.
        outcome: Result<Reply, CallFailed>,
    },
    /// An unresponsive peer sent an acknowledgement again.
    Responsive,
    /// The peer has not acknowledged requests for too long.
    Unresponsive,
    /// The session is over.
    Failed(RpcError),
}

impl Event {
    pub(super) fn is_of_request(&self) -> bool {
        matches!(self, Self::Request { .. } | Self::Cancelled { .. })
    }
}

/// Identifies a running request. Unique even if the peer uses a number twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RequestId {
    pub(super) slot: u32,
    pub(super) generation: u32,
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
    /// The reply cannot be decoded.
    #[error("the reply cannot be read: {0}")]
    Undecodable(DecodeError),
}

/// Why a call or a reply was not sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// The session was ended.
    #[error("Canceled")]
    Disposed,
    /// There is no such request, or it was replied to.
    #[error("the request has its reply already")]
    NotRunning,
    /// Too many calls have no reply.
    #[error("{limit} calls have no reply, which is the limit; wait for some of them")]
    TooManyCalls {
        /// The limit.
        limit: usize,
    },
    /// Too many bytes are queued for sending.
    #[error("{queued} bytes wait to be sent, over the limit of {limit}; wait for the peer to read")]
    QueueFull {
        /// Queued bytes.
        queued: usize,
        /// The limit.
        limit: usize,
    },
    /// The message is too large.
    #[error("message of {len} bytes is over the limit of {limit}; send less or raise the limit")]
    TooLarge {
        /// Its size.
        len: usize,
        /// The limit.
        limit: usize,
    },
    /// The format cannot express it.
    #[error(transparent)]
    Encode(#[from] EncodeError),
}

/// A call that was not sent, with its request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{refused}")]
pub struct RefusedCall {
    /// Why.
    pub refused: Refused,
    /// The request.
    pub request: Box<Request>,
}

/// Why a session ended by itself.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RpcError {
    /// The peer sends requests and does not read the replies.
    #[error(
        "{queued} bytes wait for a peer that does not read, over the limit of {limit}; \
         ask it to read, or raise the limit"
    )]
    NotRead {
        /// Queued bytes.
        queued: usize,
        /// The limit.
        limit: usize,
    },
}

/// Counts of messages that were ignored, by kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ignored {
    /// Without a readable header.
    pub messages: u64,
    /// Replies to no call.
    pub replies: u64,
    /// Acknowledgements without a request.
    pub acknowledgements: u64,
    /// Cancellations without a cancellable request.
    pub cancels: u64,
}
