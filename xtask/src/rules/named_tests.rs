//! Finds the tests that the documents name: `path::name`, or `path::"case"` for a case of a table.

use anyhow::{Context, Result};

use crate::command::root;

/// How many lines above a case of a table its comment may be.
const ABOVE_A_CASE: usize = 3;

/// The text of a file of this repository.
pub(super) fn read(path: &str) -> Result<String> {
    std::fs::read_to_string(root().join(path)).with_context(|| format!("cannot read {path}"))
}

/// The texts between backticks.
pub(super) fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// The result of `read` on the lines of a test, with its comments.
pub(super) fn lines_of<T>(
    test: &str,
    read: &impl Fn(&str) -> Option<String>,
    find: impl FnOnce(&[&str]) -> T,
) -> std::result::Result<T, &'static str> {
    let (path, name) = test.split_once("::").ok_or("it is no path::name")?;
    let text = read(path).ok_or("there is no such file")?;
    let lines: Vec<&str> = text.lines().collect();
    let near = match name.strip_prefix('"') {
        Some(_) => case(&lines, name).ok_or("there is no such case in that file")?,
        None => function(&lines, name).ok_or("there is no such test in that file")?,
    };
    Ok(find(near))
}

/// The line of a case and the lines just above.
fn case<'a>(lines: &'a [&'a str], name: &str) -> Option<&'a [&'a str]> {
    let at = lines.iter().position(|line| line.contains(name))?;
    Some(&lines[at.saturating_sub(ABOVE_A_CASE)..=at])
}

/// The lines of a test function with its comments and attributes.
fn function<'a>(lines: &'a [&'a str], name: &str) -> Option<&'a [&'a str]> {
    let head = format!("fn {name}(");
    let at = lines.iter().position(|line| {
        let line = line.trim_start();
        line.starts_with(&head) || line.starts_with(&format!("async {head}"))
    })?;
    let above = lines[..at].iter().rev().take_while(|line| {
        let line = line.trim_start();
        line.starts_with("//") || line.starts_with("#[")
    });
    let first = at - above.count();
    let is_test = |line: &&str| line.contains("#[test") || line.contains("::test");
    lines[first..at].iter().find(|line| is_test(line))?;
    let indent = lines[at].len() - lines[at].trim_start().len();
    let end = format!("{}}}", " ".repeat(indent));
    let last = lines[at..].iter().position(|line| *line == end)?;
    Some(&lines[first..=at + last])
}

/// A source file for the unit tests of this search.
#[cfg(test)]
pub(super) const SAMPLE: &str = "
/// What it shows.
// A-1, A-12: why.
#[test]
fn shown() {
    let table = [(\"none\", 0), (\"two\", 2)];
    // A-3
    let more = (\"three\", 3);
    assert!(more.1 > table[0].1);
}

// A-1
fn helper() {
}

    #[tokio::test]
    async fn inside() {
        // A-4
    }
    // A-9
";
