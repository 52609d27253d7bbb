//! Reads WebSocket frames. Memory grows only with received bytes, not with declared lengths, and each
//! message has a buffer of its own with no spare room.

use std::io::{self, Cursor};
use std::mem::MaybeUninit;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use breakbulk_link::{Closed, Frame};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, ReadBuf};
use tokio_tungstenite::tungstenite::protocol::frame::FrameHeader;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Control, Data, OpCode};

use super::mask::mask;

/// How much is read at once while no frame is begun, for frame headers and small frames. It is read to
/// the stack, so that an idle connection keeps no buffer for it.
const AHEAD: usize = 16 << 10;

/// The memory of a message above this size is reused for the next one.
const REUSED: usize = 8 << 10;

/// The first allocation for a large frame; it grows as bytes come in.
const STEP: usize = 256 << 10;

/// Each this many bytes of an unfinished message are reported as progress: on a slow network a large
/// frame takes longer than the limit on silence.
pub(crate) const PROGRESS_STEP: usize = 16 << 10;

/// The longest payload of a control frame.
const CONTROL_MAX: u64 = 125;

/// What the reader returns.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum WsEvent {
    Message(Frame),
    Ping(Bytes),
    Pong,
    /// More bytes of an unfinished message came in.
    Progress,
    /// With the payload, which is sent back as the answer.
    Close(Closed, Bytes),
}

/// Why reading ended.
#[derive(Debug)]
pub(crate) enum ReadError {
    /// The stream ended or failed.
    Gone(io::Error),
    /// The other end violated the protocol.
    Broken(Closed),
}

fn broken(code: u16, reason: impl Into<String>) -> ReadError {
    ReadError::Broken(Closed {
        code,
        reason: reason.into(),
    })
}

