//! Cancellation notifications.

use serde_json::value::RawValue;

use crate::jsonrpc::member;
use crate::splice::quoted;

/// The method of a cancellation.
pub const CANCELLED: &str = "notifications/cancelled";

/// The id of the cancelled request, as JSON.
pub fn cancelled_request(params: &RawValue) -> Option<&RawValue> {
    member(params.get(), "requestId")
}

/// The notification that cancels the request with this id, given as JSON.
pub fn cancellation(id: &str, reason: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","method":"{CANCELLED}","params":{{"requestId":{id},"reason":{}}}}}"#,
        quoted(reason)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jsonrpc::Envelope;

    #[test]
    fn what_is_cancelled_is_read_again() {
        for id in ["7", "\"a\\\"b\""] {
            let text = cancellation(id, "too \"late\"");
            let envelope = Envelope::parse(&text).unwrap();
            assert_eq!(envelope.method().as_deref(), Some(CANCELLED));
            let read = cancelled_request(envelope.params.unwrap()).unwrap();
            assert_eq!(read.get(), id);
        }
        for without in ["{}", "[]"] {
            let raw: &RawValue = serde_json::from_str(without).unwrap();
            assert!(cancelled_request(raw).is_none(), "{without}");
        }
    }
}
