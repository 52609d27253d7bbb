//! Truncated and mutated copies of recorded frames: the decoder never panics, and every message that it
//! accepts can be encoded again.

use bytes::Bytes;
use serde_json::Value;

use super::*;

/// Every frame of the recorded files.
fn recorded() -> Vec<Bytes> {
    let mut frames = Vec::new();
    for file in ["messages", "batch_frames", "decode_errors"] {
        let path = format!(
            "{}/../../vectors/loro/{file}.json",
            env!("CARGO_MANIFEST_DIR")
        );
        let cases: Vec<Value> =
            serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        frames.extend(
            cases
                .iter()
                .map(|case| from_hex(case["frame"].as_str().unwrap())),
        );
    }
    assert!(frames.len() > 80);
    frames
}

fn from_hex(hex: &str) -> Bytes {
    let digits = hex.as_bytes().chunks_exact(2);
    digits
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

/// Decodes a frame. If it is accepted, its messages must survive our own encoders.
fn check(frame: Bytes) -> bool {
    let Ok(messages) = decode_frame(frame) else {
        return false;
    };
    let again = encode_batch_frame(&messages).unwrap();
    assert_eq!(decode_frame(again).unwrap(), messages);
    for message in &messages {
        let text = to_json(message);
        assert_eq!(to_json(&from_json(&text).unwrap()), text);
    }
    true
}

#[test]
fn truncated_at_every_byte() {
    for frame in recorded() {
        for len in 0..frame.len() {
            check(frame.slice(..len));
            // With the length in the header corrected, so that the CBOR itself is cut short.
            if let Some(payload_len) = len.checked_sub(HEADER_LEN) {
                let mut cut = frame[..len].to_vec();
                cut[2..HEADER_LEN].copy_from_slice(&(payload_len as u32).to_be_bytes());
                check(cut.into());
            }
        }
    }
}

#[test]
fn mutated() {
    const SEED: u64 = 0x10f0_2024;
    println!("seed {SEED:#x}");
    let mut random = Random(SEED);
    let frames = recorded();
    let mut accepted = 0;
    for _ in 0..200_000 {
        let frame = &frames[random.below(frames.len())];
        let mut bent = frame.to_vec();
        for _ in 0..=random.below(3) {
            let at = random.below(bent.len().max(1));
            match random.below(4) {
                0 if at < bent.len() => bent[at] ^= 1 << random.below(8),
                1 if at < bent.len() => bent[at] = random.below(256) as u8,
                2 if at < bent.len() => drop(bent.remove(at)),
                _ => bent.insert(at, random.below(256) as u8),
            }
        }
        if bent.len() >= HEADER_LEN && random.below(4) > 0 {
            let len = (bent.len() - HEADER_LEN) as u32;
            bent[2..HEADER_LEN].copy_from_slice(&len.to_be_bytes());
        }
        accepted += usize::from(check(bent.into()));
    }
    assert!(accepted > 1000, "the mutations are too wild: {accepted}");
}

/// xorshift64: random enough to mutate bytes.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }
}
