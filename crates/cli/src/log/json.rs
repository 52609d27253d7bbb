//! Log lines as JSON: one object a line, the fields of the event and of the spans around it side by side.

use std::fmt;

use serde_json::Value;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::layer::{Context, Layer};
use tracing_subscriber::registry::{LookupSpan, Scope};

use super::anchor;
use super::plain::plain;

/// What every line has. A field of the same name gets an underscore behind it.
const OWN: [&str; 4] = ["timestamp", "level", "target", "message"];

/// Writes each event as one line of JSON.
pub(super) struct JsonLines {
    /// Gets a line without its end.
    write: fn(&str),
    now: fn() -> String,
}

impl JsonLines {
    pub(super) fn new(write: fn(&str)) -> Self {
        Self { write, now }
    }
}

impl<S> Layer<S> for JsonLines
where
    S: Subscriber + for<'span> LookupSpan<'span>,
{
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        if let Some(span) = context.span(id) {
            let mut members = Members::default();
            attributes.record(&mut members);
            span.extensions_mut().insert(members);
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        if let Some(span) = context.span(id)
            && let Some(members) = span.extensions_mut().get_mut::<Members>()
        {
            values.record(members);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut members = Members::default();
        let scope = context.event_scope(event).map(Scope::from_root);
        for span in scope.into_iter().flatten() {
            if let Some(of_span) = span.extensions().get::<Members>() {
                for (name, value) in &of_span.fields {
                    members.set(name, value.clone());
                }
            }
        }
        // A span has no message of its own.
        members.message = None;
        event.record(&mut members);
        let fields = members.fields.iter().map(|(_, value)| value);
        let mut texts = members
            .message
            .iter()
            .chain(fields)
            .filter_map(Value::as_str);
        if let Some(command) = texts.find_map(anchor::command_for_end) {
            members.set("explain", command.into());
        }
        let metadata = event.metadata();
        let head = Head {
            timestamp: (self.now)(),
            level: *metadata.level(),
            target: metadata.target(),
        };
        (self.write)(&members.line(&head));
    }
}

/// A line that is no event: what the program itself has to say.
pub(super) fn line(level: Level, message: &str, fields: &[(&'static str, &str)]) -> String {
    let mut members = Members {
        message: Some(text(message)),
        fields: Vec::new(),
    };
    for (name, value) in fields {
        members.set(name, text(value));
    }
    let head = Head {
        timestamp: now(),
        level,
        target: "breakbulk",
    };
    members.line(&head)
}

struct Head<'a> {
    timestamp: String,
    level: Level,
    target: &'a str,
}

/// The members of a line, in the order in which they came; of two with one name the last counts.
#[derive(Default)]
struct Members {
    message: Option<Value>,
    fields: Vec<(&'static str, Value)>,
}

impl Members {
    fn set(&mut self, name: &'static str, value: Value) {
        match self.fields.iter_mut().find(|(known, _)| *known == name) {
            Some((_, known)) => *known = value,
            None => self.fields.push((name, value)),
        }
    }

    fn add(&mut self, field: &Field, value: Value) {
        match field.name() {
            "message" => self.message = Some(value),
            name => self.set(name, value),
        }
    }

    fn line(&self, head: &Head<'_>) -> String {
        let mut line = String::from("{");
        push(&mut line, "timestamp", &head.timestamp.as_str().into());
        push(&mut line, "level", &head.level.as_str().into());
        push(&mut line, "target", &head.target.into());
        push(
            &mut line,
            "message",
            self.message.as_ref().unwrap_or(&"".into()),
        );
        for (name, value) in &self.fields {
            match OWN.contains(name) {
                true => push(&mut line, &format!("{name}_"), value),
                false => push(&mut line, name, value),
            }
        }
        line.push('}');
        line
    }
}

fn push(line: &mut String, name: &str, value: &Value) {
    if line.len() > 1 {
        line.push(',');
    }
    line.push_str(&Value::from(name).to_string());
    line.push(':');
    line.push_str(&value.to_string());
}

/// Text from a peer is cleaned before it is escaped: whoever reads the JSON may print it.
fn text(text: &str) -> Value {
    plain(text, false).into()
}

impl Visit for Members {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.add(field, text(&format!("{value:?}")));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, text(value));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field, value.into());
    }
}

