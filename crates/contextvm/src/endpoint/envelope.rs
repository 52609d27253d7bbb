//! The Nostr event around a frame: signs it and encrypts it in a gift wrap, and the reverse.

use nostr_sdk::nips::nip44;
use nostr_sdk::{Event, EventBuilder, JsonUtil, Kind, Tag};

use super::Keys;
use crate::machine::{EventId, MESSAGE_KIND, PublicKey, Seal};

/// An event to be signed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draft {
    /// The recipient; its `p` tag is among `tags`.
    pub to: PublicKey,
    /// The text.
    pub content: String,
    /// All tags.
    pub tags: Vec<Vec<String>>,
    /// Plain, or the kind of gift wrap.
    pub seal: Seal,
}

/// An event that can be published.
#[derive(Clone, Debug)]
pub struct Signed {
    /// The id that responses refer to: the inner event's.
    pub inner: EventId,
    /// The event to publish.
    pub event: Event,
}

/// A received event, decrypted and verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened {
    /// The key that signed it.
    pub author: PublicKey,
    /// Its id; for a gift wrap the inner event's.
    pub id: EventId,
    /// Its tags.
    pub tags: Vec<Vec<String>>,
    /// Its text.
    pub content: String,
    /// When it was made, in Unix seconds by its author's clock.
    pub created_at: u64,
    /// The form in which it came.
    pub seal: Seal,
}

/// Why an event could not be signed or encrypted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the event could not be {step}: {reason}")]
pub struct SealError {
    step: &'static str,
    reason: String,
}

/// Why a received event was dropped.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// A kind that ContextVM does not use.
    #[error("an event of kind {0} is no message")]
    Kind(u16),
    /// It cannot be decrypted with this key.
    #[error("the gift wrap cannot be opened: {0}")]
    Sealed(String),
    /// The event's id or signature is wrong: its author did not sign it.
    #[error("the event is not signed by its author: {0}")]
    Unsigned(String),
    /// The inner event is invalid, or of the wrong kind.
    #[error("what is in the gift wrap is no signed message: {0}")]
    Inner(String),
    /// The inner event is addressed to another key: someone wrapped a message that was not for us.
    #[error("the message is not addressed to us")]
    NotForUs,
}

/// Signs a draft, and encrypts it unless it is plain. A large one takes about a millisecond.
pub fn sign(keys: &Keys, draft: Draft) -> Result<Signed, SealError> {
    let failed = |step, reason: String| SealError { step, reason };
    let mut tags = Vec::with_capacity(draft.tags.len());
    for tag in draft.tags {
        tags.push(Tag::parse(tag).map_err(|error| failed("tagged", error.to_string()))?);
    }
    let event = EventBuilder::new(Kind::from_u16(MESSAGE_KIND), draft.content)
        .tags(tags)
        // Client and server may use the same key.
        .allow_self_tagging()
        .sign_with_keys(&keys.0)
        .map_err(|error| failed("signed", error.to_string()))?;
    let inner = EventId::from_byte_array(event.id.to_bytes());
    if draft.seal == Seal::Plain {
        return Ok(Signed { inner, event });
    }
    let one_time = nostr_sdk::Keys::generate();
    let to = nostr_sdk::PublicKey::from_byte_array(draft.to.to_bytes());
    let text = nip44::encrypt(
        one_time.secret_key(),
        &to,
        event.as_json(),
        nip44::Version::V2,
    )
    .map_err(|error| failed("sealed", error.to_string()))?;
    let event = EventBuilder::new(Kind::from_u16(draft.seal.kind()), text)
        .tag(Tag::public_key(to))
        .sign_with_keys(&one_time)
        .map_err(|error| failed("signed", error.to_string()))?;
    Ok(Signed { inner, event })
}

