//! The end that answers a probe over a WebSocket, or in a session at NATS: it says what arrived, and sends what it is asked for.
//!
//! A stranger could use this end to make it send much in return for little, or hold much. So the largest
//! message, the number of probes at a time and the bytes per second of all of them together are bounded, and
//! the memory that they hold is charged to that of all sessions.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use breakbulk_link::{Budget, Closed, Frame, lock};
use breakbulk_net::ws::WebSocket;
use breakbulk_net::{Incoming, Source, Transport};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, sleep, timeout};

use super::connected::Sends;
use super::course::LEAST;
use super::words::{self, Measured, Word};

/// A probe that says nothing for this time is over.
const IDLE: Duration = Duration::from_secs(60);

/// How long a message may take to be sent, and a connection to be closed.
const SEND: Duration = Duration::from_secs(120);
const CLOSE: Duration = Duration::from_secs(5);

/// What each message counts beside its bytes, so that small ones are bounded too.
const EACH: usize = 512;

/// What probes may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EchoLimits {
    /// The largest message, in bytes.
    pub(crate) most: usize,
    /// The bytes per second of all probes together, both ways.
    pub(crate) rate: usize,
    /// The bytes that may go beyond that rate for a moment.
    pub(crate) burst: usize,
    /// The probes at a time.
    pub(crate) places: usize,
}

impl EchoLimits {
    /// For a gateway, whose sessions come first.
    pub(crate) const GATEWAY: Self = Self {
        most: 32 << 20,
        rate: 8 << 20,
        burst: 64 << 20,
        places: 4,
    };

    /// For a process that does nothing else.
    pub(crate) const ALONE: Self = Self {
        most: 64 << 20,
        rate: 128 << 20,
        burst: 512 << 20,
        places: 16,
    };
}

/// Answers probes.
#[derive(Debug)]
pub(crate) struct Echo {
    limits: EchoLimits,
    budget: Budget,
    places: Semaphore,
    bucket: Mutex<Bucket>,
}

impl Echo {
    pub(crate) fn new(limits: EchoLimits, budget: Budget) -> Arc<Self> {
        Arc::new(Self {
            places: Semaphore::new(limits.places),
            bucket: Mutex::new(Bucket::new(limits, Instant::now())),
            budget,
            limits,
        })
    }

    /// The largest WebSocket message that a probe may bring.
    pub(crate) fn frame_limit(&self) -> usize {
        self.limits.most
    }

    /// Answers one probe until it ends.
    pub(crate) async fn serve(&self, mut websocket: WebSocket) {
        websocket.charge_to(&self.budget);
        websocket.limit_frames(self.limits.most);
        let (source, sink) = websocket.split();
        self.serve_halves(source, sink).await;
    }

    /// Answers one probe in a session at NATS until it ends.
    #[cfg(feature = "nats")]
    pub(crate) async fn serve_session(&self, session: breakbulk_net::nats::NatsTransport) {
        let (source, sink) = session.split();
        self.serve_halves(source, sink).await;
    }

    async fn serve_halves(&self, mut source: impl Source, mut sink: impl Sends) {
        let closed = match self.place() {
            Some(_place) => self.answer(&mut source, &mut sink).await,
            None => Some((1013, "other probes are running; try again later".to_owned())),
        };
        let Some((code, reason)) = closed else {
            return;
        };
        tracing::info!(code, reason, "ended a probe");
        let _ = timeout(CLOSE, async {
            sink.close(code, &reason).await;
            while !matches!(source.next().await, Incoming::Closed(_)) {}
        })
        .await;
    }

