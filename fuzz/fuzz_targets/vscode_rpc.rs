#![no_main]

use breakbulk_message::vscode::{
    Args, Body, Limits, Passed, Reply, RpcMessage, StockTransformer, Thrown, decode, encode,
    encoded_len,
};
use bytes::Bytes;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let message = match decode(Bytes::copy_from_slice(bytes), &Limits::default()) {
        Ok(message) => message,
        Err(error) => return drop(error.to_string()),
    };
    let mut written = Vec::new();
    encode(&message, &mut written).expect("it came in a message");
    assert_eq!(Ok(written.len()), encoded_len(&message));
    // The original ignores bytes after the end; nothing else can differ.
    assert!(bytes.starts_with(&written));
    assert_eq!(
        decode(written.into(), &Limits::default()).as_ref(),
        Ok(&message)
    );
    values(&message);
});

/// The values of JSON and buffers survive being written again. They are compared after the second write:
/// some of JavaScript's numbers (NaN, -0, 1e999) change when they are written.
fn values(message: &RpcMessage) {
    let uris = StockTransformer {
        authority: "h".into(),
    };
    match &message.body {
        Body::Request(request) => {
            drop(request.args.read(Some(&uris)));
            let Ok(values) = request.args.read(None) else {
                return;
            };
            if let Ok(once) = Args::write(values, None) {
                let again = once.read(None).expect("what we wrote");
                assert_eq!(Args::write(again, None), Ok(once));
            }
        }
        Body::Reply(reply) => {
            drop(reply.read(Some(&uris)));
            if let Ok(outcome) = reply.read(None) {
                replied(outcome);
            }
        }
        Body::Acknowledged | Body::Cancel => {}
    }
}

fn replied(outcome: Result<Passed, Thrown>) {
    let write = |outcome: Result<Passed, Thrown>| match outcome {
        Ok(passed) => Reply::write_ok(passed, None),
        Err(thrown) => Reply::write_err(&thrown),
    };
    if let Ok(once) = write(outcome) {
        let again = once.read(None).expect("what we wrote");
        // A thrown infinity is written as `null`, and a thrown `null` is not written at all.
        if once != Reply::ErrError("null".into()) {
            assert_eq!(write(again), Ok(once));
        }
    }
}
