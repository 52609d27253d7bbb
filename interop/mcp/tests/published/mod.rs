//! Runs the server and the client published on npm, and reads what the client reports of its calls.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use interop_ahp::program::breakbulk;
use interop_ahp::text::digest;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::process::Command;

/// The time limit of the client.
const PATIENCE: Duration = Duration::from_secs(300);

/// The endpoint of the server, which gives access to this folder.
pub(crate) fn server(folder: &Path) -> String {
    let script = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("node_modules/@modelcontextprotocol/server-filesystem/dist/index.js");
    assert!(
        script.is_file(),
        "the published server is not installed: run `cargo xtask interop mcp`, which does"
    );
    format!(
        "exec:node '{}' '{}'?max-message=64MiB",
        script.display(),
        folder.display()
    )
}

/// A call of a tool on a file.
pub(crate) fn call(tool: &str, path: &Path) -> Value {
    json!({"tool": tool, "arguments": {"path": path}})
}

/// A call that writes the content of another file.
pub(crate) fn write(path: &Path, from: &Path) -> Value {
    json!({"tool": "write_file", "arguments": {"path": path}, "contentFrom": from})
}

/// Everything that the client reported.
#[derive(Debug)]
pub(crate) struct Told {
    /// The names of the tools.
    pub(crate) tools: Vec<String>,
    /// The outcome of each call.
    pub(crate) calls: Vec<Called>,
    /// The log of the client's gateway.
    pub(crate) gateway: String,
}

/// The outcome of a call.
#[derive(Debug, Deserialize)]
pub(crate) struct Called {
    pub(crate) seconds: f64,
    #[serde(flatten)]
    pub(crate) outcome: Outcome,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum Outcome {
    Error {
        error: RpcError,
    },
    /// The server's result has its text twice: as content for people and structured for programs.
    Result {
        failed: bool,
        text: About,
        structured: About,
    },
}

#[derive(Debug, Deserialize)]
pub(crate) struct RpcError {
    pub(crate) code: Option<i64>,
    pub(crate) message: String,
    #[serde(default)]
    pub(crate) data: Value,
}

#[derive(Debug, Deserialize, PartialEq, Eq)]
pub(crate) struct About {
    bytes: usize,
    sha256: String,
}

impl Called {
    /// Checks that the call succeeded with exactly this text.
    #[track_caller]
    pub(crate) fn is(&self, text: &str) {
        let expected = About {
            bytes: text.len(),
            sha256: digest([text]),
        };
        let Outcome::Result {
            failed,
            text,
            structured,
        } = &self.outcome
        else {
            panic!("an error: {self:?}");
        };
        assert_eq!(
            (failed, text, structured),
            (&false, &expected, &expected),
            "{self:?}"
        );
    }

    /// Checks that the call failed, and returns the error.
    #[track_caller]
    pub(crate) fn error(&self) -> &RpcError {
        match &self.outcome {
            Outcome::Error { error } => error,
            Outcome::Result { .. } => panic!("no error: {self:?}"),
        }
    }
}

/// Runs the client to its end. It starts a gateway to this endpoint as its server.
pub(crate) async fn client(to: &str, calls: &[Value]) -> Told {
    let gateway = [
        "gateway",
        "--listen",
        "stdio:?max-message=64MiB",
        "--to",
        to,
    ];
    let plan = json!({"command": breakbulk().unwrap(), "args": gateway, "calls": calls});
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("client.mjs");
    let run = Command::new("node")
        .arg(script)
        .arg(plan.to_string())
        .stderr(Stdio::inherit())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(PATIENCE, run)
        .await
        .expect("the client hangs")
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}: {text}", output.status);
    let mut lines = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let mut next = |name: &str| lines.next().unwrap()[name].take();
    assert_eq!(next("server"), "secure-filesystem-server");
    let tools = serde_json::from_value(next("tools")).unwrap();
    let mut rest: Vec<Value> = lines.collect();
    let said = rest.pop().unwrap();
    let read = |line: Value| serde_json::from_value(line).unwrap();
    let calls_told: Vec<Called> = rest.into_iter().map(read).collect();
    assert_eq!(calls_told.len(), calls.len());
    Told {
        tools,
        calls: calls_told,
        gateway: said["said"].as_str().unwrap().to_owned(),
    }
}
