//! Several bridges, leased one by one.
//!
//! A bridge does one thing at a time, so a lease is for one caller. A bridge that still works on a
//! call that was given up is not leased before its late answer came, or it was restarted.

use std::ops::Deref;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use breakbulk_net::process::Program;
use bytes::Bytes;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{CallError, Host, PoolError, Returned, Settings};

/// How a pool is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolSettings {
    /// Bridges; at least 1.
    pub bridges: usize,
    /// How long a caller waits for a bridge.
    pub queue_timeout: Duration,
    /// Callers that may wait.
    pub queue: usize,
    /// How long a bridge may work on a call that was given up before it is restarted.
    pub patience: Duration,
}

impl Default for PoolSettings {
    fn default() -> Self {
        Self {
            bridges: 2,
            queue_timeout: Duration::from_secs(30),
            queue: 10_000,
            patience: Duration::from_secs(30),
        }
    }
}

/// Bridges that are leased. Clones share them; they end with the last clone and lease.
#[derive(Clone)]
pub struct Pool {
    shared: Arc<Shared>,
}

struct Shared {
    all: Vec<Host>,
    /// Those that are not leased; there are as many as permits.
    free: Mutex<Vec<Host>>,
    permits: Arc<Semaphore>,
    waiting: AtomicUsize,
    settings: PoolSettings,
    runtime: Handle,
}

impl Pool {
    /// A pool of bridges of this program. Each is started when it is first used.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn new(program: &Program, settings: &Settings, pool: PoolSettings) -> Self {
        let host = |_| Host::new(program.clone(), settings.clone());
        let all: Vec<_> = (0..pool.bridges.max(1)).map(host).collect();
        Self {
            shared: Arc::new(Shared {
                // The last is leased first.
                free: Mutex::new(all.iter().rev().cloned().collect()),
                permits: Arc::new(Semaphore::new(all.len())),
                all,
                waiting: AtomicUsize::new(0),
                settings: pool,
                runtime: Handle::current(),
            }),
        }
    }

    /// Starts all bridges that are not running yet, side by side.
    pub async fn warm(&self) -> Result<(), CallError> {
        let starts = self.shared.all.iter().cloned();
        let starts: Vec<_> = starts
            .map(|host| tokio::spawn(async move { host.start().await }))
            .collect();
        for start in starts {
            start.await.unwrap_or(Err(CallError::Stopped))?;
        }
        Ok(())
    }

    /// A bridge for one caller, who may keep it for several calls.
    pub async fn lease(&self) -> Result<Lease, PoolError> {
        let shared = &self.shared;
        let permit = match shared.permits.clone().try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => self.wait().await?,
        };
        // There is one for every permit.
        let host = shared.free().pop().ok_or(PoolError::Stopped)?;
        Ok(Lease {
            held: Some((host, permit)),
            shared: shared.clone(),
        })
    }

    /// Calls a function in whichever bridge is free. See [`Host::call`].
    pub async fn call(
        &self,
        module: &str,
        function: &str,
        args: impl Into<Bytes>,
        kwargs: Option<Bytes>,
    ) -> Result<Returned, CallError> {
        let lease = self.lease().await.map_err(CallError::Pool)?;
        lease.call(module, function, args, kwargs).await
    }

    /// Bridges that could be leased at once.
    pub fn free(&self) -> usize {
        self.shared.permits.available_permits()
    }

    /// Callers that wait for a bridge.
    pub fn waiting(&self) -> usize {
        self.shared.waiting.load(Ordering::Relaxed)
    }

    /// How often bridges were started.
    pub fn starts(&self) -> u64 {
        self.shared.all.iter().map(Host::starts).sum()
    }

    /// Ends all bridges, and waits until they are gone. Calls and leases fail from now on.
    pub async fn stop(&self) {
        self.shared.permits.close();
        let stops = self.shared.all.iter().cloned();
        let stops: Vec<_> = stops
            .map(|host| tokio::spawn(async move { host.stop().await }))
            .collect();
        for stop in stops {
            // One that cannot be waited for is gone as well.
            let _ = stop.await;
        }
    }

    async fn wait(&self) -> Result<OwnedSemaphorePermit, PoolError> {
        let (shared, settings) = (&self.shared, &self.shared.settings);
        let _place = Place::take(&shared.waiting, settings.queue)?;
        let permit = shared.permits.clone().acquire_owned();
        match tokio::time::timeout(settings.queue_timeout, permit).await {
            Ok(permit) => permit.map_err(|_| PoolError::Stopped),
            Err(_) => Err(PoolError::TimedOut {
                bridges: shared.all.len(),
                after: settings.queue_timeout,
            }),
        }
    }
}

impl Shared {
    fn free(&self) -> MutexGuard<'_, Vec<Host>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// First the bridge, then the leave to take it.
    fn give_back(&self, host: Host, permit: OwnedSemaphorePermit) {
        self.free().push(host);
        drop(permit);
    }
}

/// A bridge that nobody else uses until this is dropped.
pub struct Lease {
    held: Option<(Host, OwnedSemaphorePermit)>,
    shared: Arc<Shared>,
}

impl Deref for Lease {
    type Target = Host;

    fn deref(&self) -> &Host {
        match &self.held {
            Some((host, _)) => host,
            // Only a lease that is being dropped holds nothing.
            None => &self.shared.all[0],
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let Some((host, permit)) = self.held.take() else {
            return;
        };
        let is_fit = !host.is_busy() && (host.is_up() || host.starts() == 0);
        if is_fit {
            self.shared.give_back(host, permit);
            return;
        }
        let shared = self.shared.clone();
        self.shared.runtime.spawn(async move {
            if tokio::time::timeout(shared.settings.patience, host.settled())
                .await
                .is_err()
            {
                host.restart();
            }
            // A dead one is replaced before somebody waits for it. If it cannot be, whoever leases it
            // is told why.
            let _ = host.start().await;
            shared.give_back(host, permit);
        });
    }
}

/// A place in the queue.
struct Place<'a>(&'a AtomicUsize);

impl<'a> Place<'a> {
    fn take(waiting: &'a AtomicUsize, limit: usize) -> Result<Self, PoolError> {
        let before = waiting.fetch_add(1, Ordering::Relaxed);
        let place = Self(waiting);
        if before >= limit {
            return Err(PoolError::Full { limit });
        }
        Ok(place)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
