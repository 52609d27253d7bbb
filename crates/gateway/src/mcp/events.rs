//! Event streams (Server-Sent Events), read as they come in, within a limit. Does no IO.

use bytes::{Bytes, BytesMut};
use memchr::memchr2;

/// An event, or what is known of one that is too large.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// What a blank line ended.
    Whole {
        /// Its id, if it has one: from here a stream can be resumed.
        id: Option<String>,
        /// Its data; empty if there was none.
        data: Bytes,
    },
    /// Its data is over the limit, and was skipped.
    TooLarge {
        /// Its id.
        id: Option<String>,
        /// The bytes of its data.
        size: u64,
    },
    /// How long to wait before the stream is opened again, in milliseconds.
    Retry(u64),
}

/// The longest line that is no data: an id, a comment.
const LINE: usize = 4 << 10;

/// Reads a stream.
#[derive(Debug)]
pub(super) struct Reader {
    limit: usize,
    /// The line so far, without its name if it is data.
    line: BytesMut,
    state: Line,
    /// The data of the event so far.
    data: BytesMut,
    has_data: bool,
    skipped: u64,
    id: Option<String>,
    /// The last byte was a carriage return, after which a line feed ends no other line.
    after_return: bool,
    is_first: bool,
}

/// Which part of a line is being read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line {
    /// Its name, or a line that is no data.
    Name,
    /// The data after `data:`; true: a space may come that does not count.
    Data(bool),
    /// A line that is too long to mean anything.
    Ignored,
}

impl Reader {
    /// A reader of events whose data has at most `limit` bytes.
    pub(super) fn new(limit: usize) -> Self {
        Self {
            limit,
            line: BytesMut::new(),
            state: Line::Name,
            data: BytesMut::new(),
            has_data: false,
            skipped: 0,
            id: None,
            after_return: false,
            is_first: true,
        }
    }

    /// The bytes that it holds of an event that is not whole.
    pub(super) fn held(&self) -> usize {
        self.data.capacity() + self.line.capacity()
    }

    /// Reads the next bytes; calls `event` with each event that they end.
    pub(super) fn feed(&mut self, mut bytes: &[u8], mut event: impl FnMut(Event)) {
        while !bytes.is_empty() {
            if std::mem::take(&mut self.after_return) && bytes[0] == b'\n' {
                bytes = &bytes[1..];
                continue;
            }
            let end = memchr2(b'\n', b'\r', bytes);
            let (part, rest) = bytes.split_at(end.unwrap_or(bytes.len()));
            self.part(part);
            bytes = match rest.split_first() {
                Some((last, rest)) => {
                    self.after_return = *last == b'\r';
                    self.end_line(&mut event);
                    rest
                }
                None => rest,
            };
        }
    }

    fn part(&mut self, mut part: &[u8]) {
        while !part.is_empty() {
            match self.state {
                Line::Ignored => return,
                Line::Data(true) => {
                    part = part.strip_prefix(b" ").unwrap_or(part);
                    self.state = Line::Data(false);
                }
                Line::Data(false) => return self.more_data(part),
                Line::Name => {
                    // As many bytes as could still be the name of data.
                    let wanted = 5_usize.saturating_sub(self.line.len()).min(part.len());
                    if wanted == 0 {
                        return self.more_line(part);
                    }
                    self.line.extend_from_slice(&part[..wanted]);
                    part = &part[wanted..];
                    if self.is_first && self.line.starts_with(b"\xef\xbb\xbf") {
                        // A byte order mark may begin a stream.
                        let _ = self.line.split_to(3);
                        self.is_first = false;
                    } else if &self.line[..] == b"data:" {
                        self.begin_data();
                    }
                }
            }
        }
    }

    fn begin_data(&mut self) {
        self.line.clear();
        self.state = Line::Data(true);
        if self.has_data {
            self.more_data(b"\n");
        }
        self.has_data = true;
        self.is_first = false;
    }

    fn more_line(&mut self, part: &[u8]) {
        if self.line.len() + part.len() > LINE {
            self.state = Line::Ignored;
            self.line = BytesMut::new();
            return;
        }
        self.line.extend_from_slice(part);
    }

    fn more_data(&mut self, part: &[u8]) {
        let size = self.data.len() + part.len();
        if self.skipped > 0 || size > self.limit {
            self.skipped = self.skipped.max(self.data.len() as u64) + part.len() as u64;
            self.data = BytesMut::new();
            return;
        }
        if self.data.capacity() < size {
            // By a quarter, and never past the limit.
            let wanted = size
                .max(self.data.len() + self.data.len() / 4)
                .min(self.limit);
            self.data.reserve(wanted - self.data.len());
        }
        self.data.extend_from_slice(part);
    }

