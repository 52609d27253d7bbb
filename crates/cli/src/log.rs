//! Logging to standard error.

use std::io::IsTerminal;

use tracing::Level;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::prelude::*;

/// Starts logging. It goes to standard error, since standard output may carry a program's messages.
pub(crate) fn start(verbose: bool, quiet: bool) {
    let level = match (verbose, quiet) {
        (true, _) => Level::DEBUG,
        (_, true) => Level::ERROR,
        _ => Level::INFO,
    };
    // Only errors of other libraries.
    let filter = Targets::new()
        .with_default(Level::ERROR)
        .with_target("breakbulk", level);
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false);
    // If a subscriber is set already, it stays.
    let _ = tracing_subscriber::registry()
        .with(filter)
        .with(lines)
        .try_init();
}
