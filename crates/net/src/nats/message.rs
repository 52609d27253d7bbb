//! What a message of a session contains: its kind, its number and its content.

use breakbulk_link::{Closed, Frame};
use bytes::{Buf, BufMut, Bytes, BytesMut};

/// What a message has before the bytes of its frame: a kind and a number.
pub const MESSAGE_HEAD: usize = 9;

const TEXT: u8 = b't';
const BINARY: u8 = b'b';
const CLOSE: u8 = b'c';
const HERE: u8 = b'h';

/// The longest reason of a close, in bytes: as on WebSockets.
const REASON_MAX: usize = 123;

/// A message of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// The frame of this number; the first one is 1.
    Frame(u64, Frame),
    /// The sending side's close, with the number of the next frame.
    Close(u64, Closed),
    /// A heartbeat.
    Here {
        /// The number of the sending side's last frame.
        sent: u64,
        /// How much it has taken of the other side's frames, as [`cost`] counts it.
        taken: u64,
    },
}

impl Message {
    pub(super) fn close(number: u64, code: u16, reason: &str) -> Self {
        let end = reason.floor_char_boundary(REASON_MAX);
        let reason = reason[..end].to_owned();
        Self::Close(number, Closed { code, reason })
    }

    pub(super) fn write(&self) -> Bytes {
        let mut bytes = BytesMut::with_capacity(self.size());
        let (kind, number) = match self {
            Self::Frame(number, Frame::Text(_)) => (TEXT, *number),
            Self::Frame(number, Frame::Binary(_)) => (BINARY, *number),
            Self::Close(number, _) => (CLOSE, *number),
            Self::Here { sent, .. } => (HERE, *sent),
        };
        bytes.put_u8(kind);
        bytes.put_u64(number);
        match self {
            Self::Frame(_, frame) => bytes.put_slice(frame.bytes()),
            Self::Close(_, closed) => {
                bytes.put_u16(closed.code);
                bytes.put_slice(closed.reason.as_bytes());
            }
            Self::Here { taken, .. } => bytes.put_u64(*taken),
        }
        bytes.freeze()
    }

    /// `None` if it is no message of a session. A frame gets memory of its own: the bytes are a slice of a
    /// buffer of the client library, and would keep all of it alive.
    pub(super) fn read(mut bytes: Bytes) -> Option<Self> {
        let kind = bytes.try_get_u8().ok()?;
        let number = bytes.try_get_u64().ok()?;
        Some(match kind {
            TEXT => Self::Frame(number, Frame::Text(Bytes::copy_from_slice(&bytes))),
            BINARY => Self::Frame(number, Frame::Binary(Bytes::copy_from_slice(&bytes))),
            CLOSE => {
                let code = bytes.try_get_u16().ok()?;
                let reason = String::from_utf8(bytes.into()).ok()?;
                Self::Close(number, Closed { code, reason })
            }
            HERE if bytes.len() == 8 => Self::Here {
                sent: number,
                taken: bytes.get_u64(),
            },
            _ => return None,
        })
    }

    fn size(&self) -> usize {
        MESSAGE_HEAD
            + match self {
                Self::Frame(_, frame) => frame.bytes().len(),
                Self::Close(_, closed) => 2 + closed.reason.len(),
                Self::Here { .. } => 8,
            }
    }
}

/// What a frame counts in a window.
pub(super) fn cost(frame: &Frame) -> u64 {
    frame.bytes().len() as u64 + super::MESSAGE_COST
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_written_and_read_back() {
        let text = Bytes::from_static(b"{}");
        for (message, expected) in [
            (
                Message::Frame(1, Frame::Text(text.clone())),
                &b"t\0\0\0\0\0\0\0\x01{}"[..],
            ),
            (
                Message::Frame(258, Frame::Binary(text)),
                b"b\0\0\0\0\0\0\x01\x02{}",
            ),
            (
                Message::close(3, 1000, "done"),
                b"c\0\0\0\0\0\0\0\x03\x03\xe8done",
            ),
            (
                Message::Here {
                    sent: 2,
                    taken: 255,
                },
                b"h\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\xff",
            ),
        ] {
            let bytes = message.write();
            assert_eq!(bytes, expected);
            assert_eq!(Message::read(bytes), Some(message));
        }
    }

    #[test]
    fn what_is_no_message_is_none() {
        for bytes in [
            &b""[..],
            b"t\0\0\0\0\0\0\0",
            b"x\0\0\0\0\0\0\0\x01",
            b"c\0\0\0\0\0\0\0\x01\x03",
            b"c\0\0\0\0\0\0\0\x01\x03\xe8\xff",
            b"h\0\0\0\0\0\0\0\x01\0\0\0\0",
        ] {
            assert_eq!(Message::read(Bytes::from_static(bytes)), None, "{bytes:?}");
        }
    }
}
