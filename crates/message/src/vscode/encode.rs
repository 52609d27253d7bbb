//! A message to bytes: sized exactly, then each buffer copied once.

use super::message::{Arg, Args, Body, Header, Reply, RpcMessage, WithBuffers};

/// Why a message cannot be written. The original writes these with numbers wrapped around.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// Only one byte, and zero is nobody's.
    #[error("rpc id {id} is not in 1..=255; number the objects anew")]
    RpcId {
        /// The number that was asked for.
        id: usize,
    },
    /// The method's length is one byte.
    #[error("method name is {len} bytes, over the format's 255; use a shorter name")]
    MethodTooLong {
        /// The name's length.
        len: usize,
    },
    /// The count of mixed arguments is one byte.
    #[error("{count} arguments, over the format's 255; pass them in one array")]
    TooManyArgs {
        /// How many there are.
        count: usize,
    },
    /// Every other length and count is four bytes.
    #[error("a {what} of {len} is over the format's 4294967295; send it in parts")]
    TooLong {
        /// Which field it is.
        what: &'static str,
        /// Its length or count.
        len: usize,
    },
    /// The receiver would take the object for a buffer.
    #[error("an object with a numeric \"$$ref$$\" reads as a buffer reference; rename the key")]
    RefCollision,
    /// The value is nested too deep to be walked safely.
    #[error("value is nested deeper than {limit}; flatten it")]
    TooDeep {
        /// The deepest nesting that is written.
        limit: usize,
    },
}

/// How many bytes [`encode`] will write.
pub fn encoded_len(message: &RpcMessage) -> Result<usize, EncodeError> {
    let payload = match &message.body {
        Body::Request(request) => {
            let method = request.method.len();
            if method > usize::from(u8::MAX) {
                return Err(EncodeError::MethodTooLong { len: method });
            }
            2 + method + args_len(&request.args)?
        }
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

/// Appends the message to `out`, which grows at most once.
pub fn encode(message: &RpcMessage, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    out.reserve(encoded_len(message)?);
    out.push(message.body.message_type() as u8);
    out.extend_from_slice(&message.req.to_be_bytes());
    match &message.body {
        Body::Request(request) => {
            out.push(request.rpc_id.get());
            out.push(request.method.len() as u8);
            out.extend_from_slice(request.method.as_bytes());
            write_args(&request.args, out);
        }
        Body::Acknowledged | Body::Cancel => {}
        Body::Reply(reply) => match reply {
            Reply::OkEmpty | Reply::ErrEmpty => {}
            Reply::OkBuffer(buffer) => write_long(buffer, out),
            Reply::OkJson(json) | Reply::ErrError(json) => write_long(json.as_bytes(), out),
            Reply::OkJsonWithBuffers(value) => write_with_buffers(value, out),
        },
    }
    Ok(())
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

/// A field with a four-byte length in front.
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

// What follows writes what was sized above, so the casts lose nothing.

fn write_args(args: &Args, out: &mut Vec<u8>) {
    match args {
        Args::Json(json) => write_long(json.as_bytes(), out),
        Args::Mixed(mixed) => {
            out.push(mixed.len() as u8);
            for arg in mixed {
                write_arg(arg, out);
            }
        }
    }
}

fn write_arg(arg: &Arg, out: &mut Vec<u8>) {
    match arg {
        Arg::Json(json) => {
            out.push(1);
            write_long(json.as_bytes(), out);
        }
        Arg::Buffer(buffer) => {
            out.push(2);
            write_long(buffer, out);
        }
        Arg::ObjectWithBuffers(value) => {
            out.push(3);
            write_with_buffers(value, out);
        }
        Arg::Undefined => out.push(4),
    }
}

fn write_with_buffers(value: &WithBuffers, out: &mut Vec<u8>) {
    out.extend_from_slice(&(value.buffers.len() as u32).to_be_bytes());
    write_long(value.json.as_bytes(), out);
    for buffer in &value.buffers {
        write_long(buffer, out);
    }
}

fn write_long(bytes: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&(bytes.len() as u32).to_be_bytes());
    out.extend_from_slice(bytes);
}
