//! Whether a document's value is what the JSON says.

use breakbulk::loro::crdt::LoroValue;
use serde_json::{Number, Value};

/// Whether `to_json` would write this value as that JSON. Numbers are compared by value: JavaScript
/// writes 5.0 as 5.
pub(super) fn same(value: &LoroValue, json: &Value) -> bool {
    match (value, json) {
        (LoroValue::Null, Value::Null) => true,
        // JSON has no infinities and no NaN: they are written as null.
        (LoroValue::Double(double), Value::Null) => !double.is_finite(),
        (LoroValue::Bool(value), Value::Bool(json)) => value == json,
        (LoroValue::Double(double), Value::Number(number)) => number.as_f64() == Some(*double),
        (LoroValue::I64(integer), Value::Number(number)) => same_integer(*integer, number),
        (LoroValue::String(value), Value::String(json)) => value.as_str() == json,
        (LoroValue::List(items), Value::Array(json)) => {
            items.len() == json.len() && items.iter().zip(json).all(|(item, json)| same(item, json))
        }
        (LoroValue::Map(members), Value::Object(json)) => {
            let known = |(name, json)| members.get(name).is_some_and(|member| same(member, json));
            members.len() == json.len() && json.iter().all(known)
        }
        (LoroValue::Binary(bytes), Value::Array(json)) => {
            let byte = |(byte, json): (&u8, &Value)| json.as_u64() == Some(u64::from(*byte));
            bytes.len() == json.len() && bytes.iter().zip(json).all(byte)
        }
        _ => false,
    }
}

fn same_integer(integer: i64, number: &Number) -> bool {
    match number.as_i64() {
        Some(number) => number == integer,
        None => number.is_f64() && number.as_f64() == Some(integer as f64),
    }
}
