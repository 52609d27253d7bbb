//! A pool of bridges, each leased to one caller at a time.
//!
//! A bridge runs one call at a time. A bridge that still runs a call that was given up is not leased
//! until the late answer came, or the bridge was restarted.

use std::ops::Deref;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use breakbulk_link::lock;
use breakbulk_net::process::Program;
use bytes::Bytes;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{CallError, Config, Host, PoolError, Returned};

/// The size and the limits of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolConfig {
    /// The number of bridges; at least 1.
    pub bridges: usize,
    /// How long a caller waits for a bridge.
    pub queue_timeout: Duration,
    /// Callers that may wait at once.
    pub queue: usize,
    /// How long a bridge may go on with a call that was given up before it is restarted.
    pub patience: Duration,
}

impl Default for PoolConfig {
    fn default() -> Self {
        Self {
            bridges: 2,
            queue_timeout: Duration::from_secs(30),
            queue: 10_000,
            patience: Duration::from_secs(30),
        }
    }
}

breakbulk_link::with!(PoolConfig);

/// A pool of bridges. Clones share it; the bridges end when the last clone and lease are dropped.
#[derive(Clone)]
pub struct Pool {
    shared: Arc<Shared>,
}

struct Shared {
    all: Vec<Host>,
    /// The bridges that are not leased; as many as there are permits.
    free: Mutex<Vec<Host>>,
    permits: Arc<Semaphore>,
    waiting: AtomicUsize,
    config: PoolConfig,
    runtime: Handle,
}

impl Pool {
    /// A pool of bridges of this program. Each is started at its first use.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn new(program: &Program, config: &Config, pool: PoolConfig) -> Self {
        let host = |_| Host::new(program.clone(), config.clone());
        let all: Vec<_> = (0..pool.bridges.max(1)).map(host).collect();
        Self {
            shared: Arc::new(Shared {
                // The last is leased first.
                free: Mutex::new(all.iter().rev().cloned().collect()),
                permits: Arc::new(Semaphore::new(all.len())),
                all,
                waiting: AtomicUsize::new(0),
                config: pool,
                runtime: Handle::current(),
            }),
        }
    }

    /// Starts all bridges that are not running yet, in parallel.
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

    /// Leases a bridge to one caller, for one or more calls.
    pub async fn lease(&self) -> Result<Lease, PoolError> {
        let shared = &self.shared;
        let permit = match shared.permits.clone().try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => self.wait().await?,
        };
        // There is a free bridge for every permit.
        let host = shared.free().pop().ok_or(PoolError::Stopped)?;
        Ok(Lease {
            held: Some((host, permit)),
            shared: shared.clone(),
        })
    }

    /// Calls a function in a free bridge. See [`Host::call`].
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

    /// The number of free bridges.
    pub fn free(&self) -> usize {
        self.shared.permits.available_permits()
    }

    /// The number of callers that wait for a bridge.
    pub fn waiting(&self) -> usize {
        self.shared.waiting.load(Ordering::Relaxed)
    }

    /// How many times bridges were started.
    pub fn starts(&self) -> u64 {
        self.shared.all.iter().map(Host::starts).sum()
    }

    /// Ends all bridges and waits until they have exited. Later calls and leases fail.
    pub async fn stop(&self) {
        self.shared.permits.close();
        let stops = self.shared.all.iter().cloned();
        let stops: Vec<_> = stops
            .map(|host| tokio::spawn(async move { host.stop().await }))
            .collect();
        for stop in stops {
            // If the task failed, the bridge is gone as well.
            let _ = stop.await;
        }
    }

    async fn wait(&self) -> Result<OwnedSemaphorePermit, PoolError> {
        let (shared, config) = (&self.shared, &self.shared.config);
        let _slot = QueueSlot::take(&shared.waiting, config.queue)?;
        let permit = shared.permits.clone().acquire_owned();
        match tokio::time::timeout(config.queue_timeout, permit).await {
            Ok(permit) => permit.map_err(|_| PoolError::Stopped),
            Err(_) => Err(PoolError::TimedOut {
                bridges: shared.all.len(),
                after: config.queue_timeout,
            }),
        }
    }
}

impl Shared {
    fn free(&self) -> MutexGuard<'_, Vec<Host>> {
        lock(&self.free)
    }

    /// Returns the bridge first and the permit second, so that each permit finds a bridge.
    fn give_back(&self, host: Host, permit: OwnedSemaphorePermit) {
        self.free().push(host);
        drop(permit);
    }
}

/// Exclusive use of a bridge, until this is dropped.
pub struct Lease {
    held: Option<(Host, OwnedSemaphorePermit)>,
    shared: Arc<Shared>,
}

impl Deref for Lease {
    type Target = Host;

    fn deref(&self) -> &Host {
        match &self.held {
            Some((host, _)) => host,
            // Only a lease that is being dropped holds no bridge.
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
            if tokio::time::timeout(shared.config.patience, host.settled())
                .await
                .is_err()
            {
                host.restart();
            }
            // Replaces a dead bridge before the next lease. If that fails, the next call returns
            // the error.
            let _ = host.start().await;
            shared.give_back(host, permit);
        });
    }
}

/// A place in the queue.
struct QueueSlot<'a>(&'a AtomicUsize);

impl<'a> QueueSlot<'a> {
    fn take(waiting: &'a AtomicUsize, limit: usize) -> Result<Self, PoolError> {
        let before = waiting.fetch_add(1, Ordering::Relaxed);
        let slot = Self(waiting);
        if before >= limit {
            return Err(PoolError::Full { limit });
        }
        Ok(slot)
    }
}

impl Drop for QueueSlot<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
