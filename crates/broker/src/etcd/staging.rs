//! Batches that one transaction cannot hold, in parts that one can.

use super::error::EtcdError;
use crate::coordination::unique_name;
use crate::rmt::Batch;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Of etcd's 128 operations, those that are left beside what every commit adds: two comparisons, one change.
pub(super) const MAX_OPERATIONS: usize = 126;
/// Keys and values of one transaction, below etcd's 1.5 MiB with what a message adds.
const MAX_BYTES: usize = 1 << 20;
/// Longest value. It fits into a part together with its key.
pub(super) const MAX_VALUE_BYTES: usize = MAX_BYTES - (1 << 12);
/// What an operation adds to its key and value.
const OPERATION_BYTES: usize = 128;
const FORMAT: u32 = 1;

/// Which batch was the last.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct State {
    format: u32,
    /// 32 hexadecimal digits.
    pub(super) batch: String,
    /// Parts that it was staged in and that are not all in the table yet; 0: it is in the table.
    pub(super) parts: u32,
}

impl State {
    /// Of a batch that never was before.
    pub(super) fn of_new_batch() -> Self {
        Self { format: FORMAT, batch: unique_name(), parts: 0 }
    }

    /// The same batch, with so many parts that are not all in the table.
    pub(super) fn with_parts(&self, parts: u32) -> Self {
        Self { parts, ..self.clone() }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("numbers and a string")
    }

    pub(super) fn decode(key: &[u8], value: &[u8]) -> Result<Self, EtcdError> {
        #[derive(Deserialize)]
        struct Format {
            format: u32,
        }
        let name = || String::from_utf8_lossy(key).into_owned();
        let damaged = |error: serde_json::Error| EtcdError::Damaged { key: name(), what: error.to_string() };
        let Format { format } = serde_json::from_slice(value).map_err(damaged)?;
        match format {
            FORMAT => serde_json::from_slice(value).map_err(damaged),
            found => Err(EtcdError::Format { key: name(), found, known: FORMAT }),
        }
    }
}

/// What a batch changes, by key; `None`: removed.
pub(super) type Changes = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// What stands, or is to stand, at a key of the table.
pub(super) type Change = (Vec<u8>, Option<Vec<u8>>);

fn bytes_of((key, value): &Change) -> usize {
    key.len() + value.as_ref().map_or(0, Vec::len) + OPERATION_BYTES
}

/// Whether one transaction holds all of it.
pub(super) fn fits(batch: &Batch) -> bool {
    let bytes: usize = batch.expected.iter().chain(&batch.changes).map(bytes_of).sum();
    batch.expected.len() <= MAX_OPERATIONS && batch.changes.len() <= MAX_OPERATIONS && bytes <= MAX_BYTES
}

/// The same changes in the same order, in slices that one transaction holds each.
pub(super) fn split(entries: &[Change]) -> Vec<&[Change]> {
    let mut parts = Vec::new();
    let (mut start, mut bytes) = (0, 0);
    for (index, entry) in entries.iter().enumerate() {
        let more = bytes_of(entry);
        if index > start && (index - start == MAX_OPERATIONS || bytes + more > MAX_BYTES) {
            parts.push(&entries[start..index]);
            (start, bytes) = (index, 0);
        }
        bytes += more;
    }
    if start < entries.len() {
        parts.push(&entries[start..]);
    }
    parts
}

pub(super) fn encode_part(part: &[Change]) -> Vec<u8> {
    postcard::to_stdvec(part).expect("bytes in lists")
}

pub(super) fn decode_part(key: &[u8], value: &[u8]) -> Result<Vec<Change>, EtcdError> {
    postcard::from_bytes(value)
        .map_err(|error| EtcdError::Damaged { key: String::from_utf8_lossy(key).into_owned(), what: error.to_string() })
}
