//! A log that lasts as long as the process.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard};

use super::window::Window;
use super::{Entry, Limits, LogError, Replay, ReplayLog, ReplayReader};
use breakbulk_link::lock;

/// How many actions a reader takes under the lock at a time, so that an append waits for
/// microseconds however long the replay is.
const STRIDE: usize = 256;

/// A replay log in memory: it shares the buffers of the actions, and never waits for long.
///
/// It ends with the process. A host that starts again has an empty log, and should number its actions
/// above all that clients may have seen: then a reconnect finds [`Replay::Gone`] instead of other actions
/// under the same numbers.
#[derive(Debug)]
pub struct MemoryLog {
    shared: Arc<Shared>,
    limits: Limits,
}

#[derive(Debug)]
struct Shared(Mutex<Kept>);

#[derive(Debug)]
struct Kept {
    window: Window,
    /// The action `floor + 1 + i` is at `i`.
    entries: VecDeque<Entry>,
}

impl MemoryLog {
    /// An empty log.
    pub fn new(limits: Limits) -> Self {
        Self {
            shared: Arc::new(Shared(Mutex::new(Kept {
                window: Window::EMPTY,
                entries: VecDeque::new(),
            }))),
            limits,
        }
    }
}

impl Default for MemoryLog {
    fn default() -> Self {
        Self::new(Limits::default())
    }
}

impl ReplayLog for MemoryLog {
    fn last(&self) -> i64 {
        self.shared.lock().window.last
    }

    fn append(&mut self, batch: &[Entry]) -> Result<(), LogError> {
        // Only this handle appends, so the window does not change between the two locks.
        let window = self.shared.lock().window;
        let admission = window.admit(batch, self.limits)?;
        let mut kept = self.shared.lock();
        let costs = kept.entries.iter().map(|e| Ok::<_, Infallible>(e.cost()));
        let Ok(next) = window.after(&admission, batch, self.limits, costs);
        let trimmed = usize::try_from(next.floor - window.floor).unwrap_or(usize::MAX);
        let trimmed = trimmed.min(kept.entries.len());
        let trimmed: Vec<Entry> = kept.entries.drain(..trimmed).collect();
        let new = batch.get(admission.keep_from..).unwrap_or_default();
        kept.entries.extend(new.iter().cloned());
        kept.window = next;
        drop(kept);
        // Freeing memory takes time; readers need not wait for it.
        drop(trimmed);
        Ok(())
    }

    fn reader(&self) -> Arc<dyn ReplayReader> {
        self.shared.clone()
    }

    fn blocks(&self) -> bool {
        false
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Kept> {
        lock(&self.0)
    }

    /// The next actions after `seq`, at most [`STRIDE`], or why they are not available.
    fn stride(&self, seq: i64, upto: i64) -> Result<Vec<Entry>, Replay> {
        let kept = self.lock();
        if let Some(gone) = kept.window.missing(seq) {
            return Err(gone);
        }
        let skip = usize::try_from(seq - kept.window.floor).unwrap_or(usize::MAX);
        let after = kept.entries.range(skip.min(kept.entries.len())..);
        let after = after.take(STRIDE).take_while(|e| e.seq <= upto);
        Ok(after.cloned().collect())
    }
}

impl ReplayReader for Shared {
    fn since(
        &self,
        seq: i64,
        upto: i64,
        wants: &dyn Fn(&str) -> bool,
        max_bytes: usize,
    ) -> Result<Replay, LogError> {
        // Actions that are appended meanwhile are not part of this replay.
        let upto = upto.min(self.lock().window.last);
        let mut seen = seq;
        let mut size = 0usize;
        let mut actions = Vec::new();
        loop {
            // An append may trim actions before they are read here.
            let stride = match self.stride(seen, upto) {
                Ok(stride) => stride,
                Err(gone) => return Ok(gone),
            };
            // The window has all actions after `seen`, so an empty stride means that `upto` is reached.
            let end = stride.is_empty();
            for entry in stride {
                seen = entry.seq;
                if !wants(&entry.channel) {
                    continue;
                }
                size = size.saturating_add(entry.params.len());
                if size > max_bytes {
                    return Ok(Replay::TooLarge {
                        size,
                        limit: max_bytes,
                    });
                }
                actions.push(entry);
            }
            if end || seen >= upto {
                return Ok(Replay::Actions(actions));
            }
        }
    }
}