/// The time as in lines of text.
fn now() -> String {
    let mut time = String::new();
    // Writing to a string does not fail.
    let _ = SystemTime.format_time(&mut Writer::new(&mut time));
    time
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use tracing_subscriber::prelude::*;

    use super::*;

    static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());

    fn keep(line: &str) {
        LINES
            .lock()
            .expect("no test panics in here")
            .push(line.to_owned());
    }

    // LOG-3
    #[test]
    fn a_line_has_the_fields_of_its_event_and_of_its_spans() {
        let lines = JsonLines {
            write: keep,
            now: || "T".to_owned(),
        };
        let subscriber = tracing_subscriber::registry().with(lines);
        let _until_dropped = tracing::subscriber::set_default(subscriber);
        let cases: [(fn(), &str); 7] = [
            (
                || tracing::info!("started"),
                r#"{"timestamp":"T","level":"INFO","target":"t","message":"started"}"#,
            ),
            (
                || {
                    tracing::warn!(
                        size = 7,
                        lost = true,
                        share = 0.5,
                        behind = -1,
                        "dropped {}",
                        "it"
                    )
                },
                r#"{"timestamp":"T","level":"WARN","target":"t","message":"dropped it","size":7,"lost":true,"share":0.5,"behind":-1}"#,
            ),
            (
                || {
                    let session = tracing::error_span!("session", session = %"7kq3-12", peer = tracing::field::Empty);
                    session.record("peer", "127.0.0.1:9");
                    session.in_scope(|| tracing::debug!("sent"));
                },
                r#"{"timestamp":"T","level":"DEBUG","target":"t","message":"sent","session":"7kq3-12","peer":"127.0.0.1:9"}"#,
            ),
            // The inner one of two fields with one name counts.
            (
                || {
                    let outer = tracing::error_span!("outer", side = "listen", route = "a");
                    let _outer = outer.entered();
                    tracing::error_span!("inner", side = "to")
                        .in_scope(|| tracing::error!(route = "b", "x"));
                },
                r#"{"timestamp":"T","level":"ERROR","target":"t","message":"x","side":"to","route":"b"}"#,
            ),
            // Text of a peer cannot control a terminal, and cannot begin another line or member.
            (
                || tracing::error!(method = %"a\u{1b}[2J\u{202e}\u{9b}\n{\"level\":\"INFO\"}", "b\u{7}\r\nc"),
                r#"{"timestamp":"T","level":"ERROR","target":"t","message":"b�  c","method":"a�[2J�� {\"level\":\"INFO\"}"}"#,
            ),
            (
                || tracing::debug!(longest = 9, "the target closed with 1009: too large"),
                r#"{"timestamp":"T","level":"DEBUG","target":"t","message":"the target closed with 1009: too large","longest":9,"explain":"breakbulk explain 1009"}"#,
            ),
            (
                || tracing::error!(level = "mine", "x"),
                r#"{"timestamp":"T","level":"ERROR","target":"t","message":"x","level_":"mine"}"#,
            ),
        ];
        for (write, expected) in cases {
            write();
            let line = LINES.lock().expect("no panic").pop().expect("a line");
            let line = line.replace(module_path!(), "t");
            assert_eq!(line, expected);
        }
    }

    #[test]
    fn the_programs_own_lines_have_the_same_form() {
        let line = line(
            Level::INFO,
            "listening",
            &[("address", "ws://[::1]:8080\n")],
        );
        let line: Value = serde_json::from_str(&line).expect("JSON");
        let expected = serde_json::json!({
            "timestamp": line["timestamp"],
            "level": "INFO",
            "target": "breakbulk",
            "message": "listening",
            "address": "ws://[::1]:8080 ",
        });
        assert_eq!(line, expected);
        assert!(
            line["timestamp"]
                .as_str()
                .is_some_and(|it| it.ends_with('Z'))
        );
    }
}
