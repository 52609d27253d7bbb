//! The twelve types of messages, as data.

use std::num::NonZeroU8;

use bytes::Bytes;

use super::{EncodeError, Text};

/// One RPC message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RpcMessage {
    /// The request's id. Each side numbers its own requests from 1.
    pub req: u32,
    /// The content.
    pub body: Body,
}

/// The content of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Body {
    /// Types 1 to 4: call a method.
    Request(Request),
    /// Type 5: the request arrived and its handler runs.
    Acknowledged,
    /// Type 6: the caller cancels the request. The callee still replies.
    Cancel,
    /// Types 7 to 12: how the request ended.
    Reply(Reply),
}

/// A call of a method.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The object to call.
    pub rpc_id: RpcId,
    /// The method, of at most 255 bytes.
    pub method: Text,
    /// The arguments, without the cancellation token.
    pub args: Args,
    /// Whether the callee appends a cancellation token of its own to the arguments.
    pub cancellation: bool,
}

/// The number of an object that can be called: 1 to 255.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RpcId(NonZeroU8);

/// A request's arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Args {
    /// One JSON array.
    Json(Text),
    /// At most 255 arguments, each in its own form.
    Mixed(Vec<Arg>),
}

/// One of mixed arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Arg {
    /// A JSON value.
    Json(Text),
    /// Bytes.
    Buffer(Bytes),
    /// A JSON value with buffers inside.
    ObjectWithBuffers(WithBuffers),
    /// JavaScript's `undefined`, which JSON cannot express.
    Undefined,
}

/// A JSON value in which `{"$$ref$$":n}` stands for a buffer, and −1 for `undefined`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WithBuffers {
    /// The value.
    pub json: Text,
    /// The buffers that its references point to.
    pub buffers: Vec<Bytes>,
}

/// How a request ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// Type 7: it returned `undefined`.
    OkEmpty,
    /// Type 8: it returned bytes.
    OkBuffer(Bytes),
    /// Type 9: it returned a JSON value.
    OkJson(Text),
    /// Type 10: it returned a JSON value with buffers inside.
    OkJsonWithBuffers(WithBuffers),
    /// Type 11: it threw an error, or another JSON value.
    ErrError(Text),
    /// Type 12: it threw something falsy.
    ErrEmpty,
}

/// The first byte of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum MessageType {
    /// A request with JSON arguments.
    RequestJsonArgs = 1,
    /// The same; the callee appends a cancellation token.
    RequestJsonArgsWithCancellation,
    /// A request with mixed arguments.
    RequestMixedArgs,
    /// The same; the callee appends a cancellation token.
    RequestMixedArgsWithCancellation,
    /// A request has arrived.
    Acknowledged,
    /// A request is cancelled.
    Cancel,
    /// Success without a value.
    ReplyOkEmpty,
    /// Success with bytes.
    ReplyOkBuffer,
    /// Success with JSON.
    ReplyOkJson,
    /// Success with JSON and buffers.
    ReplyOkJsonWithBuffers,
    /// Failure with JSON.
    ReplyErrError,
    /// Failure without a value.
    ReplyErrEmpty,
}

/// The five bytes in front of every message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Header {
    /// The type of the message.
    pub message_type: MessageType,
    /// The request's id.
    pub req: u32,
}

impl RpcMessage {
    /// The message's header.
    pub fn header(&self) -> Header {
        Header {
            message_type: self.body.message_type(),
            req: self.req,
        }
    }
}

impl Body {
    /// The message type of this content.
    pub fn message_type(&self) -> MessageType {
        match self {
            Self::Request(request) => match (&request.args, request.cancellation) {
                (Args::Json(_), false) => MessageType::RequestJsonArgs,
                (Args::Json(_), true) => MessageType::RequestJsonArgsWithCancellation,
                (Args::Mixed(_), false) => MessageType::RequestMixedArgs,
                (Args::Mixed(_), true) => MessageType::RequestMixedArgsWithCancellation,
            },
            Self::Acknowledged => MessageType::Acknowledged,
            Self::Cancel => MessageType::Cancel,
            Self::Reply(reply) => match reply {
                Reply::OkEmpty => MessageType::ReplyOkEmpty,
                Reply::OkBuffer(_) => MessageType::ReplyOkBuffer,
                Reply::OkJson(_) => MessageType::ReplyOkJson,
                Reply::OkJsonWithBuffers(_) => MessageType::ReplyOkJsonWithBuffers,
                Reply::ErrError(_) => MessageType::ReplyErrError,
                Reply::ErrEmpty => MessageType::ReplyErrEmpty,
            },
        }
    }
}

impl RpcId {
    /// An id from 1 to 255; the original truncates other numbers, which then address another object.
    pub fn new(id: usize) -> Result<Self, EncodeError> {
        u8::try_from(id)
            .ok()
            .and_then(NonZeroU8::new)
            .map(Self)
            .ok_or(EncodeError::RpcId { id })
    }

    /// The number on the wire.
    pub fn get(self) -> u8 {
        self.0.get()
    }
}

impl MessageType {
    const ALL: [Self; 12] = [
        Self::RequestJsonArgs,
        Self::RequestJsonArgsWithCancellation,
        Self::RequestMixedArgs,
        Self::RequestMixedArgsWithCancellation,
        Self::Acknowledged,
        Self::Cancel,
        Self::ReplyOkEmpty,
        Self::ReplyOkBuffer,
        Self::ReplyOkJson,
        Self::ReplyOkJsonWithBuffers,
        Self::ReplyErrError,
        Self::ReplyErrEmpty,
    ];

    /// The type with this number, if there is one.
    pub fn from_u8(byte: u8) -> Option<Self> {
        let index = usize::from(byte).checked_sub(1)?;
        Self::ALL.get(index).copied()
    }

    /// Whether a message of this type requires an acknowledgement and a reply.
    pub fn is_request(self) -> bool {
        self <= Self::RequestMixedArgsWithCancellation
    }

    /// Whether a message of this type ends a request.
    pub fn is_reply(self) -> bool {
        self >= Self::ReplyOkEmpty
    }
}

impl Header {
    /// The length of a header.
    pub const LEN: usize = 5;

    /// The header of a message, if it is complete and its type is known.
    pub fn read(message: &[u8]) -> Option<Self> {
        let (&[message_type, a, b, c, d], _) = message.split_first_chunk::<{ Self::LEN }>()?;
        Some(Self {
            message_type: MessageType::from_u8(message_type)?,
            req: u32::from_be_bytes([a, b, c, d]),
        })
    }
}
