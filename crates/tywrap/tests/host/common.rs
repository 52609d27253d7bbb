//! A scripted bridge, a file that it waits for, and calls that show whether answers were mixed up.

#![allow(dead_code, reason = "not every test needs all of it")]

use std::path::PathBuf;
use std::time::Duration;

use breakbulk_net::process::Program;
use breakbulk_tywrap::{Config, Host};

pub(crate) fn program() -> Program {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/host/bridge.py");
    Program::new(["python3", script])
}

/// Small frames, so that much is cut.
pub(crate) fn config() -> Config {
    Config::default().with(|config| {
        config.limits.frame = 200;
        config.grace = Duration::from_millis(500);
    })
}

pub(crate) fn host(change: impl FnOnce(&mut Config)) -> Host {
    let mut config = config();
    change(&mut config);
    Host::new(program(), config)
}

/// Makes this many calls of all sizes, each of which must get its own answer.
pub(crate) async fn ordinary(host: &Host, calls: usize) {
    for number in 0..calls {
        let text = format!("\"{number}:{}\"", "é".repeat(number * 7 % 700));
        let echoed = host.call("t", "echo", format!("[{text}]"), None).await;
        let echoed = echoed.unwrap_or_else(|error| panic!("call {number}: {error}"));
        let value: String = serde_json::from_str(echoed.json()).unwrap();
        let sent: String = serde_json::from_str(&text).unwrap();
        assert_eq!(value, sent, "call {number}");
    }
}

/// A file that the bridge waits for; it does not exist until it is raised.
pub(crate) struct Flag {
    folder: tempfile::TempDir,
}

impl Flag {
    pub(crate) fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("flag")
    }

    pub(crate) fn raise(&self) {
        std::fs::write(self.path(), "").unwrap();
    }

    /// Arguments that begin with the file's path; `more` are further ones, such as `,1`.
    pub(crate) fn args(&self, more: &str) -> String {
        format!("[{:?}{more}]", self.path())
    }

    /// Waits until the bridge is in the middle of its answer.
    pub(crate) async fn half(&self) {
        let path = self.folder.path().join("flag.half");
        let there = async {
            while !path.exists() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), there)
            .await
            .expect("the bridge is never in the middle of its answer");
    }
}

/// Whether a process runs; one that has exited counts as gone even if its parent has not waited for it.
pub(crate) fn lives(pid: u64) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.is_ok_and(|stat| {
        let state = stat.rsplit(')').next().unwrap_or_default();
        !state.trim_start().starts_with('Z')
    })
}

/// Waits until a process has exited.
pub(crate) async fn gone(pid: u64) {
    let wait = async {
        while lives(pid) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), wait)
        .await
        .unwrap_or_else(|_| panic!("process {pid} lives on"));
}
