//! The body of a POST, charged to its session until it is sent.

use std::sync::Arc;

use breakbulk_net::bytes_with;
use breakbulk_net::http::Parts;
use bytes::Bytes;
use tokio::sync::watch;

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
pub(super) type Upload = Parts<Sending>;

/// What is kept until a body is sent.
pub(super) struct Sending {
    stage: Arc<watch::Sender<Stage>>,
}

/// A body, as soon as there is room for it.
pub(super) async fn upload(
    state: &TargetState,
    bytes: Bytes,
    stage: Arc<watch::Sender<Stage>>,
) -> Upload {
    let all = room(state.limit);
    let units = (bytes.len().div_ceil(UNIT)).clamp(1, all) as u32;
    // The semaphore is never closed.
    let room = state.uploads.clone().acquire_many_owned(units).await.ok();
    let budget = state.budget.get();
    let charge = budget.map(|budget| budget.part(usize::MAX).charge_allocated(bytes.len()));
    // The last part of it, in the buffer of the socket, keeps the memory of all.
    let bytes = bytes_with(bytes, (charge, room));
    Parts::new(bytes, PART, Sending { stage })
}

/// No body: its stage is reached when the head is written.
pub(super) fn no_upload(stage: Arc<watch::Sender<Stage>>) -> Upload {
    Parts::new(Bytes::new(), PART, Sending { stage })
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

impl Drop for Sending {
    fn drop(&mut self) {
        reach(&self.stage, Stage::Written);
    }
}
