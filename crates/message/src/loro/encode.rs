//! Encodes messages as CBOR: definite-length maps, keys in the format's order, an absent option as
//! its key with the value `f7` (undefined).

use std::convert::Infallible;

use minicbor::Encoder;
use minicbor::encode::{Error, Write};

use super::message::{message_type, transmission_kind};
use super::{ChannelMsg, EncodeError, EphemeralStore, PeerIdentity, Transmission};

/// Encodes one message as CBOR, without a frame around it.
pub fn encode(message: &ChannelMsg) -> Result<Vec<u8>, EncodeError> {
    let payload = Payload::Message(message);
    let mut out = Vec::with_capacity(payload.len()? as usize);
    payload.append_to(&mut out)?;
    Ok(out)
}

/// The payload of a frame: one message, or several.
pub(super) enum Payload<'a> {
    Message(&'a ChannelMsg),
    Batch(&'a [ChannelMsg]),
}

impl Payload<'_> {
    /// The encoded length, computed first, so that a frame is allocated once and a payload that is
    /// too large not at all.
    pub(super) fn len(&self) -> Result<u32, EncodeError> {
        let messages = match self {
            Self::Message(message) => std::slice::from_ref(*message),
            Self::Batch(messages) => messages,
        };
        for message in messages {
            message.check_bounds()?;
        }
        let mut counted = Encoder::new(Counter(0));
        self.write(&mut counted)?;
        let bytes = counted.into_writer().0;
        u32::try_from(bytes).map_err(|_| EncodeError::TooLong { bytes })
    }

    pub(super) fn append_to(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        Ok(self.write(&mut Encoder::new(out))?)
    }

    fn write<W: Write>(&self, out: &mut Encoder<W>) -> Written<W> {
        match self {
            Self::Message(message) => write_message(out, message),
            Self::Batch(messages) => write_list(out, messages, write_message),
        }
    }
}

/// A writer that only counts bytes.
struct Counter(u64);

impl Write for Counter {
    type Error = Infallible;

    fn write_all(&mut self, bytes: &[u8]) -> Result<(), Infallible> {
        self.0 += bytes.len() as u64;
        Ok(())
    }
}

type Written<W> = Result<(), Error<<W as Write>::Error>>;

fn write_message<W: Write>(out: &mut Encoder<W>, message: &ChannelMsg) -> Written<W> {
    match message {
        ChannelMsg::EstablishRequest { identity } => {
            open(out, 4, message_type::ESTABLISH_REQUEST)?;
            write_identity(out, identity)
        }
        ChannelMsg::EstablishResponse { identity } => {
            open(out, 4, message_type::ESTABLISH_RESPONSE)?;
            write_identity(out, identity)
        }
        ChannelMsg::SyncRequest {
            doc_id,
            requester_doc_version,
            bidirectional,
            ephemeral,
        } => {
            open_doc(out, 5, message_type::SYNC_REQUEST, doc_id)?;
            out.str("v")?.bytes(&requester_doc_version.encode())?;
            write_ephemeral(out, ephemeral.as_deref())?;
            out.str("bi")?;
            match bidirectional {
                Some(flag) => out.bool(*flag)?.ok(),
                None => out.undefined()?.ok(),
            }
        }
        ChannelMsg::SyncResponse {
            doc_id,
            transmission,
            ephemeral,
        } => {
            open_doc(out, 4, message_type::SYNC_RESPONSE, doc_id)?;
            write_transmission(out, transmission)?;
            write_ephemeral(out, ephemeral.as_deref())
        }
        ChannelMsg::Update {
            doc_id,
            transmission,
        } => {
            open_doc(out, 3, message_type::UPDATE, doc_id)?;
            write_transmission(out, transmission)
        }
        ChannelMsg::DirectoryRequest { doc_ids } => {
            open(out, 2, message_type::DIRECTORY_REQUEST)?;
            match doc_ids {
                Some(doc_ids) => write_doc_ids(out, doc_ids),
                None => out.str("docs")?.undefined()?.ok(),
            }
        }
        ChannelMsg::DirectoryResponse { doc_ids } => {
            open(out, 2, message_type::DIRECTORY_RESPONSE)?;
            write_doc_ids(out, doc_ids)
        }
        ChannelMsg::NewDoc { doc_ids } => {
            open(out, 2, message_type::NEW_DOC)?;
            write_doc_ids(out, doc_ids)
        }
        ChannelMsg::DeleteRequest { doc_id } => {
            open_doc(out, 2, message_type::DELETE_REQUEST, doc_id)
        }
        ChannelMsg::DeleteResponse { doc_id, status } => {
            open_doc(out, 3, message_type::DELETE_RESPONSE, doc_id)?;
            out.str("s")?.str(status.as_str())?.ok()
        }
        ChannelMsg::Ephemeral {
            doc_id,
            hops_remaining,
            stores,
        } => {
            open_doc(out, 4, message_type::EPHEMERAL, doc_id)?;
            out.str("h")?.i64(*hops_remaining)?;
            out.str("st")?;
            write_list(out, stores, write_store)
        }
        ChannelMsg::Batch { messages } => {
            open(out, 2, message_type::BATCH)?;
            out.str("m")?;
            write_list(out, messages, write_message)
        }
    }
}

