//! Requests from the peer without a reply.

use std::collections::BTreeMap;

use super::{Config, RequestId};

/// Bytes charged for a request in addition to its own.
const REQUEST_CHARGE: usize = 256;

/// Requests without a reply.
#[derive(Debug, Default)]
pub(super) struct Requests {
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// The cancellable ones, by the peer's number. Of two with the same number the later is kept.
    cancellable: BTreeMap<u32, RequestId>,
    bytes: usize,
}

#[derive(Debug, Default)]
struct Slot {
    generation: u32,
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
                // The limit on running requests is far lower.
                u32::try_from(self.slots.len() - 1).unwrap_or(u32::MAX)
            }
        };
        let mut generation = 0;
        if let Some(free) = self.slots.get_mut(slot as usize) {
            free.generation = free.generation.wrapping_add(1);
            free.running = running;
            generation = free.generation;
        }
        self.bytes += charge;
        let id = RequestId {
            slot,
            generation,
            req,
        };
        if cancellable {
            self.cancellable.insert(req, id);
        }
        id
    }

    /// Marks a request as acknowledged; returns the peer's number, the first time.
    pub(super) fn acknowledge(&mut self, id: RequestId) -> Option<u32> {
        let running = self.slot(id)?.running.as_mut()?;
        let first = !std::mem::replace(&mut running.acknowledged, true);
        first.then_some(id.req)
    }

    /// The request that a cancellation is for, the first time.
    pub(super) fn cancel(&mut self, req: u32) -> Option<RequestId> {
        self.cancellable.remove(&req)
    }

    /// Ends a request; returns the peer's number, if the request ran.
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
        (slot.generation == id.generation).then_some(slot)
    }
}
