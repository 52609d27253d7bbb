//! Progress notifications.

use std::borrow::Cow;

use serde_json::Number;
use serde_json::value::RawValue;

use super::token::ProgressToken;
use crate::jsonrpc::{Envelope, member, string};
use crate::splice::{quoted, set};

/// The method of a progress notification.
pub const PROGRESS: &str = "notifications/progress";

/// The params of a progress notification.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress<'a> {
    /// The token of the request.
    pub token: ProgressToken<'a>,
    /// The progress, which only grows.
    pub progress: Number,
    /// The final value of the progress, if known.
    pub total: Option<Number>,
    /// A text for people.
    pub message: Option<Cow<'a, str>>,
}

impl<'a> Progress<'a> {
    /// Reads the params of a [`PROGRESS`] notification. Members of other protocols, such as
    /// ContextVM's `cvm`, are dropped: the application gets a plain notification.
    pub fn read(params: &'a RawValue) -> Option<Self> {
        let members: Members<'a> = serde_json::from_str(params.get()).ok()?;
        let given = |raw: Option<&'a RawValue>| raw.filter(|raw| raw.get() != "null");
        Some(Self {
            token: ProgressToken::read(members.token?)?,
            progress: number(members.progress?)?,
            total: given(members.total)
                .map(number)
                .map_or(Some(None), |total| total.map(Some))?,
            message: given(members.message)
                .map(string)
                .map_or(Some(None), |text| text.map(Some))?,
        })
    }

    /// The notification.
    pub fn notification(&self) -> String {
        let mut out = format!(
            r#"{{"jsonrpc":"2.0","method":"{PROGRESS}","params":{{"progressToken":{},"progress":{}"#,
            self.token.to_json(),
            self.progress
        );
        if let Some(total) = &self.total {
            out.push_str(&format!(r#","total":{total}"#));
        }
        if let Some(message) = &self.message {
            out.push_str(&format!(r#","message":{}"#, quoted(message)));
        }
        out.push_str("}}");
        out
    }
}

/// A progress notification under another token; all other bytes stay. `None` if it is not one.
pub fn with_token(text: &str, token: &ProgressToken<'_>) -> Option<String> {
    let envelope = Envelope::parse(text)?;
    let params = envelope.params.filter(|_| {
        envelope.id.is_none() && envelope.method().is_some_and(|method| method == PROGRESS)
    })?;
    member(params.get(), "progressToken")?;
    set(text, params.get(), &["progressToken"], &token.to_json())
}

/// ContextVM's own object `cvm` in the params of a progress notification, which makes it a transfer
/// frame.
pub fn cvm(params: &RawValue) -> Option<&RawValue> {
    member(params.get(), "cvm")
}

/// The `type` of a `cvm` object, which distinguishes CEP-22 from CEP-41.
pub fn cvm_type(cvm: &RawValue) -> Option<Cow<'_, str>> {
    string(member(cvm.get(), "type")?)
}

crate::raw_members! {
    struct Members {
        token: "progressToken",
        progress: "progress",
        total: "total",
        message: "message",
    }
}

/// Reads a number; `None` for other values, and for numbers that are too large for a double.
fn number(raw: &RawValue) -> Option<Number> {
    let number: Number = serde_json::from_str(raw.get()).ok()?;
    if number.is_f64() {
        // serde_json may be off in the last digit, so a forwarded number would change.
        return Number::from_f64(raw.get().parse().ok()?);
    }
    Some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(text: &str) -> &RawValue {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn progress() {
        let frame = raw(
            r#"{"progressToken":"1","progress":2,"message":"oversized request accepted","cvm":{"type":"oversized-transfer","frameType":"accept"}}"#,
        );
        assert_eq!(
            cvm(frame).unwrap().get(),
            r#"{"type":"oversized-transfer","frameType":"accept"}"#
        );
        assert_eq!(
            cvm_type(cvm(frame).unwrap()).as_deref(),
            Some("oversized-transfer")
        );
        for no_type in ["{}", r#"{"type":1}"#, "[]", "1"] {
            assert_eq!(cvm_type(raw(no_type)), None, "{no_type}");
        }
        let mut read = Progress::read(frame).unwrap();
        assert_eq!(
            read.notification(),
            r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"1","progress":2,"message":"oversized request accepted"}}"#
        );
        read.token = ProgressToken::Integer(1);
        read.message = None;
        read.total = Some(12.into());
        assert_eq!(
            read.notification(),
            r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":2,"total":12}}"#
        );
        let plain = raw(r#"{"progressToken":1,"progress":0.5,"total":null,"message":null}"#);
        let read = Progress::read(plain).unwrap();
        assert_eq!(
            (read.progress.to_string(), read.total, read.message),
            ("0.5".to_owned(), None, None)
        );
        assert!(cvm(plain).is_none());
        let long = raw(r#"{"progressToken":1,"progress":2.4444444444444e92}"#);
        let read = Progress::read(long).unwrap();
        assert_eq!(read.progress.to_string(), "2.4444444444444e+92");
    }

    #[test]
    fn another_token_and_nothing_else() {
        for params in [
            r#""progress":0,"total":3.50,"message":"é\u0041""#,
            r#""progress":1e2,"cvm":{"type":"open-stream","frameType":"chunk","data":"x"},"_meta":{}"#,
        ] {
            let with = |token: &str| {
                format!(
                    r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{token}, {params}}}}}"#
                )
            };
            let given = ProgressToken::Integer(7);
            assert_eq!(with_token(&with(r#""ours""#), &given), Some(with("7")));
        }
        for other in [
            r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1}}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"notifications/progress","params":{"progressToken":1}}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"progressToken":1}}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/progress"}"#,
        ] {
            assert_eq!(
                with_token(other, &ProgressToken::Integer(7)),
                None,
                "{other}"
            );
        }
    }

    #[test]
    fn what_is_no_progress() {
        for bad in [
            "[]",
            "null",
            "{}",
            r#"{"progress":1}"#,
            r#"{"progressToken":1}"#,
            r#"{"progressToken":1,"progress":"1"}"#,
            r#"{"progressToken":1,"progress":null}"#,
            r#"{"progressToken":1,"progress":1e999}"#,
            r#"{"progressToken":1.5,"progress":1}"#,
            r#"{"progressToken":1,"progress":1,"total":"2"}"#,
            r#"{"progressToken":1,"progress":1,"message":{}}"#,
        ] {
            assert_eq!(Progress::read(raw(bad)), None, "{bad}");
        }
        assert!(cvm(raw("[]")).is_none());
        let deep = format!(
            r#"{{"progressToken":1,"progress":1,"cvm":{}{}}}"#,
            "[".repeat(1 << 20),
            "]".repeat(1 << 20)
        );
        assert!(Progress::read(raw(&deep)).is_some());
    }
}
