//! Open connections by peer id, for event streams and polling: it tells which connection a POST or a
//! poll belongs to.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use breakbulk_link::Closed;
use breakbulk_link::lock;

use super::connection::{HttpConnection, closed};

/// Holds at most as many entries as there are connection permits.
#[derive(Debug, Default)]
pub(crate) struct Registry(Mutex<HashMap<String, Arc<HttpConnection>>>);

impl Registry {
    /// The open connection of a peer id.
    pub(crate) fn find(&self, peer_id: &str) -> Option<Arc<HttpConnection>> {
        let connection = self.lock().get(peer_id).cloned()?;
        (!connection.is_over()).then_some(connection)
    }

    /// Adds a connection; an earlier one with the same peer id ends.
    pub(crate) fn put(&self, connection: Arc<HttpConnection>) {
        let old = self
            .lock()
            .insert(connection.peer_id().to_owned(), connection);
        if let Some(old) = old {
            old.end(replaced());
        }
    }

    /// Removes a connection, unless a newer one of the same peer id has replaced it.
    pub(crate) fn remove(&self, connection: &Arc<HttpConnection>) {
        let mut connections = self.lock();
        if connections
            .get(connection.peer_id())
            .is_some_and(|known| Arc::ptr_eq(known, connection))
        {
            connections.remove(connection.peer_id());
        }
    }

    /// The open connections whose clients send single requests, and can be away.
    pub(crate) fn polling(&self) -> Vec<Arc<HttpConnection>> {
        let connections = self.lock();
        let polling = connections.values().filter(|it| it.presence().is_some());
        polling.cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<HttpConnection>>> {
        lock(&self.0)
    }
}

/// The close of a connection that was replaced, with the text of the original implementation.
pub(crate) fn replaced() -> Closed {
    closed(1000, "Replaced by new connection")
}
