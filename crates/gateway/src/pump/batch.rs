//! The errors in the place of a JSON-RPC batch that is too large. A batch is not cut: the receivers of
//! pieces take single messages alone.

use breakbulk_link::{Outgoing, SendError};
use breakbulk_message::ahp::MessageTooLarge;
use breakbulk_message::jsonrpc::{self, INVALID_REQUEST, Kind};
use bytes::Bytes;
use serde_json::value::RawValue;

use super::Replacement;

/// The most messages of a batch that are answered one by one.
const ANSWERED: usize = 1024;

/// The requests of a batch are answered with errors; the responses of one without requests are replaced by
/// errors. `None` if it has neither, or both: errors would reach only one side, and the other one would wait.
pub(super) fn instead(
    bytes: &Bytes,
    error: &SendError,
    too_large_code: i32,
) -> Option<Replacement> {
    let text = std::str::from_utf8(bytes).ok()?;
    let (mut requests, mut responses) = (Ids::default(), Ids::default());
    for envelope in jsonrpc::batch(text)? {
        let (Some(kind), Some(id)) = (envelope.kind(), envelope.id) else {
            continue;
        };
        match kind {
            Kind::Request => requests.add(id),
            Kind::Result | Kind::Error => responses.add(id),
            Kind::Notification => {}
        }
    }
    let errors = |ids: Ids<'_>| ids.errors(bytes.len(), error, too_large_code);
    match (requests.ids.is_empty(), responses.ids.is_empty()) {
        (false, true) => Some(Replacement::Answer(errors(requests).into())),
        (true, false) => {
            let errors = Outgoing::new(errors(responses)).uncut();
            Some(Replacement::Replace(Box::new(errors)))
        }
        (true, true) | (false, false) => None,
    }
}

/// The ids of requests, or of responses.
#[derive(Default)]
struct Ids<'a> {
    ids: Vec<&'a RawValue>,
    /// How many more there are.
    more: usize,
}

impl<'a> Ids<'a> {
    fn add(&mut self, id: &'a RawValue) {
        match self.ids.len() < ANSWERED {
            true => self.ids.push(id),
            false => self.more += 1,
        }
    }

    /// A batch of errors, one for each id; ids that were not kept share one error without an id.
    fn errors(self, size: usize, error: &SendError, too_large_code: i32) -> String {
        let limit = match *error {
            SendError::FrameTooLarge { limit, .. } | SendError::MessageTooLarge { limit, .. } => {
                limit
            }
            _ => 0,
        };
        let words = match limit {
            0 => format!("the batch of {size} bytes cannot be sent: {error}"),
            limit => format!(
                "batch too large: {size} bytes, a batch is not cut and one frame holds {limit}; send its messages one by one, or start both gateways with a larger --max-frame"
            ),
        };
        let data = MessageTooLarge {
            message_bytes: size as u64,
            max_frame_bytes: limit as u64,
            max_message_bytes: 0,
            chunking: false,
        };
        let mut errors: Vec<String> = self
            .ids
            .into_iter()
            .map(|id| data.response_with_text(id, too_large_code, &words))
            .collect();
        if self.more > 0 {
            let words = format!("{} more messages of this batch: {words}", self.more);
            errors.push(jsonrpc::error(None, INVALID_REQUEST, &words, None));
        }
        format!("[{}]", errors.join(","))
    }
}

#[cfg(test)]
mod tests {
    use breakbulk_link::Uncut;

    use super::*;

    fn found(batch: &str) -> Option<(&'static str, String)> {
        let error = SendError::FrameTooLarge {
            size: batch.len(),
            limit: 50,
            uncut: Uncut::Batch,
        };
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        match instead(&Bytes::from(batch.to_owned()), &error, -32011)? {
            Replacement::Answer(bytes) => Some(("answer", text(&bytes))),
            Replacement::Replace(message) => Some(("replace", text(&message.bytes))),
            other => panic!("{other:?}"),
        }
    }

    // PROG-19
    #[test]
    fn each_request_of_a_batch_is_answered_and_each_response_replaced() {
        let request = |id: &str| format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"m"}}"#);
        let notification = r#"{"jsonrpc":"2.0","method":"n"}"#;
        let response = r#"{"jsonrpc":"2.0","id":7,"result":1}"#;
        let error = |id: &str, size: usize| {
            format!(
                r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32011,"message":"batch too large: {size} bytes, a batch is not cut and one frame holds 50; send its messages one by one, or start both gateways with a larger --max-frame","data":{{"reason":"messageTooLarge","messageBytes":{size},"maxFrameBytes":50,"chunking":false}}}}}}"#
            )
        };
        let batch = format!("[{},{notification},{}]", request("1"), request("\"a\""));
        let size = batch.len();
        let errors = format!("[{},{}]", error("1", size), error("\"a\"", size));
        assert_eq!(found(&batch), Some(("answer", errors)));
        let batch = format!(" [{response}]");
        let errors = format!("[{}]", error("7", batch.len()));
        assert_eq!(found(&batch), Some(("replace", errors)));
        let both = format!("[{},{response}]", request("1"));
        for other in [format!("[{notification}]"), both, "[1]".into(), "[".into()] {
            assert_eq!(found(&other), None, "{other}");
        }
        // One input causes a bounded answer.
        let many = vec![request("1"); 100_000].join(",");
        let (_, errors) = found(&format!("[{many}]")).unwrap();
        assert!(errors.len() < 1 << 20, "{}", errors.len());
        assert!(errors.contains(r#""id":null,"error":{"code":-32600,"message":"98976 more messages of this batch: batch too large"#));
    }
}
