#![no_main]

use breakbulk_message::ahp::{Chunking, TimeoutFrom};
use breakbulk_message::jsonrpc::{Envelope, Kind};
use breakbulk_message::tunnel::{
    Hello, HelloError, TUNNEL, is_reserved_by_tunnel, is_tunnel_end, tunnel_end,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    match Hello::read(text) {
        Ok(hello) => {
            sound(&hello.chunking);
            assert_eq!(Hello::read(&hello.to_json()), Ok(hello));
            // A general parser finds the method, and no id. What it cannot hold (1e999, deep nesting) is JSON all the same.
            if let Ok(value) = serde_json::from_str::<serde_json::Value>(text) {
                assert_eq!(value["method"], "breakbulk/hello");
                assert!(value.get("id").is_none());
                assert_eq!(value["params"]["version"], 1);
            } else {
                serde_json::from_str::<&serde_json::value::RawValue>(text).expect("JSON");
            }
        }
        Err(HelloError::Version(version)) => assert_ne!(version, 1),
        Err(error) => drop(error.to_string()),
    }
    own_words(text);
});

/// Limits that a sender can keep to.
fn sound(chunking: &Chunking) {
    assert!(chunking.is_sound());
    assert!(chunking.max_frame_bytes <= chunking.max_message_bytes);
    assert!(chunking.groups_to_open() > 0);
    assert_ne!(chunking.group_timeout_ms, Some(0));
    assert!(matches!(
        chunking.timeout_from,
        TimeoutFrom::First | TimeoutFrom::Last
    ));
}

/// A program's message is refused if and only if a tunnel would take it for its own.
fn own_words(text: &str) {
    let end = tunnel_end();
    let envelope = Envelope::parse(&end).expect("our own");
    assert_eq!(envelope.kind(), Some(Kind::Notification));
    assert!(
        envelope
            .method()
            .is_some_and(|method| is_tunnel_end(&method))
    );
    assert!(TUNNEL.is_ascii());
    // As it is written between the quotes of a JSON string.
    let Ok(method) = serde_json::from_str::<String>(&format!("\"{text}\"")) else {
        return;
    };
    let own = method.starts_with("breakbulk/") || method == "ahp/messageSegment";
    assert_eq!(is_reserved_by_tunnel(text), own, "{text:?}");
    if is_tunnel_end(text) {
        assert!(own);
    }
}
