//! Parses CBOR as the original implementation's library does, which is a subset with peculiarities:
//!
//! - Lengths are definite. An argument of 1, 2 or 4 bytes must not be below 24.
//! - An 8-byte argument below 24 or above 2^53 - 1 is a *big integer*, which is not equal to any
//!   number.
//! - Keys are text or numbers, and must be unique.
//! - Tags are accepted, but the tagged value is not readable.
//!
//! A declared length causes no allocation: memory is limited by the items in the input, by
//! [`MAX_NESTING`], and by the caller's `max_items`.

use std::borrow::Cow;
use std::collections::BTreeSet;

use super::Detail;

/// How deep items may nest. Eight nested batches need 18 levels; the rest is for values that are
/// ignored.
const MAX_NESTING: usize = 64;

/// The largest integer that JavaScript represents exactly.
pub(super) const MAX_SAFE_INTEGER: u64 = (1 << 53) - 1;

/// One item. Text is not checked yet: only text that is used has to be UTF-8.
#[derive(Debug, PartialEq)]
pub(super) enum Value<'a> {
    Number(f64),
    BigInteger,
    Bytes(&'a [u8]),
    Text(&'a [u8]),
    Array(Vec<Value<'a>>),
    Map(Fields<'a>),
    Tagged,
    Bool(bool),
    Null,
    Undefined,
}

impl Value<'_> {
    /// The kind of the value, for error texts.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Number(_) => "a number",
            Self::BigInteger => "a big integer",
            Self::Bytes(_) => "bytes",
            Self::Text(_) => "text",
            Self::Array(_) => "an array",
            Self::Map(_) => "a map",
            Self::Tagged => "a tagged value",
            Self::Bool(_) => "a boolean",
            Self::Null => "null",
            Self::Undefined => "undefined",
        }
    }
}

/// A map's entries.
#[derive(Debug, PartialEq)]
pub(super) struct Fields<'a>(Vec<(Key<'a>, Value<'a>)>);

impl<'a> Fields<'a> {
    /// The value of a field; undefined if it is absent, as in JavaScript.
    pub(super) fn get(&self, name: &str) -> &Value<'a> {
        const ABSENT: &Value<'static> = &Value::Undefined;
        let named = |key: &Key<'_>| matches!(key, Key::Text(text) if text == name);
        let found = self.0.iter().find(|(key, _)| named(key));
        found.map_or(ABSENT, |(_, value)| value)
    }
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key<'a> {
    /// With replacement characters for invalid UTF-8, since the original compares keys after replacing.
    Text(Cow<'a, str>),
    /// The bits of a number, with one form for zero and one for NaN.
    Number(u64),
}

/// Parses `payload`, which must be exactly one item.
pub(super) fn parse(payload: &[u8], max_items: usize) -> Result<Value<'_>, Detail> {
    let mut parser = Parser {
        payload,
        at: 0,
        max_items,
        items: 0,
    };
    let value = parser.value(0)?;
    let (at, len) = (parser.at, payload.len());
    if at < len {
        return Err(Detail::Trailing { at, len });
    }
    Ok(value)
}

struct Parser<'a> {
    payload: &'a [u8],
    at: usize,
    max_items: usize,
    items: usize,
}

/// The argument in the head of an item.
struct Argument {
    value: u64,
    is_big: bool,
}

