//! Watches the lines to and from a bridge: whether one is still being written, and the last one
//! received that was not a JSON object, for error texts.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use breakbulk_link::{Frame, lock};
use breakbulk_net::{Incoming, Observer};
use serde_json::value::RawValue;
use tokio::sync::Notify;

use crate::machine::excerpt;

/// Longer lines are not parsed here, only to be quoted.
const PARSED: usize = 64 << 10;

/// What was observed. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct LineWatch(Arc<Seen>);

#[derive(Debug, Default)]
struct Seen {
    begun: AtomicU64,
    done: AtomicU64,
    moved: Notify,
    stray: Mutex<String>,
}

impl LineWatch {
    /// The number of the line that is being written.
    pub(super) fn writing(&self) -> Option<u64> {
        let done = self.0.done.load(Ordering::Acquire);
        let begun = self.0.begun.load(Ordering::Acquire);
        (begun > done).then_some(begun)
    }

    /// Waits until this line is written.
    pub(super) async fn passed(&self, line: u64) {
        loop {
            let moved = self.0.moved.notified();
            tokio::pin!(moved);
            // Registered before the check, so that a line written in between is not missed.
            moved.as_mut().enable();
            if self.0.done.load(Ordering::Acquire) >= line {
                return;
            }
            moved.await;
        }
    }

    /// The beginning of the last line received that was not a JSON object.
    pub(super) fn stray(&self) -> String {
        lock(&self.0.stray).clone()
    }
}

impl Observer for LineWatch {
    fn received(&self, incoming: &Incoming) {
        if let Incoming::Frame(Frame::Text(line)) = incoming
            && !is_object(line)
        {
            *lock(&self.0.stray) = excerpt(line);
        }
    }

    fn handed_over(&self, _frame: &Frame) {
        self.0.begun.fetch_add(1, Ordering::AcqRel);
    }

    fn written(&self) {
        let begun = self.0.begun.load(Ordering::Acquire);
        self.0.done.store(begun, Ordering::Release);
        self.0.moved.notify_waiters();
    }
}

/// Whether a line is a JSON object; of a long one only its ends are looked at.
fn is_object(line: &[u8]) -> bool {
    let line = line.trim_ascii();
    let is_braced = line.first() == Some(&b'{') && line.last() == Some(&b'}');
    is_braced && (line.len() > PARSED || serde_json::from_slice::<&RawValue>(line).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_are_no_messages_are_told_from_messages() {
        let long = "x".repeat(PARSED);
        for (line, expected) in [
            (r#"{"id":1}"#.to_owned(), true),
            (r#" {"a": [{}]} "#.to_owned(), true),
            (format!(r#"{{"a":"{long}"}}"#), true),
            ("hello".to_owned(), false),
            (r#"{'a': 1}"#.to_owned(), false),
            (r#"{"a": None}"#.to_owned(), false),
            (r#"{"a": 1"#.to_owned(), false),
            (format!(r#"{{"a":"{long}"#), false),
            (r#"[{}]"#.to_owned(), false),
        ] {
            assert_eq!(is_object(line.as_bytes()), expected, "{:.40}", line);
        }
    }
}
