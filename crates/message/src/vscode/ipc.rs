//! `ipc.net`: the frames of messages in a byte stream.
//!
//! Every frame has a header of 13 bytes: type, id, acknowledged id and payload length, big-endian. The
//! stream may arrive in chunks of any size.

use bytes::{Buf, Bytes};

/// Payloads up to this size are copied, so that a small one does not keep a large read alive.
const SMALL: usize = 1024;

/// The type of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FrameType {
    /// 1: a message.
    Regular,
    /// 2: a control message of the connection.
    Control,
    /// 3: an acknowledgement without a message.
    Ack,
    /// 5: the sender disconnects on purpose.
    Disconnect,
    /// 6: a message is missing; send all unacknowledged ones again.
    ReplayRequest,
    /// 7: stop writing until `Resume`.
    Pause,
    /// 8: continue writing.
    Resume,
    /// 9: keeps the connection alive.
    KeepAlive,
    /// Any other type, to be ignored.
    Unknown(u8),
}

impl FrameType {
    /// The type with this number.
    pub fn from_u8(byte: u8) -> Self {
        match byte {
            1 => Self::Regular,
            2 => Self::Control,
            3 => Self::Ack,
            5 => Self::Disconnect,
            6 => Self::ReplayRequest,
            7 => Self::Pause,
            8 => Self::Resume,
            9 => Self::KeepAlive,
            other => Self::Unknown(other),
        }
    }

    /// Its number on the wire.
    pub fn to_u8(self) -> u8 {
        match self {
            Self::Regular => 1,
            Self::Control => 2,
            Self::Ack => 3,
            Self::Disconnect => 5,
            Self::ReplayRequest => 6,
            Self::Pause => 7,
            Self::Resume => 8,
            Self::KeepAlive => 9,
            Self::Unknown(other) => other,
        }
    }
}

/// The header of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Header {
    /// The type of the frame.
    pub frame_type: FrameType,
    /// The number of a regular message in the persistent protocol, otherwise 0.
    pub id: u32,
    /// The id of the last message that the sender has received.
    pub ack: u32,
    /// The length of the payload.
    pub len: u32,
}

impl Header {
    /// The length of a header.
    pub const LEN: usize = 13;

    /// Reads a header; any 13 bytes are valid.
    pub fn read(bytes: &[u8; Self::LEN]) -> Self {
        let [frame_type, id @ .., a, b, c, d, e, f, g, h] = *bytes;
        Self {
            frame_type: FrameType::from_u8(frame_type),
            id: u32::from_be_bytes(id),
            ack: u32::from_be_bytes([a, b, c, d]),
            len: u32::from_be_bytes([e, f, g, h]),
        }
    }

    /// Appends the header to `out`.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.push(self.frame_type.to_u8());
        for field in [self.id, self.ack, self.len] {
            out.extend_from_slice(&field.to_be_bytes());
        }
    }
}

/// One frame with its payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// The type of the frame.
    pub frame_type: FrameType,
    /// The number of a regular message in the persistent protocol, otherwise 0.
    pub id: u32,
    /// The id of the last message that the sender has received.
    pub ack: u32,
    /// The payload.
    pub payload: Bytes,
}

impl Frame {
    /// Appends the header and the payload to `out`.
    pub fn write(&self, out: &mut Vec<u8>) -> Result<(), IpcError> {
        let len = self.payload.len();
        let header = Header {
            frame_type: self.frame_type,
            id: self.id,
            ack: self.ack,
            len: u32::try_from(len).map_err(|_| IpcError::PayloadTooLong { len })?,
        };
        out.reserve(Header::LEN + len);
        header.write(out);
        out.extend_from_slice(&self.payload);
        Ok(())
    }
}

/// Why a stream cannot be read or written further.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IpcError {
    /// The payload is too long for the length field, which has four bytes.
    #[error("payload of {len} bytes is over the format's 4294967295; send it in parts")]
    PayloadTooLong {
        /// The payload's length.
        len: usize,
    },
    /// The peer announced a payload over the limit. The frames after it cannot be found.
    #[error(
        "peer announced a frame of {declared} bytes, over the limit of {limit}; close the stream"
    )]
    OverLimit {
        /// The announced length.
        declared: u32,
        /// The limit.
        limit: usize,
    },
}

