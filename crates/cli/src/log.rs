//! Logging to standard error.
//!
//! Anybody who can connect can cause log lines, and parts of their text come from them. So no line holds
//! control characters, and of each kind only so many lines are written in a second.

use std::collections::HashMap;
use std::io::{self, IsTerminal, Write};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use tracing::callsite::Identifier;
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Context, Filter};
use tracing_subscriber::prelude::*;

/// How many lines of one kind are written in a [`PAUSE`].
const LINES: u32 = 50;

const PAUSE: Duration = Duration::from_secs(1);

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
    let colours = std::io::stderr().is_terminal();
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(move || PlainLines { colours })
        .with_ansi(colours)
        .with_target(false)
        .with_filter(Throttle::default());
    // If a subscriber is set already, it stays.
    let _ = tracing_subscriber::registry()
        .with(filter)
        .with(lines)
        .try_init();
}

/// A text of several lines, without control characters. All but its first line are indented, so that
/// none passes for another message.
pub(crate) fn indented(text: &str) -> String {
    let lines: Vec<String> = text.lines().map(|line| plain(line, false)).collect();
    lines.join("\n  ")
}

/// Writes each event as one line.
struct PlainLines {
    /// Whether the log itself has colours.
    colours: bool,
}

impl Write for PlainLines {
    /// The layer writes an event at once.
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(event);
        let line = plain(text.trim_end_matches('\n'), self.colours);
        writeln!(io::stderr().lock(), "{line}")?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// The text without line breaks and control characters; colours may stay.
fn plain(text: &str, colours: bool) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(character) = rest.chars().next() {
        let colour = if colours { colour_length(rest) } else { 0 };
        let taken = colour.max(character.len_utf8());
        match character {
            _ if colour > 0 => plain.push_str(&rest[..colour]),
            '\n' | '\r' | '\t' | '\u{2028}' | '\u{2029}' => plain.push(' '),
            character if is_unsafe(character) => plain.push('\u{fffd}'),
            character => plain.push(character),
        }
        rest = &rest[taken..];
    }
    plain
}

/// The length of an order to a terminal at the beginning of a text, if it changes nothing but colours.
fn colour_length(text: &str) -> usize {
    let Some(numbers) = text.strip_prefix("\u{1b}[") else {
        return 0;
    };
    let end = numbers.find(|it: char| !it.is_ascii_digit() && it != ';');
    match end {
        Some(end) if numbers[end..].starts_with('m') => end + 3,
        _ => 0,
    }
}

/// Control characters, and those that reorder or hide what stands around them.
fn is_unsafe(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}'
        )
}

/// Lets only so many lines of one kind (one place in the code) pass in a second.
#[derive(Default)]
struct Throttle(Mutex<HashMap<Identifier, Written>>);

struct Written {
    since: Instant,
    lines: u32,
}

impl Throttle {
    fn passes(&self, kind: Identifier, now: Instant) -> bool {
        let Ok(mut kinds) = self.0.lock() else {
            return true;
        };
        let written = kinds.entry(kind).or_insert(Written {
            since: now,
            lines: 0,
        });
        if now >= written.since + PAUSE {
            let left_out = written.lines.saturating_sub(LINES);
            *written = Written {
                since: now,
                lines: 0,
            };
            if left_out > 0 {
                let _ = writeln!(
                    io::stderr().lock(),
                    "({left_out} lines like the next one were left out)"
                );
            }
        }
        written.lines = written.lines.saturating_add(1);
        written.lines <= LINES
    }
}

impl<S: Subscriber> Filter<S> for Throttle {
    fn enabled(&self, _: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        true
    }

    fn event_enabled(&self, event: &Event<'_>, _: &Context<'_, S>) -> bool {
        // Whoever asks for more than usual gets all of it.
        let metadata = event.metadata();
        *metadata.level() > Level::INFO || self.passes(metadata.callsite(), Instant::now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_stays_a_line_and_gives_no_orders() {
        for (text, colours, expected) in [
            ("plain 世界", false, "plain 世界"),
            ("two\nlines\r\n", false, "two lines  "),
            ("\u{1b}[31mred", false, "\u{fffd}[31mred"),
            ("\u{1b}[2m\u{1b}[31mred", true, "\u{1b}[2m\u{1b}[31mred"),
            (
                "\u{1b}[2Jgone\u{1b}]0;t\u{7}",
                true,
                "\u{fffd}[2Jgone\u{fffd}]0;t\u{fffd}",
            ),
            ("\u{9b}31m\u{202e}", true, "\u{fffd}31m\u{fffd}"),
        ] {
            assert_eq!(plain(text, colours), expected, "{text:?}");
        }
        assert_eq!(indented("one\ntwo\u{1b}[m"), "one\n  two\u{fffd}[m");
    }
}
