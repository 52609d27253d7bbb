//! The text of a file, and how a mistake in it is shown: place, line and caret.

use std::fmt::Write;
use std::ops::Range;

use super::super::settings::Problem;

/// How much of a long line is shown.
const WIDEST: usize = 100;

/// So many mistakes are shown; the rest is counted.
const MOST: usize = 20;

/// A file that was read.
#[derive(Debug)]
pub(in super::super) struct Source {
    name: String,
    text: String,
}

impl Source {
    pub(super) fn new(name: String, text: String) -> Self {
        Self { name, text }
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Each mistake in one line: `FILE:LINE:COLUMN: what is wrong`.
    pub(in super::super) fn lines(&self, problems: &[Problem]) -> Vec<String> {
        let shown = problems.iter().take(MOST);
        let mut lines: Vec<String> = shown.map(|problem| self.line(problem)).collect();
        lines.extend(more(problems));
        lines
    }

    /// Each mistake as in [`lines`](Self::lines), and below it the line of the file with a caret.
    pub(in super::super) fn show(&self, problems: &[Problem]) -> String {
        let mut shown = Vec::new();
        for problem in problems.iter().take(MOST) {
            shown.push(self.line(problem));
            let marked = problem.at.as_ref().map(|at| self.marked(at));
            shown.extend(marked.into_iter().flatten());
        }
        shown.extend(more(problems));
        shown.join("\n")
    }

    fn line(&self, problem: &Problem) -> String {
        let mut line = self.name.clone();
        if let Some(at) = &problem.at {
            let place = self.place(at.start);
            // Writing to a text does not fail.
            let _ = write!(line, ":{}:{}", place.line, place.column);
        }
        format!("{line}: {}", problem.text)
    }

    /// The line of a place, and a line with carets below it.
    fn marked(&self, at: &Range<usize>) -> [String; 2] {
        let place = self.place(at.start);
        let line = self.text[place.begin..].lines().next().unwrap_or_default();
        let line = hide_secrets(line);
        let letters: Vec<char> = line.chars().collect();
        let column = (place.column - 1).min(letters.len());
        let marked = self.text.get(at.clone()).unwrap_or_default();
        let marked = marked.lines().next().unwrap_or_default().chars().count();
        let first = match column + WIDEST / 4 {
            end if end > WIDEST => end - WIDEST,
            _ => 0,
        };
        let window = &letters[first..letters.len().min(first + WIDEST)];
        let carets = marked.clamp(1, (window.len() + 1).saturating_sub(column - first).max(1));
        let number = place.line.to_string();
        let window: String = window.iter().collect();
        let (before, after) = (
            if first > 0 { "…" } else { "" },
            if first + WIDEST < letters.len() {
                "…"
            } else {
                ""
            },
        );
        let gap = " ".repeat(before.chars().count() + column - first);
        [
            format!("{number} | {before}{window}{after}")
                .trim_end()
                .to_owned(),
            format!("{} | {gap}{}", " ".repeat(number.len()), "^".repeat(carets)),
        ]
    }

    fn place(&self, at: usize) -> Place {
        // A place may lie behind the end of the text.
        let mut at = at.min(self.text.len());
        while !self.text.is_char_boundary(at) {
            at -= 1;
        }
        let before = &self.text[..at];
        let begin = before.rfind('\n').map_or(0, |at| at + 1);
        Place {
            begin,
            line: before.matches('\n').count() + 1,
            column: before[begin..].chars().count() + 1,
        }
    }
}

/// A place in a text; lines and columns are counted from 1, columns in characters.
struct Place {
    /// The byte at which the line begins.
    begin: usize,
    line: usize,
    column: usize,
}

fn more(problems: &[Problem]) -> Option<String> {
    let more = problems.len().checked_sub(MOST).filter(|more| *more > 0)?;
    Some(format!("and {more} more"))
}

/// Replaces passwords in addresses, and tokens and keys that should be in files, by stars: what is shown may
/// end in a log that others read.
fn hide_secrets(line: &str) -> String {
    let mut letters: Vec<char> = line.chars().collect();
    let mut hide = |from: usize, ends: &[char], only_before: Option<char>| {
        let length = letters[from..]
            .iter()
            .take_while(|it| !ends.contains(it))
            .count();
        let end = from + length;
        if only_before.is_none_or(|wanted| letters.get(end) == Some(&wanted)) {
            letters[from..end].fill('*');
        }
    };
    let starts = |word: &str| -> Vec<usize> {
        let found = line.match_indices(word);
        found
            .map(|(at, _)| line[..at + word.len()].chars().count())
            .collect()
    };
    for from in starts("://") {
        hide(from, &['@', '/', '"', '\'', ' '], Some('@'));
    }
    for word in ["token=", "password=", "nsec1"] {
        for from in starts(word) {
            hide(from, &['&', '"', '\'', ' '], None);
        }
    }
    letters.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    // OPS-1
    #[test]
    fn a_mistake_is_shown_with_its_line_and_a_caret() {
        let text = "a = 1\nlisten = \"nats://me:secret@h/s?token=abc&x=1\" # é\n\tüü = ?";
        let source = Source::new("f.toml".to_owned(), text.to_owned());
        let at = |what: &str| {
            let at = text.find(what).unwrap();
            Some(at..at + what.len())
        };
        for (at, expected) in [
            (at("a"), "f.toml:1:1: wrong\n1 | a = 1\n  | ^"),
            (
                at("\"nats://me:secret@h/s?token=abc&x=1\""),
                "f.toml:2:10: wrong\n2 | listen = \"nats://*********@h/s?token=***&x=1\" # é\n  |          ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^",
            ),
            (
                at("?"),
                "f.toml:2:31: wrong\n2 | listen = \"nats://*********@h/s?token=***&x=1\" # é\n  |                               ^",
            ),
            (at("üü"), "f.toml:3:2: wrong\n3 | \tüü = ?\n  |  ^^"),
            (
                Some(1000..1001),
                "f.toml:3:8: wrong\n3 | \tüü = ?\n  |        ^",
            ),
            (None, "f.toml: wrong"),
        ] {
            let text = "wrong".to_owned();
            let shown = source.show(&[Problem {
                at: at.clone(),
                text,
            }]);
            assert_eq!(shown, expected, "{at:?}");
        }
    }

    #[test]
    fn of_a_long_line_and_of_many_mistakes_a_part_is_shown() {
        let text = format!("x = \"{}\" wrong \"{}\"", "a".repeat(200), "b".repeat(200));
        let source = Source::new("f".to_owned(), text.clone());
        let from = text.find("wrong").unwrap();
        let problem = Problem {
            at: Some(from..from + 5),
            text: "no".to_owned(),
        };
        let shown = source.show(std::slice::from_ref(&problem));
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines[0], "f:1:208: no");
        let caret = lines[2].chars().position(|it| it == '^').unwrap();
        let marked: String = lines[1].chars().skip(caret).take(5).collect();
        assert_eq!((marked.as_str(), lines[1].chars().count()), ("wrong", 106));
        let many = vec![problem; MOST + 3];
        assert_eq!(source.lines(&many).len(), MOST + 1);
        assert!(source.show(&many).ends_with("\nand 3 more"));
    }
}