/// Finds the frames in a stream that arrives in chunks of any size.
///
/// ```
/// use breakbulk_message::vscode::ipc::IpcReader;
/// use bytes::Bytes;
///
/// let mut reader = IpcReader::new(1 << 20);
/// let mut first = Bytes::from_static(b"\x01\0\0\0\0\0\0\0\0\0\0\0\x02h");
/// assert_eq!(reader.read(&mut first)?, None);
/// let mut second = Bytes::from_static(b"i");
/// assert_eq!(reader.read(&mut second)?.unwrap().payload, "hi");
/// # Ok::<(), breakbulk_message::vscode::ipc::IpcError>(())
/// ```
#[derive(Debug)]
pub struct IpcReader {
    limit: usize,
    /// Payloads up to this size are copied.
    copied: usize,
    state: State,
}

#[derive(Debug)]
enum State {
    /// The header, and how many of its bytes have arrived.
    Header([u8; Header::LEN], usize),
    /// The header is complete; the payload so far.
    Payload(Header, Vec<u8>),
    Failed(IpcError),
}

impl State {
    const START: Self = Self::Header([0; Header::LEN], 0);
}

impl IpcReader {
    /// A reader that accepts payloads of at most `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            copied: SMALL,
            state: State::START,
        }
    }

    /// Makes small payloads share the memory of their chunk, too: for callers that process them
    /// immediately and keep none.
    pub fn sharing(mut self) -> Self {
        self.copied = 0;
        self
    }

    /// Consumes `input` up to the end of the next frame. Call it until it returns `None`: then
    /// `input` is empty. An error is final.
    pub fn read(&mut self, input: &mut Bytes) -> Result<Option<Frame>, IpcError> {
        loop {
            match &mut self.state {
                State::Failed(error) => return Err(error.clone()),
                State::Header(bytes, filled) => {
                    let take = input.len().min(Header::LEN - *filled);
                    input.copy_to_slice(&mut bytes[*filled..*filled + take]);
                    *filled += take;
                    if *filled < Header::LEN {
                        return Ok(None);
                    }
                    let header = Header::read(bytes);
                    self.state = self.begin(header);
                }
                State::Payload(header, so_far) => {
                    let header = *header;
                    let payload = take_payload(header.len as usize, self.copied, so_far, input);
                    let Some(payload) = payload else {
                        return Ok(None);
                    };
                    self.state = State::START;
                    return Ok(Some(Frame {
                        frame_type: header.frame_type,
                        id: header.id,
                        ack: header.ack,
                        payload,
                    }));
                }
            }
        }
    }

    /// Whether the stream so far ends inside a frame.
    pub fn is_inside_frame(&self) -> bool {
        match &self.state {
            State::Header(_, filled) => *filled > 0,
            State::Payload(..) => true,
            State::Failed(_) => false,
        }
    }

    /// The buffered bytes of an incomplete frame.
    pub fn held(&self) -> usize {
        match &self.state {
            State::Payload(_, so_far) => so_far.capacity(),
            State::Header(..) | State::Failed(_) => 0,
        }
    }

    fn begin(&self, header: Header) -> State {
        let accepted = usize::try_from(header.len).is_ok_and(|len| len <= self.limit);
        if accepted {
            State::Payload(header, Vec::new())
        } else {
            State::Failed(IpcError::OverLimit {
                declared: header.len,
                limit: self.limit,
            })
        }
    }
}

/// The payload once it is complete; a slice of the input if the input contains all of it.
fn take_payload(
    declared: usize,
    copied: usize,
    so_far: &mut Vec<u8>,
    input: &mut Bytes,
) -> Option<Bytes> {
    if so_far.is_empty() && input.len() >= declared {
        let payload = input.split_to(declared);
        return Some(match declared <= copied {
            true => Bytes::copy_from_slice(&payload),
            false => payload,
        });
    }
    let take = input.len().min(declared - so_far.len());
    grow(so_far, take, declared);
    so_far.extend_from_slice(&input.split_to(take));
    (so_far.len() == declared).then(|| std::mem::take(so_far).into())
}

