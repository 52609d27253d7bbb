//! Writes a request into one buffer of the right size, since it may be large.

use breakbulk_message::tywrap::{self, PROTOCOL, Style};
use bytes::Bytes;
use serde_json::value::RawValue;

/// The arguments of a call are invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the call cannot be written: {0}")]
pub struct BadCall(&'static str);

/// A function, and its arguments as JSON.
#[derive(Clone, Debug)]
pub struct Call {
    module: String,
    function: String,
    args: Bytes,
    kwargs: Option<Bytes>,
}

impl Call {
    /// A call of this function; `args` is the text of a JSON array, `kwargs` of a JSON object.
    ///
    /// # Errors
    /// If they are of another type or not JSON, or a name is empty.
    pub fn new(
        module: &str,
        function: &str,
        args: impl Into<Bytes>,
        kwargs: Option<Bytes>,
    ) -> Result<Self, BadCall> {
        let call = Self {
            module: module.to_owned(),
            function: function.to_owned(),
            args: args.into(),
            kwargs,
        };
        call.check()?;
        Ok(call)
    }

    fn check(&self) -> Result<(), BadCall> {
        let bad = |what| Err(BadCall(what));
        if self.module.is_empty() || self.function.is_empty() {
            return bad("the module and the function need names");
        }
        if raw(&self.args).is_none_or(|args| !args.get().starts_with('[')) {
            return bad("args must be the text of a JSON array");
        }
        let kwargs = self.kwargs.as_ref();
        if kwargs.is_some_and(|text| raw(text).is_none_or(|raw| !raw.get().starts_with('{'))) {
            return bad("kwargs must be the text of a JSON object");
        }
        Ok(())
    }

    /// A lower bound of the request's size in bytes.
    pub fn min_size(&self) -> usize {
        self.args.len() + self.kwargs.as_ref().map_or(0, Bytes::len)
    }

    /// The function's name, for errors.
    pub fn name(&self) -> String {
        format!("{}.{}", self.module, self.function)
    }

    /// Writes the request; the arguments, checked before, are copied unchanged.
    pub fn write(&self, id: i64) -> Bytes {
        let kwargs = self.kwargs.as_deref();
        if has_line_break(&self.args) || kwargs.is_some_and(has_line_break) {
            return self.write_compact(id);
        }
        let name = |name: &str| serde_json::Value::from(name).to_string();
        let (module, function) = (name(&self.module), name(&self.function));
        let id = id.to_string();
        let mut parts = vec![
            br#"{"method":"call","params":{"module":"#,
            module.as_bytes(),
            br#","functionName":"#,
            function.as_bytes(),
            br#","args":"#,
            &self.args,
        ];
        if let Some(kwargs) = kwargs {
            parts.extend([&br#","kwargs":"#[..], kwargs]);
        }
        parts.extend([
            &br#"},"id":"#[..],
            id.as_bytes(),
            br#","protocol":""#,
            PROTOCOL.as_bytes(),
            br#""}"#,
        ]);
        Bytes::from(parts.concat())
    }

    /// Writes the request with line breaks in the JSON removed, since a request must be one line.
    fn write_compact(&self, id: i64) -> Bytes {
        let kwargs = self.kwargs.as_ref().and_then(raw);
        // Both were parsed before.
        let args = raw(&self.args).unwrap_or(RawValue::NULL);
        tywrap::call(
            id,
            &self.module,
            &self.function,
            args,
            kwargs,
            Style::Compact,
        )
        .into()
    }
}

/// The `meta` request, which asks a bridge to describe itself.
pub fn meta_request(id: i64) -> Bytes {
    format!(r#"{{"id":{id},"protocol":"{PROTOCOL}","method":"meta","params":{{}}}}"#).into()
}

fn raw(text: &Bytes) -> Option<&RawValue> {
    serde_json::from_str(std::str::from_utf8(text).ok()?).ok()
}

fn has_line_break(text: &[u8]) -> bool {
    text.contains(&b'\n') || text.contains(&b'\r')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(module: &str, args: &str, kwargs: Option<&str>) -> Result<Call, BadCall> {
        let bytes = |text: &str| Bytes::copy_from_slice(text.as_bytes());
        Call::new(module, "f", bytes(args), kwargs.map(bytes))
    }

    #[test]
    fn written_as_the_format_has_it() {
        for (call, expected) in [
            (
                call("math", "[16]", None),
                r#"{"method":"call","params":{"module":"math","functionName":"f","args":[16]},"id":7,"protocol":"tywrap/1"}"#,
            ),
            (
                call("a\"é", "[ 1.50 ]", Some("{\"b\": []}")),
                r#"{"method":"call","params":{"module":"a\"é","functionName":"f","args":[ 1.50 ],"kwargs":{"b": []}},"id":7,"protocol":"tywrap/1"}"#,
            ),
            // Line breaks between values are removed.
            (
                call("m", "[\n 1,\r\n\"a b\"]", Some("{}")),
                r#"{"method":"call","params":{"module":"m","functionName":"f","args":[1,"a b"],"kwargs":{}},"id":7,"protocol":"tywrap/1"}"#,
            ),
        ] {
            let written = call.unwrap().write(7);
            assert_eq!(written, expected);
            assert_eq!(
                tywrap::Request::read(expected).unwrap().id,
                7,
                "a bridge reads it"
            );
        }
        assert_eq!(meta_request(-1), tywrap::probe(Style::Compact));
    }

    #[test]
    fn what_no_bridge_could_read_is_refused() {
        for (module, args, kwargs) in [
            ("", "[]", None),
            ("m", "", None),
            ("m", "{}", None),
            ("m", "[1", None),
            ("m", "[1]]", None),
            ("m", "[]", Some("[]")),
            ("m", "[]", Some("{,}")),
        ] {
            assert!(call(module, args, kwargs).is_err(), "{args}");
        }
        assert!(Call::new("m", "f", &b"[\"\xff\"]"[..], None).is_err());
    }
}
