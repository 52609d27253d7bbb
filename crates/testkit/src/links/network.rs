//! One direction of a simulated network that delays, drops, duplicates and reorders frames, and breaks.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use breakbulk_link::{Frame, Random};

/// How unreliable a network is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weather {
    /// The shortest delay of a frame.
    pub delay: Duration,
    /// The largest random addition to the delay.
    pub jitter: Duration,
    /// Whether a frame may overtake another one because of the jitter.
    pub reorder: bool,
    /// One frame in this many is lost; 0 loses none.
    pub drop: u64,
    /// One frame in this many arrives twice; 0 duplicates none.
    pub duplicate: u64,
    /// The network breaks for good with one frame in this many; 0 never breaks.
    pub cut: u64,
}

impl Weather {
    /// All frames arrive immediately and in order.
    pub const FAIR: Self = Self {
        delay: Duration::ZERO,
        jitter: Duration::ZERO,
        reorder: false,
        drop: 0,
        duplicate: 0,
        cut: 0,
    };

    /// Slow, but reliable and in order, as TCP is.
    pub const fn slow(delay: Duration) -> Self {
        Self {
            delay,
            jitter: delay,
            ..Self::FAIR
        }
    }

    /// Some of everything except breaking.
    pub const fn bad() -> Self {
        let delay = Duration::from_millis(5);
        Self {
            delay,
            jitter: Duration::from_millis(20),
            reorder: true,
            drop: 50,
            duplicate: 20,
            cut: 0,
        }
    }

    /// Random conditions; half of all networks lose nothing.
    pub fn random(random: &mut Random) -> Self {
        let mut rare = |odds: u64| {
            if random.one_in(2) {
                0
            } else {
                odds + random.below(100)
            }
        };
        let (drop, duplicate, cut) = (rare(3), rare(3), rare(20));
        Self {
            delay: Duration::from_millis(random.below(20)),
            jitter: Duration::from_millis(random.below(50)),
            reorder: random.one_in(2),
            drop,
            duplicate,
            cut,
        }
    }

    /// Whether all frames arrive once and in order.
    pub fn is_reliable(&self) -> bool {
        self.drop == 0 && self.duplicate == 0 && self.cut == 0 && !self.reorder
    }
}

/// The frames in transit in one direction.
#[derive(Debug)]
pub struct Network {
    weather: Weather,
    random: Random,
    /// By arrival time; frames that arrive at the same time keep their order.
    in_transit: BTreeMap<(Instant, u64), Frame>,
    serial: u64,
    last: Option<Instant>,
    broken: bool,
    lost: u64,
}

impl Network {
    /// A network with these conditions; all randomness comes from `seed`.
    pub fn new(weather: Weather, seed: u64) -> Self {
        let random = Random::from_number(seed);
        Self {
            weather,
            random,
            in_transit: BTreeMap::new(),
            serial: 0,
            last: None,
            broken: false,
            lost: 0,
        }
    }

    /// Sends a frame, which may be delayed, duplicated or lost.
    pub fn send(&mut self, now: Instant, frame: Frame) {
        let Weather {
            drop,
            duplicate,
            cut,
            ..
        } = self.weather;
        if self.broken || cut > 0 && self.random.one_in(cut) {
            self.broken = true;
            self.lost += 1;
            return;
        }
        if drop > 0 && self.random.one_in(drop) {
            self.lost += 1;
            return;
        }
        if duplicate > 0 && self.random.one_in(duplicate) {
            self.put(now, frame.clone());
        }
        self.put(now, frame);
    }

    /// The next frame that has arrived.
    pub fn receive(&mut self, now: Instant) -> Option<Frame> {
        let entry = self.in_transit.first_entry()?;
        (entry.key().0 <= now).then(|| entry.remove())
    }

    /// When the next frame arrives.
    pub fn next_arrival(&self) -> Option<Instant> {
        self.in_transit.first_key_value().map(|((at, _), _)| *at)
    }

    /// Breaks the network: frames in transit still arrive, but none after them.
    pub fn cut(&mut self) {
        self.broken = true;
    }

    /// Whether the network is broken and all frames in transit have arrived.
    pub fn is_cut(&self) -> bool {
        self.broken && self.in_transit.is_empty()
    }

    /// How many frames were lost.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// The conditions.
    pub fn weather(&self) -> Weather {
        self.weather
    }

    fn put(&mut self, now: Instant, frame: Frame) {
        let jitter = u64::try_from(self.weather.jitter.as_nanos()).unwrap_or(u64::MAX);
        let mut at = now + self.weather.delay + Duration::from_nanos(self.random.below(jitter));
        if !self.weather.reorder {
            at = self.last.map_or(at, |last| last.max(at));
        }
        self.last = Some(at);
        self.serial += 1;
        self.in_transit.insert((at, self.serial), frame);
    }
}
