//! What is told while something runs.

use std::io::IsTerminal;

use tracing::Level;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::prelude::*;

/// Standard output may be a program's: what is told goes to standard error.
pub(crate) fn start(verbose: bool, quiet: bool) {
    let level = match (verbose, quiet) {
        (true, _) => Level::DEBUG,
        (_, true) => Level::ERROR,
        _ => Level::INFO,
    };
    // Of the libraries below only what is wrong.
    let filter = Targets::new()
        .with_default(Level::ERROR)
        .with_target("breakbulk", level);
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false);
    // Where somebody else has set one up, that one stays.
    let _ = tracing_subscriber::registry()
        .with(filter)
        .with(lines)
        .try_init();
}
