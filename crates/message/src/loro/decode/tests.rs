use super::*;
use DecodeErrorCode::{InvalidCbor, InvalidType, MissingField};

fn read(payload: &[u8]) -> Result<ChannelMsg, DecodeError> {
    decode(&Bytes::copy_from_slice(payload))
}

fn code(payload: &[u8]) -> DecodeErrorCode {
    let error = read(payload).expect_err("refused");
    assert!(!error.to_string().is_empty());
    error.code
}

#[test]
fn any_order_extra_keys_and_whole_floats() {
    let delete = ChannelMsg::DeleteRequest { doc_id: "d".into() };
    let accepted: &[&[u8]] = &[
        b"\xa2at\x18\x30cdocad",
        b"\xa2cdocadat\x18\x30",
        b"\xa2at\x19\x00\x30cdocad",
        b"\xa2at\xfb\x40\x48\x00\x00\x00\x00\x00\x00cdocad",
        b"\xa4ax\xa1\x01\xc1\x82\xf6\xf7at\x18\x30\x07a\xffcdocad",
    ];
    for payload in accepted {
        assert_eq!(read(payload).as_ref(), Ok(&delete), "{payload:02x?}");
    }
}

#[test]
fn absent_options_are_missing_null_or_undefined() {
    let none = |payload: &[u8]| match read(payload).unwrap() {
        ChannelMsg::SyncRequest {
            bidirectional,
            ephemeral,
            ..
        } => bidirectional.is_none() && ephemeral.is_none(),
        ChannelMsg::EstablishRequest { identity } => identity.name.is_none(),
        ChannelMsg::DirectoryRequest { doc_ids } => doc_ids.is_none(),
        _ => false,
    };
    let cases: &[&[u8]] = &[
        b"\xa3at\x10cdocadav\x41\x00",
        b"\xa5at\x10cdocadav\x41\x00ae\xf6bbi\xf6",
        b"\xa5at\x10cdocadav\x41\x00ae\xf7bbi\xf7",
        b"\xa3at\x01bida1aycbot",
        b"\xa4at\x01bida1an\xf6aycbot",
        b"\xa1at\x18\x20",
        b"\xa2at\x18\x20ddocs\xf6",
    ];
    for payload in cases {
        assert!(none(payload), "{payload:02x?}");
    }
}

#[test]
fn codes() {
    let cases: &[(&[u8], DecodeErrorCode)] = &[
        // Payloads that the original refuses.
        (b"\xf7", InvalidCbor),
        (b"\x40", InvalidType),
        (b"\xa1at\x18\x99", InvalidType),
        (b"\xa1at\x1b\x00\x00\x00\x00\x00\x00\x00\x01", InvalidType),
        (b"\xa2at\x10cdocad", InvalidCbor),
        (b"\xa3at\x10cdocadav\x05", InvalidCbor),
        (b"\xa3at\x10cdocadav\x60", InvalidCbor),
        (b"\xa3at\x10cdocadav\x6212", InvalidCbor),
        (b"\xa4at\x10cdocadav\x41\x00ae\x05", InvalidCbor),
        (b"\xa4at\x10cdocadav\x41\x00ae\x81\xf6", InvalidCbor),
        (b"\xa3at\x11cdocadbtx\xf6", InvalidCbor),
        (b"\xa3at\x11cdocadbtx\xa1ak\x00", InvalidCbor),
        (b"\xa4at\x18\x40cdocadah\x01bst\xa0", InvalidCbor),
        (b"\xa2at\x18\x50am\x81\xf6", InvalidCbor),
        (b"\xa2at\x18\x50am\x41\x00", InvalidType),
        // Payloads that the original accepts, and this decoder refuses.
        (b"\xa1at\x18\x30", MissingField),
        (b"\xa2at\x18\x30cdoc\xf7", MissingField),
        (b"\xa2at\x18\x30cdoc\xf6", InvalidType),
        (b"\xa2at\x18\x30cdoc\x41d", InvalidType),
        (b"\xa2at\x18\x30cdoc\xc1ad", InvalidType),
        (b"\xa2at\x18\x30cdoca\xff", InvalidCbor),
        (b"\xa1at\x18\x21", MissingField),
        (b"\xa2at\x18\x22ddocs\x81\x01", InvalidType),
        (b"\xa2at\x18\x20ddocs\x01", InvalidType),
        (b"\xa2at\x01bida1", MissingField),
        (b"\xa3at\x01bida1ayealien", InvalidType),
        (b"\xa4at\x01bida1an\x01aycbot", InvalidType),
        (b"\xa3at\x18\x31cdocadascfoo", InvalidType),
        (b"\xa3at\x10cdocadav\x6200", InvalidType),
        (b"\xa3at\x10cdocadav\x83\x01\x01\x04", InvalidType),
        (b"\xa4at\x10cdocadav\x41\x00bbi\x01", InvalidType),
        (b"\xa4at\x10cdocadav\x41\x00ae\x81\x01", InvalidType),
        (b"\xa4at\x10cdocadav\x41\x00ae\x81\xa0", MissingField),
        (b"\xa3at\x11cdocadbtx\x01", InvalidType),
        (b"\xa3at\x11cdocadbtx\xa0", MissingField),
        (b"\xa3at\x11cdocadbtx\xa1ak\x04", InvalidType),
        (b"\xa3at\x11cdocadbtx\xa2ak\x01av\x41\x00", MissingField),
        (b"\xa3at\x11cdocadbtx\xa3ak\x01ad`av\x41\x00", InvalidType),
        (b"\xa3at\x18\x40cdocadbst\x80", MissingField),
        (
            b"\xa4at\x18\x40cdocadah\xfa\x3f\xc0\x00\x00bst\x80",
            InvalidType,
        ),
    ];
    for (payload, expected) in cases {
        assert_eq!(code(payload), *expected, "{payload:02x?}");
    }
}

