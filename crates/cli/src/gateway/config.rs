//! `--config FILE`: routes and limits in TOML.
//!
//! A file is read to its end whatever is wrong with it, and each complaint knows where it stands.

mod keys;
mod source;
mod tables;

use std::io::Read;
use std::ops::Range;
use std::path::Path;

use breakbulk::gateway::{Config, nearest};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::explain::Spelling;
use super::options::RouteOptions;
use super::settings::{ListenerFiles, Places, Problem, RouteSettings, Settings};
use crate::failure::Failure;
use keys::{KEYS, complaint, set, size, text};
pub(super) use source::Source;

/// A longer file is not read.
const LONGEST: u64 = 1 << 20;

/// The longest name of a route.
const LONGEST_NAME: usize = 64;

/// The keys at the top of a file that no route has.
const TOP: &[&str] = &[
    "memory", "state", "route", "admin", "log", "record", "traces",
];

/// The keys of a route that the top does not have.
const OF_ROUTE: &[&str] = &["name", "listen", "to", "fleet"];

/// The keys that every route has.
const NEEDED: &[&str] = &["name", "listen", "to"];

/// Reads a file: its text, what it asks for, and what is wrong with it.
///
/// # Errors
/// If it cannot be read at all.
pub(super) fn read(path: &Path) -> Result<(Source, Settings, Vec<Problem>), Failure> {
    let wrong = |what: String| Failure::Usage(format!("--config {}: {what}", path.display()));
    let file = std::fs::File::open(path).map_err(|error| wrong(error.to_string()))?;
    let mut content = Vec::new();
    let read = file.take(LONGEST + 1).read_to_end(&mut content);
    read.map_err(|error| wrong(error.to_string()))?;
    if content.len() as u64 > LONGEST {
        return Err(wrong(format!("it is longer than {LONGEST} bytes")));
    }
    let content = String::from_utf8(content).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        wrong(format!("it is not UTF-8 at byte {at}"))
    })?;
    let source = Source::new(path.display().to_string(), content);
    let (settings, problems) = parse(source.text());
    Ok((source, settings, problems))
}

/// What a text asks for, and what is wrong with it.
fn parse(text: &str) -> (Settings, Vec<Problem>) {
    let (table, errors) = DeTable::parse_recoverable(text);
    let mut reader = Reader::default();
    for error in &errors {
        let what = format!("this is not TOML: {}", error.message());
        reader.complain(error.span(), what);
    }
    // What follows a mistake in the syntax may only seem to be wrong.
    let is_sound = errors.is_empty();
    let mut settings = reader.settings(table.get_ref());
    let mut problems = reader.problems;
    if !is_sound {
        problems.truncate(errors.len());
        settings.routes.clear();
    }
    (settings, problems)
}

#[derive(Default)]
struct Reader {
    problems: Vec<Problem>,
}

impl Reader {
    fn complain(&mut self, at: Option<Range<usize>>, text: impl Into<String>) {
        let text = text.into();
        self.problems.push(Problem { at, text });
    }

    fn settings(&mut self, table: &DeTable<'_>) -> Settings {
        let mut settings = Settings {
            spelling: Spelling::File,
            memory: Config::default().memory,
            state: None,
            routes: Vec::new(),
            admin: None,
            log: None,
            record: None,
            traces: None,
            places: Places::new(),
        };
        // Routes have the settings at the top of the file, unless they set their own.
        let (mut options, mut files) = (RouteOptions::default(), ListenerFiles::default());
        let mut routes = None;
        for (key, value) in table {
            let (name, at) = (key.get_ref().as_ref(), key.span());
            settings.places.insert(name.to_owned(), value.span());
            let result = match name {
                "memory" => size(value).map(|size| settings.memory = size.0),
                "state" => text(value).map(|file| settings.state = Some(file.into())),
                "route" => {
                    routes = Some(value);
                    Ok(())
                }
                "admin" => {
                    settings.admin = self.admin(value);
                    Ok(())
                }
                "record" => {
                    settings.record = self.record(value);
                    Ok(())
                }
                "log" => {
                    settings.log = self.log(value);
                    Ok(())
                }
                "traces" => {
                    settings.traces = self.traces(value);
                    Ok(())
                }
                _ => match set(&mut options, &mut files, name, value) {
                    Some(result) => result,
                    None => {
                        self.complain(Some(at), unknown(name, false));
                        Ok(())
                    }
                },
            };
            if let Err(what) = result {
                self.complain(Some(value.span()), complaint(name, value, what));
            }
        }
        match routes {
            Some(value) => self.routes(value, &options, &files, &mut settings),
            None => {
                let what = "there is no route; write [[route]], and below it name, listen and to";
                self.complain(None, what);
            }
        }
        settings
    }

