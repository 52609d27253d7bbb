//! Keeps the end of a command's standard error, without control sequences, to show it in errors.

use std::mem;
use std::sync::{Arc, Mutex};

use breakbulk_link::lock;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::watch;
use tokio::task::AbortHandle;

/// How many bytes are read at a time.
const CHUNK: usize = 4096;

/// The last characters of a command's standard error. Clones share them.
#[derive(Clone, Debug)]
pub struct StderrTail {
    last: Arc<Mutex<LastCharacters>>,
    ended: watch::Receiver<bool>,
}

impl StderrTail {
    /// Reads the stream in a task of its own, so that the command never blocks on writing to it.
    pub(super) fn read(
        mut from: impl AsyncRead + Send + Unpin + 'static,
        characters: usize,
    ) -> (Self, AbortHandle) {
        let last = Arc::new(Mutex::new(LastCharacters::new(characters)));
        let (end, ended) = watch::channel(false);
        let tail = Self {
            last: last.clone(),
            ended,
        };
        let task = tokio::spawn(async move {
            let mut chunk = [0; CHUNK];
            while let Ok(len @ 1..) = from.read(&mut chunk).await {
                lock(&last).feed(&chunk[..len]);
            }
            end.send_replace(true);
        });
        (tail, task.abort_handle())
    }

    /// The last characters, without control codes.
    pub fn text(&self) -> String {
        lock(&self.last).text()
    }

    /// Waits until the stream has ended.
    pub async fn ended(&self) {
        let mut ended = self.ended.clone();
        // An error means that the reading task was aborted.
        let _ = ended.wait_for(|ended| *ended).await;
    }
}

/// The last printable characters of a stream of bytes.
#[derive(Debug)]
struct LastCharacters {
    limit: usize,
    text: String,
    /// Characters in `text`.
    count: usize,
    state: State,
    /// The first bytes of a character that is not complete yet.
    partial: Vec<u8>,
}

/// Where in a terminal control sequence the stream is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Text,
    Escape,
    /// `ESC [ …` up to a letter: colours, cursor movement.
    Sequence,
    /// `ESC ] …` up to BEL or `ESC \`: window titles, links.
    String,
    StringEscape,
}

impl LastCharacters {
    fn new(limit: usize) -> Self {
        Self {
            limit,
            text: String::new(),
            count: 0,
            state: State::Text,
            partial: Vec::new(),
        }
    }

    fn feed(&mut self, bytes: &[u8]) {
        let mut pending = mem::take(&mut self.partial);
        pending.extend_from_slice(bytes);
        let mut rest = &pending[..];
        loop {
            let error = match std::str::from_utf8(rest) {
                Ok(text) => return text.chars().for_each(|c| self.character(c)),
                Err(error) => error,
            };
            let (good, bad) = rest.split_at(error.valid_up_to());
            String::from_utf8_lossy(good)
                .chars()
                .for_each(|c| self.character(c));
            let Some(len) = error.error_len() else {
                // At most three bytes.
                self.partial = bad.to_vec();
                return;
            };
            self.character(char::REPLACEMENT_CHARACTER);
            rest = &bad[len..];
        }
    }

    fn character(&mut self, c: char) {
        self.state = match (self.state, c) {
            (State::String, '\u{7}') => State::Text,
            (State::String, '\u{1b}') => State::StringEscape,
            (State::StringEscape, '\\') => State::Text,
            (State::String | State::StringEscape, _) => State::String,
            (_, '\u{1b}') => State::Escape,
            (State::Escape, '[') => State::Sequence,
            (State::Escape, ']' | 'P' | '_' | '^' | 'X') => State::String,
            // Two-character sequences, possibly with characters in between.
            (State::Escape, ' '..='/') => State::Escape,
            (State::Escape, _) => State::Text,
            (State::Sequence, ' '..='?') => State::Sequence,
            (State::Sequence, _) => State::Text,
            (State::Text, '\n' | '\t') => return self.keep(c),
            (State::Text, c) if c.is_control() => State::Text,
            (State::Text, c) => return self.keep(c),
        };
    }

    fn keep(&mut self, c: char) {
        self.text.push(c);
        self.count += 1;
        // Trims in large steps, so that a flood of text is not moved with each character.
        if self.count >= self.limit.saturating_mul(2).saturating_add(CHUNK) {
            self.text = self.last().to_owned();
            self.count = self.limit.min(self.count);
        }
    }

    fn last(&self) -> &str {
        let Some(before) = self.count.checked_sub(self.limit) else {
            return &self.text;
        };
        let from = self.text.char_indices().nth(before);
        from.map_or("", |(at, _)| &self.text[at..])
    }

    fn text(&self) -> String {
        self.last().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_text_is_kept() {
        for (bytes, text) in [
            (&b"plain\n"[..], "plain\n"),
            (b"a\tb\r\n", "a\tb\n"),
            (b"\x1b[1;31mred\x1b[0m!", "red!"),
            (b"\x1b]0;title\x07x\x1b]8;;u\x1b\\y", "xy"),
            (b"\x1b(Bx\x1bcy", "xy"),
            (b"a\0\x08\x7fb", "ab"),
            (b"\xff\xe4\xb8\xad", "\u{fffd}中"),
            ("\u{9b}31mé".as_bytes(), "31mé"),
        ] {
            // Whole, and byte by byte.
            let mut whole = LastCharacters::new(100);
            whole.feed(bytes);
            assert_eq!(whole.text(), text);
            let mut slow = LastCharacters::new(100);
            bytes.chunks(1).for_each(|byte| slow.feed(byte));
            assert_eq!(slow.text(), text);
        }
    }

    #[test]
    fn the_last_characters_stay_and_memory_is_bounded() {
        let mut kept = LastCharacters::new(10);
        for number in 0..10_000 {
            kept.feed(format!("é{number},").as_bytes());
            assert!(kept.text.len() < 4 * (CHUNK + 20));
        }
        assert_eq!(kept.text(), "998,é9999,");
        let mut none = LastCharacters::new(0);
        none.feed(b"abc");
        assert_eq!(none.text(), "");
    }
}