#[test]
fn what_the_original_refuses_comes_first() {
    // A document is missing in the first message, the second has no such type.
    assert_eq!(
        code(b"\xa2at\x18\x50am\x82\xa1at\x18\x30\xa1at\x18\x99"),
        InvalidType
    );
    // A document is missing, and the payload goes on.
    assert_eq!(code(b"\xa1at\x18\x30\x00"), InvalidCbor);
    // Document and transmission are missing.
    assert_eq!(code(b"\xa1at\x11"), InvalidCbor);
}

#[test]
fn hops_are_integers_of_any_form() {
    let cases: &[(&[u8], i64)] = &[
        (b"\x20", -1),
        (b"\xfa\x40\x00\x00\x00", 2),
        (b"\x1b\x00\x00\x00\x00\x00\x00\x00\x20", 32),
        (b"\x1b\x00\x1f\xff\xff\xff\xff\xff\xff", (1 << 53) - 1),
    ];
    for (hops, expected) in cases {
        let payload = [b"\xa4at\x18\x40cdocadbst\x80ah", *hops].concat();
        match read(&payload).unwrap() {
            ChannelMsg::Ephemeral { hops_remaining, .. } => {
                assert_eq!(hops_remaining, *expected);
            }
            other => panic!("{other:?}"),
        }
    }
    let refused: &[&[u8]] = &[
        b"\x1b\x00\x00\x00\x00\x00\x00\x00\x05",
        b"\x1b\x00\x20\x00\x00\x00\x00\x00\x00",
        b"\x3b\x00\x1f\xff\xff\xff\xff\xff\xff",
        b"\xf9\x7c\x00",
        b"\xf9\x7e\x00",
    ];
    for hops in refused {
        let payload = [b"\xa4at\x18\x40cdocadbst\x80ah", *hops].concat();
        assert_eq!(code(&payload), InvalidType, "{hops:02x?}");
    }
}

#[test]
fn batches_nest_eight_deep() {
    let nested = |levels: usize| {
        [
            b"\xa2at\x18\x50am\x81".repeat(levels),
            b"\xa1at\x18\x20".to_vec(),
        ]
        .concat()
    };
    assert!(read(&nested(MAX_BATCH_DEPTH)).is_ok());
    for (levels, code) in [(MAX_BATCH_DEPTH + 1, InvalidType), (100_000, InvalidCbor)] {
        assert_eq!(read(&nested(levels)).unwrap_err().code, code);
    }
}

#[test]
fn large_fields_share_the_frame_and_small_ones_do_not_hold_it() {
    let update = |data: Vec<u8>| {
        let message = ChannelMsg::Update {
            doc_id: "d".into(),
            transmission: Transmission::Update {
                data: data.into(),
                version: VersionVector::new(),
            },
        };
        let payload = Bytes::from(crate::loro::encode(&message).unwrap());
        match decode(&payload).unwrap() {
            ChannelMsg::Update {
                transmission: Transmission::Update { data, .. },
                ..
            } => payload.as_ptr_range().contains(&data.as_ptr()),
            other => panic!("{other:?}"),
        }
    };
    assert!(update(vec![7; SHARED_FROM]));
    assert!(!update(vec![7; SHARED_FROM - 1]));
}
