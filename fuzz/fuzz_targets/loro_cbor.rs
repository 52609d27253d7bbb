#![no_main]

use breakbulk_message::loro::{
    VersionVector, decode, decode_frame, encode, encode_batch_frame, from_json, to_json,
};
use bytes::Bytes;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let bytes = Bytes::copy_from_slice(bytes);
    match decode_frame(bytes.clone()) {
        Ok(messages) => {
            let frame = encode_batch_frame(&messages).expect("it came in a frame");
            assert_eq!(decode_frame(frame), Ok(messages));
        }
        Err(error) => drop(error.to_string()),
    }
    if let Ok(message) = decode(&bytes) {
        let cbor = encode(&message).expect("it came as CBOR");
        assert_eq!(decode(&cbor.into()).as_ref(), Ok(&message));
        // The JSON form does not tell an empty list of stores from none.
        let json = to_json(&message);
        let again = from_json(&json).expect("our own JSON");
        assert_eq!(to_json(&again), json);
    }
    if let Ok(version) = VersionVector::decode(&bytes) {
        assert_eq!(VersionVector::decode(&version.encode()), Ok(version));
    }
});
