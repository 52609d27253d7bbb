//! Access to the open database, and how it is opened again after an error.
//!
//! After a disk error redb refuses everything, even reading, until the database is opened again; and it
//! cannot be opened again while another thread still uses it.

use std::ops::Deref;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use breakbulk_link::lock;
use redb::Database;

use crate::store::StoreError;

#[derive(Debug)]
pub(super) struct Open {
    state: Mutex<State>,
    /// Notified when a user is done, and when the database is no longer waited for.
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    /// `None`: it could not be opened again.
    db: Option<Arc<Database>>,
    /// Leases that are not dropped.
    users: usize,
    /// The database is closed as soon as it has no users; new ones wait.
    closing: bool,
}

/// Access to the database; it is not closed while such a lease exists.
#[derive(Debug)]
pub(in crate::store) struct Lease {
    // Dropped before the user is counted out: once there are no users the database can be closed.
    db: Arc<Database>,
    _user: User,
}

#[derive(Debug)]
struct User(Arc<Open>);

impl Open {
    pub(super) fn new(db: Database) -> Self {
        Self {
            state: Mutex::new(State {
                db: Some(Arc::new(db)),
                users: 0,
                closing: false,
            }),
            changed: Condvar::new(),
        }
    }

    /// The database for a user; waits while it is being opened again.
    pub(super) fn lease(self: &Arc<Self>, name: &Arc<str>) -> Result<Lease, StoreError> {
        let state = lock(&self.state);
        let waited = self.changed.wait_while(state, |state| state.closing);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        let db = state.db.clone().ok_or_else(|| StoreError::Failed {
            store: name.to_string(),
        })?;
        state.users += 1;
        Ok(Lease {
            db,
            _user: User(self.clone()),
        })
    }

    /// Closes the database once it has no users, and opens it again. If a user holds it for longer than
    /// `within`, it stays as it is.
    pub(super) fn again(
        &self,
        name: &Arc<str>,
        within: Duration,
        reopen: impl FnOnce() -> Result<Database, StoreError>,
    ) -> Result<(), StoreError> {
        let mut state = lock(&self.state);
        state.closing = true;
        // Reads from a broken database soon end with an error, unless the disk hangs.
        let in_use = |state: &mut State| state.users > 0;
        let waited = self.changed.wait_timeout_while(state, within, in_use);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.closing = false;
        self.changed.notify_all();
        if state.users > 0 {
            return Err(StoreError::Busy {
                store: name.to_string(),
                users: state.users,
                within,
            });
        }
        // Closed first: the file is locked while the database is open.
        state.db = None;
        state.db = Some(Arc::new(reopen()?));
        Ok(())
    }
}

impl Deref for Lease {
    type Target = Database;

    fn deref(&self) -> &Database {
        &self.db
    }
}

impl Drop for User {
    fn drop(&mut self) {
        lock(&self.0.state).users -= 1;
        self.0.changed.notify_all();
    }
}
