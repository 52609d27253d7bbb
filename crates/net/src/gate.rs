//! What all listeners share to keep clients within limits: places that tasks hold and give back, rates,
//! answers to refused sockets, and throttled warnings.

use std::fmt::Display;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use breakbulk_link::lock;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::http::HeaderMap;

use crate::limiter::{AddressKey, AddressLimits, Full, Places, Rates};

/// At most one warning about each limit is logged in this time.
const LOG_PAUSE: Duration = Duration::from_secs(1);

/// How long a refused client may take to read its answer and to leave.
const LINGER: Duration = Duration::from_secs(1);

/// How much a refused client may still send.
const LINGER_BYTES: usize = 64 << 10;

/// Places that tasks hold. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct SharedPlaces(Arc<Mutex<Places<Arc<Notify>>>>);

impl SharedPlaces {
    pub(crate) fn new(limit: usize, per_address: usize) -> Self {
        Self(Arc::new(Mutex::new(Places::new(limit, per_address))))
    }

    /// Takes a place; the second value says whether the holder of another place was evicted for it.
    pub(crate) fn take(
        &self,
        key: Option<AddressKey>,
        idle: bool,
    ) -> Result<(PlaceGuard, bool), Full> {
        let notify = Arc::new(Notify::new());
        let taken = lock(&self.0).take(key, idle, notify.clone())?;
        let evicts = taken.evicted.is_some();
        if let Some(evicted) = taken.evicted {
            evicted.notify_one();
        }
        let guard = PlaceGuard {
            places: self.clone(),
            id: taken.id,
            notify,
        };
        Ok((guard, evicts))
    }
}

/// A place, given back when this is dropped.
#[derive(Debug)]
pub(crate) struct PlaceGuard {
    places: SharedPlaces,
    id: u64,
    notify: Arc<Notify>,
}

impl PlaceGuard {
    #[cfg(feature = "http")]
    pub(crate) fn set_idle(&self, idle: bool) {
        lock(&self.places.0).set_idle(self.id, idle);
    }

    /// Completes when the place is needed for another client.
    pub(crate) fn evicted_by_newcomer(&self) -> impl Future<Output = ()> + Send + use<> {
        let notify = self.notify.clone();
        async move { notify.notified().await }
    }
}

impl Drop for PlaceGuard {
    fn drop(&mut self) {
        lock(&self.places.0).leave(self.id);
    }
}

/// The permit of one open connection, given back when this is dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    pub(crate) _open: Option<OwnedSemaphorePermit>,
    pub(crate) _place: PlaceGuard,
}

/// The limits of one listener by address, and its warnings.
#[derive(Debug)]
pub(crate) struct Gate {
    limits: AddressLimits,
    rates: Mutex<Rates>,
    pub(crate) warnings: Warnings,
    /// One permit for each refused client that is still being answered.
    lingering: Arc<Semaphore>,
}

impl Gate {
    pub(crate) fn new(limits: AddressLimits, lingering: usize) -> Self {
        Self {
            rates: Mutex::new(Rates::new(limits.per_second)),
            limits,
            warnings: Warnings::default(),
            lingering: Arc::new(Semaphore::new(lingering.min(Semaphore::MAX_PERMITS))),
        }
    }

    /// Counts refused clients in `refusals`.
    pub(crate) fn counting(self, refusals: Refusals) -> Self {
        let warnings = Warnings::counting(refusals);
        Self { warnings, ..self }
    }

    /// What a socket counts as before its request is known; `None` behind a proxy, since the socket then has
    /// the proxy's address.
    pub(crate) fn key_of_socket(&self, address: IpAddr) -> Option<AddressKey> {
        match self.limits.proxy {
            None => AddressKey::of(address),
            Some(_) => None,
        }
    }

    /// The client's address: as the proxy tells it, if there is one, else that of the socket.
    pub(crate) fn client(&self, headers: &HeaderMap, socket: IpAddr) -> IpAddr {
        let told = self.limits.proxy.and_then(|header| header.client(headers));
        told.unwrap_or(socket)
    }

    /// Whether there is a proxy in front of this listener.
    pub(crate) fn has_proxy(&self) -> bool {
        self.limits.proxy.is_some()
    }

    /// Counts a connection or a request; false if the address asks too often, which is logged.
    pub(crate) fn asks(&self, client: impl Display, key: Option<AddressKey>) -> bool {
        let granted = lock(&self.rates).take(crate::now(), key);
        if !granted {
            let limit = self.limits.per_second;
            self.warnings.log(
                Limit::Rate,
                client,
                &format_args!(
                    "its address makes more than {limit} requests per second (rate-per-address)"
                ),
            );
        }
        granted
    }

