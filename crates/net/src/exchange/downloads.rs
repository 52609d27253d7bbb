//! The answers to a client's polls, on the server: each is kept until the client acknowledges it. The client may
//! acknowledge what it has not read, so an answer also stays charged until it has left by each of its sockets.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::Duration;

use breakbulk_link::{Budget, lock};
use bytes::Bytes;
use tokio::sync::watch;
use tokio::time::timeout;

use super::body::Record;
use super::outbox::{DoesNotFit, Outbox, SHARED, weight};
use super::{REQUESTS, WINDOW};

/// The answers of one session.
#[derive(Debug)]
pub(crate) struct Downloads {
    outbox: Outbox,
    kept: Mutex<Kept>,
    progress: watch::Sender<Progress>,
}

#[derive(Debug, Default)]
struct Kept {
    /// Each has its charge with it.
    bodies: VecDeque<Bytes>,
    bytes: usize,
}

/// What a stream sends next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Streamed {
    /// An answer, and its number.
    Answer(u64, Bytes),
    /// More can be sent only once the client has acknowledged answers, or the next frame is too large
    /// for any.
    NoRoom,
    /// There was nothing to send in this time.
    Nothing,
}

/// Which answers were made and acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Progress {
    /// The last answer that was made.
    made: u64,
    /// The last answer that the client has got.
    got: u64,
    /// Whether another answer can be made before more are acknowledged.
    room: bool,
}

/// Why a poll is not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoAnswer {
    /// The poll asks for an answer that is too far ahead, or acknowledges one that was not made.
    Number {
        /// The last answer that was made.
        made: u64,
    },
    /// The next frame is larger than the client takes.
    DoesNotFit(DoesNotFit),
}

impl Downloads {
    pub(crate) fn new() -> Self {
        let progress = Progress {
            room: true,
            ..Progress::default()
        };
        Self {
            outbox: Outbox::new(WINDOW),
            kept: Mutex::default(),
            progress: watch::Sender::new(progress),
        }
    }

    /// Charges frames and answers from now on to this budget.
    pub(crate) fn charge_to(&self, budget: &Budget) {
        self.outbox.charge_to(budget);
    }

    /// Waits for room, and adds a frame or this side's close.
    pub(crate) async fn put(&self, record: Record) {
        self.outbox.put(record).await;
    }

    /// Waits until the client has acknowledged all that was put.
    pub(crate) async fn all_got(&self) {
        let mut progress = self.progress.subscribe();
        loop {
            let known = *progress.borrow_and_update();
            if known.made == known.got && self.outbox.is_empty() {
                return;
            }
            // The sender is `self`, so that this cannot fail.
            let _ = progress.changed().await;
        }
    }

    /// The client has got all answers up to this one.
    pub(crate) fn acknowledge(&self, got: u64) -> Result<(), NoAnswer> {
        let mut kept = lock(&self.kept);
        let known = *self.progress.borrow();
        if got > known.made {
            return Err(NoAnswer::Number { made: known.made });
        }
        // Nothing if a later poll, with a larger number, has overtaken this one.
        for _ in known.got..got {
            let body = kept.bodies.pop_front();
            kept.bytes -= body.as_ref().map_or(0, weight);
        }
        let room = kept.bytes < WINDOW;
        self.progress.send_if_modified(|progress| {
            let news = Progress {
                got: got.max(progress.got),
                room,
                ..*progress
            };
            std::mem::replace(progress, news) != news
        });
        Ok(())
    }

    /// Whether a client may ask for this answer: it may be only a few ahead of the acknowledged ones.
    pub(crate) fn expects(&self, number: u64) -> Result<(), NoAnswer> {
        let known = *self.progress.borrow();
        match number > known.got.saturating_add(REQUESTS as u64) {
            true => Err(NoAnswer::Number { made: known.made }),
            false => Ok(()),
        }
    }

    /// The answer of this number, of at most `max` bytes if it is not made yet; `None` if there is
    /// nothing for it in this time, or the client has it already.
    pub(crate) async fn answer(
        &self,
        number: u64,
        max: usize,
        wait: Duration,
    ) -> Result<Option<Bytes>, NoAnswer> {
        self.expects(number)?;
        let made = async {
            loop {
                let mut progress = self.progress.subscribe();
                // The answers before it are made by other polls. This one is made by the first poll that asks
                // for it.
                let ready = |it: &Progress| it.made >= number || it.made + 1 == number && it.room;
                let _ = progress.wait_for(ready).await;
                if let Some(body) = self.find(number) {
                    return Ok(body);
                }
                tokio::select! {
                    () = self.outbox.filled(1) => {}
                    _ = progress.changed() => continue,
                }
                self.make(number, max)?;
            }
        };
        timeout(wait, made).await.unwrap_or(Ok(None))
    }

