//! Reads the recorded frames.

use breakbulk_message::vscode::{
    Args, Body, EncodeError, Header, JsonError, Limits, MessageType, Passed, ReadError, Reply,
    RpcMessage, Thrown, decode, encode,
};
use bytes::Bytes;
use serde_json::Value as Json;

use super::values::bytes_of;
use super::{Deviation, SILENT_NULL};

#[derive(Clone)]
pub(super) struct Frame {
    pub(super) message_type: MessageType,
    pub(super) req: u32,
    pub(super) len: usize,
    /// The first bytes, and all of them unless the frame is large.
    pub(super) bytes: Bytes,
}

pub(super) fn frames(value: &Json) -> Result<Vec<Frame>, String> {
    let frames = value.as_array().into_iter().flatten();
    frames.map(Frame::read).collect()
}

impl Frame {
    pub(super) fn read(frame: &Json) -> Result<Self, String> {
        let bytes = bytes_of(frame.get("hex").unwrap_or(&frame["hexPrefix"]))?;
        let header = Header::read(&bytes).ok_or("a recorded frame without a header")?;
        if frame["type"] != header.message_type as u8 || frame["req"] != header.req {
            return Err(format!("{header:?} is not the header of {frame}"));
        }
        let len = frame["len"].as_u64().and_then(|len| len.try_into().ok());
        Ok(Self {
            message_type: header.message_type,
            req: header.req,
            len: len.ok_or("a recorded frame without a length")?,
            bytes,
        })
    }

    pub(super) fn is_request(&self) -> bool {
        self.message_type.is_request()
    }

    pub(super) fn is_ok_reply(&self) -> bool {
        (MessageType::ReplyOkEmpty..=MessageType::ReplyOkJsonWithBuffers)
            .contains(&self.message_type)
    }

    pub(super) fn is_whole(&self) -> bool {
        self.bytes.len() == self.len
    }

    pub(super) fn message(&self) -> Option<RpcMessage> {
        let whole = self.is_whole().then(|| self.bytes.clone())?;
        decode(whole, &Limits::default()).ok()
    }

    /// Compares built bytes with the frame. Where only its beginning was recorded, they complete the frame.
    pub(super) fn is(&mut self, built: &[u8]) -> bool {
        let same = built.len() == self.len && built.starts_with(&self.bytes);
        if same {
            self.bytes = Bytes::copy_from_slice(built);
        }
        same
    }

    /// Checks that bytes decode and encode to the same bytes, and values to the same message.
    pub(super) fn check(&self) -> Result<Deviation, String> {
        if !self.is_whole() {
            return Ok(None);
        }
        let message = roundtrip(self.bytes.clone())?;
        let same = match &message.body {
            Body::Request(request) => {
                let args = request.args.read(None);
                rewritten(args, |args| Args::write(args, None), &request.args)?
            }
            Body::Reply(reply) if is_silent_null(reply) => return Ok(Some(&SILENT_NULL)),
            Body::Reply(reply) => rewritten(reply.read(None), rewrite_reply, reply)?,
            Body::Acknowledged | Body::Cancel => true,
        };
        match same {
            true => Ok(None),
            false => Err(format!("values written again differ: {message:?}")),
        }
    }
}

pub(super) fn roundtrip(bytes: Bytes) -> Result<RpcMessage, String> {
    let message = decode(bytes.clone(), &Limits::default()).map_err(|error| error.to_string())?;
    let mut again = Vec::new();
    encode(&message, &mut again).map_err(|error| error.to_string())?;
    match again == bytes {
        true => Ok(message),
        false => Err(format!("encoded again it differs: {message:?}")),
    }
}

pub(super) fn rewritten<V, T: PartialEq>(
    values: Result<V, ReadError>,
    write: impl FnOnce(V) -> Result<T, EncodeError>,
    original: &T,
) -> Result<bool, String> {
    match values {
        Ok(values) => {
            let again = write(values).map_err(|error| error.to_string())?;
            Ok(again == *original)
        }
        // Rust's strings cannot hold a lone surrogate; the JSON text itself was kept as it is.
        Err(error) if is_lone_surrogate(&error) => Ok(true),
        Err(error) => Err(error.to_string()),
    }
}

pub(super) fn rewrite_reply(result: Result<Passed, Thrown>) -> Result<Reply, EncodeError> {
    match result {
        Ok(passed) => Reply::write_ok(passed, None),
        Err(thrown) => Reply::write_err(&thrown),
    }
}

/// Buffers that the JSON `null` does not refer to, or an error that says nothing.
pub(super) fn is_silent_null(reply: &Reply) -> bool {
    match reply {
        Reply::OkJsonWithBuffers(value) => value.json == "null" && !value.buffers.is_empty(),
        Reply::ErrError(json) => *json == "null",
        _ => false,
    }
}

pub(super) fn is_lone_surrogate(error: &ReadError) -> bool {
    matches!(error, ReadError::Json(JsonError::LoneSurrogate { .. }))
}
