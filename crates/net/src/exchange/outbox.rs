//! The queue of frames that wait for the next body, bounded in bytes and charged to their session.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock};

use breakbulk_link::{Budget, Closed, Held, lock};
use bytes::{Bytes, BytesMut};
use tokio::sync::watch;

use super::body::{FRAME_HEAD, Record};
use crate::bytes_with;

/// Small records share a body of at most this size; a larger one has a body of its own. So a body that a path
/// refuses for its size holds a single frame, and the sender can choose smaller frames.
pub(crate) const SHARED: usize = 4 << 10;

/// How many bytes a small body counts as, at least.
pub(crate) const LEAST_WEIGHT: usize = 256;

/// How much memory a record takes beside its bytes.
const RECORD: usize = 128;

/// A queue with one writer. It takes a record whenever it holds fewer bytes than its limit.
#[derive(Debug)]
pub(crate) struct Outbox {
    records: Mutex<VecDeque<(Record, Option<Held>)>>,
    /// The budget that records and bodies are charged to.
    budget: OnceLock<Budget>,
    /// The size of the records that wait, as bytes of a body.
    bytes: watch::Sender<usize>,
    limit: usize,
    /// Whether this side's close was taken out of the queue.
    finished: AtomicBool,
}

/// A record that fits in no body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DoesNotFit {
    /// The size of the record.
    pub(crate) size: usize,
    /// The largest body.
    pub(crate) max: usize,
}

impl DoesNotFit {
    /// The end of a session that cannot carry the record. Its reason names the largest frame that fits.
    pub(crate) fn closed(self) -> Closed {
        let (size, fits) = (self.size - FRAME_HEAD, self.max.saturating_sub(FRAME_HEAD));
        let reason = format!("a frame of {size} bytes is too large: {fits} fit in a body");
        Closed { code: 1009, reason }
    }
}

impl Outbox {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            records: Mutex::default(),
            budget: OnceLock::new(),
            bytes: watch::Sender::new(0),
            limit,
            finished: AtomicBool::new(false),
        }
    }

    /// Charges records and bodies from now on to this budget.
    pub(crate) fn charge_to(&self, budget: &Budget) {
        // A session has one.
        let _ = self.budget.set(budget.clone());
    }

    pub(crate) fn budget(&self) -> Option<&Budget> {
        self.budget.get()
    }

    fn charge(&self, amount: usize) -> Option<Held> {
        let budget = self.budget.get();
        budget.map(|budget| budget.charge_allocated(amount))
    }

    /// A body, charged until the last slice of it is dropped.
    pub(crate) fn charged(&self, body: Bytes) -> Bytes {
        match self.charge(weight(&body)) {
            Some(held) => bytes_with(body, held),
            None => body,
        }
    }

    /// Waits for room, and adds a record.
    pub(crate) async fn put(&self, record: Record) {
        let room = |bytes: &usize| *bytes < self.limit;
        // The sender is `self`, so that this cannot fail.
        let _ = self.bytes.subscribe().wait_for(room).await;
        let size = record.size();
        // Whoever made the frame is not charged for it any more.
        let held = self.charge(size + RECORD);
        lock(&self.records).push_back((record, held));
        self.bytes.send_modify(|bytes| *bytes += size);
    }

    /// Waits until the queue holds at least this many bytes.
    pub(crate) async fn filled(&self, least: usize) {
        let filled = |bytes: &usize| *bytes >= least;
        let _ = self.bytes.subscribe().wait_for(filled).await;
    }

    /// Whether this side's close was taken out of the queue.
    pub(crate) fn is_finished(&self) -> bool {
        self.finished.load(Relaxed)
    }

    pub(crate) fn is_empty(&self) -> bool {
        *self.bytes.borrow() == 0
    }

    /// A body of at most `max` bytes with the first records; an empty one if none waits.
    pub(crate) fn take(&self, max: usize) -> Result<Bytes, DoesNotFit> {
        let mut records = lock(&self.records);
        let (mut count, mut size) = (0, 0);
        for (record, _) in records.iter() {
            match record.size() {
                next if count == 0 && next > max => return Err(DoesNotFit { size: next, max }),
                next if count == 0 || size + next <= max.min(SHARED) => size += next,
                _ => break,
            }
            count += 1;
        }
        let mut body = BytesMut::with_capacity(size);
        for (record, _held) in records.drain(..count) {
            if matches!(record, Record::Close(_)) {
                self.finished.store(true, Relaxed);
            }
            record.write(&mut body);
        }
        drop(records);
        self.bytes.send_modify(|bytes| *bytes -= size);
        Ok(match body.is_empty() {
            true => Bytes::new(),
            false => self.charged(body.freeze()),
        })
    }
}

