//! `breakbulk explain`: what a code or a message means, why it came and what to do; rows of docs/ERRORS.md.

use clap::Args;

use crate::columns::{Column, Table};
use crate::failure::Failure;
use crate::output::Output;
use crate::{log, terminal};

/// docs/ERRORS.md, which is in no package of this program; a test keeps both equal.
const PAGE: &str = include_str!("../ERRORS.md");

/// The headings of the page, and what one of their rows is called.
const SECTIONS: [(&str, &str); 5] = [
    ("Close codes", "close code "),
    ("JSON-RPC errors", "JSON-RPC error "),
    ("HTTP statuses", "HTTP status "),
    ("Exit codes", "exit code "),
    ("Messages of the program", ""),
];

const COLUMNS: [Column; 2] = [Column::text("name"), Column::text("cause, or message")];

/// The fewest characters of a message by which its row is found.
const FRAGMENT: usize = 8;

#[derive(Args, Debug)]
pub(crate) struct Explain {
    /// A close code (1009), a JSON-RPC error (-32011), an HTTP status (413), an exit code (2), a name of the
    /// list, or a whole message in quotes [default: list all]
    #[arg(allow_negative_numbers = true, value_name = "CODE|NAME|MESSAGE")]
    what: Option<String>,
}

/// A row of the page.
struct Row {
    /// The words before the row's code, such as `close code `; empty for a message.
    kind: &'static str,
    anchor: &'static str,
    /// The code or message, the cause and (but for exit codes) the remedy.
    cells: Vec<String>,
}

impl Explain {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let rows = rows();
        let mut out = Output::open(None)?;
        let Some(what) = self.what else {
            list(&rows, &mut out)?;
            return out.finish();
        };
        let found = find(&rows, &what);
        if found.is_empty() {
            let shown: String = what.chars().take(80).collect();
            return Err(Failure::Usage(format!(
                "nothing is known about {shown:?}; breakbulk explain without an argument lists all names"
            )));
        }
        for (number, row) in found.into_iter().enumerate() {
            if number > 0 {
                out.line("")?;
            }
            row.print(&mut out)?;
        }
        out.finish()
    }
}

impl Row {
    fn is_message(&self) -> bool {
        self.kind.is_empty()
    }

    /// The name by which a user asks for the row.
    fn name(&self) -> &str {
        match self.is_message() {
            true => self.anchor,
            false => self.cells.first().map_or("", String::as_str),
        }
    }

    /// Its name, and its cause; a message says by itself what happened.
    fn summary(&self) -> [String; 2] {
        let text = self.cells.get(usize::from(!self.is_message()));
        [self.name().to_owned(), text.cloned().unwrap_or_default()]
    }

    fn print(&self, out: &mut Output) -> Result<(), Failure> {
        let labels: &[&str] = match self.cells.len() {
            2 => &["", "meaning "],
            _ => &["", "cause   ", "remedy  "],
        };
        for (label, cell) in labels.iter().zip(&self.cells) {
            let kind = if label.is_empty() { self.kind } else { "" };
            out.wrapped(&format!("{kind}{label}{cell}"), 8)?;
        }
        Ok(())
    }

    /// Whether the row is about this message: all that the row quotes of it is there.
    fn quotes(&self, message: &str) -> bool {
        let quoted = self.cells.first().filter(|_| self.is_message());
        quoted.is_some_and(|quoted| {
            quoted.split("; ").any(|one| {
                let mut parts = one.split('…').map(str::trim);
                let length: usize = parts.clone().map(str::len).sum();
                length >= FRAGMENT && parts.all(|part| message.contains(part))
            })
        })
    }
}

/// The rows that a code, a name or a message may mean.
fn find<'a>(rows: &'a [Row], what: &str) -> Vec<&'a Row> {
    let what = what.trim();
    let name = what.rsplit('#').next().unwrap_or(what);
    let is_meant = |row: &&Row| {
        row.anchor == name || !row.is_message() && row.name().trim_start_matches('-') == name
    };
    let mut found: Vec<&Row> = rows.iter().filter(is_meant).collect();
    found.extend(
        rows.iter()
            .filter(|row| row.name() == name && name.starts_with('-')),
    );
    if found.is_empty() {
        let anchor = log::anchor(what);
        found.extend(
            rows.iter()
                .filter(|row| Some(row.anchor) == anchor.as_deref()),
        );
        found.extend(rows.iter().filter(|row| row.quotes(what)));
    }
    found
}

