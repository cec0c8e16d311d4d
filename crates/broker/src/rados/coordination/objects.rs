//! The operations that the table needs of its pool.

use super::super::{Epoch, KeyRange, Operation, Pool, RadosError};
use std::sync::Arc;

/// The object with the table.
pub(super) const TABLE: &str = "table";

/// Keys with their values, and whether there are more.
pub(super) type Found = (Vec<(String, Vec<u8>)>, bool);

/// Changes of one object's keys that take effect together, if what is expected holds.
#[derive(Clone, Default, Debug)]
pub(super) struct Change {
    /// `None`: absent.
    pub(super) expected: Vec<(String, Option<Vec<u8>>)>,
    pub(super) set: Vec<(String, Vec<u8>)>,
    pub(super) removed: Vec<String>,
}

impl Change {
    pub(super) fn put(&mut self, key: String, value: Option<Vec<u8>>) {
        match value {
            Some(value) => self.set.push((key, value)),
            None => self.removed.push(key),
        }
    }
}

/// Operations on objects of one namespace. One may reach its object more than once.
pub(super) trait Objects: Send + Sync {
    /// The pool's name.
    fn pool(&self) -> &str;

    /// The named keys that are there, then those of the range, as at one moment. An object that is missing has no keys.
    fn read(&self, object: &str, keys: &[&str], range: KeyRange<'_>) -> Result<Found, RadosError>;

    /// Whether what the change expects held; it took effect then. The object has to be there.
    fn change(&self, object: &str, change: &Change) -> Result<bool, RadosError>;

    /// Makes an object without keys.
    fn create(&self, object: &str) -> Result<(), RadosError>;

    /// Removes an object, if it is there.
    fn remove(&self, object: &str) -> Result<(), RadosError>;
}

impl Objects for Arc<Pool> {
    fn pool(&self) -> &str {
        self.name()
    }

    fn read(&self, object: &str, keys: &[&str], range: KeyRange<'_>) -> Result<Found, RadosError> {
        let mut found = Vec::new();
        match self.run(object, Operation::ReadKeys { keys, range, into: &mut found }) {
            Ok(more) => Ok((found, more > 0)),
            Err(RadosError::Missing { .. }) => Ok((Vec::new(), false)),
            Err(error) => Err(error),
        }
    }

    fn change(&self, object: &str, change: &Change) -> Result<bool, RadosError> {
        let expected = change.expected.iter();
        let expected: Vec<_> =
            expected.map(|(key, value)| (key.as_str(), value.as_deref().unwrap_or_default())).collect();
        let set: Vec<_> = change.set.iter().map(|(key, value)| (key.as_str(), value.as_slice())).collect();
        let remove: Vec<_> = change.removed.iter().map(String::as_str).collect();
        match self.run(object, Operation::ChangeKeys { expected: &expected, set: &set, remove: &remove }) {
            Ok(_) => Ok(true),
            Err(RadosError::Unmet { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn create(&self, object: &str) -> Result<(), RadosError> {
        self.run(object, Operation::Create { epoch: Epoch::FIRST }).map(drop)
    }

    fn remove(&self, object: &str) -> Result<(), RadosError> {
        match self.run(object, Operation::Remove { epoch: None }) {
            Ok(_) | Err(RadosError::Missing { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }
}
