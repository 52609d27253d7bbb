//! Estimates how many bytes an encoded message has, without encoding it.

use breakbulk_message::loro::{ChannelMsg, EphemeralStore, Transmission, VersionVector};

/// Bytes counted for a message in addition to its names and contents.
const HEAD: usize = 64;

/// A version vector's entry: a varint of up to ten bytes and one of up to five.
const ENTRY: usize = 15;

/// About how many bytes the encoded message has; never much less.
pub(super) fn weight(message: &ChannelMsg) -> usize {
    let names = |names: &[String]| names.iter().map(|name| name.len() + 5).sum::<usize>();
    HEAD + match message {
        ChannelMsg::EstablishRequest { identity } | ChannelMsg::EstablishResponse { identity } => {
            identity.peer_id.len() + identity.name.as_ref().map_or(0, String::len)
        }
        ChannelMsg::SyncRequest {
            doc_id,
            requester_doc_version,
            ephemeral,
            ..
        } => doc_id.len() + version(requester_doc_version) + optional(ephemeral),
        ChannelMsg::SyncResponse {
            doc_id,
            transmission,
            ephemeral,
        } => doc_id.len() + content(transmission) + optional(ephemeral),
        ChannelMsg::Update {
            doc_id,
            transmission,
        } => doc_id.len() + content(transmission),
        ChannelMsg::DirectoryRequest { doc_ids } => doc_ids.as_deref().map_or(0, names),
        ChannelMsg::DirectoryResponse { doc_ids } | ChannelMsg::NewDoc { doc_ids } => {
            names(doc_ids)
        }
        ChannelMsg::DeleteRequest { doc_id } | ChannelMsg::DeleteResponse { doc_id, .. } => {
            doc_id.len()
        }
        ChannelMsg::Ephemeral { doc_id, stores, .. } => doc_id.len() + all(stores),
        ChannelMsg::Batch { messages } => messages.iter().map(weight).sum(),
    }
}

/// The bytes of a version vector.
pub(super) fn version(version: &VersionVector) -> usize {
    version.entries().len() * ENTRY
}

fn content(transmission: &Transmission) -> usize {
    match transmission {
        Transmission::UpToDate { version: of } => version(of),
        Transmission::Snapshot { data, version: of }
        | Transmission::Update { data, version: of } => data.len() + version(of),
        Transmission::Unavailable => 0,
    }
}

fn optional(stores: &Option<Vec<EphemeralStore>>) -> usize {
    stores.as_deref().map_or(0, all)
}

fn all(stores: &[EphemeralStore]) -> usize {
    let bytes = stores
        .iter()
        .map(|store| HEAD + store.peer_id.len() + store.namespace.len() + store.data.len());
    bytes.sum()
}
