//! One call of the tool that all servers of the tests offer, and its outcome.

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use crate::text::{About, Text};

/// The sizes of a call: what the client sends, and what it asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// What both texts are made of.
    pub text: Text,
    /// Bytes of the request's text.
    pub up: usize,
    /// Bytes of the answer's text.
    pub down: usize,
    /// Whether the SDK's server sends frames of CEP-41 before its answer.
    pub stream: bool,
}

impl Call {
    /// A call without frames of CEP-41.
    pub fn new(text: Text, up: usize, down: usize) -> Self {
        Self {
            text,
            up,
            down,
            stream: false,
        }
    }

    /// The call as JSON, for a peer in another process.
    pub fn to_json(self) -> Value {
        json!({"kind": self.text.name(), "up": self.up, "down": self.down, "stream": self.stream})
    }

    /// The JSON-RPC request of MCP.
    pub fn request(self, id: u64) -> String {
        self.to_request(id).to_string()
    }

    /// The request of MCP 2026-07-28.
    pub fn modern_request(self, id: u64) -> String {
        let mut request = self.to_request(id);
        request["params"]["_meta"] = modern_meta();
        request.to_string()
    }

    fn to_request(self, id: u64) -> Value {
        json!({
            "jsonrpc": "2.0", "id": id, "method": "tools/call",
            "params": {"name": "exchange", "arguments": {
                "kind": self.text.name(), "data": self.text.make(self.up),
                "down": self.down, "stream": self.stream,
            }},
        })
    }
}

/// The version of MCP that has no `initialize`.
pub const MODERN: &str = "2026-07-28";

/// The `_meta` that each request of that version has about its client.
pub fn modern_meta() -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientInfo": {"name": "ours", "version": "0"},
        "io.modelcontextprotocol/clientCapabilities": {},
    })
}

/// What this project's test server answers to a request; none if the message is not a request.
pub fn answer(request: &Value) -> Option<Value> {
    let id = request.get("id")?;
    let result = match request["method"].as_str()? {
        "initialize" => json!({
            "protocolVersion": request["params"]["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "ours", "version": "0"},
        }),
        "server/discover" => json!({
            "supportedVersions": [MODERN], "capabilities": {"tools": {}}, "resultType": "complete",
            "ttlMs": 0, "cacheScope": "private",
            "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "ours", "version": "0"}},
        }),
        "ping" => json!({}),
        "tools/call" => match exchange(&request["params"]["arguments"]) {
            // Clients of the older version ignore members that they do not know.
            Some(content) => json!({"content": content, "resultType": "complete"}),
            None => return Some(error(id, -32602, "bad arguments")),
        },
        _ => return Some(error(id, -32601, "no such method")),
    };
    Some(json!({"jsonrpc": "2.0", "id": id, "result": result}))
}

fn error(id: &Value, code: i64, message: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}})
}

fn exchange(arguments: &Value) -> Option<Vec<Value>> {
    let text = Text::named(arguments["kind"].as_str()?)?;
    let down = usize::try_from(arguments["down"].as_u64()?).ok()?;
    let heard = About::of(arguments["data"].as_str()?).to_json();
    let texts = [text.make(down), heard.to_string()];
    Some(
        texts
            .map(|text| json!({"type": "text", "text": text}))
            .into(),
    )
}

/// The outcome of a call.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// An answer.
    Answered(Answer),
    /// An error instead of an answer.
    Failed(Value),
}

/// An answer, as the caller got it.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The text that came back.
    pub text: About,
    /// The caller's text, as the server got it.
    pub heard: About,
    /// The time from call to answer.
    pub seconds: f64,
    /// How often the caller was told of progress.
    pub progress: u64,
}

impl Outcome {
    /// The answer; if the call failed, an error.
    pub fn answer(self) -> Result<Answer> {
        match self {
            Self::Answered(answer) => Ok(answer),
            Self::Failed(error) => bail!("the call failed: {error}"),
        }
    }

    /// Checks that both texts arrived whole.
    pub fn whole(self, call: Call) -> Result<Answer> {
        let answer = self.answer().with_context(|| format!("{call:?}"))?;
        let sent = About::of(&call.text.make(call.up));
        ensure!(
            answer.heard == sent,
            "{call:?}: {:?} was heard, not {sent:?}",
            answer.heard
        );
        let asked = About::of(&call.text.make(call.down));
        ensure!(
            answer.text == asked,
            "{call:?}: {:?} came, not {asked:?}",
            answer.text
        );
        Ok(answer)
    }
}
