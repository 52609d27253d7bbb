//! Bytes that a seed reproduces at both ends, so that large ones are compared without sending them.

use bytes::Bytes;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// The same bytes that `values.mjs` makes of this seed.
pub fn bytes(size: usize, seed: u32) -> Bytes {
    let mut state = seed;
    let mut bytes = Vec::with_capacity(size.next_multiple_of(4));
    while bytes.len() < size {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(size);
    bytes.into()
}

/// The JSON by which the peer is told to make such bytes.
pub fn seeded(size: usize, seed: u32) -> Value {
    json!({"$buffer": {"size": size, "seed": seed}})
}

/// The JSON by which the peer reports bytes that it has.
pub fn told(bytes: &[u8]) -> Value {
    json!({ "$buffer": digest(bytes) })
}

/// Size and SHA-256, as the peer's `$digest` returns them.
pub fn digest(bytes: &[u8]) -> Value {
    let hash = Sha256::digest(bytes);
    let hex: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    json!({"size": bytes.len(), "sha256": hex})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_what_node_makes_of_the_seed() {
        assert_eq!(
            digest(&bytes(10, 1))["sha256"],
            "5771ccdf8583b0c7c4466617ad8b29bae996fd47605625f3d69280fce89e2470"
        );
        for size in [0, 1, 4, 5] {
            assert_eq!(bytes(size, 1).len(), size);
            assert_eq!(bytes(size, 1)[..], bytes(10, 1)[..size]);
        }
    }
}
