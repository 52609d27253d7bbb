//! Writes messages as the real client writes them, and a host's answers.

use serde_json::value::RawValue;

use super::ROOT_CHANNEL;
use super::chunking::Chunking;
use super::read::{Action, Snapshot};
use crate::jsonrpc;
use crate::splice::quoted;

/// An `initialize` request. The usual versions are [`PROTOCOL_VERSIONS`](super::PROTOCOL_VERSIONS).
pub fn initialize(
    id: u64,
    client_id: &str,
    subscriptions: &[impl AsRef<str>],
    versions: &[impl AsRef<str>],
    chunking: Option<&Chunking>,
) -> String {
    let params = format!(
        r#"{{"channel":"{ROOT_CHANNEL}","clientId":{},"initialSubscriptions":{},"protocolVersions":{}{}}}"#,
        quoted(client_id),
        strings(subscriptions),
        strings(versions),
        capabilities(chunking),
    );
    request(id, "initialize", &params)
}

/// A `reconnect` request.
pub fn reconnect(
    id: u64,
    client_id: &str,
    last_seen: i64,
    subscriptions: &[impl AsRef<str>],
    chunking: Option<&Chunking>,
) -> String {
    let params = format!(
        r#"{{"channel":"{ROOT_CHANNEL}","clientId":{},"lastSeenServerSeq":{last_seen},"subscriptions":{}{}}}"#,
        quoted(client_id),
        strings(subscriptions),
        capabilities(chunking),
    );
    request(id, "reconnect", &params)
}

/// A `subscribe` request.
pub fn subscribe(id: u64, channel: &str) -> String {
    request(
        id,
        "subscribe",
        &format!(r#"{{"channel":{}}}"#, quoted(channel)),
    )
}

/// A `ping` request.
pub fn ping(id: u64) -> String {
    request(id, "ping", &format!(r#"{{"channel":"{ROOT_CHANNEL}"}}"#))
}

/// A `dispatchAction` notification, by which a client sends an action.
pub fn dispatch_action(channel: &str, client_seq: i64, action: &RawValue) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","method":"dispatchAction","params":{{"action":{},"channel":{},"clientSeq":{client_seq}}}}}"#,
        action.get(),
        quoted(channel),
    )
}

/// An `action` notification, by which a host sends an action to subscribers.
pub fn action(action: &Action<'_>) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","method":"action","params":{}}}"#,
        action.to_json()
    )
}

