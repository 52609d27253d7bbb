//! Rewrites URIs in JSON that serde wrote or is to read.

use breakbulk_message::vscode::{Args, EncodeError, Passed, ReadError, Reply, UriTransformer};

use super::call::CallError;

/// Whether a text may hold a URI: it has the marker `$mid`, or an escape that could hide it.
fn may_hold_uri(json: &[u8]) -> bool {
    let holds = |needle: &[u8]| json.windows(needle.len()).any(|window| window == needle);
    holds(b"$mid") || holds(b"\\u")
}

/// Rewrites the URIs in arguments that serde wrote.
pub(super) fn outgoing_args(
    args: Args,
    uris: Option<&dyn UriTransformer>,
) -> Result<Args, CallError> {
    match (uris, &args) {
        (Some(uris), Args::Json(json)) if may_hold_uri(json.as_bytes()) => {
            let values = args
                .read(None)
                .map_err(|error| CallError::Serialize(error.to_string()))?;
            Args::write(values, Some(uris)).map_err(|error| CallError::Refused(error.into()))
        }
        _ => Ok(args),
    }
}

/// Rewrites the URIs in a result that serde wrote.
pub(super) fn outgoing_reply(
    reply: Reply,
    uris: Option<&dyn UriTransformer>,
) -> Result<Reply, EncodeError> {
    match (uris, &reply) {
        (Some(uris), Reply::OkJson(json)) if may_hold_uri(json.as_bytes()) => {
            match reply.read(None) {
                Ok(Ok(passed)) => Reply::write_ok(passed, Some(uris)),
                // Cannot happen: serde wrote valid JSON.
                _ => Ok(reply),
            }
        }
        _ => Ok(reply),
    }
}

/// Arguments as one JSON array for serde, with their URIs rewritten; `None` if they contain buffers.
pub(super) fn incoming_json(
    args: &Args,
    uris: Option<&dyn UriTransformer>,
) -> Result<Option<breakbulk_message::vscode::Text>, ReadError> {
    match (uris, args) {
        (Some(uris), Args::Json(json)) if may_hold_uri(json.as_bytes()) => {
            rewritten(args.read(Some(uris))?)
        }
        (_, Args::Json(json)) => Ok(Some(json.clone())),
        (uris, Args::Mixed(_)) => rewritten(args.read(uris)?),
    }
}

/// Rewrites arguments to JSON; `None` if there are buffers among them, which JSON cannot express.
fn rewritten(args: Vec<Passed>) -> Result<Option<breakbulk_message::vscode::Text>, ReadError> {
    let undefined_as_null = args.into_iter().map(|arg| match arg {
        Passed::Plain(breakbulk_message::vscode::Value::Undefined) => {
            Passed::Plain(breakbulk_message::vscode::Value::Null)
        }
        arg => arg,
    });
    match Args::write(undefined_as_null.collect(), None) {
        Ok(Args::Json(json)) => Ok(Some(json)),
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use breakbulk_message::vscode::StockTransformer;

    #[test]
    fn uris_change_wherever_serde_wrote_them() {
        let uris = StockTransformer {
            authority: "ssh+h".into(),
        };
        let before = r#"[{"u":{"$mid":1,"path":"/a","scheme":"file"}},1]"#;
        let after =
            r#"[{"u":{"$mid":1,"path":"/a","scheme":"vscode-remote","authority":"ssh+h"}},1]"#;
        let json = |text: &str| Args::Json(text.into());
        assert_eq!(
            outgoing_args(json(before), Some(&uris)).unwrap(),
            json(after)
        );
        assert_eq!(outgoing_args(json(before), None).unwrap(), json(before));
        let reply = |text: &str| Reply::OkJson(text.into());
        assert_eq!(outgoing_reply(reply(before), Some(&uris)), Ok(reply(after)));
        let hidden =
            r#"[{"u":{"\u0024mid":1,"path":"/a","scheme":"vscode-remote","authority":"ssh+h"}},1]"#;
        let back = incoming_json(&json(hidden), Some(&uris)).unwrap().unwrap();
        assert_eq!(back, before);
    }
}