    /// The answer of this number, or the first one after it that the client has not got. Does not wait for
    /// the acknowledgement of others, unless the window is full.
    pub(crate) async fn streamed(&self, number: u64, max: usize, wait: Duration) -> Streamed {
        let next = async {
            let mut number = number;
            loop {
                let mut progress = self.progress.subscribe();
                let known = *progress.borrow_and_update();
                number = number.max(known.got.saturating_add(1));
                if let Some(Some(body)) = self.find(number) {
                    return Streamed::Answer(number, body);
                }
                if known.made.saturating_add(1) == number && !known.room {
                    return Streamed::NoRoom;
                }
                tokio::select! {
                    () = self.outbox.filled(1), if known.made.saturating_add(1) == number => {}
                    _ = progress.changed() => continue,
                }
                if self.make(number, max).is_err() {
                    return Streamed::NoRoom;
                }
            }
        };
        timeout(wait, next).await.unwrap_or(Streamed::Nothing)
    }

    /// Whether the answer was made, is not acknowledged, and is so large that a path may refuse it for
    /// its size.
    pub(crate) fn keeps_large(&self, number: u64) -> bool {
        let found = self.find(number).flatten();
        found.is_some_and(|body| body.len() > SHARED)
    }

    /// The answer, if it was made: `None` inside if the client has it.
    fn find(&self, number: u64) -> Option<Option<Bytes>> {
        let kept = lock(&self.kept);
        let known = *self.progress.borrow();
        if number <= known.got {
            return Some(None);
        }
        let at = usize::try_from(number - known.got - 1).ok()?;
        Some(Some(kept.bodies.get(at)?.clone()))
    }

    /// These bytes, charged to the session until the last slice of them is dropped.
    pub(crate) fn charged(&self, bytes: Bytes) -> Bytes {
        self.outbox.charged(bytes)
    }

