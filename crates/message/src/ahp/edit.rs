//! Edits of messages that pass through a gateway: one value is changed, all other bytes stay.

use super::ROOT_CHANNEL;
use super::chunking::Chunking;
use super::read::Action;
use crate::jsonrpc::{Envelope, Kind, integer, member, range_in, string};
use crate::list::Elements;
use crate::splice::{remove, replace, set};

/// Sets our advertisement in an `initialize` or `reconnect` request. `None` for any other message,
/// and for an `initialize` of another protocol: MCP and LSP have `capabilities` too.
pub fn with_chunking(text: &str, chunking: &Chunking) -> Option<String> {
    let request = request(text)?;
    let params = request.params?.get();
    match &*request.method()? {
        "initialize" if string(member(params, "channel")?)? == ROOT_CHANNEL => {}
        "reconnect" => {}
        _ => return None,
    }
    set(
        text,
        params,
        &["capabilities", "chunking"],
        &chunking.to_json(),
    )
}

/// Removes the client's advertisement from an `initialize` or `reconnect` request, so that the host sends
/// no segments. `None` if there is no advertisement, and for any other message.
pub fn without_chunking(text: &str) -> Option<String> {
    let params = request(text)?.params?.get();
    let capabilities = member(params, "capabilities")?;
    with_chunking(text, &Chunking::default())?;
    remove(text, capabilities.get(), "chunking")
}

/// Removes the host's advertisement from the response to an `initialize` (the caller knows which response
/// that is), so that the client sends no segments. `None` if there is no advertisement.
pub fn without_chunking_in_result(text: &str) -> Option<String> {
    let capabilities = member(result(text)?, "capabilities")?;
    remove(text, capabilities.get(), "chunking")
}

/// Sets our advertisement in the response to an `initialize` (the caller knows which response that is).
/// `None` if it is an error, or its result is not an object.
pub fn with_chunking_in_result(text: &str, chunking: &Chunking) -> Option<String> {
    let result = result(text)?;
    set(
        text,
        result,
        &["capabilities", "chunking"],
        &chunking.to_json(),
    )
}

/// Changes the last seen action of a `reconnect` request. `None` for any other message, or if the
/// request has no such number.
pub fn with_last_seen(text: &str, last_seen: i64) -> Option<String> {
    let request = request(text)?;
    if request.method()? != "reconnect" {
        return None;
    }
    let old = member(request.params?.get(), "lastSeenServerSeq")?;
    integer(old)?;
    Some(replace(text, old.get(), &last_seen.to_string()))
}

/// Removes the actions that the client has applied from the response to a `reconnect`. `None` if it
/// is no replay, or nothing is to be removed; elements that are not valid actions stay.
pub fn without_applied(text: &str, mut applied: impl FnMut(&Action<'_>) -> bool) -> Option<String> {
    let result = result(text)?;
    if string(member(result, "type")?)? != "replay" {
        return None;
    }
    let mut out = String::new();
    let mut copy = |part: &str| {
        // Allocated once, and only if something is removed: a replay may be large.
        out.reserve_exact(text.len() - out.len());
        out.push_str(part);
    };
    // Everything before `copied` was copied to `out` or removed.
    let mut copied = 0;
    let mut kept_end = None;
    let mut first_gone = None;
    let mut gone_end = None;
    for element in Elements::of(member(result, "actions")?)? {
        let range = range_in(text, element.get());
        if Action::read(element).is_ok_and(|action| applied(&action)) {
            first_gone.get_or_insert(range.start);
            gone_end = Some(range.end);
        } else {
            if let Some(gone) = first_gone.take() {
                // The run is removed with the comma after it.
                copy(&text[copied..gone]);
                copied = range.start;
            }
            kept_end = Some(range.end);
        }
    }
    if let (Some(gone), Some(end)) = (first_gone, gone_end) {
        // A run at the end is removed with the comma before it.
        copy(&text[copied..kept_end.unwrap_or(gone)]);
        copied = end;
    }
    gone_end?;
    copy(&text[copied..]);
    Some(out)
}

fn request(text: &str) -> Option<Envelope<'_>> {
    let envelope = Envelope::parse(text)?;
    (envelope.kind()? == Kind::Request).then_some(envelope)
}

