//! WebSocket frames as they come in. Nothing is kept that was not received, and nothing of it is
//! shared: a message lies in memory of its own length.

use std::io::{self, Cursor};
use std::pin::pin;
use std::task::{Context, Poll};

use breakbulk_link::{Closed, Frame};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio_tungstenite::tungstenite::protocol::frame::FrameHeader;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Control, Data, OpCode};

use super::mask::mask;

/// What is read ahead, for heads and small frames; all that an idle connection keeps.
const AHEAD: usize = 8 << 10;

/// A large frame's memory grows with what has come of it, from this.
const STEP: usize = 256 << 10;

/// So much of a message that is not yet whole is a sign of life: on a slow path a large frame takes
/// longer than any silence may.
pub(crate) const SIGN: usize = 16 << 10;

/// The longest payload of a control frame.
const CONTROL_MAX: u64 = 125;

/// What came in.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Word {
    Message(Frame),
    Ping(Bytes),
    Pong,
    /// A message goes on.
    Progress,
    /// With the payload, to be sent back.
    Close(Closed, Bytes),
}

/// Why nothing more comes in.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The stream ended or failed.
    Gone(io::Error),
    /// The other end broke a rule.
    Broken(Closed),
}

fn broken(code: u16, reason: impl Into<String>) -> Stop {
    Stop::Broken(Closed {
        code,
        reason: reason.into(),
    })
}

#[derive(Debug)]
pub(crate) struct Reader {
    /// A server takes masked frames alone, a client only the others.
    server: bool,
    /// Bytes of a message.
    limit: usize,
    ahead: BytesMut,
    /// The frame under way.
    frame: Option<Incomplete>,
    /// The message under way, of one frame or more.
    message: Option<(Data, Vec<u8>)>,
    /// The payload of a control frame, which may come between two frames of a message.
    control: Vec<u8>,
    /// The last message, while more is there to be read: if nobody else holds it by then, the next one
    /// lies in its memory.
    last: Option<Bytes>,
    /// So many bytes at the beginning of the message under way are ASCII: they were looked at as they
    /// came, while the processor still had them.
    ascii: usize,
    /// Bytes of the message under way that were not told of.
    untold: usize,
}

#[derive(Debug)]
struct Incomplete {
    opcode: OpCode,
    last: bool,
    mask: Option<[u8; 4]>,
    left: usize,
}

impl Reader {
    /// `rest` came with the end of the handshake.
    pub(crate) fn new(server: bool, limit: usize, rest: &[u8]) -> Self {
        Self {
            server,
            limit,
            ahead: BytesMut::from(rest),
            frame: None,
            message: None,
            control: Vec::new(),
            last: None,
            ascii: 0,
            untold: 0,
        }
    }

    /// Nothing larger than this is taken.
    pub(crate) fn expect(&mut self, largest: usize) {
        self.limit = self.limit.min(largest);
    }

    /// Whether this is a server's end.
    pub(crate) fn is_server(&self) -> bool {
        self.server
    }

    /// Bytes that came of a message or a frame that is not whole, if there is one.
    pub(crate) fn under_way(&self) -> Option<usize> {
        match &self.message {
            Some((_, bytes)) => Some(bytes.len()),
            None => self.frame.as_ref().map(|_| self.control.len()),
        }
    }

    /// Bytes of memory that are held here.
    pub(crate) fn held(&self) -> usize {
        let message = self.message.as_ref().map_or(0, |(_, it)| it.capacity());
        let last = self.last.as_ref().map_or(0, Bytes::len);
        self.ahead.capacity() + message + last + self.control.capacity()
    }

