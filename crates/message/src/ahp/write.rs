//! Writes messages as the real client writes them.

use serde_json::value::RawValue;

use super::ROOT_CHANNEL;
use super::chunking::Chunking;
use super::read::{Action, Snapshot};
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

/// The `capabilities` member. It is written as the last one, where editing a message would also insert it.
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
    use super::super::{PROTOCOL_VERSIONS, with_chunking};
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
    fn an_edit_gives_what_the_builder_writes() {
        let ours = Chunking::default();
        let list = ["ahp-root://"];
        for (edited, written) in [
            (
                with_chunking(&initialize(1, "c", &list, &list, None), &ours),
                initialize(1, "c", &list, &list, Some(&ours)),
            ),
            (
                with_chunking(&reconnect(1, "c", 0, &list, None), &ours),
                reconnect(1, "c", 0, &list, Some(&ours)),
            ),
        ] {
            assert_eq!(edited, Some(written));
        }
    }
}
