//! loro-extended's control texts: text frames beside the binary messages on a WebSocket.

/// A server sends it when it is ready for messages.
pub const READY: &str = "ready";

/// A client's keepalive.
pub const PING: &str = "ping";

/// The server's answer to a ping.
pub const PONG: &str = "pong";

/// The server's reply to a control text, if any.
pub fn answer(word: &[u8]) -> Option<&'static str> {
    (word == PING.as_bytes()).then_some(PONG)
}
