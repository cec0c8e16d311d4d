//! Copies of the table, each in an object of its own.
//!
//! The record of a name says which object is its copy, and which others were made and are to be removed. An object is named there before it
//! is made, so that none is forgotten when its maker dies.

use super::super::KeyRange;
use super::error::RadosTableError;
use super::objects::{Change, Objects, TABLE};
use super::state::{ENTRIES, decode, entry_key, entry_value, table_key, table_value, value_of};
use crate::coordination::unique_name;
use crate::rmt::Entries;
use serde::{Deserialize, Serialize};

const FORMAT: u32 = 1;
/// Keys and values that are written at once.
const MAX_KEYS: usize = 4096;
const MAX_BYTES: usize = 4 << 20;
/// Keys that are asked for at once.
const PAGE: u64 = 1024;

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct CopyRecord {
    format: u32,
    /// Name of the object.
    current: Option<String>,
    /// Names of objects that are to be removed.
    old: Vec<String>,
}

pub(super) fn key(name: &str) -> String {
    format!("k/{name}")
}

/// The record of a name, as it stands there and as it is meant.
pub(super) fn record(objects: &dyn Objects, name: &str) -> Result<(Option<Vec<u8>>, CopyRecord), RadosTableError> {
    let key = key(name);
    let (found, _) = objects.read(TABLE, &[&key], KeyRange::NONE)?;
    let found = value_of(&found, &key).map(<[u8]>::to_vec);
    let record = match &found {
        Some(value) => decode(objects, &key, value)?,
        None => CopyRecord { format: FORMAT, current: None, old: Vec::new() },
    };
    Ok((found, record))
}

impl CopyRecord {
    pub(super) fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("strings")
    }

    /// Names an object that is about to be made.
    pub(super) fn begin(&self, name: &str) -> (String, Self) {
        let object = format!("copy/{name}/{}", unique_name());
        let old = self.old.iter().cloned().chain([object.clone()]).collect();
        (object, Self { old, ..self.clone() })
    }

    /// Makes the object, which is whole, the copy.
    pub(super) fn replace_by(&self, object: String) -> Self {
        let others = self.old.iter().filter(|old| **old != object);
        let old = others.chain(&self.current).cloned().collect();
        Self { current: Some(object), old, ..self.clone() }
    }

    /// Removes the objects that are no copy any more.
    pub(super) fn remove_old(&self, objects: &dyn Objects) -> Result<Self, RadosTableError> {
        for object in &self.old {
            objects.remove(object)?;
        }
        Ok(Self { old: Vec::new(), ..self.clone() })
    }
}

/// Writes a new object.
pub(super) fn write(objects: &dyn Objects, object: &str, entries: Entries) -> Result<(), RadosTableError> {
    objects.create(object)?;
    let (mut change, mut bytes) = (Change::default(), 0);
    for (key, value) in entries {
        bytes += key.len() + value.len();
        change.put(entry_key(&key), Some(entry_value(&value)));
        if change.set.len() == MAX_KEYS || bytes > MAX_BYTES {
            objects.change(object, &std::mem::take(&mut change))?;
            bytes = 0;
        }
    }
    objects.change(object, &change)?;
    Ok(())
}

pub(super) fn read(objects: &dyn Objects, name: &str) -> Result<Option<Entries>, RadosTableError> {
    let (_, record) = record(objects, name)?;
    let Some(object) = record.current else { return Ok(None) };
    let (mut entries, mut after) = (Entries::new(), String::new());
    loop {
        let range = KeyRange { prefix: ENTRIES, after: &after, limit: PAGE };
        let (found, has_more) = objects.read(&object, &[], range)?;
        for (key, value) in found {
            entries.push((table_key(objects, &key)?, table_value(objects, &key, value)?));
            after = key;
        }
        if !has_more {
            return Ok(Some(entries));
        }
    }
}