/// The answer to `initialize`.
pub fn initialize_result(
    id: &RawValue,
    version: &str,
    server_seq: i64,
    snapshots: &[Snapshot<'_>],
    chunking: Option<&Chunking>,
) -> String {
    let result = format!(
        r#"{{"protocolVersion":{},"serverSeq":{server_seq},"snapshots":{}{}}}"#,
        quoted(version),
        list(snapshots.iter().map(Snapshot::to_json)),
        capabilities(chunking),
    );
    response(id, &result)
}

/// The answer to `subscribe`; `None` for a channel without state.
pub fn subscribe_result(id: &RawValue, snapshot: Option<&Snapshot<'_>>) -> String {
    let snapshot = snapshot.map(|snapshot| format!(r#""snapshot":{}"#, snapshot.to_json()));
    response(id, &format!("{{{}}}", snapshot.unwrap_or_default()))
}

/// The answer to `reconnect` with the missed actions, as [`Action::to_json`] wrote them, and the
/// channels that no longer exist.
pub fn replay_result<'a>(
    id: &RawValue,
    actions: impl IntoIterator<Item = &'a RawValue>,
    missing: &[impl AsRef<str>],
) -> String {
    let actions = list(actions.into_iter().map(RawValue::get));
    let missing = strings(missing);
    response(
        id,
        &format!(r#"{{"type":"replay","actions":{actions},"missing":{missing}}}"#),
    )
}

/// The answer to `reconnect` if the client missed too many actions.
pub fn snapshot_result(id: &RawValue, snapshots: &[Snapshot<'_>]) -> String {
    let snapshots = list(snapshots.iter().map(Snapshot::to_json));
    response(
        id,
        &format!(r#"{{"type":"snapshot","snapshots":{snapshots}}}"#),
    )
}

/// The answer to `ping`.
pub fn ping_result(id: &RawValue) -> String {
    response(id, "null")
}

impl Action<'_> {
    /// The JSON of the notification's params, which is also that of an element of a replay.
    pub fn to_json(&self) -> String {
        let mut out = format!(
            r#"{{"channel":{},"action":{},"serverSeq":{}"#,
            quoted(&self.channel),
            self.action.get(),
            self.server_seq
        );
        if let Some(origin) = &self.origin {
            let client = quoted(&origin.client_id);
            let seq = origin.client_seq;
            out.push_str(&format!(
                r#","origin":{{"clientId":{client},"clientSeq":{seq}}}"#
            ));
        }
        if let Some(reason) = &self.rejection_reason {
            out.push_str(&format!(r#","rejectionReason":{}"#, quoted(reason)));
        }
        out.push('}');
        out
    }
}

impl Snapshot<'_> {
    /// The JSON object.
    pub fn to_json(&self) -> String {
        format!(
            r#"{{"resource":{},"state":{},"fromSeq":{}}}"#,
            quoted(&self.resource),
            self.state.get(),
            self.from_seq
        )
    }
}

fn request(id: u64, method: &str, params: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#)
}

fn response(id: &RawValue, result: &str) -> String {
    jsonrpc::result(id.get(), result)
}

/// The `capabilities` member, to be the last one, where an edit of a message puts it, too.
fn capabilities(chunking: Option<&Chunking>) -> String {
    let member =
        |chunking: &Chunking| format!(r#","capabilities":{{"chunking":{}}}"#, chunking.to_json());
    chunking.map(member).unwrap_or_default()
}

fn strings(list_of: &[impl AsRef<str>]) -> String {
    list(list_of.iter().map(|text| quoted(text.as_ref())))
}

fn list(elements: impl Iterator<Item = impl AsRef<str>>) -> String {
    let mut out = String::from("[");
    for element in elements {
        if out.len() > 1 {
            out.push(',');
        }
        out.push_str(element.as_ref());
    }
    out.push(']');
    out
}

#[cfg(test)]
mod tests {
    use super::super::{Origin, PROTOCOL_VERSIONS, with_chunking, with_chunking_in_result};
    use super::*;

    fn raw(text: &str) -> &RawValue {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn what_a_client_says() {
        for (written, expected) in [
            (
                initialize(1, "c", &["ahp-root://"], &PROTOCOL_VERSIONS, None),
                r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"channel":"ahp-root://","clientId":"c","initialSubscriptions":["ahp-root://"],"protocolVersions":["1.0.0","0.9.0"]}}"#,
            ),
            (
                reconnect(4, "c", 421, &["ahp-root://", "ahp-session:/abc-123"], None),
                r#"{"jsonrpc":"2.0","id":4,"method":"reconnect","params":{"channel":"ahp-root://","clientId":"c","lastSeenServerSeq":421,"subscriptions":["ahp-root://","ahp-session:/abc-123"]}}"#,
            ),
            (
                subscribe(2, "ahp-session:/abc-123"),
                r#"{"jsonrpc":"2.0","id":2,"method":"subscribe","params":{"channel":"ahp-session:/abc-123"}}"#,
            ),
            (
                dispatch_action(
                    "ahp-session:/abc-123",
                    1,
                    raw(r#"{"title":"hello","type":"session/titleChanged"}"#),
                ),
                r#"{"jsonrpc":"2.0","method":"dispatchAction","params":{"action":{"title":"hello","type":"session/titleChanged"},"channel":"ahp-session:/abc-123","clientSeq":1}}"#,
            ),
            (
                ping(5),
                r#"{"jsonrpc":"2.0","id":5,"method":"ping","params":{"channel":"ahp-root://"}}"#,
            ),
            (
                subscribe(u64::MAX, "a\"\n\u{1}é"),
                r#"{"jsonrpc":"2.0","id":18446744073709551615,"method":"subscribe","params":{"channel":"a\"\n\u0001é"}}"#,
            ),
        ] {
            assert_eq!(written, expected);
        }
    }

    #[test]
    fn what_a_host_says() {
        let id = raw("4");
        let said = Action {
            channel: "ahp-chat:/x".into(),
            action: raw(r#"{"type": "t"}"#),
            server_seq: 421,
            origin: Some(Origin {
                client_id: "c".into(),
                client_seq: 1,
            }),
            rejection_reason: Some("no".into()),
        };
        let plain = Action {
            origin: None,
            rejection_reason: None,
            ..said.clone()
        };
        let state = Snapshot {
            resource: "ahp-root://".into(),
            state: raw("{}"),
            from_seq: 9,
        };
        let none: [&str; 0] = [];
        for (written, expected) in [
            (
                action(&said),
                r#"{"jsonrpc":"2.0","method":"action","params":{"channel":"ahp-chat:/x","action":{"type": "t"},"serverSeq":421,"origin":{"clientId":"c","clientSeq":1},"rejectionReason":"no"}}"#,
            ),
            (
                action(&plain),
                r#"{"jsonrpc":"2.0","method":"action","params":{"channel":"ahp-chat:/x","action":{"type": "t"},"serverSeq":421}}"#,
            ),
            (
                initialize_result(
                    raw(r#""x""#),
                    "1.0.0",
                    9,
                    std::slice::from_ref(&state),
                    None,
                ),
                r#"{"jsonrpc":"2.0","id":"x","result":{"protocolVersion":"1.0.0","serverSeq":9,"snapshots":[{"resource":"ahp-root://","state":{},"fromSeq":9}]}}"#,
            ),
            (
                subscribe_result(id, Some(&state)),
                r#"{"jsonrpc":"2.0","id":4,"result":{"snapshot":{"resource":"ahp-root://","state":{},"fromSeq":9}}}"#,
            ),
            (
                subscribe_result(id, None),
                r#"{"jsonrpc":"2.0","id":4,"result":{}}"#,
            ),
            (
                replay_result(id, [raw("{}"), raw("[ ]")], &["ahp-chat:/y"]),
                r#"{"jsonrpc":"2.0","id":4,"result":{"type":"replay","actions":[{},[ ]],"missing":["ahp-chat:/y"]}}"#,
            ),
            (
                replay_result(id, [], &none),
                r#"{"jsonrpc":"2.0","id":4,"result":{"type":"replay","actions":[],"missing":[]}}"#,
            ),
            (
                snapshot_result(id, &[state.clone(), state.clone()]),
                r#"{"jsonrpc":"2.0","id":4,"result":{"type":"snapshot","snapshots":[{"resource":"ahp-root://","state":{},"fromSeq":9},{"resource":"ahp-root://","state":{},"fromSeq":9}]}}"#,
            ),
            (ping_result(id), r#"{"jsonrpc":"2.0","id":4,"result":null}"#),
        ] {
            assert_eq!(written, expected);
        }
    }

    #[test]
    fn an_edit_gives_what_the_builder_writes() {
        let ours = Chunking::default();
        let list = ["ahp-root://"];
        let (id, empty) = (raw("1"), &[][..]);
        for (edited, written) in [
            (
                with_chunking(&initialize(1, "c", &list, &list, None), &ours),
                initialize(1, "c", &list, &list, Some(&ours)),
            ),
            (
                with_chunking(&reconnect(1, "c", 0, &list, None), &ours),
                reconnect(1, "c", 0, &list, Some(&ours)),
            ),
            (
                with_chunking_in_result(&initialize_result(id, "1", 0, empty, None), &ours),
                initialize_result(id, "1", 0, empty, Some(&ours)),
            ),
        ] {
            assert_eq!(edited, Some(written));
        }
    }
}
