//! The program as a process, its pipes and its log, and what programs say.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// No test waits longer for anything.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn gateway(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_breakbulk"));
    command
        .arg("gateway")
        .args(arguments)
        .env_remove("BREAKBULK_TOKEN")
        .env_remove("BREAKBULK_NOSTR_KEY")
        .env_remove("BREAKBULK_FLEET_SECRET")
        // Caps that one test learns must not be known to the next one.
        .env_remove("XDG_STATE_HOME")
        .env("HOME", "")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// A gateway that listens, ended with the test.
pub(crate) struct Listening {
    pub(crate) child: Child,
    pub(crate) address: String,
    /// What it said before it listened.
    pub(crate) before: Vec<String>,
    log: Lines,
}

/// The standard error of a process, line by line as it comes.
pub(crate) struct Lines(mpsc::Receiver<String>);

impl Lines {
    /// `show`: whether the lines are passed on to our own standard error, too.
    fn of(child: &mut Child, show: bool) -> Self {
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let (tell, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in stderr.lines() {
                let line = line.unwrap_or_default();
                if show {
                    eprintln!("{line}");
                }
                let _ = tell.send(line);
            }
        });
        Self(lines)
    }

    /// Waits for a line with these words.
    pub(crate) fn line(&self, words: &str) -> String {
        let mut seen = Vec::new();
        loop {
            match self.0.recv_timeout(PATIENCE) {
                Ok(line) if line.contains(words) => return line,
                Ok(line) => seen.push(line),
                Err(error) => panic!("no line with {words:?} ({error}): {seen:#?}"),
            }
        }
    }
}

impl Listening {
    pub(crate) fn start(mut command: Command) -> Self {
        let mut child = command.spawn().unwrap();
        let log = Lines::of(&mut child, false);
        let mut gateway = Self {
            child,
            address: String::new(),
            before: Vec::new(),
            log,
        };
        loop {
            let line = gateway.line("");
            match line.split_once("listening on ").map(|(_, address)| address) {
                Some(address) => {
                    gateway.address = address.to_owned();
                    return gateway;
                }
                None => gateway.before.push(line),
            }
        }
    }

    pub(crate) fn new(arguments: &[&str]) -> Self {
        Self::start(gateway(arguments))
    }

    /// Waits for a line with these words on its standard error.
    pub(crate) fn line(&self, words: &str) -> String {
        self.log.line(words)
    }

    /// The next line, if it comes in this time.
    pub(crate) fn told_within(&self, time: Duration) -> Option<String> {
        self.log.0.recv_timeout(time).ok()
    }

    /// All further lines of its log, until none comes for 2 s.
    pub(crate) fn told_so_far(&self) -> Vec<String> {
        std::iter::from_fn(|| self.told_within(Duration::from_secs(2))).collect()
    }

    pub(crate) fn signal(&self, signal: &str) {
        self::signal(&self.child, signal);
    }

    pub(crate) fn exit_code(&mut self) -> Option<i32> {
        wait(&mut self.child)
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn signal(child: &Child, signal: &str) {
    let sent = Command::new("kill")
        .args([signal, &child.id().to_string()])
        .status();
    assert!(sent.unwrap().success());
}

/// The exit code; a process that does not end is a failure, and is ended.
pub(crate) fn wait(child: &mut Child) -> Option<i32> {
    let (ended, watch) = std::sync::mpsc::channel();
    let id = child.id().to_string();
    let watchdog = std::thread::spawn(move || {
        let too_long = watch.recv_timeout(PATIENCE).is_err();
        if too_long {
            let _ = Command::new("kill").args(["-KILL", &id]).status();
        }
        too_long
    });
    let status = child.wait().unwrap();
    // This fails if the watchdog has ended already.
    let _ = ended.send(());
    assert!(!watchdog.join().unwrap(), "it does not end");
    status.code()
}

/// Runs to its end with this input, from a thread so that no pipe fills up.
pub(crate) fn run(mut command: Command, input: Vec<u8>) -> Output {
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || drop(stdin.write_all(&input)));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    output
}

pub(crate) fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// JSON-RPC notifications of these sizes, one a line: nobody waits for an answer to them.
pub(crate) fn lines(sizes: &[usize]) -> Vec<u8> {
    let requests = String::from_utf8(requests(sizes)).unwrap();
    requests.replace(r#""id":"#, r#""n":"#).into_bytes()
}

/// JSON-RPC requests of these sizes, one a line.
pub(crate) fn requests(sizes: &[usize]) -> Vec<u8> {
    let mut out = Vec::new();
    for (id, size) in sizes.iter().enumerate() {
        let text = "Grüße, 世界 \\\"x\\\" ".repeat(size / 24 + 1);
        let line =
            format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"m","params":{{"t":"{text}"}}}}"#);
        out.extend_from_slice(line.as_bytes());
        out.push(b'\n');
    }
    out
}

/// The notifications of [`lines`] with `Content-Length` headers, and with line breaks inside.
pub(crate) fn announced(sizes: &[usize]) -> Vec<u8> {
    let mut out = Vec::new();
    for line in lines(sizes).split(|&byte| byte == b'\n') {
        if line.is_empty() {
            continue;
        }
        let body = String::from_utf8(line.to_vec())
            .unwrap()
            .replacen(',', ",\r\n  ", 2);
        out.extend_from_slice(format!("Content-Length: {}\r\n\r\n{body}", body.len()).as_bytes());
    }
    out
}

/// A gateway whose standard streams stay open.
pub(crate) struct Near {
    pub(crate) child: Child,
    pub(crate) stdin: Option<ChildStdin>,
    pub(crate) stdout: BufReader<ChildStdout>,
    pub(crate) log: Lines,
}

impl Near {
    pub(crate) fn new(arguments: &[&str]) -> Self {
        Self::start(gateway(arguments))
    }

    pub(crate) fn start(mut command: Command) -> Self {
        let mut child = command.spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        Self {
            log: Lines::of(&mut child, true),
            stdin: child.stdin.take(),
            stdout,
            child,
        }
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) {
        self.stdin.as_mut().unwrap().write_all(bytes).unwrap();
    }

    pub(crate) fn read_line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        line
    }
}

impl Drop for Near {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
