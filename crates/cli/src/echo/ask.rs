//! The client: starts a command, asks it for a large result and compares it.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use serde_json::{Value, json};

use super::{MOST, text};
use crate::failure::Failure;
use crate::output::Output;
use crate::{number, progress, size};

/// How long the command may take to end once its input has ended.
const ENDING: Duration = Duration::from_secs(5);

/// How often to check whether a command that should end has ended.
const LOOK: Duration = Duration::from_millis(10);

/// What a result has around its text, at most.
const AROUND: u64 = 1 << 20;

pub(super) fn run(size: usize, seconds: f64, command: &[String]) -> Result<(), Failure> {
    if size > MOST {
        let (asked, most) = (size::show(size), size::show(MOST));
        return Err(Failure::Usage(format!(
            "--ask: {asked} is over the limit; ask for at most {most}"
        )));
    }
    let bar = progress::bar(Some(size as u64), "receiving");
    let started = Server::start(command, size, &bar);
    let mut server = started.inspect_err(|_| bar.finish_and_clear())?;
    let limit = number::time_limit(seconds);
    let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
    let outcome = server.ask(size, deadline);
    bar.finish_and_clear();
    server.end();
    let took = outcome.map_err(|failure| match failure {
        Failure::TimedOut(what) => Failure::TimedOut(format!(
            "{what} within {seconds} s; see what the command wrote above, or raise --timeout"
        )),
        other => other,
    })?;
    let mut out = Output::open(None)?;
    out.line(&format!(
        "{size} bytes arrived, each as it was sent, in {:.2} s",
        took.as_secs_f64()
    ))?;
    out.finish()
}

/// The command, and what it writes.
struct Server {
    child: Child,
    lines: Receiver<io::Result<Vec<u8>>>,
    /// Shows the bytes that it wrote.
    bar: ProgressBar,
}

impl Server {
    fn start(command: &[String], size: usize, bar: &ProgressBar) -> Result<Self, Failure> {
        let [program, arguments @ ..] = command else {
            return Err(Failure::Usage("--ask SIZE needs a COMMAND".to_owned()));
        };
        let child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let mut child = child.map_err(|error| {
            let quoted = match program.split_once(' ') {
                Some(_) => "; give the command and its arguments without quotes around all of them",
                None => "",
            };
            Failure::Usage(format!(
                "the command {program} cannot be started: {error}{quoted}"
            ))
        })?;
        let (tell, lines) = mpsc::sync_channel(1);
        if let Some(stdout) = child.stdout.take() {
            let stdout = bar.wrap_read(stdout);
            std::thread::spawn(move || read_lines(stdout, size, &tell));
        }
        let bar = bar.clone();
        Ok(Self { child, lines, bar })
    }

    /// How long the call took.
    fn ask(&mut self, size: usize, deadline: Option<Instant>) -> Result<Duration, Failure> {
        self.send(
            &json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
                "protocolVersion": "2025-11-25",
                "capabilities": {},
                "clientInfo": {"name": "breakbulk-echo", "version": env!("CARGO_PKG_VERSION")},
            }}),
        )?;
        self.result_of(1, deadline)?;
        self.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))?;
        let start = Instant::now();
        // The rate is that of the call alone.
        self.bar.reset();
        self.send(
            &json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {
                "name": "bytes",
                "arguments": {"size": size},
            }}),
        )?;
        let result = self.result_of(2, deadline)?;
        let took = start.elapsed();
        let got = result["content"][0]["text"].as_str().unwrap_or_default();
        match first_difference(got.as_bytes(), text(size).as_bytes()) {
            None => Ok(took),
            Some(place) => Err(Failure::Input(format!(
                "the text that arrived has {} of {size} bytes, and differs at byte {place} from the one that the tool bytes of breakbulk echo gives; a server of your own may give another",
                got.len()
            ))),
        }
    }

    fn send(&mut self, message: &Value) -> Result<(), Failure> {
        let line = format!("{message}\n");
        let sent = match &mut self.child.stdin {
            Some(stdin) => stdin
                .write_all(line.as_bytes())
                .and_then(|()| stdin.flush()),
            None => Err(io::ErrorKind::BrokenPipe.into()),
        };
        sent.map_err(|_| ended())
    }

    /// Waits for the answer to a request; what else the server says is passed over.
    fn result_of(&mut self, id: u64, deadline: Option<Instant>) -> Result<Value, Failure> {
        loop {
            let left = deadline.map(|it| it.saturating_duration_since(Instant::now()));
            let line = match left {
                Some(left) => self.lines.recv_timeout(left),
                None => self.lines.recv().map_err(RecvTimeoutError::from),
            };
            let line = match line {
                Ok(line) => line.map_err(|error| Failure::Io("the server".to_owned(), error))?,
                Err(RecvTimeoutError::Timeout) => {
                    return Err(Failure::TimedOut("no answer came".to_owned()));
                }
                Err(RecvTimeoutError::Disconnected) => return Err(ended()),
            };
            let Ok(mut message) = serde_json::from_slice::<Value>(&line) else {
                return Err(Failure::Input(
                    "the server wrote a line that is not JSON".to_owned(),
                ));
            };
            if message["id"] != json!(id) || message.get("method").is_some() {
                continue;
            }
            if let Some(error) = message.get("error") {
                return Err(Failure::Session(format!(
                    "the answer is error {}: {}",
                    error["code"],
                    crate::inspect::printable(error["message"].as_str().unwrap_or_default(), 500)
                )));
            }
            return Ok(message["result"].take());
        }
    }

    /// Ends its input and waits for the command; one that does not end is killed.
    fn end(&mut self) {
        drop(self.child.stdin.take());
        let start = Instant::now();
        while let Ok(None) = self.child.try_wait() {
            // Read what the command still writes, so that it can end.
            let _ = self.lines.try_recv();
            if start.elapsed() > ENDING {
                let _ = self.child.kill();
                let _ = self.child.wait();
                return;
            }
            std::thread::sleep(LOOK);
        }
    }
}

fn ended() -> Failure {
    Failure::Session(
        "the command ended before it answered; what it wrote above may say why".to_owned(),
    )
}

/// Reads lines of at most the size that was asked for, and what may be around it.
fn read_lines(stdout: impl Read, size: usize, tell: &mpsc::SyncSender<io::Result<Vec<u8>>>) {
    let mut stdout = BufReader::with_capacity(64 << 10, stdout);
    let most = size as u64 + AROUND;
    loop {
        let mut line = Vec::new();
        let read = (&mut stdout).take(most).read_until(b'\n', &mut line);
        let line = match read {
            Ok(0) => return,
            Ok(read) if read as u64 == most => Err(io::Error::other(format!(
                "it wrote a line of more than {most} bytes"
            ))),
            Ok(_) => Ok(line),
            Err(error) => Err(error),
        };
        let failed = line.is_err();
        if tell.send(line).is_err() || failed {
            return;
        }
    }
}

/// The first byte in which they differ.
fn first_difference(got: &[u8], wanted: &[u8]) -> Option<usize> {
    let differs = got
        .iter()
        .zip(wanted)
        .position(|(got, wanted)| got != wanted);
    differs.or_else(|| (got.len() != wanted.len()).then(|| got.len().min(wanted.len())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences() {
        for (got, wanted, at) in [
            ("abc", "abc", None),
            ("abx", "abc", Some(2)),
            ("ab", "abc", Some(2)),
            ("abcd", "abc", Some(3)),
            ("", "", None),
        ] {
            assert_eq!(first_difference(got.as_bytes(), wanted.as_bytes()), at);
        }
    }
}
