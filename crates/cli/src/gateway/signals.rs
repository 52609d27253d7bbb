//! The two signals that end a gateway: the first lets it finish, the second does not.

use std::future::Future;
use std::io;

use tokio::sync::watch;

/// Whether to stop. Clones share it.
#[derive(Clone)]
pub(crate) struct Stop(watch::Receiver<u32>);

impl Stop {
    /// Counts signals from now on.
    pub(crate) fn on_signals() -> io::Result<Self> {
        let (count, stop) = watch::channel(0);
        let mut signals = Signals::new()?;
        tokio::spawn(async move {
            loop {
                signals.next().await;
                count.send_modify(|count| *count += 1);
            }
        });
        Ok(Self(stop))
    }

    /// Done after the first signal.
    pub(crate) fn asked(&self) -> impl Future<Output = ()> + Send + use<> {
        self.after(1)
    }

    /// Done after the second.
    pub(crate) fn insisted(&self) -> impl Future<Output = ()> + Send + use<> {
        self.after(2)
    }

    fn after(&self, signals: u32) -> impl Future<Output = ()> + Send + use<> {
        let mut stop = self.0.clone();
        async move {
            if stop.wait_for(|count| *count >= signals).await.is_err() {
                // Nobody counts any more.
                std::future::pending::<()>().await;
            }
        }
    }
}

#[cfg(unix)]
struct Signals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    fn new() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

#[cfg(not(unix))]
struct Signals;

#[cfg(not(unix))]
impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self)
    }

    async fn next(&mut self) {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
