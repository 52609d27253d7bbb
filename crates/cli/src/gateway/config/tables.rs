//! The tables of a file that are about the process, not about routes: `[admin]`, `[log]`, `[record]` and `[traces]`.

use breakbulk::gateway::admin::AdminAddress;
use breakbulk::gateway::nearest;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::super::admin::AdminOptions;
use super::super::traces::TracesOptions;
use super::Reader;
use super::keys::{complaint, flag, number, size, text};
use crate::log::LogOptions;
use crate::record::Record;

type Value<'a> = Spanned<DeValue<'a>>;

impl Reader {
    /// The admin port; `None` if something is wrong.
    pub(super) fn admin(&mut self, value: &Value<'_>) -> Option<AdminOptions> {
        let known = &["address", "token-file", "show-bodies"];
        let table = self.table("admin", value, known)?;
        let token_file = self.value(table, "token-file", text);
        let show_bodies = self.value(table, "show-bodies", flag);
        let address = self.value(table, "address", |value| {
            let parsed = text(value)?.parse::<AdminAddress>();
            parsed.map_err(|error| error.to_string())
        });
        if !table.contains_key("address") {
            let what = "admin: there is no address; write address = \"127.0.0.1:9090\"";
            self.complain(Some(value.span()), what);
        }
        let file = token_file.map(Into::into);
        Some(AdminOptions::of_file(
            address?,
            file,
            show_bodies.unwrap_or_default(),
        ))
    }

    /// The log; `None` if something is wrong.
    pub(super) fn log(&mut self, value: &Value<'_>) -> Option<LogOptions> {
        let table = self.table("log", value, &["filter", "format"])?;
        let format = self.value(table, "format", |value| {
            let format = text(value)?;
            LogOptions::of_file(None, Some(&format)).map(|_| format)
        });
        let filter = self.value(table, "filter", |value| {
            let filter = text(value)?;
            LogOptions::of_file(Some(filter.clone()), None).map(|_| filter)
        });
        LogOptions::of_file(filter, format.as_deref()).ok()
    }

    /// The flight recorder; `None` if something is wrong.
    pub(super) fn record(&mut self, value: &Value<'_>) -> Option<Record> {
        let known = &["folder", "size", "age", "bodies"];
        let table = self.table("record", value, known)?;
        let size = self.value(table, "size", size);
        let age = self.value(table, "age", number);
        let bodies = self.value(table, "bodies", flag);
        let folder = self.value(table, "folder", text);
        if !table.contains_key("folder") {
            let what = "record: there is no folder; write folder = \"DIR\"";
            self.complain(Some(value.span()), what);
        }
        let bodies = bodies.unwrap_or_default();
        Some(Record::of_file(folder?.into(), size, age, bodies))
    }

    /// The collector of traces; `None` if something is wrong.
    pub(super) fn traces(&mut self, value: &Value<'_>) -> Option<TracesOptions> {
        let table = self.table("traces", value, &["url"])?;
        let options = self.value(table, "url", |value| TracesOptions::of_file(text(value)?));
        if !table.contains_key("url") {
            let what = "traces: there is no url; write url = \"http://127.0.0.1:4318\"";
            self.complain(Some(value.span()), what);
        }
        options
    }

    /// A table without other keys than these.
    fn table<'a, 'b>(
        &mut self,
        name: &str,
        value: &'a Value<'b>,
        known: &[&str],
    ) -> Option<&'a DeTable<'b>> {
        let DeValue::Table(table) = value.get_ref() else {
            self.complain(
                Some(value.span()),
                format!("{name}: write [{name}] and its keys below it"),
            );
            return None;
        };
        for (key, _) in table {
            let word = key.get_ref().as_ref();
            if known.contains(&word) {
                continue;
            }
            let shown: String = word.chars().take(super::LONGEST_NAME).collect();
            let what = match nearest(word, known) {
                Some(meant) => format!("{shown:?} is no setting of {name}; did you mean {meant}?"),
                None => format!(
                    "{shown:?} is no setting of {name}; use {}",
                    known.join(", ")
                ),
            };
            self.complain(Some(key.span()), what);
        }
        Some(table)
    }

    /// One value of a table; `None` if it is not there, or wrong.
    fn value<T>(
        &mut self,
        table: &DeTable<'_>,
        name: &str,
        read: impl Fn(&Value<'_>) -> Result<T, String>,
    ) -> Option<T> {
        let value = table.get(name)?;
        match read(value) {
            Ok(read) => Some(read),
            Err(what) => {
                self.complain(Some(value.span()), complaint(name, value, what));
                None
            }
        }
    }
}
