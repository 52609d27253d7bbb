//! The MCP server on the standard streams.

use std::io::{self, BufRead, BufReader, Read, Write};

use serde_json::{Value, json};

use super::{MOST, text};
use crate::failure::Failure;
use crate::size::Size;

/// The longest line that is read: a text of the largest size, and what is around it.
const LINE: u64 = (MOST + (1 << 20)) as u64;

/// Versions of MCP that begin with `initialize`; the last one is offered to a client of another.
const VERSIONS: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];

const PARSE_ERROR: i64 = -32700;
const METHOD_NOT_FOUND: i64 = -32601;
const INVALID_PARAMS: i64 = -32602;

pub(super) fn run() -> Result<(), Failure> {
    let mut input = BufReader::new(io::stdin().lock());
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = (&mut input).take(LINE).read_until(b'\n', &mut line);
        match read.map_err(|error| Failure::Io("standard input".to_owned(), error))? {
            0 => return Ok(()),
            _ if line.len() as u64 == LINE && line.last() != Some(&b'\n') => {
                return Err(Failure::Input(format!("a line has more than {LINE} bytes")));
            }
            _ => {}
        }
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        if let Some(answer) = answer(&line) {
            let mut output = io::stdout().lock();
            let written = serde_json::to_writer(&mut output, &answer).map_err(io::Error::from);
            let written = written.and_then(|()| output.write_all(b"\n"));
            let written = written.and_then(|()| output.flush());
            written.map_err(|error| Failure::writing("standard output", error))?;
        }
    }
}

/// The answer to a line; none to notifications and to responses.
fn answer(line: &[u8]) -> Option<Value> {
    let Ok(message) = serde_json::from_slice::<Value>(line) else {
        return Some(error(&Value::Null, PARSE_ERROR, "this line is not JSON"));
    };
    let method = message.get("method")?.as_str()?;
    let id = message.get("id")?;
    let params = message.get("params").unwrap_or(&Value::Null);
    let result = match method {
        "initialize" => Ok(initialized(params)),
        "ping" => Ok(json!({})),
        "tools/list" => Ok(tools()),
        "tools/call" => called(params).map_err(|why| (INVALID_PARAMS, why)),
        _ => Err((
            METHOD_NOT_FOUND,
            "breakbulk echo has no such method; it has initialize, ping, tools/list and tools/call"
                .to_owned(),
        )),
    };
    Some(match result {
        Ok(result) => json!({"jsonrpc": "2.0", "id": id, "result": result}),
        Err((code, why)) => error(id, code, &why),
    })
}

fn error(id: &Value, code: i64, message: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}})
}

fn initialized(params: &Value) -> Value {
    let asked = params["protocolVersion"].as_str();
    let version = VERSIONS.into_iter().find(|version| asked == Some(*version));
    json!({
        "protocolVersion": version.unwrap_or(VERSIONS[VERSIONS.len() - 1]),
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "breakbulk-echo", "version": env!("CARGO_PKG_VERSION")},
    })
}

fn tools() -> Value {
    json!({"tools": [
        {
            "name": "bytes",
            "description": "Returns a text of this many bytes",
            "inputSchema": {
                "type": "object",
                "properties": {"size": {"type": ["integer", "string"], "description": "as 20000000 or \"20MB\""}},
                "required": ["size"],
            },
        },
        {
            "name": "echo",
            "description": "Returns the text",
            "inputSchema": {
                "type": "object",
                "properties": {"text": {"type": "string"}},
                "required": ["text"],
            },
        },
    ]})
}

fn called(params: &Value) -> Result<Value, String> {
    let arguments = &params["arguments"];
    let text = match params["name"].as_str() {
        Some("bytes") => text(asked_size(&arguments["size"])?),
        Some("echo") => {
            let text = arguments["text"].as_str();
            text.ok_or("the tool echo takes `text`, a string")?
                .to_owned()
        }
        _ => return Err("there is no such tool; breakbulk echo has bytes and echo".to_owned()),
    };
    Ok(json!({"content": [{"type": "text", "text": text}]}))
}

fn asked_size(size: &Value) -> Result<usize, String> {
    let wrong = || format!("the tool bytes takes `size`, a number of bytes up to {MOST}");
    let bytes = match size {
        Value::Number(number) => number.as_u64().and_then(|bytes| bytes.try_into().ok()),
        Value::String(text) => text.parse::<Size>().ok().map(|size| size.0),
        _ => None,
    };
    bytes.filter(|bytes| *bytes <= MOST).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers() {
        for (line, expected) in [
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18"}}"#,
                Some(r#""protocolVersion":"2025-06-18""#),
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"1999-01-01"}}"#,
                Some(r#""protocolVersion":"2025-11-25""#),
            ),
            (
                r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
                None,
            ),
            (r#"{"jsonrpc":"2.0","id":7,"result":{}}"#, None),
            (
                r#"{"jsonrpc":"2.0","id":"a","method":"ping"}"#,
                Some(r#"{"id":"a","jsonrpc":"2.0","result":{}}"#),
            ),
            (
                r#"{"jsonrpc":"2.0","id":2,"method":"tools/list"}"#,
                Some(r#""name":"bytes""#),
            ),
            (
                r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"bytes","arguments":{"size":9}}}"#,
                Some(r#""text":"0000000 0""#),
            ),
            (
                r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"bytes","arguments":{"size":"1KB"}}}"#,
                Some("000007c "),
            ),
            (
                r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"bytes","arguments":{"size":1073741825}}}"#,
                Some("-32602"),
            ),
            (
                r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"echo","arguments":{"text":"ä\n"}}}"#,
                Some(r#""text":"ä\n""#),
            ),
            (
                r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"rm"}}"#,
                Some("-32602"),
            ),
            (
                r#"{"jsonrpc":"2.0","id":3,"method":"resources/list"}"#,
                Some("-32601"),
            ),
            ("{", Some("-32700")),
        ] {
            let answer = answer(line.as_bytes()).map(|answer| answer.to_string());
            match expected {
                None => assert_eq!(answer, None, "{line}"),
                Some(part) => assert!(
                    answer.as_ref().is_some_and(|answer| answer.contains(part)),
                    "{line}: {answer:?}"
                ),
            }
        }
    }
}
