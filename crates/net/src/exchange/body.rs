//! The body of a request or of an answer: records one after another, each behind its kind and length.

use breakbulk_link::{Budget, Closed, Frame, Held};
use bytes::{BufMut, Bytes, BytesMut};

/// What a frame takes in a body beside its own bytes: its kind, and its length in four bytes.
pub const FRAME_HEAD: usize = 5;

const TEXT: u8 = b't';
const BINARY: u8 = b'b';
const CLOSE: u8 = b'c';

/// The longest reason of a close, in bytes: as on WebSockets.
const REASON_MAX: usize = 123;

/// A frame, or the close of one side, after which that side sends nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Record {
    Frame(Frame),
    Close(Closed),
}

impl Record {
    /// A close, with a reason of bounded length.
    pub(crate) fn close(code: u16, reason: &str) -> Self {
        let end = reason.floor_char_boundary(REASON_MAX);
        let reason = reason[..end].to_owned();
        Self::Close(Closed { code, reason })
    }

    /// What it takes in a body.
    pub(crate) fn size(&self) -> usize {
        FRAME_HEAD
            + match self {
                Self::Frame(frame) => frame.bytes().len(),
                Self::Close(closed) => 2 + closed.reason.len(),
            }
    }

    /// Appends it to a body. No record is longer than a body, whose length fits in four bytes.
    pub(crate) fn write(&self, body: &mut BytesMut) {
        let length = (self.size() - FRAME_HEAD) as u32;
        body.put_u8(match self {
            Self::Frame(Frame::Text(_)) => TEXT,
            Self::Frame(Frame::Binary(_)) => BINARY,
            Self::Close(_) => CLOSE,
        });
        body.put_u32(length);
        match self {
            Self::Frame(frame) => body.put_slice(frame.bytes()),
            Self::Close(closed) => {
                body.put_u16(closed.code);
                body.put_slice(closed.reason.as_bytes());
            }
        }
    }
}

/// The records of a body that came in, read one by one.
#[derive(Debug)]
pub(crate) struct Records {
    rest: Bytes,
    /// The size of the whole body.
    size: usize,
    /// Whether the body has a single record, which then shares its memory. Others get memory of their
    /// own, so that one that is kept does not keep the whole body.
    alone: bool,
    has_close: bool,
    /// The charge of the body.
    charge: Option<Held>,
}

/// A body that is not made of records.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("byte {at} of the body begins no frame: {what}")]
pub(crate) struct BadBody {
    at: usize,
    what: &'static str,
}

impl Records {
    /// Charges the whole body until its last record is read.
    pub(crate) fn charge_to(&mut self, budget: Option<&Budget>) {
        let size = if self.rest.is_empty() { 0 } else { self.size };
        self.charge = budget.map(|budget| budget.charge_allocated(size));
    }

    /// Checks the whole body: none of its frames is used if one is wrong.
    pub(crate) fn read(body: Bytes) -> Result<Self, BadBody> {
        let (mut at, mut count, mut has_close) = (0, 0usize, false);
        while at < body.len() {
            let wrong = |what| BadBody { at, what };
            let (kind, content) = split(&body[at..]).ok_or_else(|| wrong("it ends too early"))?;
            match kind {
                TEXT | BINARY => {}
                CLOSE if std::str::from_utf8(content.get(2..).unwrap_or(&[0xff])).is_ok() => {}
                CLOSE => return Err(wrong("a close without a code and a text")),
                _ => return Err(wrong("its kind is unknown")),
            }
            has_close |= kind == CLOSE;
            at += FRAME_HEAD + content.len();
            count += 1;
        }
        Ok(Self {
            size: body.len(),
            rest: body,
            alone: count == 1,
            has_close,
            charge: None,
        })
    }

    /// Whether the other side's close is among the records.
    pub(crate) fn has_close(&self) -> bool {
        self.has_close
    }
}

/// The kind and content of the first record.
fn split(bytes: &[u8]) -> Option<(u8, &[u8])> {
    let (&[kind, a, b, c, d], rest) = bytes.split_first_chunk::<FRAME_HEAD>()?;
    let length = u32::from_be_bytes([a, b, c, d]) as usize;
    Some((kind, rest.get(..length)?))
}

impl Iterator for Records {
    type Item = Record;

    fn next(&mut self) -> Option<Record> {
        let (kind, content) = split(&self.rest)?;
        let end = FRAME_HEAD + content.len();
        let bytes = match self.alone {
            true => self.rest.slice(FRAME_HEAD..end),
            false => Bytes::copy_from_slice(content),
        };
        self.rest = self.rest.slice(end..);
        if self.rest.is_empty() {
            // The last frame is charged by whoever takes it.
            self.charge = None;
        }
        Some(match kind {
            TEXT => Record::Frame(Frame::Text(bytes)),
            BINARY => Record::Frame(Frame::Binary(bytes)),
            _ => {
                let (code, reason) = bytes.split_at_checked(2)?;
                Record::Close(Closed {
                    code: u16::from_be_bytes([code[0], code[1]]),
                    reason: String::from_utf8_lossy(reason).into_owned(),
                })
            }
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn records_are_written_and_read_back() {
        let records = [
            Record::Frame(Frame::Text(Bytes::from_static("{\"ä\":1}".as_bytes()))),
            Record::Frame(Frame::Binary(Bytes::from_static(&[0, 255]))),
            Record::Frame(Frame::Text(Bytes::new())),
            Record::close(1009, "too large"),
        ];
        let mut body = BytesMut::new();
        for record in &records {
            let before = body.len();
            record.write(&mut body);
            assert_eq!(body.len() - before, record.size());
        }
        assert_eq!(
            body,
            b"t\0\0\0\x08{\"\xc3\xa4\":1}b\0\0\0\x02\0\xfft\0\0\0\0c\0\0\0\x0b\x03\xf1too large"[..]
        );
        let read: Vec<_> = Records::read(body.freeze()).unwrap().collect();
        assert_eq!(read, records);
    }

    #[test]
    fn a_body_that_is_wrong_anywhere_is_wrong() {
        for (body, expected) in [
            (&b""[..], Ok(0)),
            (b"t\0\0\0\x01at\0\0\0\x01b", Ok(2)),
            (
                b"t\0\0\0\x01at\0\0\0\x02b",
                Err("byte 6 of the body begins no frame: it ends too early"),
            ),
            (
                b"t\0\0\0",
                Err("byte 0 of the body begins no frame: it ends too early"),
            ),
            (
                b"t\xff\xff\xff\xff",
                Err("byte 0 of the body begins no frame: it ends too early"),
            ),
            (
                b"x\0\0\0\0",
                Err("byte 0 of the body begins no frame: its kind is unknown"),
            ),
            (
                b"c\0\0\0\x01\x03",
                Err("byte 0 of the body begins no frame: a close without a code and a text"),
            ),
            (
                b"c\0\0\0\x03\x03\xe8\xff",
                Err("byte 0 of the body begins no frame: a close without a code and a text"),
            ),
            (
                b"<html>",
                Err("byte 0 of the body begins no frame: it ends too early"),
            ),
        ] {
            let read = Records::read(Bytes::from_static(body));
            let read = read.map(Iterator::count).map_err(|error| error.to_string());
            assert_eq!(read, expected.map_err(str::to_owned), "{body:?}");
        }
    }

    #[test]
    fn a_reason_is_cut_where_a_character_ends() {
        let Record::Close(closed) = Record::close(1000, &"ä".repeat(100)) else {
            unreachable!("it is a close");
        };
        assert_eq!(closed.reason, "ä".repeat(61));
    }
}
