//! Decodes messages without copying: text and buffers are slices of the input.

use bytes::Bytes;

use super::json::{self, JsonError, Root};
use super::message::{
    Arg, Args, Body, Header, MessageType, Reply, Request, RpcId, RpcMessage, WithBuffers,
};
use super::text::Text;
use super::value::MAX_DEPTH;

/// The limits of a decoder. Each is checked before memory is allocated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// The largest message, in bytes.
    pub message: usize,
    /// The most mixed arguments of a request; the format allows 255.
    pub args: usize,
    /// The longest text, in bytes.
    pub text: usize,
    /// The most buffers of one object-with-buffers.
    pub buffers: usize,
    /// How deep JSON may nest.
    pub nesting: usize,
}

impl Limits {
    /// These limits after `change` was applied to them.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            message: 100 * 1024 * 1024,
            args: 255,
            text: 100 * 1024 * 1024,
            buffers: 65_536,
            nesting: MAX_DEPTH,
        }
    }
}

/// Why a message cannot be decoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kind} (near byte {at})")]
pub struct DecodeError {
    /// The header, if it is valid: a request can then be answered with an error.
    pub header: Option<Header>,
    /// What is wrong.
    pub kind: DecodeErrorKind,
    /// The position of the decoder.
    pub at: usize,
}

/// What is wrong with a message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeErrorKind {
    /// The message ends inside a field, or a length points past its end.
    #[error("message ends inside its {field}")]
    Truncated {
        /// The incomplete field.
        field: &'static str,
    },
    /// The message type is unknown.
    #[error("unknown message type {0}")]
    UnknownType(u8),
    /// The argument type is unknown.
    #[error("unknown argument type {0}")]
    UnknownArgType(u8),
    /// The rpc id is 0, which is not valid.
    #[error("rpc id is 0")]
    RpcIdZero,
    /// A text is not UTF-8.
    #[error("{field} is not valid UTF-8")]
    NotUtf8 {
        /// The field with the text.
        field: &'static str,
    },
    /// A text is not JSON, or nests too deep.
    #[error("{field}: {error}")]
    Json {
        /// The field with the text.
        field: &'static str,
        /// What is wrong with it.
        error: JsonError,
    },
    /// A request's arguments are not an array.
    #[error("arguments are not a JSON array")]
    ArgsNotArray,
    /// A limit of the receiver is exceeded.
    #[error(
        "{what} is {actual}, over the receiver's limit of {limit}; send less or raise the limit"
    )]
    OverLimit {
        /// What exceeds the limit.
        what: &'static str,
        /// Its size or number.
        actual: usize,
        /// The limit.
        limit: usize,
    },
}

/// Decodes one message. Bytes after its end are ignored, as in the original.
pub fn decode(message: Bytes, limits: &Limits) -> Result<RpcMessage, DecodeError> {
    let mut reader = Reader {
        message,
        at: 0,
        limits,
    };
    let header = Header::read(&reader.message);
    reader.body(header).map_err(|kind| DecodeError {
        header,
        kind,
        at: reader.at,
    })
}

type Kind = DecodeErrorKind;

struct Reader<'a> {
    message: Bytes,
    at: usize,
    limits: &'a Limits,
}