/// Makes room for the bytes that arrived; grows by at most a quarter, and never past the declared
/// length.
fn grow(buffer: &mut Vec<u8>, arrived: usize, declared: usize) {
    let needed = buffer.len() + arrived;
    if needed > buffer.capacity() {
        let roomy = (needed + needed / 4).min(declared);
        buffer.reserve_exact(roomy - buffer.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(frame_type: u8, id: u32, ack: u32, payload: &[u8]) -> Frame {
        Frame {
            frame_type: FrameType::from_u8(frame_type),
            id,
            ack,
            payload: Bytes::copy_from_slice(payload),
        }
    }

    #[test]
    fn literal_bytes() {
        let table: [(Frame, &[u8]); 4] = [
            (
                frame(1, 0, 0, b"hello"),
                b"\x01\0\0\0\0\0\0\0\0\0\0\0\x05hello",
            ),
            (frame(1, 2, 3, b""), b"\x01\0\0\0\x02\0\0\0\x03\0\0\0\0"),
            (
                frame(9, 0, 0x0102_0304, b""),
                b"\x09\0\0\0\0\x01\x02\x03\x04\0\0\0\0",
            ),
            (
                frame(4, u32::MAX, 0, b"?"),
                b"\x04\xff\xff\xff\xff\0\0\0\0\0\0\0\x01?",
            ),
        ];
        for (frame, bytes) in table {
            let mut out = Vec::new();
            frame.write(&mut out).unwrap();
            assert_eq!(out, bytes);
            let mut input = Bytes::from_static(bytes);
            assert_eq!(IpcReader::new(5).read(&mut input), Ok(Some(frame)));
        }
    }

    #[test]
    fn every_number_is_a_type() {
        for byte in 0..=255 {
            assert_eq!(FrameType::from_u8(byte).to_u8(), byte);
        }
    }

    #[test]
    fn cuts_mean_nothing() {
        let large: Vec<u8> = (0..5000_u32).map(|n| n as u8).collect();
        let frames = [
            frame(1, 1, 0, b"one"),
            frame(3, 0, 1, b""),
            frame(1, 2, 0, &large),
            frame(1, 3, 0, &[7; SMALL]),
        ];
        let mut stream = Vec::new();
        for frame in &frames {
            frame.write(&mut stream).unwrap();
        }
        for cut in [1, 2, 3, 7, 13, 14, 100, 4999, 1 << 20] {
            let mut reader = IpcReader::new(5000);
            let mut found = Vec::new();
            for chunk in stream.chunks(cut) {
                let mut input = Bytes::copy_from_slice(chunk);
                while let Some(frame) = reader.read(&mut input).unwrap() {
                    found.push(frame);
                }
                assert!(input.is_empty());
            }
            assert_eq!(found, frames, "cut {cut}");
            assert!(!reader.is_inside_frame());
        }
    }

    #[test]
    fn a_large_payload_in_one_read_is_not_copied() {
        let mut stream = Vec::new();
        frame(1, 0, 0, &[1; SMALL + 1]).write(&mut stream).unwrap();
        let mut input = Bytes::from(stream);
        let at = input[Header::LEN..].as_ptr();
        let found = IpcReader::new(1 << 20).read(&mut input).unwrap().unwrap();
        assert_eq!(found.payload.as_ptr(), at);
    }

    #[test]
    fn memory_follows_what_arrived_and_the_limit_holds() {
        let header = |len: u32| {
            let mut out = b"\x01\0\0\0\0\0\0\0\0".to_vec();
            out.extend_from_slice(&len.to_be_bytes());
            Bytes::from(out)
        };
        let mut reader = IpcReader::new(u32::MAX as usize);
        assert_eq!(reader.read(&mut header(u32::MAX)), Ok(None));
        assert_eq!(reader.held(), 0);
        for sent in 1..=10_000 {
            assert_eq!(reader.read(&mut Bytes::from_static(b"x")), Ok(None));
            assert!(reader.held() <= sent + sent / 4 + 1);
        }
        assert!(reader.is_inside_frame());

        let mut reader = IpcReader::new(10);
        let over = Err(IpcError::OverLimit {
            declared: 11,
            limit: 10,
        });
        assert_eq!(reader.read(&mut header(11)), over);
        assert_eq!(reader.read(&mut header(1)), over);
    }
}
