//! Captures the log lines of the thread that a test runs on, so that the test can assert what an
//! operator sees.
//!
//! The lines of other threads are not captured: a test on tokio's current-thread runtime sees all
//! that its tasks write, and other tests beside it see nothing of that.

use std::fmt::{self, Write as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub use tracing::Level;
use tracing::field::{Field, Visit};
use tracing::span;
use tracing::subscriber::{DefaultGuard, Interest};
use tracing::{Event, Metadata, Subscriber};

/// How long [`Log::wait_for`] waits.
const PATIENCE: Duration = Duration::from_secs(20);

/// The log lines of this project that the current thread wrote since [`Log::capture`].
pub struct Log {
    lines: Arc<Mutex<Vec<Line>>>,
    _until_dropped: DefaultGuard,
}

/// One log line: its level, its message and its fields as `name=value`.
#[derive(Clone, Debug)]
struct Line {
    level: Level,
    text: String,
}

impl Log {
    /// Captures all levels until the value is dropped.
    #[must_use]
    pub fn capture() -> Self {
        let lines = Arc::<Mutex<Vec<Line>>>::default();
        let capture = Capture {
            lines: lines.clone(),
        };
        Self {
            lines,
            _until_dropped: tracing::subscriber::set_default(capture),
        }
    }

    /// Whether a line of this level contains all the words.
    #[must_use]
    pub fn has(&self, level: Level, words: &[&str]) -> bool {
        let lines = lock(&self.lines);
        lines.iter().any(|line| line.is(level, words))
    }

    /// Panics with the whole log if no line of this level contains all the words.
    #[track_caller]
    pub fn assert_line(&self, level: Level, words: &[&str]) {
        assert!(
            self.has(level, words),
            "no {level} line with {words:?}: {self}"
        );
    }

    /// Panics with the whole log if there is a line that an operator sees by default (INFO and above).
    #[track_caller]
    pub fn assert_quiet(&self) {
        let is_quiet = lock(&self.lines).iter().all(|it| it.level > Level::INFO);
        assert!(is_quiet, "nothing should be in the log: {self}");
    }

    /// Waits until a line of this level contains all the words.
    pub async fn wait_for(&self, level: Level, words: &[&str]) {
        let wait = async {
            while !self.has(level, words) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        if tokio::time::timeout(PATIENCE, wait).await.is_err() {
            self.assert_line(level, words);
        }
    }

    /// Forgets the lines so far.
    pub fn clear(&self) {
        lock(&self.lines).clear();
    }
}

impl fmt::Display for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines = lock(&self.lines).clone();
        writeln!(f, "the log has {} lines", lines.len())?;
        for line in lines {
            writeln!(f, "{} {}", line.level, line.text)?;
        }
        Ok(())
    }
}

impl Line {
    fn is(&self, level: Level, words: &[&str]) -> bool {
        self.level == level && words.iter().all(|word| self.text.contains(word))
    }
}

/// The subscriber behind [`Log`]. Spans are not kept.
struct Capture {
    lines: Arc<Mutex<Vec<Line>>>,
}

impl Subscriber for Capture {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        match self.enabled(metadata) {
            true => Interest::always(),
            false => Interest::never(),
        }
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("breakbulk")
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut words = Words::default();
        event.record(&mut words);
        let line = Line {
            level: *event.metadata().level(),
            text: format!("{}{}", words.message, words.fields),
        };
        lock(&self.lines).push(line);
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

#[derive(Default)]
struct Words {
    message: String,
    fields: String,
}

impl Visit for Words {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a string does not fail.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }
}

fn lock(lines: &Mutex<Vec<Line>>) -> MutexGuard<'_, Vec<Line>> {
    lines.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_found_by_level_message_and_fields() {
        let log = Log::capture();
        tracing::debug!(peer = "a", "nothing that anybody sees");
        log.assert_quiet();
        tracing::warn!(size = 7, error = %"too large", "a message is {}", "dropped");
        log.assert_line(
            Level::WARN,
            &["a message is dropped", "size=7", "error=too large"],
        );
        for (level, words) in [(Level::INFO, "dropped"), (Level::WARN, "size=8")] {
            assert!(!log.has(level, &[words]), "{level} {words}");
        }
        log.clear();
        log.assert_quiet();
    }

    #[test]
    fn the_lines_of_another_thread_are_not_captured() {
        let log = Log::capture();
        let other = std::thread::spawn(|| tracing::warn!("elsewhere"));
        other.join().expect("it does not panic");
        log.assert_quiet();
    }
}
