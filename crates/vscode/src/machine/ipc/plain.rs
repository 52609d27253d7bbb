//! The plain protocol of local pipes and sockets: frames without numbers.

use breakbulk_message::vscode::ipc::{Frame, FrameType, IpcError, IpcReader};
use bytes::Bytes;

use super::super::Chunks;
use super::{Payload, check_len, put_header};

/// `Protocol`: every message is a regular frame with id and ack 0.
///
/// ```
/// use breakbulk_vscode::machine::ipc::Protocol;
/// use bytes::Bytes;
///
/// let (mut here, mut there) = (Protocol::new(1 << 20), Protocol::new(1 << 20));
/// here.send(&Bytes::from_static(b"hello"))?;
/// let mut stream = here.outgoing().pop(usize::MAX).unwrap();
/// assert_eq!(there.handle_bytes(&mut stream)?.unwrap(), "hello");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Protocol {
    reader: IpcReader,
    out: Chunks,
}

impl Protocol {
    /// A protocol that accepts messages of at most `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self {
            reader: IpcReader::new(limit).sharing(),
            out: Chunks::default(),
        }
    }

    /// Queues a message.
    pub fn send(&mut self, message: &impl Payload) -> Result<(), IpcError> {
        check_len(message.len())?;
        put_header(&mut self.out, FrameType::Regular, 0, 0, message.len());
        message.write(&mut self.out);
        Ok(())
    }

    /// The next message in `input`, sharing its memory: [`Rpc`](crate::machine::rpc::Rpc) copies what it
    /// keeps. Call again until `None`; an error is final.
    pub fn handle_bytes(&mut self, input: &mut Bytes) -> Result<Option<Bytes>, IpcError> {
        while let Some(frame) = self.reader.read(input)? {
            if let Some(message) = self.handle_frame(frame) {
                return Ok(Some(message));
            }
        }
        Ok(None)
    }

    /// The message of a frame, if it carries one.
    pub fn handle_frame(&mut self, frame: Frame) -> Option<Bytes> {
        (frame.frame_type == FrameType::Regular).then_some(frame.payload)
    }

    /// The bytes to write.
    pub fn outgoing(&mut self) -> &mut Chunks {
        &mut self.out
    }
}
