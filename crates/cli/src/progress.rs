//! Progress bars: shown only on a terminal.

use std::fmt::Write;
use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

use crate::size;

/// Work below this size is done before a bar would be drawn.
const BAR_MIN: u64 = 16 << 20;

/// How often a bar is drawn while nothing moves, so that its rate is that of now.
const TICK: Duration = Duration::from_millis(200);

/// A bar for `total` bytes (a spinner if that is unknown), on standard error.
pub(crate) fn bar(total: Option<u64>, what: &'static str) -> ProgressBar {
    if !std::io::stderr().is_terminal() || total.is_some_and(|total| total < BAR_MIN) {
        return ProgressBar::hidden();
    }
    let bar = drawn(total, style(total.is_some()));
    bar.set_message(what);
    bar.enable_steady_tick(TICK);
    bar
}

/// A line for work of unknown size: how long it takes.
pub(crate) fn waiting(what: &'static str) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{msg} {spinner} {elapsed}");
    let style = style.unwrap_or_else(|_| ProgressStyle::default_spinner());
    let bar = drawn(None, style);
    bar.set_message(what);
    bar.enable_steady_tick(TICK);
    bar
}

/// A bar that is not drawn before [`begin`].
pub(crate) fn later() -> ProgressBar {
    match std::io::stderr().is_terminal() {
        true => drawn(None, style(false)),
        false => ProgressBar::hidden(),
    }
}

fn drawn(total: Option<u64>, style: ProgressStyle) -> ProgressBar {
    let target = ProgressDrawTarget::stderr_with_hz(10);
    ProgressBar::with_draw_target(total, target).with_style(style)
}

/// Begins to show other work: its total, if it is known, and a rate of its own.
pub(crate) fn begin(bar: &ProgressBar, what: &'static str, total: Option<u64>) {
    if bar.message() != what {
        bar.reset();
        bar.set_message(what);
        bar.enable_steady_tick(TICK);
    }
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
        true => "{msg} {wide_bar} {done}/{total}, {rate}",
        false => "{msg} {spinner} {done}, {rate}",
    };
    let style = ProgressStyle::with_template(template);
    // Sizes as in the rest of what this program says, and the rate of all the work: the library's own is
    // guessed from the last few steps.
    let done = |state: &ProgressState, out: &mut dyn Write| {
        let _ = out.write_str(&shown(state.pos()));
    };
    let total = |state: &ProgressState, out: &mut dyn Write| {
        let _ = out.write_str(&shown(state.len().unwrap_or_default()));
    };
    let rate = |state: &ProgressState, out: &mut dyn Write| {
        let _ = out.write_str(&rate(state.pos(), state.elapsed()));
    };
    style
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .with_key("done", done)
        .with_key("total", total)
        .with_key("rate", rate)
}

fn shown(bytes: u64) -> String {
    size::show(usize::try_from(bytes).unwrap_or(usize::MAX))
}

/// Bytes per second since the work began.
fn rate(bytes: u64, took: Duration) -> String {
    let seconds = took.as_secs_f64().max(0.001);
    format!("{}/s", size::show((bytes as f64 / seconds) as usize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_all_bytes_over_all_time() {
        for (bytes, millis, expected) in [
            (0, 0, "0 B/s"),
            (0, 5000, "0 B/s"),
            (40_000_000, 2000, "20.00 MB/s"),
            (1_500, 1000, "1.5 KB/s"),
        ] {
            assert_eq!(rate(bytes, Duration::from_millis(millis)), expected);
        }
    }
}
