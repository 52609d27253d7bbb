//! Describes VSCode's RPC messages, and the handshake around them.

use breakbulk::message::vscode::{
    Arg, Args, Body, DecodeErrorKind, Header, Limits, Reply, RpcMessage, Text, Thrown, Value,
    WithBuffers, decode, encoded_len,
};
use bytes::Bytes;

use super::json::{array_sizes, is_parsed};
use crate::inspect::rows::Description;

/// Arguments that are described one by one.
const SHOWN: usize = 8;

/// Describes an RPC message.
pub(super) fn describe(message: &Bytes, limit: usize) -> Description {
    if let Some(word) = handshake(message) {
        return Description::new("vscode", word);
    }
    // Before the first RPC message the renderer sends its initialization data.
    if message.first() == Some(&b'{') {
        return Description::new("vscode", "init data").size("json", message.len());
    }
    match decode(message.clone(), &limits(limit)) {
        Ok(read) => describe_rpc(&read),
        Err(error) => {
            let about = Header::read(message);
            let description = Description::new("vscode", "broken");
            let description = match about {
                Some(header) => description.number("req", header.req),
                None => description,
            };
            description.problem(code(&error.kind), &error.to_string())
        }
    }
}

/// Describes the bytes if they are exactly one RPC message.
pub(super) fn whole(message: &Bytes, limit: usize) -> Option<Description> {
    let read = decode(message.clone(), &limits(limit)).ok()?;
    let exact = encoded_len(&read).is_ok_and(|len| len == message.len());
    exact.then(|| describe_rpc(&read))
}

fn limits(message: usize) -> Limits {
    Limits::default().with(|limits| {
        limits.message = message;
        limits.text = message;
    })
}

fn handshake(message: &[u8]) -> Option<&'static str> {
    match message {
        [1] => Some("initialized"),
        [2] => Some("ready"),
        [3] => Some("terminate"),
        _ => None,
    }
}

fn describe_rpc(message: &RpcMessage) -> Description {
    let description = |kind| Description::new("vscode", kind).number("req", message.req);
    match &message.body {
        Body::Request(request) => {
            let description = description("request")
                .number("rpcId", request.rpc_id.get())
                .text("method", request.method.as_str())
                .text("args", &arguments(&request.args));
            if request.cancellation {
                description.text("cancellable", "yes")
            } else {
                description
            }
        }
        Body::Acknowledged => description("ack"),
        Body::Cancel => description("cancel"),
        Body::Reply(reply) => match reply {
            Reply::OkEmpty => description("reply ok").text("result", "undefined"),
            Reply::OkBuffer(buffer) => description("reply ok").size("buffer", buffer.len()),
            Reply::OkJson(json) => description("reply ok").size("json", json.len()),
            Reply::OkJsonWithBuffers(value) => {
                description("reply ok").text("result", &with_buffers(value))
            }
            Reply::ErrError(json) => thrown(description("reply error"), json),
            Reply::ErrEmpty => description("reply error").text("error", "empty"),
        },
    }
}

fn arguments(args: &Args) -> String {
    match args {
        Args::Json(json) => format!("json[{}]", array_sizes(json.as_str())),
        Args::Mixed(args) => {
            let mut kinds: Vec<String> = args
                .iter()
                .take(SHOWN)
                .map(|arg| match arg {
                    Arg::Json(json) => format!("json {}B", json.len()),
                    Arg::Buffer(buffer) => format!("buffer {}B", buffer.len()),
                    Arg::ObjectWithBuffers(value) => with_buffers(value),
                    Arg::Undefined => "undefined".to_owned(),
                })
                .collect();
            if args.len() > SHOWN {
                kinds.push(format!("{} more", args.len() - SHOWN));
            }
            format!("mixed[{}]", kinds.join(", "))
        }
    }
}

fn with_buffers(value: &WithBuffers) -> String {
    let bytes: usize = value.buffers.iter().map(Bytes::len).sum();
    format!(
        "json {}B + {} buffers {bytes}B",
        value.json.len(),
        value.buffers.len()
    )
}

fn thrown(description: Description, json: &Text) -> Description {
    let description = description.size("json", json.len());
    if !is_parsed(json.as_str()) {
        return description;
    }
    let value = Value::parse(json.as_str());
    match value.map(Thrown::from_value) {
        Ok(Thrown::Error(error)) => description
            .text("name", error.name.as_deref().unwrap_or_default())
            .text("message", error.message.as_deref().unwrap_or_default()),
        _ => description,
    }
}

/// Codes for errors that the original has none for; it logs and drops such messages.
fn code(kind: &DecodeErrorKind) -> &'static str {
    match kind {
        DecodeErrorKind::Truncated { .. } => "truncated",
        DecodeErrorKind::UnknownType(_) => "unknown-type",
        DecodeErrorKind::UnknownArgType(_) => "unknown-arg-type",
        DecodeErrorKind::OverLimit { .. } => "over-limit",
        DecodeErrorKind::NotUtf8 { .. } => "not-utf8",
        _ => "malformed",
    }
}