/// Writes the beginning of a message with this many fields, including `t`.
fn open<W: Write>(out: &mut Encoder<W>, fields: u64, message_type: u8) -> Written<W> {
    out.map(fields)?.str("t")?.u8(message_type)?.ok()
}

/// The same for a message about one document.
fn open_doc<W: Write>(
    out: &mut Encoder<W>,
    fields: u64,
    message_type: u8,
    doc_id: &str,
) -> Written<W> {
    open(out, fields, message_type)?;
    out.str("doc")?.str(doc_id)?.ok()
}

fn write_identity<W: Write>(out: &mut Encoder<W>, identity: &PeerIdentity) -> Written<W> {
    out.str("id")?.str(&identity.peer_id)?.str("n")?;
    match &identity.name {
        Some(name) => out.str(name)?,
        None => out.undefined()?,
    };
    out.str("y")?.str(identity.kind.as_str())?.ok()
}

fn write_transmission<W: Write>(out: &mut Encoder<W>, transmission: &Transmission) -> Written<W> {
    let (kind, data, version) = match transmission {
        Transmission::UpToDate { version } => (transmission_kind::UP_TO_DATE, None, Some(version)),
        Transmission::Snapshot { data, version } => {
            (transmission_kind::SNAPSHOT, Some(data), Some(version))
        }
        Transmission::Update { data, version } => {
            (transmission_kind::UPDATE, Some(data), Some(version))
        }
        Transmission::Unavailable => (transmission_kind::UNAVAILABLE, None, None),
    };
    let fields = 1 + u64::from(data.is_some()) + u64::from(version.is_some());
    out.str("tx")?.map(fields)?.str("k")?.u8(kind)?;
    if let Some(data) = data {
        out.str("d")?.bytes(data)?;
    }
    if let Some(version) = version {
        out.str("v")?.bytes(&version.encode())?;
    }
    Ok(())
}

fn write_ephemeral<W: Write>(
    out: &mut Encoder<W>,
    stores: Option<&[EphemeralStore]>,
) -> Written<W> {
    out.str("e")?;
    match stores {
        Some(stores) => write_list(out, stores, write_store),
        None => out.undefined()?.ok(),
    }
}

fn write_store<W: Write>(out: &mut Encoder<W>, store: &EphemeralStore) -> Written<W> {
    out.map(3)?.str("p")?.str(&store.peer_id)?;
    out.str("d")?.bytes(&store.data)?;
    out.str("ns")?.str(&store.namespace)?.ok()
}

