//! One way to lock a mutex.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex, also after a panic under it: what these crates keep under a lock is whole between any
/// two statements.
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
