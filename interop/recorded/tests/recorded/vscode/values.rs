//! Reads the descriptions of values in the recordings.

use breakbulk_message::vscode::{Passed, Value};
use bytes::Bytes;
use serde_json::Value as Json;

/// `{"@tag": inner}`
pub(super) fn tag(recorded: &Json) -> Option<(&str, &Json)> {
    let entries = recorded.as_object().filter(|entries| entries.len() == 1)?;
    let (key, inner) = entries.iter().next()?;
    TAGS.contains(&key.as_str())
        .then_some((key.as_str(), inner))
}

pub(super) const TAGS: [&str; 10] = [
    "@undefined",
    "@vsbuffer",
    "@objectWithBuffers",
    "@cancellationToken",
    "@uri",
    "@error",
    "@date",
    "@number",
    "@bigint",
    "@function",
];

pub(super) fn is_function(recorded: &Json) -> bool {
    matches!(tag(recorded), Some(("@function", _)))
}

pub(super) fn to_passed(recorded: &Json) -> Option<Passed> {
    match tag(recorded) {
        Some(("@objectWithBuffers", inner)) => to_value(inner).map(Passed::WithBuffers),
        _ => to_value(recorded).map(Passed::Plain),
    }
}

/// What `JSON.stringify` would get; `None` for a value that depends on JavaScript's own objects.
pub(super) fn to_value(recorded: &Json) -> Option<Value> {
    if let Some((tag, inner)) = tag(recorded) {
        return tagged(tag, inner);
    }
    Some(match recorded {
        Json::Null => Value::Null,
        Json::Bool(bool) => Value::Bool(*bool),
        Json::Number(number) => Value::Number(number.as_f64()?),
        Json::String(text) => Value::String(text.clone()),
        Json::Array(items) => Value::Array(items.iter().map(to_value).collect::<Option<_>>()?),
        Json::Object(entries) => {
            let entries = entries.iter().filter(|(_, value)| !is_function(value));
            let entries = entries.map(|(key, value)| Some((key.clone(), to_value(value)?)));
            Value::Object(entries.collect::<Option<_>>()?)
        }
    })
}

pub(super) fn tagged(tag: &str, inner: &Json) -> Option<Value> {
    Some(match tag {
        "@undefined" => Value::Undefined,
        "@vsbuffer" => Value::Buffer(bytes_of(inner).ok()?),
        "@number" => Value::Number(inner.as_str()?.parse().ok()?),
        "@uri" | "@date" => return to_value(inner),
        "@function" => Value::Null,
        "@cancellationToken" if inner == "None" => {
            [("isCancellationRequested", false.into())].into()
        }
        _ => return None,
    })
}

pub(super) fn ordered_arg(arg: Passed, model: Option<&Passed>) -> Passed {
    match (arg, model) {
        (Passed::Plain(value), Some(Passed::Plain(model))) => Passed::Plain(ordered(value, model)),
        (Passed::WithBuffers(value), Some(Passed::WithBuffers(model))) => {
            Passed::WithBuffers(ordered(value, model))
        }
        (arg, _) => arg,
    }
}

/// Puts the keys in the order of the message: `serde_json`'s map does not keep the description's. Also makes
/// numbers exact.
pub(super) fn ordered(value: Value, model: &Value) -> Value {
    match (value, model) {
        (Value::Object(mut entries), Value::Object(model)) => {
            let place = |key: &str| model.iter().position(|(name, _)| name == key);
            entries.sort_by_key(|(key, _)| place(key).unwrap_or(usize::MAX));
            let ordered_entry = |(key, value): (String, Value)| {
                let inner = model.iter().find(|(name, _)| *name == key);
                let value = match inner {
                    Some((_, model)) => ordered(value, model),
                    None => value,
                };
                (key, value)
            };
            Value::Object(entries.into_iter().map(ordered_entry).collect())
        }
        (Value::Array(items), Value::Array(model)) if items.len() == model.len() => {
            let pairs = items.into_iter().zip(model);
            Value::Array(pairs.map(|(item, model)| ordered(item, model)).collect())
        }
        (Value::Number(number), Value::Number(model)) if same_number(number, *model) => {
            Value::Number(*model)
        }
        (value, _) => value,
    }
}

/// `serde_json` without `float_roundtrip` may read the description one step off.
pub(super) fn same_number(described: f64, exact: f64) -> bool {
    described == exact || described.to_bits().abs_diff(exact.to_bits()) == 1
}

pub(super) fn passed_same(recorded: &Json, passed: &Passed) -> bool {
    match (tag(recorded), passed) {
        (Some(("@objectWithBuffers", inner)), Passed::WithBuffers(value)) => same(inner, value),
        (Some(("@objectWithBuffers", _)), _) | (_, Passed::WithBuffers(_)) => false,
        (_, Passed::Plain(value)) => same(recorded, value),
    }
}

/// Whether JavaScript would hold the same value. A key whose value is undefined counts as absent.
pub(super) fn same(recorded: &Json, value: &Value) -> bool {
    let is_undefined = |recorded: &Json| matches!(tag(recorded), Some(("@undefined", _)));
    match (recorded, value) {
        (Json::Array(items), Value::Array(values)) => {
            // The original leaves a hole in place of an undefined, which may be recorded as null.
            let hole = |item: &Json, value: &Value| item.is_null() && *value == Value::Undefined;
            let mut pairs = items.iter().zip(values);
            items.len() == values.len()
                && pairs.all(|(item, value)| same(item, value) || hole(item, value))
        }
        (Json::Object(items), Value::Object(entries)) if tag(recorded).is_none() => {
            let defined = |(_, value): &&(String, Value)| *value != Value::Undefined;
            let wanted = items.values().filter(|item| !is_undefined(item)).count();
            let mut found = entries.iter().filter(defined);
            found.clone().count() == wanted
                && found.all(|(key, value)| items.get(key).is_some_and(|item| same(item, value)))
        }
        (Json::Number(number), Value::Number(value)) => number
            .as_f64()
            .is_some_and(|number| same_number(number, *value)),
        _ => match tag(recorded) {
            Some(("@uri", inner)) => same(inner, value),
            _ => to_value(recorded).is_some_and(|recorded| recorded == *value),
        },
    }
}

pub(super) fn bytes_of(hex: &Json) -> Result<Bytes, String> {
    let hex = hex.as_str().ok_or("not hex")?;
    let digits = hex.as_bytes().chunks(2).map(|pair| {
        let pair = std::str::from_utf8(pair).ok()?;
        u8::from_str_radix(pair, 16).ok()
    });
    digits
        .collect::<Option<Vec<_>>>()
        .map(Bytes::from)
        .ok_or_else(|| format!("not hex: {hex}"))
}