    /// Returns the code and reason to close with, unless the other end has closed.
    async fn answer(
        &self,
        source: &mut impl Source,
        sink: &mut impl Sends,
    ) -> Option<(u16, String)> {
        tracing::info!("a probe begins");
        let mut wait = self.take(0);
        let most = self.limits.most;
        let hello = Word::Hello {
            most,
            wait: millis(wait),
        };
        send(sink, None, words::write(&hello)).await?;
        loop {
            // The probe was told to send nothing during this time.
            sleep(wait).await;
            let frame = match timeout(IDLE, source.next()).await {
                Ok(Incoming::Frame(frame)) => frame,
                Ok(Incoming::Closed(closed)) => {
                    tracing::info!(code = closed.code, "a probe ends");
                    return None;
                }
                Ok(Incoming::Broken(Closed { code, reason })) => return Some((code, reason)),
                Ok(_) => {
                    wait = Duration::ZERO;
                    continue;
                }
                Err(_) => return Some((1008, "the probe sent nothing for a minute".to_owned())),
            };
            let word = words::read(&frame);
            drop(frame);
            wait = match word {
                Some(Word::Bytes(Measured { arrived, whole, .. })) => {
                    let wait = self.take(arrived);
                    let got = Word::Got {
                        arrived,
                        whole,
                        wait: millis(wait),
                    };
                    send(sink, None, words::write(&got)).await?;
                    wait
                }
                Some(Word::Mark(number)) => {
                    let wait = self.take(0);
                    send(sink, None, words::write(&Word::Marked(number))).await?;
                    wait
                }
                Some(Word::Send { size, .. }) if size > sink.most() => {
                    let fits = sink.most();
                    let reason =
                        format!("a frame of {size} bytes is too large: {fits} fit in a message");
                    return Some((1009, reason));
                }
                Some(Word::Send {
                    size,
                    content,
                    fragment,
                }) if (LEAST..=most).contains(&size) => {
                    let Some(_held) = self.budget.charge(size) else {
                        return Some((1013, "no memory for a probe at the moment".to_owned()));
                    };
                    let wait = self.take(size);
                    let fragment = fragment.map(|fragment| fragment.max(LEAST));
                    send(sink, fragment, words::measured(content, size)).await?;
                    let sent = Word::Sent { wait: millis(wait) };
                    send(sink, None, words::write(&sent)).await?;
                    wait
                }
                Some(Word::Send { .. }) => {
                    return Some((1008, format!("a probe may ask for {LEAST} to {most} bytes")));
                }
                _ => return Some((1002, "this is no message of a probe".to_owned())),
            };
        }
    }

    /// A place for a probe; `None` if all are taken.
    pub(super) fn place(&self) -> Option<SemaphorePermit<'_>> {
        self.places.try_acquire().ok()
    }

    /// Counts a message; returns how long to pause after it.
    pub(super) fn take(&self, bytes: usize) -> Duration {
        lock(&self.bucket).take(Instant::now(), bytes + EACH)
    }
}

/// Sends a message; `None` if the connection is lost or the other end does not read.
async fn send(sink: &mut impl Sends, fragment: Option<usize>, frame: Frame) -> Option<()> {
    sink.set_fragment(fragment);
    timeout(SEND, sink.send(frame)).await.ok()?.ok()
}

pub(super) fn millis(wait: Duration) -> u64 {
    u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)
}

/// Counts bytes per second.
#[derive(Debug)]
struct Bucket {
    rate: f64,
    burst: f64,
    /// Below 0 if more was taken than there was.
    left: f64,
    at: Instant,
}

impl Bucket {
    fn new(limits: EchoLimits, now: Instant) -> Self {
        Self {
            rate: limits.rate as f64,
            burst: limits.burst as f64,
            left: limits.burst as f64,
            at: now,
        }
    }

    /// Takes bytes; returns how long to wait until there are any again.
    fn take(&mut self, now: Instant, bytes: usize) -> Duration {
        let since = now.saturating_duration_since(self.at).as_secs_f64();
        self.at = now;
        self.left = (self.left + since * self.rate).min(self.burst) - bytes as f64;
        Duration::try_from_secs_f64((-self.left / self.rate).max(0.0)).unwrap_or(IDLE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_share_a_rate_and_a_burst() {
        let limits = EchoLimits {
            most: 1000,
            rate: 100,
            burst: 1000,
            places: 1,
        };
        let start = Instant::now();
        let mut bucket = Bucket::new(limits, start);
        // Bytes that are taken after a number of seconds, and how many seconds to wait then.
        for (at, bytes, wait) in [
            (0, 1000, 0),
            (0, 100, 1),
            (1, 0, 0),
            (1, 500, 5),
            (3, 0, 3),
            (100, 1000, 0),
            (100, 1, 0),
            (100, 999, 10),
        ] {
            let waits = bucket.take(start + Duration::from_secs(at), bytes);
            assert_eq!(waits.as_secs(), wait, "{at} {bytes}: {waits:?}");
        }
    }
}
