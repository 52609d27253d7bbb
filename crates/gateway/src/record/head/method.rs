//! The method and the id of a JSON-RPC message, found near its beginning or at its very end. Only for people
//! to read: in the middle of a large message nothing is searched.

/// The method, and the id as it is written, among the members at the beginning of a message.
pub(super) fn at_start(text: &[u8]) -> (Option<String>, Option<String>) {
    let (mut method, mut id) = (None, None);
    let mut at = blank(text, 0);
    if text.get(at) != Some(&b'{') {
        return (method, id);
    }
    at += 1;
    while let Some((name, behind)) = string(text, blank(text, at)) {
        let colon = blank(text, behind);
        if text.get(colon) != Some(&b':') {
            break;
        }
        let from = blank(text, colon + 1);
        let Some(to) = value(text, from) else { break };
        match name {
            b"method" => {
                method = serde_json::from_slice(&text[from..to]).ok();
            }
            b"id" => id = scalar(&text[from..to]),
            _ => {}
        }
        at = blank(text, to);
        if text.get(at) != Some(&b',') {
            break;
        }
        at += 1;
    }
    (method, id)
}

/// The code of an error, where the error is near the beginning and begins with its code, as most do.
pub(super) fn error_code(text: &[u8]) -> Option<i64> {
    const ERROR: &[u8] = br#""error":{"code":"#;
    // An error among the parameters of a request is none of the message's own.
    let (method, _) = at_start(text);
    let mut places = text.windows(ERROR.len());
    let at = places.position(|it| it == ERROR);
    let at = at.filter(|_| method.is_none())?;
    let before = text[..at].iter().filter(|byte| **byte == b'{').count();
    let digits = &text[at + ERROR.len()..];
    let end = digits.iter().position(|byte| !is_scalar(*byte))?;
    let code = std::str::from_utf8(&digits[..end]).ok()?.parse().ok()?;
    (before == 1).then_some(code)
}

/// The id, if it is the last member of a message, or the last one before `jsonrpc`.
pub(super) fn at_end(text: &[u8]) -> Option<String> {
    let text = text.trim_ascii_end().strip_suffix(b"}")?.trim_ascii_end();
    let text = match text.strip_suffix(br#""jsonrpc":"2.0""#) {
        Some(before) => before.trim_ascii_end().strip_suffix(b",")?.trim_ascii_end(),
        None => text,
    };
    let from = match text.strip_suffix(b"\"") {
        Some(inner) => {
            let from = inner.iter().rposition(|&byte| byte == b'"')?;
            if inner[from..].contains(&b'\\') {
                return None;
            }
            from
        }
        None => 1 + text.iter().rposition(|byte| !is_scalar(*byte))?,
    };
    let before = text[..from].trim_ascii_end().strip_suffix(b":")?;
    let before = before.trim_ascii_end().strip_suffix(br#""id""#)?;
    matches!(before.trim_ascii_end().last(), Some(b',' | b'{')).then_some(())?;
    scalar(&text[from..])
}

fn is_scalar(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'+' | b'.')
}

/// A number, a text or null, as it is written.
fn scalar(text: &[u8]) -> Option<String> {
    let parsed: serde_json::Value = serde_json::from_slice(text).ok()?;
    (!parsed.is_object() && !parsed.is_array()).then(|| parsed.to_string())
}

fn blank(text: &[u8], at: usize) -> usize {
    let blanks = text.get(at..).unwrap_or_default().iter();
    at + blanks.take_while(|it| it.is_ascii_whitespace()).count()
}

/// The content of a string, as it is written, and where it ends.
fn string(text: &[u8], at: usize) -> Option<(&[u8], usize)> {
    if text.get(at) != Some(&b'"') {
        return None;
    }
    let mut end = at + 1;
    loop {
        match text.get(end)? {
            b'"' => return Some((&text[at + 1..end], end + 1)),
            b'\\' => end += 2,
            _ => end += 1,
        }
    }
}

/// Where a value ends; `None` if that is beyond the text.
fn value(text: &[u8], mut at: usize) -> Option<usize> {
    let mut depth = 0usize;
    loop {
        match text.get(at)? {
            b'"' => at = string(text, at)?.1,
            b'{' | b'[' => {
                depth += 1;
                at += 1;
            }
            b'}' | b']' => {
                depth = depth.checked_sub(1)?;
                at += 1;
            }
            b',' | b':' if depth > 0 => at += 1,
            byte if byte.is_ascii_whitespace() && depth > 0 => at += 1,
            byte if is_scalar(*byte) => {
                at += 1;
                while text.get(at).copied().is_some_and(is_scalar) {
                    at += 1;
                }
                // A number at the end of what is looked at may go on.
                text.get(at)?;
            }
            _ => return None,
        }
        if depth == 0 {
            return Some(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_and_ids_at_either_end() {
        for (text, method, id, last) in [
            (
                r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"a":[1,"}"]}}"#,
                Some("tools/call"),
                Some("7"),
                None,
            ),
            (
                r#"{"method":"m","params":{"deep":[{"id":9}]},"jsonrpc":"2.0","id":"x"}"#,
                Some("m"),
                Some("\"x\""),
                Some("\"x\""),
            ),
            (
                r#" { "id" : null , "result" : [ ] } "#,
                None,
                Some("null"),
                None,
            ),
            (
                r#"{"result":{"id":1},"id": 42 ,"jsonrpc":"2.0"}"#,
                None,
                Some("42"),
                Some("42"),
            ),
            (r#"{"id":{"no":1},"method":3}"#, None, None, None),
            (
                r#"{"a":"\"id\":1}","method":"me\u0074hod"}"#,
                Some("method"),
                None,
                None,
            ),
            ("plain text", None, None, None),
            (r#"["id":1}"#, None, None, None),
            ("", None, None, None),
            ("{", None, None, None),
            ("}", None, None, None),
        ] {
            let found = at_start(text.as_bytes());
            assert_eq!(
                (found.0.as_deref(), found.1.as_deref()),
                (method, id),
                "{text}"
            );
            assert_eq!(at_end(text.as_bytes()).as_deref(), last, "{text}");
        }
    }

    #[test]
    fn codes_of_errors() {
        for (text, code) in [
            (
                r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32011,"message":"m"}}"#,
                Some(-32011),
            ),
            (r#"{"error":{"code":1,"message":"m"},"id":7}"#, Some(1)),
            (r#"{"id":7,"result":{"error":{"code":1}}}"#, None),
            (r#"{"id":7,"method":"m","error":{"code":1}}"#, None),
            (r#"{"id":7,"error":{"code":-320"#, None),
            (r#"{"id":7,"error":{"code":"x"}}"#, None),
            ("", None),
        ] {
            assert_eq!(error_code(text.as_bytes()), code, "{text}");
        }
    }

    #[test]
    fn what_is_cut_off_is_not_guessed() {
        let text = br#"{"id":12345,"method":"initialize","params":{"x":"yyyyyyyyyyyyy"}}"#;
        for end in 0..text.len() {
            let (method, id) = at_start(&text[..end]);
            assert!(id.is_none_or(|id| id == "12345"), "{end}");
            assert!(method.is_none_or(|method| method == "initialize"), "{end}");
        }
    }
}
