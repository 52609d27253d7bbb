//! VSCode's RPC messages, and the single bytes around them.

use breakbulk::message::vscode::{
    Arg, Args, Body, DecodeErrorKind, Header, Limits, Reply, RpcMessage, Text, Thrown, Value,
    WithBuffers, decode, encoded_len,
};
use bytes::Bytes;

use super::json::{array_sizes, is_parsed};
use crate::inspect::rows::Told;

/// Arguments that are told of one by one.
const SHOWN: usize = 8;

/// What an RPC message says.
pub(super) fn describe(message: &Bytes, limit: usize) -> Told {
    if let Some(word) = handshake(message) {
        return Told::new("vscode", word);
    }
    // Before the first RPC message the renderer sends its init data.
    if message.first() == Some(&b'{') {
        return Told::new("vscode", "init data").size("json", message.len());
    }
    match decode(message.clone(), &limits(limit)) {
        Ok(read) => told(&read),
        Err(error) => {
            let about = Header::read(message);
            let told = Told::new("vscode", "broken");
            let told = match about {
                Some(header) => told.number("req", header.req),
                None => told,
            };
            told.wrong(code(&error.kind), &error.to_string())
        }
    }
}

/// What the bytes say if they are an RPC message and nothing else.
pub(super) fn whole(message: &Bytes, limit: usize) -> Option<Told> {
    let read = decode(message.clone(), &limits(limit)).ok()?;
    let exact = encoded_len(&read).is_ok_and(|len| len == message.len());
    exact.then(|| told(&read))
}

fn limits(message: usize) -> Limits {
    Limits {
        message,
        text: message,
        ..Limits::default()
    }
}

fn handshake(message: &[u8]) -> Option<&'static str> {
    match message {
        [1] => Some("initialized"),
        [2] => Some("ready"),
        [3] => Some("terminate"),
        _ => None,
    }
}

fn told(message: &RpcMessage) -> Told {
    let told = |kind| Told::new("vscode", kind).number("req", message.req);
    match &message.body {
        Body::Request(request) => {
            let told = told("request")
                .number("rpcId", request.rpc_id.get())
                .text("method", request.method.as_str())
                .text("args", &arguments(&request.args));
            if request.cancellation {
                told.text("cancellable", "yes")
            } else {
                told
            }
        }
        Body::Acknowledged => told("ack"),
        Body::Cancel => told("cancel"),
        Body::Reply(reply) => match reply {
            Reply::OkEmpty => told("reply ok").text("result", "undefined"),
            Reply::OkBuffer(buffer) => told("reply ok").size("buffer", buffer.len()),
            Reply::OkJson(json) => told("reply ok").size("json", json.len()),
            Reply::OkJsonWithBuffers(value) => {
                told("reply ok").text("result", &with_buffers(value))
            }
            Reply::ErrError(json) => thrown(told("reply error"), json),
            Reply::ErrEmpty => told("reply error").text("error", "empty"),
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

fn thrown(told: Told, json: &Text) -> Told {
    let told = told.size("json", json.len());
    if !is_parsed(json.as_str()) {
        return told;
    }
    let value = Value::parse(json.as_str());
    match value.map(Thrown::from_value) {
        Ok(Thrown::Error(error)) => told
            .text("name", error.name.as_deref().unwrap_or_default())
            .text("message", error.message.as_deref().unwrap_or_default()),
        _ => told,
    }
}

/// The original has no codes for these; it logs and drops.
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
