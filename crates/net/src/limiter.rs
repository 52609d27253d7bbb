//! Limits on what one client address may take of a listener. Pure: the time is passed in, and every
//! table is bounded.
//!
//! IPv4 addresses count one by one, IPv6 addresses by their /64 network, which is what one customer
//! gets. Loopback addresses are not limited: all programs of this machine, and a proxy on it, share one.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// At most this many addresses are told apart; further ones count as one.
const ADDRESSES_MAX: usize = 16 << 10;

/// A full table is searched for entries to forget at most once in this time.
const SWEEP_PAUSE: Duration = Duration::from_secs(1);

/// A client that was idle may make the requests of this many seconds at once.
const BURST_SECONDS: u32 = 4;

/// The limits for one client address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressLimits {
    /// How many connections may be open; more are refused with 503.
    pub connections: usize,
    /// How many handshakes may be in progress; the oldest one is closed to make room for another.
    pub handshakes: usize,
    /// How many connections and requests are accepted per second; more are refused with 503.
    pub per_second: u32,
    /// The header in which a proxy before this listener names its client. `None`: there is no proxy,
    /// and no header is believed.
    pub proxy: Option<crate::ProxyHeader>,
}

impl Default for AddressLimits {
    fn default() -> Self {
        Self {
            connections: 256,
            handshakes: 64,
            per_second: 500,
            proxy: None,
        }
    }
}

/// What an address counts as where limits are for each address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum AddressKey {
    /// One address.
    V4([u8; 4]),
    /// The /64 network.
    V6([u8; 8]),
    /// All addresses that do not fit in the table.
    Others,
}

impl AddressKey {
    /// `None` for addresses of this machine: a program there, such as a proxy, may act for many clients.
    pub fn of(address: IpAddr) -> Option<Self> {
        match address.to_canonical() {
            address if address.is_loopback() => None,
            IpAddr::V4(address) => Some(Self::V4(address.octets())),
            IpAddr::V6(address) => {
                let [a, b, c, d, e, f, g, h, ..] = address.octets();
                Some(Self::V6([a, b, c, d, e, f, g, h]))
            }
        }
    }
}

/// How often each address may ask. For each address it keeps the time until which the requests so far
/// are paid for at the allowed rate.
#[derive(Debug)]
pub(crate) struct Rates {
    pause: Duration,
    burst: Duration,
    paid_until: HashMap<AddressKey, Instant>,
    table: usize,
    swept: Option<Instant>,
}

impl Rates {
    pub(crate) fn new(per_second: u32) -> Self {
        let pause = Duration::from_secs(1) / per_second.max(1);
        Self {
            pause,
            burst: pause * (per_second.max(1).saturating_mul(BURST_SECONDS) - 1),
            paid_until: HashMap::new(),
            table: ADDRESSES_MAX,
            swept: None,
        }
    }

    /// Counts a request; false if the address asks too often.
    pub(crate) fn take(&mut self, now: Instant, key: Option<AddressKey>) -> bool {
        let Some(mut key) = key else { return true };
        if !self.paid_until.contains_key(&key) && self.is_full(now) {
            key = AddressKey::Others;
        }
        let paid_until = self.paid_until.entry(key).or_insert(now);
        let begin = (*paid_until).max(now);
        if begin > now + self.burst {
            return false;
        }
        *paid_until = begin + self.pause;
        true
    }

    fn is_full(&mut self, now: Instant) -> bool {
        if self.paid_until.len() < self.table {
            return false;
        }
        if self.swept.is_none_or(|swept| now >= swept + SWEEP_PAUSE) {
            self.swept = Some(now);
            self.paid_until.retain(|_, paid_until| *paid_until > now);
        }
        self.paid_until.len() >= self.table
    }
}

/// A limited number of places. A place can be given up for a newcomer while it is idle: the oldest idle
/// place of the address that has most idle ones. So silent sockets keep no other clients out, least of all
/// those of other addresses.
#[derive(Debug)]
pub(crate) struct Places<T> {
    limit: usize,
    per_address: usize,
    next: u64,
    taken: BTreeMap<u64, Place<T>>,
    /// Idle places by the order in which they became idle, with the number of the place.
    idle: BTreeMap<u64, u64>,
    counts: HashMap<AddressKey, Count>,
}

#[derive(Debug)]
struct Place<T> {
    key: Option<AddressKey>,
    /// Its entry in `idle`, if it is idle.
    idle_since: Option<u64>,
    holder: T,
}

