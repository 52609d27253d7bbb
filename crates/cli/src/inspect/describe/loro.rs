//! Describes loro's channel messages, in CBOR and in JSON.

use breakbulk::message::loro::{
    ChannelMsg, EphemeralStore, PeerIdentity, Transmission, decode_frame, from_json,
};
use bytes::Bytes;

use super::json::is_parsed;
use crate::inspect::rows::Description;

/// Messages of one frame that are described.
const SHOWN: usize = 64;

/// Describes the messages of a frame.
pub(super) fn frame(frame: Bytes) -> Vec<Description> {
    match decode_frame(frame) {
        Ok(messages) if messages.is_empty() => {
            vec![Description::new("loro", "batch").number("messages", 0)]
        }
        Ok(messages) => {
            let mut descriptions: Vec<Description> =
                messages.iter().take(SHOWN).map(message).collect();
            if messages.len() > SHOWN {
                descriptions.push(
                    Description::new("loro", "more").number("messages", messages.len() - SHOWN),
                );
            }
            descriptions
        }
        Err(error) => {
            vec![
                Description::new("loro", "broken")
                    .problem(error.code.as_str(), &error.detail.to_string()),
            ]
        }
    }
}

/// Describes a message in its JSON form.
pub(super) fn json(text: &str) -> Description {
    if !is_parsed(text) {
        return Description::new("loro", "channel message, not looked into")
            .size("size", text.len());
    }
    match from_json(text) {
        Ok(read) => message(&read),
        Err(error) => {
            Description::new("loro", "broken").problem("invalid_json", &error.to_string())
        }
    }
}

fn message(message: &ChannelMsg) -> Description {
    let description = |kind| Description::new("loro", kind);
    match message {
        ChannelMsg::EstablishRequest { identity } => {
            who(description("establish-request"), identity)
        }
        ChannelMsg::EstablishResponse { identity } => {
            who(description("establish-response"), identity)
        }
        ChannelMsg::SyncRequest {
            doc_id,
            requester_doc_version,
            bidirectional,
            ephemeral,
        } => stores(
            description("sync-request")
                .text("doc", doc_id)
                .number("versionPeers", requester_doc_version.entries().len())
                .text("bidirectional", yes(bidirectional.unwrap_or(false))),
            ephemeral.as_deref(),
        ),
        ChannelMsg::SyncResponse {
            doc_id,
            transmission,
            ephemeral,
        } => stores(
            sent(
                description("sync-response").text("doc", doc_id),
                transmission,
            ),
            ephemeral.as_deref(),
        ),
        ChannelMsg::Update {
            doc_id,
            transmission,
        } => sent(description("update").text("doc", doc_id), transmission),
        ChannelMsg::DirectoryRequest { doc_ids } => match doc_ids {
            Some(docs) => documents(description("directory-request"), docs),
            None => description("directory-request").text("docs", "all"),
        },
        ChannelMsg::DirectoryResponse { doc_ids } => {
            documents(description("directory-response"), doc_ids)
        }
        ChannelMsg::NewDoc { doc_ids } => documents(description("new-doc"), doc_ids),
        ChannelMsg::DeleteRequest { doc_id } => description("delete-request").text("doc", doc_id),
        ChannelMsg::DeleteResponse { doc_id, status } => description("delete-response")
            .text("doc", doc_id)
            .text("status", status.as_str()),
        ChannelMsg::Ephemeral {
            doc_id,
            hops_remaining,
            stores: sent,
        } => stores(
            description("ephemeral")
                .text("doc", doc_id)
                .number("hops", *hops_remaining),
            Some(sent),
        ),
        ChannelMsg::Batch { messages } => {
            let kinds: Vec<Box<str>> = messages
                .iter()
                .take(8)
                .map(|inner| self::message(inner).kind)
                .collect();
            description("batch")
                .number("messages", messages.len())
                .text("of", &kinds.join(","))
        }
    }
}

fn who(description: Description, identity: &PeerIdentity) -> Description {
    let description = description
        .text("peer", &identity.peer_id)
        .text("type", identity.kind.as_str());
    match &identity.name {
        Some(name) => description.text("name", name),
        None => description,
    }
}

fn sent(description: Description, transmission: &Transmission) -> Description {
    match transmission {
        Transmission::UpToDate { version } => description
            .text("transmission", "up-to-date")
            .number("versionPeers", version.entries().len()),
        Transmission::Snapshot { data, version } => description
            .text("transmission", "snapshot")
            .size("data", data.len())
            .number("versionPeers", version.entries().len()),
        Transmission::Update { data, version } => description
            .text("transmission", "update")
            .size("data", data.len())
            .number("versionPeers", version.entries().len()),
        Transmission::Unavailable => description.text("transmission", "unavailable"),
    }
}

fn stores(description: Description, stores: Option<&[EphemeralStore]>) -> Description {
    match stores {
        Some(stores) if !stores.is_empty() => description.number("stores", stores.len()).size(
            "storeData",
            stores.iter().map(|store| store.data.len()).sum(),
        ),
        _ => description,
    }
}

fn documents(description: Description, docs: &[String]) -> Description {
    let first: Vec<&str> = docs.iter().take(4).map(String::as_str).collect();
    description
        .number("count", docs.len())
        .text("docs", &first.join(","))
}

fn yes(yes: bool) -> &'static str {
    if yes { "yes" } else { "no" }
}
