//! Command lines that are wrong: each ends soon, with the right exit code and a message that says what to do,
//! and leaves nothing behind.

#![allow(clippy::unwrap_used)]

mod commands;
mod endpoints;

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// More than any of them takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// As many as run at a time.
const AT_A_TIME: usize = 8;

/// A wrong command line.
#[derive(Debug)]
pub(crate) struct Case {
    /// In an argument `$F` stands for the folder of files that are there.
    arguments: Vec<String>,
    input: Vec<u8>,
    code: i32,
    /// What the message contains, and what it begins with.
    words: String,
    begins: &'static str,
    is_one_line: bool,
}

impl Case {
    pub(crate) fn new(arguments: Vec<String>, code: i32, words: &str) -> Self {
        Self {
            arguments,
            input: Vec::new(),
            code,
            words: words.to_owned(),
            begins: "",
            is_one_line: false,
        }
    }

    pub(crate) fn input(mut self, input: impl Into<Vec<u8>>) -> Self {
        self.input = input.into();
        self
    }

    pub(crate) fn begins(mut self, begins: &'static str) -> Self {
        self.begins = begins;
        self
    }

    pub(crate) fn one_line(mut self) -> Self {
        self.is_one_line = true;
        self
    }
}

// PROG-22
#[test]
fn every_wrong_command_line_ends_soon_says_why_and_leaves_nothing_behind() {
    let files = tempfile::tempdir().unwrap();
    commands::write_files(files.path());
    let before = listing(files.path());
    let mut cases = endpoints::cases();
    cases.extend(commands::cases());
    assert!(cases.len() >= 200, "{} cases", cases.len());
    let (next, wrong) = (Mutex::new(cases.iter()), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(|| {
                loop {
                    let Some(case) = next.lock().unwrap().next() else {
                        return;
                    };
                    if let Err(why) = check(case, files.path()) {
                        let line = case.arguments.join(" ");
                        wrong
                            .lock()
                            .unwrap()
                            .push(format!("breakbulk {line}\n  {why}"));
                    }
                }
            });
        }
    });
    let wrong = wrong.into_inner().unwrap();
    assert!(
        wrong.is_empty(),
        "{} of {} cases:\n{}",
        wrong.len(),
        cases.len(),
        wrong.join("\n")
    );
    assert_eq!(listing(files.path()), before, "files were changed");
}

/// Runs one, in an empty folder that is its home too.
fn check(case: &Case, files: &Path) -> Result<(), String> {
    let home = tempfile::tempdir().unwrap();
    let files = files.display().to_string();
    let arguments = case.arguments.iter().map(|it| it.replace("$F", &files));
    let mut command = Command::new(env!("CARGO_BIN_EXE_breakbulk"));
    for (name, _) in std::env::vars() {
        if name.starts_with("BREAKBULK_") || name.starts_with("OTEL_") || name == "COLUMNS" {
            command.env_remove(name);
        }
    }
    let mut child = command
        .args(arguments)
        .current_dir(home.path())
        .env("HOME", home.path())
        .env("XDG_STATE_HOME", home.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    let mut stderr = child.stderr.take().unwrap();
    let ended = std::thread::scope(|scope| {
        // A program that refuses its arguments may not read what it is given.
        scope.spawn(move || drop(stdin.write_all(&case.input)));
        let printed = scope.spawn(move || {
            let mut text = Vec::new();
            stdout.read_to_end(&mut text).map(|_| text)
        });
        let said = scope.spawn(move || {
            let mut text = Vec::new();
            stderr.read_to_end(&mut text).map(|_| text)
        });
        let start = Instant::now();
        let status = loop {
            match child.try_wait().unwrap() {
                Some(status) => break Some(status),
                None if start.elapsed() > PATIENCE => {
                    child.kill().unwrap();
                    child.wait().unwrap();
                    break None;
                }
                None => std::thread::sleep(Duration::from_millis(2)),
            }
        };
        let printed = printed.join().unwrap().unwrap();
        let said = String::from_utf8_lossy(&said.join().unwrap().unwrap()).into_owned();
        (status, printed, said)
    });
    let (Some(status), printed, said) = ended else {
        return Err(format!("it did not end within {PATIENCE:?}"));
    };
    let refuse = |what: &str| Err(format!("{what}: {said}"));
    if status.code() != Some(case.code) {
        return refuse(&format!("{status} instead of {}", case.code));
    }
    if !said.contains(&case.words) {
        return refuse(&format!("no {:?}", case.words));
    }
    if !said.starts_with(case.begins) {
        return refuse(&format!("it does not begin with {:?}", case.begins));
    }
    if !printed.is_empty() {
        return refuse("something was printed");
    }
    if case.is_one_line && said.matches('\n').count() != 1 {
        return refuse("not one line");
    }
    // Names of the library, of a secret, or of a fault in this program.
    for word in [
        "::",
        "panicked",
        "me:secret",
        "=secret",
        "Some(",
        "Err(",
        "Os {",
    ] {
        if said.contains(word) {
            return refuse(&format!("{word:?} is told"));
        }
    }
    match listing(home.path()) {
        left if left.is_empty() => Ok(()),
        left => refuse(&format!("{left:?} is left behind")),
    }
}

/// The files of a folder with their sizes.
fn listing(folder: &Path) -> Vec<(String, u64)> {
    let mut names: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            let name = entry.file_name().to_string_lossy().into_owned();
            (name, entry.metadata().unwrap().len())
        })
        .collect();
    names.sort();
    names
}
