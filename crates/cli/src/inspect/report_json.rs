//! Prints a report as one JSON object, with one row per line.

use std::io::{self, Write};

use serde_json::{Value, json};

use super::rows::{Field, FrameRow, MessageRow, Problem, Report, Section, State, TransferRow};
use super::safe;

pub(crate) fn print(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    write!(out, "{{")?;
    section(out, "frames", &report.frames, frame)?;
    section(out, "transfers", &report.transfers, transfer)?;
    section(out, "messages", &report.messages, message)?;
    let summary = json!({
        "wire": report.format.wire_name(),
        "form": report.format.form(),
        "why": report.why,
        "frames": report.frames.count(),
        "transfers": report.transfers.count(),
        "complete": report.complete,
        "unfinished": report.unfinished,
        "failed": report.failed,
        "messages": report.messages.count(),
        "faults": report.faults,
        "leftOut": {
            "frames": report.frames.left_out,
            "transfers": report.transfers.left_out,
            "messages": report.messages.left_out,
        },
    });
    writeln!(out, "\"summary\":{}}}", safe::json(&summary.to_string()))
}

fn section<T>(
    out: &mut dyn Write,
    name: &str,
    section: &Section<T>,
    value: impl Fn(&T) -> Value,
) -> io::Result<()> {
    write!(out, "\"{name}\":[")?;
    for (index, row) in section.all().enumerate() {
        let comma = if index > 0 { "," } else { "" };
        write!(out, "{comma}\n{}", safe::json(&value(row).to_string()))?;
    }
    writeln!(out, "],")
}

fn frame(row: &FrameRow) -> Value {
    json!({
        "number": row.number,
        "bytes": row.bytes,
        "kind": row.kind.name(),
        "key": row.key.as_deref(),
        "seq": row.seq,
        "total": row.total,
        "data": row.data,
        "fault": row.fault.as_deref().map(problem),
        "note": row.note.as_deref(),
    })
}

fn transfer(row: &TransferRow) -> Value {
    let (state, fault) = match &row.state {
        State::Complete => ("complete", None),
        State::Unfinished => ("unfinished", None),
        State::Headless => ("headless", None),
        State::Failed(why) => ("failed", Some(problem(why))),
    };
    let overhead = row
        .overhead()
        .map(|percent| (percent * 100.0).round() / 100.0);
    json!({
        "key": &*row.key,
        "frames": [row.first_frame, row.last_frame],
        "pieces": row.have,
        "declaredPieces": row.want,
        "bytes": row.bytes,
        "declaredBytes": row.declared,
        "frameBytes": row.carried,
        "overheadPercent": overhead,
        "gaps": row.gaps,
        "moreGaps": row.more_gaps,
        "duplicates": row.duplicates,
        "digest": row.digest,
        "state": state,
        "fault": fault,
    })
}

fn message(row: &MessageRow) -> Value {
    let fields: serde_json::Map<String, Value> = row
        .description
        .fields
        .iter()
        .map(|(name, field)| {
            let value = match field {
                Field::Text(text) => json!(&**text),
                Field::Number(number) => json!(number),
                Field::Size(bytes) => json!(bytes),
            };
            ((*name).to_owned(), value)
        })
        .collect();
    json!({
        "number": row.number,
        "frame": row.frame,
        "key": row.key.as_deref(),
        "bytes": row.bytes,
        "protocol": row.description.protocol,
        "kind": &*row.description.kind,
        "fields": fields,
        "fault": row.description.fault.as_deref().map(problem),
    })
}

fn problem(problem: &Problem) -> Value {
    json!({"code": problem.code, "text": &*problem.text})
}
