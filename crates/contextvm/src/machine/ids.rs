//! Public keys and event ids: 32 bytes, written as hex.

use std::fmt;

/// A text that is not 64 hex digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not 64 hex digits")]
pub struct NotHex;

macro_rules! name {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name([u8; 32]);

        impl $name {
            /// Made of these bytes.
            pub const fn from_byte_array(bytes: [u8; 32]) -> Self {
                Self(bytes)
            }

            /// Its bytes.
            pub const fn to_bytes(self) -> [u8; 32] {
                self.0
            }

            /// Reads 64 hex digits.
            pub fn from_hex(text: &str) -> Result<Self, NotHex> {
                read_hex(text).map(Self)
            }

            /// 64 hex digits.
            pub fn to_hex(self) -> String {
                self.0.iter().map(|byte| format!("{byte:02x}")).collect()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.to_hex())
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.to_hex())
            }
        }
    };
}

name! {
    /// A Nostr public key.
    PublicKey
}

name! {
    /// The id of an event.
    EventId
}

fn read_hex(text: &str) -> Result<[u8; 32], NotHex> {
    let digit = |byte: u8| char::from(byte).to_digit(16).ok_or(NotHex);
    let mut bytes = [0; 32];
    if text.len() != 64 {
        return Err(NotHex);
    }
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        *byte = u8::try_from(16 * digit(pair[0])? + digit(pair[1])?).map_err(|_| NotHex)?;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_as_it_is_written() {
        let hex = "00ff".repeat(16);
        assert_eq!(EventId::from_hex(&hex).unwrap().to_hex(), hex);
        assert_eq!(
            EventId::from_hex(&hex.to_uppercase()),
            EventId::from_hex(&hex)
        );
        for bad in [
            "",
            "0",
            &hex[1..],
            &format!("{hex}0"),
            &"0g".repeat(32),
            &"é".repeat(32),
        ] {
            assert_eq!(EventId::from_hex(bad), Err(NotHex), "{bad}");
        }
    }
}
