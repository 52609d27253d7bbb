//! Encodes messages: computes the exact size first, then copies each buffer once or not at all.

use bytes::Bytes;

use super::message::{Arg, Args, Body, Header, Reply, Request, RpcMessage, WithBuffers};

/// A destination for the bytes of a message.
pub trait Out {
    /// Appends bytes by copying them.
    fn put(&mut self, bytes: &[u8]);

    /// Appends bytes that may be shared instead of copied: the buffers and texts of a message.
    fn put_shared(&mut self, bytes: &Bytes) {
        self.put(bytes);
    }
}

impl Out for Vec<u8> {
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

/// Why a message cannot be encoded. (The original would write such numbers truncated.)
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// The rpc id does not fit in one byte, or is 0.
    #[error("rpc id {id} is not in 1..=255; number the objects anew")]
    RpcId {
        /// The id.
        id: usize,
    },
    /// The method name is too long for its one-byte length.
    #[error("method name is {len} bytes, over the format's 255; use a shorter name")]
    MethodTooLong {
        /// The name's length.
        len: usize,
    },
    /// There are too many mixed arguments for their one-byte count.
    #[error("{count} arguments, over the format's 255; pass them in one array")]
    TooManyArgs {
        /// How many there are.
        count: usize,
    },
    /// A length or count does not fit in four bytes.
    #[error("a {what} of {len} is over the format's 4294967295; send it in parts")]
    TooLong {
        /// Which field it is.
        what: &'static str,
        /// Its length or count.
        len: usize,
    },
    /// The receiver would mistake an object for a reference to a buffer.
    #[error("an object with a numeric \"$$ref$$\" reads as a buffer reference; rename the key")]
    RefCollision,
    /// The value nests too deep.
    #[error("value is nested deeper than {limit}; flatten it")]
    TooDeep {
        /// The deepest nesting that is written.
        limit: usize,
    },
}

/// The number of bytes that [`encode`] writes.
pub fn encoded_len(message: &RpcMessage) -> Result<usize, EncodeError> {
    let payload = match &message.body {
        Body::Request(request) => return request_len(request),
        Body::Acknowledged | Body::Cancel => 0,
        Body::Reply(reply) => match reply {
            Reply::OkEmpty | Reply::ErrEmpty => 0,
            Reply::OkBuffer(buffer) => long_len("buffer", buffer)?,
            Reply::OkJson(json) | Reply::ErrError(json) => long_len("JSON text", json.as_bytes())?,
            Reply::OkJsonWithBuffers(value) => with_buffers_len(value)?,
        },
    };
    Ok(Header::LEN + payload)
}

/// The encoded length of a request, including its header.
pub fn request_len(request: &Request) -> Result<usize, EncodeError> {
    let method = request.method.len();
    if method > usize::from(u8::MAX) {
        return Err(EncodeError::MethodTooLong { len: method });
    }
    Ok(Header::LEN + 2 + method + args_len(&request.args)?)
}

/// Appends the message to `out`, which is reallocated at most once.
pub fn encode(message: &RpcMessage, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    out.reserve(encoded_len(message)?);
    write(message, out);
    Ok(())
}

/// Appends the message to any [`Out`]; buffers are passed on without a copy.
pub fn encode_to(message: &RpcMessage, out: &mut impl Out) -> Result<(), EncodeError> {
    encoded_len(message)?;
    write(message, out);
    Ok(())
}

fn write(message: &RpcMessage, out: &mut impl Out) {
    let [a, b, c, d] = message.req.to_be_bytes();
    out.put(&[message.body.message_type() as u8, a, b, c, d]);
    match &message.body {
        Body::Request(request) => {
            out.put(&[request.rpc_id.get(), request.method.len() as u8]);
            out.put(request.method.as_bytes());
            write_args(&request.args, out);
        }
        Body::Acknowledged | Body::Cancel => {}
        Body::Reply(reply) => match reply {
            Reply::OkEmpty | Reply::ErrEmpty => {}
            Reply::OkBuffer(buffer) => write_long(buffer, out),
            Reply::OkJson(json) | Reply::ErrError(json) => write_long(json.shared(), out),
            Reply::OkJsonWithBuffers(value) => write_with_buffers(value, out),
        },
    }
}

fn args_len(args: &Args) -> Result<usize, EncodeError> {
    let mixed = match args {
        Args::Json(json) => return long_len("JSON text", json.as_bytes()),
        Args::Mixed(mixed) => mixed,
    };
    if mixed.len() > usize::from(u8::MAX) {
        return Err(EncodeError::TooManyArgs { count: mixed.len() });
    }
    mixed.iter().try_fold(1, |len, arg| {
        let arg = match arg {
            Arg::Json(json) => long_len("JSON text", json.as_bytes())?,
            Arg::Buffer(buffer) => long_len("buffer", buffer)?,
            Arg::ObjectWithBuffers(value) => with_buffers_len(value)?,
            Arg::Undefined => 0,
        };
        Ok(len + 1 + arg)
    })
}

fn with_buffers_len(value: &WithBuffers) -> Result<usize, EncodeError> {
    check_u32("buffer count", value.buffers.len())?;
    let json = long_len("JSON text", value.json.as_bytes())?;
    value.buffers.iter().try_fold(
        4 + json,
        |len, buffer| Ok(len + long_len("buffer", buffer)?),
    )
}

/// The length of a field with its four-byte length in front.
fn long_len(what: &'static str, bytes: &[u8]) -> Result<usize, EncodeError> {
    check_u32(what, bytes.len())?;
    Ok(4 + bytes.len())
}

fn check_u32(what: &'static str, len: usize) -> Result<(), EncodeError> {
    match u32::try_from(len) {
        Ok(_) => Ok(()),
        Err(_) => Err(EncodeError::TooLong { what, len }),
    }
}

// The functions below write what was sized above, so their casts lose nothing.

fn write_args(args: &Args, out: &mut impl Out) {
    match args {
        Args::Json(json) => write_long(json.shared(), out),
        Args::Mixed(mixed) => {
            out.put(&[mixed.len() as u8]);
            for arg in mixed {
                write_arg(arg, out);
            }
        }
    }
}

fn write_arg(arg: &Arg, out: &mut impl Out) {
    match arg {
        Arg::Json(json) => {
            out.put(&[1]);
            write_long(json.shared(), out);
        }
        Arg::Buffer(buffer) => {
            out.put(&[2]);
            write_long(buffer, out);
        }
        Arg::ObjectWithBuffers(value) => {
            out.put(&[3]);
            write_with_buffers(value, out);
        }
        Arg::Undefined => out.put(&[4]),
    }
}

fn write_with_buffers(value: &WithBuffers, out: &mut impl Out) {
    out.put(&(value.buffers.len() as u32).to_be_bytes());
    write_long(value.json.shared(), out);
    for buffer in &value.buffers {
        write_long(buffer, out);
    }
}

fn write_long(bytes: &Bytes, out: &mut impl Out) {
    out.put(&(bytes.len() as u32).to_be_bytes());
    out.put_shared(bytes);
}
