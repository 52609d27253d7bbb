//! The XOR mask of WebSocket payloads that clients send.

/// Masks or unmasks, 16 bytes at a time, which the compiler vectorizes.
pub(crate) fn mask(bytes: &mut [u8], key: [u8; 4]) {
    let [a, b, c, d] = key;
    let wide = u128::from_ne_bytes([a, b, c, d, a, b, c, d, a, b, c, d, a, b, c, d]);
    let (words, rest) = bytes.as_chunks_mut::<16>();
    for word in words {
        *word = (u128::from_ne_bytes(*word) ^ wide).to_ne_bytes();
    }
    for (byte, key) in rest.iter_mut().zip(key.iter().cycle()) {
        *byte ^= key;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_wears_the_byte_of_the_key_at_its_place() {
        let key = [1, 2, 4, 8];
        for length in 0..70 {
            let mut bytes = vec![0x55; length];
            mask(&mut bytes, key);
            for (index, byte) in bytes.iter().enumerate() {
                assert_eq!(*byte, 0x55 ^ key[index % 4], "{index} of {length}");
            }
        }
    }
}