    /// Logs that all places of an address, or all places, are taken.
    pub(crate) fn log_full(&self, full: Full, client: impl Display, all: usize) {
        let address = self.limits.connections;
        match full {
            Full::All => self.warnings.log(
                Limit::Places,
                client,
                &format_args!("all {all} connections are in use"),
            ),
            Full::Address => self.warnings.log(
                Limit::Address,
                client,
                &format_args!(
                    "its address has {address} connections open, the most for one (max-per-address)"
                ),
            ),
        }
    }

    /// Sends an answer to a client that is refused, and closes its socket.
    pub(crate) async fn answer_and_close<S>(&self, mut socket: S, answer: &[u8])
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        // Only a limited number of clients that read or leave slowly is waited for.
        let lingers = self.lingering.clone().try_acquire_owned();
        let answered = async {
            socket.write_all(answer).await?;
            socket.shutdown().await?;
            if lingers.is_err() {
                return Ok(());
            }
            // Reads what the client still sends: closing with unread bytes would reset the connection,
            // and the client would not see the answer.
            let mut rest = [0; 1024];
            let mut left = LINGER_BYTES;
            while left > 0 {
                match socket.read(&mut rest).await? {
                    0 => break,
                    read => left = left.saturating_sub(read),
                }
            }
            Ok::<(), std::io::Error>(())
        };
        let _ = timeout(LINGER, answered).await;
    }
}

/// Why a client is refused. Each has warnings of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limit {
    /// An address asks too often.
    Rate,
    /// An address has too many connections.
    Address,
    /// There are too many connections in all.
    Places,
    /// A silent socket had to make room for a newcomer.
    Silent,
    /// What the client sent is not acceptable.
    Request,
}

impl Limit {
    const ALL: [Self; 5] = [
        Self::Rate,
        Self::Address,
        Self::Places,
        Self::Silent,
        Self::Request,
    ];

    fn word(self) -> &'static str {
        match self {
            Self::Rate => "rate",
            Self::Address => "address_full",
            Self::Places => "listener_full",
            Self::Silent => "silent",
            Self::Request => "request",
        }
    }
}

/// How many clients a listener did not let in, by reason. Clones count together.
#[derive(Clone, Debug, Default)]
pub struct Refusals(Arc<[AtomicU64; Limit::ALL.len()]>);

impl Refusals {
    fn count(&self, limit: Limit) {
        self.0[limit as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Each reason in one word, and how often it applied: `rate`, an address asks too often;
    /// `address_full`, it has too many connections; `listener_full`, there are too many in all; `silent`,
    /// a silent socket had to make room; `request`, what the client sent is not acceptable: no token, a
    /// web page of strangers, no HTTP.
    pub fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let counted = |limit: Limit| self.0[limit as usize].load(Ordering::Relaxed);
        Limit::ALL
            .map(|limit| (limit.word(), counted(limit)))
            .into_iter()
    }
}

/// Logs refused clients. Anybody can cause a refusal, as often as they like, so warnings are limited in
/// rate and carry a count of those in between.
#[derive(Debug, Default)]
pub(crate) struct Warnings([Mutex<Throttle>; Limit::ALL.len()], Refusals);

impl Warnings {
    /// Counts refused clients in `refusals`, too.
    pub(crate) fn counting(refusals: Refusals) -> Self {
        Self(Default::default(), refusals)
    }

    /// Logs why a client is refused. `why` may quote the client.
    pub(crate) fn log(&self, limit: Limit, client: impl Display, why: &dyn Display) {
        self.1.count(limit);
        let why = crate::plain_text(why);
        let Some(more) = lock(&self.0[limit as usize]).due(crate::now()) else {
            return tracing::debug!(peer = %client, %why, "a client is refused");
        };
        match more {
            0 => tracing::warn!(peer = %client, "a client is refused: {why}"),
            more => tracing::warn!(
                peer = %client,
                "a client is refused: {why}; {more} more were refused for such a reason since the last such line"
            ),
        }
    }
}

/// Lets one line pass in each [`LOG_PAUSE`], and counts the others.
#[derive(Debug, Default)]
pub(crate) struct Throttle {
    last: Option<Instant>,
    suppressed: u64,
}

impl Throttle {
    /// How many lines were held back since the last one that passed; `None` if this one is held back, too.
    pub(crate) fn due(&mut self, now: Instant) -> Option<u64> {
        if self.last.is_some_and(|last| now < last + LOG_PAUSE) {
            self.suppressed = self.suppressed.saturating_add(1);
            return None;
        }
        self.last = Some(now);
        Some(std::mem::take(&mut self.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_clients_are_told_once_a_second_with_a_count() {
        let (mut throttle, start) = (Throttle::default(), Instant::now());
        for (after, told) in [
            (0, Some(0)),
            (1, None),
            (999, None),
            (1000, Some(2)),
            (1999, None),
            (5000, Some(1)),
            (9000, Some(0)),
        ] {
            let now = start + Duration::from_millis(after);
            assert_eq!(throttle.due(now), told, "after {after} ms");
        }
    }
}
