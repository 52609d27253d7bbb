//! Prints a report as aligned plain text.

use std::io::{self, Write};

use super::NAMED;
use super::rows::{
    Description, Field, FrameRow, MessageRow, Problem, Report, Section, State, TransferRow, counted,
};
use super::safe::printable;
use crate::columns::{Column, Table};
use crate::terminal::wrap;

/// Characters of a note or a problem.
const DETAIL: usize = 80;

/// Characters of a message's description, and of each value in it.
const SAYS: usize = 200;
const WORD: usize = 48;

/// Characters of a key: enough to tell keys apart.
const KEY: usize = 36;

const FRAMES: [Column; 7] = [
    Column::number("#"),
    Column::number("bytes"),
    Column::text("kind"),
    Column::name("key"),
    Column::number("seq"),
    Column::number("data"),
    Column::text("notes"),
];

const TRANSFERS: [Column; 9] = [
    Column::name("key"),
    Column::number("frames"),
    Column::number("pieces"),
    Column::number("bytes"),
    Column::number("overhead"),
    Column::number("twice"),
    Column::text("digest"),
    Column::text("missing"),
    Column::text("state"),
];

const MESSAGES: [Column; 6] = [
    Column::number("#"),
    Column::number("frame"),
    Column::name("key"),
    Column::number("bytes"),
    Column::text("protocol"),
    Column::text("says"),
];

/// Prints a report in lines of at most `width` characters, if there is a limit.
pub(crate) fn print(report: &Report, width: Option<usize>, out: &mut dyn Write) -> io::Result<()> {
    let frames = Table::new(&FRAMES, width);
    section(out, "frames", frames, &report.frames, frame)?;
    let transfers = Table::new(&TRANSFERS, width);
    section(out, "transfers", transfers, &report.transfers, transfer)?;
    let messages = Table::new(&MESSAGES, width);
    section(out, "messages", messages, &report.messages, message)?;
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
    let recognised = match report.why.as_str() {
        NAMED => "",
        _ => "recognised by ",
    };
    let format = format!(
        "format: {}, {}, {recognised}{}",
        report.format.wire_name(),
        report.format.form(),
        report.why
    );
    writeln!(out, "{}", wrap(&format, width, 2))?;
    let summary = format!(
        "{}, {}{states}, {}, {}",
        counted(report.frames.count(), "frame"),
        counted(report.transfers.count(), "transfer"),
        counted(report.messages.count(), "message"),
        counted(report.faults, "fault"),
    );
    writeln!(out, "{}", wrap(&summary, width, 2))
}

/// Prints a section if it has rows. Rows are formatted twice (for the widths, then for printing), so that
/// only one at a time takes memory as text.
fn section<T, const N: usize>(
    out: &mut dyn Write,
    title: &str,
    mut table: Table<'_, N>,
    section: &Section<T>,
    cells: impl Fn(&T) -> [String; N],
) -> io::Result<()> {
    if section.count() == 0 {
        return Ok(());
    }
    writeln!(out, "{title}")?;
    for row in section.all() {
        table.measure(&cells(row));
    }
    table.settle();
    writeln!(out, "{}", table.header())?;
    for row in &section.rows {
        writeln!(out, "{}", table.row(cells(row)))?;
    }
    if !section.beyond.is_empty() {
        writeln!(
            out,
            "{}",
            table.row(std::array::from_fn(|_| "…".to_owned()))
        )?;
    }
    for row in &section.beyond {
        writeln!(out, "{}", table.row(cells(row)))?;
    }
    if section.left_out > 0 {
        writeln!(
            out,
            "  … {} more (--all lists up to 250,000)",
            section.left_out
        )?;
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
