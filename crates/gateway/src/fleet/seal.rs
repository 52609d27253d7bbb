//! The frames between two members are sealed with keys that only members can make: whoever else uses the
//! same NATS account can neither read them, nor add to them, nor pass for a member.
//!
//! The keys of a line follow from the fleet's secret and the two subjects of the line, which are random and
//! used once: so what was recorded on one line opens on no other. Each direction has a key of its own, and
//! the number of a frame is its nonce.

use std::fmt;
use std::sync::Arc;

use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, Prk, Salt};

/// How many bytes a seal adds to a frame.
pub(super) const SEAL: usize = 16;

/// The purpose of the keys, from which they are derived; another version of the line gets other keys.
const PURPOSE: &[u8] = b"breakbulk fleet line 1";

/// What all members of a fleet know, and nobody else. It is never printed.
#[derive(Clone)]
pub(crate) struct Secret(Arc<[u8]>);

impl Secret {
    /// The shortest one that is taken, in bytes.
    pub(crate) const LEAST: usize = 16;

    pub(crate) fn new(text: &str) -> Option<Self> {
        let text = text.trim();
        (text.len() >= Self::LEAST).then(|| Self(text.as_bytes().into()))
    }

    /// The keys of a line for one of its sides. `subjects`: first the one on which the side that opened the
    /// line listens, then the other side's.
    pub(super) fn keys(&self, subjects: (&str, &str), opened: bool) -> Option<(Sealer, Opener)> {
        let secret = Salt::new(HKDF_SHA256, PURPOSE).extract(&self.0);
        let forth = key(&secret, b"forth", subjects)?;
        let back = key(&secret, b"back", subjects)?;
        let (out, inward) = if opened { (forth, back) } else { (back, forth) };
        Some((Sealer(Numbered::new(out)), Opener(Numbered::new(inward))))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

fn key(secret: &Prk, direction: &[u8], (opener, other): (&str, &str)) -> Option<LessSafeKey> {
    let parts: [&[u8]; 5] = [direction, b"\0", opener.as_bytes(), b"\0", other.as_bytes()];
    let key = secret.expand(&parts, &CHACHA20_POLY1305).ok()?;
    Some(LessSafeKey::new(UnboundKey::from(key)))
}

struct Numbered {
    key: LessSafeKey,
    next: u64,
}

impl Numbered {
    fn new(key: LessSafeKey) -> Self {
        Self { key, next: 0 }
    }

    fn nonce(&mut self) -> Nonce {
        let mut bytes = [0; NONCE_LEN];
        bytes[NONCE_LEN - 8..].copy_from_slice(&self.next.to_be_bytes());
        // A line does not live long enough for 2^64 frames.
        self.next += 1;
        Nonce::assume_unique_for_key(bytes)
    }
}

/// Seals the frames of one direction, in their order.
pub(super) struct Sealer(Numbered);

impl Sealer {
    /// `None` if the content is too large to be sealed, which no frame is.
    pub(super) fn seal(&mut self, mut content: Vec<u8>) -> Option<Vec<u8>> {
        let nonce = self.0.nonce();
        let key = &self.0.key;
        key.seal_in_place_append_tag(nonce, Aad::empty(), &mut content)
            .ok()?;
        Some(content)
    }
}

/// Opens the frames of one direction, in their order.
pub(super) struct Opener(Numbered);

impl Opener {
    /// The content; `None` if somebody else sealed it, or it comes out of its order.
    pub(super) fn open(&mut self, mut sealed: Vec<u8>) -> Option<Vec<u8>> {
        let nonce = self.0.nonce();
        let key = &self.0.key;
        let opened = key.open_in_place(nonce, Aad::empty(), &mut sealed);
        let size = opened.ok()?.len();
        sealed.truncate(size);
        Some(sealed)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const SUBJECTS: (&str, &str) = ("_INBOX.a", "_INBOX.b");

    fn secret(text: &str) -> Secret {
        Secret::new(text).unwrap()
    }

    // FLEET-3
    #[test]
    fn only_a_member_opens_what_a_member_sealed_and_only_in_its_order() {
        let ours = secret("0123456789abcdef");
        let (mut sealer, _) = ours.keys(SUBJECTS, true).unwrap();
        let first = sealer.seal(b"first".to_vec()).unwrap();
        let second = sealer.seal(b"second".to_vec()).unwrap();
        assert_eq!(first.len(), 5 + SEAL);
        let opened = |secret: &Secret, subjects, opened, frames: &[&Vec<u8>]| {
            let (_, mut opener) = secret.keys(subjects, opened).unwrap();
            let all = frames.iter().map(|frame| opener.open((*frame).clone()));
            all.collect::<Vec<_>>()
        };
        let fine = vec![Some(b"first".to_vec()), Some(b"second".to_vec())];
        assert_eq!(opened(&ours, SUBJECTS, false, &[&first, &second]), fine);
        let mut changed = first.clone();
        changed[0] ^= 1;
        for (name, secret, subjects, is_opener, frame) in [
            ("out of order", &ours, SUBJECTS, false, &second),
            ("sent back", &ours, SUBJECTS, true, &first),
            (
                "on another line",
                &ours,
                ("_INBOX.a", "_INBOX.c"),
                false,
                &first,
            ),
            ("changed", &ours, SUBJECTS, false, &changed),
            ("too short", &ours, SUBJECTS, false, &vec![0; SEAL - 1]),
            (
                "another secret",
                &secret("0123456789abcdeg"),
                SUBJECTS,
                false,
                &first,
            ),
        ] {
            assert_eq!(
                opened(secret, subjects, is_opener, &[frame]),
                [None],
                "{name}"
            );
        }
    }

    #[test]
    fn a_secret_is_long_and_not_printed() {
        assert!(Secret::new("0123456789abcde\n").is_none());
        let secret = secret(" 0123456789abcdef\n");
        assert_eq!(&*secret.0, b"0123456789abcdef");
        assert_eq!(format!("{secret:?}"), "Secret(…)");
    }
}
