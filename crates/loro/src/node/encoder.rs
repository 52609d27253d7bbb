//! Encodes outgoing messages, and charges them to the memory budget until the last queue has sent them.
//!
//! A message for many peers is encoded once. A snapshot that is still queued for one peer is not encoded
//! again for the next: large documents are mostly asked for by many peers at a time.

use std::sync::{Arc, Weak};

use breakbulk_link::{Charge, SubBudget};
use breakbulk_message::loro::{ChannelMsg, EncodeError, Transmission, encode_frame, to_json};
use bytes::Bytes;

/// What a queued message costs in addition to its bytes.
const CHARGE: usize = 256;

/// Snapshots of at least this size are looked for among those that are queued.
const LARGE: usize = 64 << 10;

pub(super) struct Encoder {
    part: SubBudget,
    large: Vec<Large>,
}

/// A large message that may still be queued.
struct Large {
    /// The message without the document's content, which follows from the version in it.
    head: ChannelMsg,
    text: bool,
    frame: Weak<Frame>,
}

struct Frame {
    bytes: Bytes,
    _charge: Charge,
}

/// A reference to a frame, as the owner of `Bytes`.
struct Shared(Arc<Frame>);

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        &self.0.bytes
    }
}

impl Encoder {
    pub(super) fn new(part: SubBudget) -> Self {
        Self {
            part,
            large: Vec::new(),
        }
    }

    /// The bytes of all messages that are queued.
    pub(super) fn queued(&self) -> usize {
        self.part.used()
    }

    /// The message as bytes, or as JSON text.
    pub(super) fn encode(
        &mut self,
        message: &ChannelMsg,
        text: bool,
    ) -> Result<Bytes, EncodeError> {
        let head = without_snapshot(message);
        if let Some(head) = &head {
            self.large.retain(|large| large.frame.strong_count() > 0);
            let mut known = self.large.iter();
            let known = known.find(|large| large.text == text && large.head == *head);
            if let Some(frame) = known.and_then(|large| large.frame.upgrade()) {
                return Ok(Bytes::from_owner(Shared(frame)));
            }
        }
        let bytes: Bytes = if text {
            to_json(message).into()
        } else {
            encode_frame(message)?
        };
        let frame = Arc::new(Frame {
            _charge: self.part.charge_allocated(bytes.len() + CHARGE),
            bytes,
        });
        if let Some(head) = head {
            let frame = Arc::downgrade(&frame);
            self.large.push(Large { head, text, frame });
        }
        Ok(Bytes::from_owner(Shared(frame)))
    }
}

/// A response that has a large snapshot, without it. Two of them with the same version have the same
/// content.
fn without_snapshot(message: &ChannelMsg) -> Option<ChannelMsg> {
    match message {
        ChannelMsg::SyncResponse {
            doc_id,
            transmission: Transmission::Snapshot { data, version },
            ephemeral,
        } if data.len() >= LARGE => Some(ChannelMsg::SyncResponse {
            doc_id: doc_id.clone(),
            transmission: Transmission::Snapshot {
                data: Bytes::new(),
                version: version.clone(),
            },
            ephemeral: ephemeral.clone(),
        }),
        ChannelMsg::Batch { messages } => {
            let (first, rest) = messages.split_first()?;
            let mut messages = vec![without_snapshot(first)?];
            messages.extend(rest.iter().cloned());
            Some(ChannelMsg::Batch { messages })
        }
        _ => None,
    }
}
