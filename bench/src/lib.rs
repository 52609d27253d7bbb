//! What the benchmarks of the pure wires share: messages, our own code, and the libraries it is compared with.

pub mod carried;
pub mod kernels;
pub mod payload;

use std::time::Instant;

/// Work on one message, which can be repeated.
pub type Work<'a> = Box<dyn FnMut() + 'a>;

/// Seconds that `work` takes.
pub fn time<T>(work: impl FnOnce() -> T) -> f64 {
    let start = Instant::now();
    std::hint::black_box(work());
    start.elapsed().as_secs_f64()
}
