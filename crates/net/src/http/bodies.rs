//! The memory of POST bodies that are being received or wait for their link: a limit for all, shared
//! fairly. When it is reached, the connection that holds most gives up its oldest body for a connection
//! that holds less, so that bodies that never end keep nobody else from posting.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};

use breakbulk_link::{Budget, Held, lock};
use tokio::sync::Notify;

/// The bodies of all connections. Clones share them.
#[derive(Clone, Debug)]
pub struct Bodies {
    table: Arc<Mutex<Table<Arc<Notify>>>>,
    /// The budget of the process, which they are charged to as well.
    budget: Option<Budget>,
}

impl Bodies {
    /// At most `limit` bytes of bodies in all, which are charged to the budget as well.
    pub fn new(limit: usize, budget: Option<Budget>) -> Self {
        Self {
            table: Arc::new(Mutex::new(Table::new(limit))),
            budget,
        }
    }

    /// Begins the body of an owner: one connection, or all clients that have none.
    pub fn begin(&self, owner: usize) -> BodyCharge {
        let evicted = Arc::new(Notify::new());
        let id = lock(&self.table).begin(owner, evicted.clone());
        BodyCharge {
            bodies: self.clone(),
            id,
            evicted,
            held: None,
        }
    }
}

/// The charge of one body, given back when it is dropped.
#[derive(Debug)]
pub struct BodyCharge {
    bodies: Bodies,
    id: u64,
    evicted: Arc<Notify>,
    held: Option<Held>,
}

impl BodyCharge {
    /// Charges more bytes; false if there is no room for them.
    pub fn grow_to(&mut self, bytes: usize) -> bool {
        let Some(evicted) = lock(&self.bodies.table).grow_to(self.id, bytes) else {
            return false;
        };
        for notify in evicted {
            notify.notify_one();
        }
        match (&mut self.held, &self.bodies.budget) {
            (_, None) => true,
            (Some(held), _) => held.grow_to(bytes),
            (held, Some(budget)) => {
                *held = budget.charge(bytes);
                held.is_some()
            }
        }
    }

    /// Done when the body must be given up for somebody else.
    pub fn evicted(&self) -> impl Future<Output = ()> + Send + use<> {
        let evicted = self.evicted.clone();
        async move { evicted.notified().await }
    }
}

impl Drop for BodyCharge {
    fn drop(&mut self) {
        lock(&self.bodies.table).end(self.id);
    }
}

#[derive(Debug)]
struct Table<T> {
    limit: usize,
    used: usize,
    next: u64,
    bodies: BTreeMap<u64, Body<T>>,
    owners: HashMap<usize, usize>,
}

#[derive(Debug)]
struct Body<T> {
    owner: usize,
    bytes: usize,
    holder: T,
}

impl<T> Table<T> {
    fn new(limit: usize) -> Self {
        Self {
            limit,
            used: 0,
            next: 0,
            bodies: BTreeMap::new(),
            owners: HashMap::new(),
        }
    }

    fn begin(&mut self, owner: usize, holder: T) -> u64 {
        self.next += 1;
        let body = Body {
            owner,
            bytes: 0,
            holder,
        };
        self.bodies.insert(self.next, body);
        *self.owners.entry(owner).or_default() += 0;
        self.next
    }

    /// Lets a body grow, and returns the holders of those that were given up for it. `None` if there
    /// is no room, or the body itself was given up.
    fn grow_to(&mut self, id: u64, bytes: usize) -> Option<Vec<T>> {
        let body = self.bodies.get(&id)?;
        let (owner, more) = (body.owner, bytes.saturating_sub(body.bytes));
        let mut evicted = Vec::new();
        while self.used.saturating_add(more) > self.limit {
            let own = self.owners.get(&owner).copied().unwrap_or(0);
            let most = self.owners.iter().map(|(owner, bytes)| (*bytes, *owner));
            let (held, other) = most.max()?;
            if other == owner || held <= own.saturating_add(more) {
                return None;
            }
            let oldest = self.bodies.iter().find(|(_, body)| body.owner == other);
            let oldest = oldest.map(|(id, _)| *id)?;
            evicted.extend(self.end(oldest));
        }
        self.used += more;
        self.bodies.get_mut(&id)?.bytes += more;
        *self.owners.entry(owner).or_default() += more;
        Some(evicted)
    }

    fn end(&mut self, id: u64) -> Option<T> {
        let body = self.bodies.remove(&id)?;
        self.used -= body.bytes;
        let owner = self.owners.entry(body.owner).or_default();
        *owner -= body.bytes;
        if *owner == 0 {
            self.owners.remove(&body.owner);
        }
        Some(body.holder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_holds_most_gives_up_the_oldest_body_for_who_holds_less() {
        let mut table = Table::new(100);
        // Bodies by their owner, their size, and which bodies are given up for them.
        for (step, (owner, bytes, expected)) in [
            (1, 30, Some(vec![])),
            (1, 30, Some(vec![])),
            (2, 40, Some(vec![])),
            (3, 20, Some(vec![0])),
            // Nobody holds more than this one would.
            (3, 30, None),
            (4, 40, None),
            (4, 20, Some(vec![2])),
        ]
        .into_iter()
        .enumerate()
        {
            let id = table.begin(owner, step);
            let evicted = table.grow_to(id, bytes);
            if evicted.is_none() {
                table.end(id);
            }
            assert_eq!(evicted, expected, "step {step}");
            assert!(table.used <= 100);
        }
    }
}
