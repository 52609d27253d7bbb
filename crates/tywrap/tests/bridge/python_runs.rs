//! Runs this project's Python bridge as a process, started as a host starts it.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use breakbulk_tywrap::python;

use super::runs::{End, Input, Run};

/// Runs the bridge in Python as a process.
pub(crate) fn in_python(input: &Input) -> Run {
    let mut child = python_command(&input.argv, &input.env)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut pipe = child.stdin.take().unwrap();
    let stdin = [python::SOURCE.as_bytes(), &input.stdin].concat();
    // A bridge that ends early does not read all of it, so that writing fails.
    let writing = std::thread::spawn(move || drop(pipe.write_all(&stdin)));
    let output = child.wait_with_output().unwrap();
    writing.join().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    let end = match output.status.code() {
        Some(0) if stderr.contains("[tywrap] FrameError: FRAME_") => End::FrameError,
        Some(0) => End::Served,
        Some(1) if stderr.contains("[tywrap] ConfigError: ") => End::BadConfig,
        _ => End::Crashed,
    };
    let stdout = String::from_utf8(output.stdout).unwrap();
    Run {
        lines: stdout.lines().map(str::to_owned).collect(),
        stderr,
        end,
    }
}

/// The command that starts this project's Python bridge.
pub(crate) fn python_command(argv: &[String], env: &BTreeMap<String, String>) -> Command {
    let (words, config) = python::command(interpreter());
    let mut command = Command::new(&words[0]);
    // Variables that somebody set for another bridge are removed.
    for name in std::env::vars_os().map(|(name, _)| name) {
        if name.to_string_lossy().starts_with("TYWRAP_") {
            command.env_remove(name);
        }
    }
    command.args(&words[1..]).args(argv).envs(config).envs(env);
    command
}

/// The interpreter itself, past any launcher; `BREAKBULK_PYTHON` names another.
pub(crate) fn interpreter() -> &'static PathBuf {
    static FOUND: OnceLock<PathBuf> = OnceLock::new();
    FOUND.get_or_init(|| {
        let name = std::env::var_os("BREAKBULK_PYTHON").unwrap_or(python::INTERPRETER.into());
        let found = Command::new(name)
            .args(["-c", "import sys; print(sys.executable)"])
            .output()
            .expect("these tests need Python 3.9 or later; name it in BREAKBULK_PYTHON");
        PathBuf::from(String::from_utf8(found.stdout).unwrap().trim())
    })
}
