//! The twelve messages of a channel. Their serde form is the JSON form (see [`super::to_json`]).

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::cbor::MAX_SAFE_INTEGER;
use super::json::base64_text;
use super::{OutOfBounds, VersionVector};

/// How deep batches may nest: a batch in a frame is the first level.
///
/// The original has no limit, so a few bytes per level could exhaust a receiver's stack.
pub const MAX_BATCH_DEPTH: usize = 8;

/// A message between peers. An absent option and an empty list are different on the wire.
// The fields are in the order of the JSON form; the order of the CBOR form is in `encode`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all_fields = "camelCase")]
pub enum ChannelMsg {
    /// Opens a channel, with the sender's identity.
    #[serde(rename = "channel/establish-request")]
    EstablishRequest {
        /// The sender.
        identity: PeerIdentity,
    },
    /// Answers [`ChannelMsg::EstablishRequest`].
    #[serde(rename = "channel/establish-response")]
    EstablishResponse {
        /// The sender.
        identity: PeerIdentity,
    },
    /// Asks for a document, and subscribes to it.
    #[serde(rename = "channel/sync-request")]
    SyncRequest {
        /// The document.
        doc_id: String,
        /// The version of it that the sender has.
        requester_doc_version: VersionVector,
        /// Whether the receiver should send a sync request back. Absent means no.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        bidirectional: Option<bool>,
        /// The sender's ephemeral stores.
        #[serde(default, skip_serializing_if = "none_or_empty")]
        ephemeral: Option<Vec<EphemeralStore>>,
    },
    /// Answers [`ChannelMsg::SyncRequest`].
    #[serde(rename = "channel/sync-response")]
    SyncResponse {
        /// The document.
        doc_id: String,
        /// What the requester lacks.
        transmission: Transmission,
        /// The sender's ephemeral stores.
        #[serde(default, skip_serializing_if = "none_or_empty")]
        ephemeral: Option<Vec<EphemeralStore>>,
    },
    /// A later edit of a document that the receiver subscribed to.
    #[serde(rename = "channel/update")]
    Update {
        /// The document.
        doc_id: String,
        /// The edit.
        transmission: Transmission,
    },
    /// Asks which documents there are.
    #[serde(rename = "channel/directory-request")]
    DirectoryRequest {
        /// Only these documents; absent means all.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        doc_ids: Option<Vec<String>>,
    },
    /// Answers [`ChannelMsg::DirectoryRequest`].
    #[serde(rename = "channel/directory-response")]
    DirectoryResponse {
        /// The documents.
        doc_ids: Vec<String>,
    },
    /// Announces documents that the receiver does not know yet.
    #[serde(rename = "channel/new-doc")]
    NewDoc {
        /// The documents.
        doc_ids: Vec<String>,
    },
    /// Asks that a document be deleted.
    #[serde(rename = "channel/delete-request")]
    DeleteRequest {
        /// The document.
        doc_id: String,
    },
    /// Answers [`ChannelMsg::DeleteRequest`].
    #[serde(rename = "channel/delete-response")]
    DeleteResponse {
        /// The document.
        doc_id: String,
        /// Whether it was deleted.
        status: DeleteStatus,
    },
    /// Ephemeral state, such as presence and cursors, which is not stored.
    #[serde(rename = "channel/ephemeral")]
    Ephemeral {
        /// The document.
        doc_id: String,
        /// How many more times this may be relayed.
        hops_remaining: i64,
        /// The stores.
        stores: Vec<EphemeralStore>,
    },
    /// Several messages in one, at most [`MAX_BATCH_DEPTH`] deep.
    #[serde(rename = "channel/batch")]
    Batch {
        /// The messages, in order.
        messages: Vec<ChannelMsg>,
    },
}

impl ChannelMsg {
    /// Checks the bounds that both forms of a message have.
    pub(super) fn check_bounds(&self) -> Result<(), OutOfBounds> {
        self.check_within(MAX_BATCH_DEPTH)
    }

