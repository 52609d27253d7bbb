//! loro's channel messages, from CBOR and from JSON.

use breakbulk::message::loro::{
    ChannelMsg, EphemeralStore, PeerIdentity, Transmission, decode_frame, from_json,
};
use bytes::Bytes;

use super::json::is_parsed;
use crate::inspect::rows::Told;

/// So many messages of one frame are told of.
const SHOWN: usize = 64;

/// The messages of a frame.
pub(super) fn frame(frame: Bytes) -> Vec<Told> {
    match decode_frame(frame) {
        Ok(messages) if messages.is_empty() => {
            vec![Told::new("loro", "batch").number("messages", 0)]
        }
        Ok(messages) => {
            let mut told: Vec<Told> = messages.iter().take(SHOWN).map(message).collect();
            if messages.len() > SHOWN {
                told.push(Told::new("loro", "more").number("messages", messages.len() - SHOWN));
            }
            told
        }
        Err(error) => {
            vec![Told::new("loro", "broken").wrong(error.code.as_str(), &error.detail.to_string())]
        }
    }
}

/// A message in its JSON form.
pub(super) fn json(text: &str) -> Told {
    if !is_parsed(text) {
        return Told::new("loro", "channel message, not looked into").size("size", text.len());
    }
    match from_json(text) {
        Ok(read) => message(&read),
        Err(error) => Told::new("loro", "broken").wrong("invalid_json", &error.to_string()),
    }
}

fn message(message: &ChannelMsg) -> Told {
    let told = |kind| Told::new("loro", kind);
    match message {
        ChannelMsg::EstablishRequest { identity } => who(told("establish-request"), identity),
        ChannelMsg::EstablishResponse { identity } => who(told("establish-response"), identity),
        ChannelMsg::SyncRequest {
            doc_id,
            requester_doc_version,
            bidirectional,
            ephemeral,
        } => stores(
            told("sync-request")
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
            sent(told("sync-response").text("doc", doc_id), transmission),
            ephemeral.as_deref(),
        ),
        ChannelMsg::Update {
            doc_id,
            transmission,
        } => sent(told("update").text("doc", doc_id), transmission),
        ChannelMsg::DirectoryRequest { doc_ids } => match doc_ids {
            Some(docs) => documents(told("directory-request"), docs),
            None => told("directory-request").text("docs", "all"),
        },
        ChannelMsg::DirectoryResponse { doc_ids } => documents(told("directory-response"), doc_ids),
        ChannelMsg::NewDoc { doc_ids } => documents(told("new-doc"), doc_ids),
        ChannelMsg::DeleteRequest { doc_id } => told("delete-request").text("doc", doc_id),
        ChannelMsg::DeleteResponse { doc_id, status } => told("delete-response")
            .text("doc", doc_id)
            .text("status", status.as_str()),
        ChannelMsg::Ephemeral {
            doc_id,
            hops_remaining,
            stores: sent,
        } => stores(
            told("ephemeral")
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
            told("batch")
                .number("messages", messages.len())
                .text("of", &kinds.join(","))
        }
    }
}

fn who(told: Told, identity: &PeerIdentity) -> Told {
    let told = told
        .text("peer", &identity.peer_id)
        .text("type", identity.kind.as_str());
    match &identity.name {
        Some(name) => told.text("name", name),
        None => told,
    }
}

fn sent(told: Told, transmission: &Transmission) -> Told {
    match transmission {
        Transmission::UpToDate { version } => told
            .text("transmission", "up-to-date")
            .number("versionPeers", version.entries().len()),
        Transmission::Snapshot { data, version } => told
            .text("transmission", "snapshot")
            .size("data", data.len())
            .number("versionPeers", version.entries().len()),
        Transmission::Update { data, version } => told
            .text("transmission", "update")
            .size("data", data.len())
            .number("versionPeers", version.entries().len()),
        Transmission::Unavailable => told.text("transmission", "unavailable"),
    }
}

fn stores(told: Told, stores: Option<&[EphemeralStore]>) -> Told {
    match stores {
        Some(stores) if !stores.is_empty() => told.number("stores", stores.len()).size(
            "storeData",
            stores.iter().map(|store| store.data.len()).sum(),
        ),
        _ => told,
    }
}

fn documents(told: Told, docs: &[String]) -> Told {
    let first: Vec<&str> = docs.iter().take(4).map(String::as_str).collect();
    told.number("count", docs.len())
        .text("docs", &first.join(","))
}

fn yes(yes: bool) -> &'static str {
    if yes { "yes" } else { "no" }
}
