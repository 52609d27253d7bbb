//! Accounts for memory, per link and per process.
//!
//! Allocated bytes are counted, plus a fixed charge for each transfer and each stashed piece, so that
//! empty and one-byte pieces are not free. A [`Charge`] returns its amount when it is dropped.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Waker;

use crate::lock;

/// What an open transfer costs before its first byte: its state, table entries, timers and the
/// first node of its stash. Measured: 905 bytes, and 280 for the node.
pub const TRANSFER_CHARGE: usize = 1280;

/// What a stashed piece costs in addition to its bytes: its share of the tree's nodes.
pub const PIECE_CHARGE: usize = 96;

/// What a complete message costs in addition to its bytes while it waits for the application.
pub const MESSAGE_CHARGE: usize = 512;

/// The memory that all links of a process share.
#[derive(Clone, Debug)]
pub struct Budget(Arc<Account>);

/// The part of the budget that one link may use.
#[derive(Clone, Debug)]
pub(crate) struct LinkBudget {
    own: Arc<Account>,
    process: Budget,
}

#[derive(Debug)]
struct Account {
    limit: usize,
    used: AtomicUsize,
    /// The part of `used` that belongs to complete messages that the application has not dropped yet.
    finished: AtomicUsize,
    /// Woken when a complete message is dropped, which happens outside of the link.
    waiting: Mutex<Option<Waker>>,
}

/// Whose budget is exhausted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exhausted {
    Link,
    Process,
}

/// Memory that is charged to a link and its process until this is dropped.
#[derive(Debug)]
pub struct Charge {
    budget: LinkBudget,
    amount: usize,
    finished: bool,
}

impl Budget {
    /// A budget of `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self(Arc::new(Account::new(limit)))
    }

    /// A budget without a limit; each link is still limited by its own configuration.
    pub fn unlimited() -> Self {
        Self::new(usize::MAX)
    }

    /// The bytes that are charged at the moment.
    pub fn used(&self) -> usize {
        self.0.used.load(Ordering::Relaxed)
    }

    /// The limit.
    pub fn limit(&self) -> usize {
        self.0.limit
    }

    /// A part of this budget for something else than a link.
    pub fn share(&self, limit: usize) -> Share {
        Share(LinkBudget::new(limit, self.clone()))
    }
}

/// A part of a [`Budget`] for something else than a link, such as messages that wait to be sent.
#[derive(Clone, Debug)]
pub struct Share(LinkBudget);

impl Share {
    /// The bytes that are charged at the moment.
    pub fn used(&self) -> usize {
        self.0.used()
    }

    /// Charges `amount` bytes; `None` if they do not fit into the share or the budget.
    pub fn charge(&self, amount: usize) -> Option<Charge> {
        self.0.charge(amount).ok()
    }

    /// Charges bytes that are allocated already, even if they do not fit: everything else that is
    /// charged to this budget has to wait until they are gone.
    pub fn charge_allocated(&self, amount: usize) -> Charge {
        self.0.own.used.fetch_add(amount, Ordering::Relaxed);
        self.0.process.0.used.fetch_add(amount, Ordering::Relaxed);
        Charge {
            budget: self.0.clone(),
            amount,
            finished: false,
        }
    }
}

impl LinkBudget {
    pub(crate) fn new(limit: usize, process: Budget) -> Self {
        Self {
            own: Arc::new(Account::new(limit)),
            process,
        }
    }

    pub(crate) fn used(&self) -> usize {
        self.own.used.load(Ordering::Relaxed)
    }

    /// The bytes of complete messages that are not dropped yet.
    pub(crate) fn finished(&self) -> usize {
        self.own.finished.load(Ordering::Relaxed)
    }

    /// Wakes the waker once, when a complete message is dropped.
    pub(crate) fn wake_when_dropped(&self, waker: &Waker) {
        *self.own.waiting() = Some(waker.clone());
    }

    /// Charges `amount` bytes; the error says whose budget is exhausted.
    pub(crate) fn charge(&self, amount: usize) -> Result<Charge, Exhausted> {
        let mut charge = Charge {
            budget: self.clone(),
            amount: 0,
            finished: false,
        };
        charge.grow(amount)?;
        Ok(charge)
    }
}

impl Account {
    fn new(limit: usize) -> Self {
        Self {
            limit,
            used: AtomicUsize::new(0),
            finished: AtomicUsize::new(0),
            waiting: Mutex::new(None),
        }
    }

    fn waiting(&self) -> std::sync::MutexGuard<'_, Option<Waker>> {
        lock(&self.waiting)
    }

    fn take(&self, amount: usize) -> bool {
        let fits = |used: usize| used.checked_add(amount).filter(|&sum| sum <= self.limit);
        self.used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits)
            .is_ok()
    }

    fn give_back(&self, amount: usize) {
        self.used.fetch_sub(amount, Ordering::Relaxed);
    }
}

impl Charge {
    /// The charged bytes.
    pub fn amount(&self) -> usize {
        self.amount
    }

    pub(crate) fn grow(&mut self, by: usize) -> Result<(), Exhausted> {
        if !self.budget.own.take(by) {
            return Err(Exhausted::Link);
        }
        if !self.budget.process.0.take(by) {
            self.budget.own.give_back(by);
            return Err(Exhausted::Process);
        }
        self.amount += by;
        Ok(())
    }

    /// Marks the charge as that of a complete message.
    pub(crate) fn finish(&mut self) {
        let finished = &self.budget.own.finished;
        if !std::mem::replace(&mut self.finished, true) {
            finished.fetch_add(self.amount, Ordering::Relaxed);
        }
    }

    pub(crate) fn shrink(&mut self, by: usize) {
        let by = by.min(self.amount);
        self.amount -= by;
        if self.finished {
            let finished = &self.budget.own.finished;
            finished.fetch_sub(by, Ordering::Relaxed);
        }
        self.budget.own.give_back(by);
        self.budget.process.0.give_back(by);
        if self.finished {
            let waiting = self.budget.own.waiting().take();
            if let Some(waker) = waiting {
                waker.wake();
            }
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.shrink(self.amount);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_takes_part_of_the_budget() {
        let process = Budget::new(150);
        let (link, share) = (LinkBudget::new(100, process.clone()), process.share(60));
        assert!(share.charge(61).is_none());
        let charge = share.charge(60).unwrap();
        assert_eq!(link.charge(91).map(|_| ()), Err(Exhausted::Process));
        // What is there already is charged, and nothing else fits until it is gone.
        let allocated = share.charge_allocated(100);
        assert_eq!((share.used(), process.used()), (160, 160));
        assert_eq!(link.charge(1).map(|_| ()), Err(Exhausted::Process));
        drop((charge, allocated));
        assert_eq!((share.used(), process.used()), (0, 0));
        assert!(link.charge(100).is_ok());
    }

    #[test]
    fn both_limits_hold_and_everything_comes_back() {
        let process = Budget::new(150);
        let (one, two) = (
            LinkBudget::new(100, process.clone()),
            LinkBudget::new(100, process.clone()),
        );
        let mut charge = one.charge(90).unwrap();
        assert_eq!(charge.grow(11), Err(Exhausted::Link));
        assert_eq!(two.charge(61).map(|_| ()), Err(Exhausted::Process));
        assert_eq!((one.used(), two.used(), process.used()), (90, 0, 90));
        charge.shrink(40);
        let other = two.charge(100).unwrap();
        assert_eq!(process.used(), 150);
        drop((charge, other));
        assert_eq!((one.used(), two.used(), process.used()), (0, 0, 0));
    }
}
