//! What became of every request, what was done to the gateways meanwhile, and whether the second explains
//! the first.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use crate::client::{ENDED, SILENT};

/// Where a client is connected, and where its session leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Way {
    /// The gateway of its client; `None` for clients of the far gateway itself.
    pub(crate) near: Option<&'static str>,
    pub(crate) far: &'static str,
    pub(crate) route: &'static str,
}

/// What is done to the gateways. A session can survive none of these; the cut of a tunnel's line, and a
/// reload that does not change its route, it must survive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// A member was stopped and started again.
    Restart(&'static str),
    /// A reload changed a route of a member.
    Changed(&'static str, &'static str),
    /// The connections of a way were cut that are no lines of tunnels, or lines that may be opening.
    Cut(Way),
}

impl Trouble {
    fn name(self) -> &'static str {
        match self {
            Self::Restart(_) => "restart of a member",
            Self::Changed(..) => "reload that changed the route",
            Self::Cut(_) => "cut",
        }
    }

    /// Whether it can end a session of this way. A cut ends sessions over plain connections, and those
    /// that were only beginning.
    fn ends(self, way: Way, began: bool) -> bool {
        let is_on_the_way = |member| way.near == Some(member) || way.far == member;
        match self {
            Self::Restart(member) => is_on_the_way(member),
            Self::Changed(member, route) => is_on_the_way(member) && way.route == route,
            Self::Cut(cut) => cut == way && (way.near.is_none() || !began),
        }
    }
}

struct Event {
    trouble: Trouble,
    to: Option<Instant>,
}

/// What all clients write down about their requests, and what was done to the gateways.
#[derive(Default)]
pub(crate) struct Ledger {
    pub(crate) ends: AtomicBool,
    numbers: AtomicU64,
    pub(crate) answered: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) connected: AtomicU64,
    events: Mutex<Vec<Event>>,
    /// The requests without a right answer, and whether their client must have been told why.
    failed: Mutex<BTreeMap<u64, bool>>,
    /// How often each reason was given with each explanation.
    reasons: Mutex<BTreeMap<(&'static str, String), u64>>,
    wrong: Mutex<Vec<String>>,
}

impl Ledger {
    pub(crate) fn next_number(&self) -> u64 {
        self.numbers.fetch_add(1, Relaxed) + 1
    }

    pub(crate) fn is_ending(&self) -> bool {
        self.ends.load(Relaxed)
    }

    /// Something begins to happen; returns what says that it is over.
    pub(crate) fn begin(&self, trouble: Trouble) -> usize {
        let mut events = self.events.lock().unwrap();
        events.push(Event { trouble, to: None });
        events.len() - 1
    }

    pub(crate) fn over(&self, number: usize) {
        self.events.lock().unwrap()[number].to = Some(Instant::now());
    }

    /// When members were restarted, in seconds after `start`.
    pub(crate) fn restarts(&self, start: Instant) -> Vec<f64> {
        let events = self.events.lock().unwrap();
        let restarts = events
            .iter()
            .filter(|it| matches!(it.trouble, Trouble::Restart(_)));
        let times = restarts.filter_map(|it| Some(it.to?.duration_since(start).as_secs_f64()));
        times.collect()
    }

    /// A request had its right answer.
    pub(crate) fn answered(&self, bytes: usize) {
        self.answered.fetch_add(1, Relaxed);
        self.bytes.fetch_add(bytes as u64, Relaxed);
    }

    /// A request was not answered, or a connection was refused or ended (`number` is `None`): something
    /// that was done while the connection was there must explain it. `began`: whether the connection had
    /// an answer before.
    pub(crate) fn failed(
        &self,
        way: Way,
        number: Option<u64>,
        opened: Instant,
        began: bool,
        reason: &str,
    ) {
        let events = self.events.lock().unwrap();
        let explains = |event: &&Event| {
            let is_then = event.to.is_none_or(|to| opened <= to);
            reason != SILENT && is_then && event.trouble.ends(way, began)
        };
        // What ends every session explains it better than a cut.
        let explanation = events.iter().rev().filter(explains);
        let Some(event) = explanation.min_by_key(|event| matches!(event.trouble, Trouble::Cut(_)))
        else {
            let reason: String = reason.chars().take(300).collect();
            return self.wrong(format!("{way:?}: {number:?} for no known reason: {reason}"));
        };
        let is_named = !reason.starts_with(ENDED);
        let reason = reason.replace(|letter: char| letter.is_ascii_digit(), "#");
        let reason: String = reason.chars().take(160).collect();
        let reason = match began {
            true => reason,
            false => format!("{reason} (without any answer before)"),
        };
        *(self.reasons.lock().unwrap())
            .entry((event.trouble.name(), reason))
            .or_default() += 1;
        let is_told = is_named || matches!(event.trouble, Trouble::Cut(_));
        let mut failed = self.failed.lock().unwrap();
        failed.extend(number.map(|number| (number, is_told)));
    }

    pub(crate) fn wrong(&self, what: String) {
        eprintln!("WRONG: {what}");
        self.wrong.lock().unwrap().push(what);
    }

    /// Checks that every request was answered right or failed for a known reason, and that targets worked on
    /// each of them once, or at most once if it failed. If a target worked on a request that failed, its
    /// client must have been told more than the end of its connection.
    pub(crate) fn check(&self, diary: &Path) {
        let (asked, answered) = (self.numbers.load(Relaxed), self.answered.load(Relaxed));
        let failed = self.failed.lock().unwrap();
        let mut worked: BTreeMap<u64, u64> = BTreeMap::new();
        let diary = std::fs::read_to_string(diary).unwrap();
        for number in diary.lines() {
            *worked.entry(number.parse().unwrap()).or_default() += 1;
        }
        let doubled: Vec<_> = worked.iter().filter(|(_, times)| **times > 1).collect();
        let unworked = failed.keys().filter(|it| !worked.contains_key(it)).count();
        let untold = failed
            .iter()
            .filter(|(it, is_told)| !**is_told && worked.contains_key(it));
        let untold: Vec<_> = untold.map(|(number, _)| number).collect();
        println!(
            "{asked} requests, {answered} answered right ({} MB), {} failed, of which {unworked} had not reached their target",
            self.bytes.load(Relaxed) / 1_000_000,
            failed.len()
        );
        for ((trouble, reason), times) in &*self.reasons.lock().unwrap() {
            println!("{times:6} × {trouble}: {reason}");
        }
        let wrong = self.wrong.lock().unwrap();
        assert!(wrong.is_empty(), "{} mistakes: {wrong:#?}", wrong.len());
        assert!(doubled.is_empty(), "worked on more than once: {doubled:?}");
        assert!(
            untold.is_empty(),
            "worked on, and neither answered nor refused: {untold:?}"
        );
        assert_eq!(
            asked,
            answered + failed.len() as u64,
            "requests are missing"
        );
        let known = worked.len() as u64;
        assert_eq!(known, answered + failed.len() as u64 - unworked as u64);
    }
}
