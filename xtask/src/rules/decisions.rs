//! Checks that every rule of `docs/DECISIONS.md` has a row in `docs/RULES.md`, and that the tests of the row
//! exist and cite the rule.

use std::collections::BTreeMap;

use anyhow::{Result, bail};

use super::named_tests::{lines_of, quoted, read};

const DECISIONS: &str = "docs/DECISIONS.md";
const TABLE: &str = "docs/RULES.md";

/// Where a rule is tested.
enum Tested {
    /// `path::function`, or `path::"case"` for a case of a table.
    By(Vec<String>),
    /// Not at all; the row says why.
    Not,
}

pub(crate) fn check() -> Result<()> {
    let wrong = wrong(&read(DECISIONS)?, &read(TABLE)?, |path| read(path).ok());
    if !wrong.is_empty() {
        bail!("{}", wrong.join("\n"));
    }
    println!("{TABLE}: every rule of {DECISIONS} is there, and every test cites its rule");
    Ok(())
}

/// All errors, one sentence each.
fn wrong(decisions: &str, table: &str, read: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut rows = BTreeMap::new();
    for (id, tested) in table.lines().filter_map(row) {
        match tested {
            Some(tested) if !rows.contains_key(id) => drop(rows.insert(id, tested)),
            Some(_) => wrong.push(format!("{TABLE}: {id} has two rows")),
            None => wrong.push(format!(
                "{TABLE}: {id} names no test: write `path::name`, or \"not tested: \" and why"
            )),
        }
    }
    let ids: Vec<&str> = decisions.lines().filter_map(rule).collect();
    for (at, id) in ids.iter().enumerate() {
        if ids[..at].contains(id) {
            wrong.push(format!("{DECISIONS}: {id} is used twice"));
        }
        if !rows.contains_key(id) && !wrong.iter().any(|one| one.contains(&format!(" {id} "))) {
            wrong.push(format!("{TABLE}: {id} has no row"));
        }
    }
    for (id, tested) in &rows {
        if !ids.contains(id) {
            wrong.push(format!("{TABLE}: {id} is no rule of {DECISIONS}"));
        }
        let Tested::By(tests) = tested else { continue };
        for test in tests {
            if let Err(why) = cited(id, test, &read) {
                wrong.push(format!("{TABLE}: {id}: {test}: {why}"));
            }
        }
    }
    wrong
}

/// The id of a rule: `- **AHP-7** Close codes …`.
fn rule(line: &str) -> Option<&str> {
    let (id, _) = line.strip_prefix("- **")?.split_once("** ")?;
    is_id(id).then_some(id)
}

/// A row: `| AHP-7 | the close codes | `path::name`, … |`, or with "not tested: …".
fn row(line: &str) -> Option<(&str, Option<Tested>)> {
    let mut cells = line.strip_prefix('|')?.split('|').map(str::trim);
    let id = cells.next().filter(|id| is_id(id))?;
    let tests = cells.nth(1).unwrap_or_default();
    if tests.starts_with("not tested: ") {
        return Some((id, Some(Tested::Not)));
    }
    let named: Vec<String> = quoted(tests).map(str::to_owned).collect();
    Some((id, (!named.is_empty()).then_some(Tested::By(named))))
}

fn is_id(text: &str) -> bool {
    text.split_once('-').is_some_and(|(group, number)| {
        let group_fits = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit();
        group.starts_with(|c: char| c.is_ascii_uppercase())
            && group.chars().all(group_fits)
            && number.parse::<u32>().is_ok()
    })
}

/// Whether a test exists and cites the rule: a function in the comments above it or in its body, a case
/// of a table on its own line or just above.
fn cited(
    id: &str,
    test: &str,
    read: &impl Fn(&str) -> Option<String>,
) -> std::result::Result<(), &'static str> {
    match lines_of(test, read, |near| near.iter().any(|line| names(line, id)))? {
        true => Ok(()),
        false => Err("it does not cite the rule: write the id in a comment above it"),
    }
}

/// Whether a line has exactly this id, not a longer one that begins with it.
fn names(line: &str, id: &str) -> bool {
    line.match_indices(id).any(|(at, _)| {
        let next = line[at + id.len()..].chars().next();
        let before = line[..at].chars().next_back();
        !next.is_some_and(|c| c.is_ascii_digit())
            && !before.is_some_and(|c| c.is_ascii_alphanumeric())
    })
}

#[cfg(test)]
mod tests {
    use super::super::named_tests::SAMPLE;
    use super::*;

    #[test]
    fn what_is_missing_is_named() {
        let decisions = "- **A-1** One.\n- **A-4** Four.\n- no rule\n";
        let one = "| A-1 | one | `t.rs::shown` |\n";
        let four = "| A-4 | four | `t.rs::inside` |\n";
        for (rows, expected) in [
            (
                format!("| id | what | test |\n|---|---|---|\n{one}{four}"),
                "",
            ),
            (format!("{one}| A-4 | four | not tested: prose |\n"), ""),
            (one.to_owned(), "A-4 has no row"),
            (format!("{one}{four}{four}"), "A-4 has two rows"),
            (
                format!("{one}{four}| A-12 | more | `t.rs::shown` |\n"),
                "A-12 is no rule",
            ),
            (
                format!("{one}| A-4 | four | later |\n"),
                "A-4 names no test",
            ),
            (
                format!("{one}| A-4 | four | `t.rs::gone` |\n"),
                "no such test",
            ),
            (
                format!("{one}| A-4 | four | `u.rs::inside` |\n"),
                "no such file",
            ),
            (
                format!("{one}| A-4 | four | `t.rs::shown` |\n"),
                "does not cite",
            ),
            (
                format!("{one}| A-4 | four | `t.rs::inside`, `t.rs::\"four\"` |\n"),
                "no such case",
            ),
        ] {
            let read = |path: &str| (path == "t.rs").then(|| SAMPLE.to_owned());
            let found = wrong(decisions, &rows, read);
            match expected {
                "" => assert!(found.is_empty(), "{rows}: {found:?}"),
                words => assert!(
                    found.len() == 1 && found[0].contains(words),
                    "{rows}: {found:?}"
                ),
            }
        }
        let twice = wrong(&decisions.repeat(2), &format!("{one}{four}"), |_| {
            Some(SAMPLE.to_owned())
        });
        assert_eq!(twice.len(), 2, "{twice:?}");
    }

    #[test]
    fn a_citation_belongs_to_its_own_test() {
        let read = |_: &str| Some(SAMPLE.to_owned());
        for (id, test, fits) in [
            ("A-1", "t.rs::shown", true),
            ("A-12", "t.rs::shown", true),
            ("A-3", "t.rs::shown", true),
            ("A-2", "t.rs::shown", false),
            ("A-4", "t.rs::shown", false),
            ("A-4", "t.rs::inside", true),
            ("A-9", "t.rs::inside", false),
            // A function that is not a test.
            ("A-1", "t.rs::helper", false),
            ("A-3", "t.rs::\"three\"", true),
            ("A-3", "t.rs::\"two\"", false),
            ("A-1", "shown", false),
        ] {
            assert_eq!(cited(id, test, &read).is_ok(), fits, "{id} {test}");
        }
    }
}
