//! Writes the answers to clients. JSON that was checked before is copied, not parsed again.

use std::borrow::Cow;
use std::sync::Arc;

use breakbulk_message::ahp::Chunking;
use breakbulk_message::jsonrpc::{self, range_in, string};
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

/// The members of a JSON object, parsed one by one, so that a million of them need no memory.
pub(super) fn members(object: &str) -> impl Iterator<Item = (Cow<'_, str>, &RawValue)> {
    let inner = object
        .trim()
        .strip_prefix('{')
        .and_then(|rest| rest.strip_suffix('}'));
    let mut rest = inner.unwrap_or_default().trim_start();
    std::iter::from_fn(move || {
        let name = string(value(&mut rest, ':')?)?;
        Some((name, value(&mut rest, ',')?))
    })
}

/// The member `channel` of an object, where it is a string.
pub(super) fn channel(params: &str) -> Option<Cow<'_, str>> {
    let channel = members(params).filter(|(name, _)| name == "channel");
    channel.last().and_then(|(_, value)| string(value))
}

/// The id of an answer that was written here, where it is always the second member.
pub(super) fn id_of(answer: &[u8]) -> Option<&RawValue> {
    let behind = answer.strip_prefix(HEAD.as_bytes())?;
    let mut values = serde_json::Deserializer::from_slice(behind).into_iter::<&RawValue>();
    values.next()?.ok()
}

/// Takes the next value off `rest`, and the separator behind it.
fn value<'a>(rest: &mut &'a str, separator: char) -> Option<&'a RawValue> {
    let mut values = serde_json::Deserializer::from_str(rest).into_iter::<&RawValue>();
    let found = values.next()?.ok()?;
    let behind = rest[range_in(rest, found.get()).end..].trim_start();
    *rest = behind
        .strip_prefix(separator)
        .unwrap_or(behind)
        .trim_start();
    Some(found)
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
        let same = [("ahp-root://", r#"{"a": 1}"#), ("ahp-chat:/\"", "[]")];
        let same = same.map(|(channel, state)| ahp::Snapshot {
            resource: channel.into(),
            state: raw(state),
            from_seq: 7,
        });
        let ours = Chunking::default();
        let none = Extras::default();
        assert_eq!(
            initialized(id, "1.0.0", &snapshots, &none, &ours),
            ahp::initialize_result(id, "1.0.0", 7, &same, Some(&ours))
        );
        assert_eq!(reset(id, &snapshots), ahp::snapshot_result(id, &same));
        assert_eq!(
            subscribed(id, &snapshots),
            ahp::subscribe_result(id, Some(&same[0]))
        );
        let stateless = Snapshots {
            states: &states[1..2],
            ..snapshots
        };
        assert_eq!(subscribed(id, &stateless), ahp::subscribe_result(id, None));
        let answer = reset(id, &snapshots);
        assert_eq!(id_of(answer.as_bytes()).unwrap().get(), id.get());
        for texts in [&[][..], &["{}"], &["{}", "[ ]"]] {
            let entries: Vec<_> = texts.iter().map(|text| Entry::new(1, "c", *text)).collect();
            let actions = texts.iter().map(|text| raw(text));
            assert_eq!(
                replayed(id, &entries, &["a".into(), "\"".into()]),
                ahp::replay_result(id, actions, &["a", "\""]).as_bytes()
            );
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

    #[test]
    fn members_are_found_one_by_one() {
        for (text, expected) in [
            ("{}", &[][..]),
            (" { } ", &[]),
            ("[1]", &[]),
            (r#"{"a":1}"#, &[("a", "1")]),
            (
                "{ \"a\" : -1.5e3 ,\n\"\\u0062\":{\"c\":[1,2]} , \"a\":null,\"d\":\"},\" }",
                &[
                    ("a", "-1.5e3"),
                    ("b", r#"{"c":[1,2]}"#),
                    ("a", "null"),
                    ("d", "\"},\""),
                ],
            ),
        ] {
            let found: Vec<_> = members(text).collect();
            let found: Vec<_> = found
                .iter()
                .map(|(name, raw)| (&**name, raw.get()))
                .collect();
            assert_eq!(found, expected, "{text}");
        }
    }
}
