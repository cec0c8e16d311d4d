//! Handles that were asked for once.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, PoisonError};

/// Handles that are kept; beyond that all are asked for again.
const MAX_KEPT: usize = 1 << 17;
/// What was asked for once.
pub(super) struct Kept<K, V>(Mutex<HashMap<K, V>>);

impl<K: Eq + Hash, V: Copy> Kept<K, V> {
    pub(super) fn new() -> Self {
        Self(Mutex::new(HashMap::new()))
    }

    pub(super) fn change<R>(&self, change: impl FnOnce(&mut HashMap<K, V>) -> R) -> R {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn get(&self, key: &K) -> Option<V> {
        self.change(|kept| kept.get(key).copied())
    }

    pub(super) fn keep(&self, key: K, value: V) -> V {
        self.change(|kept| {
            if kept.len() >= MAX_KEPT {
                kept.clear();
            }
            kept.insert(key, value);
        });
        value
    }

    pub(super) fn forget(&self, key: &K) {
        self.change(|kept| {
            kept.remove(key);
        });
    }
}