    fn check_within(&self, levels: usize) -> Result<(), OutOfBounds> {
        match self {
            Self::Batch { messages } => {
                let levels = levels.checked_sub(1).ok_or(OutOfBounds::BatchesTooDeep)?;
                messages.iter().try_for_each(|m| m.check_within(levels))
            }
            &Self::Ephemeral {
                hops_remaining: hops,
                ..
            } if hops.unsigned_abs() > MAX_SAFE_INTEGER => Err(OutOfBounds::Hops { hops }),
            _ => Ok(()),
        }
    }
}

/// The identity of a peer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PeerIdentity {
    /// A u64 in decimal. Kept as text, since the original accepts any text.
    pub peer_id: String,
    /// A name for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What kind of peer it is.
    #[serde(rename = "type")]
    pub kind: PeerType,
}

/// The kind of a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PeerType {
    /// A person.
    #[default]
    User,
    /// A program that acts like a person.
    Bot,
    /// A server.
    Service,
}

impl PeerType {
    /// Every value.
    pub const ALL: [Self; 3] = [Self::User, Self::Bot, Self::Service];

    /// The name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Bot => "bot",
            Self::Service => "service",
        }
    }
}

/// The outcome of a request to delete a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DeleteStatus {
    /// It was deleted.
    Deleted,
    /// It was not deleted, or did not exist.
    #[default]
    Ignored,
}

impl DeleteStatus {
    /// Every value.
    pub const ALL: [Self; 2] = [Self::Deleted, Self::Ignored];

    /// The name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Deleted => "deleted",
            Self::Ignored => "ignored",
        }
    }
}

/// The part of a document that is sent.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum Transmission {
    /// Nothing, because the requester is up to date.
    UpToDate {
        /// The sender's version.
        version: VersionVector,
    },
    /// The whole document.
    Snapshot {
        /// Bytes as exported by loro.
        #[serde(with = "base64_text")]
        data: Bytes,
        /// The version that it leads to.
        version: VersionVector,
    },
    /// The changes since the requester's version.
    Update {
        /// Bytes as exported by loro.
        #[serde(with = "base64_text")]
        data: Bytes,
        /// The version that it leads to.
        version: VersionVector,
    },
    /// The sender does not have the document.
    #[default]
    Unavailable,
}

/// One peer's ephemeral state in one namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EphemeralStore {
    /// The peer.
    pub peer_id: String,
    /// Bytes as exported by loro.
    #[serde(with = "base64_text")]
    pub data: Bytes,
    /// The namespace: which of the peer's stores.
    pub namespace: String,
}

fn none_or_empty(stores: &Option<Vec<EphemeralStore>>) -> bool {
    stores.as_ref().is_none_or(Vec::is_empty)
}

/// The values of `t`.
pub(super) mod message_type {
    pub(in super::super) const ESTABLISH_REQUEST: u8 = 0x01;
    pub(in super::super) const ESTABLISH_RESPONSE: u8 = 0x02;
    pub(in super::super) const SYNC_REQUEST: u8 = 0x10;
    pub(in super::super) const SYNC_RESPONSE: u8 = 0x11;
    pub(in super::super) const UPDATE: u8 = 0x12;
    pub(in super::super) const DIRECTORY_REQUEST: u8 = 0x20;
    pub(in super::super) const DIRECTORY_RESPONSE: u8 = 0x21;
    pub(in super::super) const NEW_DOC: u8 = 0x22;
    pub(in super::super) const DELETE_REQUEST: u8 = 0x30;
    pub(in super::super) const DELETE_RESPONSE: u8 = 0x31;
    pub(in super::super) const EPHEMERAL: u8 = 0x40;
    pub(in super::super) const BATCH: u8 = 0x50;
}

/// The values of `k` in a transmission.
pub(super) mod transmission_kind {
    pub(in super::super) const UP_TO_DATE: u8 = 0;
    pub(in super::super) const SNAPSHOT: u8 = 1;
    pub(in super::super) const UPDATE: u8 = 2;
    pub(in super::super) const UNAVAILABLE: u8 = 3;
}
