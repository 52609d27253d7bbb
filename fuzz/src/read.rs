//! Checks the reading of one frame.

use breakbulk_link::{Assembled, Fault, Frame, Inbound, Piece, Shape, Wire};
use bytes::Bytes;
use serde_json::value::RawValue;

/// Reads the same bytes as a text and as a binary frame, by both readers of the wire.
pub fn check(wire: &dyn Wire, bytes: &[u8]) {
    let bytes = Bytes::copy_from_slice(bytes);
    for frame in [Frame::Text(bytes.clone()), Frame::Binary(bytes)] {
        let read = wire.read(&frame);
        if let Some(piece) = wire.read_canonical(&frame) {
            check_canonical(wire, &piece, &read);
        }
        match read {
            Ok(Inbound::Whole(message, shape)) => check_shape(message, &shape),
            Ok(Inbound::Piece(piece)) => drop(decode(wire, &piece)),
            // Both are shown to people, whatever the peer wrote.
            Ok(inbound) => drop(format!("{inbound:?}")),
            Err(fault) => drop(format!("{fault} {}", wire.code(&fault.kind))),
        }
        let whole = Assembled {
            opening: None,
            bytes: frame.bytes(),
            ascii: frame.bytes().is_ascii(),
            digest: None,
        };
        if let Ok(shape) = wire.finish(&whole) {
            check_shape(frame.bytes(), &shape);
        }
    }
}

/// A piece that the canonical reader accepts may be wrong only if its data cannot be decoded: then, and
/// only then, a link uses the general reader.
fn check_canonical(wire: &dyn Wire, piece: &Piece<'_>, read: &Result<Inbound<'_>, Fault>) {
    let Some(data) = decode(wire, piece) else {
        return;
    };
    let Ok(Inbound::Piece(general)) = read else {
        panic!("canonical {piece:?}, but in general {read:?}");
    };
    assert_eq!(piece.key, general.key);
    assert_eq!(piece.seq, general.seq);
    assert_eq!(piece.count, general.count);
    assert_eq!(piece.bytes, general.bytes);
    assert_eq!(Some(data), decode(wire, general));
}

/// The data of a piece, if it can be decoded, appended to existing bytes.
fn decode(wire: &dyn Wire, piece: &Piece<'_>) -> Option<Vec<u8>> {
    const BEFORE: &[u8] = b"before";
    let mut buffer = BEFORE.to_vec();
    wire.decode(piece, &mut buffer).ok()?;
    let data = buffer
        .strip_prefix(BEFORE)
        .expect("decoding appends, and changes nothing that was there");
    assert!(data.len() <= wire.decoded_max(piece), "a link made no room");
    Some(data.to_vec())
}

/// Checks that the ranges are within the message and contain JSON.
fn check_shape(message: &[u8], shape: &Shape) {
    let json = |range: &std::ops::Range<usize>| {
        let text = std::str::from_utf8(&message[range.clone()]).expect("whole characters");
        serde_json::from_str::<&RawValue>(text).expect("one JSON value");
    };
    shape.id.iter().for_each(json);
    shape.body.iter().for_each(json);
    if let Some(method) = &shape.method {
        json(&(method.start - 1..method.end + 1));
    }
}
