//! Describes text messages: JSON-RPC (with AHP and MCP), tywrap/1, and loro's JSON form.

use breakbulk::message::ahp::{
    self, Action, Chunking, Elements, InitializeParams, InitializeResult, MessageTooLarge,
    ReconnectParams, ReconnectResult,
};
use breakbulk::message::jsonrpc::{Envelope, Kind, integer, is_batch, member, string, unsigned};
use breakbulk::message::mcp::{self, Progress};
use breakbulk::message::tywrap::{Meta, Method, PROTOCOL, Request, Response};
use serde_json::value::RawValue;

use super::PARSED;
use crate::inspect::format::Format;
use crate::inspect::rows::Description;

/// Describes a text.
pub(crate) fn describe(format: Format, message: &[u8]) -> Description {
    let Ok(text) = std::str::from_utf8(message) else {
        return Description::new("text", "broken").problem("not-utf8", "not valid UTF-8");
    };
    let Some(envelope) = Envelope::parse(text) else {
        return no_object(text);
    };
    let word = |name| member(text, name).and_then(string);
    let is_tywrap = word("protocol").as_deref() == Some(PROTOCOL);
    let is_channel = || word("type").is_some_and(|kind| kind.starts_with("channel/"));
    match (envelope.kind(), format) {
        _ if is_tywrap => tywrap(text, &envelope),
        (_, Format::LoroJson) => super::loro::json(text),
        (Some(kind), _) => json_rpc(&envelope, kind),
        // A tywrap frame may carry other JSON-RPC (above), but text of no known protocol is an error.
        (None, Format::Tywrap) => tywrap(text, &envelope),
        (None, _) if is_channel() => super::loro::json(text),
        (None, _) => Description::new("json", "object").size("size", text.len()),
    }
}

fn no_object(text: &str) -> Description {
    let Ok(value) = serde_json::from_str::<&RawValue>(text) else {
        return Description::new("text", "broken")
            .text("begins", text.trim_start())
            .problem("not-json", "not valid JSON");
    };
    match Elements::of(value) {
        Some(elements) if is_batch(text.as_bytes()) => {
            Description::new("json-rpc", "batch").number("messages", elements.count())
        }
        _ => Description::new("json", "value").text("value", value.get()),
    }
}

fn json_rpc(envelope: &Envelope<'_>, kind: Kind) -> Description {
    let method = envelope.method();
    let known = match (kind, envelope.params) {
        (Kind::Request | Kind::Notification, Some(params)) => {
            let method = method.as_deref().unwrap_or_default();
            ahp_call(method, params).or_else(|| mcp_call(method, envelope, params))
        }
        (Kind::Result, _) => envelope.result.and_then(ahp_result),
        (Kind::Error, _) => envelope.error.and_then(too_large),
        _ => None,
    };
    let (protocol, more) = known.map_or(("json-rpc", Vec::new()), |description| {
        (description.protocol, description.fields)
    });
    let mut description = Description::new(
        protocol,
        match kind {
            Kind::Request => "request",
            Kind::Notification => "notification",
            Kind::Result => "result",
            Kind::Error => "error",
        },
    );
    if let Some(id) = envelope.id {
        description = description.text("id", id.get());
    }
    if let Some(method) = method {
        description = description.text("method", &method);
    }
    if let (Kind::Error, Some(error)) = (kind, envelope.error) {
        description = error_fields(description, error);
    }
    description.fields.extend(more);
    let body = match kind {
        Kind::Request | Kind::Notification => "params",
        Kind::Result => "result",
        Kind::Error => "error",
    };
    match envelope.body() {
        Some(raw) => description.size(body, raw.get().len()),
        None => description,
    }
}

fn error_fields(description: Description, error: &RawValue) -> Description {
    let description = match member(error.get(), "code").and_then(integer) {
        Some(code) => description.number("code", code),
        None => description,
    };
    match member(error.get(), "message").and_then(string) {
        Some(message) => description.text("message", &message),
        None => description,
    }
}