    /// The next word. Dropped in between, nothing is lost.
    pub(crate) fn poll_word(
        &mut self,
        context: &mut Context<'_>,
        stream: &mut (impl AsyncRead + Unpin),
    ) -> Poll<Result<Word, Stop>> {
        loop {
            if self.frame.is_none() {
                self.frame = self.head()?;
            }
            let read = match self.frame.take() {
                None => {
                    self.ahead.reserve(AHEAD);
                    poll_read(context, stream, &mut (&mut self.ahead).limit(AHEAD))
                }
                Some(mut frame) => {
                    let target = match frame.opcode {
                        OpCode::Control(_) => &mut self.control,
                        OpCode::Data(_) => {
                            &mut self.message.get_or_insert((Data::Binary, Vec::new())).1
                        }
                    };
                    let from = target.len();
                    let ready = take(&mut self.ahead, frame.left, target);
                    let read = if ready > 0 || frame.left == 0 {
                        Poll::Ready(Ok(ready))
                    } else {
                        reserve(target, frame.left);
                        poll_read(context, stream, &mut (&mut *target).limit(frame.left))
                    };
                    if let Poll::Ready(Ok(count)) = read {
                        if let Some(key) = &mut frame.mask {
                            mask(&mut target[from..], *key);
                            key.rotate_left(count % 4);
                        }
                        if matches!(frame.opcode, OpCode::Data(_))
                            && self.ascii == from
                            && target[from..].is_ascii()
                        {
                            self.ascii = target.len();
                        }
                        frame.left -= count;
                        if frame.left == 0 {
                            match self.finish(&frame)? {
                                Some(word) => return Poll::Ready(Ok(word)),
                                None => continue,
                            }
                        }
                    }
                    self.frame = Some(frame);
                    read
                }
            };
            match read {
                Poll::Pending if self.untold >= SIGN => {
                    self.untold = 0;
                    return Poll::Ready(Ok(Word::Progress));
                }
                Poll::Pending => {
                    if self.frame.is_none() {
                        // An idle connection keeps nothing.
                        self.last = None;
                    }
                    return Poll::Pending;
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err(Stop::Gone(error))),
                Poll::Ready(Ok(0)) => {
                    let error = io::ErrorKind::UnexpectedEof.into();
                    return Poll::Ready(Err(Stop::Gone(error)));
                }
                Poll::Ready(Ok(count)) => self.untold += count,
            }
        }
    }

    /// The head of a frame, once it is there and keeps the rules.
    fn head(&mut self) -> Result<Option<Incomplete>, Stop> {
        let mut cursor = Cursor::new(&self.ahead[..]);
        let parsed = FrameHeader::parse(&mut cursor).map_err(|it| broken(1002, it.to_string()))?;
        let Some((header, length)) = parsed else {
            return Ok(None);
        };
        let parsed = cursor.position();
        self.ahead.advance(usize::try_from(parsed).unwrap_or(0));
        if header.rsv1 || header.rsv2 || header.rsv3 {
            return Err(broken(1002, "a reserved bit is set"));
        }
        match (self.server, header.mask.is_some()) {
            (true, false) => return Err(broken(1002, "a client's frame is not masked")),
            (false, true) => return Err(broken(1002, "a server's frame is masked")),
            _ => {}
        }
        match (header.opcode, &self.message) {
            (OpCode::Control(Control::Reserved(_)) | OpCode::Data(Data::Reserved(_)), _) => {
                return Err(broken(1002, "a frame of a reserved kind"));
            }
            (OpCode::Control(_), _) => {
                if !header.is_final || length > CONTROL_MAX {
                    return Err(broken(1002, "a control frame that is cut or too long"));
                }
            }
            (OpCode::Data(Data::Continue), None) => {
                return Err(broken(1002, "a continuation of nothing"));
            }
            (OpCode::Data(Data::Continue), Some(_)) => {}
            (OpCode::Data(_), Some(_)) => {
                return Err(broken(1002, "a message began within another"));
            }
            (OpCode::Data(kind), None) => {
                let again = self.last.take().and_then(|last| last.try_into_mut().ok());
                let mut memory = again.map_or_else(Vec::new, Vec::from);
                memory.clear();
                self.message = Some((kind, memory));
                self.ascii = 0;
            }
        }
        if let OpCode::Data(_) = header.opcode {
            let before = self.message.as_ref().map_or(0, |(_, bytes)| bytes.len());
            let size = length.saturating_add(before as u64);
            if size > self.limit as u64 {
                let limit = self.limit;
                let reason = format!("frame of {size} bytes over the limit of {limit}");
                return Err(broken(1009, reason));
            }
        }
        Ok(Some(Incomplete {
            opcode: header.opcode,
            last: header.is_final,
            mask: header.mask,
            left: usize::try_from(length).unwrap_or(usize::MAX),
        }))
    }

