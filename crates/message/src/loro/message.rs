//! The twelve messages of a channel. Their serde form is the JSON form (see [`super::to_json`]).

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::cbor::MAX_SAFE_INTEGER;
use super::json::base64_text;
use super::{OutOfBounds, VersionVector};

/// How deep batches may nest: a batch in a frame is the first level.
///
/// The original has no bound; a few bytes per level would exhaust a receiver's stack.
pub const MAX_BATCH_DEPTH: usize = 8;

/// What peers say to each other. An absent option and an empty list are different on the wire.
// The fields stand in the order of the JSON form; the CBOR order is in `encode`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all_fields = "camelCase")]
pub enum ChannelMsg {
    /// Opens a channel: who the sender is.
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
        /// What the sender already has of it.
        requester_doc_version: VersionVector,
        /// Whether the receiver shall ask back. Absent means no.
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
        /// What the requester lacked.
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
        /// Only these. Absent: all.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        doc_ids: Option<Vec<String>>,
    },
    /// Answers [`ChannelMsg::DirectoryRequest`].
    #[serde(rename = "channel/directory-response")]
    DirectoryResponse {
        /// The documents.
        doc_ids: Vec<String>,
    },
    /// Tells of documents that the receiver does not know yet.
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
        /// What became of it.
        status: DeleteStatus,
    },
    /// Presence, cursors and the like: state that is not kept.
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
    /// What no form of a message can carry.
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

/// Who a peer is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PeerIdentity {
    /// A u64 in decimal. Kept as text: the original takes any.
    pub peer_id: String,
    /// For people to read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What runs the peer.
    #[serde(rename = "type")]
    pub kind: PeerType,
}

/// What runs a peer.
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

    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Bot => "bot",
            Self::Service => "service",
        }
    }
}

/// What became of a document that should be deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DeleteStatus {
    /// It is gone.
    Deleted,
    /// It is still there, or never was.
    #[default]
    Ignored,
}

impl DeleteStatus {
    /// Every value.
    pub const ALL: [Self; 2] = [Self::Deleted, Self::Ignored];

    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Deleted => "deleted",
            Self::Ignored => "ignored",
        }
    }
}

/// What of a document is sent.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum Transmission {
    /// Nothing: the requester has it all.
    UpToDate {
        /// The sender's version.
        version: VersionVector,
    },
    /// The whole document.
    Snapshot {
        /// As loro exports it.
        #[serde(with = "base64_text")]
        data: Bytes,
        /// The version that it brings.
        version: VersionVector,
    },
    /// What happened since the requester's version.
    Update {
        /// As loro exports it.
        #[serde(with = "base64_text")]
        data: Bytes,
        /// The version that it brings.
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
    /// Whose state it is.
    pub peer_id: String,
    /// As loro exports it.
    #[serde(with = "base64_text")]
    pub data: Bytes,
    /// Which of the peer's stores.
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
