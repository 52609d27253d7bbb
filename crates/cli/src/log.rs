//! Logging to standard error: how much, and in which form.
//!
//! Anybody who can connect can cause log lines, and parts of their text come from them. So no line holds
//! control characters, and of each kind only so many lines are written in a second.

mod anchor;
mod json;
mod plain;
mod throttle;

use std::io::{self, Write};
use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

use breakbulk::gateway::record::clock;
use breakbulk::net::process::set_stderr_format;
use clap::{ArgAction, Args, ValueEnum};
use tracing::Level;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;
use tracing_subscriber::prelude::*;

pub(crate) use self::anchor::anchor;
use self::json::JsonLines;
pub(crate) use self::plain::indented;
use self::plain::plain;
use self::throttle::Throttle;
use crate::failure::Failure;
use crate::terminal::{self, wrap};

/// The form of the lines of this process; text until [`LogOptions::start`] was called.
static FORMAT: OnceLock<LogFormat> = OnceLock::new();

/// What a command that logs can be told about its log.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LogOptions {
    /// Log more; -vv logs still more, and what the libraries in this program report
    #[arg(short, long, action = ArgAction::Count, conflicts_with_all = ["quiet", "log"])]
    verbose: u8,
    /// Log only errors
    #[arg(short, long, conflicts_with = "log")]
    quiet: bool,
    /// What to log, as LEVEL, TARGET=LEVEL or [SPAN{FIELD=VALUE}]=LEVEL, several with commas:
    /// warn,breakbulk_gateway=debug, or one session: info,[session{session=7kq3-12}]=trace
    #[arg(long, value_name = "FILTER")]
    log: Option<String>,
    /// The form of the log, and of everything else on the standard error
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t)]
    log_format: LogFormat,
}

/// How a log line is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// Lines for people; with colours at a terminal, unless NO_COLOR is set
    #[default]
    Text,
    /// A JSON object a line: timestamp, level, target, message, and a member for each field
    Json,
}

impl LogOptions {
    /// The options that a file asks for.
    ///
    /// # Errors
    /// If it is no filter, or no format.
    pub(crate) fn of_file(filter: Option<String>, format: Option<&str>) -> Result<Self, String> {
        let format = format.map(|format| LogFormat::from_str(format, false));
        let format = format.transpose();
        let options = Self {
            log: filter,
            log_format: format
                .map_err(|_| "the format of the log is text or json".to_owned())?
                .unwrap_or_default(),
            ..Self::default()
        };
        let filter = options.filter(Level::INFO);
        filter.map_err(|failure| failure.to_string())?;
        Ok(options)
    }

    /// Whether anything was asked for.
    pub(crate) fn is_given(&self) -> bool {
        *self != Self::default()
    }

    /// Starts logging. It goes to standard error, since standard output may carry a program's messages.
    /// `usual` is the level without any option.
    ///
    /// # Errors
    /// If `--log` is no filter.
    pub(crate) fn start(&self, usual: Level) -> Result<(), Failure> {
        let filter = self.filter(usual)?;
        let _ = FORMAT.set(self.log_format);
        let (text, json) = match self.log_format {
            LogFormat::Text => {
                let colours = terminal::error_has_colours();
                let width = terminal::error_width();
                let lines = tracing_subscriber::fmt::layer()
                    .with_writer(move || PlainLines { colours, width })
                    .with_ansi(colours)
                    // A person at a terminal knows the day, and has little room.
                    .with_timer(Clock {
                        with_day: width.is_none(),
                    })
                    .with_target(false);
                (Some(lines.with_filter(Throttle::new(left_out))), None)
            }
            LogFormat::Json => {
                set_stderr_format(|line| json::line(Level::INFO, line, &[("from", "command")]));
                let lines = JsonLines::new(write_line);
                let lines = lines.with_filter(Throttle::new(left_out));
                (None, Some(lines))
            }
        };
        // If a subscriber is set already, it stays.
        let _ = tracing_subscriber::registry()
            .with(filter)
            .with(text)
            .with(json)
            .try_init();
        Ok(())
    }

    fn filter(&self, usual: Level) -> Result<EnvFilter, Failure> {
        let directives = self.directives(usual);
        EnvFilter::builder().parse(&directives).map_err(|_| {
            let given = plain(&directives, false);
            Failure::Usage(format!(
                "--log {given}: this is no filter; give LEVEL, TARGET=LEVEL or [SPAN{{FIELD=VALUE}}]=LEVEL, \
                 several with commas, where LEVEL is off, error, warn, info, debug or trace"
            ))
        })
    }

    /// The filter as text.
    fn directives(&self, usual: Level) -> String {
        match (&self.log, self.verbose) {
            (Some(log), _) => log.clone(),
            (None, _) if self.quiet => "error".to_owned(),
            // Only errors of other libraries.
            (None, 0) => format!("error,breakbulk={usual}"),
            (None, 1) => "error,breakbulk=debug".to_owned(),
            (None, _) => "info,breakbulk=trace".to_owned(),
        }
    }
}

