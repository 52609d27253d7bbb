//! What is told while something runs.

use std::io::IsTerminal;

use tracing::Level;
use tracing_subscriber::EnvFilter;

/// Standard output may be a program's: what is told goes to standard error.
pub(crate) fn start(verbose: bool, quiet: bool) {
    let level = match (verbose, quiet) {
        (true, _) => Level::DEBUG,
        (_, true) => Level::ERROR,
        _ => Level::INFO,
    };
    // Of the libraries below only what is wrong.
    let filter = EnvFilter::new(format!("error,breakbulk={level}"));
    let log = tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_env_filter(filter)
        .with_target(false);
    // Where somebody else has set one up, that one stays.
    let _ = log.try_init();
}
