//! A request as a span, and how OTLP writes it as JSON.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use breakbulk_message::mcp::Traceparent;
use serde_json::{Value, json};

/// The way of one request through the gateway, from its arrival to the arrival of its answer.
#[derive(Clone, Debug)]
pub(super) struct Span {
    /// The trace and the span itself.
    pub(super) context: Traceparent,
    /// The span of whoever sent the request, if it told one.
    pub(super) parent: Option<[u8; 8]>,
    pub(super) of: Arc<Of>,
    /// The side by which the request came.
    pub(super) from: &'static str,
    pub(super) method: String,
    /// The id of the request, as JSON.
    pub(super) id: String,
    pub(super) started: SystemTime,
    pub(super) took: Duration,
    pub(super) request_bytes: usize,
    pub(super) response_bytes: Option<usize>,
    pub(super) outcome: Outcome,
}

/// What all spans of a session have in common.
#[derive(Debug)]
pub(super) struct Of {
    pub(super) route: String,
    pub(super) session: String,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// A result came.
    Answered,
    /// An error came, with this code.
    Error(Option<i64>),
    /// Its sender does not wait for the answer any more.
    Cancelled,
    /// The gateway could not carry the request.
    NotSent,
    /// The session ended before an answer came.
    Unanswered,
}

impl Outcome {
    fn name(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::Error(_) => "error",
            Self::Cancelled => "cancelled",
            Self::NotSent => "not_sent",
            Self::Unanswered => "unanswered",
        }
    }
}

/// How the process names itself to the collector.
#[derive(Clone, Debug)]
pub(super) struct Resource {
    /// `service.name`.
    pub(super) service: String,
    /// `service.instance.id`.
    pub(super) instance: String,
}

/// The body of a request to a collector.
pub(super) fn export(resource: &Resource, spans: &[Span]) -> Value {
    let version = env!("CARGO_PKG_VERSION");
    let attributes = [
        text("service.name", &resource.service),
        text("service.version", version),
        text("service.instance.id", &resource.instance),
    ];
    let spans: Vec<Value> = spans.iter().map(Span::to_json).collect();
    json!({"resourceSpans": [{
        "resource": {"attributes": attributes},
        "scopeSpans": [{"scope": {"name": "breakbulk", "version": version}, "spans": spans}],
    }]})
}

impl Span {
    fn to_json(&self) -> Value {
        let mut attributes = vec![
            text("rpc.system", "jsonrpc"),
            text("rpc.method", &self.method),
            text("rpc.jsonrpc.request_id", &self.id),
            text("breakbulk.route", &self.of.route),
            text("breakbulk.session", &self.of.session),
            text("breakbulk.from", self.from),
            text("breakbulk.outcome", self.outcome.name()),
            integer("breakbulk.request.bytes", self.request_bytes as i64),
        ];
        if let Some(bytes) = self.response_bytes {
            attributes.push(integer("breakbulk.response.bytes", bytes as i64));
        }
        if let Outcome::Error(Some(code)) = self.outcome {
            attributes.push(integer("rpc.jsonrpc.error_code", code));
        }
        let start = self.started.duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut span = json!({
            "traceId": hex(&self.context.trace),
            "spanId": hex(&self.context.span),
            "flags": self.context.flags,
            "name": self.method,
            // `SPAN_KIND_SERVER`: to the sender of the request the gateway is a server.
            "kind": 2,
            "startTimeUnixNano": start.as_nanos().to_string(),
            "endTimeUnixNano": (start + self.took).as_nanos().to_string(),
            "attributes": attributes,
            "status": self.status(),
        });
        if let Some(parent) = &self.parent {
            span["parentSpanId"] = hex(parent).into();
        }
        span
    }

    fn status(&self) -> Value {
        match self.outcome {
            Outcome::Answered | Outcome::Cancelled => json!({}),
            Outcome::Error(Some(code)) => json!({"code": 2, "message": format!("error {code}")}),
            Outcome::Error(None) => json!({"code": 2, "message": "an error without a code"}),
            Outcome::NotSent => json!({"code": 2, "message": "the request could not be carried"}),
            Outcome::Unanswered => json!({"code": 2, "message": "the session ended first"}),
        }
    }
}

fn text(key: &str, value: &str) -> Value {
    json!({"key": key, "value": {"stringValue": value}})
}

/// OTLP's JSON writes 64-bit numbers as text.
fn integer(key: &str, value: i64) -> Value {
    json!({"key": key, "value": {"intValue": value.to_string()}})
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
