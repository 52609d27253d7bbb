//! Progress bars: shown only on a terminal.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Work below this size is done before a bar would be drawn.
const BAR_MIN: u64 = 16 << 20;

/// A bar for `total` bytes (a spinner if that is unknown), on standard error.
pub(crate) fn bar(total: Option<u64>, what: &'static str) -> ProgressBar {
    if !std::io::stderr().is_terminal() || total.is_some_and(|total| total < BAR_MIN) {
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