#[derive(Clone, Copy, Debug, Default)]
struct Count {
    all: usize,
    idle: usize,
}

/// A place was taken.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Taken<T> {
    pub(crate) id: u64,
    /// The holder whose place was given up for it.
    pub(crate) evicted: Option<T>,
}

/// Why there is no place, and none that can be given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Full {
    /// All places are taken.
    All,
    /// This address has all that one address gets.
    Address,
}

impl<T> Places<T> {
    pub(crate) fn new(limit: usize, per_address: usize) -> Self {
        Self {
            limit,
            per_address,
            next: 0,
            taken: BTreeMap::new(),
            idle: BTreeMap::new(),
            counts: HashMap::new(),
        }
    }

    /// Takes a place, which is idle if `idle` says so.
    pub(crate) fn take(
        &mut self,
        key: Option<AddressKey>,
        idle: bool,
        holder: T,
    ) -> Result<Taken<T>, Full> {
        let count = key.map_or(Count::default(), |key| self.count(key));
        let evicted = if count.all >= self.per_address {
            let own = self.oldest_idle(|of| of == key).ok_or(Full::Address)?;
            self.leave(own)
        } else if self.taken.len() >= self.limit {
            let oldest = self.oldest_of_busiest().ok_or(Full::All)?;
            self.leave(oldest)
        } else {
            None
        };
        let id = self.next_number();
        let place = Place {
            key,
            idle_since: None,
            holder,
        };
        self.taken.insert(id, place);
        if let Some(key) = key {
            self.counts.entry(key).or_default().all += 1;
        }
        self.set_idle(id, idle);
        Ok(Taken { id, evicted })
    }

    /// Marks a place as idle or busy. Does nothing if the place was given up.
    pub(crate) fn set_idle(&mut self, id: u64, idle: bool) {
        let number = self.next_number();
        let Some(place) = self.taken.get_mut(&id) else {
            return;
        };
        let before = place.idle_since.take();
        place.idle_since = idle.then_some(number);
        if let Some(before) = before {
            self.idle.remove(&before);
        }
        if idle {
            self.idle.insert(number, id);
        }
        if let Some(count) = place.key.and_then(|key| self.counts.get_mut(&key)) {
            count.idle = count.idle + usize::from(idle) - usize::from(before.is_some());
        }
    }

    /// Gives a place back, and returns its holder.
    pub(crate) fn leave(&mut self, id: u64) -> Option<T> {
        self.set_idle(id, false);
        let place = self.taken.remove(&id)?;
        if let Some(key) = place.key {
            let count = self.counts.entry(key).or_default();
            count.all -= 1;
            if count.all == 0 {
                self.counts.remove(&key);
            }
        }
        Some(place.holder)
    }

    fn count(&self, key: AddressKey) -> Count {
        self.counts.get(&key).copied().unwrap_or_default()
    }

    fn next_number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// The oldest idle place of the addresses with the most idle ones. Addresses without a limit count
    /// as one.
    fn oldest_of_busiest(&self) -> Option<u64> {
        let limited: usize = self.counts.values().map(|count| count.idle).sum();
        let unlimited = self.idle.len() - limited;
        let idle = |key: Option<AddressKey>| key.map_or(unlimited, |key| self.count(key).idle);
        let most = self.counts.values().map(|count| count.idle).max();
        let most = most.unwrap_or(0).max(unlimited);
        self.oldest_idle(|key| idle(key) == most)
    }

