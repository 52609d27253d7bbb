#![no_main]

use breakbulk_message::ahp::{
    Action, Chunking, Elements, InitializeParams, InitializeResult, MessageTooLarge,
    ReconnectParams, ReconnectResult, Snapshot, Strings, with_chunking, with_chunking_in_result,
    with_last_seen, without_applied,
};
use breakbulk_message::jsonrpc::Envelope;
use libfuzzer_sys::fuzz_target;
use serde_json::value::RawValue;

fuzz_target!(|text: &str| {
    let Some(envelope) = Envelope::parse(text) else {
        return;
    };
    for raw in [envelope.params, envelope.result, envelope.error] {
        raw.into_iter().for_each(read);
    }
    edit(text);
});

fn raw(json: &str) -> &RawValue {
    serde_json::from_str(json).expect("our own JSON")
}

/// Every reader accepts anything without a panic, and what is written again has the same meaning.
fn read(value: &RawValue) {
    let _ = InitializeParams::read(value).map(|params| params.chunking());
    let _ = InitializeResult::read(value).map(|result| result.snapshots.for_each(snapshot));
    let _ = ReconnectParams::read(value).map(|params| params.subscriptions.count());
    match ReconnectResult::read(value) {
        Ok(ReconnectResult::Replay { actions, missing }) => {
            actions.for_each(action);
            assert!(missing.count() <= value.get().len());
        }
        Ok(ReconnectResult::Snapshot { snapshots }) => snapshots.for_each(snapshot),
        Err(_) => {}
    }
    action(value);
    snapshot(value);
    if let Some(chunking) = Chunking::read(value) {
        assert_eq!(Chunking::read(raw(&chunking.to_json())), Some(chunking));
    }
    if let Some(error) = MessageTooLarge::read(value) {
        let response = error.response(raw("1"), -32011);
        let again = Envelope::parse(&response).and_then(|response| response.error);
        assert_eq!(again.and_then(MessageTooLarge::read), Some(error));
    }
    if let Some(elements) = Elements::of(value) {
        // A general parser limits depth and numbers; this one does not.
        if let Ok(values) = serde_json::from_str::<Vec<serde_json::Value>>(value.get()) {
            assert_eq!(elements.count(), values.len());
            let texts = values.iter().all(serde_json::Value::is_string);
            assert_eq!(Strings::of(value).is_some(), texts);
        }
    }
}

fn action(value: &RawValue) {
    if let Ok(action) = Action::read(value) {
        let json = action.to_json();
        let again = Action::read(raw(&json)).expect("our own action");
        assert_eq!(again.to_json(), json);
    }
}

fn snapshot(value: &RawValue) {
    if let Ok(snapshot) = Snapshot::read(value) {
        let json = snapshot.to_json();
        let again = Snapshot::read(raw(&json)).expect("our own snapshot");
        assert_eq!(again.to_json(), json);
    }
}

/// An edited message is valid, contains what was put in, and does not change when edited again.
fn edit(text: &str) {
    let chunking = Chunking::default();
    if let Some(edited) = with_chunking(text, &chunking) {
        let params = Envelope::parse(&edited).and_then(|edited| edited.params);
        let params = params.expect("a request with params");
        if let Ok(params) = InitializeParams::read(params) {
            assert_eq!(params.chunking(), Some(chunking));
        }
        assert_eq!(with_chunking(&edited, &chunking), Some(edited));
    }
    if let Some(edited) = with_chunking_in_result(text, &chunking) {
        assert_eq!(with_chunking_in_result(&edited, &chunking), Some(edited));
    }
    if let Some(edited) = with_last_seen(text, -7) {
        let params = Envelope::parse(&edited).and_then(|edited| edited.params);
        if let Ok(params) = ReconnectParams::read(params.expect("a request with params")) {
            assert_eq!(params.last_seen_server_seq, -7);
        }
    }
    for keep_odd in [false, true] {
        let mut number = 0;
        let edited = without_applied(text, |_| {
            number += 1;
            !keep_odd || number % 2 == 0
        });
        if let Some(edited) = edited {
            let envelope = Envelope::parse(&edited).expect("still a message");
            assert!(envelope.result.is_some());
        }
    }
}
