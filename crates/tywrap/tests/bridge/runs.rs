//! One run of a bridge: its arguments, environment and input, its output, and how it ended.

use std::collections::BTreeMap;

use breakbulk_tywrap::bridge::{
    Answer, Arguments, Bridge, BridgeConfig, BridgeError, Functions, Outcome, raise,
};
use serde_json::Value;
use tokio::io::AsyncReadExt;

/// The arguments and environment of a bridge, and all that its host writes.
#[derive(Clone, Default)]
pub(crate) struct Input {
    pub(crate) argv: Vec<String>,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) stdin: Vec<u8>,
}

/// How a bridge ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// In order, at the end of its input.
    Served,
    /// Because of invalid frames of the host.
    FrameError,
    /// Because of invalid settings of the host.
    BadConfig,
    /// Because the input could not be read any further.
    Unreadable,
    /// By an unexpected failure.
    Crashed,
}

/// What a bridge wrote, and how it ended.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) lines: Vec<String>,
    pub(crate) stderr: String,
    pub(crate) end: End,
}

/// Runs the bridge in Rust, in this process, with the functions that the recordings call.
pub(crate) async fn in_rust(input: &Input) -> Run {
    let env = input.env.clone();
    let config = match BridgeConfig::read(&input.argv, |name| env.get(name).cloned()) {
        Ok(config) => config,
        Err(error) => {
            return Run {
                lines: Vec::new(),
                stderr: error.to_string(),
                end: End::BadConfig,
            };
        }
    };
    let bridge = Bridge::new(config, functions());
    let (ours, mut theirs) = tokio::io::duplex(1 << 16);
    let stdin = std::io::Cursor::new(input.stdin.clone());
    let mut stdout = String::new();
    let reading = theirs.read_to_string(&mut stdout);
    let (served, read) = tokio::join!(bridge.serve(stdin, ours), reading);
    let (end, stderr) = match (served, read) {
        (_, Err(error)) => (End::Crashed, error.to_string()),
        (Ok(_), _) => (End::Served, String::new()),
        (Err(error @ BridgeError::Frame { .. }), _) => (End::FrameError, error.to_string()),
        (Err(error), _) => (End::Unreadable, error.to_string()),
    };
    Run {
        lines: stdout.lines().map(str::to_owned).collect(),
        stderr,
        end,
    }
}

fn functions() -> Functions {
    Functions::new()
        .with("math", "sqrt", sqrt)
        .with("operator", "mul", repeat)
        .with("copy", "copy", copy)
        .with("builtins", "len", |call| {
            let text = call.text(0)?;
            Answer::value(&Value::from(text.chars().count()))
        })
        .with("builtins", "float", |call| {
            let text = call.text(0)?;
            let number = text.parse().map_err(|_| raise("ValueError", text))?;
            Answer::number(number)
        })
        .with("os", "getpid", |_| Answer::value(&Value::from(7)))
        .with("test", "panic", |_| panic!("out of order"))
}

fn sqrt(call: &Arguments<'_>) -> Outcome {
    let number = call.float(0)?;
    if number < 0.0 {
        return Err(raise("ValueError", "math domain error"));
    }
    Answer::number(number.sqrt())
}

fn repeat(call: &Arguments<'_>) -> Outcome {
    let times = call.integer(1)?;
    Answer::text(&call.text(0)?.repeat(times.try_into().unwrap_or(0)))
}

fn copy(call: &Arguments<'_>) -> Outcome {
    match call.bytes(0)? {
        Some(bytes) => Answer::bytes(&bytes),
        None => Ok(Answer::raw(call.at(0)?)),
    }
}
