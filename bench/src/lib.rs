//! What the benchmarks of the pure wires share: messages, this project's code, and the libraries to compare.

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

/// The processor time of all threads of this process so far, in seconds, including the kernel's work for its
/// connections.
///
/// # Errors
/// If the system has no such files: they exist on Linux only.
pub fn processor_time() -> std::io::Result<f64> {
    let mut nanoseconds = 0;
    for thread in std::fs::read_dir("/proc/self/task")? {
        let told = std::fs::read_to_string(thread?.path().join("schedstat"))?;
        let first = told.split_whitespace().next().unwrap_or_default();
        nanoseconds += first.parse::<u64>().map_err(std::io::Error::other)?;
    }
    Ok(nanoseconds as f64 / 1e9)
}
