//! The bytes of an event, made as they are sent. A text may be one line break after another, each of which
//! begins another `data:` line: a list of all parts would take many times the memory of the text.

use bytes::{Bytes, BytesMut};
use memchr::memchr2;

/// What begins a line of data, and what ends one and begins another.
const DATA: &[u8] = b"data: ";
const NEXT: &[u8] = b"\ndata: ";

/// What ends an event.
const END: &[u8] = b"\n\n";

/// A line that is at least this long is sent from the memory of the text; shorter ones are copied together.
const LONG: usize = 4 << 10;

/// The chunks of one event. A line break in the text (white space, in JSON) begins another line of data.
#[derive(Debug)]
pub struct EventText {
    /// What is sent before more of the text.
    head: Bytes,
    text: Bytes,
    is_ended: bool,
    /// The most bytes of a chunk, but for the name of a line.
    most: usize,
}

impl EventText {
    /// An event with this id, if it has one, in chunks of about `most` bytes.
    pub fn new(id: Option<&str>, text: Bytes, most: usize) -> Self {
        let head = match id {
            Some(id) => [b"id: ", id.as_bytes(), b"\n", DATA].concat().into(),
            None => Bytes::from_static(DATA),
        };
        Self {
            head,
            text,
            is_ended: false,
            most: most.max(1),
        }
    }

    /// Lines of the text from its beginning on, copied together until one is long.
    fn short_lines(&mut self) -> Bytes {
        let mut chunk = BytesMut::new();
        while chunk.len() < self.most && !self.text.is_empty() {
            let window = &self.text[..self.text.len().min(LONG)];
            let Some(at) = memchr2(b'\n', b'\r', window) else {
                break;
            };
            chunk.extend_from_slice(&self.text[..at]);
            chunk.extend_from_slice(NEXT);
            self.text = self.text.slice(at + 1..);
        }
        chunk.freeze()
    }
}

impl Iterator for EventText {
    type Item = Bytes;

    /// The next chunk, which is never empty.
    fn next(&mut self) -> Option<Bytes> {
        if !self.head.is_empty() {
            return Some(std::mem::take(&mut self.head));
        }
        if self.text.is_empty() {
            let is_last = !std::mem::replace(&mut self.is_ended, true);
            return is_last.then(|| Bytes::from_static(END));
        }
        let short = self.short_lines();
        if !short.is_empty() {
            return Some(short);
        }
        // The text begins with a long line, or with its last one.
        let window = &self.text[..self.text.len().min(self.most.max(LONG))];
        let line = memchr2(b'\n', b'\r', window).unwrap_or(window.len());
        Some(self.text.split_to(line))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_line_of_data_for_each_line_of_text() {
        let long = "x".repeat(LONG + 7);
        for (text, expected) in [
            ("{}", "data: {}\n\n".to_owned()),
            ("", "data: \n\n".to_owned()),
            ("{\n}", "data: {\ndata: }\n\n".to_owned()),
            ("\r\n", "data: \ndata: \ndata: \n\n".to_owned()),
            (
                &format!("{long}\n{long}{long}\r1"),
                format!("data: {long}\ndata: {long}{long}\ndata: 1\n\n"),
            ),
            (&format!("\n{long}"), format!("data: \ndata: {long}\n\n")),
        ] {
            for most in [1, 1000, 32 << 10] {
                let text = Bytes::copy_from_slice(text.as_bytes());
                let chunks: Vec<Bytes> = EventText::new(None, text, most).collect();
                assert!(chunks.iter().all(|chunk| !chunk.is_empty()));
                let most = most.max(LONG) + NEXT.len();
                assert!(chunks.iter().all(|chunk| chunk.len() <= most + LONG));
                assert_eq!(chunks.concat(), expected.as_bytes(), "{most}");
            }
        }
        let chunks: Vec<Bytes> = EventText::new(Some("1-2"), "{}".into(), 10).collect();
        assert_eq!(chunks.concat(), b"id: 1-2\ndata: {}\n\n");
    }

    /// 32 MiB of line breaks were a list of 64 million parts, of 32 bytes each.
    #[test]
    fn line_breaks_without_end_take_no_memory_before_they_are_sent() {
        const MOST: usize = 32 << 10;
        let size = 1 << 20;
        let text = Bytes::from(vec![b'\n'; size]);
        let (mut sent, mut chunks) = (0, 0);
        for chunk in EventText::new(None, text, MOST) {
            assert!(chunk.len() <= MOST + NEXT.len());
            (sent, chunks) = (sent + chunk.len(), chunks + 1);
        }
        assert_eq!(sent, DATA.len() + size * NEXT.len() + END.len());
        assert!(chunks <= sent / MOST + 3, "{chunks}");
    }
}
