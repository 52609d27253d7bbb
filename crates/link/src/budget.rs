//! Accounts for memory, per link and per process.
//!
//! Allocated bytes are counted, plus a fixed charge for each transfer and each stashed piece, so that
//! empty and one-byte pieces are not free. A [`Charge`] returns its amount when it is dropped.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Waker;

use crate::lock;

/// What an open transfer costs before its first byte: its state, table entries, timers, a running digest
/// and the first node of its stash. Measured: 911 bytes, 112 for the state of SHA-256, and 280 for the node,
/// which comes with a first stashed piece and its [`PIECE_CHARGE`].
pub const TRANSFER_CHARGE: usize = 1280;

/// What a stashed piece costs in addition to its bytes: its share of the tree's nodes.
pub const PIECE_CHARGE: usize = 96;

/// What a complete message costs in addition to its bytes while it waits for the application.
pub const MESSAGE_CHARGE: usize = 512;

/// The memory that all links of a process share.
#[derive(Clone, Debug)]
pub struct Budget(Arc<Account>);

/// The part of the budget that one link may use. Both accounts are behind one `Arc`, since each message holds
/// a clone of it.
#[derive(Clone, Debug)]
pub(crate) struct LinkBudget(Arc<LinkAccounts>);

#[derive(Debug)]
struct LinkAccounts {
    own: Account,
    process: Budget,
}

#[derive(Debug)]
struct Account {
    limit: AtomicUsize,
    used: AtomicUsize,
    /// The part of `used` that the link itself holds. The rest belongs to complete messages that the
    /// application has not dropped yet: this way a complete message changes no counter but `used`.
    unfinished: AtomicUsize,
    /// Woken when a complete message is dropped, which happens outside of the link.
    waiting: Mutex<Option<Waker>>,
    /// Whether there is such a waker: so that dropping a message takes no lock while nobody waits.
    has_waiting: AtomicBool,
    /// The budget that this one is a part of.
    share: Option<Share>,
}

#[derive(Debug)]
struct Share {
    common: Budget,
    reserved: usize,
    used: Mutex<usize>,
}

impl Share {
    /// Charges `amount` bytes; what exceeds the reserved bytes is charged to the common budget. False if that
    /// has no room.
    fn take(&self, amount: usize) -> bool {
        let mut used = lock(&self.used);
        let Some(sum) = used.checked_add(amount) else {
            return false;
        };
        let (before, after) = (self.beyond(*used), self.beyond(sum));
        if after > before && !self.common.0.take_fairly(after - before, after) {
            return false;
        }
        *used = sum;
        true
    }

    /// Charges bytes even if that exceeds the limit.
    fn take_anyway(&self, amount: usize) {
        let mut used = lock(&self.used);
        let sum = used.saturating_add(amount);
        self.common
            .0
            .take_anyway(self.beyond(sum) - self.beyond(*used));
        *used = sum;
    }

    fn give_back(&self, amount: usize) {
        let mut used = lock(&self.used);
        let left = used.saturating_sub(amount);
        let (before, after) = (self.beyond(*used), self.beyond(left));
        self.common.0.give_back(before - after);
        *used = left;
    }

    fn beyond(&self, used: usize) -> usize {
        used.saturating_sub(self.reserved)
    }
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
    /// Whether it counts as something that the link itself holds.
    unfinished: bool,
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
        self.0.limit()
    }

    /// Changes the limit. What is charged stays charged: if it is more than the new limit, nothing else
    /// fits until enough of it is gone.
    pub fn set_limit(&self, limit: usize) {
        self.0.limit.store(limit, Ordering::Relaxed);
    }

    /// A part of this budget, of at most `limit` bytes, for something else than a link.
    pub fn part(&self, limit: usize) -> SubBudget {
        SubBudget(LinkBudget::new(limit, self.clone()))
    }

    /// A part of this budget for one user, of which `reserved` bytes are always available. What the user
    /// takes beyond them is charged to this budget (whose limit should leave out all reserved bytes), and may
    /// be at most twice what is then left of it. So a few greedy users cannot take everything, and users who
    /// need little never compete with them.
    pub fn share(&self, reserved: usize) -> Self {
        Self(Arc::new(Account {
            share: Some(Share {
                common: self.clone(),
                reserved,
                used: Mutex::new(0),
            }),
            ..Account::new(usize::MAX)
        }))
    }

    /// Charges bytes that belong to no link; `None` if there is no room for them.
    pub fn charge(&self, amount: usize) -> Option<Held> {
        let mut held = Held {
            budget: self.clone(),
            amount: 0,
        };
        held.grow_to(amount).then_some(held)
    }

    /// Charges bytes that are allocated already, even if they do not fit: everything else that is
    /// charged to this budget has to wait until they are gone.
    pub fn charge_allocated(&self, amount: usize) -> Held {
        self.0.take_anyway(amount);
        Held {
            budget: self.clone(),
            amount,
        }
    }
}

/// A part of a [`Budget`] for something else than a link, such as messages that wait to be sent.
#[derive(Clone, Debug)]
pub struct SubBudget(LinkBudget);

