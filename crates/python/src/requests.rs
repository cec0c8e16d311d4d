//! Requests under way, which a fork of the process waits for.

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

static REQUESTS: RwLock<()> = RwLock::new(());

/// Held by each request on a file: the process does not fork meanwhile.
pub(crate) fn under_way() -> RwLockReadGuard<'static, ()> {
    REQUESTS.read().unwrap_or_else(PoisonError::into_inner)
}

/// Waits for the requests under way, and holds up new ones as long as it is kept.
pub(crate) fn none() -> RwLockWriteGuard<'static, ()> {
    REQUESTS.write().unwrap_or_else(PoisonError::into_inner)
}
