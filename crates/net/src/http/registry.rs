//! Which connection a peer id stands for at the moment, for those ways whose requests must be brought
//! together: a POST belongs to an event stream or to polls.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use breakbulk_link::Closed;

use super::line::{Line, closed};

/// As many as there are leaves for connections.
#[derive(Debug, Default)]
pub(crate) struct Registry(Mutex<HashMap<String, Arc<Line>>>);

impl Registry {
    /// The connection that a peer id stands for.
    pub(crate) fn find(&self, peer_id: &str) -> Option<Arc<Line>> {
        let line = self.lock().get(peer_id).cloned()?;
        (!line.is_over()).then_some(line)
    }

    /// A peer came in; if it was here before, that connection is over.
    pub(crate) fn put(&self, line: Arc<Line>) {
        let old = self.lock().insert(line.peer_id().to_owned(), line);
        if let Some(old) = old {
            old.end(replaced());
        }
    }

    /// A connection ended. The peer may have come back meanwhile: that one stays.
    pub(crate) fn remove(&self, line: &Arc<Line>) {
        let mut lines = self.lock();
        if lines
            .get(line.peer_id())
            .is_some_and(|known| Arc::ptr_eq(known, line))
        {
            lines.remove(line.peer_id());
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<Line>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the original tells a connection whose peer has come back.
pub(crate) fn replaced() -> Closed {
    closed(1000, "Replaced by new connection")
}
