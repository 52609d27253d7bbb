//! Which connection a peer id stands for at the moment, for those ways whose requests must be brought
//! together: a POST belongs to an event stream or to polls.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use breakbulk_link::Closed;

use super::connection::{HttpConnection, closed};

/// As many as there are leaves for connections.
#[derive(Debug, Default)]
pub(crate) struct Registry(Mutex<HashMap<String, Arc<HttpConnection>>>);

impl Registry {
    /// The connection that a peer id stands for.
    pub(crate) fn find(&self, peer_id: &str) -> Option<Arc<HttpConnection>> {
        let connection = self.lock().get(peer_id).cloned()?;
        (!connection.is_over()).then_some(connection)
    }

    /// A peer came in; if it was here before, that connection is over.
    pub(crate) fn put(&self, connection: Arc<HttpConnection>) {
        let old = self
            .lock()
            .insert(connection.peer_id().to_owned(), connection);
        if let Some(old) = old {
            old.end(replaced());
        }
    }

    /// A connection ended. The peer may have come back meanwhile: that one stays.
    pub(crate) fn remove(&self, connection: &Arc<HttpConnection>) {
        let mut connections = self.lock();
        if connections
            .get(connection.peer_id())
            .is_some_and(|known| Arc::ptr_eq(known, connection))
        {
            connections.remove(connection.peer_id());
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<HttpConnection>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the original tells a connection whose peer has come back.
pub(crate) fn replaced() -> Closed {
    closed(1000, "Replaced by new connection")
}
