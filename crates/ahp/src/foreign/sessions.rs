//! What is remembered of clients between their connections, by clientId.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use breakbulk_link::lock;
use breakbulk_message::ahp::Chunking;

use crate::Defence;
use crate::config::Slow;

/// The most clients that are remembered, since anyone can make up clientIds.
const CLIENTS: usize = 4096;

/// A clientId longer than this is not remembered.
const ID: usize = 1024;

/// What is remembered of the clients of one process. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Sessions(Arc<Mutex<Table>>);

#[derive(Debug, Default)]
struct Table {
    clients: BTreeMap<String, Session>,
    clock: u64,
}

/// What is remembered of one client.
#[derive(Clone, Debug, Default)]
pub(super) struct Session {
    pub(super) defence: Defence,
    /// The limits that the other side of the capped link has advertised.
    pub(super) peer: Option<Chunking>,
    /// Set if a transfer took longer than the client waits.
    pub(super) slow: Option<Slow>,
    /// When it was last used, on the table's `clock`.
    used: u64,
    /// Its open connections.
    connected: u32,
}

impl Sessions {
    fn lock(&self) -> MutexGuard<'_, Table> {
        lock(&self.0)
    }

    /// Calls `work` with what is remembered of a client, if it is.
    pub(super) fn with<R>(&self, client: &str, work: impl FnOnce(&mut Session) -> R) -> Option<R> {
        let mut table = self.lock();
        table.clock += 1;
        let clock = table.clock;
        let session = table.clients.get_mut(client)?;
        session.used = clock;
        Some(work(session))
    }

    /// A client is connected. Returns whether it is remembered, which then lasts at least until it leaves.
    pub(super) fn connected(&self, client: &str) -> bool {
        if client.len() > ID {
            return false;
        }
        let mut table = self.lock();
        if !table.clients.contains_key(client) && table.clients.len() >= CLIENTS {
            let idle = |(_, session): &(&String, &Session)| session.connected == 0;
            let oldest = table.clients.iter().filter(idle);
            let oldest = oldest.min_by_key(|(_, session)| session.used);
            let Some(oldest) = oldest.map(|(name, _)| name.clone()) else {
                return false;
            };
            table.clients.remove(&oldest);
        }
        table
            .clients
            .entry(client.to_owned())
            .or_default()
            .connected += 1;
        true
    }

    /// One connection of a client has ended.
    pub(super) fn left(&self, client: &str) {
        self.with(client, |session| session.connected -= 1);
    }
}
