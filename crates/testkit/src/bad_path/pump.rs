//! One direction of one connection.

use std::sync::Mutex;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::close::Strike;
use super::frames::{Scan, Scanner, Verdict};
use super::line::{Bucket, CHUNK, Line};
use super::meter::Tally;
use super::weather::{Direction, How};
use super::{Settings, Shared, lock, sockets};

/// What both directions of a connection share.
#[derive(Debug, Default)]
pub(super) struct Both {
    tally: Tally,
    /// A cut fell: once the direction that brought it has written its last, the connection ends.
    doomed: bool,
}

/// Why a direction stopped.
#[derive(Debug)]
pub(super) enum Stop {
    /// The stream ended, and the end was passed on.
    End,
    /// The reading side broke.
    Lost,
    /// The writing side broke.
    Unwritable,
    /// Between two frames, since the other direction struck.
    Asked,
    Strike(Strike),
    Cut(How),
    LongHead,
}

/// Reads at the pace, keeps for the delay, then lets pass what may pass.
#[derive(Debug)]
pub(super) struct Pump<'a> {
    pub(super) shared: &'a Shared,
    pub(super) both: &'a Mutex<Both>,
    pub(super) direction: Direction,
    pub(super) scanner: Scanner,
    pub(super) settings: watch::Receiver<Settings>,
    /// Set when the other direction struck.
    pub(super) asked: watch::Receiver<bool>,
}

impl Pump<'_> {
    pub(super) async fn run(mut self, mut from: ReadHalf<'_>, mut to: WriteHalf<'_>) -> Stop {
        let mut paced = None;
        let mut bucket = Bucket::new(None, Instant::now());
        let mut line = Line::default();
        let mut buffer = BytesMut::new();
        let mut ended = false;
        loop {
            let settings = *self.settings.borrow_and_update();
            let way = *settings.weather.way(self.direction);
            if way.pace != paced {
                paced = way.pace;
                sockets::size(from.as_ref(), to.as_ref(), paced);
            }
            if *self.asked.borrow_and_update() && self.scanner.at_boundary() {
                return Stop::Asked;
            }
            if settings.hold || lock(self.both).doomed {
                self.wait_for_news().await;
                continue;
            }
            if let Some(how) = self.cut_is_due() {
                return Stop::Cut(how);
            }

            let now = Instant::now();
            if line.due().is_some_and(|due| due <= now) {
                let chunk = line.pop().unwrap_or_default();
                if let Err(stop) = self.forward(chunk, &mut to).await {
                    return stop;
                }
                continue;
            }
            bucket.set_rate(way.pace, now);
            let (allowance, refill) = match bucket.allowance(now) {
                _ if ended || !line.has_room(way.delay) => (0, None),
                Ok(allowance) => (allowance, None),
                Err(refill) => (0, Some(refill)),
            };
            let wake = [line.due(), refill].into_iter().flatten().min();
            // Small reads share a block, so that each does not pin one of its own for the delay.
            if !buffer.try_reclaim(CHUNK) && buffer.capacity() < CHUNK / 4 {
                buffer.reserve(CHUNK);
            }
            let mut limited = (&mut from).take(allowance as u64);
            tokio::select! {
                read = limited.read_buf(&mut buffer), if allowance > 0 => {
                    let Ok(read) = read else { return Stop::Lost };
                    bucket.take(read);
                    ended = read == 0;
                    line.push(Instant::now() + way.delay, buffer.split().freeze());
                }
                () = sleep_until(wake.unwrap_or(now)), if wake.is_some() => {}
                () = self.wait_for_news() => {}
            }
        }
    }

    async fn wait_for_news(&mut self) {
        // The senders outlive the pump; were they gone there would be no news, so wait for ever.
        tokio::select! {
            Ok(()) = self.settings.changed() => {}
            Ok(()) = self.asked.changed() => {}
            else => std::future::pending().await,
        }
    }

    /// A cut can be due without a byte passing: set for what has passed already, or for nothing.
    fn cut_is_due(&mut self) -> Option<How> {
        let mut meter = lock(&self.shared.meter);
        let mut both = lock(self.both);
        let due = !self.scanner.in_head() && meter.left(&both.tally, self.direction).spent();
        both.doomed |= due;
        due.then(|| meter.fall())
    }

    async fn forward(&mut self, chunk: Bytes, to: &mut WriteHalf<'_>) -> Result<(), Stop> {
        if chunk.is_empty() {
            let ended = to.shutdown().await;
            return Err(ended.map_or(Stop::Unwritable, |()| Stop::End));
        }
        let (scan, cut) = self.scan(&chunk);
        let body = &chunk[scan.start..scan.end];
        let written = match scan.lead.as_slice() {
            [] => to.write_all(body).await,
            lead => to.write_all(&[lead, body].concat()).await,
        };
        if written.is_err() {
            // A cut that fell is not to be waited for in vain.
            return Err(cut.map_or(Stop::Unwritable, Stop::Cut));
        }
        self.shared
            .counts
            .send_modify(|counts| counts.passed(self.direction).add(&scan.passed));
        match (cut, scan.verdict) {
            (Some(how), _) => Err(Stop::Cut(how)),
            (None, Verdict::Strike(strike)) => Err(Stop::Strike(strike)),
            (None, Verdict::LongHead) => Err(Stop::LongHead),
            (None, Verdict::Pass | Verdict::Spent) => Ok(()),
        }
    }

    /// Looks and counts under one lock, so that no two directions take the same last frame.
    fn scan(&mut self, chunk: &[u8]) -> (Scan, Option<How>) {
        let way = *self.settings.borrow().weather.way(self.direction);
        let asked = *self.asked.borrow();
        let mut meter = lock(&self.shared.meter);
        let mut both = lock(self.both);
        let left = meter.left(&both.tally, self.direction);
        let scan = self.scanner.scan(chunk, &way, left, asked);
        let (frames, bytes) = (scan.passed.frames, scan.passed.bytes);
        both.tally.add(self.direction, frames, bytes);
        meter.path.add(self.direction, frames, bytes);
        let cut = (scan.verdict == Verdict::Spent).then(|| {
            both.doomed = true;
            meter.fall()
        });
        (scan, cut)
    }
}