    /// What a whole frame says, if it says something by itself.
    fn finish(&mut self, frame: &Incomplete) -> Result<Option<Word>, Stop> {
        let control = match frame.opcode {
            OpCode::Data(_) => {
                if !frame.last {
                    return Ok(None);
                }
                self.untold = 0;
                return match self.message.take() {
                    Some((kind, bytes)) => {
                        let bytes = fitted(bytes);
                        // Small ones are not worth it, and they are kept longer.
                        self.last = (bytes.len() > AHEAD).then(|| bytes.clone());
                        message(kind, bytes, self.ascii).map(Some)
                    }
                    None => Ok(None),
                };
            }
            OpCode::Control(control) => control,
        };
        let payload = Bytes::copy_from_slice(&self.control);
        self.control.clear();
        match control {
            Control::Ping => Ok(Some(Word::Ping(payload))),
            Control::Pong => Ok(Some(Word::Pong)),
            Control::Close => close(payload).map(Some),
            Control::Reserved(_) => Ok(None),
        }
    }
}

/// Of many fragments the memory grew by doubling, and of a larger message before it is too large:
/// whoever keeps this one is charged by its length.
fn fitted(mut bytes: Vec<u8>) -> Bytes {
    if bytes.capacity() - bytes.len() > bytes.len() / 64 {
        bytes.shrink_to_fit();
    }
    bytes.into()
}

fn message(kind: Data, bytes: Bytes, ascii: usize) -> Result<Word, Stop> {
    if kind != Data::Text {
        return Ok(Word::Message(Frame::Binary(bytes)));
    }
    if simdutf8::basic::from_utf8(&bytes[ascii..]).is_err() {
        return Err(broken(1007, "text that is not UTF-8"));
    }
    Ok(Word::Message(Frame::Text(bytes)))
}

fn close(payload: Bytes) -> Result<Word, Stop> {
    let (code, reason) = match payload.split_first_chunk::<2>() {
        Some((code, reason)) => (u16::from_be_bytes(*code), reason),
        None if payload.is_empty() => (1005, &[][..]),
        None => return Err(broken(1002, "a close with half a code")),
    };
    if !payload.is_empty() && !sendable(code) {
        return Err(broken(1002, format!("a close with the code {code}")));
    }
    let Ok(reason) = simdutf8::basic::from_utf8(reason) else {
        return Err(broken(1007, "a close whose reason is not UTF-8"));
    };
    let reason = reason.to_owned();
    Ok(Word::Close(Closed { code, reason }, payload))
}

/// Codes that only stand for what no close frame said, and those of nobody, may not be sent.
pub(crate) fn sendable(code: u16) -> bool {
    matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999)
}

/// Moves what is there already; how much.
fn take(ahead: &mut BytesMut, left: usize, target: &mut Vec<u8>) -> usize {
    let count = left.min(ahead.len());
    if count > 0 {
        // A frame that is there whole gets exactly its memory.
        target.reserve_exact(if count == left { count } else { left.min(STEP) });
        target.extend_from_slice(&ahead[..count]);
        ahead.advance(count);
    }
    count
}

/// Room for more, in steps that double: a peer's word for the length alone takes no memory.
fn reserve(target: &mut Vec<u8>, left: usize) {
    if target.capacity() == target.len() {
        target.reserve_exact(left.min(STEP.max(target.len())));
    }
}

fn poll_read(
    context: &mut Context<'_>,
    stream: &mut (impl AsyncRead + Unpin),
    target: &mut impl BufMut,
) -> Poll<io::Result<usize>> {
    // It keeps nothing between polls.
    pin!(stream.read_buf(target)).poll(context)
}
