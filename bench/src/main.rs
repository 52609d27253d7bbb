//! Measures each wire on one thread: its time as a multiple of the time that the fastest libraries
//! need for the work that the format requires (base64, escaping, digests, copies).
//!
//! Both sides hold one frame at a time, and fill a new message buffer in every run.

mod report;

use std::time::{Duration, Instant};

use breakbulk_bench::carried::{self, Setting};
use breakbulk_bench::payload::Content;
use breakbulk_bench::{kernels, time};
use report::{Report, Row};

/// Each figure is the best of as many runs as fit into this time, but at least this many.
const TIME: Duration = Duration::from_millis(400);
const RUNS: usize = 7;

/// Small messages are timed together until they have this many bytes: reading the clock takes as long as one
/// of them.
const TOGETHER: usize = 64 << 10;

/// The size of the message whose first frame is timed.
const LARGE: usize = 256_000_000;

const SIZES: [(usize, &str); 5] = [
    (256, "256 B"),
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
        for content in setting.contents() {
            let message = content.message(LARGE);
            let runs = (0..RUNS).filter_map(|_| setting.first_frame(&message));
            if let Some(best) = runs.min_by(f64::total_cmp) {
                report.first_frame(setting.name, *content, best);
            }
        }
    }
    report.finish();
}

fn measure(setting: &Setting, content: Content, size: usize, size_name: &'static str) -> Row {
    let message = content.message(size);
    let frame = setting.piece_bytes(message.len());
    let mut kernels = (setting.kernels)(&message, frame);
    let mut carry = setting.carry(&message);
    let repeat = (TOGETHER / size).max(1);
    let each = |work: &mut dyn FnMut()| time(|| (0..repeat).for_each(|_| work())) / repeat as f64;
    // Alternating, so that noise affects both.
    let (mut limit, mut ours) = (f64::MAX, f64::MAX);
    let started = Instant::now();
    let mut runs = 0;
    while runs < RUNS || started.elapsed() < TIME {
        for kernel in &mut kernels {
            limit = limit.min(each(kernel));
        }
        ours = ours.min(each(&mut carry));
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
