//! Writes the answers to clients. JSON that was checked before is copied, not parsed again.

use std::borrow::Cow;
use std::sync::Arc;

use breakbulk_message::ahp::Chunking;
use breakbulk_message::jsonrpc::{self, member, string};
use serde_json::value::RawValue;

use super::error::RpcError;
use super::types::{Extras, State};
use crate::log::Entry;

/// How every answer begins.
const HEAD: &str = r#"{"jsonrpc":"2.0","id":"#;

/// A JSON string of `text`.
pub(super) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// A result.
pub(super) fn result(id: &RawValue, result: &str) -> String {
    jsonrpc::result(id.get(), result)
}

/// An error; the id is `None` if that of the request could not be read.
pub(super) fn error(id: Option<&RawValue>, error: &RpcError) -> String {
    let data = error.data.as_deref().map(RawValue::get);
    jsonrpc::error(id.map(RawValue::get), error.code, &error.message, data)
}

/// The states of channels after one action.
pub(super) struct Snapshots<'a> {
    pub(super) states: &'a [(Arc<str>, State)],
    pub(super) from_seq: i64,
}

impl Snapshots<'_> {
    /// The array. Channels without a state are not in it.
    fn write(&self, out: &mut String) {
        out.push('[');
        let mut first = true;
        for (channel, state) in self.states {
            if let Some(state) = state.json() {
                if !std::mem::replace(&mut first, false) {
                    out.push(',');
                }
                self.write_one(channel, state, out);
            }
        }
        out.push(']');
    }

    fn write_one(&self, channel: &str, state: &str, out: &mut String) {
        out.push_str(&format!(r#"{{"resource":{},"state":"#, quoted(channel)));
        out.push_str(state);
        out.push_str(&format!(r#","fromSeq":{}}}"#, self.from_seq));
    }

    fn size(&self) -> usize {
        let one = |(channel, state): &(Arc<str>, State)| {
            2 * channel.len() + state.json().map_or(0, str::len) + 64
        };
        self.states.iter().map(one).sum::<usize>() + 512
    }
}

/// The answer to `initialize`.
pub(super) fn initialized(
    id: &RawValue,
    version: &str,
    snapshots: &Snapshots<'_>,
    extras: &Extras,
    chunking: &Chunking,
) -> String {
    let mut out = String::with_capacity(snapshots.size());
    out.push_str(&format!(
        r#"{{"jsonrpc":"2.0","id":{},"result":{{"protocolVersion":{},"serverSeq":{},"snapshots":"#,
        id.get(),
        quoted(version),
        snapshots.from_seq
    ));
    snapshots.write(&mut out);
    for (name, value) in &extras.0 {
        out.push_str(&format!(",{}:{}", quoted(name), value.get()));
    }
    let chunking = chunking.to_json();
    out.push_str(&format!(r#","capabilities":{{"chunking":{chunking}}}}}}}"#));
    out
}

/// The answer to `reconnect` with the missed actions.
pub(super) fn replayed(id: &RawValue, actions: &[Entry], missing: &[Arc<str>]) -> Vec<u8> {
    let missing: Vec<_> = missing.iter().map(|name| quoted(name)).collect();
    let missing = missing.join(",");
    let size: usize = actions.iter().map(|entry| entry.params.len() + 1).sum();
    let mut out = Vec::with_capacity(size + missing.len() + id.get().len() + 128);
    let kind = r#","result":{"type":"replay","actions":["#;
    for text in [HEAD, id.get(), kind] {
        out.extend_from_slice(text.as_bytes());
    }
    for (number, entry) in actions.iter().enumerate() {
        if number > 0 {
            out.push(b',');
        }
        out.extend_from_slice(&entry.params);
    }
    out.extend_from_slice(format!(r#"],"missing":[{missing}]}}}}"#).as_bytes());
    out
}

/// The answer to `reconnect` with the current states.
pub(super) fn reset(id: &RawValue, snapshots: &Snapshots<'_>) -> String {
    let mut out = String::with_capacity(snapshots.size());
    out.push_str(&format!(
        r#"{{"jsonrpc":"2.0","id":{},"result":{{"type":"snapshot","snapshots":"#,
        id.get()
    ));
    snapshots.write(&mut out);
    out.push_str("}}");
    out
}

/// The answer to `subscribe`.
pub(super) fn subscribed(id: &RawValue, snapshots: &Snapshots<'_>) -> String {
    let mut out = String::with_capacity(snapshots.size());
    out.push_str(&format!(
        r#"{{"jsonrpc":"2.0","id":{},"result":{{"#,
        id.get()
    ));
    let first = snapshots.states.first();
    if let Some((channel, state)) = first
        && let Some(state) = state.json()
    {
        out.push_str(r#""snapshot":"#);
        snapshots.write_one(channel, state, &mut out);
    }
    out.push_str("}}");
    out
}

/// The member `channel` of an object, where it is a string.
pub(super) fn channel(params: &str) -> Option<Cow<'_, str>> {
    string(member(params, "channel")?)
}

/// The id of an answer that was written here, where it is always the second member.
pub(super) fn id_of(answer: &[u8]) -> Option<&RawValue> {
    let behind = answer.strip_prefix(HEAD.as_bytes())?;
    let mut values = serde_json::Deserializer::from_slice(behind).into_iter::<&RawValue>();
    values.next()?.ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may")]
mod tests {
    use super::*;
    use breakbulk_message::ahp;

    fn raw(text: &str) -> &RawValue {
        serde_json::from_str(text).unwrap()
    }

    fn state(text: &str) -> State {
        State::new(raw(text).to_owned())
    }

    #[test]
    fn written_as_the_protocol_writes_it() {
        let id = raw(r#""\u0061""#);
        let states = [
            ("ahp-root://".into(), state(r#"{"a": 1}"#)),
            ("ahp-otlp:/x".into(), State::none()),
            ("ahp-chat:/\"".into(), state("[]")),
        ];
        let snapshots = Snapshots {
            states: &states,
            from_seq: 7,
        };
        let stateless = Snapshots {
            states: &states[1..2],
            from_seq: 7,
        };
        let replay = |params: &[&'static str], missing: &[Arc<str>]| {
            let actions: Vec<_> = params.iter().map(|one| Entry::new(1, "c", *one)).collect();
            String::from_utf8(replayed(id, &actions, missing)).unwrap()
        };
        let first = r#"{"resource":"ahp-root://","state":{"a": 1},"fromSeq":7}"#;
        let both = format!(r#"[{first},{{"resource":"ahp-chat:/\"","state":[],"fromSeq":7}}]"#);
        let chunking = Chunking::default();
        let ours = chunking.to_json();
        for (written, expected) in [
            (
                initialized(id, "1.0.0", &snapshots, &Extras::default(), &chunking),
                format!(
                    r#"{{"protocolVersion":"1.0.0","serverSeq":7,"snapshots":{both},"capabilities":{{"chunking":{ours}}}}}"#
                ),
            ),
            (
                reset(id, &snapshots),
                format!(r#"{{"type":"snapshot","snapshots":{both}}}"#),
            ),
            (
                subscribed(id, &snapshots),
                format!(r#"{{"snapshot":{first}}}"#),
            ),
            (subscribed(id, &stateless), "{}".to_owned()),
            (
                replay(&[], &[]),
                r#"{"type":"replay","actions":[],"missing":[]}"#.to_owned(),
            ),
            (
                replay(&["{}", "[ ]"], &["a".into(), "\"".into()]),
                r#"{"type":"replay","actions":[{},[ ]],"missing":["a","\""]}"#.to_owned(),
            ),
        ] {
            let expected = format!(r#"{{"jsonrpc":"2.0","id":"\u0061","result":{expected}}}"#);
            assert_eq!(written, expected);
            assert_eq!(id_of(written.as_bytes()).unwrap().get(), id.get());
        }
    }

    #[test]
    fn the_application_adds_and_changes_nothing() {
        let extras = Extras::default()
            .with("serverInfo", raw(r#"{"name":"x"}"#).to_owned())
            .with("serverSeq", raw("9").to_owned());
        let snapshots = Snapshots {
            states: &[],
            from_seq: 0,
        };
        let small = Chunking {
            max_groups: None,
            group_timeout_ms: None,
            timeout_from: ahp::TimeoutFrom::First,
            ..Chunking::default()
        };
        assert_eq!(
            initialized(raw("1"), "1.0.0", &snapshots, &extras, &small),
            r#"{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"1.0.0","serverSeq":0,"snapshots":[],"serverInfo":{"name":"x"},"capabilities":{"chunking":{"maxIncomingFrameBytes":900000,"maxIncomingMessageBytes":33554432}}}}"#
        );
    }
}
