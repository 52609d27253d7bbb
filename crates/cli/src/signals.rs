//! SIGINT, SIGTERM and SIGHUP: the first signal lets the program finish, the second one stops it at once.

use std::future::Future;
use std::io;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

/// A signal this soon after the first one counts as the same: `timeout` signals the process and then its
/// group, and a terminal signals all processes in the foreground.
const ECHO: Duration = Duration::from_secs(1);

/// Whether to stop. Clones share it.
#[derive(Clone)]
pub(crate) struct Stop(watch::Receiver<u32>);

impl Stop {
    /// Counts signals from now on.
    pub(crate) fn on_signals() -> io::Result<Self> {
        Ok(Self::on(Signals::new(true)?))
    }

    /// Counts signals other than SIGHUP, which does not ask to stop here.
    pub(crate) fn on_signals_but_hang_up() -> io::Result<(Self, HangUps)> {
        Ok((Self::on(Signals::new(false)?), HangUps::new()?))
    }

    fn on(mut signals: Signals) -> Self {
        let (count, stop) = watch::channel(0);
        tokio::spawn(async move {
            let mut signal_count = SignalCount::default();
            loop {
                signals.next().await;
                count.send_replace(signal_count.add(Instant::now()));
            }
        });
        Self(stop)
    }

    /// Completes after the first signal.
    pub(crate) fn asked(&self) -> impl Future<Output = ()> + Send + use<> {
        self.after(1)
    }

    /// Completes after the second.
    pub(crate) fn insisted(&self) -> impl Future<Output = ()> + Send + use<> {
        self.after(2)
    }

    fn after(&self, signals: u32) -> impl Future<Output = ()> + Send + use<> {
        let mut stop = self.0.clone();
        async move {
            if stop.wait_for(|count| *count >= signals).await.is_err() {
                // The counter was dropped.
                std::future::pending::<()>().await;
            }
        }
    }
}

/// Counts signals, without repetitions.
#[derive(Default)]
struct SignalCount {
    first: Option<Instant>,
    count: u32,
}

impl SignalCount {
    fn add(&mut self, now: Instant) -> u32 {
        let first = *self.first.get_or_insert(now);
        if self.count == 0 || now >= first + ECHO {
            self.count += 1;
        }
        self.count
    }
}

#[cfg(unix)]
struct Signals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
    /// `None` if SIGHUP does not end the program: because it was ignored when this process was started, as by
    /// `nohup`, or because it has another meaning.
    hang_up: Option<tokio::signal::unix::Signal>,
}

#[cfg(unix)]
impl Signals {
    fn new(with_hang_up: bool) -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hang_up: match with_hang_up && !hang_up_is_ignored() {
                true => Some(signal(SignalKind::hangup())?),
                false => None,
            },
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            () = hung_up(&mut self.hang_up) => {}
        }
    }
}

#[cfg(unix)]
async fn hung_up(signal: &mut Option<tokio::signal::unix::Signal>) {
    match signal {
        Some(signal) => drop(signal.recv().await),
        None => std::future::pending().await,
    }
}

/// Whether SIGHUP is ignored, where the system tells (Linux).
#[cfg(unix)]
fn hang_up_is_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    // SIGHUP is signal 1, the lowest bit.
    ignored.is_some_and(|mask| mask & 1 == 1)
}

#[cfg(not(unix))]
struct Signals;

#[cfg(not(unix))]
impl Signals {
    fn new(_: bool) -> io::Result<Self> {
        Ok(Self)
    }

    async fn next(&mut self) {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// SIGHUP, where it does not end the program.
pub(crate) struct HangUps {
    #[cfg(unix)]
    signal: tokio::signal::unix::Signal,
}

impl HangUps {
    fn new() -> io::Result<Self> {
        #[cfg(unix)]
        let signal = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::hangup())?;
        Ok(Self {
            #[cfg(unix)]
            signal,
        })
    }

    /// Completes when SIGHUP has come since the last call. Cancel-safe.
    pub(crate) async fn next(&mut self) {
        #[cfg(unix)]
        let came = self.signal.recv().await;
        #[cfg(not(unix))]
        let came: Option<()> = None;
        if came.is_none() {
            std::future::pending::<()>().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_that_comes_twice_counts_once() {
        let (mut signal_count, start) = (SignalCount::default(), Instant::now());
        for (after, count) in [(0, 1), (0, 1), (1, 1), (999, 1), (1000, 2), (1001, 3)] {
            let now = start + Duration::from_millis(after);
            assert_eq!(signal_count.add(now), count, "after {after} ms");
        }
    }
}
