//! The peer's requests that run.

use std::collections::BTreeMap;

use super::{Config, RequestId};

/// What a request costs beside its bytes.
const REQUEST_CHARGE: usize = 256;

/// Requests without a reply.
#[derive(Debug, Default)]
pub(super) struct Requests {
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// By the peer's number, those that can be cancelled. Of two with one number the later counts.
    cancellable: BTreeMap<u32, RequestId>,
    bytes: usize,
}

#[derive(Debug, Default)]
struct Slot {
    turn: u32,
    running: Option<Running>,
}

#[derive(Debug)]
struct Running {
    acknowledged: bool,
    cancellable: bool,
    charge: usize,
}

impl Requests {
    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(super) fn has_room(&self, config: &Config) -> bool {
        self.len() < config.running && self.bytes < config.running_bytes
    }

    pub(super) fn begin(&mut self, req: u32, len: usize, cancellable: bool) -> RequestId {
        let charge = len + REQUEST_CHARGE;
        let running = Some(Running {
            acknowledged: false,
            cancellable,
            charge,
        });
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None => {
                self.slots.push(Slot::default());
                // Far fewer than that may run.
                u32::try_from(self.slots.len() - 1).unwrap_or(u32::MAX)
            }
        };
        let mut turn = 0;
        if let Some(free) = self.slots.get_mut(slot as usize) {
            free.turn = free.turn.wrapping_add(1);
            free.running = running;
            turn = free.turn;
        }
        self.bytes += charge;
        let id = RequestId { slot, turn, req };
        if cancellable {
            self.cancellable.insert(req, id);
        }
        id
    }

    /// The peer's number, the first time.
    pub(super) fn acknowledge(&mut self, id: RequestId) -> Option<u32> {
        let running = self.slot(id)?.running.as_mut()?;
        let first = !std::mem::replace(&mut running.acknowledged, true);
        first.then_some(id.req)
    }

    /// The request that a cancel is for, the first time.
    pub(super) fn cancel(&mut self, req: u32) -> Option<RequestId> {
        self.cancellable.remove(&req)
    }

    /// The peer's number, if the request ran.
    pub(super) fn end(&mut self, id: RequestId) -> Option<u32> {
        let running = self.slot(id)?.running.take()?;
        self.free.push(id.slot);
        self.bytes -= running.charge;
        if running.cancellable && self.cancellable.get(&id.req) == Some(&id) {
            self.cancellable.remove(&id.req);
        }
        Some(id.req)
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    fn slot(&mut self, id: RequestId) -> Option<&mut Slot> {
        let slot = self.slots.get_mut(id.slot as usize)?;
        (slot.turn == id.turn).then_some(slot)
    }
}
