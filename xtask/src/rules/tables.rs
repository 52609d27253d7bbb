//! Checks that every row of `docs/THREATS.md` and `docs/FAILURES.md` names tests that exist, and that
//! `docs/FAILURES.md` says of every endpoint, for every way to fail, what happens there, and nothing that no
//! test asserts.

use anyhow::{Result, bail};

use super::named_tests::{lines_of, quoted, read};

const THREATS: &str = "docs/THREATS.md";
const FAILURES: &str = "docs/FAILURES.md";

/// The section of `docs/FAILURES.md` that lists the endpoints: `- **AHP host**: …`.
const ENDPOINTS: &str = "Endpoints";

/// The text in a cell whose claim no test asserts.
const NOT_TESTED: &str = "not tested";

pub(super) fn check() -> Result<()> {
    let found = |path: &str| read(path).ok();
    let failures = read(FAILURES)?;
    let mut wrong = without_tests(THREATS, &read(THREATS)?, found);
    wrong.extend(without_tests(FAILURES, &failures, found));
    wrong.extend(not_covered(&failures));
    wrong.extend(not_tested(&failures));
    if !wrong.is_empty() {
        bail!("{}", wrong.join("\n"));
    }
    println!("{THREATS}: every row names tests that are there");
    println!("{FAILURES}: every row names tests that are there, and every cell is tested");
    Ok(())
}

/// The rows of a document's tables, without their heads: the cells of each.
fn rows(text: &str) -> impl Iterator<Item = Row<'_>> {
    let mut head = 0;
    let mut lines = text.lines().peekable();
    std::iter::from_fn(move || {
        loop {
            let line = lines.next()?;
            let Some(inside) = line.strip_prefix("| ") else {
                continue;
            };
            let cells: Vec<_> = inside.trim_end_matches('|').split('|').collect();
            if lines.peek().is_some_and(|next| next.starts_with("|---")) {
                head = cells.len();
                continue;
            }
            return Some(Row { line, cells, head });
        }
    })
}

struct Row<'a> {
    line: &'a str,
    cells: Vec<&'a str>,
    /// The number of cells in the head of its table.
    head: usize,
}

impl<'a> Row<'a> {
    fn tests(&self) -> &'a str {
        self.cells.last().map_or("", |cell| cell.trim())
    }
}

/// The rows whose last cell names no test, or a test that does not exist.
fn without_tests(document: &str, text: &str, read: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let mut wrong = Vec::new();
    for row in rows(text) {
        let tests: Vec<_> = quoted(row.tests()).collect();
        if tests.is_empty() && !row.tests().starts_with("not tested: ") {
            wrong.push(format!("{document}: a row names no test: {}", row.line));
        }
        for test in tests {
            if let Err(why) = lines_of(test, &read, |_| ()) {
                wrong.push(format!("{document}: {test}: {why}"));
            }
        }
        if row.cells.len() != row.head {
            wrong.push(format!(
                "{document}: {} cells in a table of {}: {}",
                row.cells.len(),
                row.head,
                row.line
            ));
        }
    }
    wrong
}

/// The sections of a document: title and text.
fn sections(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let parts = text.split("\n## ").skip(1);
    parts.map(|part| part.split_once('\n').unwrap_or((part, "")))
}

/// The endpoints that a way to fail does not mention, neither in the first cell of a row nor below the table.
fn not_covered(failures: &str) -> Vec<String> {
    let endpoints: Vec<&str> = sections(failures)
        .filter(|(title, _)| *title == ENDPOINTS)
        .flat_map(|(_, text)| text.lines())
        .filter_map(|line| line.strip_prefix("- **")?.split_once("**"))
        .map(|(name, _)| name)
        .collect();
    let mut wrong = Vec::new();
    if endpoints.is_empty() {
        wrong.push(format!("{FAILURES}: there is no list of endpoints"));
    }
    for (title, text) in sections(failures).filter(|(title, _)| *title != ENDPOINTS) {
        let mut told: Vec<&str> = rows(text).map(|row| row.cells[0]).collect();
        told.extend(text.lines().filter(|line| !line.starts_with('|')));
        for endpoint in &endpoints {
            if !told.iter().any(|text| text.contains(endpoint)) {
                wrong.push(format!("{FAILURES}: {title}: not a word on {endpoint}"));
            }
        }
    }
    wrong
}

/// The rows with a cell that no test asserts.
fn not_tested(failures: &str) -> Vec<String> {
    rows(failures)
        .filter(|row| row.line.contains(NOT_TESTED))
        .map(|row| format!("{FAILURES}: a cell is not tested: {}", row.line))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::named_tests::SAMPLE;
    use super::*;

    #[test]
    fn a_row_names_a_test_that_is_there() {
        let read = |path: &str| (path == "a.rs").then(|| SAMPLE.to_owned());
        for (row, why) in [
            ("| floods | a limit | `a.rs::shown` |", ""),
            ("| floods | a limit | not tested: why |", ""),
            ("| floods | a limit | none |", "names no test"),
            ("| floods | a limit | `a.rs::hidden` |", "no such test"),
            ("| floods | a limit | `b.rs::shown` |", "no such file"),
            ("| floods | `a.rs::shown` |", "2 cells in a table of 3"),
        ] {
            let text = format!("| attack | bound | tests |\n|---|---|---|\n{row}\n");
            let wrong = without_tests(THREATS, &text, read);
            match why {
                "" => assert_eq!(wrong, Vec::<String>::new(), "{row}"),
                why => assert!(wrong.len() == 1 && wrong[0].contains(why), "{wrong:?}"),
            }
        }
    }

    const TABLE: &str =
        "\n## Silence\n\n| endpoint | sender | receiver | test |\n|---|---|---|---|\n";

    #[test]
    fn every_way_to_fail_speaks_of_every_endpoint() {
        let endpoints = "# Failures\n\n## Endpoints\n\n- **host**: one\n- **client**: two\n";
        let host = "| host | an error | `client` (not tested) | `a.rs::shown` |\n";
        for (rest, missing) in [
            (format!("{host}\nNot at the client: it waits.\n"), 0),
            (format!("{host}| client | a | b | not tested: c |\n"), 0),
            (host.to_owned(), 1),
            (String::new(), 2),
        ] {
            let wrong = not_covered(&format!("{endpoints}{TABLE}{rest}"));
            assert_eq!(wrong.len(), missing, "{rest}: {wrong:?}");
        }
        assert_eq!(not_covered(TABLE).len(), 1, "no endpoints at all");
    }

    #[test]
    fn cells_without_a_test_are_found() {
        let rows = "| host | a | b (not tested) | `a.rs::shown` |\n| host | a | b | not tested: c |\n| host | a | b | `a.rs::shown` |\n";
        assert_eq!(not_tested(&format!("{TABLE}{rows}")).len(), 2);
    }
}
