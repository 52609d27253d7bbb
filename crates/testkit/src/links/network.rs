//! One direction of a path that delays, drops, duplicates, reorders and breaks.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use breakbulk_link::{Frame, Random};

/// How bad a path is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weather {
    /// Every frame takes at least so long.
    pub delay: Duration,
    /// And at most so much longer, by chance.
    pub jitter: Duration,
    /// Whether a frame may overtake another one where the jitter says so.
    pub reorder: bool,
    /// One frame in so many is lost; 0: none.
    pub drop: u64,
    /// One frame in so many comes twice; 0: none.
    pub duplicate: u64,
    /// With one frame in so many the path breaks for good; 0: never.
    pub cut: u64,
}

impl Weather {
    /// All frames arrive in order, at once.
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

    /// Some of everything but a cut.
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

    /// Any weather, by chance; half of all paths lose nothing.
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

    /// Whether all that is sent arrives once and in order.
    pub fn is_reliable(&self) -> bool {
        self.drop == 0 && self.duplicate == 0 && self.cut == 0 && !self.reorder
    }
}

/// Frames under way in one direction.
#[derive(Debug)]
pub struct Network {
    weather: Weather,
    random: Random,
    /// By arrival; frames that arrive at once keep their order.
    under_way: BTreeMap<(Instant, u64), Frame>,
    serial: u64,
    last: Option<Instant>,
    broken: bool,
    lost: u64,
}

impl Network {
    /// A path with this weather; all chance comes from `seed`.
    pub fn new(weather: Weather, seed: u64) -> Self {
        let random = Random::from_number(seed);
        Self {
            weather,
            random,
            under_way: BTreeMap::new(),
            serial: 0,
            last: None,
            broken: false,
            lost: 0,
        }
    }

    /// Sends a frame, wherever that leads.
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

    /// The next frame that has arrived by now.
    pub fn receive(&mut self, now: Instant) -> Option<Frame> {
        let entry = self.under_way.first_entry()?;
        (entry.key().0 <= now).then(|| entry.remove())
    }

    /// When the next frame arrives.
    pub fn next_arrival(&self) -> Option<Instant> {
        self.under_way.first_key_value().map(|((at, _), _)| *at)
    }

    /// Breaks the path: what is under way still arrives, nothing after it.
    pub fn cut(&mut self) {
        self.broken = true;
    }

    /// Whether the path is broken and all that was under way has arrived.
    pub fn is_cut(&self) -> bool {
        self.broken && self.under_way.is_empty()
    }

    /// Frames that never arrive.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// What it does to frames.
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
        self.under_way.insert((at, self.serial), frame);
    }
}
