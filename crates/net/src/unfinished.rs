//! The memory of a message of which only a part has arrived.

use breakbulk_link::{Budget, Closed, Held};

use crate::connection::UNCHARGED;

/// What an unfinished incoming message is charged to.
#[derive(Debug, Default)]
pub(crate) struct Unfinished {
    budget: Option<Budget>,
    held: Option<Held>,
}

impl Unfinished {
    pub(crate) fn charge_to(&mut self, budget: &Budget) {
        self.budget = Some(budget.clone());
    }

    /// Charges what a message holds so far. If there is no room for it, the connection has to be closed as
    /// returned, or to wait without reading.
    pub(crate) fn charge(&mut self, bytes: usize) -> Result<(), Closed> {
        let granted = match (&mut self.held, &self.budget) {
            _ if bytes <= UNCHARGED => true,
            (_, None) => true,
            (Some(held), _) => held.grow_to(bytes),
            (None, Some(budget)) => {
                self.held = budget.charge(bytes);
                self.held.is_some()
            }
        };
        match granted {
            true => Ok(()),
            false => Err(Closed {
                code: 1013,
                reason: "no memory for an unfinished message at the moment: try again later"
                    .to_owned(),
            }),
        }
    }

    /// The message is whole, and charged by whoever takes it, or it is given up.
    pub(crate) fn finished(&mut self) {
        self.held = None;
    }
}