    /// Makes the answer, unless another poll did.
    fn make(&self, number: u64, max: usize) -> Result<(), NoAnswer> {
        let mut kept = lock(&self.kept);
        if self.progress.borrow().made + 1 != number {
            return Ok(());
        }
        let body = self.outbox.take(max);
        let body = body.map_err(NoAnswer::DoesNotFit)?;
        if body.is_empty() {
            return Ok(());
        }
        kept.bytes += weight(&body);
        kept.bodies.push_back(body);
        let room = kept.bytes < WINDOW;
        self.progress.send_modify(|progress| {
            progress.made = number;
            progress.room = room;
        });
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use breakbulk_link::Frame;
    use futures_util::poll;

    use super::super::outbox::LEAST_WEIGHT;
    use super::*;

    const WAIT: Duration = Duration::from_secs(20);

    fn text(text: &'static str) -> Record {
        Record::Frame(Frame::Text(Bytes::from_static(text.as_bytes())))
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_the_same_until_it_has_come() {
        let downloads = Downloads::new();
        downloads.put(text("a")).await;
        let first = downloads.answer(1, 100, WAIT).await.unwrap().unwrap();
        assert_eq!(first, b"t\0\0\0\x01a"[..]);
        downloads.put(text("b")).await;
        // The answer was lost: the same one is sent again, although more frames would fit in it now.
        assert_eq!(downloads.answer(1, 100, WAIT).await, Ok(Some(first)));
        assert_eq!(downloads.acknowledge(2), Err(NoAnswer::Number { made: 1 }));
        downloads.acknowledge(1).unwrap();
        let second = downloads.answer(2, 100, WAIT).await.unwrap().unwrap();
        assert_eq!(second, b"t\0\0\0\x01b"[..]);
        // A late poll for an answer that has come gets nothing, and so does a poll for number 0.
        assert_eq!(downloads.answer(1, 100, WAIT).await, Ok(None));
        assert_eq!(downloads.answer(0, 100, WAIT).await, Ok(None));
        downloads.acknowledge(2).unwrap();
        assert_eq!(downloads.answer(3, 100, WAIT).await, Ok(None));
        tokio::time::timeout(WAIT, downloads.all_got())
            .await
            .unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn polls_are_answered_in_order_and_two_of_one_number_alike() {
        let downloads = Downloads::new();
        let mut second = Box::pin(downloads.answer(2, 100, WAIT));
        let mut first = Box::pin(downloads.answer(1, 100, WAIT));
        let mut again = Box::pin(downloads.answer(1, 100, WAIT));
        assert!(poll!(&mut second).is_pending());
        assert!(poll!(&mut first).is_pending());
        assert!(poll!(&mut again).is_pending());
        downloads.put(text("a")).await;
        let (first, again) = tokio::join!(first, again);
        assert_eq!(first, again);
        assert!(poll!(&mut second).is_pending());
        downloads.put(text("b")).await;
        assert_eq!(second.await.unwrap().unwrap(), b"t\0\0\0\x01b"[..]);
    }

    /// A client that polls and never acknowledges makes the server keep answers, whose memory must
    /// be charged.
    #[tokio::test(start_paused = true)]
    async fn what_is_kept_is_charged_until_it_has_come_and_has_left() {
        let (downloads, budget) = (Downloads::new(), Budget::new(1 << 20));
        downloads.charge_to(&budget);
        for (number, size) in [(1, 10), (2, 1000)] {
            downloads
                .put(Record::Frame(Frame::Text("x".repeat(size).into())))
                .await;
            downloads.answer(number, 2000, WAIT).await.unwrap();
        }
        assert_eq!(budget.used(), LEAST_WEIGHT + 1005);
        downloads.acknowledge(1).unwrap();
        assert_eq!(budget.used(), 1005);
        // It says that the answer has come, and does not read the socket by which it is sent.
        let mut unread = downloads.answer(2, 2000, WAIT).await.unwrap().unwrap();
        downloads.acknowledge(2).unwrap();
        let last = unread.split_off(1000);
        drop(unread);
        assert_eq!(budget.used(), 1005);
        drop(last);
        assert_eq!(budget.used(), 0);
        let frame = Record::Frame(Frame::Text("x".into()));
        downloads.put(frame).await;
        downloads.answer(3, 2000, WAIT).await.unwrap();
        drop(downloads);
        assert_eq!(budget.used(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_kept_is_bounded() {
        let downloads = Downloads::new();
        let large = "x".repeat(WINDOW);
        for number in [1 + REQUESTS as u64, u64::MAX] {
            let refused = downloads.answer(number, 100, WAIT).await;
            assert_eq!(refused, Err(NoAnswer::Number { made: 0 }), "{number}");
        }
        let frame = || Record::Frame(Frame::Text(Bytes::from(large.clone())));
        downloads.put(frame()).await;
        let small = downloads.answer(1, WINDOW, WAIT).await;
        let size = WINDOW + super::super::FRAME_HEAD;
        let max = WINDOW;
        assert_eq!(small, Err(NoAnswer::DoesNotFit(DoesNotFit { size, max })));
        assert!(downloads.answer(1, size, WAIT).await.unwrap().is_some());
        downloads.put(frame()).await;
        // The window is full until the first answer is acknowledged.
        assert_eq!(downloads.answer(2, size, WAIT).await, Ok(None));
        downloads.acknowledge(1).unwrap();
        assert!(downloads.answer(2, size, WAIT).await.unwrap().is_some());
    }

    // LINE-7
    #[tokio::test(start_paused = true)]
    async fn a_stream_goes_on_without_acknowledgements_until_the_window_is_full() {
        let downloads = Downloads::new();
        assert_eq!(downloads.streamed(1, 100, WAIT).await, Streamed::Nothing);
        let mut number = 1;
        loop {
            downloads.put(text("a")).await;
            match downloads.streamed(number, 100, WAIT).await {
                Streamed::Answer(found, body) => {
                    assert_eq!((found, &*body), (number, &b"t\0\0\0\x01a"[..]));
                }
                Streamed::NoRoom => break,
                Streamed::Nothing => panic!("{number} is there"),
            }
            number += 1;
        }
        assert_eq!(number as usize, WINDOW / LEAST_WEIGHT + 1);
        // A poll gets the same answer, and a stream passes over acknowledged ones.
        assert!(downloads.answer(3, 100, WAIT).await.unwrap().is_some());
        downloads.acknowledge(5).unwrap();
        let again = downloads.streamed(1, 100, WAIT).await;
        assert!(matches!(again, Streamed::Answer(6, _)), "{again:?}");
        // A frame that fits in no answer ends the stream: the poll for it reports the error.
        let downloads = Downloads::new();
        downloads.put(text("a larger one")).await;
        assert_eq!(downloads.streamed(1, 10, WAIT).await, Streamed::NoRoom);
    }
}
