//! What a person sees at a terminal of 80 columns, kept in `tests/screens/`. `BREAKBULK_BLESS=1` writes it
//! anew: read the difference.

#![allow(clippy::unwrap_used)]
#![cfg(unix)]

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use breakbulk_testkit::bad_path::{BadPath, Weather};

use crate::ports::Ports;

#[path = "pages/ports.rs"]
mod ports;

const COLUMNS: usize = 80;

/// The program at a terminal, by way of Python; without colours, which are no text.
fn at_a_terminal(arguments: &[&str]) -> Command {
    let mut command = Command::new("python3");
    command
        .args([
            "-c",
            "import pty, sys; sys.exit(pty.spawn(sys.argv[1:]) >> 8)",
        ])
        .arg(env!("CARGO_BIN_EXE_breakbulk"))
        .args(arguments)
        .env("COLUMNS", COLUMNS.to_string())
        .env("NO_COLOR", "1")
        .stdin(Stdio::null());
    command
}

fn shown(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).replace('\r', "")
}

/// Compares a screen with the one that is kept, but for figures, which differ from run to run, and for where
/// a line is broken, which may depend on them.
fn check(name: &str, screen: &str) {
    for line in screen.lines() {
        let width = line.chars().count();
        assert!(width <= COLUMNS, "{name}: {width} columns: {line}");
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/screens/{name}.txt"));
    if std::env::var_os("BREAKBULK_BLESS").is_some() {
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, screen).unwrap();
    }
    let kept = std::fs::read_to_string(&file).unwrap_or_default();
    assert_eq!(
        compared(screen),
        compared(&kept),
        "{name} is shown as\n{screen}\n(BREAKBULK_BLESS=1 keeps it)"
    );
}

/// The words of a screen: each run of digits is one sign, each run of spaces and line breaks one space.
fn compared(screen: &str) -> String {
    let mut text = String::new();
    for character in screen.chars() {
        let character = match character {
            '0'..='9' | '.' if text.ends_with('#') => continue,
            '0'..='9' => '#',
            ' ' | '\n' if text.ends_with(' ') => continue,
            '\n' => ' ',
            other => other,
        };
        text.push(character);
    }
    text
}

#[test]
fn demos_tell_a_story_in_twelve_lines() {
    for name in ["ahp", "tywrap", "vscode", "contextvm", "loro"] {
        let output = at_a_terminal(&["demo", name]).output().unwrap();
        let screen = shown(&output);
        assert!(output.status.success(), "{name}: {screen}");
        assert!(screen.lines().count() <= 12, "{name}:\n{screen}");
        for mark in ["✗", "✓", "identical", "\nNext"] {
            assert!(screen.contains(mark), "{name}: no {mark}:\n{screen}");
        }
        check(&format!("demo-{name}"), &screen);
        run_next(name, &screen);
    }
}

/// Runs each command that a demo suggests, as pasted, but for ports: to its end, or until it listens.
fn run_next(name: &str, screen: &str) {
    let folder = tempfile::tempdir().unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_breakbulk"));
    let path = std::env::var("PATH").unwrap();
    let path = format!("{}:{path}", program.parent().unwrap().display());
    let (_, next) = screen.split_once("\nNext").unwrap();
    let (_, commands) = next.split_once('\n').unwrap();
    let commands = Ports::default().replace(&commands.replace("\\\n", " "));
    let commands: Vec<&str> = commands.lines().filter(|line| !line.is_empty()).collect();
    assert!(!commands.is_empty(), "{name}: {screen}");
    let mut running = Vec::new();
    for command in commands {
        let mut bash = Command::new("bash");
        bash.args(["-c", &format!("exec 2>&1; exec {command}")])
            .current_dir(folder.path())
            .env("PATH", &path)
            .env("HOME", folder.path())
            .env("XDG_STATE_HOME", folder.path())
            .env_remove("BREAKBULK_TOKEN")
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        let mut child = Running(bash.spawn().unwrap());
        let mut lines = BufReader::new(child.0.stdout.take().unwrap()).lines();
        let mut said = String::new();
        let listens = loop {
            match lines.next() {
                None => break false,
                Some(line) => said.push_str(&(line.unwrap() + "\n")),
            }
            if said.contains("listening on ") {
                break true;
            }
        };
        if listens {
            // Read on: otherwise the pipe would fill up and block the program.
            std::thread::spawn(move || lines.for_each(drop));
            running.push(child);
        } else {
            let status = child.0.wait().unwrap();
            assert!(status.success(), "{name}: {command}: {status}\n{said}");
        }
    }
}

#[test]
fn the_demo_shows_all_formats() {
    let output = at_a_terminal(&["demo"]).output().unwrap();
    let screen = shown(&output);
    assert!(output.status.success(), "{screen}");
    assert_eq!(screen.matches('✗').count(), 5, "{screen}");
    assert_eq!(screen.matches('✓').count(), 5, "{screen}");
    check("demo", &screen);
}

