//! Measures each wire on one thread: its time as a multiple of the time that the fastest libraries
//! need for the work that the format requires (base64, escaping, digests, copies).
//!
//! Both sides hold one frame at a time, and fill a new message buffer in every run.

mod carried;
mod kernels;
mod payload;
mod report;

use std::time::{Duration, Instant};

use carried::Setting;
use payload::Content;
use report::{Report, Row};

/// Each figure is the best of as many runs as fit into this time, and of no fewer than this.
const TIME: Duration = Duration::from_millis(400);
const RUNS: usize = 7;

const SIZES: [(usize, &str); 4] = [
    (1000, "1 KB"),
    (1 << 20, "1 MiB"),
    (16 << 20, "16 MiB"),
    (64 << 20, "64 MiB"),
];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let json = arguments.iter().any(|argument| argument == "--json");
    // Other arguments are the names of the wires to measure.
    let wanted = |name: &str| {
        arguments.iter().all(|word| word == "--json") || arguments.iter().any(|word| word == name)
    };
    let mut report = Report::new(json);
    report.memcpy(kernels::memcpy_rate());
    for setting in carried::settings()
        .into_iter()
        .filter(|setting| wanted(setting.name))
    {
        for content in setting.contents() {
            for (size, name) in SIZES {
                report.row(measure(&setting, *content, size, name));
            }
        }
        report.whole(setting.name, carried::whole_messages_per_second(&setting));
    }
    report.finish();
}

fn measure(setting: &Setting, content: Content, size: usize, size_name: &'static str) -> Row {
    let message = setting.message(content, size);
    let frame = setting.piece_bytes(message.len());
    // Alternating, so that noise affects both.
    let (mut limit, mut ours) = (f64::MAX, f64::MAX);
    let started = Instant::now();
    let mut runs = 0;
    while runs < RUNS || started.elapsed() < TIME {
        limit = limit.min((setting.limit)(&message, frame));
        ours = ours.min(setting.carry(&message));
        runs += 1;
    }
    Row {
        wire: setting.name,
        content,
        size: size_name,
        bytes: message.len(),
        limit,
        ours,
    }
}

/// Seconds that `work` takes.
fn time<T>(work: impl FnOnce() -> T) -> f64 {
    let start = Instant::now();
    std::hint::black_box(work());
    start.elapsed().as_secs_f64()
}