fn too_large(error: &RawValue) -> Option<Description> {
    let large = MessageTooLarge::read(error)?;
    Some(
        Description::new("ahp", "")
            .number("messageBytes", large.message_bytes)
            .number("maxFrameBytes", large.max_frame_bytes)
            .number("maxMessageBytes", large.max_message_bytes),
    )
}

fn ahp_call(method: &str, params: &RawValue) -> Option<Description> {
    let description = Description::new("ahp", "");
    match method {
        "initialize" => {
            let read = InitializeParams::read(params).ok()?;
            // MCP and LSP have an `initialize` too.
            if read.channel != ahp::ROOT_CHANNEL {
                return None;
            }
            let versions: Vec<_> = read.protocol_versions.take(4).collect();
            let description = description
                .text("channel", &read.channel)
                .text("client", &read.client_id)
                .text("versions", &versions.join(","))
                .number("subscriptions", read.initial_subscriptions.count());
            Some(chunking(description, read.chunking(), read.capabilities))
        }
        "reconnect" => {
            let read = ReconnectParams::read(params).ok()?;
            let description = description
                .text("channel", &read.channel)
                .text("client", &read.client_id)
                .number("lastSeenServerSeq", read.last_seen_server_seq)
                .number("subscriptions", read.subscriptions.count());
            Some(chunking(description, read.chunking(), read.capabilities))
        }
        "action" => {
            let read = Action::read(params).ok()?;
            let mut description = description
                .text("channel", &read.channel)
                .number("serverSeq", read.server_seq);
            if let Some(kind) = member(read.action.get(), "type").and_then(string) {
                description = description.text("action", &kind);
            }
            if let Some(origin) = read.origin {
                description = description
                    .text("client", &origin.client_id)
                    .number("clientSeq", origin.client_seq);
            }
            match read.rejection_reason {
                Some(reason) => Some(description.text("rejected", &reason)),
                None => Some(description),
            }
        }
        _ => {
            let channel = member(params.get(), "channel").and_then(string)?;
            if !channel.starts_with("ahp-") {
                return None;
            }
            let mut description = description.text("channel", &channel);
            if let Some(seq) = member(params.get(), "clientSeq").and_then(integer) {
                description = description.number("clientSeq", seq);
            }
            let action = member(params.get(), "action");
            match action.and_then(|action| string(member(action.get(), "type")?)) {
                Some(kind) => Some(description.text("action", &kind)),
                None => Some(description),
            }
        }
    }
}

/// Responses carry no method: these two are recognized by their members.
fn ahp_result(result: &RawValue) -> Option<Description> {
    let description = Description::new("ahp", "");
    if let Ok(read) = InitializeResult::read(result) {
        let description = description
            .text("of", "initialize")
            .text("version", &read.protocol_version)
            .number("serverSeq", read.server_seq)
            .number("snapshots", read.snapshots.count());
        return Some(chunking(description, read.chunking(), read.capabilities));
    }
    let description = description.text("of", "reconnect");
    Some(match ReconnectResult::read(result).ok()? {
        ReconnectResult::Replay { actions, missing } => description
            .number("replayed", actions.count())
            .number("missing", missing.count()),
        ReconnectResult::Snapshot { snapshots } => {
            description.number("snapshots", snapshots.count())
        }
    })
}

fn chunking(
    description: Description,
    chunking: Option<Chunking>,
    capabilities: Option<&RawValue>,
) -> Description {
    let Some(chunking) = chunking else {
        let offered = capabilities.and_then(|all| member(all.get(), "chunking"));
        return match offered {
            Some(_) => description.text("chunking", "unusable"),
            None => description.text("chunking", "no"),
        };
    };
    let mut description = description
        .text("chunking", "yes")
        .number("maxFrame", chunking.max_frame_bytes)
        .number("maxMessage", chunking.max_message_bytes);
    if let Some(groups) = chunking.max_groups {
        description = description.number("maxGroups", groups);
    }
    match chunking.group_timeout_ms {
        Some(ms) => description.number("timeoutMs", ms),
        None => description,
    }
}

