//! `breakbulk caps`: what services, servers and receivers let through.

use breakbulk::gateway::caps;
use breakbulk::link::{Preset, PresetKind, exact_size};
use clap::Args;
use serde_json::{Value, json};

use crate::columns::{Column, Table};
use crate::failure::Failure;
use crate::output::Output;
use crate::terminal;

const RULES: &str = "\
A path is a service, proxy or broker on the way: breakbulk gateway --preset NAME
(or ?preset=NAME at an endpoint) keeps every frame within its limits. A receiver
is a program or library that takes messages: ?client=NAME at its endpoint turns
a message over its limit into error -32011, instead of handing it to a program
that would end or drop it.

Only limits that were read in a released package, in a project's source or in
official documentation are listed; an empty cell was not verified. Where a
source says KB or MB and not which, the smaller reading (1,000s) is taken.
breakbulk probe measures a path.";

const COLUMNS: [Column; 5] = [
    Column::text("name"),
    Column::number("message"),
    Column::number("frame"),
    Column::text("binary"),
    Column::text("above it"),
];

#[derive(Args, Debug)]
#[command(after_long_help = RULES)]
pub(crate) struct Caps {
    /// Show this path or receiver in full, with the source of its figures
    name: Option<String>,
    /// Print JSON: an array of all, or an object for one
    #[arg(long)]
    json: bool,
}

impl Caps {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let row = self.name.as_deref().map(caps::row).transpose();
        let row = row.map_err(|error| Failure::Usage(error.to_string()))?;
        let mut out = Output::open(None)?;
        match (row, self.json) {
            (Some(row), true) => out.line(&object(&row).to_string())?,
            (Some(row), false) => describe(&row, &mut out)?,
            (None, true) => {
                let rows: Vec<_> = Preset::ALL.iter().map(object).collect();
                out.line(&Value::Array(rows).to_string())?;
            }
            (None, false) => list(&mut out)?,
        }
        out.finish()
    }
}

/// A row as data; what is not verified is null.
pub(crate) fn object(row: &Preset) -> Value {
    let (kind, carriers) = match row.kind {
        PresetKind::Receiver(carriers) => (
            "receiver",
            Some(carriers.iter().map(ToString::to_string).collect::<Vec<_>>()),
        ),
        _ => ("path", None),
    };
    json!({
        "name": row.name,
        "title": row.title,
        "kind": kind,
        "over": carriers,
        "messageBytes": row.message,
        "frameBytes": row.fragment,
        "binary": row.binary,
        "above": row.above,
        "note": (!row.note.is_empty()).then_some(row.note),
        "source": row.source,
        "evidence": row.evidence.to_string(),
        "readOn": row.read_on,
    })
}

fn list(out: &mut Output) -> Result<(), Failure> {
    for (title, is_path) in [
        ("paths (--preset NAME)", true),
        ("receivers (?client=NAME at their endpoint)", false),
    ] {
        out.line(title)?;
        let rows = Preset::ALL.iter().filter(|row| row.is_path() == is_path);
        let rows: Vec<_> = rows.map(cells).collect();
        let mut table = Table::new(&COLUMNS, terminal::width());
        rows.iter().for_each(|row| table.measure(row));
        table.settle();
        out.line(&table.header())?;
        for row in rows {
            out.line(&table.row(row))?;
        }
        out.line("")?;
    }
    out.line("breakbulk caps NAME shows the source of a row; - was not verified.")
}

fn cells(row: &Preset) -> [String; 5] {
    [
        row.name.to_owned(),
        size(row.message),
        size(row.fragment),
        yes_or_no(row.binary).to_owned(),
        row.above.unwrap_or("-").to_owned(),
    ]
}

fn size(bytes: Option<usize>) -> String {
    bytes.map_or_else(|| "-".to_owned(), exact_size)
}

fn yes_or_no(binary: Option<bool>) -> &'static str {
    match binary {
        Some(true) => "yes",
        Some(false) => "no",
        None => "-",
    }
}

fn describe(row: &Preset, out: &mut Output) -> Result<(), Failure> {
    let bytes = |bytes: Option<usize>| match bytes {
        Some(bytes) => format!("{bytes} bytes"),
        None => "not verified".to_owned(),
    };
    let mut lines = vec![
        ("name", row.name.to_owned()),
        ("what", row.title.to_owned()),
        ("message", bytes(row.message)),
        ("frame", bytes(row.fragment)),
    ];
    if row.is_path() {
        let binary = match row.binary {
            None => "not verified",
            known => yes_or_no(known),
        };
        lines.push(("binary", binary.to_owned()));
    }
    let above = row.above.unwrap_or("not verified");
    lines.push(("above it", above.to_owned()));
    if !row.note.is_empty() {
        lines.push(("note", row.note.to_owned()));
    }
    let source = format!("{} ({}, {})", row.source, row.evidence, row.read_on);
    lines.push(("source", source));
    let usage = match row.kind {
        PresetKind::Receiver(carriers) => {
            let over: Vec<_> = carriers.iter().map(ToString::to_string).collect();
            format!("?client={} at its endpoint ({})", row.name, over.join(", "))
        }
        _ => match caps::preset(row.name) {
            Ok(_) => format!("--preset {} at both gateways", row.name),
            Err(error) => error.to_string(),
        },
    };
    lines.push(("use", usage));
    for (name, value) in lines {
        out.wrapped(&format!("{name:<9} {value}"), 10)?;
    }
    Ok(())
}
