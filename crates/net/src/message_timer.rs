//! Limits how long an incoming message may take to arrive. Without this limit a peer could make us hold
//! an unfinished one for ever.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use breakbulk_link::Closed;
use tokio::time::{Instant, Sleep, sleep_until};

/// The time that every message has.
const LEAST: Duration = Duration::from_secs(60);

/// Each this many received bytes give a message one more second; even slow networks are faster.
const BYTES_A_SECOND: u64 = 1 << 10;

/// The timer of one incoming message.
#[derive(Debug)]
pub(crate) struct MessageTimer {
    began: Instant,
    /// Since when nothing is read.
    paused: Option<Instant>,
    sleep: Pin<Box<Sleep>>,
}

impl MessageTimer {
    /// Starts the timer for a message of which `bytes` have arrived.
    pub(crate) fn new(bytes: usize) -> Self {
        let began = Instant::now();
        Self {
            began,
            paused: None,
            sleep: Box::pin(sleep_until(began + time(bytes))),
        }
    }

    /// Stops the timer while the application does not read.
    pub(crate) fn pause(&mut self) {
        self.paused = Some(Instant::now());
    }

    /// Continues the timer. The pause does not count, as it was not the peer's doing.
    pub(crate) fn resume(&mut self) {
        if let Some(paused) = self.paused.take() {
            self.began += paused.elapsed();
        }
    }

    /// Waits until the time for a message of which `bytes` have arrived is up.
    #[cfg(feature = "process")]
    pub(crate) async fn expired(&mut self, bytes: usize) -> Closed {
        std::future::poll_fn(|context| self.poll_expired(context, bytes)).await
    }

    /// Waits until the time for a message of which `bytes` have arrived is up.
    pub(crate) fn poll_expired(&mut self, context: &mut Context<'_>, bytes: usize) -> Poll<Closed> {
        loop {
            let time = time(bytes);
            let due = self.began + time;
            if due <= Instant::now() {
                let seconds = time.as_secs();
                return Poll::Ready(Closed {
                    code: 1008,
                    reason: format!(
                        "a message was not complete after {seconds} s, {bytes} bytes had come: send faster, or in smaller frames"
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
