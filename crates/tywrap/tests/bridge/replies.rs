//! Reads a bridge's lines as a host does, and checks the rules that hold for each of them.

use std::sync::Arc;
use std::time::Instant;

use breakbulk_link::{Budget, Config, Event, Frame, Limits, Link, Received};
use breakbulk_message::tywrap::Response;
use breakbulk_wire::{Stream, Tywrap};
use serde_json::{Value, json};

/// The messages of a bridge's lines; each line is ASCII, each frame as large as was asked for.
pub(crate) fn messages(lines: &[String], frame: Option<usize>) -> Result<Vec<Value>, String> {
    let mut config = Config::new(Tywrap::rules());
    config.limits = Limits::default().with(|limits| {
        limits.frame = 1 << 30;
        limits.message = 1 << 30;
        limits.memory = 1 << 31;
        limits.undelivered = usize::MAX;
    });
    let wire = Arc::new(Tywrap {
        expects: Some(Stream::Response),
        ..Tywrap::default()
    });
    let mut link = Link::new(wire.clone(), wire, config, Budget::unlimited(), [7; 32]);
    let mut found = Vec::new();
    for line in lines {
        if !line.is_ascii() {
            return Err(format!("a line is not ASCII: {line}"));
        }
        let received = link.handle_frame(Instant::now(), Frame::Text(line.clone().into()));
        if let Received::Fault(fault) = received {
            return Err(format!("a host refuses {line}: {fault}"));
        }
        while let Some(event) = link.poll_event() {
            if let Event::Message(message) = event {
                let text = std::str::from_utf8(&message.bytes).map_err(|e| e.to_string())?;
                let value = serde_json::from_str(text).or_else(|_| shallow(text))?;
                let is_framed = message.key.is_some();
                // Frames of fewer than 4 bytes are impossible: the error that says so comes as a line.
                let wanted = frame.is_some_and(|frame| frame >= 4 && text.len() > frame);
                if is_framed != wanted {
                    let len = text.len();
                    return Err(format!(
                        "{len} bytes framed: {is_framed}, frames of {frame:?}"
                    ));
                }
                found.push(value);
            }
        }
        sizes(line, frame)?;
    }
    match link.open_transfers() {
        0 => Ok(found),
        open => Err(format!("{open} responses are unfinished")),
    }
}

/// A message whose result is nested too deeply for serde_json: the result stays text.
fn shallow(text: &str) -> Result<Value, String> {
    let response = Response::read(text).map_err(|error| error.to_string())?;
    let result = response.outcome.map_err(|error| error.to_string())?;
    Ok(json!({"id": response.id, "protocol": "tywrap/1", "result": result.get()}))
}

/// Checks that every frame but the last is full.
fn sizes(line: &str, frame: Option<usize>) -> Result<(), String> {
    let value: Value = serde_json::from_str(line).unwrap_or_default();
    let (Some(data), Some(max)) = (value["data"].as_str(), frame) else {
        return Ok(());
    };
    let is_last = value["seq"].as_u64().map(|seq| seq + 1) == value["total"].as_u64();
    match data.len() {
        len if len == max || (is_last && len < max) => Ok(()),
        len => Err(format!("a frame of {len} bytes where {max} were asked for")),
    }
}
