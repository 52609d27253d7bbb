//! Forwards one direction of one connection.

use std::sync::Mutex;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::close::Violation;
use super::delay_line::{Bucket, CHUNK, DelayLine};
use super::frames::{Scan, Scanner, Verdict};
use super::meter::Tally;
use super::weather::{Direction, How, Refusal, Way};
use super::{Settings, Shared, lock, sockets};

/// What both directions of a connection share.
#[derive(Debug, Default)]
pub(super) struct BothDirections {
    tally: Tally,
    /// A cut was triggered: the connection ends once the direction that triggered it has written
    /// its last bytes.
    cut_triggered: bool,
}

/// Why a direction stopped.
#[derive(Debug)]
pub(super) enum Stop {
    /// The stream ended, and the end was forwarded.
    End,
    /// Reading failed.
    Lost,
    /// Writing failed.
    Unwritable,
    /// It stopped between two frames, because a frame of the other direction violated a rule.
    Requested,
    /// A frame violated a rule: both sides get a Close with this code.
    Violation(Violation, u16),
    /// A frame violated a rule, and the connection ends without a Close.
    Refused(How),
    Cut(How),
    LongHead,
}

/// Reads at the given rate, holds bytes for the delay, and forwards what is allowed.
#[derive(Debug)]
pub(super) struct Pump<'a> {
    pub(super) shared: &'a Shared,
    pub(super) both: &'a Mutex<BothDirections>,
    pub(super) direction: Direction,
    pub(super) scanner: Scanner,
    pub(super) settings: watch::Receiver<Settings>,
    /// Set when a frame of the other direction violated a rule.
    pub(super) stop_requested: watch::Receiver<bool>,
}

impl Pump<'_> {
    pub(super) async fn run(mut self, mut from: ReadHalf<'_>, mut to: WriteHalf<'_>) -> Stop {
        let mut paced = None;
        let mut bucket = Bucket::new(None, Instant::now());
        let mut line = DelayLine::default();
        let mut buffer = BytesMut::new();
        let mut ended = false;
        loop {
            let settings = *self.settings.borrow_and_update();
            let way = *settings.weather.way(self.direction);
            if way.pace != paced {
                paced = way.pace;
                sockets::size(from.as_ref(), to.as_ref(), paced);
            }
            if *self.stop_requested.borrow_and_update() && self.scanner.at_boundary() {
                return Stop::Requested;
            }
            if settings.hold || lock(self.both).cut_triggered {
                self.wait_for_change().await;
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
            // Small reads share a block, so that a delayed byte does not keep a whole block alive.
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
                () = self.wait_for_change() => {}
            }
        }
    }

    /// Waits until the settings change or a stop is requested.
    async fn wait_for_change(&mut self) {
        // The senders outlive the pump; without them nothing would change, so it waits for ever.
        tokio::select! {
            Ok(()) = self.settings.changed() => {}
            Ok(()) = self.stop_requested.changed() => {}
            else => std::future::pending().await,
        }
    }

    /// Triggers a cut that is due without another byte: one scheduled for what was forwarded
    /// already, or for nothing.
    fn cut_is_due(&mut self) -> Option<How> {
        let mut meter = lock(&self.shared.meter);
        let mut both = lock(self.both);
        let due = !self.scanner.in_head() && meter.left(&both.tally, self.direction).is_used_up();
        both.cut_triggered |= due;
        due.then(|| meter.trigger())
    }

    async fn forward(&mut self, chunk: Bytes, to: &mut WriteHalf<'_>) -> Result<(), Stop> {
        if chunk.is_empty() {
            let ended = to.shutdown().await;
            return Err(ended.map_or(Stop::Unwritable, |()| Stop::End));
        }
        let mut rest = &chunk[..];
        while !rest.is_empty() {
            let taken = self.forward_part(rest, to).await?;
            rest = &rest[taken..];
        }
        Ok(())
    }

    /// Forwards the beginning of a chunk, and returns how much of the chunk that was.
    async fn forward_part(&mut self, chunk: &[u8], to: &mut WriteHalf<'_>) -> Result<usize, Stop> {
        let way = *self.settings.borrow().weather.way(self.direction);
        let (scan, cut) = self.scan(chunk, &way);
        let body = &chunk[scan.start..scan.end];
        let written = match scan.lead.as_slice() {
            [] => to.write_all(body).await,
            lead => to.write_all(&[lead, body].concat()).await,
        };
        if written.is_err() {
            // A cut that was triggered must still happen.
            return Err(cut.map_or(Stop::Unwritable, Stop::Cut));
        }
        self.shared
            .counts
            .send_modify(|counts| counts.passed(self.direction).add(&scan.passed));
        match (cut, scan.verdict) {
            (Some(how), _) => Err(Stop::Cut(how)),
            (None, Verdict::Violation(violation)) => Err(match violation.refusal(&way) {
                Refusal::Close(code) => Stop::Violation(violation, code),
                Refusal::End => Stop::Refused(How::End),
                // The scanner carries out the other kinds of refusal itself.
                _ => Stop::Refused(How::Reset),
            }),
            (None, Verdict::LongHead) => Err(Stop::LongHead),
            (None, Verdict::Again) => Ok(scan.end),
            (None, Verdict::Pass | Verdict::CutReached) => Ok(chunk.len()),
        }
    }

    /// Scans and counts under one lock, so that two directions cannot both forward the last frame.
    fn scan(&mut self, chunk: &[u8], way: &Way) -> (Scan, Option<How>) {
        let stop_requested = *self.stop_requested.borrow();
        let mut meter = lock(&self.shared.meter);
        let mut both = lock(self.both);
        let left = meter.left(&both.tally, self.direction);
        let scan = self.scanner.scan(chunk, way, left, stop_requested);
        let (frames, bytes) = (scan.passed.frames, scan.passed.bytes);
        both.tally.add(self.direction, frames, bytes);
        meter.path.add(self.direction, frames, bytes);
        let cut = (scan.verdict == Verdict::CutReached).then(|| {
            both.cut_triggered = true;
            meter.trigger()
        });
        (scan, cut)
    }
}
