#![no_main]

use breakbulk_message::loro::{decode, encode, from_json, to_json};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok(message) = from_json(text) else {
        return;
    };
    let json = to_json(&message);
    let again = from_json(&json).expect("our own JSON");
    assert_eq!(to_json(&again), json);
    let cbor = encode(&message).expect("a message within bounds");
    assert_eq!(decode(&cbor.into()), Ok(message));
});
