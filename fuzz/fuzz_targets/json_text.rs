#![no_main]

use breakbulk_wire::json_text::{Growth, escape, escape_ascii, unescape};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(text) = std::str::from_utf8(bytes) {
        writes_as_serde_does(text);
        reads_as_serde_does(text);
    }
    // Neither JSON nor text: it only must not panic.
    let mut any = Vec::new();
    escape(bytes, &mut any);
    drop(unescape(bytes, &mut Vec::new()));
});

fn writes_as_serde_does(text: &str) {
    let (mut once, mut twice) = (vec![], vec![]);
    escape(text.as_bytes(), &mut once);
    escape(&once, &mut twice);
    let (mut ascii, mut ascii_twice) = (vec![], vec![]);
    escape_ascii(text, &mut ascii);
    escape(&ascii, &mut ascii_twice);
    let theirs = serde_json::to_string(text).expect("text");
    assert_eq!(once, theirs.as_bytes()[1..theirs.len() - 1]);
    assert!(ascii.is_ascii());
    for written in [&once, &ascii] {
        let mut back = vec![];
        unescape(written, &mut back).expect("what we wrote");
        assert_eq!(back, text.as_bytes());
    }
    for (growth, written) in [
        (Growth::Once, once),
        (Growth::Twice, twice),
        (Growth::Ascii, ascii),
        (Growth::AsciiTwice, ascii_twice),
    ] {
        assert_eq!(growth.len(text.as_bytes()), written.len(), "{growth:?}");
        let room = written.len() / 2;
        let end = growth.fit(text.as_bytes(), 0, room);
        assert!(growth.len(&text.as_bytes()[..end]) <= room, "{growth:?}");
        if let Some(next) = text[end..].chars().next() {
            let longer = &text[..end + next.len_utf8()];
            assert!(growth.len(longer.as_bytes()) > room, "{growth:?}");
        }
    }
}

fn reads_as_serde_does(raw: &str) {
    let mut ours = vec![];
    let read = unescape(raw.as_bytes(), &mut ours);
    match serde_json::from_str::<String>(&format!("\"{raw}\"")) {
        Ok(theirs) => {
            assert_eq!(read, Ok(()));
            assert_eq!(ours, theirs.as_bytes());
        }
        Err(error) => assert!(read.is_err(), "{error}"),
    }
}
