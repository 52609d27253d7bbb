//! Charges an incoming message to a budget while it is incomplete: the link charges only complete frames.

use breakbulk_link::{Budget, Held};

use crate::connection::UNCHARGED;

/// The reason of the close if there is no memory for an unfinished message.
pub(crate) const NO_MEMORY: &str =
    "no memory for an unfinished message at the moment: try again later";

/// What the unfinished message of one connection is charged to.
#[derive(Debug, Default)]
pub(crate) struct Unfinished {
    budget: Option<Budget>,
    held: Option<Held>,
}

impl Unfinished {
    /// Charges to this budget from now on; what is held already stays where it is until it is released.
    pub(crate) fn charge_to(&mut self, budget: &Budget) {
        self.budget = Some(budget.clone());
    }

    /// Charges what a message holds so far; false if there is no room for it.
    pub(crate) fn charge(&mut self, bytes: usize) -> bool {
        match (&mut self.held, &self.budget) {
            _ if bytes <= UNCHARGED => true,
            (_, None) => true,
            (Some(held), _) => held.grow_to(bytes),
            (None, Some(budget)) => {
                self.held = budget.charge(bytes);
                self.held.is_some()
            }
        }
    }

    /// The buffer has become smaller, or a message was taken out of it: returns what is charged beyond
    /// these bytes.
    pub(crate) fn shrink(&mut self, bytes: usize) {
        match &mut self.held {
            Some(held) if bytes > UNCHARGED => held.shrink_to(bytes),
            _ => self.held = None,
        }
    }

    /// The message is whole, or given up.
    pub(crate) fn release(&mut self) {
        self.held = None;
    }
}
