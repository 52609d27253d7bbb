//! Inspects what gateways recorded (`breakbulk gateway --record`): conversations, across all gateways whose
//! records are given, and why they failed.

mod book;
mod chain;
mod explain;
mod not_carried;
mod print;
mod report;

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use breakbulk::gateway::record::{Damage, Found, MAGIC, RecordReader, files};

use self::book::Book;
use super::printable;
use crate::failure::Failure;
use crate::output::Output;

/// What to show.
pub(super) struct Options {
    /// Only conversations with this session.
    pub(super) session: Option<String>,
    pub(super) json: bool,
    /// Explain all failures instead of the last ones.
    pub(super) all: bool,
}

/// Whether a path is a record: a folder, or a pcapng file.
pub(super) fn is_record(path: &Path) -> bool {
    // A pipe is not looked into: the bytes that are read to find out would be missing later.
    let is_file = path.metadata().is_ok_and(|about| about.is_file());
    let is_pcapng = || {
        let mut magic = [0; MAGIC.len()];
        let read = File::open(path).and_then(|mut file| file.read_exact(&mut magic));
        read.is_ok() && magic == MAGIC
    };
    path.is_dir() || is_file && is_pcapng()
}

/// Prints what the records say.
pub(super) fn run(paths: &[PathBuf], options: &Options) -> Result<(), Failure> {
    let mut book = Book::default();
    let mut damaged = Vec::new();
    let mut records = Vec::new();
    for (place, path) in paths.iter().enumerate() {
        read(place, path, &mut book, &mut damaged)?;
        records.push(path.display().to_string());
    }
    if book.entries == 0 {
        let names = records.join(", ");
        let found = match (book.foreign, damaged.first()) {
            (0, Some(first)) => first.clone(),
            (0, None) => {
                format!("{names}: no records; breakbulk gateway --record {names} makes them")
            }
            _ => format!(
                "{names}: there are packets in it, but none that breakbulk gateway --record wrote"
            ),
        };
        return Err(Failure::Input(found));
    }
    let mut chains = chain::chains(&book);
    if let Some(name) = &options.session {
        chains.retain(|chain| chain.iter().any(|session| session.point.session == *name));
        if chains.is_empty() {
            let name = printable(name, 40);
            return Err(Failure::Input(format!(
                "no session {name} in these records"
            )));
        }
    }
    let report = report::Report::new(&book, chains, records, damaged);
    let mut out = Output::open(None)?;
    let printed = match options.json {
        true => report::print_json(&report, out.writer()),
        false => print::print(
            &report,
            options.all || options.session.is_some(),
            out.writer(),
        ),
    };
    printed.map_err(|error| out.failed(error))?;
    out.finish()?;
    match report.failed() {
        0 => Ok(()),
        failed => Err(Failure::Input(format!(
            "{failed} of {} conversations failed",
            report.conversations.len()
        ))),
    }
}

fn read(
    place: usize,
    path: &Path,
    book: &mut Book,
    damaged: &mut Vec<String>,
) -> Result<(), Failure> {
    let failed = |path: &Path| {
        let name = path.display().to_string();
        move |error| Failure::Io(name, error)
    };
    let unopened = |path: &Path| {
        let name = path.display().to_string();
        move |error| Failure::Open(name, error)
    };
    for file in files(path).map_err(unopened(path))? {
        let mut reader = RecordReader::open(&file).map_err(unopened(&file))?;
        loop {
            match reader.read_next() {
                Ok(Some(Found::Entry(point, entry))) => book.add(place, &point, &entry),
                Ok(Some(Found::Foreign)) => book.foreign += 1,
                Ok(None) => break,
                Err(Damage::Io(error)) => return Err(failed(&file)(error)),
                Err(damage) => {
                    damaged.push(format!("{}: {damage}", file.display()));
                    break;
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