fn result(text: &str) -> Option<&str> {
    let envelope = Envelope::parse(text)?;
    (envelope.kind()? == Kind::Result).then_some(envelope.result?.get())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: Chunking = Chunking {
        max_frame_bytes: 1,
        max_message_bytes: 2,
        max_groups: None,
        group_timeout_ms: None,
        timeout_from: super::super::TimeoutFrom::First,
    };
    const JSON: &str = r#"{"maxIncomingFrameBytes":1,"maxIncomingMessageBytes":2}"#;

    #[test]
    fn an_advertisement_is_kept_from_who_shall_not_cut() {
        for (request, result) in [
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"reconnect","params":{"capabilities":{@},"clientId":"c"}}"#,
                false,
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"result":{"capabilities":{@},"serverSeq":1}}"#,
                true,
            ),
        ] {
            for (with, without) in [
                (format!(r#" "chunking" : {JSON},"x":1"#), r#" "x":1"#),
                (format!(r#""chunking":{JSON}"#), ""),
                (
                    r#""mcpApps":{},"chunking":null"#.to_owned(),
                    r#""mcpApps":{}"#,
                ),
            ] {
                let text = request.replace('@', &with);
                let edited = match result {
                    true => without_chunking_in_result(&text),
                    false => without_chunking(&text),
                };
                assert_eq!(edited, Some(request.replace('@', without)), "{text}");
            }
        }
        for untouched in [
            r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"capabilities":{"chunking":{}}}}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"reconnect","params":{"capabilities":{}}}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":{"capabilities":{"chunking":{}}}}"#,
            "[]",
        ] {
            assert_eq!(without_chunking(untouched), None, "{untouched}");
        }
    }

    #[test]
    fn our_advertisement_in_requests() {
        // `@` stands for the advertisement.
        for (text, expected) in [
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"channel":"ahp-root://","clientId":"c"}}"#,
                Some(
                    r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"channel":"ahp-root://","clientId":"c","capabilities":{"chunking":@}}}"#,
                ),
            ),
            (
                "{\n  \"params\": {\"capabilities\": {\"mcpApps\": {}} , \"channel\":\"ahp-root:\\/\\/\"\n},\"method\":\"initialize\",\"jsonrpc\":\"2.0\",\"id\":\"é\" } ",
                Some(
                    "{\n  \"params\": {\"capabilities\": {\"mcpApps\": {},\"chunking\":@} , \"channel\":\"ahp-root:\\/\\/\"\n},\"method\":\"initialize\",\"jsonrpc\":\"2.0\",\"id\":\"é\" } ",
                ),
            ),
            (
                r#"{"jsonrpc":"2.0","id":4,"method":"reconnect","params":{"capabilities":{"chunking":{"maxIncomingFrameBytes":7},"x":1},"channel":"ahp-root://"}}"#,
                Some(
                    r#"{"jsonrpc":"2.0","id":4,"method":"reconnect","params":{"capabilities":{"chunking":@,"x":1},"channel":"ahp-root://"}}"#,
                ),
            ),
            (
                r#"{"jsonrpc":"2.0","id":4,"method":"reconnect","params":{"capabilities":null}}"#,
                Some(
                    r#"{"jsonrpc":"2.0","id":4,"method":"reconnect","params":{"capabilities":{"chunking":@}}}"#,
                ),
            ),
            (
                r#"{"jsonrpc":"2.0","id":4,"method":"reconnect","params":{"capabilities":{"a":1},"capabilities":{}}}"#,
                Some(
                    r#"{"jsonrpc":"2.0","id":4,"method":"reconnect","params":{"capabilities":{"a":1},"capabilities":{"chunking":@}}}"#,
                ),
            ),
            (
                r#"{"jsonrpc":"2.0","id":4,"method":"reconnect","params":{"capabilities":[]}}"#,
                None,
            ),
            (
                r#"{"jsonrpc":"2.0","id":4,"method":"reconnect","params":[]}"#,
                None,
            ),
            (r#"{"jsonrpc":"2.0","id":4,"method":"reconnect"}"#, None),
            (
                r#"{"jsonrpc":"2.0","method":"reconnect","params":{}}"#,
                None,
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{}}}"#,
                None,
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"channel":"ahp-root:///"}}"#,
                None,
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"channel":"ahp-root://","channel":1}}"#,
                None,
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"subscribe","params":{"channel":"ahp-root://"}}"#,
                None,
            ),
            (r#"{"id":1,"method":"reconnect","params":{}}"#, None),
            ("", None),
            ("[]", None),
        ] {
            let expected = expected.map(|expected| expected.replace('@', JSON));
            assert_eq!(with_chunking(text, &SMALL), expected, "{text}");
        }
    }

    #[test]
    fn our_advertisement_in_results() {
        for (text, expected) in [
            (
                r#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
                Some(r#"{"jsonrpc":"2.0","id":1,"result":{"capabilities":{"chunking":@}}}"#),
            ),
            (
                r#"{"result":{"capabilities":{"chunking":null}, "serverSeq":0},"jsonrpc":"2.0","id":1}"#,
                Some(
                    r#"{"result":{"capabilities":{"chunking":@}, "serverSeq":0},"jsonrpc":"2.0","id":1}"#,
                ),
            ),
            (r#"{"jsonrpc":"2.0","id":1,"result":null}"#, None),
            (r#"{"jsonrpc":"2.0","id":1,"error":{}}"#, None),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}"#,
                None,
            ),
        ] {
            let expected = expected.map(|expected| expected.replace('@', JSON));
            assert_eq!(with_chunking_in_result(text, &SMALL), expected, "{text}");
        }
    }

    #[test]
    fn another_last_seen() {
        for (text, expected) in [
            (
                r#"{"jsonrpc":"2.0","id":4,"method":"reconnect","params":{"lastSeenServerSeq": 421 ,"x":"421"}}"#,
                Some(
                    r#"{"jsonrpc":"2.0","id":4,"method":"reconnect","params":{"lastSeenServerSeq": -7 ,"x":"421"}}"#,
                ),
            ),
            (
                r#"{"jsonrpc":"2.0","id":4,"method":"reconnect","params":{"lastSeenServerSeq":1,"lastSeenServerSeq":2}}"#,
                Some(
                    r#"{"jsonrpc":"2.0","id":4,"method":"reconnect","params":{"lastSeenServerSeq":1,"lastSeenServerSeq":-7}}"#,
                ),
            ),
            (
                r#"{"jsonrpc":"2.0","id":4,"method":"reconnect","params":{}}"#,
                None,
            ),
            (
                r#"{"jsonrpc":"2.0","id":4,"method":"reconnect","params":{"lastSeenServerSeq":"1"}}"#,
                None,
            ),
            (
                r#"{"jsonrpc":"2.0","id":4,"method":"initialize","params":{"lastSeenServerSeq":1}}"#,
                None,
            ),
            (
                r#"{"jsonrpc":"2.0","id":4,"result":{"lastSeenServerSeq":1}}"#,
                None,
            ),
        ] {
            assert_eq!(with_last_seen(text, -7).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn applied_actions_are_taken_out() {
        // `a` to `d` stand for actions 1 to 4, `!` for an element that is not an action.
        let case = |actions: &str| {
            let mut text = String::new();
            for letter in actions.chars() {
                match letter {
                    'a'..='d' => {
                        let seq = u32::from(letter) - u32::from('a') + 1;
                        text += &format!(r#"{{"channel":"s", "action":{{}},"serverSeq":{seq}}}"#);
                    }
                    '!' => text += r#"{"serverSeq":2}"#,
                    other => text.push(other),
                }
            }
            format!(
                r#"{{"jsonrpc":"2.0","id":4,"result":{{"type":"replay","actions":{text},"missing":["x"]}} }}"#
            )
        };
        for (actions, applied, expected) in [
            ("[a,b,c,d]", &[2, 4][..], Some("[a,c]")),
            ("[a,b,c,d]", &[1, 2], Some("[c,d]")),
            ("[a,b,c,d]", &[2, 3], Some("[a,d]")),
            ("[a,b,c,d]", &[3, 4], Some("[a,b]")),
            ("[a,b,c,d]", &[1, 3], Some("[b,d]")),
            ("[a,b,c,d]", &[1, 2, 3, 4], Some("[]")),
            ("[ a , b ,\n c ]", &[1], Some("[ b ,\n c ]")),
            ("[ a , b ,\n c ]", &[2], Some("[ a , c ]")),
            ("[ a , b ,\n c ]", &[3], Some("[ a , b ]")),
            ("[ a , b ,\n c ]", &[1, 3], Some("[ b ]")),
            ("[ a ]", &[1], Some("[  ]")),
            ("[!,b]", &[2], Some("[!]")),
            ("[!,7,b]", &[1], None),
            ("[a,b]", &[], None),
            ("[]", &[1], None),
            ("{}", &[1], None),
        ] {
            let expected = expected.map(case);
            let edited = without_applied(&case(actions), |action| {
                applied.contains(&action.server_seq)
            });
            assert_eq!(edited, expected, "{actions} {applied:?}");
        }
        for other in [
            r#"{"jsonrpc":"2.0","id":4,"result":{"type":"snapshot","actions":[]}}"#,
            r#"{"jsonrpc":"2.0","id":4,"result":{"type":"replay"}}"#,
            r#"{"jsonrpc":"2.0","id":4,"result":null}"#,
            r#"{"jsonrpc":"2.0","id":4,"error":{}}"#,
            "",
        ] {
            assert_eq!(without_applied(other, |_| true), None, "{other}");
        }
    }
}