    fn routes(
        &mut self,
        value: &Spanned<DeValue<'_>>,
        options: &RouteOptions,
        files: &ListenerFiles,
        settings: &mut Settings,
    ) {
        let tables = match value.get_ref() {
            DeValue::Array(tables) => tables,
            _ => {
                let what = "route: a file may have several; write [[route]] with two brackets";
                return self.complain(Some(value.span()), what);
            }
        };
        for route in tables {
            match route.get_ref() {
                DeValue::Table(table) => {
                    let read = self.route(table, route.span(), options, files);
                    settings.routes.extend(read);
                }
                _ => self.complain(
                    Some(route.span()),
                    "route: write [[route]] and its keys below it",
                ),
            }
        }
    }

    /// One route; `None` if something is missing.
    fn route(
        &mut self,
        table: &DeTable<'_>,
        at: Range<usize>,
        options: &RouteOptions,
        files: &ListenerFiles,
    ) -> Option<RouteSettings> {
        let (mut options, mut files) = (options.clone(), files.clone());
        let (mut name, mut listen, mut to) = (None, None, None);
        let (mut places, before) = (Places::new(), self.problems.len());
        for (key, value) in table {
            let (known, at) = (key.get_ref().as_ref(), key.span());
            places.insert(known.to_owned(), value.span());
            let result = match known {
                "name" => text(value)
                    .and_then(valid_name)
                    .map(|text| name = Some(text)),
                "listen" => text(value).map(|text| listen = Some(text)),
                "to" => text(value).map(|text| to = Some(text)),
                // Two listeners need two fleets, so this key is not allowed at the top.
                "fleet" => text(value).map(|text| options.fleet = Some(text)),
                _ => match set(&mut options, &mut files, known, value) {
                    Some(result) => result,
                    None => {
                        self.complain(Some(at), unknown(known, true));
                        Ok(())
                    }
                },
            };
            if let Err(what) = result {
                self.complain(Some(value.span()), complaint(known, value, what));
            }
        }
        let missing = NEEDED.iter().filter(|key| !places.contains_key(**key));
        for key in missing {
            let what = format!(
                "this route has no {key}; write {key} = {}",
                keys::example(key)
            );
            self.complain(Some(at.clone()), what);
        }
        if self.problems.len() > before {
            return None;
        }
        Some(RouteSettings {
            name: name?,
            listen: listen?,
            to: to?,
            options,
            files,
            places,
        })
    }
}

/// The error for a key that does not exist there, with the nearest one that does.
fn unknown(name: &str, is_of_route: bool) -> String {
    let (more, of) = match is_of_route {
        true if TOP.contains(&name) => {
            return format!("{name} is for the top of the file, before the first [[route]]");
        }
        true => (OF_ROUTE, " of a route"),
        false if OF_ROUTE.contains(&name) => {
            return format!("{name} is for a route; write it below [[route]]");
        }
        false => (TOP, ""),
    };
    let known = KEYS.iter().map(|key| key.name).chain(more.iter().copied());
    let known: Vec<&str> = known.collect();
    let shown: String = name.chars().take(LONGEST_NAME).collect();
    match nearest(name, &known) {
        Some(meant) => format!("{shown:?} is no setting{of}; did you mean {meant}?"),
        None => format!("{shown:?} is no setting{of}; docs/OPERATIONS.md lists them"),
    }
}

/// A name that fits into a line of the log, and into labels.
fn valid_name(name: String) -> Result<String, String> {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    match name.len() {
        1..=LONGEST_NAME if name.chars().all(is_plain) => Ok(name),
        _ => Err(format!(
            "a name has 1 to {LONGEST_NAME} letters, digits, dots, dashes and underscores"
        )),
    }
}
