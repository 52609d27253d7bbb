//! Encodes and decodes frames: `02 | flags | u32 BE length | CBOR`.

use bytes::Bytes;

use super::decode::decode_payload;
use super::encode::Payload;
use super::{ChannelMsg, DecodeError, DecodeErrorCode, DecodeLimits, Detail, EncodeError};

/// The first byte of a frame.
pub const WIRE_VERSION: u8 = 2;

/// The length of version, flags and length field.
pub const HEADER_LEN: usize = 6;

/// The flag for a payload that is an array of messages. Other flags are ignored, as in the original.
pub const FLAG_BATCH: u8 = 1;

/// Encodes a frame of one message, the only kind that the original's adapters send.
pub fn encode_frame(message: &ChannelMsg) -> Result<Bytes, EncodeError> {
    framed(0, Payload::Message(message))
}

/// Encodes a frame of several messages.
pub fn encode_batch_frame(messages: &[ChannelMsg]) -> Result<Bytes, EncodeError> {
    framed(FLAG_BATCH, Payload::Batch(messages))
}

fn framed(flags: u8, payload: Payload<'_>) -> Result<Bytes, EncodeError> {
    let len = payload.len()?;
    let mut frame = Vec::with_capacity(HEADER_LEN + len as usize);
    frame.extend_from_slice(&[WIRE_VERSION, flags]);
    frame.extend_from_slice(&len.to_be_bytes());
    payload.append_to(&mut frame)?;
    Ok(frame.into())
}

/// Decodes the messages of a frame, within the default [`DecodeLimits`].
///
/// Large binary fields share `frame`. Bytes after the declared length are ignored, as in the original.
pub fn decode_frame(frame: Bytes) -> Result<Vec<ChannelMsg>, DecodeError> {
    decode_frame_within(frame, DecodeLimits::default())
}

/// Like [`decode_frame`], within given limits.
pub fn decode_frame_within(
    frame: Bytes,
    limits: DecodeLimits,
) -> Result<Vec<ChannelMsg>, DecodeError> {
    let have = frame.len();
    let too_short = |need| {
        let detail = Detail::FrameTooShort { have, need };
        DecodeError::new(DecodeErrorCode::TruncatedFrame, detail)
    };
    let Some(&[version, flags, ref len @ ..]) = frame.first_chunk::<HEADER_LEN>() else {
        return Err(too_short(HEADER_LEN as u64));
    };
    if version != WIRE_VERSION {
        let detail = Detail::Version { found: version };
        return Err(DecodeError::new(
            DecodeErrorCode::UnsupportedVersion,
            detail,
        ));
    }
    let need = HEADER_LEN as u64 + u64::from(u32::from_be_bytes(*len));
    if need > have as u64 {
        return Err(too_short(need));
    }
    let payload = frame.slice(HEADER_LEN..need as usize);
    decode_payload(&payload, flags & FLAG_BATCH != 0, limits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loro::{Transmission, VersionVector};

    fn delete(doc_id: &str) -> ChannelMsg {
        let doc_id = doc_id.into();
        ChannelMsg::DeleteRequest { doc_id }
    }

    #[test]
    fn one_and_many() {
        let one = encode_frame(&delete("d")).unwrap();
        assert_eq!(one[..], *b"\x02\x00\x00\x00\x00\x0b\xa2at\x18\x30cdocad");
        assert_eq!(decode_frame(one), Ok(vec![delete("d")]));

        let many = [delete("d"), ChannelMsg::DirectoryRequest { doc_ids: None }];
        let frame = encode_batch_frame(&many).unwrap();
        assert_eq!(
            frame[..],
            *b"\x02\x01\x00\x00\x00\x17\x82\xa2at\x18\x30cdocad\xa2at\x18\x20ddocs\xf7"
        );
        assert_eq!(decode_frame(frame), Ok(many.to_vec()));

        let none = encode_batch_frame(&[]).unwrap();
        assert_eq!(none[..], *b"\x02\x01\x00\x00\x00\x01\x80");
        assert_eq!(decode_frame(none), Ok(vec![]));
    }

    #[test]
    fn headers() {
        let code = |frame: &'static [u8]| {
            decode_frame(Bytes::from_static(frame)).map_err(|error| error.to_string())
        };
        let cases: &[(&[u8], Result<(), &str>)] = &[
            (
                b"",
                Err("truncated_frame: the frame has 0 bytes and needs 6"),
            ),
            (
                b"\x02\x00\x00\x00\x00",
                Err("truncated_frame: the frame has 5 bytes and needs 6"),
            ),
            (
                b"\x02\x00\xff\xff\xff\xff\xa0",
                Err("truncated_frame: the frame has 7 bytes and needs 4294967301"),
            ),
            (
                b"\x01\x00\x00\x00\x00\x00",
                Err("unsupported_version: the frame is of wire version 1, this side speaks 2"),
            ),
            (
                b"\x02\x00\x00\x00\x00\x00",
                Err("invalid_cbor: the CBOR item at byte 0 reaches beyond the payload's 0 bytes"),
            ),
            (
                b"\x02\x01\x00\x00\x00\x01\xa0",
                Err("invalid_cbor: the batch is a map, not an array"),
            ),
            (b"\x02\xf2\x00\x00\x00\x05\xa1at\x18\x20", Ok(())),
            (b"\x02\x00\x00\x00\x00\x05\xa1at\x18\x20\xff\xff", Ok(())),
        ];
        for (frame, expected) in cases {
            let expected = expected.map_err(str::to_owned);
            assert_eq!(code(frame).map(drop), expected, "{frame:02x?}");
        }
    }

    #[test]
    fn items_are_bounded_by_the_callers_number() {
        let frame = encode_frame(&delete("d")).unwrap();
        let within = |max_items| decode_frame_within(frame.clone(), DecodeLimits { max_items });
        assert!(within(5).is_ok());
        let error = within(4).unwrap_err();
        assert_eq!(error.detail, Detail::TooManyItems { limit: 4 });
    }

    #[test]
    fn a_payload_beyond_32_bits_is_refused_before_it_is_made() {
        let data = Bytes::from(vec![0; 1 << 26]);
        let update = ChannelMsg::Update {
            doc_id: "d".into(),
            transmission: Transmission::Update {
                data,
                version: VersionVector::new(),
            },
        };
        let error = encode_batch_frame(&vec![update; 64]).unwrap_err();
        match error {
            EncodeError::TooLong { bytes } => assert!(bytes > 1 << 32),
            other => panic!("{other}"),
        }
    }
}