/// A file or a program gets words instead of signs, and no colours.
#[test]
fn without_a_terminal_there_are_no_signs() {
    let output = Command::new(env!("CARGO_BIN_EXE_breakbulk"))
        .args(["demo", "vscode"])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("  ok   in fragments"), "{text}");
    assert!(text.contains("  FAIL as one"), "{text}");
    assert!(text.is_ascii(), "{text}");
}

#[test]
fn inspect_lists_a_capture() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("capture");
    let text = "Grüße, 世界, and more of it, until it takes several pieces. ".repeat(20);
    let message = format!(
        r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{{"name":"a-tool-with-a-long-name","text":"{text}"}}}}"#
    );
    let mut capture = Vec::new();
    for key in ["d0c5a7f3-b1e9-4c62-8f0a-1d2e3f4a5b6c", "second"] {
        let mut split = Command::new(env!("CARGO_BIN_EXE_breakbulk"))
            .args(["split", "--wire", "ahp", "--max-frame", "600", "--key", key])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        split
            .stdin
            .take()
            .unwrap()
            .write_all(message.as_bytes())
            .unwrap();
        capture.extend(split.wait_with_output().unwrap().stdout);
    }
    // The last frame of the second transfer is missing.
    let lines: Vec<&[u8]> = capture.split_inclusive(|byte| *byte == b'\n').collect();
    std::fs::write(&file, lines[..lines.len() - 1].concat()).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_breakbulk"))
        .arg("inspect")
        .arg(&file)
        .env("COLUMNS", COLUMNS.to_string())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    check("inspect", &shown(&output));
}

/// A child that is ended with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn probe_tells_what_a_path_lets_through() {
    let mut listening = Running(
        Command::new(env!("CARGO_BIN_EXE_breakbulk"))
            .args(["probe", "--listen", "ws://0"])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap(),
    );
    let mut lines = BufReader::new(listening.0.stderr.take().unwrap()).lines();
    let address = loop {
        let line = lines.next().unwrap().unwrap();
        if let Some(address) = line.strip_prefix("listening on ws://") {
            break address.trim_end_matches('/').to_owned();
        }
    };
    let path = BadPath::start(address, Weather::capped(131_072))
        .await
        .unwrap();
    let url = format!("ws://{}/", path.address());
    let probed = tokio::task::spawn_blocking(move || {
        Command::new(env!("CARGO_BIN_EXE_breakbulk"))
            .args(["probe", &url, "--up-to", "256KiB"])
            .env("COLUMNS", COLUMNS.to_string())
            .output()
            .unwrap()
    });
    let output = probed.await.unwrap();
    let screen = shown(&output);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    check("probe", &screen);
}

/// A tunnel whose path closes with 1009 at a terminal: short times, and lines that are broken between words.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_tells_of_a_path_that_takes_less_than_it_sends() {
    let mut far = Running(
        Command::new(env!("CARGO_BIN_EXE_breakbulk"))
            .args(["gateway", "--listen", "ws://0", "--to", "exec:cat"])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap(),
    );
    let mut lines = BufReader::new(far.0.stderr.take().unwrap()).lines();
    let address = loop {
        let line = lines.next().unwrap().unwrap();
        if let Some(address) = line.strip_prefix("listening on ws://") {
            break address.trim_end_matches('/').to_owned();
        }
    };
    std::thread::spawn(move || lines.for_each(drop));
    let path = BadPath::start(address, Weather::default()).await.unwrap();
    path.change(|weather| weather.from_client.message_cap = Some(100_003));
    let url = format!("ws://{}/", path.address());
    let carried = tokio::task::spawn_blocking(move || {
        let mut near = Command::new(env!("CARGO_BIN_EXE_breakbulk"))
            .args(["gateway", "--listen", "stdio:", "--to", &url])
            .args(["--state", "none", "-v"])
            .env("COLUMNS", COLUMNS.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let text = "x".repeat(1_000_000);
        let request = format!("{{\"jsonrpc\":\"2.0\",\"method\":\"{text}\"}}\n");
        let mut stdin = near.stdin.take().unwrap();
        let mut stdout = BufReader::new(near.stdout.take().unwrap());
        stdin.write_all(request.as_bytes()).unwrap();
        // It ends once its message has come back.
        let mut echoed = String::new();
        stdout.read_line(&mut echoed).unwrap();
        drop(stdin);
        (echoed == request, near.wait_with_output().unwrap())
    });
    let (is_same, output) = carried.await.unwrap();
    let screen = String::from_utf8(output.stderr).unwrap();
    assert!(is_same && output.status.success(), "{screen}");
    let screen = screen.replace(&path.address().to_string(), "127.0.0.1:9000");
    // Each session has a name of its own.
    let session = screen
        .split("session=")
        .nth(1)
        .and_then(|it| it.split(['}', ' ']).next());
    let screen = match session {
        Some(session) => screen.replace(session, "7kq3vd-1"),
        None => screen,
    };
    check("gateway", &screen);
}
