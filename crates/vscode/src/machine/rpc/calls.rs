//! Calls to the peer without a reply: their numbers and states.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Calls without a reply.
#[derive(Debug, Default)]
pub(super) struct Calls {
    last: u32,
    pending: HashMap<u32, Pending, CallIdHashBuilder>,
}

#[derive(Debug, Clone, Copy)]
struct Pending {
    cancellable: bool,
    forgotten: bool,
}

/// Whether a reply was expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    Wanted,
    Forgotten,
    Unknown,
}

impl Calls {
    pub(super) fn len(&self) -> usize {
        self.pending.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    pub(super) fn is_pending(&self, req: u32) -> bool {
        self.pending.contains_key(&req)
    }

    /// The next free number after the last one, except for 0. The limit on calls is far below the
    /// number of numbers, so one is free.
    pub(super) fn begin(&mut self, cancellable: bool) -> u32 {
        loop {
            self.last = self.last.wrapping_add(1);
            if self.last != 0 && !self.pending.contains_key(&self.last) {
                break;
            }
        }
        let pending = Pending {
            cancellable,
            forgotten: false,
        };
        self.pending.insert(self.last, pending);
        self.last
    }

    /// Whether a cancellation is to be sent: once, and only if the call is cancellable.
    pub(super) fn cancel(&mut self, req: u32) -> bool {
        let pending = self.pending.get_mut(&req);
        pending.is_some_and(|pending| std::mem::take(&mut pending.cancellable))
    }

    pub(super) fn forget(&mut self, req: u32) {
        if let Some(pending) = self.pending.get_mut(&req) {
            pending.forgotten = true;
        }
    }

    pub(super) fn end(&mut self, req: u32) -> Ended {
        match self.pending.remove(&req) {
            None => Ended::Unknown,
            Some(pending) if pending.forgotten => Ended::Forgotten,
            Some(_) => Ended::Wanted,
        }
    }

    /// Ends all calls; returns those that are not forgotten, in order.
    pub(super) fn end_all(&mut self) -> Vec<u32> {
        let pending = std::mem::take(&mut self.pending);
        let mut wanted: Vec<u32> = pending
            .into_iter()
            .filter_map(|(req, pending)| (!pending.forgotten).then_some(req))
            .collect();
        wanted.sort_unstable();
        wanted
    }

    pub(super) fn set_last_id(&mut self, last: u32) {
        self.last = last;
    }
}

/// A fast hasher for call numbers. This side assigns them consecutively, so a peer cannot choose
/// colliding ones.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct CallIdHasher(u64);

/// For tables by call number.
pub(crate) type CallIdHashBuilder = BuildHasherDefault<CallIdHasher>;

impl Hasher for CallIdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u32(u32::from(byte));
        }
    }

    fn write_u32(&mut self, number: u32) {
        // An odd multiplier spreads the number over the high bits, which the hash table uses too.
        self.0 = (self.0 ^ u64::from(number)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 ^= self.0 >> 32;
    }
}