impl SubBudget {
    /// The bytes that are charged at the moment.
    pub fn used(&self) -> usize {
        self.0.used()
    }

    /// Charges `amount` bytes; `None` if they do not fit into the part or the budget.
    pub fn charge(&self, amount: usize) -> Option<Charge> {
        self.0.charge_finished(amount).ok()
    }

    /// Charges bytes that are allocated already, even if they do not fit: everything else that is
    /// charged to this budget has to wait until they are gone.
    pub fn charge_allocated(&self, amount: usize) -> Charge {
        self.0.own().take_anyway(amount);
        self.0.process().0.take_anyway(amount);
        Charge {
            budget: self.0.clone(),
            amount,
            unfinished: false,
        }
    }
}

/// Memory that is charged to a budget until this is dropped.
#[derive(Debug)]
pub struct Held {
    budget: Budget,
    amount: usize,
}

impl Held {
    /// Charges more, up to `amount` bytes in all; false if there is no room for them.
    pub fn grow_to(&mut self, amount: usize) -> bool {
        let more = amount.saturating_sub(self.amount);
        let granted = self.budget.0.take(more);
        if granted {
            self.amount += more;
        }
        granted
    }

    /// Returns what is charged beyond `amount` bytes.
    pub fn shrink_to(&mut self, amount: usize) {
        let less = self.amount.saturating_sub(amount);
        self.amount -= less;
        self.budget.0.give_back(less);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.budget.0.give_back(self.amount);
    }
}

impl LinkBudget {
    pub(crate) fn new(limit: usize, process: Budget) -> Self {
        let own = Account::new(limit);
        Self(Arc::new(LinkAccounts { own, process }))
    }

    fn own(&self) -> &Account {
        &self.0.own
    }

    pub(crate) fn used(&self) -> usize {
        self.own().used.load(Ordering::Relaxed)
    }

    pub(crate) fn process(&self) -> &Budget {
        &self.0.process
    }

    /// The bytes of complete messages that are not dropped yet. Only for the link itself: nobody else changes
    /// `unfinished`, so the two counters match while the link reads them.
    pub(crate) fn finished(&self) -> usize {
        let own = self.own();
        // `SeqCst`, like `has_waiting`: a task that registers its waker and then reads this misses no drop.
        let used = own.used.load(Ordering::SeqCst);
        used.saturating_sub(own.unfinished.load(Ordering::Relaxed))
    }

    /// Wakes the waker once, when a complete message is dropped.
    pub(crate) fn wake_when_dropped(&self, waker: &Waker) {
        let own = self.own();
        *own.waiting() = Some(waker.clone());
        own.has_waiting.store(true, Ordering::SeqCst);
    }

    /// Charges `amount` bytes for something that the link itself holds; the error says whose budget is
    /// exhausted.
    pub(crate) fn charge(&self, amount: usize) -> Result<Charge, Exhausted> {
        let mut charge = self.charge_finished(amount)?;
        charge.unfinished = true;
        charge.held_by_link().fetch_add(amount, Ordering::Relaxed);
        Ok(charge)
    }

    /// Charges `amount` bytes for a complete message.
    #[inline]
    pub(crate) fn charge_finished(&self, amount: usize) -> Result<Charge, Exhausted> {
        self.take(amount)?;
        Ok(Charge {
            budget: self.clone(),
            amount,
            unfinished: false,
        })
    }

    #[inline]
    fn take(&self, amount: usize) -> Result<(), Exhausted> {
        if !self.own().take(amount) {
            return Err(Exhausted::Link);
        }
        if !self.process().0.take(amount) {
            self.own().give_back(amount);
            return Err(Exhausted::Process);
        }
        Ok(())
    }
}

impl Account {
    fn new(limit: usize) -> Self {
        Self {
            limit: AtomicUsize::new(limit),
            used: AtomicUsize::new(0),
            unfinished: AtomicUsize::new(0),
            waiting: Mutex::new(None),
            has_waiting: AtomicBool::new(false),
            share: None,
        }
    }

    fn limit(&self) -> usize {
        self.limit.load(Ordering::Relaxed)
    }

    fn waiting(&self) -> std::sync::MutexGuard<'_, Option<Waker>> {
        lock(&self.waiting)
    }

    #[inline(always)]
    fn take(&self, amount: usize) -> bool {
        if self.share.as_ref().is_some_and(|share| !share.take(amount)) {
            return false;
        }
        let limit = self.limit();
        let fits = |used: usize| used.checked_add(amount).filter(|&sum| sum <= limit);
        let taken = self
            .used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits)
            .is_ok();
        if !taken && let Some(share) = &self.share {
            share.give_back(amount);
        }
        taken
    }

    /// Charges bytes even if that exceeds the limit.
    fn take_anyway(&self, amount: usize) {
        if let Some(share) = &self.share {
            share.take_anyway(amount);
        }
        self.used.fetch_add(amount, Ordering::Relaxed);
    }

    /// Takes bytes for a user who would have `total` of them, if that is at most twice what is left.
    fn take_fairly(&self, amount: usize, total: usize) -> bool {
        let limit = self.limit();
        let fits = |used: usize| {
            let sum = used.checked_add(amount).filter(|&sum| sum <= limit)?;
            (total <= (limit - sum).saturating_mul(2)).then_some(sum)
        };
        self.used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits)
            .is_ok()
    }

    #[inline]
    fn give_back(&self, amount: usize) {
        if let Some(share) = &self.share {
            share.give_back(amount);
        }
        // `SeqCst`, like `has_waiting`: see `LinkBudget::finished`.
        self.used.fetch_sub(amount, Ordering::SeqCst);
    }

    #[cold]
    fn wake(&self) {
        self.has_waiting.store(false, Ordering::SeqCst);
        let waiting = self.waiting().take();
        if let Some(waker) = waiting {
            waker.wake();
        }
    }
}

