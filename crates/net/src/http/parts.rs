//! A body that is given to the socket in parts, so that the next one is asked for once the other end reads.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};

/// Bytes in parts, and what is kept until all of them are given out or given up. A part that hyper holds keeps
/// the memory of all: their charge belongs into [`bytes_with`](crate::bytes_with).
#[derive(Debug)]
pub struct Parts<T> {
    left: Bytes,
    /// The largest part.
    part: usize,
    _kept: T,
}

impl<T> Parts<T> {
    /// Bytes in parts of at most `part` bytes.
    pub fn new(bytes: Bytes, part: usize, kept: T) -> Self {
        Self {
            left: bytes,
            part: part.max(1),
            _kept: kept,
        }
    }

    /// What is not given out yet.
    pub fn left(&self) -> &[u8] {
        &self.left
    }
}

impl<T: Unpin> Body for Parts<T> {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if self.left.is_empty() {
            return Poll::Ready(None);
        }
        let part = self.left.len().min(self.part);
        Poll::Ready(Some(Ok(Frame::data(self.left.split_to(part)))))
    }

    fn is_end_stream(&self) -> bool {
        self.left.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left.len() as u64)
    }
}
