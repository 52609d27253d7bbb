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

/// A server sends it when it refuses what a peer sent, where a POST would be answered with an error. The
/// original's clients ignore all text but `ready`.
const REFUSED: &str = "refused";

/// The longest text, as a link takes it.
const TEXT_MAX: usize = 1024;

/// Why a server refused what a peer sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// An HTTP status: 400, 403, 413, 429 or 503.
    pub status: u16,
    /// The document, if it was about one.
    pub doc: Option<String>,
    /// What is wrong.
    pub error: String,
}

impl Refusal {
    /// The text form: the status, the length of the document's name in bytes, the name, the error.
    pub fn to_text(&self) -> String {
        let doc = self.doc.as_deref().unwrap_or_default();
        let mut text = format!(
            "{REFUSED} {} {} {doc} {}",
            self.status,
            doc.len(),
            self.error
        );
        let mut end = text.len().min(TEXT_MAX);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text
    }

    /// Reads such a text; `None` if it is another control text.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(text).ok()?;
        let rest = text.strip_prefix(REFUSED)?.strip_prefix(' ')?;
        let (status, rest) = rest.split_once(' ')?;
        let (len, rest) = rest.split_once(' ')?;
        let (doc, error) = rest.split_at_checked(len.parse().ok()?)?;
        Some(Self {
            status: status.parse().ok()?,
            doc: (!doc.is_empty()).then(|| doc.to_owned()),
            error: error.strip_prefix(' ')?.to_owned(),
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may")]
mod tests {
    use super::*;

    // LORO-32
    #[test]
    fn a_refusal_is_read_as_it_was_written() {
        let long = "é".repeat(2000);
        for (doc, error) in [
            (Some("notes"), "document \"notes\" would be too large"),
            (Some("a b 1 "), ""),
            (None, "a message of 9 bytes"),
            (None, &long),
        ] {
            let refusal = Refusal {
                status: 413,
                doc: doc.map(str::to_owned),
                error: error.to_owned(),
            };
            let text = refusal.to_text();
            assert!(text.len() <= TEXT_MAX);
            let read = Refusal::parse(text.as_bytes()).unwrap();
            assert_eq!((read.status, &read.doc), (413, &refusal.doc), "{text}");
            assert!(error.starts_with(&read.error), "{text}");
            assert_eq!(read.error.len() < error.len(), error == long, "{text}");
        }
        for other in [
            "ready",
            "refused",
            "refused 413 9 short x",
            "refused x 0  ",
            "pong",
        ] {
            assert_eq!(Refusal::parse(other.as_bytes()), None, "{other}");
        }
    }
}
