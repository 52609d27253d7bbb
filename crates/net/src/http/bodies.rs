//! The memory of POST bodies that are being received or wait for their link: a limit for all, shared
//! fairly. When it is reached, the connection that holds most gives up its oldest body for a connection that
//! holds less, so that bodies that never end keep no other client from posting.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};

use breakbulk_link::{Budget, Held, lock};
use tokio::sync::Notify;

/// The bodies of all connections. Clones share them.
#[derive(Clone, Debug)]
pub struct Bodies(Arc<Mutex<Table>>);

impl Bodies {
    /// At most `limit` bytes of bodies in all, which are charged to the budget as well.
    pub fn new(limit: usize, budget: Option<Budget>) -> Self {
        Self(Arc::new(Mutex::new(Table::new(limit, budget))))
    }

    /// Begins the body of an owner: one connection, or all clients that have none.
    pub fn begin(&self, owner: usize) -> BodyCharge {
        let evicted = Arc::new(Notify::new());
        let id = lock(&self.0).begin(owner, evicted.clone());
        BodyCharge {
            bodies: self.clone(),
            id,
            evicted,
        }
    }
}

/// The charge of one body, given back when it is dropped.
#[derive(Debug)]
pub struct BodyCharge {
    bodies: Bodies,
    id: u64,
    evicted: Arc<Notify>,
}

impl BodyCharge {
    /// Charges more bytes; false if there is no room for them.
    pub fn grow_to(&mut self, bytes: usize) -> bool {
        lock(&self.bodies.0).grow_to(self.id, bytes).is_some()
    }

    /// Completes when the body must be given up for another connection.
    pub fn evicted(&self) -> impl Future<Output = ()> + Send + use<> {
        let evicted = self.evicted.clone();
        async move { evicted.notified().await }
    }
}

impl Drop for BodyCharge {
    fn drop(&mut self) {
        lock(&self.bodies.0).end(self.id);
    }
}

#[derive(Debug)]
struct Table {
    limit: usize,
    used: usize,
    /// The budget of the process, which bodies are charged to as well.
    budget: Option<Budget>,
    next: u64,
    bodies: BTreeMap<u64, Body>,
    owners: HashMap<usize, usize>,
}

#[derive(Debug)]
struct Body {
    owner: usize,
    bytes: usize,
    /// Its charge to the budget, kept here so that a body that is given up releases its memory at once, for
    /// the body that needs it.
    held: Option<Held>,
    evicted: Arc<Notify>,
}

impl Table {
    fn new(limit: usize, budget: Option<Budget>) -> Self {
        Self {
            limit,
            used: 0,
            budget,
            next: 0,
            bodies: BTreeMap::new(),
            owners: HashMap::new(),
        }
    }

    fn begin(&mut self, owner: usize, evicted: Arc<Notify>) -> u64 {
        self.next += 1;
        let body = Body {
            owner,
            bytes: 0,
            held: None,
            evicted,
        };
        self.bodies.insert(self.next, body);
        *self.owners.entry(owner).or_default() += 0;
        self.next
    }

    /// Lets a body grow, and returns the numbers of the bodies that were given up for it. `None` if there is
    /// no room, or the body itself was given up.
    fn grow_to(&mut self, id: u64, bytes: usize) -> Option<Vec<u64>> {
        let body = self.bodies.get(&id)?;
        let (owner, more) = (body.owner, bytes.saturating_sub(body.bytes));
        let mut evicted = Vec::new();
        while self.used.saturating_add(more) > self.limit || !self.charge(id, bytes) {
            let own = self.owners.get(&owner).copied().unwrap_or(0);
            let most = self.owners.iter().map(|(owner, bytes)| (*bytes, *owner));
            let (held, other) = most.max()?;
            if other == owner || held <= own.saturating_add(more) {
                return None;
            }
            let oldest = self.bodies.iter().find(|(_, body)| body.owner == other);
            let oldest = oldest.map(|(id, _)| *id)?;
            self.end(oldest)?.notify_one();
            evicted.push(oldest);
        }
        self.used += more;
        self.bodies.get_mut(&id)?.bytes += more;
        *self.owners.entry(owner).or_default() += more;
        Some(evicted)
    }

    /// Charges a body to the budget; false if it has no room.
    fn charge(&mut self, id: u64, bytes: usize) -> bool {
        let (Some(budget), Some(body)) = (&self.budget, self.bodies.get_mut(&id)) else {
            return true;
        };
        match &mut body.held {
            Some(held) => held.grow_to(bytes),
            None => {
                body.held = budget.charge(bytes);
                body.held.is_some()
            }
        }
    }

    fn end(&mut self, id: u64) -> Option<Arc<Notify>> {
        let body = self.bodies.remove(&id)?;
        self.used -= body.bytes;
        let owner = self.owners.entry(body.owner).or_default();
        *owner -= body.bytes;
        if *owner == 0 {
            self.owners.remove(&body.owner);
        }
        Some(body.evicted)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn who_holds_most_gives_up_the_oldest_body_for_who_holds_less() {
        // The limit is that of the bodies, or that of a budget which others use as well.
        let (free, shared) = (Budget::unlimited(), Budget::new(110));
        let _others = shared.charge(10).unwrap();
        for (limit, budget) in [(100, free), (1000, shared)] {
            let mut table = Table::new(limit, Some(budget.clone()));
            // Bodies by their owner, their size, and which bodies are given up for them.
            for (id, owner, bytes, expected) in [
                (1, 1, 30, Some(vec![])),
                (2, 1, 30, Some(vec![])),
                (3, 2, 40, Some(vec![])),
                (4, 3, 20, Some(vec![1])),
                // No other owner holds more than this one would.
                (5, 3, 30, None),
                (6, 4, 40, None),
                (7, 4, 20, Some(vec![3])),
            ] {
                assert_eq!(table.begin(owner, Arc::default()), id);
                let evicted = table.grow_to(id, bytes);
                if evicted.is_none() {
                    table.end(id);
                }
                assert_eq!(evicted, expected, "body {id}, limit {limit}");
                assert!(table.used <= 100 && budget.used() <= 110);
            }
        }
    }
}
