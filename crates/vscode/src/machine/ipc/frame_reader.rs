//! Reads a stream into its own buffers and finds the frames.

use breakbulk_message::vscode::ipc::{Frame, Header, IpcError};
use bytes::{Buf, BufMut, BytesMut};

/// The size of the read buffer. A larger payload gets its own buffer.
const READ: usize = 64 << 10;

/// With less room than this the buffer is grown before a read.
const LEAST_ROOM: usize = 4 << 10;

/// Reads a stream and finds its frames. A small payload shares the read buffer; a large one is read
/// straight into its own buffer, which grows as bytes arrive.
#[derive(Debug)]
pub struct FrameReader {
    limit: usize,
    buffer: BytesMut,
    large: Option<(Header, Vec<u8>)>,
}

impl FrameReader {
    /// A reader that accepts payloads of at most `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            buffer: BytesMut::new(),
            large: None,
        }
    }

    /// Lets `read` put bytes of the stream into the buffer: as many as there is room for, or fewer.
    pub fn fill<R>(&mut self, read: impl FnOnce(&mut dyn BufMut) -> R) -> R {
        if let Some((header, payload)) = &mut self.large {
            let declared = header.len as usize;
            let missing = declared - payload.len();
            grow(payload, declared);
            return read(&mut payload.limit(missing));
        }
        if self.buffer.capacity() - self.buffer.len() < LEAST_ROOM {
            self.buffer.reserve(READ);
        }
        let room = self.buffer.capacity() - self.buffer.len();
        read(&mut (&mut self.buffer).limit(room))
    }

    /// The next complete frame. After an error the stream cannot be read any further.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, IpcError> {
        if let Some((header, payload)) = &mut self.large {
            if payload.len() < header.len as usize {
                return Ok(None);
            }
            let frame = frame(header, std::mem::take(payload).into());
            self.large = None;
            return Ok(Some(frame));
        }
        let Some(header) = self.buffer.first_chunk().map(Header::read) else {
            return Ok(None);
        };
        let declared = usize::try_from(header.len).unwrap_or(usize::MAX);
        if declared > self.limit {
            return Err(IpcError::OverLimit {
                declared: header.len,
                limit: self.limit,
            });
        }
        if self.buffer.len() - Header::LEN >= declared {
            self.buffer.advance(Header::LEN);
            let payload = self.buffer.split_to(declared).freeze();
            return Ok(Some(frame(&header, payload)));
        }
        if declared > READ - Header::LEN {
            self.buffer.advance(Header::LEN);
            let mut payload = Vec::new();
            payload.reserve_exact(READ.min(declared).max(self.buffer.len()));
            payload.extend_from_slice(&self.buffer);
            self.buffer.clear();
            self.large = Some((header, payload));
        } else {
            // Make room for the rest of a small frame.
            self.buffer
                .reserve(Header::LEN + declared - self.buffer.len());
        }
        Ok(None)
    }

    /// Whether the stream, if it ended now, would end inside a frame.
    pub fn is_inside_frame(&self) -> bool {
        self.large.is_some() || !self.buffer.is_empty()
    }

    /// Starts over for a new stream.
    pub fn reset(&mut self) {
        *self = Self::new(self.limit);
    }

    /// Bytes allocated.
    pub fn allocated(&self) -> usize {
        let large = self
            .large
            .as_ref()
            .map_or(0, |(_, payload)| payload.capacity());
        self.buffer.capacity() + large
    }
}

fn frame(header: &Header, payload: bytes::Bytes) -> Frame {
    Frame {
        frame_type: header.frame_type,
        id: header.id,
        ack: header.ack,
        payload,
    }
}

/// Grows the buffer to four times what has arrived, but never past the declared length. A stream has only
/// one frame under way; smaller steps would copy a large one several times.
fn grow(payload: &mut Vec<u8>, declared: usize) {
    let len = payload.len();
    if len == payload.capacity() {
        payload.reserve_exact(len.saturating_mul(4).min(declared) - len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use breakbulk_message::vscode::ipc::FrameType;
    use bytes::Bytes;

    fn stream(payloads: &[usize]) -> (Vec<Frame>, Vec<u8>) {
        let mut bytes = Vec::new();
        let frames = payloads.iter().enumerate().map(|(id, &len)| {
            let payload = (0..len).map(|at| (at * 7 + id) as u8).collect::<Vec<_>>();
            let frame = Frame {
                frame_type: FrameType::Regular,
                id: id as u32,
                ack: 9,
                payload: payload.into(),
            };
            frame.write(&mut bytes).unwrap();
            frame
        });
        (frames.collect(), bytes)
    }

    /// Reads at most `cut` bytes of `source`; gives how many.
    fn read(inflow: &mut FrameReader, source: &mut &[u8], cut: usize) -> usize {
        inflow.fill(|room| {
            let take = cut.min(source.len()).min(room.chunk_mut().len());
            room.put_slice(&source[..take]);
            *source = &source[take..];
            take
        })
    }

    #[test]
    fn cuts_mean_nothing() {
        let sizes = [0, 1, 5000, READ - 13, READ - 12, READ, 0, 300_000, 2];
        let (frames, bytes) = stream(&sizes);
        for cut in [1, 13, 100, 4096, READ, READ + 1, usize::MAX] {
            let mut inflow = FrameReader::new(300_000);
            let mut source = &bytes[..];
            let mut found = Vec::new();
            loop {
                while let Some(frame) = inflow.next_frame().unwrap() {
                    found.push(frame);
                }
                if read(&mut inflow, &mut source, cut) == 0 {
                    break;
                }
            }
            assert!(found == frames, "cut {cut}");
            assert!(!inflow.is_inside_frame());
        }
    }

    #[test]
    fn a_declared_length_takes_no_memory_and_the_limit_holds() {
        let header = |len: u32| [&[1, 0, 0, 0, 0, 0, 0, 0, 0][..], &len.to_be_bytes()].concat();
        let mut inflow = FrameReader::new(usize::MAX);
        let bytes = header(u32::MAX);
        read(&mut inflow, &mut &bytes[..], usize::MAX);
        assert_eq!(inflow.next_frame(), Ok(None));
        assert!(inflow.allocated() <= 3 * READ, "{}", inflow.allocated());
        let mut sent = 0;
        while sent < 4 << 20 {
            let more = Bytes::from(vec![1; 10_000]);
            let mut source = &more[..];
            while read(&mut inflow, &mut source, usize::MAX) > 0 {}
            sent += more.len();
            assert_eq!(inflow.next_frame(), Ok(None));
            assert!(inflow.allocated() <= 4 * sent + 3 * READ);
        }
        let mut inflow = FrameReader::new(10);
        let bytes = header(11);
        read(&mut inflow, &mut &bytes[..], usize::MAX);
        let over = IpcError::OverLimit {
            declared: 11,
            limit: 10,
        };
        assert_eq!(inflow.next_frame(), Err(over));
    }
}