    fn oldest_idle(&self, of: impl Fn(Option<AddressKey>) -> bool) -> Option<u64> {
        let mut oldest = self.idle.values().copied();
        oldest.find(|id| self.taken.get(id).is_some_and(|place| of(place.key)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(address: &str) -> Option<AddressKey> {
        AddressKey::of(address.parse().unwrap())
    }

    // WS-2
    #[test]
    fn addresses_count_alone_ipv6_by_its_network_and_loopback_not_at_all() {
        for (one, other, same) in [
            ("192.0.2.1", "192.0.2.1", true),
            ("192.0.2.1", "192.0.2.2", false),
            ("192.0.2.1", "::ffff:192.0.2.1", true),
            ("2001:db8::1", "2001:db8::ffff:1", true),
            ("2001:db8:0:1::1", "2001:db8:0:2::1", false),
        ] {
            assert_eq!(key(one) == key(other), same, "{one} {other}");
            assert!(key(one).is_some());
        }
        for loopback in ["127.0.0.1", "127.1.2.3", "::1", "::ffff:127.0.0.1"] {
            assert_eq!(key(loopback), None, "{loopback}");
        }
    }

    #[test]
    fn each_address_asks_at_its_own_rate_after_a_burst() {
        let (mut rates, start) = (Rates::new(10), Instant::now());
        let (one, other) = (key("192.0.2.1"), key("192.0.2.2"));
        let mut granted = |after: u64, key, asked: usize| {
            let now = start + Duration::from_millis(after);
            (0..asked).filter(|_| rates.take(now, key)).count()
        };
        for (after, key, asked, expected) in [
            (0, one, 100, 40),
            (0, other, 100, 40),
            (99, one, 100, 0),
            (100, one, 100, 1),
            (600, one, 100, 5),
            (600, None, 100, 100),
            (60_000, one, 100, 40),
        ] {
            assert_eq!(granted(after, key, asked), expected, "after {after} ms");
        }
    }

    #[test]
    fn the_table_of_rates_is_bounded_and_strangers_beyond_it_share_an_entry() {
        let (mut rates, start) = (Rates::new(1), Instant::now());
        rates.table = 2;
        for (after, address, expected) in [
            (0, "192.0.2.1", true),
            (0, "192.0.2.2", true),
            // These four share the burst of four.
            (0, "192.0.2.3", true),
            (0, "192.0.2.4", true),
            (0, "192.0.2.5", true),
            (0, "192.0.2.6", true),
            (0, "192.0.2.7", false),
            (0, "192.0.2.1", true),
            // By now all but the shared entry are forgotten.
            (2, "192.0.2.8", true),
            (2, "192.0.2.7", true),
        ] {
            let now = start + Duration::from_secs(after);
            assert_eq!(rates.take(now, key(address)), expected, "{address}");
            assert!(rates.paid_until.len() <= 3);
        }
    }

    // WS-3
    #[test]
    fn the_oldest_idle_place_of_the_busiest_address_makes_room() {
        /// What happens: a client comes (idle or not), becomes idle or busy, or leaves.
        enum Do {
            Come(&'static str, bool),
            Idle(u64, bool),
            Leave(u64),
        }
        use Do::{Come, Idle, Leave};
        let mut places = Places::new(5, 3);
        let mut ids: Vec<u64> = Vec::new();
        for (step, (what, expected)) in [
            (Come("192.0.2.1", true), Ok(None)),
            (Come("192.0.2.1", true), Ok(None)),
            (Come("192.0.2.1", true), Ok(None)),
            // One address has three, its limit: its own oldest place is given up.
            (Come("192.0.2.1", true), Ok(Some(0))),
            (Come("192.0.2.2", true), Ok(None)),
            (Come("192.0.2.3", true), Ok(None)),
            // All five are taken: the oldest place of the address with the most idle ones is given up.
            (Come("192.0.2.4", true), Ok(Some(1))),
            // Busy places are not given up.
            (Idle(2, false), Ok(None)),
            (Idle(3, false), Ok(None)),
            (Come("192.0.2.1", false), Ok(Some(4))),
            (Come("192.0.2.1", true), Err(Full::Address)),
            (Come("127.0.0.1", false), Ok(Some(5))),
            (Come("127.0.0.1", false), Ok(Some(6))),
            (Come("127.0.0.1", true), Err(Full::All)),
            (Leave(2), Ok(None)),
            (Come("192.0.2.1", true), Ok(None)),
            // Places without an address of their own are given up like others.
            (Idle(10, true), Ok(None)),
            (Idle(9, true), Ok(None)),
            (Come("192.0.2.9", true), Ok(Some(10))),
            // One that was given up cannot become idle or leave again.
            (Idle(0, true), Ok(None)),
            (Leave(0), Ok(None)),
            (Come("192.0.2.9", true), Ok(Some(9))),
        ]
        .into_iter()
        .enumerate()
        {
            let outcome = match what {
                Come(address, idle) => {
                    let number = ids.len();
                    places.take(key(address), idle, number).map(|taken| {
                        ids.push(taken.id);
                        taken.evicted
                    })
                }
                Idle(number, idle) => {
                    places.set_idle(ids[number as usize], idle);
                    Ok(None)
                }
                Leave(number) => {
                    places.leave(ids[number as usize]);
                    Ok(None)
                }
            };
            assert_eq!(outcome, expected, "step {step}");
            assert!(places.taken.len() <= 5 && places.counts.len() <= places.taken.len());
        }
    }
}
