//! Sends a client's `initialize` once more to an MCP server: the client sent it to a process that has ended
//! since. Nothing is sent for a client that never sent one.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use breakbulk_contextvm::PublicKey;
use breakbulk_link::Outgoing;
use breakbulk_message::jsonrpc::{Envelope, Kind};
use bytes::Bytes;
use tokio::time::timeout;

use crate::pump::{Channel, HELLO, Heard, Outcome};

/// How long a server may take to answer `initialize`.
const PATIENCE: Duration = Duration::from_secs(60);

/// The id of the gateway's own request, which no client uses.
const ID: &str = r#""breakbulk-initialize""#;

const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

/// Clients whose `initialize` is kept.
const KEPT: usize = 1024;

/// The `initialize` of clients, for a client that sends again after its process has ended.
#[derive(Default)]
pub(super) struct Introductions {
    texts: BTreeMap<PublicKey, Bytes>,
    order: VecDeque<PublicKey>,
}

impl Introductions {
    pub(super) fn keep(&mut self, peer: PublicKey, text: Bytes) {
        if self.texts.insert(peer, text).is_none() {
            self.order.push_back(peer);
        }
        if self.order.len() > KEPT
            && let Some(oldest) = self.order.pop_front()
        {
            self.texts.remove(&oldest);
        }
    }

    pub(super) fn of(&self, peer: &PublicKey) -> Option<Bytes> {
        self.texts.get(peer).cloned()
    }
}

/// Why an MCP server did not accept the `initialize` of its gateway.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IntroduceError {
    /// Its connection ended before.
    #[error("the server ended before it answered initialize{}", after_colon(.0))]
    Ended(String),
    /// It sent no answer.
    #[error("no answer to initialize within {} s", .0.as_secs())]
    Silent(Duration),
    /// It answered with an error; this is the beginning of its answer.
    #[error("the server answered initialize with an error: {0}")]
    Refused(String),
}

fn after_colon(reason: &str) -> String {
    match reason {
        "" => String::new(),
        reason => format!(": {reason}"),
    }
}

/// Sends `initialize` with these params, and waits for the answer.
pub(super) async fn introduce(channel: &Channel, params: &str) -> Result<(), IntroduceError> {
    send(channel, request(params)).await?;
    let answered = timeout(PATIENCE, answer(channel)).await;
    answered.unwrap_or(Err(IntroduceError::Silent(PATIENCE)))?;
    send(channel, INITIALIZED.to_owned()).await
}

async fn send(channel: &Channel, text: String) -> Result<(), IntroduceError> {
    match channel.send(Outgoing::new(text).tagged(HELLO)).await {
        Outcome::Queued(_) | Outcome::Out => Ok(()),
        Outcome::Lost => Err(IntroduceError::Ended(String::new())),
        Outcome::Refused(_, error) => Err(IntroduceError::Ended(error)),
    }
}

/// The params of a client's own `initialize`.
pub(super) fn initialize_params(text: &[u8]) -> Option<String> {
    let envelope = Envelope::parse(std::str::from_utf8(text).ok()?)?;
    Some(envelope.params?.get().to_owned())
}

fn request(params: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{ID},"method":"initialize","params":{params}}}"#)
}

/// Waits for the answer; other messages of the server are dropped.
async fn answer(channel: &Channel) -> Result<(), IntroduceError> {
    loop {
        let message = match channel.event(true).await {
            Heard::Message(message) => message,
            Heard::Event(_) | Heard::Lost => continue,
            Heard::Closed(closed) => return Err(IntroduceError::Ended(closed.reason)),
        };
        let text = std::str::from_utf8(&message.bytes).unwrap_or_default();
        let Some(envelope) = Envelope::parse(text) else {
            continue;
        };
        if envelope.id.is_none_or(|id| id.get() != ID) {
            continue;
        }
        match envelope.kind() {
            Some(Kind::Result) => return Ok(()),
            Some(Kind::Error) => {
                let answer = text.chars().take(500).collect();
                return Err(IntroduceError::Refused(answer));
            }
            _ => {}
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use breakbulk_contextvm::Keys;

    use super::*;

    #[test]
    fn a_client_is_introduced_as_it_introduced_itself() {
        let before = br#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"a":[1, 2]}}"#;
        let again = r#"{"jsonrpc":"2.0","id":"breakbulk-initialize","method":"initialize","params":{"a":[1, 2]}}"#;
        let params = initialize_params(before).unwrap();
        assert_eq!(request(&params), again);
        for nothing in [&b"{}"[..], b"no JSON"] {
            assert_eq!(initialize_params(nothing), None);
        }
    }

    #[test]
    fn the_oldest_introductions_are_forgotten() {
        let mut kept = Introductions::default();
        let first = Keys::generate().public_key();
        kept.keep(first, Bytes::from_static(b"a"));
        kept.keep(first, Bytes::from_static(b"b"));
        assert_eq!(kept.of(&first).unwrap(), "b");
        for _ in 0..KEPT {
            kept.keep(Keys::generate().public_key(), Bytes::new());
        }
        assert_eq!(kept.of(&first), None);
        assert_eq!((kept.texts.len(), kept.order.len()), (KEPT, KEPT));
    }
}
