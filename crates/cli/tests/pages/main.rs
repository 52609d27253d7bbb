//! The commands of README.md and docs/*.md run as they are pasted.
//!
//! - A fence of the language `sh` holds commands; bash runs each as pasted, in an empty folder with an empty
//!   home and the program of this build on the PATH. Other languages are for reading (`console`: commands
//!   for a machine that this test must not change), but for a `json` fence with `mcpServers`: each of its
//!   servers is started and asked for 20 MB.
//! - Each line must succeed; of a pipe, its last command: so `| grep 1009` asserts what a failing one says.
//! - Fences between two headings share their folder, and run in their order.
//! - A fence whose first line is `# terminal N: …, leave it running` is started and left running until the
//!   next heading; what follows waits until it listens.
//! - Ports are replaced by free ones (`ports.rs`), and `cargo` is not run but checked (`cargo.rs`).
//! - What is not run beside that is listed below with the reason, and printed.

#![cfg(unix)]
#![allow(clippy::unwrap_used)]

mod cargo;
mod errors;
mod links;
mod markdown;
mod ports;
mod session;

use std::path::{Path, PathBuf};

use markdown::{Block, blocks};
use session::Session;

/// Lines that are checked by `bash -n` alone, by what they contain, and why.
const NOT_RUN: [(&str, &str); 2] = [
    ("npx ", "npx downloads from a registry"),
    ("uvx ", "uvx downloads from a registry"),
];

/// Programs that a machine may lack: then the fences between two headings that need one are not run.
const NEEDED: [&str; 3] = ["curl", "nats-server", "python3"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// README.md and the pages of docs/, with their texts.
fn pages() -> Vec<(String, String)> {
    let mut paths = vec![PathBuf::from("README.md")];
    for entry in std::fs::read_dir(root().join("docs")).unwrap() {
        let name = entry.unwrap().file_name();
        if Path::new(&name).extension().is_some_and(|it| it == "md") {
            paths.push(Path::new("docs").join(name));
        }
    }
    paths.sort();
    paths
        .into_iter()
        .map(|path| {
            let text = std::fs::read_to_string(root().join(&path)).unwrap();
            (path.display().to_string(), text)
        })
        .collect()
}

/// What the fences below a heading need and this machine lacks.
fn lacking(blocks: &[Block], heading: &str) -> Option<&'static str> {
    let commands = blocks
        .iter()
        .filter(|block| block.heading == heading && block.language == "sh");
    let words: Vec<&str> = commands
        .flat_map(|block| {
            block
                .text
                .split(|c: char| !c.is_ascii_alphanumeric() && c != '-')
        })
        .collect();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_there =
        |program: &str| std::env::split_paths(&path).any(|folder| folder.join(program).exists());
    // `python:` is the target that needs python3.
    let needs = |program: &str| {
        words.contains(&program) || program == "python3" && words.contains(&"python")
    };
    NEEDED
        .into_iter()
        .find(|program| needs(program) && !is_there(program))
}

/// Runs a page's commands; returns how many fences there were.
fn run(page: &str, text: &str) -> usize {
    let mut ran = 0;
    let mut session: Option<(String, Session)> = None;
    let blocks = blocks(text);
    for block in &blocks {
        if session
            .as_ref()
            .is_none_or(|(heading, _)| *heading != block.heading)
        {
            session = Some((block.heading.clone(), Session::new()));
        }
        let Some((_, session)) = &mut session else {
            continue;
        };
        let place = format!("{page}:{}", block.line);
        if let Some(program) = lacking(&blocks, &block.heading) {
            println!("{place}: not run, since this machine has no {program}");
            continue;
        }
        match block.language.as_str() {
            "sh" => run_commands(&place, block, session),
            "json" if block.text.contains("mcpServers") => session.ask_servers(&place, &block.text),
            _ => continue,
        }
        ran += 1;
    }
    ran
}

fn run_commands(place: &str, block: &Block, session: &mut Session) {
    let mut commands = String::new();
    for line in block.text.lines() {
        let rule = NOT_RUN.iter().find(|(part, _)| line.contains(part));
        if let Some(instead) =
            cargo::checked(line).unwrap_or_else(|why| panic!("{place}: {line}: {why}"))
        {
            println!("{place}: checked, not run: {line}");
            commands.push_str(&instead);
        } else if let Some((_, why)) = rule {
            println!("{place}: not run, since {why}: {line}");
            session.check_spelling(place, line);
        } else {
            commands.push_str(line);
        }
        commands.push('\n');
    }
    let first = block.text.lines().next().unwrap_or_default();
    match first.starts_with("# terminal ") && first.ends_with("leave it running") {
        true => session.leave_running(place, &commands),
        false => session.run(place, &commands),
    }
}

#[test]
fn every_command_of_the_readme_runs_as_pasted() {
    let pages = pages();
    let (page, text) = pages.iter().find(|(page, _)| page == "README.md").unwrap();
    assert!(run(page, text) >= 5, "the README has no commands");
}

#[test]
fn every_command_of_the_pages_runs_as_pasted() {
    let mut ran = 0;
    for (page, text) in pages().iter().filter(|(page, _)| page != "README.md") {
        ran += run(page, text);
    }
    assert!(ran > 10, "the pages have only {ran} fences of commands");
}

#[test]
fn every_cargo_command_in_the_text_exists() {
    let mut found = 0;
    for (page, text) in pages() {
        for quoted in markdown::inline(&text).filter(|quoted| quoted.starts_with("cargo ")) {
            let checked = cargo::checked(quoted);
            let checked = checked.unwrap_or_else(|why| panic!("{page}: {quoted}: {why}"));
            assert!(checked.is_some(), "{page}: {quoted}: no rule for it");
            found += 1;
        }
    }
    assert!(found > 10, "only {found} commands were found");
}
