//! The errors for publishers ([`PublishError`]) and for clients ([`RpcError`]).

use std::sync::Arc;

use serde_json::value::RawValue;

/// Why an action was not published, or will never become visible.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PublishError {
    /// Too many actions wait for the log.
    #[error(
        "{uncommitted} bytes wait for the replay log and an action of {size} more would exceed the limit of {limit}: publish less at a time, wait with `Host::visible`, or raise `uncommitted_bytes`"
    )]
    Behind {
        /// Bytes of actions that wait.
        uncommitted: usize,
        /// Bytes of the action.
        size: usize,
        /// The limit.
        limit: usize,
    },
    /// The log failed, or the application panicked while it applied an action; no further action becomes
    /// visible.
    #[error("the host takes no more actions: {reason}")]
    Failed {
        /// What happened.
        reason: Arc<str>,
    },
    /// The host is shut down.
    #[error("the host is shut down and takes no more actions")]
    ShutDown,
}

/// A JSON-RPC error that answers a request.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message} ({code})")]
pub struct RpcError {
    /// Its code.
    pub code: i32,
    /// A sentence for a person.
    pub message: String,
    /// Details for a program, as JSON.
    pub data: Option<Box<RawValue>>,
}

impl RpcError {
    /// The message is not valid JSON.
    pub const PARSE_ERROR: i32 = -32700;
    /// Not a valid request, or not allowed now.
    pub const INVALID_REQUEST: i32 = -32600;
    /// No such method.
    pub const METHOD_NOT_FOUND: i32 = -32601;
    /// Invalid params.
    pub const INVALID_PARAMS: i32 = -32602;
    /// An error of the host itself.
    pub const INTERNAL_ERROR: i32 = -32603;
    /// No such session.
    pub const SESSION_NOT_FOUND: i32 = -32001;
    /// No protocol version in common.
    pub const UNSUPPORTED_VERSION: i32 = -32005;
    /// No such channel or resource.
    pub const NOT_FOUND: i32 = -32008;
    /// The send queue of this client has no room for the answer.
    pub const BUSY: i32 = -32000;

    /// An error without data.
    pub fn new(code: i32, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            data: None,
        }
    }

    /// There is no such method.
    pub fn method_not_found(method: &str) -> Self {
        // The name is the client's own and may be long.
        let short: String = method.chars().take(64).collect();
        Self::new(Self::METHOD_NOT_FOUND, format!("no such method: {short}"))
    }

    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Self::new(Self::INVALID_PARAMS, message)
    }
}
