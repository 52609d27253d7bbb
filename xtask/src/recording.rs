//! `cargo xtask recording`: runs a demo of the program and draws its output, line by line as it came, as an
//! animated SVG.

use std::fmt::Write;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::command::root;
use crate::shared;

/// Characters in a line; longer ones are wrapped.
const COLUMNS: usize = 96;

/// Sizes in units of the picture.
const CHARACTER: f64 = 8.0;
const LINE: usize = 20;
const MARGIN: usize = 16;

/// How long the last line stays before the picture begins again.
const PAUSE: Duration = Duration::from_secs(8);

/// A line of output, and when it came.
struct Line {
    at: Duration,
    text: String,
}

/// Records a demo; builds the program if none is given.
pub(crate) fn record(demo: &str, program: Option<PathBuf>) -> Result<()> {
    let program = match program {
        Some(program) => program,
        None => shared::program()?,
    };
    let start = Instant::now();
    // In a pseudo-terminal, by means of Python, so that the picture shows what a person sees.
    let mut child = Command::new("python3")
        .args([
            "-c",
            "import pty, sys; sys.exit(pty.spawn(sys.argv[1:]) >> 8)",
        ])
        .arg(program)
        .args(["demo", demo])
        .env("COLUMNS", COLUMNS.to_string())
        .env("NO_COLOR", "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let output = BufReader::new(child.stdout.take().context("no standard output")?);
    let mut lines = Vec::new();
    for line in output.lines() {
        let (at, line) = (start.elapsed(), line?);
        lines.extend(wrapped(&line).map(|text| Line { at, text }));
    }
    ensure!(child.wait()?.success(), "breakbulk demo {demo} failed");
    let path = root().join("docs/pictures/demo.svg");
    std::fs::write(&path, picture(&format!("breakbulk demo {demo}"), &lines))?;
    println!("{} has {} lines", path.display(), lines.len());
    Ok(())
}

/// Splits a line into parts of at most [`COLUMNS`] characters, at spaces where possible.
fn wrapped(line: &str) -> impl Iterator<Item = String> {
    let mut parts = vec![String::new()];
    for word in line.split_inclusive(' ') {
        let mut last = parts.pop().unwrap_or_default();
        if !last.trim().is_empty()
            && last.chars().count() + word.trim_end().chars().count() > COLUMNS
        {
            parts.push(std::mem::take(&mut last));
            last.push_str("    ");
        }
        parts.push(last + word);
    }
    parts.into_iter().map(|part| part.trim_end().to_owned())
}

/// The SVG: lines appear when they came; without animation all are visible.
fn picture(command: &str, lines: &[Line]) -> String {
    let last = lines.last().map_or(Duration::ZERO, |line| line.at);
    let whole = (last + PAUSE).as_secs_f64();
    let width = (COLUMNS as f64 * CHARACTER) as usize + 2 * MARGIN;
    let height = (lines.len() + 1) * LINE + 2 * MARGIN;
    let mut times: Vec<_> = lines.iter().map(|line| line.at).collect();
    times.dedup();
    let mut styles = String::new();
    for (number, at) in times.iter().enumerate() {
        let percent = at.as_secs_f64() / whole * 100.0;
        let _ = writeln!(
            styles,
            "@keyframes t{number}{{0%,{percent:.2}%{{opacity:0}}{:.2}%,100%{{opacity:1}}}}",
            percent + 0.01
        );
        let _ = writeln!(
            styles,
            ".t{number}{{animation:t{number} {whole:.2}s linear infinite}}"
        );
    }
    let mut texts = String::new();
    for (row, line) in lines.iter().enumerate() {
        let class = times.iter().position(|at| *at == line.at).unwrap_or(0);
        let y = MARGIN + (row + 2) * LINE - 6;
        let text = escaped(&line.text);
        let _ = writeln!(
            texts,
            "<text class=\"t{class}\" x=\"{MARGIN}\" y=\"{y}\">{text}</text>"
        );
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" role=\"img\">\n\
         <title>A recording of {command}</title>\n\
         <!-- Made by cargo xtask recording from a real run. -->\n\
         <style>\n\
         text{{font:13.2px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;fill:#d0d7de;white-space:pre}}\n\
         .command{{fill:#7ee787}}\n\
         {styles}\
         @media (prefers-reduced-motion:reduce){{text{{animation:none!important}}}}\n\
         </style>\n\
         <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"#161b22\" stroke=\"#6e7681\"/>\n\
         <text class=\"command\" x=\"{MARGIN}\" y=\"{}\">$ {command}</text>\n\
         {texts}</svg>\n",
        MARGIN + LINE - 6
    )
}

fn escaped(text: &str) -> String {
    let plain: String = text.chars().filter(|c| !c.is_control()).collect();
    plain
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_wrapped_at_spaces() {
        let long = format!("{} {}", "a".repeat(90), "b".repeat(20));
        let parts: Vec<_> = wrapped(&long).collect();
        assert_eq!(parts, ["a".repeat(90), format!("    {}", "b".repeat(20))]);
        assert_eq!(wrapped("short").collect::<Vec<_>>(), ["short"]);
        assert_eq!(wrapped("").collect::<Vec<_>>(), [""]);
    }

    #[test]
    fn a_picture_has_every_line_as_text() {
        let line = |at, text: &str| Line {
            at: Duration::from_secs(at),
            text: text.to_owned(),
        };
        let picture = picture(
            "breakbulk demo x",
            &[line(1, "a < b & c"), line(3, "✓ done")],
        );
        assert!(picture.contains(">a &lt; b &amp; c</text>"));
        assert!(picture.contains("class=\"t1\" x=\"16\""));
        // 1 of 3 + 8 seconds.
        assert!(picture.contains("@keyframes t0{0%,9.09%{opacity:0}"));
    }
}
