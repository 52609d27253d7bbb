//! The words that travel beside messages on a WebSocket, as text frames.

/// A server says it once messages may come.
pub const READY: &str = "ready";

/// A client asks for a sign of life with it.
pub const PING: &str = "ping";

/// The server's answer to a ping.
pub const PONG: &str = "pong";

/// What a server answers to a client's word, if anything.
pub fn answer(word: &[u8]) -> Option<&'static str> {
    (word == PING.as_bytes()).then_some(PONG)
}
