//! The limits: the work that the rules of a wire demand, done by the fastest libraries.
//!
//! Each function takes the message and the size of a piece, and returns the ways to do the work: the
//! fastest counts. As in this project's code, frames are made in one reused buffer, and each message is
//! assembled in a new one.

use base64::Engine;
use base64::engine::general_purpose::PAD;
use base64::engine::simd::Simd;
use serde::Deserialize;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use crate::{Work, time};

/// The rate of memcpy in GB/s, into memory that was used before.
pub fn memcpy_rate() -> f64 {
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

/// Encodes and decodes base64 with either of two libraries, checks UTF-8, and parses once without copying.
pub fn ahp(message: &[u8], piece: usize) -> Vec<Work<'_>> {
    let (simd_out, simd_in) = (Simd::standard(PAD), Simd::standard(PAD));
    let turbo = base64_turbo::STANDARD;
    vec![
        coded_and_back(
            message,
            piece,
            move |data, out| simd_out.encode_slice(data, out).unwrap_or(0),
            move |text, out| simd_in.decode_slice(text, out).ok(),
        ),
        coded_and_back(
            message,
            piece,
            move |data, out| turbo.encode_slice(data, out).unwrap_or(0),
            move |text, out| turbo.decode_slice(text, out).ok(),
        ),
    ]
}

fn coded_and_back<'a>(
    message: &'a [u8],
    piece: usize,
    encode: impl Fn(&[u8], &mut [u8]) -> usize + 'a,
    decode: impl Fn(&[u8], &mut [u8]) -> Option<usize> + 'a,
) -> Work<'a> {
    // Initialised, like a reused frame buffer.
    let mut frame = vec![1; piece.min(message.len()).div_ceil(3) * 4];
    Box::new(move || {
        let mut whole = Vec::with_capacity(message.len() + 2);
        for data in message.chunks(piece) {
            let coded = encode(data, &mut frame);
            let start = whole.len();
            // Libraries want room for whole groups of characters.
            whole.resize(start + coded / 4 * 3, 0);
            let size = decode(&frame[..coded], &mut whole[start..]).unwrap_or(0);
            whole.truncate(start + size);
        }
        assert_eq!(whole.len(), message.len(), "all of it is read back");
        let text = simdutf8::basic::from_utf8(&whole).unwrap_or_default();
        std::hint::black_box(serde_json::from_str::<Envelope<'_>>(text).is_ok());
    })
}

/// Escapes and unescapes with either of two libraries, and checks UTF-8.
pub fn tywrap(message: &[u8], piece: usize) -> Vec<Work<'_>> {
    escape_and_back(message, piece, |_| {})
}

/// Does the work of [`tywrap`], and SHA-256 twice.
pub fn cep22(message: &[u8], piece: usize) -> Vec<Work<'_>> {
    escape_and_back(message, piece, |message| {
        std::hint::black_box(Sha256::digest(message));
        std::hint::black_box(Sha256::digest(message));
    })
}

/// Copies twice: into a frame, and out of it.
pub fn copies(message: &[u8], piece: usize) -> Vec<Work<'_>> {
    let piece = piece.min(message.len());
    let mut frame = vec![1; piece];
    vec![Box::new(move || {
        let mut whole: Vec<u8> = Vec::with_capacity(message.len());
        for data in message.chunks(piece) {
            let frame = &mut frame[..data.len()];
            frame.copy_from_slice(data);
            whole.extend_from_slice(std::hint::black_box(frame));
        }
        std::hint::black_box(whole);
    })]
}

fn escape_and_back(message: &[u8], piece: usize, more: fn(&[u8])) -> Vec<Work<'_>> {
    let simd = |text: &str, frame: &mut Vec<u8>| json_escape_simd::escape_into(text, frame);
    let serde = |text: &str, frame: &mut Vec<u8>| {
        let _ = serde_json::to_writer(frame, text);
    };
    let work = |escape: fn(&str, &mut Vec<u8>)| -> Work<'_> {
        let text = std::str::from_utf8(message).unwrap_or_default();
        let mut frame = vec![1; 8 * piece.min(message.len()) + 64];
        Box::new(move || {
            let mut whole: Vec<u8> = Vec::with_capacity(message.len());
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
            std::hint::black_box(simdutf8::basic::from_utf8(message).is_ok());
            more(message);
            std::hint::black_box(whole);
        })
    };
    vec![work(simd), work(serde)]
}

#[derive(Deserialize, Default)]
struct Borrowed<'a>(#[serde(borrow)] std::borrow::Cow<'a, str>);

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    #[expect(dead_code, reason = "parsed to be measured")]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    #[expect(dead_code, reason = "parsed to be measured")]
    result: Option<&'a RawValue>,
}
