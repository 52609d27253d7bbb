//! Reads the frames of a capture. Frames that are too long or cut off are reported and skipped.

use std::io::{self, BufRead, BufReader, Read};

use breakbulk::link::Frame;
use breakbulk::message::vscode::ipc;

use super::format::Framing;
use crate::frames::Opened;

/// Reads frames of at most `limit` bytes.
pub(crate) struct Capture {
    reader: BufReader<Box<dyn Read>>,
    framing: Framing,
    limit: usize,
    /// Bytes read so far, framing included.
    pub(crate) bytes: u64,
}

/// What comes next in a capture.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Item {
    /// A frame.
    Frame(Frame),
    /// A frame of an ipc.net stream.
    Ipc(ipc::Frame),
    /// A frame of this many bytes, over the limit. It was skipped.
    TooLong(u64),
    /// The capture ends inside a frame.
    Cut {
        /// What is incomplete.
        what: &'static str,
        /// Its size in bytes.
        want: u64,
        /// The bytes that are there.
        have: u64,
    },
}

impl Capture {
    /// The frames of an input, from its beginning.
    pub(crate) fn new(opened: Opened, framing: Framing, limit: usize) -> Self {
        Self {
            reader: opened.reader(),
            framing,
            limit,
            bytes: 0,
        }
    }

    /// The next frame; `None` at the end.
    pub(crate) fn next(&mut self) -> io::Result<Option<Item>> {
        match self.framing {
            Framing::Lines => self.next_line(),
            Framing::Prefixed => self.next_prefixed(),
            Framing::Ipc => self.next_ipc(),
        }
    }

    fn next_line(&mut self) -> io::Result<Option<Item>> {
        let mut line = Vec::new();
        let most = self.limit.saturating_add(1) as u64;
        let read = (&mut self.reader).take(most).read_until(b'\n', &mut line)? as u64;
        self.bytes += read;
        if read == 0 {
            return Ok(None);
        }
        if line.last() == Some(&b'\n') {
            line.pop();
        } else if line.len() > self.limit {
            let skipped = self.skip_line()?;
            return Ok(Some(Item::TooLong(read + skipped)));
        }
        Ok(Some(Item::Frame(Frame::Text(line.into()))))
    }

    /// Skips the rest of a line; returns its length without the line break.
    fn skip_line(&mut self) -> io::Result<u64> {
        let mut skipped = 0;
        loop {
            let buffer = self.reader.fill_buf()?;
            let end = buffer.iter().position(|&byte| byte == b'\n');
            let (used, len) = match end {
                Some(end) => (end + 1, end),
                None => (buffer.len(), buffer.len()),
            };
            self.reader.consume(used);
            self.bytes += used as u64;
            skipped += len as u64;
            if end.is_some() || used == 0 {
                return Ok(skipped);
            }
        }
    }

    fn next_prefixed(&mut self) -> io::Result<Option<Item>> {
        let prefix = self.up_to(4)?;
        let Ok(length) = <[u8; 4]>::try_from(prefix.as_slice()) else {
            return Ok(cut("a length prefix", 4, prefix.len() as u64));
        };
        let length = u32::from_be_bytes(length);
        Ok(match self.payload(length)? {
            Ok(payload) => Some(Item::Frame(Frame::Binary(payload.into()))),
            Err(item) => Some(item),
        })
    }

    fn next_ipc(&mut self) -> io::Result<Option<Item>> {
        let header = self.up_to(ipc::Header::LEN)?;
        let Ok(header) = <&[u8; ipc::Header::LEN]>::try_from(header.as_slice()) else {
            let want = ipc::Header::LEN as u64;
            return Ok(cut("a header", want, header.len() as u64));
        };
        let header = ipc::Header::read(header);
        Ok(match self.payload(header.len)? {
            Ok(payload) => Some(Item::Ipc(ipc::Frame {
                frame_type: header.frame_type,
                id: header.id,
                ack: header.ack,
                payload: payload.into(),
            })),
            Err(item) => Some(item),
        })
    }

    /// Reads a frame's bytes; memory grows with what is there, not with the declared length.
    fn payload(&mut self, length: u32) -> io::Result<Result<Vec<u8>, Item>> {
        let want = u64::from(length);
        let have;
        if want > self.limit as u64 {
            have = io::copy(&mut (&mut self.reader).take(want), &mut io::sink())?;
            self.bytes += have;
            if have == want {
                return Ok(Err(Item::TooLong(want)));
            }
        } else {
            let payload = self.up_to(length as usize)?;
            have = payload.len() as u64;
            if have == want {
                return Ok(Ok(payload));
            }
        }
        Ok(Err(Item::Cut {
            what: "a frame",
            want,
            have,
        }))
    }

    fn up_to(&mut self, length: usize) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        (&mut self.reader)
            .take(length as u64)
            .read_to_end(&mut bytes)?;
        self.bytes += bytes.len() as u64;
        Ok(bytes)
    }
}

/// The end of the capture inside something; `None` at a regular end.
fn cut(what: &'static str, want: u64, have: u64) -> Option<Item> {
    (have > 0).then_some(Item::Cut { what, want, have })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(input: &'static [u8], framing: Framing, limit: usize) -> Vec<Item> {
        let opened = Opened {
            rest: Box::new(&input[input.len() / 2..]),
            name: String::new(),
            length: None,
            prefix: input[..input.len() / 2].to_vec(),
            whole: false,
        };
        let mut capture = Capture::new(opened, framing, limit);
        let items = std::iter::from_fn(|| capture.next().unwrap()).collect();
        assert_eq!(capture.bytes, input.len() as u64);
        items
    }

    fn text(text: &'static str) -> Item {
        Item::Frame(Frame::Text(text.into()))
    }

    fn binary(bytes: &'static [u8]) -> Item {
        Item::Frame(Frame::Binary(bytes.into()))
    }

    #[test]
    fn what_is_too_long_is_passed_over_and_what_is_cut_is_told() {
        let cut = |what, want, have| Item::Cut { what, want, have };
        let table: &[(&[u8], Framing, Vec<Item>)] = &[
            (b"", Framing::Lines, vec![]),
            (
                b"ab\n\nabcde\nabcd",
                Framing::Lines,
                vec![text("ab"), text(""), Item::TooLong(5), text("abcd")],
            ),
            (b"abcdef", Framing::Lines, vec![Item::TooLong(6)]),
            (b"", Framing::Prefixed, vec![]),
            (
                b"\0\0\0\x02ab\0\0\0\0\0\0\0\x05abcde\0\0\0\x01c",
                Framing::Prefixed,
                vec![binary(b"ab"), binary(b""), Item::TooLong(5), binary(b"c")],
            ),
            (
                b"\0\0",
                Framing::Prefixed,
                vec![cut("a length prefix", 4, 2)],
            ),
            (
                b"\0\0\0\x02a",
                Framing::Prefixed,
                vec![cut("a frame", 2, 1)],
            ),
            (
                b"\xff\xff\xff\xffabcdefgh",
                Framing::Prefixed,
                vec![cut("a frame", 0xffff_ffff, 8)],
            ),
            (
                b"\x01\0\0\0\x07\0\0\0\x08\0\0\0\x01a\x09\0\0",
                Framing::Ipc,
                vec![
                    Item::Ipc(ipc::Frame {
                        frame_type: ipc::FrameType::Regular,
                        id: 7,
                        ack: 8,
                        payload: "a".into(),
                    }),
                    cut("a header", 13, 3),
                ],
            ),
        ];
        for (input, framing, expected) in table {
            assert_eq!(read(input, *framing, 4), *expected, "{input:?}");
        }
    }
}
