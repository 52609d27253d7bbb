//! Prints a report as aligned plain text.

use std::io::{self, Write};

use super::rows::{
    Description, Field, FrameRow, MessageRow, Problem, Report, Section, State, TransferRow, counted,
};
use super::safe::printable;

/// Characters of a note or a problem.
const DETAIL: usize = 80;

/// Characters of a message's description, and of each value in it.
const SAYS: usize = 200;
const WORD: usize = 48;

/// Characters of a key: enough to tell keys apart.
const KEY: usize = 36;

/// A column: its title, and whether its cells are right-aligned.
type Column = (&'static str, bool);

const FRAMES: [Column; 7] = [
    ("#", true),
    ("bytes", true),
    ("kind", false),
    ("key", false),
    ("seq", true),
    ("data", true),
    ("notes", false),
];

const TRANSFERS: [Column; 9] = [
    ("key", false),
    ("frames", true),
    ("pieces", true),
    ("bytes", true),
    ("overhead", true),
    ("twice", true),
    ("digest", false),
    ("missing", false),
    ("state", false),
];

const MESSAGES: [Column; 6] = [
    ("#", true),
    ("frame", true),
    ("key", false),
    ("bytes", true),
    ("protocol", false),
    ("says", false),
];

pub(crate) fn print(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    section(out, "frames", &FRAMES, &report.frames, frame)?;
    section(out, "transfers", &TRANSFERS, &report.transfers, transfer)?;
    section(out, "messages", &MESSAGES, &report.messages, message)?;
    let states = [
        (report.complete, "complete"),
        (report.unfinished, "unfinished"),
        (report.failed, "failed"),
    ];
    let states: Vec<String> = states
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, state)| format!("{count} {state}"))
        .collect();
    let states = if states.is_empty() {
        String::new()
    } else {
        format!(" ({})", states.join(", "))
    };
    writeln!(
        out,
        "{}, {} ({}): {}, {}{states}, {}, {}",
        report.format.wire_name(),
        report.format.form(),
        report.why,
        counted(report.frames.count(), "frame"),
        counted(report.transfers.count(), "transfer"),
        counted(report.messages.count(), "message"),
        counted(report.faults, "fault"),
    )
}

/// Prints a section if it has rows. Rows are formatted twice (for the widths, then for printing), so that
/// only one at a time takes memory as text.
fn section<T, const N: usize>(
    out: &mut dyn Write,
    title: &str,
    columns: &[Column; N],
    section: &Section<T>,
    cells: impl Fn(&T) -> [String; N],
) -> io::Result<()> {
    if section.count() == 0 {
        return Ok(());
    }
    writeln!(out, "{title}")?;
    let mut widths = columns.map(|(title, _)| title.len());
    for row in section.all() {
        for (width, cell) in widths.iter_mut().zip(cells(row)) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut line = |cells: [String; N]| {
        let mut text = String::new();
        for ((cell, width), (_, right)) in cells.iter().zip(widths).zip(columns) {
            let pad = " ".repeat(width - cell.chars().count());
            text.push_str("  ");
            if *right {
                text.push_str(&pad);
                text.push_str(cell);
            } else {
                text.push_str(cell);
                text.push_str(&pad);
            }
        }
        writeln!(out, "{}", text.trim_end())
    };
    line(columns.map(|(title, _)| title.to_owned()))?;
    for row in &section.rows {
        line(cells(row))?;
    }
    if !section.beyond.is_empty() {
        line(std::array::from_fn(|_| "…".to_owned()))?;
    }
    for row in &section.beyond {
        line(cells(row))?;
    }
    if section.left_out > 0 {
        writeln!(out, "  … {} more (use --all)", section.left_out)?;
    }
    writeln!(out)
}

fn frame(row: &FrameRow) -> [String; 7] {
    let seq = match (row.seq, row.total) {
        (Some(seq), Some(total)) => format!("{seq}/{total}"),
        (Some(seq), None) => seq.to_string(),
        (None, Some(total)) => format!("-/{total}"),
        (None, None) => "-".into(),
    };
    let note = row.note.as_deref().map(|note| printable(note, DETAIL));
    let fault = row.fault.as_deref().map(problem);
    [
        row.number.to_string(),
        row.bytes.to_string(),
        row.kind.name().into(),
        key(row.key.as_deref()),
        seq,
        row.data.map_or("-".into(), |data| data.to_string()),
        [note, fault]
            .into_iter()
            .flatten()
            .collect::<Vec<_>>()
            .join("; "),
    ]
}

fn transfer(row: &TransferRow) -> [String; 9] {
    let of = |have: u64, want: Option<u64>| match want {
        Some(want) => format!("{have}/{want}"),
        None => format!("{have}/-"),
    };
    let mut gaps: Vec<String> = row.gaps.iter().map(|gap| range(*gap)).collect();
    if row.more_gaps {
        gaps.push("…".into());
    }
    [
        key(Some(&row.key)),
        range((row.first_frame, row.last_frame)),
        of(row.have, row.want),
        of(row.bytes, row.declared),
        row.overhead()
            .map_or("-".into(), |percent| format!("{percent:.1}%")),
        row.duplicates.to_string(),
        match row.digest {
            Some(true) => "ok",
            Some(false) => "wrong",
            None => "-",
        }
        .into(),
        if gaps.is_empty() {
            "-".into()
        } else {
            printable(&gaps.join(","), 24)
        },
        match &row.state {
            State::Complete => "complete".into(),
            State::Unfinished => "unfinished".into(),
            State::Headless => "unfinished: its opening is missing".into(),
            State::Failed(why) => format!("failed: {}", problem(why)),
        },
    ]
}

fn message(row: &MessageRow) -> [String; 6] {
    [
        row.number.to_string(),
        row.frame.to_string(),
        key(row.key.as_deref()),
        row.bytes.to_string(),
        row.description.protocol.into(),
        summary(&row.description),
    ]
}

fn summary(description: &Description) -> String {
    let mut text = description.kind.to_string();
    for (name, field) in &description.fields {
        let value = match field {
            Field::Number(number) => number.to_string(),
            Field::Size(bytes) => format!("{bytes}B"),
            Field::Text(word) => {
                let word = printable(word, WORD);
                if word.contains(' ') {
                    format!("\"{word}\"")
                } else {
                    word
                }
            }
        };
        text.push_str(&format!(" {name}={value}"));
    }
    let text = printable(&text, SAYS);
    match &description.fault {
        Some(fault) => format!("{text}; {}", problem(fault)),
        None => text,
    }
}

fn problem(problem: &Problem) -> String {
    format!("{}: {}", problem.code, printable(&problem.text, DETAIL))
}

fn key(key: Option<&str>) -> String {
    key.map_or("-".into(), |key| printable(key, KEY))
}

fn range((first, last): (u64, u64)) -> String {
    if first == last {
        first.to_string()
    } else {
        format!("{first}-{last}")
    }
}
