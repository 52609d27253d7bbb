//! The memory of this process, where the system reports it (Linux).

/// Resets the peak. False if the system does not support that.
pub(crate) fn reset_peak() -> bool {
    std::fs::write("/proc/self/clear_refs", "5").is_ok()
}

/// The peak of resident memory since the last reset, in bytes.
pub(crate) fn peak() -> Option<usize> {
    field("VmHWM:")
}

/// Resident memory now, in bytes.
pub(crate) fn now() -> Option<usize> {
    field("VmRSS:")
}

/// Prints the figures of `--stats` to standard error.
pub(crate) fn print_stats(frames: u64, bytes: usize, took: std::time::Duration) {
    let peak = peak().map_or_else(|| "unknown".to_owned(), |peak| peak.to_string());
    eprintln!(
        "{frames} frames, {bytes} bytes in {:.3} s, peak {peak} bytes resident",
        took.as_secs_f64()
    );
}

fn field(name: &str) -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<usize>().ok()? * 1024)
}