/// Decrypts an event, and verifies the id and the signature of the message: the event's own, or those
/// of the event in a gift wrap. The wrap itself is signed with a throwaway key and proves nothing.
pub fn open(keys: &Keys, event: Event) -> Result<Opened, OpenError> {
    let kind = event.kind.as_u16();
    let seal = Seal::of_kind(kind).ok_or(OpenError::Kind(kind))?;
    let event = if seal == Seal::Plain {
        let wrong = |error: nostr_sdk::event::Error| OpenError::Unsigned(error.to_string());
        event.verify().map_err(wrong)?;
        event
    } else {
        let text = nip44::decrypt(keys.0.secret_key(), &event.pubkey, &event.content)
            .map_err(|error| OpenError::Sealed(error.to_string()))?;
        let wrong = |reason: String| OpenError::Inner(reason);
        let inner = Event::from_json(text).map_err(|error| wrong(error.to_string()))?;
        if inner.kind.as_u16() != MESSAGE_KIND {
            return Err(wrong(format!("kind {}", inner.kind.as_u16())));
        }
        inner.verify().map_err(|error| wrong(error.to_string()))?;
        inner
    };
    // Anybody can wrap a signed message that was addressed to somebody else.
    let us = keys.0.public_key();
    if !event.tags.public_keys().any(|key| *key == us) {
        return Err(OpenError::NotForUs);
    }
    Ok(Opened {
        author: PublicKey::from_byte_array(event.pubkey.to_bytes()),
        id: EventId::from_byte_array(event.id.to_bytes()),
        tags: event.tags.to_vec().into_iter().map(Tag::to_vec).collect(),
        content: event.content,
        created_at: event.created_at.as_secs(),
        seal,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draft(to: &Keys, content: &str, seal: Seal) -> Draft {
        let to = to.public_key();
        Draft {
            to,
            content: content.to_owned(),
            tags: vec![
                vec!["p".to_owned(), to.to_hex()],
                vec!["support_oversized_transfer".to_owned()],
            ],
            seal,
        }
    }

    #[test]
    fn what_is_signed_is_what_is_opened() {
        let (from, to) = (Keys::generate(), Keys::generate());
        for seal in [Seal::Plain, Seal::Persistent, Seal::Ephemeral] {
            let draft = draft(&to, "{\"a\":\"é\\\"\"}", seal);
            let signed = sign(&from, draft.clone()).unwrap();
            signed.event.verify().unwrap();
            assert_eq!(signed.event.kind.as_u16(), seal.kind());
            let hidden = seal != Seal::Plain;
            assert_eq!(signed.event.pubkey != from.0.public_key(), hidden);
            assert_eq!(
                signed.inner.to_bytes() != signed.event.id.to_bytes(),
                hidden
            );
            assert_eq!(signed.event.tags.len(), if hidden { 1 } else { 2 });
            let opened = open(&to, signed.event).unwrap();
            assert_eq!(
                (opened.author, opened.id, opened.seal),
                (from.public_key(), signed.inner, seal)
            );
            assert_eq!((opened.content, opened.tags), (draft.content, draft.tags));
        }
    }

    #[test]
    fn what_is_not_for_us_is_not_taken() {
        let (from, to, other) = (Keys::generate(), Keys::generate(), Keys::generate());
        let sealed = sign(&from, draft(&to, "{}", Seal::Ephemeral)).unwrap();
        assert!(matches!(
            open(&other, sealed.event),
            Err(OpenError::Sealed(_))
        ));
        // A signed message to `to`, wrapped anew for `other`.
        let plain = sign(&from, draft(&to, "{}", Seal::Plain)).unwrap().event;
        let wrapper = Keys::generate();
        let rewrap = |text: String| {
            let sealed = nip44::encrypt(
                wrapper.0.secret_key(),
                &other.0.public_key(),
                text,
                nip44::Version::V2,
            )
            .unwrap();
            EventBuilder::new(Kind::from_u16(Seal::Persistent.kind()), sealed)
                .tag(Tag::public_key(other.0.public_key()))
                .sign_with_keys(&wrapper.0)
                .unwrap()
        };
        assert_eq!(
            open(&other, rewrap(plain.as_json())),
            Err(OpenError::NotForUs)
        );
        assert_eq!(open(&other, plain.clone()), Err(OpenError::NotForUs));
        // A broken signature, the same inside a wrap, and no event at all.
        let mut forged = plain;
        forged.pubkey = to.0.public_key();
        assert!(matches!(
            open(&to, forged.clone()),
            Err(OpenError::Unsigned(_))
        ));
        for text in [forged.as_json(), "{}".to_owned(), "[".to_owned()] {
            assert!(matches!(
                open(&other, rewrap(text)),
                Err(OpenError::Inner(_))
            ));
        }
        let note = EventBuilder::text_note("x")
            .sign_with_keys(&from.0)
            .unwrap();
        assert_eq!(open(&other, note), Err(OpenError::Kind(1)));
    }
}
