//! What the terminal can show: its width, colours and marks; and text that is laid out for it.

use std::ffi::OsStr;
use std::io::{self, IsTerminal};

use terminal_size::{Width, terminal_size_of};

/// Narrower terminals get lines of this width.
const NARROWEST: usize = 40;

const RED: &str = "\x1b[31m";
const GREEN: &str = "\x1b[32m";
const PLAIN: &str = "\x1b[0m";

/// The width of standard output, if it is a terminal or `COLUMNS` is set; else lines may have any length,
/// since a program reads them.
pub(crate) fn width() -> Option<usize> {
    let own = || terminal_size_of(io::stdout()).map(|(Width(width), _)| width.into());
    chosen(std::env::var("COLUMNS").ok().as_deref(), own)
}

/// The same for standard error.
pub(crate) fn error_width() -> Option<usize> {
    let own = || terminal_size_of(io::stderr()).map(|(Width(width), _)| width.into());
    chosen(std::env::var("COLUMNS").ok().as_deref(), own)
}

fn chosen(columns: Option<&str>, own: impl FnOnce() -> Option<usize>) -> Option<usize> {
    let asked = columns.and_then(|columns| columns.parse().ok());
    let width = asked.filter(|width| *width > 0).or_else(own);
    width.map(|width| width.max(NARROWEST))
}

/// Whether standard output is shown in colours.
pub(crate) fn output_has_colours() -> bool {
    has_colours(io::stdout().is_terminal())
}

/// Whether standard error is shown in colours.
pub(crate) fn error_has_colours() -> bool {
    has_colours(io::stderr().is_terminal())
}

fn has_colours(is_terminal: bool) -> bool {
    let [no_color, term] = ["NO_COLOR", "TERM"].map(std::env::var_os);
    colours(is_terminal, no_color.as_deref(), term.as_deref())
}

/// At a terminal that knows colours, unless `NO_COLOR` is there and not empty.
fn colours(is_terminal: bool, no_color: Option<&OsStr>, term: Option<&OsStr>) -> bool {
    is_terminal && no_color.is_none_or(OsStr::is_empty) && term != Some(OsStr::new("dumb"))
}

/// How a result is marked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Marks {
    /// Signs in colours.
    Coloured,
    /// Signs.
    Signs,
    /// Words, for files and programs.
    Words,
}

impl Marks {
    /// For standard output.
    pub(crate) fn of_output() -> Self {
        match io::stdout().is_terminal() {
            true if output_has_colours() => Self::Coloured,
            true => Self::Signs,
            false => Self::Words,
        }
    }

    /// The mark of what worked; it is as wide as that of what failed.
    pub(crate) fn good(self) -> String {
        match self {
            Self::Coloured => format!("{GREEN}✓{PLAIN}"),
            Self::Signs => "✓".to_owned(),
            Self::Words => "ok  ".to_owned(),
        }
    }

    /// The mark of what failed.
    pub(crate) fn bad(self) -> String {
        match self {
            Self::Coloured => format!("{RED}✗{PLAIN}"),
            Self::Signs => "✗".to_owned(),
            Self::Words => "FAIL".to_owned(),
        }
    }
}

/// Breaks a line between words so that it fits; all lines but the first are indented. A word that is too
/// long has a line of its own, and is cut where it must be.
pub(crate) fn wrap(line: &str, width: Option<usize>, indent: usize) -> String {
    let Some(width) = width.filter(|width| shown(line) > *width) else {
        return line.to_owned();
    };
    let indent = " ".repeat(indent.min(width / 2));
    let mut out = String::with_capacity(line.len() + 16);
    let mut used = 0;
    for (gap, word) in words(line) {
        if used > 0 && used + gap + shown(word) > width {
            out.push('\n');
            out.push_str(&indent);
            used = indent.len();
        } else {
            out.push_str(&" ".repeat(gap));
            used += gap;
        }
        let mut rest = word;
        while used + shown(rest) > width && !rest.contains('\x1b') {
            let taken = rest.char_indices().nth((width - used).max(1));
            let (now, later) = rest.split_at(taken.map_or(rest.len(), |(at, _)| at));
            out.push_str(now);
            out.push('\n');
            out.push_str(&indent);
            used = indent.len();
            rest = later;
        }
        out.push_str(rest);
        used += shown(rest);
    }
    out
}

/// How many characters of the terminal a text takes: control sequences for colours take none.
fn shown(text: &str) -> usize {
    let mut parts = text.split('\x1b');
    let first = parts.next().map_or(0, |part| part.chars().count());
    let others = parts.map(|part| {
        let after = part.find('m').map_or("", |end| &part[end + 1..]);
        after.chars().count()
    });
    first + others.sum::<usize>()
}

/// The words of a line, each with the number of spaces before it.
fn words(line: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut rest = line;
    std::iter::from_fn(move || {
        let word = rest.trim_start_matches(' ');
        let gap = rest.len() - word.len();
        let end = word.find(' ').unwrap_or(word.len());
        rest = &word[end..];
        (end > 0).then_some((gap, &word[..end]))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    // LOG-2
    #[test]
    fn colours_are_for_terminals_whose_user_wants_them() {
        for (is_terminal, no_color, term, expected) in [
            (true, None, Some("xterm"), true),
            (true, None, None, true),
            (true, Some(""), Some("xterm"), true),
            (true, Some("1"), Some("xterm"), false),
            (true, Some("0"), Some("xterm"), false),
            (true, None, Some("dumb"), false),
            (false, None, Some("xterm"), false),
            (false, Some("1"), Some("xterm"), false),
        ] {
            let [no_color, term] = [no_color, term].map(|it| it.map(OsStr::new));
            assert_eq!(
                colours(is_terminal, no_color, term),
                expected,
                "{is_terminal} {no_color:?} {term:?}"
            );
        }
    }

    #[test]
    fn the_width_is_asked_for_or_the_terminals() {
        for (columns, own, expected) in [
            (None, None, None),
            (None, Some(100), Some(100)),
            (Some("80"), None, Some(80)),
            (Some("80"), Some(100), Some(80)),
            (Some("wide"), Some(100), Some(100)),
            (Some("0"), None, None),
            (Some("7"), None, Some(NARROWEST)),
            (None, Some(1), Some(NARROWEST)),
        ] {
            assert_eq!(chosen(columns, || own), expected, "{columns:?} {own:?}");
        }
    }

    #[test]
    fn lines_are_broken_between_words() {
        for (line, width, indent, expected) in [
            ("one two three", None, 2, "one two three"),
            ("one two three", Some(13), 2, "one two three"),
            ("one two three", Some(12), 2, "one two\n  three"),
            ("  one two", Some(6), 2, "  one\n  two"),
            ("a  b cc", Some(5), 0, "a  b\ncc"),
            ("abcdefghij", Some(4), 1, "abcd\n efg\n hij"),
            ("x abcdefghij", Some(6), 2, "x\n  abcd\n  efgh\n  ij"),
            ("äöü äöü", Some(3), 0, "äöü\näöü"),
            ("\x1b[31mred\x1b[0m x", Some(5), 0, "\x1b[31mred\x1b[0m x"),
            ("\x1b[31mred\x1b[0m x", Some(4), 0, "\x1b[31mred\x1b[0m\nx"),
        ] {
            assert_eq!(wrap(line, width, indent), expected, "{line:?} {width:?}");
        }
    }
}
