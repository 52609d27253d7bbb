//! What a whole message says, in a few fields.

pub(crate) mod json;
mod loro;
mod vscode;

use bytes::Bytes;

use super::format::Format;
use super::rows::{Field, Told, Wrong};
use super::safe::kept;

/// JSON that must be parsed to values to be told of is parsed up to this size: values can take
/// many times the memory of their text.
const PARSED: usize = 16 << 20;

/// What the message says; a loro frame may hold several. Never empty.
pub(crate) fn describe(format: Format, message: &Bytes, limit: usize) -> Vec<Told> {
    match format {
        Format::Ahp | Format::Tywrap | Format::Cep22 | Format::JsonRpc | Format::LoroJson => {
            vec![json::describe(format, message)]
        }
        Format::LoroFrames => loro::frame(message.clone()),
        Format::Vscode | Format::Ipc => vec![vscode::describe(message, limit)],
        Format::Loro => carried(message, limit),
    }
}

/// The loro wire carries any bytes; what they are shows in them.
fn carried(message: &Bytes, limit: usize) -> Vec<Told> {
    let told = loro::frame(message.clone());
    if told.iter().all(|told| told.fault.is_none()) {
        return told;
    }
    if let Some(told) = vscode::whole(message, limit) {
        return vec![told];
    }
    match message.first() {
        // Begins as a loro frame does, and is none.
        Some(2) if message.get(1).is_none_or(|flags| *flags <= 3) => told,
        Some(b'{' | b'[') if std::str::from_utf8(message).is_ok() => {
            vec![json::describe(Format::JsonRpc, message)]
        }
        _ => {
            let begins: String = message
                .iter()
                .take(8)
                .map(|byte| format!("{byte:02x}"))
                .collect();
            vec![Told::new("bytes", "opaque").text("begins", &begins)]
        }
    }
}

impl Told {
    fn new(protocol: &'static str, kind: &str) -> Self {
        Self {
            protocol,
            kind: kept(kind),
            fields: Vec::new(),
            fault: None,
        }
    }

    fn field(mut self, name: &'static str, field: Field) -> Self {
        self.fields.push((name, field));
        self
    }

    fn text(self, name: &'static str, text: &str) -> Self {
        self.field(name, Field::Text(kept(text)))
    }

    fn number(self, name: &'static str, number: impl TryInto<i64>) -> Self {
        self.field(name, Field::Number(number.try_into().unwrap_or(i64::MAX)))
    }

    fn size(self, name: &'static str, bytes: usize) -> Self {
        self.field(name, Field::Size(bytes as u64))
    }

    fn wrong(mut self, code: &'static str, text: &str) -> Self {
        self.fault = Some(Box::new(Wrong {
            code,
            text: kept(text),
        }));
        self
    }
}
