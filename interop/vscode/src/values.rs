//! The notation of `values.mjs` for values in JSON: what an argument is to be, and what arrived.

use anyhow::{Context, Result, bail};
use breakbulk::message::vscode::{Passed, SerializedError, Thrown, Value};
use serde_json::{Value as Json, json};

use crate::bytes::{bytes, told};

/// The value that a notation describes.
pub fn make(said: &Json) -> Result<Passed> {
    match said.get("$withBuffers") {
        Some(inner) => Ok(Passed::WithBuffers(value(inner)?)),
        None => Ok(Passed::Plain(value(said)?)),
    }
}

fn value(said: &Json) -> Result<Value> {
    Ok(match said {
        Json::Null => Value::Null,
        Json::Bool(bool) => Value::Bool(*bool),
        Json::Number(number) => Value::Number(number.as_f64().context("no number")?),
        Json::String(text) => Value::String(text.clone()),
        Json::Array(items) => Value::Array(items.iter().map(value).collect::<Result<_>>()?),
        Json::Object(entries) => {
            if entries.contains_key("$undefined") {
                return Ok(Value::Undefined);
            }
            if let Some(buffer) = entries.get("$buffer") {
                return self::buffer(buffer);
            }
            let entry = |(key, inner): (&String, &Json)| Ok((key.clone(), value(inner)?));
            Value::Object(entries.iter().map(entry).collect::<Result<_>>()?)
        }
    })
}

fn buffer(said: &Json) -> Result<Value> {
    let number = |key: &str| said[key].as_u64().context("a buffer has a size and a seed");
    let Some(hex) = said["hex"].as_str() else {
        let (size, seed) = (number("size")?, number("seed")?);
        return Ok(bytes(usize::try_from(size)?, u32::try_from(seed)?).into());
    };
    let digits: Vec<_> = hex.chars().map(|digit| digit.to_digit(16)).collect();
    let pairs = digits.chunks(2).map(|pair| match pair {
        [Some(high), Some(low)] => Ok(u8::try_from(high * 16 + low)?),
        _ => bail!("{hex} is no hex"),
    });
    Ok(Value::Buffer(pairs.collect::<Result<Vec<_>>>()?.into()))
}

/// The notation of a value that arrived.
pub fn tell(passed: &Passed) -> Json {
    match passed {
        Passed::Plain(value) => tell_value(value),
        Passed::WithBuffers(value) => json!({ "$withBuffers": tell_value(value) }),
    }
}

fn tell_value(value: &Value) -> Json {
    match value {
        Value::Null => Json::Null,
        Value::Bool(bool) => (*bool).into(),
        // JavaScript has one kind of number; in serde_json an integer and a floating-point number differ.
        Value::Number(number) if number.fract() == 0.0 && number.abs() < 1e15 => {
            (*number as i64).into()
        }
        Value::Number(number) => (*number).into(),
        Value::String(text) => text.as_str().into(),
        Value::Array(items) => items.iter().map(tell_value).collect(),
        Value::Object(entries) => entries
            .iter()
            .map(|(key, inner)| (key.clone(), tell_value(inner)))
            .collect(),
        Value::Buffer(buffer) => told(buffer),
        Value::Undefined => json!({"$undefined": true}),
    }
}

/// The notation of what was thrown.
pub fn tell_thrown(thrown: &Thrown) -> Json {
    match thrown {
        Thrown::Error(error) => json!({ "$error": tell_error(error) }),
        Thrown::Other(value) => tell_value(value),
    }
}

/// Of a stack it says only whether there is one.
fn tell_error(error: &SerializedError) -> Json {
    let mut told = json!({
        "name": error.name,
        "message": error.message,
        "stack": error.stack.as_ref().is_some_and(|stack| !stack.is_empty()),
    });
    if let Some(code) = &error.code {
        told["code"] = tell_value(code);
    }
    if let Some(cause) = &error.cause {
        told["cause"] = tell_thrown(cause);
    }
    told
}
