//! The body of a POST, charged to its session until it is sent.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use breakbulk_link::Charge;
use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::sync::{OwnedSemaphorePermit, watch};

use super::TargetState;

/// The size of the parts that are given to the socket.
const PART: usize = 64 << 10;

/// The unit in which room is counted.
const UNIT: usize = 1 << 10;

/// How far a POST is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    /// Its body is being sent.
    Posting,
    /// Its body is sent.
    Written,
    /// The server has answered with a head.
    Accepted,
}

/// The room for bodies of a connection, in units: two of the largest messages.
pub(super) fn room(limit: usize) -> usize {
    let units = limit.saturating_mul(2).div_ceil(UNIT).max(1);
    units.min(u32::MAX as usize >> 3)
}

/// A body. It is not copied, and gives back its memory when it is sent or given up.
pub(super) struct Upload {
    bytes: Bytes,
    stage: Arc<watch::Sender<Stage>>,
    _charge: Option<Charge>,
    _room: Option<OwnedSemaphorePermit>,
}

impl Upload {
    /// A body, as soon as there is room for it.
    pub(super) async fn new(
        state: &TargetState,
        bytes: Bytes,
        stage: Arc<watch::Sender<Stage>>,
    ) -> Self {
        let all = room(state.limit);
        let units = (bytes.len().div_ceil(UNIT)).clamp(1, all) as u32;
        // The semaphore is never closed.
        let room = state.uploads.clone().acquire_many_owned(units).await.ok();
        let budget = state.budget.get();
        let charge = budget.map(|budget| budget.part(usize::MAX).charge_allocated(bytes.len()));
        Self {
            bytes,
            stage,
            _charge: charge,
            _room: room,
        }
    }
}

impl Upload {
    /// The message.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// Raises the stage of a POST.
pub(super) fn reach(stage: &watch::Sender<Stage>, reached: Stage) {
    stage.send_if_modified(|stage| {
        let is_further = *stage < reached;
        if is_further {
            *stage = reached;
        }
        is_further
    });
}

impl Body for Upload {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if self.bytes.is_empty() {
            return Poll::Ready(None);
        }
        let part = self.bytes.len().min(PART);
        Poll::Ready(Some(Ok(Frame::data(self.bytes.split_to(part)))))
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes.len() as u64)
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        reach(&self.stage, Stage::Written);
    }
}