fn write_doc_ids<W: Write>(out: &mut Encoder<W>, doc_ids: &[String]) -> Written<W> {
    out.str("docs")?;
    write_list(out, doc_ids, |out, doc_id| out.str(doc_id)?.ok())
}

fn write_list<W: Write, T>(
    out: &mut Encoder<W>,
    items: &[T],
    write: fn(&mut Encoder<W>, &T) -> Written<W>,
) -> Written<W> {
    out.array(items.len() as u64)?;
    items.iter().try_for_each(|item| write(out, item))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::loro::{DeleteStatus, MAX_BATCH_DEPTH, OutOfBounds, PeerType, VersionVector};

    #[test]
    fn literal_bytes() {
        let cases: &[(ChannelMsg, &[u8])] = &[
            (
                ChannelMsg::EstablishRequest {
                    identity: PeerIdentity {
                        peer_id: "1".into(),
                        name: None,
                        kind: PeerType::Bot,
                    },
                },
                b"\xa4at\x01bida1an\xf7aycbot",
            ),
            (
                // The original would write a length of 3.
                ChannelMsg::EstablishResponse {
                    identity: PeerIdentity {
                        peer_id: "1".into(),
                        name: Some("Zoë".into()),
                        kind: PeerType::User,
                    },
                },
                b"\xa4at\x02bida1an\x64Zo\xc3\xabayduser",
            ),
            (
                ChannelMsg::SyncRequest {
                    doc_id: "d".into(),
                    requester_doc_version: VersionVector::new(),
                    bidirectional: None,
                    ephemeral: Some(vec![]),
                },
                b"\xa5at\x10cdocadav\x41\x00ae\x80bbi\xf7",
            ),
            (
                ChannelMsg::SyncResponse {
                    doc_id: "d".into(),
                    transmission: Transmission::Snapshot {
                        data: Bytes::from_static(b"\xde\xad"),
                        version: [(1, 2)].into_iter().collect(),
                    },
                    ephemeral: None,
                },
                b"\xa4at\x11cdocadbtx\xa3ak\x01ad\x42\xde\xadav\x43\x01\x01\x04ae\xf7",
            ),
            (
                ChannelMsg::DeleteResponse {
                    doc_id: "d".into(),
                    status: DeleteStatus::Ignored,
                },
                b"\xa3at\x18\x31cdocadasgignored",
            ),
            (
                ChannelMsg::Ephemeral {
                    doc_id: "d".into(),
                    hops_remaining: -300,
                    stores: vec![],
                },
                b"\xa4at\x18\x40cdocadah\x39\x01\x2bbst\x80",
            ),
        ];
        for (message, bytes) in cases {
            let encoded = encode(message).unwrap();
            assert_eq!(encoded, *bytes, "{message:?}");
            assert_eq!(encoded.capacity(), bytes.len(), "counted exactly");
        }
    }

    #[test]
    fn a_receiver_would_refuse_deeper_batches() {
        let mut message = ChannelMsg::Batch { messages: vec![] };
        for _ in 1..MAX_BATCH_DEPTH {
            let messages = vec![message];
            message = ChannelMsg::Batch { messages };
        }
        assert!(encode(&message).is_ok());
        let messages = vec![message];
        let deeper = ChannelMsg::Batch { messages };
        assert!(matches!(
            encode(&deeper),
            Err(EncodeError::OutOfBounds(OutOfBounds::BatchesTooDeep))
        ));
    }

    #[test]
    fn hops_that_javascript_cannot_count_are_refused() {
        for (hops, fits) in [(1 << 53, false), ((1 << 53) - 1, true), (i64::MIN, false)] {
            let message = ChannelMsg::Ephemeral {
                doc_id: "d".into(),
                hops_remaining: hops,
                stores: vec![],
            };
            let messages = vec![message];
            let encoded = encode(&ChannelMsg::Batch { messages });
            assert_eq!(encoded.is_ok(), fits, "{hops}");
        }
    }
}
