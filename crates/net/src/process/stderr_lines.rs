//! Passes a command's standard error on to ours: line by line, and without control characters, so that
//! the command cannot control the terminal that this program runs in.

use std::mem;
use std::sync::OnceLock;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{oneshot, watch};
use tokio::time::{sleep, timeout};

use super::exec::LINGER;
use crate::plain_text::plain_line;

/// How many bytes are read at a time.
const CHUNK: usize = 4096;

/// The longest line, in bytes; the rest of a longer one is a line of its own.
const LONGEST: usize = 8 << 10;

/// How a line is written, if not as it is.
static FORMAT: OnceLock<fn(&str) -> String> = OnceLock::new();

/// Sets how this process writes the lines of commands to its standard error: the function gets a line
/// without control characters and returns one, both without their ends. A program whose own log is JSON
/// keeps one form this way. Only the first call has an effect.
pub fn set_stderr_format(format: fn(&str) -> String) {
    let _ = FORMAT.set(format);
}

/// Tells when all of a command's standard error was passed on. Clones tell the same.
#[derive(Clone, Debug)]
pub struct StderrLines {
    ended: watch::Receiver<bool>,
}

impl StderrLines {
    /// Reads in a task of its own. It ends with the stream, or a moment after the sender that is returned
    /// is dropped: a process that the command left behind may keep the stream open for ever.
    pub(super) fn pass_on(
        mut from: impl AsyncRead + Send + Unpin + 'static,
        mut to: impl AsyncWrite + Send + Unpin + 'static,
    ) -> (Self, oneshot::Sender<()>) {
        let (end, ended) = watch::channel(false);
        let (running, dropped) = oneshot::channel::<()>();
        tokio::spawn(async move {
            let mut lines = Lines {
                format: FORMAT.get().copied(),
                ..Lines::default()
            };
            let work = async {
                let mut chunk = [0; CHUNK];
                while let Ok(len @ 1..) = from.read(&mut chunk).await {
                    // If nobody reads our standard error any more, the command must not block on its own.
                    let _ = write(&mut to, &lines.feed(&chunk[..len])).await;
                }
            };
            let too_late = async {
                // Ends, by an error, when the sender is dropped.
                let _ = dropped.await;
                sleep(LINGER).await;
            };
            tokio::select! {
                () = work => {}
                () = too_late => {}
            }
            // Nobody may be reading our standard error.
            let _ = timeout(LINGER, write(&mut to, &lines.finish())).await;
            end.send_replace(true);
        });
        (Self { ended }, running)
    }

    /// Waits until all of it is passed on.
    pub async fn ended(&self) {
        let mut ended = self.ended.clone();
        // An error means that the task is gone with its runtime.
        let _ = ended.wait_for(|ended| *ended).await;
    }
}

async fn write(to: &mut (impl AsyncWrite + Unpin), text: &str) -> std::io::Result<()> {
    if text.is_empty() {
        return Ok(());
    }
    to.write_all(text.as_bytes()).await?;
    to.flush().await
}

/// Finds lines in a stream of bytes.
#[derive(Default)]
struct Lines {
    /// The beginning of a line whose end has not come.
    partial: Vec<u8>,
    /// See [`set_stderr_format`].
    format: Option<fn(&str) -> String>,
}

impl Lines {
    /// The lines that end in these bytes, made plain.
    fn feed(&mut self, bytes: &[u8]) -> String {
        let mut text = String::new();
        for part in bytes.split_inclusive(|&byte| byte == b'\n') {
            self.partial.extend_from_slice(part);
            if part.ends_with(b"\n") {
                let line = mem::take(&mut self.partial);
                self.push(&mut text, &line[..line.len() - 1]);
            } else if self.partial.len() > LONGEST {
                let rest = self.partial.split_off(whole_characters(&self.partial));
                let line = mem::replace(&mut self.partial, rest);
                self.push(&mut text, &line);
            }
        }
        text
    }

    /// What is left at the end.
    fn finish(&mut self) -> String {
        let (mut text, line) = (String::new(), mem::take(&mut self.partial));
        if !line.is_empty() {
            self.push(&mut text, &line);
        }
        text
    }

    fn push(&self, text: &mut String, line: &[u8]) {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let line = plain_line(&String::from_utf8_lossy(line));
        match self.format {
            Some(format) => text.push_str(&format(&line)),
            None => text.push_str(&line),
        }
        text.push('\n');
    }
}

/// The length without the first bytes of a character that is not whole.
fn whole_characters(bytes: &[u8]) -> usize {
    let is_first = |byte: &u8| *byte & 0xc0 != 0x80;
    let last = bytes.iter().rev().take(4).position(is_first).unwrap_or(0);
    let at = bytes.len() - 1 - last;
    match std::str::from_utf8(&bytes[at..]) {
        Err(error) if error.error_len().is_none() => at,
        _ => bytes.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // PROG-20
    #[test]
    fn lines_are_plain_and_nothing_of_them_is_left_out() {
        let long = "é".repeat(LONGEST);
        for (bytes, text) in [
            ("one\ntwo\r\nthree", "one\ntwo\nthree\n"),
            ("\u{1b}[2Jgone\u{7}\n\n", "\u{fffd}[2Jgone\u{fffd}\n\n"),
            ("c1 \u{9b}31m \u{202e}\n", "c1 \u{fffd}31m \u{fffd}\n"),
            ("世界\n", "世界\n"),
            ("", ""),
            (&long, &long),
        ] {
            for step in [1, 3, 4096] {
                let mut lines = Lines::default();
                let mut out = String::new();
                for chunk in bytes.as_bytes().chunks(step) {
                    out += &lines.feed(chunk);
                    assert!(lines.partial.len() <= LONGEST + 4096);
                }
                out += &lines.finish();
                // A line that is too long is several.
                let out = match bytes.len() > LONGEST {
                    true => out.replace('\n', ""),
                    false => out,
                };
                assert_eq!(out, *text, "by {step}");
            }
        }
    }

    #[test]
    fn a_program_may_give_the_lines_another_form() {
        let mut lines = Lines {
            format: Some(|line| format!("<{line}>")),
            ..Lines::default()
        };
        let out = lines.feed(b"one\n\x1b\ntwo") + &lines.finish();
        assert_eq!(out, "<one>\n<\u{fffd}>\n<two>\n");
    }

    #[tokio::test]
    async fn what_a_command_wrote_is_passed_on_when_it_is_gone() {
        let (mut command, from) = tokio::io::duplex(64);
        let (to, mut terminal) = tokio::io::duplex(64);
        let (lines, running) = StderrLines::pass_on(from, to);
        command.write_all(b"why\x1b[2J").await.unwrap();
        drop((command, running));
        lines.ended().await;
        let mut read = String::new();
        terminal.read_to_string(&mut read).await.unwrap();
        assert_eq!(read, "why\u{fffd}[2J\n");
    }
}