impl<'a> Parser<'a> {
    fn value(&mut self, depth: usize) -> Result<Value<'a>, Detail> {
        if depth > MAX_NESTING {
            return Err(Detail::NestsTooDeep { limit: MAX_NESTING });
        }
        self.items += 1;
        if self.items > self.max_items {
            let limit = self.max_items;
            return Err(Detail::TooManyItems { limit });
        }
        let start = self.at;
        let initial = self.take(1, start)?[0];
        let info = initial & 0x1f;
        Ok(match initial >> 5 {
            0 => integer(self.argument(info, start)?, |value| value),
            1 => integer(self.argument(info, start)?, |value| -1.0 - value),
            2 => Value::Bytes(self.string(info, start)?),
            3 => Value::Text(self.string(info, start)?),
            4 => {
                let count = self.argument(info, start)?.value;
                let mut items = Vec::new();
                for _ in 0..count {
                    items.push(self.value(depth + 1)?);
                }
                Value::Array(items)
            }
            5 => {
                let count = self.argument(info, start)?.value;
                self.map(count, start, depth)?
            }
            6 => {
                self.argument(info, start)?;
                self.value(depth + 1)?;
                Value::Tagged
            }
            _ => self.simple(info, start)?,
        })
    }

    fn map(&mut self, count: u64, start: usize, depth: usize) -> Result<Value<'a>, Detail> {
        let mut entries = Vec::new();
        for _ in 0..count {
            let key_at = self.at;
            let key = match self.value(depth + 1)? {
                Value::Text(text) => Key::Text(String::from_utf8_lossy(text)),
                Value::Number(number) => Key::Number(key_bits(number)),
                other => {
                    let found = other.kind();
                    return Err(Detail::Key { at: key_at, found });
                }
            };
            entries.push((key, self.value(depth + 1)?));
        }
        let mut seen = BTreeSet::new();
        if entries.iter().any(|(key, _)| !seen.insert(key)) {
            return Err(Detail::DuplicateKey { at: start });
        }
        Ok(Value::Map(Fields(entries)))
    }

    fn simple(&mut self, info: u8, start: usize) -> Result<Value<'a>, Detail> {
        Ok(match info {
            20 => Value::Bool(false),
            21 => Value::Bool(true),
            22 => Value::Null,
            23 => Value::Undefined,
            // The only half floats that the original accepts.
            25 => Value::Number(match self.array(start)? {
                [0x7c, 0x00] => f64::INFINITY,
                [0xfc, 0x00] => f64::NEG_INFINITY,
                [0x7e, 0x00] => f64::NAN,
                _ => return Err(Detail::Simple { at: start }),
            }),
            26 => Value::Number(f32::from_be_bytes(self.array(start)?).into()),
            27 => Value::Number(f64::from_be_bytes(self.array(start)?)),
            _ => return Err(Detail::Simple { at: start }),
        })
    }

    fn string(&mut self, info: u8, start: usize) -> Result<&'a [u8], Detail> {
        let Argument { value, is_big } = self.argument(info, start)?;
        if is_big {
            return Err(Detail::Argument { at: start });
        }
        self.take(value, start)
    }

    fn argument(&mut self, info: u8, start: usize) -> Result<Argument, Detail> {
        let value = match info {
            0..24 => {
                let value = u64::from(info);
                return Ok(Argument {
                    value,
                    is_big: false,
                });
            }
            24 => u8::from_be_bytes(self.array(start)?).into(),
            25 => u16::from_be_bytes(self.array(start)?).into(),
            26 => u32::from_be_bytes(self.array(start)?).into(),
            27 => {
                let value = u64::from_be_bytes(self.array(start)?);
                let is_big = !(24..=MAX_SAFE_INTEGER).contains(&value);
                return Ok(Argument { value, is_big });
            }
            _ => return Err(Detail::Argument { at: start }),
        };
        if value < 24 {
            return Err(Detail::Argument { at: start });
        }
        Ok(Argument {
            value,
            is_big: false,
        })
    }

    fn array<const N: usize>(&mut self, start: usize) -> Result<[u8; N], Detail> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N as u64, start)?);
        Ok(array)
    }

    fn take(&mut self, count: u64, start: usize) -> Result<&'a [u8], Detail> {
        let rest = &self.payload[self.at..];
        let ends = Detail::Ends {
            at: start,
            len: self.payload.len(),
        };
        let Some(taken) = usize::try_from(count)
            .ok()
            .and_then(|count| rest.get(..count))
        else {
            return Err(ends);
        };
        self.at += taken.len();
        Ok(taken)
    }
}

fn integer(argument: Argument, sign: fn(f64) -> f64) -> Value<'static> {
    if argument.is_big {
        Value::BigInteger
    } else {
        // Exact, since the magnitude is at most 2^53.
        Value::Number(sign(argument.value as f64))
    }
}

