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
    ProgressBar::with_draw_target(total, target)
        .with_style(style(total.is_some()))
        .with_message(what)
}

/// Turns a spinner into a bar once the total is known, or back.
pub(crate) fn set_total(bar: &ProgressBar, total: Option<u64>) {
    if bar.length() == total {
        return;
    }
    bar.set_style(style(total.is_some()));
    match total {
        Some(total) => bar.set_length(total),
        None => bar.unset_length(),
    }
}

fn style(has_total: bool) -> ProgressStyle {
    let template = match has_total {
        true => "{msg} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec}",
        false => "{msg} {spinner} {bytes} {bytes_per_sec}",
    };
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}
