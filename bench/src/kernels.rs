//! The limits: the time that the fastest libraries need for the same work.
//!
//! Each function takes the message and the size of a piece, and returns seconds. As in our own
//! code, frames are made in one reused buffer, and the message is assembled in a new one.

use base64::Engine;
use base64::engine::general_purpose::PAD;
use base64::engine::simd::Simd;
use serde::Deserialize;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use crate::time;

/// The rate of memcpy in GB/s, into memory that was used before.
pub(crate) fn memcpy_rate() -> f64 {
    let from = vec![1u8; 64 << 20];
    let mut to = vec![0u8; from.len()];
    let best = (0..10)
        .map(|_| {
            time(|| {
                to.copy_from_slice(std::hint::black_box(&from));
                std::hint::black_box(&to);
            })
        })
        .fold(f64::MAX, f64::min);
    from.len() as f64 / best / 1e9
}

/// The time for encoding and decoding base64, checking UTF-8, and one parse without copying.
pub(crate) fn ahp(message: &[u8], piece: usize) -> f64 {
    let engine = Simd::standard(PAD);
    // Written to once, like a reused frame buffer.
    let mut frame = vec![1; piece.div_ceil(3) * 4];
    let (mut seconds, whole) = fresh(message.len(), |whole| {
        for data in message.chunks(piece) {
            let coded = engine.encode_slice(data, &mut frame).unwrap_or(0);
            let start = whole.len();
            whole.resize(start + data.len(), 0);
            let _ = engine.decode_slice(&frame[..coded], &mut whole[start..]);
        }
    });
    seconds += utf8(&whole);
    let text = std::str::from_utf8(&whole).unwrap_or_default();
    seconds + time(|| serde_json::from_str::<Envelope<'_>>(text).is_ok())
}

/// The time for escaping and unescaping with the faster of two libraries, and checking UTF-8.
pub(crate) fn tywrap(message: &[u8], piece: usize) -> f64 {
    let simd = |text: &str, frame: &mut Vec<u8>| json_escape_simd::escape_into(text, frame);
    let serde = |text: &str, frame: &mut Vec<u8>| {
        let _ = serde_json::to_writer(frame, text);
    };
    escape_and_back(message, piece, simd).min(escape_and_back(message, piece, serde))
        + utf8(message)
}

/// The time of [`tywrap`], plus SHA-256 twice.
pub(crate) fn cep22(message: &[u8], piece: usize) -> f64 {
    let digest = time(|| Sha256::digest(message)) + time(|| Sha256::digest(message));
    tywrap(message, piece) + digest
}

/// The time for two copies: into a frame, and out of it.
pub(crate) fn copies(message: &[u8], piece: usize) -> f64 {
    let mut frame = vec![1; piece];
    let (seconds, _) = fresh(message.len(), |whole| {
        for data in message.chunks(piece) {
            let frame = &mut frame[..data.len()];
            frame.copy_from_slice(data);
            whole.extend_from_slice(std::hint::black_box(frame));
        }
    });
    seconds
}

fn escape_and_back(message: &[u8], piece: usize, escape: impl Fn(&str, &mut Vec<u8>)) -> f64 {
    let text = std::str::from_utf8(message).unwrap_or_default();
    let mut frame = vec![1; 8 * piece + 64];
    let (seconds, _) = fresh(message.len(), |whole| {
        let mut at = 0;
        while at < text.len() {
            let end = text.floor_char_boundary(at + piece);
            frame.clear();
            escape(&text[at..end], &mut frame);
            // SAFETY: both libraries write UTF-8. A check here would make their time, our limit, worse.
            #[allow(unsafe_code)]
            let coded = unsafe { std::str::from_utf8_unchecked(&frame) };
            // Borrows if there is nothing to unescape.
            let data: Borrowed<'_> = serde_json::from_str(coded).unwrap_or_default();
            whole.extend_from_slice(data.0.as_bytes());
            at = end;
        }
    });
    seconds
}

#[derive(Deserialize, Default)]
struct Borrowed<'a>(#[serde(borrow)] std::borrow::Cow<'a, str>);

fn utf8(message: &[u8]) -> f64 {
    time(|| simdutf8::basic::from_utf8(message).is_ok())
}

/// Fills a new buffer; returns the seconds it took, and the buffer.
fn fresh(size: usize, fill: impl FnOnce(&mut Vec<u8>)) -> (f64, Vec<u8>) {
    let mut whole = Vec::new();
    let seconds = time(|| {
        whole.reserve_exact(size);
        fill(&mut whole);
    });
    (seconds, whole)
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    #[expect(dead_code, reason = "parsed to be measured")]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    #[expect(dead_code, reason = "parsed to be measured")]
    result: Option<&'a RawValue>,
}
