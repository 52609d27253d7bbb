//! What well-known services, servers and receivers let through, by name.
//!
//! The rows are in `preset/table.rs`. Where a source writes KB or MB and does not say which, the smaller
//! reading (1,000s) is taken: a message that is cut a little early still arrives, one that is a little too
//! long ends the connection.

mod table;

use std::fmt;

use crate::Cap;

/// The largest frame that our own endpoints accept by default.
const OWN_LIMIT: usize = 16 << 20;

/// The limits of one service, server or receiver, and where they are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Preset {
    /// The name to select it by.
    pub name: &'static str,
    /// What it is, for a person.
    pub title: &'static str,
    /// Whether messages pass through it or end there.
    pub kind: PresetKind,
    /// The largest message, in bytes; `None` if it has no limit of its own, or none that is verified.
    pub message: Option<usize>,
    /// The largest WebSocket frame, in bytes: a larger message must travel in fragments.
    pub fragment: Option<usize>,
    /// Whether binary messages pass; `None` if that is not verified.
    pub binary: Option<bool>,
    /// What happens to a larger message; `None` if that is not verified.
    pub above: Option<&'static str>,
    /// What else to know; may be empty.
    pub note: &'static str,
    /// Where the limits were read.
    pub source: &'static str,
    /// What kind of source that is.
    pub evidence: Evidence,
    /// The day on which the source was read.
    pub read_on: &'static str,
}

/// Whether messages pass through something or end there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PresetKind {
    /// A service, proxy or broker on the way.
    Path,
    /// A program or library that takes messages, by one of these carriers.
    Receiver(&'static [Carrier]),
}

/// How a receiver gets its messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Carrier {
    /// Its standard input, a message in each line. The line break counts.
    Lines,
    /// WebSocket messages.
    WebSocket,
    /// The body of an HTTP POST.
    Post,
    /// The events of an HTTP stream.
    EventStream,
}

impl fmt::Display for Carrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Lines => "standard streams",
            Self::WebSocket => "WebSockets",
            Self::Post => "HTTP POST bodies",
            Self::EventStream => "HTTP event streams",
        })
    }
}

/// What kind of source a row was read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Evidence {
    /// The source code of the released package.
    Package,
    /// The official documentation, or the project's own source.
    Documentation,
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Package => "released package",
            Self::Documentation => "documentation",
        })
    }
}

impl Preset {
    /// The row of that name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|preset| preset.name == name).copied()
    }

    /// Whether messages pass through it, rather than end there.
    pub fn is_path(&self) -> bool {
        self.kind == PresetKind::Path
    }

    /// The cap for a link: the path's limit, or our own endpoints' default if that is smaller. Where only
    /// a limit of frames is known, messages are kept below that as well.
    pub fn cap(&self) -> Cap {
        let limit = self.message.or(self.fragment).unwrap_or(OWN_LIMIT);
        Cap::frame(limit.min(OWN_LIMIT))
    }

    /// Its title and its limits, as one line for a person.
    pub fn about(&self) -> String {
        let limits = match (self.message, self.fragment) {
            (None, None) => return self.title.to_owned(),
            (Some(message), None) => format!("messages of {}", exact_size(message)),
            (None, Some(frame)) => format!("frames of {}", exact_size(frame)),
            (Some(message), Some(frame)) => format!(
                "messages of {} in frames of {}",
                exact_size(message),
                exact_size(frame)
            ),
        };
        format!("{}: {limits}", self.title)
    }
}

impl From<Preset> for Cap {
    fn from(preset: Preset) -> Self {
        preset.cap()
    }
}

/// A size in the largest unit that divides it, so that nothing is rounded: `10 MiB`, `128 KB`, `65535`.
pub fn exact_size(bytes: usize) -> String {
    let units = [
        (1 << 20, "MiB"),
        (1_000_000, "MB"),
        (1000, "KB"),
        (1 << 10, "KiB"),
    ];
    let unit = units
        .into_iter()
        .find(|(unit, _)| bytes > 0 && bytes.is_multiple_of(*unit));
    match unit {
        Some((unit, name)) => format!("{} {name}", bytes / unit),
        None => bytes.to_string(),
    }
}

#[cfg(test)]
mod tests;
