#![no_main]

use breakbulk_message::jsonrpc::{Envelope, Kind};
use breakbulk_message::tunnel::{
    Control, ControlError, TUNNEL, is_reserved_by_tunnel, is_tunnel_end, tunnel_end,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    match Control::read(text.as_bytes()) {
        Ok(control) => {
            if let Control::Hello(hello) = &control {
                assert!(hello.chunking().is_sound());
            }
            let written = control.to_json();
            assert!(Control::is_control(written.as_bytes()));
            assert_eq!(Control::read(written.as_bytes()), Ok(control));
            // If a general parser can hold the text (not 1e999, deep nesting), it finds a method and no id.
            if let Ok(value) = serde_json::from_str::<serde_json::Value>(text) {
                let method = value["method"].as_str().expect("a method");
                assert!(method.starts_with("breakbulk/"), "{method}");
                assert!(value.get("id").is_none());
            } else {
                serde_json::from_str::<&serde_json::value::RawValue>(text).expect("JSON");
            }
        }
        Err(ControlError::Version(version)) => assert_ne!(version, 2),
        Err(error) => drop(error.to_string()),
    }
    own_words(text);
});

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
    // The text as it is written between the quotes of a JSON string.
    let Ok(method) = serde_json::from_str::<String>(&format!("\"{text}\"")) else {
        return;
    };
    let own = method.starts_with("breakbulk/") || method == "ahp/messageSegment";
    assert_eq!(is_reserved_by_tunnel(text), own, "{text:?}");
    if is_tunnel_end(text) {
        assert!(own);
    }
}
