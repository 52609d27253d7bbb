//! Describes a whole message in a few fields.

pub(crate) mod json;
mod loro;
mod vscode;

use bytes::Bytes;

use super::format::Format;
use super::rows::{Description, Field, Problem};
use super::safe::shorten;

/// JSON that must be parsed to values to be described is parsed up to this size: values can take many
/// times the memory of their text.
const PARSED: usize = 16 << 20;

/// Describes a message; a loro frame may hold several. Never empty.
pub(crate) fn describe(format: Format, message: &Bytes, limit: usize) -> Vec<Description> {
    match format {
        Format::Ahp | Format::Tywrap | Format::Cep22 | Format::JsonRpc | Format::LoroJson => {
            vec![json::describe(format, message)]
        }
        Format::LoroFrames => loro::frame(message.clone()),
        Format::Vscode | Format::Ipc => vec![vscode::describe(message, limit)],
        Format::Loro => carried(message, limit),
    }
}

/// Describes a message of the loro wire, which carries any bytes, by what they look like.
fn carried(message: &Bytes, limit: usize) -> Vec<Description> {
    let descriptions = loro::frame(message.clone());
    if descriptions
        .iter()
        .all(|description| description.fault.is_none())
    {
        return descriptions;
    }
    if let Some(description) = vscode::whole(message, limit) {
        return vec![description];
    }
    match message.first() {
        // Begins like a loro frame, but is invalid.
        Some(2) if message.get(1).is_none_or(|flags| *flags <= 3) => descriptions,
        Some(b'{' | b'[') if std::str::from_utf8(message).is_ok() => {
            vec![json::describe(Format::JsonRpc, message)]
        }
        _ => {
            let begins: String = message
                .iter()
                .take(8)
                .map(|byte| format!("{byte:02x}"))
                .collect();
            vec![Description::new("bytes", "opaque").text("begins", &begins)]
        }
    }
}

impl Description {
    fn new(protocol: &'static str, kind: &str) -> Self {
        Self {
            protocol,
            kind: shorten(kind),
            fields: Vec::new(),
            fault: None,
        }
    }

    fn field(mut self, name: &'static str, field: Field) -> Self {
        self.fields.push((name, field));
        self
    }

    fn text(self, name: &'static str, text: &str) -> Self {
        self.field(name, Field::Text(shorten(text)))
    }

    fn number(self, name: &'static str, number: impl TryInto<i64>) -> Self {
        self.field(name, Field::Number(number.try_into().unwrap_or(i64::MAX)))
    }

    fn size(self, name: &'static str, bytes: usize) -> Self {
        self.field(name, Field::Size(bytes as u64))
    }

    fn problem(mut self, code: &'static str, text: &str) -> Self {
        self.fault = Some(Box::new(Problem {
            code,
            text: shorten(text),
        }));
        self
    }
}