/// What a body counts: small ones take more than their bytes.
pub(crate) fn weight(body: &Bytes) -> usize {
    body.len().max(LEAST_WEIGHT)
}

#[cfg(test)]
mod tests {
    use breakbulk_link::Frame;

    use super::*;

    fn text(size: usize) -> Record {
        Record::Frame(Frame::Text(Bytes::from("x".repeat(size))))
    }

    #[tokio::test]
    async fn bodies_take_what_fits_in_order() {
        let outbox = Outbox::new(1000);
        for size in [5, 5, 15, 16, 0] {
            outbox.put(text(size)).await;
        }
        let bodies = std::iter::repeat_with(|| outbox.take(20).map(|body| body.len()));
        let bodies: Vec<_> = bodies.take(4).collect();
        // Records of 10 and 10 bytes share a body, one of 20 fills a body, and one of 21 fits in none
        // and stays.
        assert_eq!(
            bodies,
            [
                Ok(20),
                Ok(20),
                Err(DoesNotFit { size: 21, max: 20 }),
                Err(DoesNotFit { size: 21, max: 20 })
            ]
        );
        assert_eq!(outbox.take(100).map(|body| body.len()), Ok(26));
        assert_eq!(outbox.take(100).map(|body| body.len()), Ok(0));
    }

    // LINE-1
    #[tokio::test]
    async fn only_small_frames_share_a_body() {
        let outbox = Outbox::new(1 << 20);
        for size in [995, 995, 995, 995, 995, 9_995, 95, 95, 4_095, 95] {
            outbox.put(text(size)).await;
        }
        let bodies = std::iter::repeat_with(|| outbox.take(60_000).map(|body| body.len()));
        let bodies: Vec<_> = bodies.take_while(|body| *body != Ok(0)).collect();
        let expected = [4000, 1000, 10_000, 200, 4_100, 100];
        assert_eq!(bodies, expected.map(Ok));
    }

    #[tokio::test]
    async fn a_full_queue_waits_for_room() {
        let outbox = Outbox::new(10);
        outbox.put(text(100)).await;
        let put = outbox.put(text(1));
        tokio::pin!(put);
        assert!(futures_util::poll!(&mut put).is_pending());
        assert_eq!(outbox.take(105).map(|body| body.len()), Ok(105));
        assert!(futures_util::poll!(&mut put).is_ready());
    }

    /// They were charged to nobody: the connection had sent them, and no body had them yet.
    #[tokio::test]
    async fn frames_that_wait_are_charged_and_so_are_bodies() {
        let (outbox, budget) = (Outbox::new(1000), Budget::new(1 << 20));
        outbox.charge_to(&budget);
        for size in [300, 5] {
            outbox.put(text(size)).await;
        }
        assert_eq!(budget.used(), 305 + 10 + 2 * RECORD);
        assert_eq!(outbox.take(10), Err(DoesNotFit { size: 305, max: 10 }));
        let first = outbox.take(305).ok();
        assert_eq!(budget.used(), 305 + 10 + RECORD);
        let second = outbox.take(305).ok();
        assert_eq!(budget.used(), 305 + LEAST_WEIGHT);
        drop((first, second));
        assert_eq!(budget.used(), 0);
        outbox.put(text(5)).await;
        drop(outbox);
        assert_eq!(budget.used(), 0);
    }
}
