//! A bar on a terminal, nothing in a pipe.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Work below this size is over before a bar is drawn.
const WORTH_A_BAR: u64 = 16 << 20;

/// A bar over `total` bytes (a spinner where that is unknown), on standard error.
pub(crate) fn bar(total: Option<u64>, what: &'static str) -> ProgressBar {
    if !std::io::stderr().is_terminal() || total.is_some_and(|total| total < WORTH_A_BAR) {
        return ProgressBar::hidden();
    }
    let target = ProgressDrawTarget::stderr_with_hz(10);
    let (bar, template) = match total {
        Some(total) => (
            ProgressBar::with_draw_target(Some(total), target),
            "{msg} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec}",
        ),
        None => (
            ProgressBar::with_draw_target(None, target),
            "{msg} {spinner} {bytes} {bytes_per_sec}",
        ),
    };
    let style =
        ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    bar.with_style(style).with_message(what)
}
