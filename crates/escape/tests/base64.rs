//! Base64 agrees with another implementation, in what it encodes and in what it accepts for decoding.

#![allow(clippy::unwrap_used)]

use base64::prelude::{BASE64_STANDARD, Engine};
use breakbulk_escape::base64::{decode, encode};

/// A buffer that begins with some bytes, and whose spare memory is full of the byte `stale`.
fn out(stale: u8) -> Vec<u8> {
    let mut out = vec![stale; 40_000];
    out.clear();
    out.extend(b"before");
    out
}

fn same_from_any_memory(write: impl Fn(&mut Vec<u8>) -> bool) -> Option<Vec<u8>> {
    let (mut one, mut other) = (out(0x00), out(0xa5));
    let (ok, again) = (write(&mut one), write(&mut other));
    assert_eq!(ok, again);
    assert!(one == other);
    let appended = one.strip_prefix(b"before").unwrap();
    assert!(ok || appended.is_empty());
    ok.then(|| appended.to_vec())
}

#[test]
fn it_agrees_with_another_implementation() {
    let byte = |at: usize| u8::try_from(at.wrapping_mul(0x9e37_79b9) >> 8 & 0xff).unwrap();
    for size in (0..300).chain(12_284..12_292).chain([24_571, 24_576]) {
        let data: Vec<u8> = (size..size * 2).map(byte).collect();
        let coded = same_from_any_memory(|out| {
            encode(&data, out);
            true
        });
        let coded = coded.unwrap();
        assert!(coded == BASE64_STANDARD.encode(&data).as_bytes(), "{size}");
        for text in texts_like(&coded) {
            let decoded = same_from_any_memory(|out| decode(&text, out));
            let expected = BASE64_STANDARD.decode(&text).ok();
            assert!(decoded == expected, "{size} {}", text.escape_ascii());
        }
    }
}

/// The text, and variants of it with another character, another end or another length.
fn texts_like(coded: &[u8]) -> Vec<Vec<u8>> {
    let mut texts = vec![
        coded.to_vec(),
        [coded, b"="].concat(),
        [coded, b"AAAA"].concat(),
    ];
    let last = coded.len().saturating_sub(9)..coded.len();
    for at in last.chain([0, coded.len() / 2]) {
        for other in *b"=A/+-_\"\\ \n\xff\0B" {
            let mut text = coded.to_vec();
            if let Some(place) = text.get_mut(at) {
                *place = other;
            }
            texts.push(text);
        }
        texts.push(coded[..at].to_vec());
    }
    texts
}