impl Charge {
    /// The charged bytes.
    pub fn amount(&self) -> usize {
        self.amount
    }

    pub(crate) fn grow(&mut self, by: usize) -> Result<(), Exhausted> {
        self.budget.take(by)?;
        if self.unfinished {
            self.held_by_link().fetch_add(by, Ordering::Relaxed);
        }
        self.amount += by;
        Ok(())
    }

    /// Marks the charge as that of a complete message.
    pub(crate) fn finish(&mut self) {
        if std::mem::replace(&mut self.unfinished, false) {
            self.held_by_link()
                .fetch_sub(self.amount, Ordering::Relaxed);
        }
    }

    fn held_by_link(&self) -> &AtomicUsize {
        &self.budget.own().unfinished
    }

    #[inline]
    pub(crate) fn shrink(&mut self, by: usize) {
        let by = by.min(self.amount);
        if by == 0 {
            return;
        }
        self.amount -= by;
        if self.unfinished {
            self.held_by_link().fetch_sub(by, Ordering::Relaxed);
        }
        let own = self.budget.own();
        self.budget.process().0.give_back(by);
        own.give_back(by);
        if !self.unfinished && own.has_waiting.load(Ordering::SeqCst) {
            own.wake();
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
    fn a_part_takes_some_of_the_budget() {
        let process = Budget::new(150);
        let (link, part) = (LinkBudget::new(100, process.clone()), process.part(60));
        assert!(part.charge(61).is_none());
        let charge = part.charge(60).unwrap();
        assert_eq!(link.charge(91).map(|_| ()), Err(Exhausted::Process));
        // Bytes that are allocated already are always charged, and nothing else fits until they are gone.
        let allocated = part.charge_allocated(100);
        assert_eq!((part.used(), process.used()), (160, 160));
        assert_eq!(link.charge(1).map(|_| ()), Err(Exhausted::Process));
        drop((charge, allocated));
        assert_eq!((part.used(), process.used()), (0, 0));
        assert!(link.charge(100).is_ok());
    }

    // WS-5
    #[test]
    fn a_share_is_always_there_and_the_rest_is_shared_fairly() {
        let common = Budget::new(90);
        let [greedy, other, modest] = [10, 10, 10].map(|reserved| common.share(reserved));
        // Beyond what is reserved one user gets two thirds of all.
        let mut held = greedy.charge(70).unwrap();
        assert!(!held.grow_to(71));
        assert_eq!((common.used(), greedy.used()), (60, 70));
        // Returned bytes are available again.
        held.shrink_to(20);
        held.shrink_to(50);
        assert_eq!((common.used(), greedy.used()), (10, 20));
        assert!(held.grow_to(70));
        // The next user gets two thirds of the rest.
        let second = other.charge(30).unwrap();
        assert!(other.charge(1).is_none());
        assert_eq!(common.used(), 80);
        // A user who needs little is not affected.
        let third = modest.charge(10).unwrap();
        assert_eq!(common.used(), 80);
        drop((held, second, third));
        assert_eq!((common.used(), greedy.used(), modest.used()), (0, 0, 0));
        assert!(modest.charge(70).is_some());
    }

    // OPS-3
    #[test]
    fn a_limit_can_change_and_what_is_charged_stays_charged() {
        let budget = Budget::new(100);
        let held = budget.charge(80).unwrap();
        budget.set_limit(50);
        assert!(budget.charge(1).is_none());
        assert_eq!((budget.used(), budget.limit()), (80, 50));
        budget.set_limit(200);
        let more = budget.charge(120).unwrap();
        drop((held, more));
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn what_the_link_holds_itself_is_no_complete_message() {
        let link = LinkBudget::new(100, Budget::unlimited());
        let mut transfer = link.charge(10).unwrap();
        let message = link.charge_finished(20).unwrap();
        assert_eq!((link.used(), link.finished()), (30, 20));
        transfer.grow(30).unwrap();
        transfer.shrink(5);
        assert_eq!(link.charge(51).map(|_| ()), Err(Exhausted::Link));
        assert_eq!((link.used(), link.finished()), (55, 20));
        // A transfer that becomes a message keeps its charge.
        transfer.finish();
        assert_eq!((link.used(), link.finished()), (55, 55));
        let report = link.charge(1).unwrap();
        drop((message, transfer));
        assert_eq!((link.used(), link.finished()), (1, 0));
        drop(report);
        assert_eq!((link.used(), link.finished()), (0, 0));
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
