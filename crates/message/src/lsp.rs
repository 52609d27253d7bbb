//! The Language Server Protocol, as far as a gateway between two machines has to know it.

use crate::jsonrpc::{Envelope, Kind, member};
use crate::splice::replace;

/// The method of the first request.
pub const INITIALIZE: &str = "initialize";

/// Sets the `processId` of an `initialize` request to `null`: it names a process of the client's machine,
/// and a server on another machine that looks for that process does not find it and exits. `None` for any
/// other message, and if there is no number to replace.
pub fn without_process_id(text: &str) -> Option<String> {
    let envelope = Envelope::parse(text)?;
    if envelope.kind()? != Kind::Request || envelope.method()? != INITIALIZE {
        return None;
    }
    let process = member(envelope.params?.get(), "processId")?.get();
    let is_number = process.starts_with(['-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9']);
    is_number.then(|| replace(text, process, "null"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_number_changes() {
        for (text, expected) in [
            (
                r#"{"jsonrpc":"2.0","id":0, "method":"initialize","params":{"rootUri":"é","processId" : 4711 ,"capabilities":{}}}"#,
                Some(
                    r#"{"jsonrpc":"2.0","id":0, "method":"initialize","params":{"rootUri":"é","processId" : null ,"capabilities":{}}}"#,
                ),
            ),
            (
                r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"processId":null}}"#,
                None,
            ),
            (
                r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"processId":"4711"}}"#,
                None,
            ),
            (
                r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"a":{"processId":1}}}"#,
                None,
            ),
            (r#"{"jsonrpc":"2.0","id":0,"method":"initialize"}"#, None),
            (
                r#"{"jsonrpc":"2.0","method":"initialize","params":{"processId":1}}"#,
                None,
            ),
            (
                r#"{"jsonrpc":"2.0","id":0,"method":"other","params":{"processId":1}}"#,
                None,
            ),
            ("[]", None),
        ] {
            assert_eq!(without_process_id(text).as_deref(), expected, "{text}");
        }
    }
}