fn list(rows: &[Row], out: &mut Output) -> Result<(), Failure> {
    for (heading, kind) in SECTIONS {
        out.line(heading)?;
        let rows: Vec<_> = rows.iter().filter(|row| row.kind == kind).collect();
        let mut table = Table::new(&COLUMNS, terminal::width());
        rows.iter().for_each(|row| table.measure(&row.summary()));
        table.settle();
        for row in rows {
            out.line(&table.row(row.summary()))?;
        }
        out.line("")?;
    }
    out.line("breakbulk explain NAME tells cause and remedy.")
}

fn rows() -> Vec<Row> {
    let mut kind = "";
    let mut rows = Vec::new();
    for line in PAGE.lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            let section = SECTIONS.iter().find(|(name, _)| *name == heading);
            kind = section.map_or("", |(_, kind)| kind);
        }
        let row = line.strip_prefix("| <a id=\"");
        let Some((anchor, rest)) = row.and_then(|row| row.split_once("\"></a>")) else {
            continue;
        };
        let cells = rest.trim_end().trim_end_matches('|').split(" | ");
        rows.push(Row {
            kind,
            anchor,
            cells: cells.map(|cell| plain(cell.trim())).collect(),
        });
    }
    rows
}

/// Markdown as text: without backticks, and of links the words alone.
fn plain(markdown: &str) -> String {
    let mut text = String::with_capacity(markdown.len());
    let mut rest = markdown;
    while let Some((before, link)) = rest.split_once('[') {
        let words = link.split_once("](");
        let Some((words, (_, after))) =
            words.and_then(|(words, rest)| Some((words, rest.split_once(')')?)))
        else {
            break;
        };
        text.push_str(before);
        text.push_str(words);
        rest = after;
    }
    text.push_str(rest);
    text.replace('`', "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_that_of_the_documentation() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/ERRORS.md");
        let page = std::fs::read_to_string(page).expect(page);
        assert!(page == PAGE, "cp docs/ERRORS.md crates/cli/ERRORS.md");
    }

    #[test]
    fn every_row_is_found_by_its_name_and_has_a_cause_and_a_remedy() {
        let rows = rows();
        assert_eq!(rows.len(), PAGE.matches("<a id=").count());
        for row in &rows {
            let is_complete = row.cells.len() == 3 || row.kind == "exit code ";
            assert!(is_complete, "{}: {:?}", row.anchor, row.cells);
            assert!(!row.cells.iter().any(String::is_empty), "{}", row.anchor);
            for name in [row.name(), row.anchor] {
                let found = find(&rows, name);
                assert!(found.iter().any(|it| it.anchor == row.anchor), "{name}");
            }
        }
    }

    #[test]
    fn codes_names_and_messages_are_found() {
        for (what, expected) in [
            ("1009", &["close-1009"][..]),
            ("-32011", &["error-32011"]),
            ("32011", &["error-32011"]),
            ("413", &["http-413"]),
            ("2", &["exit-2"]),
            ("#in-use", &["in-use"]),
            ("docs/ERRORS.md#close-1009", &["close-1009"]),
            ("the target closed with 1009: too large", &["close-1009"]),
            (
                "--listen: cannot listen at 127.0.0.1:80: Address already in use (os error 98)",
                &["in-use"],
            ),
            ("nothing", &[]),
            ("4999", &[]),
            ("", &[]),
        ] {
            let rows = rows();
            let found: Vec<_> = find(&rows, what).iter().map(|row| row.anchor).collect();
            assert_eq!(found, expected, "{what}");
        }
    }

    #[test]
    fn markdown_becomes_text() {
        for (markdown, text) in [
            (
                "`--preset NAME` or [-32000](#error-32000) with",
                "--preset NAME or -32000 with",
            ),
            ("[a] b", "[a] b"),
            ("", ""),
        ] {
            assert_eq!(plain(markdown), text);
        }
    }
}