    fn end_line(&mut self, event: &mut impl FnMut(Event)) {
        let state = std::mem::replace(&mut self.state, Line::Name);
        self.is_first = false;
        if state != Line::Name {
            return;
        }
        let line = std::mem::take(&mut self.line);
        if line.is_empty() {
            return self.end_event(event);
        }
        let text = String::from_utf8_lossy(&line);
        let (name, value) = text.split_once(':').unwrap_or((&text, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match name {
            "data" if self.has_data => self.more_data(b"\n"),
            "data" => self.has_data = true,
            "id" if !value.contains('\0') => self.id = Some(value.to_owned()),
            "retry" => {
                if let Ok(milliseconds) = value.parse() {
                    event(Event::Retry(milliseconds));
                }
            }
            _ => {}
        }
    }

    fn end_event(&mut self, event: &mut impl FnMut(Event)) {
        let (id, data) = (self.id.take(), std::mem::take(&mut self.data));
        let (has_data, skipped) = (
            std::mem::take(&mut self.has_data),
            std::mem::take(&mut self.skipped),
        );
        match (skipped, has_data || id.is_some()) {
            (0, false) => {}
            (0, true) => event(Event::Whole {
                id,
                data: data.freeze(),
            }),
            (size, _) => event(Event::TooLarge { id, size }),
        }
    }
}

/// The first event of a stream that can be resumed: an id, and how long to wait before it is opened again.
pub(super) fn primer(id: &str, retry: u64) -> Bytes {
    format!("id: {id}\nretry: {retry}\ndata: \n\n").into()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use breakbulk_net::sse::EventText;

    use super::*;

    fn read(text: &[u8], limit: usize, step: usize) -> Vec<Event> {
        let mut reader = Reader::new(limit);
        let mut events = Vec::new();
        for chunk in text.chunks(step) {
            reader.feed(chunk, |event| events.push(event));
        }
        events
    }

    fn whole(id: Option<&str>, data: &str) -> Event {
        Event::Whole {
            id: id.map(ToOwned::to_owned),
            data: Bytes::copy_from_slice(data.as_bytes()),
        }
    }

    // MCPH-12
    #[test]
    fn events_are_read_however_they_are_cut_and_written() {
        let long = "x".repeat(LINE + 100);
        for (text, expected) in [
            ("data: {}\n\n".to_owned(), vec![whole(None, "{}")]),
            ("data:{}\r\n\r\n".to_owned(), vec![whole(None, "{}")]),
            (
                "data: a\rdata:  b\r\r".to_owned(),
                vec![whole(None, "a\n b")],
            ),
            ("\u{feff}data: a\n\n".to_owned(), vec![whole(None, "a")]),
            ("id: 7\ndata: \n\n".to_owned(), vec![whole(Some("7"), "")]),
            ("id: 7\n\n".to_owned(), vec![whole(Some("7"), "")]),
            ("data\ndata\n\n".to_owned(), vec![whole(None, "\n")]),
            (
                "event: message\nid:a b\ndata: 1\n\ndata: 2\n\n".to_owned(),
                vec![whole(Some("a b"), "1"), whole(None, "2")],
            ),
            (": comment\n\n:\n\n\n".to_owned(), vec![]),
            (format!(": {long}\ndata: 1\n\n"), vec![whole(None, "1")]),
            (
                "retry: 500\ndata: 1\n\nretry: x\n\n".to_owned(),
                vec![Event::Retry(500), whole(None, "1")],
            ),
            ("data: not ended\n".to_owned(), vec![]),
            (
                "id: 1\ndata: 0123456789\ndata: 01234567890\n\ndata: 2\n\n".to_owned(),
                vec![
                    Event::TooLarge {
                        id: Some("1".to_owned()),
                        size: 22,
                    },
                    whole(None, "2"),
                ],
            ),
        ] {
            for step in [1, 2, 3, 7, 64, 1 << 20] {
                assert_eq!(
                    read(text.as_bytes(), 20, step),
                    expected,
                    "{text:?} by {step}"
                );
            }
        }
    }

    #[test]
    fn what_is_written_is_read_again_byte_for_byte_but_for_line_breaks() {
        for (data, read_again) in [
            ("{\"a\": 1}", "{\"a\": 1}"),
            ("", ""),
            (" {}", " {}"),
            ("{\n}", "{\n}"),
            ("{\r\n}", "{\n\n}"),
        ] {
            let data = Bytes::copy_from_slice(data.as_bytes());
            let chunks: Vec<Bytes> = EventText::new(Some("1-2"), data, 1000).collect();
            let text = chunks.concat();
            assert_eq!(read(&text, 100, 3), [whole(Some("1-2"), read_again)]);
        }
        assert_eq!(
            read(&primer("1-0", 5), 100, 3),
            [Event::Retry(5), whole(Some("1-0"), "")]
        );
    }

    #[test]
    fn no_more_is_held_than_the_limit() {
        let mut reader = Reader::new(1000);
        for _ in 0..100_000 {
            reader.feed(b"data: 0123456789\n", |_| panic!("no event ended"));
            assert!(reader.held() <= 1000 + LINE);
        }
    }
}
