//! Secret and public keys, and their text forms: hex, nsec, npub.

use std::fmt;

use nostr_sdk::ToBech32;

use crate::machine::PublicKey;

/// A secret key and its public half.
#[derive(Clone, PartialEq, Eq)]
pub struct Keys(pub(crate) nostr_sdk::Keys);

impl Keys {
    /// A new random key.
    pub fn generate() -> Self {
        Self(nostr_sdk::Keys::generate())
    }

    /// Parses a secret key as hex or nsec. The error does not contain the text.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        let keys = nostr_sdk::Keys::parse(text.trim());
        keys.map(Self).map_err(|_| KeyError {
            what: "secret key",
            prefix: "nsec",
        })
    }

    /// The public half.
    pub fn public_key(&self) -> PublicKey {
        PublicKey::from_byte_array(self.0.public_key().to_bytes())
    }

    /// The secret half as hex, for storage.
    pub fn to_secret_hex(&self) -> String {
        self.0.secret_key().to_secret_hex()
    }

    /// The keys as [`breakbulk_net::nostr`] takes them.
    pub fn as_nostr(&self) -> &nostr_sdk::Keys {
        &self.0
    }
}

/// The secret half is never printed.
impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Keys").field(&self.public_key()).finish()
    }
}

/// The text is not a key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this is no {what}; write it as 64 hex digits or as {prefix}1…")]
pub struct KeyError {
    what: &'static str,
    prefix: &'static str,
}

/// Parses a public key as hex or npub.
pub fn public_key(text: &str) -> Result<PublicKey, KeyError> {
    let key = nostr_sdk::PublicKey::parse(text.trim());
    key.map(|key| PublicKey::from_byte_array(key.to_bytes()))
        .map_err(|_| KeyError {
            what: "public key",
            prefix: "npub",
        })
}

/// A public key in its usual text form: npub1…
pub fn npub(key: &PublicKey) -> String {
    let key = nostr_sdk::PublicKey::from_byte_array(key.to_bytes());
    key.to_bech32().unwrap_or_else(|never| match never {})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_in_both_forms() {
        let hex = "67dea2ed018072d675f5415ecfaed7d2597555e202d85b3d65ea4e58d2d92ffa";
        let nsec = "nsec1vl029mgpspedva04g90vltkh6fvh240zqtv9k0t9af8935ke9laqsnlfe5";
        assert_eq!(Keys::parse(hex).unwrap(), Keys::parse(nsec).unwrap());
        let public = "7e7e9c42a91bfef19fa929e5fda1b72e0ebc1a4c1141673e2794234d86addf4e";
        let npub = "npub10elfcs4fr0l0r8af98jlmgdh9c8tcxjvz9qkw038js35mp4dma8qzvjptg";
        assert_eq!(public_key(public).unwrap(), public_key(npub).unwrap());
        assert_eq!(
            Keys::parse(hex).unwrap().public_key(),
            public_key(npub).unwrap()
        );
        assert_eq!(
            Keys::parse("secret!").unwrap_err().to_string(),
            "this is no secret key; write it as 64 hex digits or as nsec1…"
        );
        assert!(public_key(nsec).is_err());
    }
}
