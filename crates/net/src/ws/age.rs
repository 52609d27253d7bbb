//! How long a message may be under way. What has come of it is held and charged to nobody, and words
//! between its fragments are signs of life: without a bound it would be held for ever.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use breakbulk_link::Closed;
use tokio::time::{Instant, Sleep, sleep_until};

/// What every message has.
const LEAST: Duration = Duration::from_secs(60);

/// Each so many bytes that have come give it another second; the slowest paths are faster.
const BYTES_A_SECOND: u64 = 1 << 10;

/// The time of one message.
#[derive(Debug)]
pub(super) struct Age {
    began: Instant,
    /// When the reader was last left alone.
    left: Option<Instant>,
    sleep: Pin<Box<Sleep>>,
}

impl Age {
    /// A message began, and so much of it came.
    pub(super) fn new(bytes: usize) -> Self {
        let began = Instant::now();
        Self {
            began,
            left: None,
            sleep: Box::pin(sleep_until(began + time(bytes))),
        }
    }

    /// Nobody reads for now.
    pub(super) fn leave(&mut self) {
        self.left = Some(Instant::now());
    }

    /// Somebody reads again. That nobody did was not the other end's doing, and does not count.
    pub(super) fn back(&mut self) {
        if let Some(left) = self.left.take() {
            self.began += left.elapsed();
        }
    }

    /// Waits until the time is up for a message of which so much has come.
    pub(super) fn poll_over(&mut self, context: &mut Context<'_>, bytes: usize) -> Poll<Closed> {
        loop {
            let time = time(bytes);
            let due = self.began + time;
            if due <= Instant::now() {
                let seconds = time.as_secs();
                return Poll::Ready(Closed {
                    code: 1008,
                    reason: format!(
                        "a message was not whole after {seconds} s, {bytes} bytes had come: send faster, or in smaller frames"
                    ),
                });
            }
            if self.sleep.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
            self.sleep.as_mut().reset(due);
        }
    }
}

fn time(bytes: usize) -> Duration {
    LEAST + Duration::from_secs(bytes as u64 / BYTES_A_SECOND)
}