impl Reader<'_> {
    fn body(&mut self, header: Option<Header>) -> Result<RpcMessage, Kind> {
        within("message length", self.message.len(), self.limits.message)?;
        let Some(Header { message_type, req }) = header else {
            return Err(self.header_error());
        };
        self.at = Header::LEN;
        let body = match message_type {
            MessageType::RequestJsonArgs
            | MessageType::RequestJsonArgsWithCancellation
            | MessageType::RequestMixedArgs
            | MessageType::RequestMixedArgsWithCancellation => {
                Body::Request(self.request(message_type)?)
            }
            MessageType::Acknowledged => Body::Acknowledged,
            MessageType::Cancel => Body::Cancel,
            MessageType::ReplyOkEmpty => Body::Reply(Reply::OkEmpty),
            MessageType::ReplyOkBuffer => Body::Reply(Reply::OkBuffer(self.buffer()?)),
            MessageType::ReplyOkJson => Body::Reply(Reply::OkJson(self.json("result")?.0)),
            MessageType::ReplyOkJsonWithBuffers => {
                Body::Reply(Reply::OkJsonWithBuffers(self.with_buffers()?))
            }
            MessageType::ReplyErrError => Body::Reply(Reply::ErrError(self.json("error")?.0)),
            MessageType::ReplyErrEmpty => Body::Reply(Reply::ErrEmpty),
        };
        Ok(RpcMessage { req, body })
    }

    fn header_error(&self) -> Kind {
        match self.message.first() {
            Some(&byte) if MessageType::from_u8(byte).is_none() => Kind::UnknownType(byte),
            _ => Kind::Truncated { field: "header" },
        }
    }

    fn request(&mut self, message_type: MessageType) -> Result<Request, Kind> {
        let rpc_id = usize::from(self.u8("rpc id")?);
        let rpc_id = RpcId::new(rpc_id).map_err(|_| Kind::RpcIdZero)?;
        let method_len = usize::from(self.u8("method")?);
        let method = self.text("method", method_len)?;
        let (mixed, cancellation) = match message_type {
            MessageType::RequestJsonArgs => (false, false),
            MessageType::RequestJsonArgsWithCancellation => (false, true),
            MessageType::RequestMixedArgs => (true, false),
            _ => (true, true),
        };
        let args = if mixed {
            self.mixed_args()?
        } else {
            self.json_args()?
        };
        Ok(Request {
            rpc_id,
            method,
            args,
            cancellation,
        })
    }

    fn json_args(&mut self) -> Result<Args, Kind> {
        match self.json("arguments")? {
            (json, Root::Array) => Ok(Args::Json(json)),
            (_, Root::Other) => Err(Kind::ArgsNotArray),
        }
    }

    fn mixed_args(&mut self) -> Result<Args, Kind> {
        let count = usize::from(self.u8("argument count")?);
        within("argument count", count, self.limits.args)?;
        let args = (0..count).map(|_| self.arg()).collect::<Result<_, _>>()?;
        Ok(Args::Mixed(args))
    }

    fn arg(&mut self) -> Result<Arg, Kind> {
        match self.u8("argument type")? {
            1 => Ok(Arg::Json(self.json("argument")?.0)),
            2 => Ok(Arg::Buffer(self.buffer()?)),
            3 => Ok(Arg::ObjectWithBuffers(self.with_buffers()?)),
            4 => Ok(Arg::Undefined),
            other => Err(Kind::UnknownArgType(other)),
        }
    }

    fn with_buffers(&mut self) -> Result<WithBuffers, Kind> {
        let count = self.u32("buffer count")?;
        within("buffer count", count, self.limits.buffers)?;
        let json = self.json("object with buffers")?.0;
        // Each buffer takes at least its length field, so a count that exceeds the input causes no
        // allocation.
        if count > (self.message.len() - self.at) / 4 {
            return Err(Kind::Truncated { field: "buffers" });
        }
        let buffers = (0..count)
            .map(|_| self.buffer())
            .collect::<Result<_, _>>()?;
        Ok(WithBuffers { json, buffers })
    }

    fn buffer(&mut self) -> Result<Bytes, Kind> {
        let len = self.u32("buffer")?;
        self.take("buffer", len)
    }

    fn json(&mut self, field: &'static str) -> Result<(Text, Root), Kind> {
        let len = self.u32(field)?;
        within(field, len, self.limits.text)?;
        let bytes = self.take(field, len)?;
        let text = simdutf8::basic::from_utf8(&bytes).map_err(|_| Kind::NotUtf8 { field })?;
        let root =
            json::check(text, self.limits.nesting).map_err(|error| Kind::Json { field, error })?;
        let text = Text::from_checked(bytes);
        Ok((text, root))
    }

    fn text(&mut self, field: &'static str, len: usize) -> Result<Text, Kind> {
        let bytes = self.take(field, len)?;
        Text::from_utf8(bytes).map_err(|_| Kind::NotUtf8 { field })
    }

    fn u8(&mut self, field: &'static str) -> Result<u8, Kind> {
        let byte = self.message.get(self.at).copied();
        self.at += usize::from(byte.is_some());
        byte.ok_or(Kind::Truncated { field })
    }

    fn u32(&mut self, field: &'static str) -> Result<usize, Kind> {
        let rest = self.message.get(self.at..).unwrap_or_default();
        let bytes = rest.first_chunk().ok_or(Kind::Truncated { field })?;
        self.at += 4;
        // If usize is narrower, such a length is past the end of any message.
        usize::try_from(u32::from_be_bytes(*bytes)).map_err(|_| Kind::Truncated { field })
    }

    fn take(&mut self, field: &'static str, len: usize) -> Result<Bytes, Kind> {
        if len > self.message.len() - self.at {
            return Err(Kind::Truncated { field });
        }
        let start = self.at;
        self.at += len;
        Ok(self.message.slice(start..self.at))
    }
}

fn within(what: &'static str, actual: usize, limit: usize) -> Result<(), Kind> {
    if actual > limit {
        return Err(Kind::OverLimit {
            what,
            actual,
            limit,
        });
    }
    Ok(())
}
