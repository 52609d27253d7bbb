//! The JSON form of messages, from server to client over SSE and polling, where frames must be text.
//!
//! It has full field names, version vectors as `{"peer":counter}` and bytes as standard base64; absent
//! options and an empty `ephemeral` are omitted.

use super::{ChannelMsg, OutOfBounds};

/// Writes a message as JSON text, byte for byte as the original does.
pub fn to_json(message: &ChannelMsg) -> String {
    serde_json::to_string(message).expect("all keys are text, and writing to memory cannot fail")
}

/// Reads a message from JSON text: keys may have any order, unknown ones are ignored.
pub fn from_json(text: &str) -> Result<ChannelMsg, JsonError> {
    let message: ChannelMsg = serde_json::from_str(text)?;
    message.check_bounds()?;
    Ok(message)
}

/// Why a text is not a message.
#[derive(Debug, thiserror::Error)]
pub enum JsonError {
    /// It is not JSON, or has not the form of a message.
    #[error("no channel message: {0}")]
    Malformed(#[from] serde_json::Error),
    /// The message exceeds the bounds of the format.
    #[error(transparent)]
    OutOfBounds(#[from] OutOfBounds),
}

/// Bytes as base64 text, for serde's `with`.
pub(super) mod base64_text {
    use std::fmt;
    use std::sync::LazyLock;

    use base64::Engine;
    use base64::display::Base64Display;
    use base64::engine::{DecodePaddingMode, GeneralPurposeConfig, Simd};
    use bytes::Bytes;
    use serde::de::{Deserializer, Error, Visitor};
    use serde::ser::Serializer;

    /// Writes padding, but does not require it when reading, like a browser's `atob`.
    static BASE64: LazyLock<Simd> = LazyLock::new(|| {
        let padding = DecodePaddingMode::Indifferent;
        Simd::standard(GeneralPurposeConfig::new().with_decode_padding_mode(padding))
    });

    pub(in super::super) fn serialize<S: Serializer>(
        data: &Bytes,
        out: S,
    ) -> Result<S::Ok, S::Error> {
        // Written in chunks, so that a large snapshot's base64 is held only once, in the output.
        out.collect_str(&Base64Display::new(data, &*BASE64))
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        input: D,
    ) -> Result<Bytes, D::Error> {
        struct Base64Text;

        impl Visitor<'_> for Base64Text {
            type Value = Bytes;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("base64 text")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Bytes, E> {
                let data = BASE64.decode(text).map_err(E::custom)?;
                Ok(data.into())
            }
        }

        input.deserialize_str(Base64Text)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::loro::{EphemeralStore, MAX_BATCH_DEPTH, Transmission};

    #[test]
    fn key_order_and_omissions() {
        let store = EphemeralStore {
            peer_id: "2".into(),
            data: Bytes::from_static(b"\xde\xad\xbe\xef"),
            namespace: "p\"\u{1f}é".into(),
        };
        let request = |bidirectional, ephemeral| ChannelMsg::SyncRequest {
            doc_id: "d".into(),
            requester_doc_version: [(2, 1), (1, 3)].into_iter().collect(),
            bidirectional,
            ephemeral,
        };
        let cases = [
            (
                request(Some(true), Some(vec![store])),
                r#"{"type":"channel/sync-request","docId":"d","requesterDocVersion":{"1":3,"2":1},"bidirectional":true,"ephemeral":[{"peerId":"2","data":"3q2+7w==","namespace":"p\"\u001fé"}]}"#,
            ),
            (
                request(None, None),
                r#"{"type":"channel/sync-request","docId":"d","requesterDocVersion":{"1":3,"2":1}}"#,
            ),
            (
                ChannelMsg::Batch {
                    messages: vec![ChannelMsg::Update {
                        doc_id: "d".into(),
                        transmission: Transmission::Unavailable,
                    }],
                },
                r#"{"type":"channel/batch","messages":[{"type":"channel/update","docId":"d","transmission":{"type":"unavailable"}}]}"#,
            ),
        ];
        for (message, text) in cases {
            assert_eq!(to_json(&message), text);
            assert_eq!(from_json(text).unwrap(), message);
        }
        assert_eq!(
            to_json(&request(None, Some(vec![]))),
            to_json(&request(None, None))
        );
    }

    #[test]
    fn tolerates_order_unknown_keys_nulls_and_unpadded_base64() {
        let text = r#"{"new":[1],"transmission":{"version":{},"data":"3q2+7w","type":"snapshot"},"ephemeral":null,"docId":"d","type":"channel/sync-response"}"#;
        let read = from_json(text).unwrap();
        let expected = ChannelMsg::SyncResponse {
            doc_id: "d".into(),
            transmission: Transmission::Snapshot {
                data: Bytes::from_static(b"\xde\xad\xbe\xef"),
                version: Default::default(),
            },
            ephemeral: None,
        };
        assert_eq!(read, expected);
    }

    #[test]
    fn refuses_what_is_no_message() {
        let cases = [
            "",
            "5",
            "{}",
            r#"{"type":"channel/unknown"}"#,
            r#"{"type":"channel/delete-request"}"#,
            r#"{"type":"channel/delete-request","docId":5}"#,
            r#"{"type":"channel/delete-request","docId":"d"} x"#,
            r#"{"type":"channel/delete-response","docId":"d","status":"lost"}"#,
            r#"{"type":"channel/establish-request","identity":{"peerId":"1","type":"alien"}}"#,
            r#"{"type":"channel/ephemeral","docId":"d","hopsRemaining":1.5,"stores":[]}"#,
            r#"{"type":"channel/update","docId":"d","transmission":{"type":"update","data":"*","version":{}}}"#,
            r#"{"type":"channel/update","docId":"d","transmission":{"type":"up-to-date","version":{"x":1}}}"#,
        ];
        for text in cases {
            let error = from_json(text).unwrap_err().to_string();
            assert!(error.starts_with("no channel message: "), "{text}: {error}");
        }
    }

    #[test]
    fn batches_nest_eight_deep() {
        let nested = |levels: usize| {
            let open = r#"{"type":"channel/batch","messages":["#.repeat(levels);
            let close = "]}".repeat(levels);
            from_json(&format!("{open}{close}"))
        };
        assert!(nested(MAX_BATCH_DEPTH).is_ok());
        let deeper = nested(MAX_BATCH_DEPTH + 1);
        assert!(matches!(deeper, Err(JsonError::OutOfBounds(_))));
        assert!(matches!(nested(10_000), Err(JsonError::Malformed(_))));
    }
}
