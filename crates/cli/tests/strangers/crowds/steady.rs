//! How long an honest client waits while a crowd acts steadily, and what of that is not the server's doing.
//!
//! The crowd, the honest client, the server and its commands share the processors of one machine. So beside
//! the times stands how much of the time the attackers ran, and how long the server's threads were ready to run
//! and had no processor: that part of a wait is no work of the server, and would be less on a machine of its own.
//! Not measured at all is what the commands of the crowd run.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::listeners::Listener;
use super::{Member, p99};
use crate::common::Server;

/// What all members of a crowd together do in a second: one thing each of them in a long form of 1,000.
const ACTS: [u32; 2] = [100, 1_000];

/// Enough for a p99 that is not one request's.
const REQUESTS: usize = 500;

/// The pause of the honest client between two requests. Requests are not measured back to back, since the crowd
/// must have its share of the processors.
const PAUSE: Duration = Duration::from_millis(3);

/// What some threads did so far, in nanoseconds.
#[derive(Clone, Copy, Default)]
struct Threads {
    ran: u64,
    waited: u64,
}

impl Threads {
    /// Those of a process whose names begin so.
    fn of(process: u32, name: &str) -> Self {
        let mut sum = Self::default();
        for thread in std::fs::read_dir(format!("/proc/{process}/task")).unwrap() {
            let path = thread.unwrap().path();
            let read = |file| std::fs::read_to_string(path.join(file)).unwrap_or_default();
            let stat = read("schedstat");
            let mut numbers = stat
                .split_whitespace()
                .map_while(|it| it.parse::<u64>().ok());
            if let (true, Some(ran), Some(waited)) = (
                read("comm").starts_with(name),
                numbers.next(),
                numbers.next(),
            ) {
                sum.ran += ran;
                sum.waited += waited;
            }
        }
        sum
    }

    /// Percent of this time, of one processor.
    fn since(self, before: Self, time: Duration) -> [u64; 2] {
        let percent = |now: u64, before: u64| {
            u64::try_from(u128::from(now.saturating_sub(before)) * 100 / time.as_nanos()).unwrap()
        };
        [
            percent(self.ran, before.ran),
            percent(self.waited, before.waited),
        ]
    }
}

/// The times of requests that come at a steady rate, sorted.
pub(super) fn ask(listener: Listener, server: &Server) -> Vec<Duration> {
    super::ask(listener, server, REQUESTS, |_| std::thread::sleep(PAUSE))
}

/// Prints how long the honest client waits while the members act one after the other, against its times
/// without them.
pub(super) fn measure(crowd: &mut [Member], server: &Server, quiet: &[Duration]) {
    let (listener, habit) = (crowd[0].listener, crowd[0].habit);
    let standing = ask(listener, server);
    println!(
        "    p99 {:?} without them, {:?} while they do nothing more",
        p99(quiet),
        p99(&standing)
    );
    for rate in ACTS {
        let done = AtomicBool::new(false);
        let (own, process) = (std::process::id(), server.child.id());
        let server_before = Threads::of(process, "");
        let begun = Instant::now();
        let (times, acts, crowd_ran) = std::thread::scope(|scope| {
            let (done, crowd) = (&done, &mut *crowd);
            let attacks = move || {
                let mut acts = 0;
                while !done.load(Ordering::Relaxed) {
                    crowd[acts as usize % crowd.len()].act(server);
                    acts += 1;
                    let due = begun + Duration::from_secs(1) * acts / rate;
                    std::thread::sleep(due.saturating_duration_since(Instant::now()));
                }
                acts
            };
            let attacks = std::thread::Builder::new()
                .name("attackers".to_owned())
                .spawn_scoped(scope, attacks)
                .unwrap();
            let times = ask(listener, server);
            let ran = Threads::of(own, "attackers");
            done.store(true, Ordering::Relaxed);
            (times, attacks.join().unwrap(), ran)
        });
        let time = begun.elapsed();
        let [attackers, _] = crowd_ran.since(Threads::default(), time);
        let [ran, waited] = Threads::of(process, "").since(server_before, time);
        let acts = u128::from(acts) * 1_000 / time.as_millis();
        println!(
            "    {listener:?}, {habit:?}, {acts} acts a second: p50 {:?} and p99 {:?}, {:.1} times the one without them; of one processor the attackers had {attackers} %, the server {ran} %, and its threads waited {waited} % for one",
            times[times.len() / 2],
            p99(&times),
            p99(&times).as_secs_f64() / p99(quiet).as_secs_f64(),
        );
    }
}
