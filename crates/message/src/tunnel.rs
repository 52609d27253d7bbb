//! The messages that two breakbulk gateways send each other.
//!
//! A tunnel carries the messages of programs that negotiate no frame sizes themselves (MCP, LSP). These
//! messages are not edited, so each gateway first sends its limits in a [`Hello`]. The frames of the tunnel's
//! session share one connection with the [`Control`] frames that manage it: a text frame that begins with
//! [`CONTROL`] is a control frame, and every other frame belongs to the session. [`tunnel_end`] is a message
//! of the session: the end of one side's input.

mod control;

pub use control::{
    CONTROL, Control, ControlError, Gone, Hello, Label, Received, SESSION_BYTES, SessionId,
    part_bytes, part_room,
};

/// The WebSocket subprotocol by which two gateways agree on a tunnel.
pub const TUNNEL: &str = "breakbulk.v2";

/// The method of the last message of a side: no more follow it, while others may still go the other way.
const END: &str = "breakbulk/end";

/// The method of a segment; a tunnel cannot carry a segment inside segments.
const SEGMENT: &str = "ahp/messageSegment";

/// The message that announces the end of this direction.
pub fn tunnel_end() -> String {
    format!(r#"{{"jsonrpc":"2.0","method":"{END}"}}"#)
}

/// Whether a method, as written in the message, is that of [`tunnel_end`].
pub fn is_tunnel_end(method: &str) -> bool {
    method == END
}

/// Whether a program's message with this method (as written, without its quotes) would be mistaken
/// for one of the tunnel's own.
pub fn is_reserved_by_tunnel(method: &str) -> bool {
    let own = |method: &str| method.starts_with("breakbulk/") || method == SEGMENT;
    if memchr::memchr(b'\\', method.as_bytes()).is_none() {
        return own(method);
    }
    let unescaped: Result<String, _> = serde_json::from_str(&format!("\"{method}\""));
    unescaped.is_ok_and(|method| own(&method))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_one_sides_input() {
        assert_eq!(
            tunnel_end(),
            r#"{"jsonrpc":"2.0","method":"breakbulk/end"}"#
        );
        assert!(is_tunnel_end("breakbulk/end"));
    }

    #[test]
    fn methods_that_belong_to_the_tunnel() {
        for (method, own) in [
            ("initialize", false),
            ("ahp/other", false),
            ("ahp/messageSegment", true),
            ("breakbulk/hello", true),
            ("breakbulk/end", true),
            ("breakbulk/later", true),
            (r"ahp\/messageSegment", true),
            (r"\u0061hp/messageSegment", true),
            (r"textDocument\/didOpen", false),
        ] {
            assert_eq!(is_reserved_by_tunnel(method), own, "{method}");
        }
    }
}