fn key_bits(number: f64) -> u64 {
    if number == 0.0 {
        0.0_f64.to_bits()
    } else if number.is_nan() {
        f64::NAN.to_bits()
    } else {
        number.to_bits()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(payload: &[u8]) -> Result<Value<'_>, Detail> {
        parse(payload, 1000)
    }

    #[test]
    fn items() {
        let cases: &[(&[u8], Value<'_>)] = &[
            (b"\x17", Value::Number(23.0)),
            (b"\x18\x18", Value::Number(24.0)),
            (b"\x19\x00\x30", Value::Number(48.0)),
            (b"\x20", Value::Number(-1.0)),
            (
                b"\x1b\x00\x1f\xff\xff\xff\xff\xff\xff",
                Value::Number(9_007_199_254_740_991.0),
            ),
            (b"\x1b\x00\x20\x00\x00\x00\x00\x00\x00", Value::BigInteger),
            (b"\x1b\x00\x00\x00\x00\x00\x00\x00\x01", Value::BigInteger),
            (b"\x3b\x7f\xff\xff\xff\xff\xff\xff\xff", Value::BigInteger),
            (b"\x3b\xff\xff\xff\xff\xff\xff\xff\xff", Value::BigInteger),
            (b"\x42\x01\x02", Value::Bytes(&[1, 2])),
            (b"\x61\xff", Value::Text(b"\xff")),
            (
                b"\x82\xf4\x80",
                Value::Array(vec![Value::Bool(false), Value::Array(vec![])]),
            ),
            (
                b"\x9b\x00\x00\x00\x00\x00\x00\x00\x01\xf6",
                Value::Array(vec![Value::Null]),
            ),
            (b"\xc1\x82\x01\x02", Value::Tagged),
            (b"\xfa\x3f\xc0\x00\x00", Value::Number(1.5)),
            (b"\xf9\x7c\x00", Value::Number(f64::INFINITY)),
        ];
        for (payload, value) in cases {
            assert_eq!(parsed(payload).as_ref(), Ok(value), "{payload:02x?}");
        }
    }

    #[test]
    fn malformed() {
        let cases: &[(&[u8], Detail)] = &[
            (b"", Detail::Ends { at: 0, len: 0 }),
            (b"\x18", Detail::Ends { at: 0, len: 1 }),
            (b"\x18\x17", Detail::Argument { at: 0 }),
            (b"\x1a\x00\x00\x00\x17", Detail::Argument { at: 0 }),
            (b"\x1c", Detail::Argument { at: 0 }),
            (b"\x9f\xff", Detail::Argument { at: 0 }),
            (
                b"\x5b\x00\x00\x00\x00\x00\x00\x00\x01\x00",
                Detail::Argument { at: 0 },
            ),
            (b"\x43\x00\x00", Detail::Ends { at: 0, len: 3 }),
            (b"\xff", Detail::Simple { at: 0 }),
            (b"\xf8\x20", Detail::Simple { at: 0 }),
            (b"\xf9\x3c\x00", Detail::Simple { at: 0 }),
            (b"\x01\x02", Detail::Trailing { at: 1, len: 2 }),
            (
                b"\xa1\x41\x01\xf5",
                Detail::Key {
                    at: 1,
                    found: "bytes",
                },
            ),
            (b"\xa2\x61a\x01\x61a\x02", Detail::DuplicateKey { at: 0 }),
            (
                b"\xa2\x01\x01\xfa\x3f\x80\x00\x00\x02",
                Detail::DuplicateKey { at: 0 },
            ),
            (
                b"\xa2\x61\xff\x01\x61\xfe\x02",
                Detail::DuplicateKey { at: 0 },
            ),
        ];
        for (payload, detail) in cases {
            assert_eq!(parsed(payload).as_ref(), Err(detail), "{payload:02x?}");
        }
    }

    #[test]
    fn a_declared_length_allocates_nothing() {
        for head in [0x9a, 0xba, 0x5a, 0x7a] {
            let payload = [head, 0xff, 0xff, 0xff, 0xff];
            assert_eq!(
                parsed(&payload).unwrap_err(),
                Detail::Ends {
                    at: if head < 0x80 { 0 } else { 5 },
                    len: 5
                }
            );
            let payload = [head | 1, 0, 0, 0, 1, 0, 0, 0, 0];
            assert!(matches!(parsed(&payload), Err(Detail::Ends { .. })));
        }
    }

    #[test]
    fn nesting_and_items_are_bounded() {
        for level in [&b"\x81"[..], b"\xa1\x00", b"\xc1"] {
            let nested = |levels: usize| [level.repeat(levels), vec![0x00]].concat();
            assert!(parsed(&nested(MAX_NESTING)).is_ok());
            let limit = MAX_NESTING;
            let too_deep = Err(Detail::NestsTooDeep { limit });
            assert_eq!(parsed(&nested(MAX_NESTING + 1)), too_deep);
            assert_eq!(parse(&nested(1_000_000), usize::MAX), too_deep);
        }
        let three = b"\x82\x00\x00";
        assert!(parse(three, 3).is_ok());
        assert_eq!(parse(three, 2), Err(Detail::TooManyItems { limit: 2 }));
    }
}
