#![no_main]

use breakbulk_escape::{Escapes, base64, count, escape, portable, unescape};
use libfuzzer_sys::fuzz_target;

// The wide and the portable code agree on any bytes, and with serde_json on any text; base64 decodes to what
// was encoded, and is accepted in no other form.
fuzz_target!(|bytes: &[u8]| {
    both_agree(bytes);
    each_base64_has_one_meaning(bytes);
    if let Ok(text) = std::str::from_utf8(bytes) {
        as_serde_json(text);
    }
});

fn both_agree(bytes: &[u8]) {
    let (mut wide, mut narrow) = (Vec::new(), Vec::new());
    escape(bytes, &mut wide);
    portable::escape(bytes, &mut narrow);
    assert_eq!(wide, narrow);
    let Escapes {
        itself,
        letter,
        unicode,
    } = count(bytes);
    assert_eq!(count(bytes), portable::count(bytes));
    assert_eq!(bytes.len() + itself + letter + 5 * unicode, wide.len());
    for raw in [bytes, &wide] {
        // No spare capacity, and something before the output.
        let mut out = Vec::with_capacity(1 + raw.len());
        out.push(b'!');
        let (mut other, capacity) = (vec![b'!'], out.capacity());
        let outcome = unescape(raw, &mut out);
        assert_eq!(outcome, portable::unescape(raw, &mut other));
        assert_eq!(out.capacity(), capacity);
        if outcome.is_ok() {
            assert_eq!(out, other);
        }
    }
}

fn each_base64_has_one_meaning(bytes: &[u8]) {
    let mut coded = vec![b'!'];
    base64::encode(bytes, &mut coded);
    let mut back = vec![b'!'];
    assert!(base64::decode(&coded[1..], &mut back));
    assert_eq!(&back[1..], bytes);
    back.truncate(1);
    if base64::decode(bytes, &mut back) {
        coded.truncate(1);
        base64::encode(&back[1..], &mut coded);
        assert_eq!(&coded[1..], bytes);
    } else {
        assert_eq!(back, b"!");
    }
}

fn as_serde_json(text: &str) {
    let theirs = serde_json::to_string(text).expect("text");
    let mut ours = Vec::new();
    escape(text.as_bytes(), &mut ours);
    assert_eq!(ours, theirs.as_bytes()[1..theirs.len() - 1]);
    ours.clear();
    let read = unescape(text.as_bytes(), &mut ours);
    match serde_json::from_str::<String>(&format!("\"{text}\"")) {
        Ok(theirs) => {
            assert_eq!(read, Ok(()));
            assert_eq!(ours, theirs.as_bytes());
        }
        Err(error) => assert!(read.is_err(), "{error}"),
    }
}
