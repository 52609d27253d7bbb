#![no_main]

use breakbulk_message::jsonrpc::Envelope;
use breakbulk_message::mcp::{
    Progress, ProgressToken, cvm, progress_token, replace_progress_token, with_progress_token,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Some(envelope) = Envelope::parse(text) else {
        return;
    };
    let old = progress_token(&envelope);
    let new = ProgressToken::Text("new \"".into());
    let token_of = |text: &str| {
        let envelope = Envelope::parse(text).expect("still a message");
        progress_token(&envelope).map(ProgressToken::into_owned)
    };
    if let Some(edited) = with_progress_token(text, &new) {
        assert_eq!(old, None, "a token is never overwritten unasked");
        assert_eq!(token_of(&edited).as_ref(), Some(&new));
    }
    let replaced = replace_progress_token(text, &new);
    assert_eq!(replaced.is_some(), old.is_some());
    if let Some((edited, was)) = replaced {
        assert_eq!(token_of(&edited).as_ref(), Some(&new));
        // And back again, as a gateway does on the way up.
        let (back, _) = replace_progress_token(&edited, &was).expect("it has one");
        assert_eq!(token_of(&back), old.map(ProgressToken::into_owned));
    }
    if let Some(params) = envelope.params {
        let _ = cvm(params);
        if let Some(progress) = Progress::read(params) {
            let notification = progress.notification();
            let again = Envelope::parse(&notification).and_then(|envelope| envelope.params);
            assert_eq!(again.and_then(Progress::read), Some(progress));
        }
    }
});
