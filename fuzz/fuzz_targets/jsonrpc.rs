#![no_main]

use breakbulk_message::jsonrpc::{Envelope, integer, is_batch, range_in, string, unsigned};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use serde_json::value::RawValue;

fuzz_target!(|bytes: &[u8]| {
    let _ = is_batch(bytes);
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let envelope = Envelope::parse(text);
    if let Some(envelope) = &envelope {
        let _ = (envelope.kind(), envelope.method());
        if let Some(body) = envelope.body() {
            assert_eq!(&text[range_in(text, body.get())], body.get());
        }
    }
    // Whatever a general parser accepts is accepted and read the same here, where depth has no limit.
    let Ok(value) = serde_json::from_str::<Value>(text) else {
        return;
    };
    assert_eq!(is_batch(bytes), value.is_array());
    assert_eq!(envelope.is_some(), value.is_object());
    let Some(envelope) = envelope else {
        return;
    };
    for (member, ours) in [
        ("jsonrpc", envelope.version),
        ("id", envelope.id),
        ("method", envelope.method),
        ("params", envelope.params),
        ("result", envelope.result),
        ("error", envelope.error),
    ] {
        assert_eq!(ours.is_some(), value.get(member).is_some());
        if let (Some(ours), Some(theirs)) = (ours, value.get(member)) {
            same(ours, theirs);
        }
    }
});

fn same(ours: &RawValue, theirs: &Value) {
    assert_eq!(
        &serde_json::from_str::<Value>(ours.get()).expect("JSON"),
        theirs
    );
    assert_eq!(string(ours).as_deref(), theirs.as_str());
    if let Some(number) = theirs.as_u64() {
        // Only `-0` is written otherwise.
        assert_eq!(unsigned(ours), Some(number));
    }
    if let Some(number) = integer(ours).and_then(|number| i64::try_from(number).ok()) {
        assert!(theirs.as_i64() == Some(number) || ours.get() == "-0");
    }
}
