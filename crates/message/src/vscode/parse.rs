//! Parses JSON text to a [`Value`].

use super::json::{JsonError, Lexer, RawString, Scalar};
use super::value::{MAX_DEPTH, Value};

impl Value {
    /// Parses JSON as `JSON.parse` does: if a key occurs twice, the last value is used, in the
    /// first one's position.
    ///
    /// ```
    /// # use breakbulk_message::vscode::Value;
    /// let value = Value::parse(r#"{"a":[1,null]}"#)?;
    /// assert_eq!(value.to_json()?, r#"{"a":[1,null]}"#);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn parse(text: &str) -> Result<Self, JsonError> {
        let mut lexer = Lexer::new(text);
        let value = value(&mut lexer, MAX_DEPTH)?;
        lexer.end()?;
        Ok(value)
    }
}

fn value(lexer: &mut Lexer<'_>, depth_left: usize) -> Result<Value, JsonError> {
    match lexer.token()? {
        b'[' => array(lexer, deeper(depth_left)?),
        b'{' => object(lexer, deeper(depth_left)?),
        b'"' => unescape(lexer.string()?).map(Value::String),
        first => Ok(match lexer.scalar(first)? {
            Scalar::Null => Value::Null,
            Scalar::Bool(bool) => Value::Bool(bool),
            Scalar::Number(number) => Value::Number(number),
        }),
    }
}

fn deeper(depth_left: usize) -> Result<usize, JsonError> {
    depth_left
        .checked_sub(1)
        .ok_or(JsonError::TooDeep { limit: MAX_DEPTH })
}

fn array(lexer: &mut Lexer<'_>, depth_left: usize) -> Result<Value, JsonError> {
    let mut items = Vec::new();
    if lexer.skip_if(b']') {
        return Ok(Value::Array(items));
    }
    loop {
        items.push(value(lexer, depth_left)?);
        match lexer.token()? {
            b',' => {}
            b']' => return Ok(Value::Array(items)),
            _ => return Err(lexer.malformed_before()),
        }
    }
}

fn object(lexer: &mut Lexer<'_>, depth_left: usize) -> Result<Value, JsonError> {
    let mut entries = Vec::new();
    if lexer.skip_if(b'}') {
        return Ok(Value::Object(entries));
    }
    loop {
        let key = unescape(lexer.key()?)?;
        entries.push((key, value(lexer, depth_left)?));
        match lexer.token()? {
            b',' => {}
            b'}' => return Ok(Value::Object(without_duplicates(entries))),
            _ => return Err(lexer.malformed_before()),
        }
    }
}

/// Removes duplicate keys. They are found by sorting: comparing each with each would be quadratic,
/// and a peer could exploit that.
fn without_duplicates(mut entries: Vec<(String, Value)>) -> Vec<(String, Value)> {
    let mut order: Vec<usize> = (0..entries.len()).collect();
    order.sort_by(|&a, &b| entries[a].0.cmp(&entries[b].0)); // stable: equal keys stay in order
    let mut doubles = Vec::new();
    for same in order.chunk_by(|&a, &b| entries[a].0 == entries[b].0) {
        if let [first, .., last] = *same {
            doubles.push((first, last));
        }
    }
    if doubles.is_empty() {
        return entries;
    }
    let mut keep = vec![true; entries.len()];
    for same in order.chunk_by(|&a, &b| entries[a].0 == entries[b].0) {
        same[1..].iter().for_each(|&index| keep[index] = false);
    }
    for (first, last) in doubles {
        entries[first].1 = std::mem::take(&mut entries[last].1);
    }
    let mut keep = keep.into_iter();
    entries.retain(|_| keep.next().unwrap_or(true));
    entries
}

fn unescape(raw: RawString<'_>) -> Result<String, JsonError> {
    if !raw.escaped {
        return Ok(raw.inside.to_owned());
    }
    let mut out = String::with_capacity(raw.inside.len());
    let mut rest = raw.inside;
    while let Some((plain, escape)) = rest.split_once('\\') {
        out.push_str(plain);
        let (char, len) = unescape_one(escape).ok_or(JsonError::LoneSurrogate { at: raw.at })?;
        out.push(char);
        rest = &escape[len..];
    }
    out.push_str(rest);
    Ok(out)
}

/// The character of an escape, and its length after the backslash. The grammar was checked, so the only
/// possible error is a lone surrogate.
fn unescape_one(escape: &str) -> Option<(char, usize)> {
    let char = match escape.as_bytes().first()? {
        b'b' => '\u{8}',
        b'f' => '\u{c}',
        b'n' => '\n',
        b'r' => '\r',
        b't' => '\t',
        b'u' => return unescape_unicode(escape),
        &other => char::from(other),
    };
    Some((char, 1))
}

fn unescape_unicode(escape: &str) -> Option<(char, usize)> {
    let first = hex4(escape)?;
    if let Some(char) = char::from_u32(first) {
        return Some((char, 5));
    }
    let second = escape.get(5..)?.strip_prefix('\\').and_then(hex4)?;
    if !(0xd800..0xdc00).contains(&first) || !(0xdc00..0xe000).contains(&second) {
        return None;
    }
    let code = 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00);
    Some((char::from_u32(code)?, 11))
}

fn hex4(escape: &str) -> Option<u32> {
    let digits = escape.strip_prefix('u')?.get(..4)?;
    u32::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_javascript_reads() {
        let table = [
            ("null", Value::Null),
            (" [true, false ]", vec![true.into(), false.into()].into()),
            ("-1.5e2", Value::Number(-150.0)),
            ("1e999", Value::Number(f64::INFINITY)),
            (r#""a\"\\\/\b\f\n\r\tz""#, "a\"\\/\u{8}\u{c}\n\r\tz".into()),
            (r#""\u00e9\ud83d\ude00\u0000é""#, "é😀\0é".into()),
            (
                "{\"b\":1,\"a\":{}}",
                [("b", 1.into()), ("a", Value::Object(vec![]))].into(),
            ),
            (
                r#"{"x":1,"y":2,"x":3,"z":4,"x":5,"y":6}"#,
                [("x", 5.into()), ("y", 6.into()), ("z", 4.into())].into(),
            ),
        ];
        for (text, expected) in table {
            assert_eq!(Value::parse(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn refuses_what_rust_cannot_hold() {
        for text in [
            r#""\ud800""#,
            r#""\udc00\ud800""#,
            r#""\ud800\u0041""#,
            r#""\ud83dx""#,
        ] {
            let lone = JsonError::LoneSurrogate { at: 1 };
            assert_eq!(Value::parse(text), Err(lone), "{text}");
        }
        assert!(Value::parse("[1,]").is_err());
        assert!(Value::parse("[] []").is_err());
        assert!(Value::parse("{\"a\" 1}").is_err());
    }

    #[test]
    fn depth_is_bounded() {
        let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        assert!(Value::parse(&nested(MAX_DEPTH)).is_ok());
        let too_deep = JsonError::TooDeep { limit: MAX_DEPTH };
        assert_eq!(Value::parse(&nested(MAX_DEPTH + 1)), Err(too_deep.clone()));
        assert_eq!(Value::parse(&nested(1_000_000)), Err(too_deep));
    }
}