#[derive(Debug)]
pub(crate) struct Reader {
    /// A server accepts only masked frames, a client only unmasked ones.
    server: bool,
    /// The largest message, in bytes.
    limit: usize,
    /// Bytes that were read and belong to no frame yet.
    ahead: BytesMut,
    /// The frame being read.
    frame: Option<Incomplete>,
    /// The message being read, of one or more frames.
    message: Option<(Data, Vec<u8>)>,
    /// The payload of a control frame, which may come between two frames of a message.
    control: Vec<u8>,
    /// The last message, while there is more to read: if the application has dropped it when the next
    /// message begins, its memory is reused.
    last: Option<Bytes>,
    /// How many bytes at the beginning of the current message are known to be ASCII. They are
    /// checked as they come in, while they are in the processor's cache.
    ascii: usize,
    /// Bytes of the current message that were not reported as progress yet.
    unreported: usize,
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
            unreported: 0,
        }
    }

    /// Lowers the limit on a message to `largest` bytes.
    pub(crate) fn lower_limit(&mut self, largest: usize) {
        self.limit = self.limit.min(largest);
    }

    /// Whether this is the server's side.
    pub(crate) fn is_server(&self) -> bool {
        self.server
    }

    /// The received bytes of an unfinished message or frame, if there is one.
    pub(crate) fn unfinished(&self) -> Option<usize> {
        match &self.message {
            Some((_, bytes)) => Some(bytes.len()),
            None => self.frame.as_ref().map(|_| self.control.len()),
        }
    }

    /// The memory that the reader holds, in bytes.
    pub(crate) fn held(&self) -> usize {
        let message = self.message.as_ref().map_or(0, |(_, it)| it.capacity());
        let last = self.last.as_ref().map_or(0, Bytes::len);
        self.ahead.capacity() + message + last + self.control.capacity()
    }

    /// Drops what has come of an unfinished message. Nothing is read after that.
    pub(crate) fn forget(&mut self) {
        self.message = None;
        self.last = None;
        self.ahead = BytesMut::new();
    }

    /// The next message or control frame. The state is kept in the reader, so no data is lost
    /// between polls.
    pub(crate) fn poll_event(
        &mut self,
        context: &mut Context<'_>,
        stream: &mut (impl AsyncRead + Unpin),
    ) -> Poll<Result<WsEvent, ReadError>> {
        loop {
            if self.frame.is_none() {
                self.frame = self.parse_header()?;
            }
            let read = match self.frame.take() {
                None => self.poll_ahead(context, stream),
                Some(mut frame) => {
                    let target = match frame.opcode {
                        OpCode::Control(_) => &mut self.control,
                        OpCode::Data(_) => {
                            &mut self.message.get_or_insert((Data::Binary, Vec::new())).1
                        }
                    };
                    let from = target.len();
                    let ready = take_ahead(&mut self.ahead, frame.left, target);
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
                                Some(event) => return Poll::Ready(Ok(event)),
                                None => continue,
                            }
                        }
                    }
                    self.frame = Some(frame);
                    read
                }
            };
            match read {
                Poll::Pending if self.unreported >= PROGRESS_STEP => {
                    self.unreported = 0;
                    return Poll::Ready(Ok(WsEvent::Progress));
                }
                Poll::Pending => {
                    // An idle connection keeps no memory but the beginning of a header.
                    if self.frame.is_none() {
                        self.last = None;
                    }
                    self.ahead = BytesMut::from(&self.ahead[..]);
                    return Poll::Pending;
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err(ReadError::Gone(error))),
                Poll::Ready(Ok(0)) => {
                    let error = io::ErrorKind::UnexpectedEof.into();
                    return Poll::Ready(Err(ReadError::Gone(error)));
                }
                Poll::Ready(Ok(count)) => {
                    self.unreported += count;
                    // Reported even while more bytes are ready, so that an unfinished message is charged as
                    // it grows.
                    if self.unreported >= STEP {
                        self.unreported = 0;
                        return Poll::Ready(Ok(WsEvent::Progress));
                    }
                }
            }
        }
    }

    /// Reads what has arrived behind the last frame.
    fn poll_ahead(
        &mut self,
        context: &mut Context<'_>,
        stream: &mut (impl AsyncRead + Unpin),
    ) -> Poll<io::Result<usize>> {
        let mut room = [const { MaybeUninit::uninit() }; AHEAD];
        let mut buffer = ReadBuf::uninit(&mut room);
        ready!(Pin::new(stream).poll_read(context, &mut buffer))?;
        self.ahead.extend_from_slice(buffer.filled());
        Poll::Ready(Ok(buffer.filled().len()))
    }

    /// Parses and checks the next frame header, once it has arrived.
    fn parse_header(&mut self) -> Result<Option<Incomplete>, ReadError> {
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
                return Err(broken(1002, "a frame with a reserved opcode"));
            }
            (OpCode::Control(_), _) => {
                if !header.is_final || length > CONTROL_MAX {
                    return Err(broken(
                        1002,
                        "a control frame that is fragmented or too long",
                    ));
                }
            }
            (OpCode::Data(Data::Continue), None) => {
                return Err(broken(1002, "a continuation frame without a message"));
            }
            (OpCode::Data(Data::Continue), Some(_)) => {}
            (OpCode::Data(_), Some(_)) => {
                return Err(broken(1002, "a message began within another"));
            }
            (OpCode::Data(kind), None) => {
                let reused = self.last.take().and_then(|last| last.try_into_mut().ok());
                let mut memory = reused.map_or_else(Vec::new, Vec::from);
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

    /// The event that a complete frame makes; `None` if its message goes on.
    fn finish(&mut self, frame: &Incomplete) -> Result<Option<WsEvent>, ReadError> {
        let control = match frame.opcode {
            OpCode::Data(_) => {
                if !frame.last {
                    return Ok(None);
                }
                self.unreported = 0;
                return match self.message.take() {
                    Some((kind, bytes)) => {
                        let bytes = fitted(bytes);
                        // Reusing small ones is not worth it, and the application keeps them longer.
                        self.last = (bytes.len() > REUSED).then(|| bytes.clone());
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
            Control::Ping => Ok(Some(WsEvent::Ping(payload))),
            Control::Pong => Ok(Some(WsEvent::Pong)),
            Control::Close => close(payload).map(Some),
            Control::Reserved(_) => Ok(None),
        }
    }
}

/// Shrinks the buffer to the message, which is charged by its length: the buffer may be larger if it
/// grew by doubling, or if it is that of a larger message before.
fn fitted(mut bytes: Vec<u8>) -> Bytes {
    if bytes.capacity() - bytes.len() > bytes.len() / 64 {
        bytes.shrink_to_fit();
    }
    bytes.into()
}

fn message(kind: Data, bytes: Bytes, ascii: usize) -> Result<WsEvent, ReadError> {
    if kind != Data::Text {
        return Ok(WsEvent::Message(Frame::Binary(bytes)));
    }
    if simdutf8::basic::from_utf8(&bytes[ascii..]).is_err() {
        return Err(broken(1007, "text that is not UTF-8"));
    }
    Ok(WsEvent::Message(Frame::Text(bytes)))
}

fn close(payload: Bytes) -> Result<WsEvent, ReadError> {
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
    Ok(WsEvent::Close(Closed { code, reason }, payload))
}

/// Whether a close frame may carry this code. Codes such as 1005 and 1006 are for local use only, and
/// unassigned codes are not allowed.
pub(crate) fn sendable(code: u16) -> bool {
    matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999)
}

/// Moves bytes of the frame out of the read-ahead buffer, and returns how many.
fn take_ahead(ahead: &mut BytesMut, left: usize, target: &mut Vec<u8>) -> usize {
    let count = left.min(ahead.len());
    if count > 0 {
        // A frame that has arrived completely gets a buffer of exactly its size.
        target.reserve_exact(if count == left { count } else { left.min(STEP) });
        target.extend_from_slice(&ahead[..count]);
        ahead.advance(count);
    }
    count
}

/// Makes room for more bytes by doubling: a length that the peer only declared takes no memory.
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
    // The future of `read_buf` has no state between polls, so it can be made anew each time.
    pin!(stream.read_buf(target)).poll(context)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may")]
mod tests {
    use std::task::Waker;

    use tokio::io::AsyncWriteExt;

    use super::*;

    /// The charge is adjusted after each event: a message that comes all at once must cause events while
    /// it grows.
    #[tokio::test]
    async fn a_message_that_comes_at_once_is_reported_as_it_grows() {
        let mut context = Context::from_waker(Waker::noop());
        for fragment in [60_000, 4 << 20] {
            let (mut far, mut near) = tokio::io::duplex(8 << 20);
            let mut reader = Reader::new(false, 4 << 20, &[]);
            for number in 0..(4 << 20) / fragment {
                let header = FrameHeader {
                    is_final: false,
                    opcode: OpCode::Data(if number == 0 {
                        Data::Binary
                    } else {
                        Data::Continue
                    }),
                    ..FrameHeader::default()
                };
                let mut frame = Vec::new();
                header.format(fragment as u64, &mut frame).unwrap();
                frame.resize(frame.len() + fragment, b'x');
                far.write_all(&frame).await.unwrap();
            }
            let mut before = 0;
            while let Poll::Ready(event) = reader.poll_event(&mut context, &mut near) {
                assert_eq!(event.unwrap(), WsEvent::Progress);
                let now = reader.unfinished().unwrap();
                // One read fills the buffer at most, which doubles.
                assert!(now <= 2 * before + 2 * STEP, "{before} and then {now}");
                before = now;
            }
            assert!(before >= 2 * STEP, "{before}");
        }
    }

    /// There may be ten thousand idle connections, so an idle reader must keep nearly no memory.
    #[tokio::test]
    async fn a_reader_that_waits_keeps_no_buffer() {
        let (mut far, mut near) = tokio::io::duplex(1 << 20);
        let mut reader = Reader::new(false, 1 << 20, &[]);
        let mut context = Context::from_waker(Waker::noop());
        for size in [1, 100, 70_000, 3] {
            let mut frame = Vec::new();
            let header = FrameHeader {
                opcode: OpCode::Data(Data::Binary),
                ..FrameHeader::default()
            };
            header.format(size as u64, &mut frame).unwrap();
            frame.resize(frame.len() + size, b'x');
            // Several frames in one read, followed by the beginning of a header.
            far.write_all(&frame.repeat(3)).await.unwrap();
            far.write_all(&frame[..1]).await.unwrap();
            for _ in 0..3 {
                let event = loop {
                    match reader.poll_event(&mut context, &mut near) {
                        Poll::Ready(event) => break event.unwrap(),
                        Poll::Pending => far.flush().await.unwrap(),
                    }
                };
                assert!(matches!(event, WsEvent::Message(frame) if frame.bytes().len() == size));
            }
            assert!(reader.poll_event(&mut context, &mut near).is_pending());
            assert!(reader.held() < 64, "{} of {size}", reader.held());
            far.write_all(&frame[1..]).await.unwrap();
            let last = reader.poll_event(&mut context, &mut near);
            assert!(matches!(last, Poll::Ready(Ok(WsEvent::Message(_)))));
            assert!(reader.poll_event(&mut context, &mut near).is_pending());
            assert_eq!(reader.held(), 0, "{size}");
        }
    }
}