/// Tells an address, whatever else is logged: scripts wait for such lines. `what` is as "listening on".
pub(crate) fn address(what: &str, address: &str) {
    match is_json() {
        true => write_line(&json::line(Level::INFO, what, &[("address", address)])),
        false => write_line(&format!("{what} {}", plain(address, false))),
    }
}

/// Tells why the program failed, and which command explains the code that it names.
pub(crate) fn failure(failure: &Failure) {
    let mut text = failure.to_string();
    if let Some(command) = anchor::command(&text) {
        text.push_str(&format!(" ({command})"));
    }
    match is_json() {
        true => write_line(&json::line(Level::ERROR, &text, &[])),
        false => {
            let text = format!("breakbulk: {}", indented(&text));
            let width = terminal::error_width();
            let lines = text.lines().map(|line| wrap(line, width, 2));
            write_line(&lines.collect::<Vec<_>>().join("\n"));
        }
    }
}

fn left_out(lines: u32) {
    let text = format!("{lines} lines like the next one were left out");
    match is_json() {
        true => write_line(&json::line(Level::WARN, &text, &[])),
        false => write_line(&format!("({text})")),
    }
}

fn is_json() -> bool {
    FORMAT.get() == Some(&LogFormat::Json)
}

/// Writes each event as one line.
struct PlainLines {
    /// Whether the log itself has colours.
    colours: bool,
    /// The width of the terminal.
    width: Option<usize>,
}

/// The time in UTC: `2026-11-18T11:06:40.123456Z`, or `11:06:40.123` without the day.
struct Clock {
    with_day: bool,
}

impl FormatTime for Clock {
    fn format_time(&self, writer: &mut Writer<'_>) -> std::fmt::Result {
        if self.with_day {
            return tracing_subscriber::fmt::time::SystemTime.format_time(writer);
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.unwrap_or_default().as_micros();
        writer.write_str(&clock(now.try_into().unwrap_or(u64::MAX)))
    }
}

impl Write for PlainLines {
    /// Writes an event: the layer passes each of them in one call.
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(event);
        let mut line = plain(text.trim_end_matches('\n'), self.colours);
        if let Some(command) = anchor::command_for_end(&line) {
            line.push_str(&format!(" ({command})"));
        }
        let line = wrap(&line, self.width, 2);
        writeln!(io::stderr().lock(), "{line}")?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// Writes a line; if standard error is gone, the failure cannot be reported to anybody.
fn write_line(line: &str) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        log: LogOptions,
    }

    // LOG-1
    #[test]
    fn options_become_a_filter_or_an_error_of_one_line() {
        for (options, expected) in [
            (&[][..], Ok("error,breakbulk=INFO")),
            (&["-v"], Ok("error,breakbulk=debug")),
            (&["--verbose"], Ok("error,breakbulk=debug")),
            (&["-vv"], Ok("info,breakbulk=trace")),
            (&["-vvv"], Ok("info,breakbulk=trace")),
            (&["-q"], Ok("error")),
            (&["--log", "warn"], Ok("warn")),
            (
                &["--log", "off,breakbulk_gateway::pump=debug"],
                Ok("off,breakbulk_gateway::pump=debug"),
            ),
            (
                &["--log", "[session{session=7kq3-12}]=trace"],
                Ok("[session{session=7kq3-12}]=trace"),
            ),
            (
                &["--log", "breakbulk=loud"],
                Err("--log breakbulk=loud: this is no filter"),
            ),
            (&["--log", "a=b=c"], Err("--log a=b=c: this is no filter")),
            (
                &["--log", "[span{=\n"],
                Err("--log [span{= : this is no filter"),
            ),
        ] {
            let line = std::iter::once("command").chain(options.iter().copied());
            let options = Command::try_parse_from(line).expect("options").log;
            match (options.filter(Level::INFO), expected) {
                (Ok(_), Ok(text)) => assert_eq!(options.directives(Level::INFO), text),
                (Err(failure), Err(text)) => {
                    assert_eq!(failure.exit_code(), 2);
                    let told = failure.to_string();
                    assert!(
                        told.starts_with(text) && told.lines().count() == 1,
                        "{told}"
                    );
                }
                (filter, expected) => panic!("{filter:?} instead of {expected:?}"),
            }
        }
        for wrong in [
            &["-v", "-q"][..],
            &["-v", "--log", "info"],
            &["-q", "--log", "info"],
        ] {
            let line = std::iter::once("command").chain(wrong.iter().copied());
            assert!(Command::try_parse_from(line).is_err(), "{wrong:?}");
        }
    }
}