fn mcp_call(method: &str, envelope: &Envelope<'_>, params: &RawValue) -> Option<Description> {
    let description = Description::new("mcp", "");
    if method == mcp::PROGRESS {
        let read = Progress::read(params)?;
        let mut description = description
            .text("token", &read.token.to_json())
            .text("progress", &read.progress.to_string());
        if let Some(total) = read.total {
            description = description.text("total", &total.to_string());
        }
        if let Some(message) = read.message {
            description = description.text("message", &message);
        }
        let profile = mcp::cvm(params).and_then(mcp::cvm_type);
        return Some(match profile {
            Some(profile) => description.text("cvm", &profile),
            None => description,
        });
    }
    let token = mcp::progress_token(envelope);
    let is_mcp = token.is_some()
        || ["notifications/", "tools/", "resources/", "prompts/"]
            .iter()
            .any(|prefix| method.starts_with(prefix))
        || method == "initialize" && member(params.get(), "protocolVersion").is_some();
    let mut description = is_mcp.then_some(description)?;
    for name in ["name", "uri", "protocolVersion"] {
        if let Some(value) = member(params.get(), name).and_then(string) {
            description = description.text(name, &value);
        }
    }
    Some(match token {
        Some(token) => description.text("token", &token.to_json()),
        None => description,
    })
}

fn tywrap(text: &str, envelope: &Envelope<'_>) -> Description {
    let description = |kind, id: i64| Description::new("tywrap/1", kind).number("id", id);
    let request = envelope.method.is_some();
    let size = |raw: Option<&RawValue>| raw.map_or(0, |raw| raw.get().len());
    let error = if request {
        match Request::read(text) {
            Ok(Request { id, method }) => {
                return match method {
                    Method::Call(call) => description("call", id)
                        .text("module", &call.module)
                        .text("function", &call.function)
                        .size("args", size(call.args))
                        .size("kwargs", size(call.kwargs)),
                    Method::Meta => description("meta", id),
                };
            }
            Err(error) => error,
        }
    } else {
        match Response::read(text) {
            Ok(Response { id, outcome }) => {
                return match outcome {
                    Ok(result) => match Meta::read(result) {
                        Ok(meta) => {
                            let description = description("meta result", id)
                                .text("bridge", meta.bridge.name())
                                .text("python", &meta.python_version);
                            match meta.max_frame_bytes {
                                Some(bytes) => description.number("maxFrameBytes", bytes),
                                None => description,
                            }
                        }
                        Err(_) => description("result", id).size("result", result.get().len()),
                    },
                    Err(error) => description("error", id)
                        .text("type", &error.kind)
                        .text("message", &error.message),
                };
            }
            Err(error) => error,
        }
    };
    Description::new("tywrap/1", "broken")
        .size("size", text.len())
        .problem("BAD_MESSAGE", &error.to_string())
}

/// Whether JSON of this size is parsed to values for its description.
pub(super) fn is_parsed(text: &str) -> bool {
    text.len() <= PARSED
}

/// The kinds and sizes of the first elements of an array.
pub(super) fn array_sizes(text: &str) -> String {
    const SHOWN: usize = 8;
    let elements = serde_json::from_str::<&RawValue>(text)
        .ok()
        .and_then(Elements::of)
        .unwrap_or_default();
    let mut sizes: Vec<String> = elements
        .take(SHOWN)
        .map(|element| format!("{} {}B", value_kind(element), element.get().len()))
        .collect();
    let more = elements.skip(SHOWN).count();
    if more > 0 {
        sizes.push(format!("{more} more"));
    }
    sizes.join(", ")
}

fn value_kind(value: &RawValue) -> &'static str {
    match value.get().as_bytes().first() {
        Some(b'{') => "object",
        Some(b'[') => "array",
        Some(b'"') => "string",
        Some(b't' | b'f') => "bool",
        Some(b'n') => "null",
        _ if unsigned(value).is_some() => "int",
        _ => "number",
    }
}
