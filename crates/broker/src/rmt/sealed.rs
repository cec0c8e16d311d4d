//! A value as it is stored: the record followed by a checksum; and the digest of all records.
//!
//! Both hash the length of the key (4 bytes, little-endian), the key and the record. The checksum is XXH3-64, little-endian. The
//! digest is the sum modulo 2^128 of the XXH3-128 hashes of all records but the head.
//!
//! The checksum shows a record that is damaged or stored at another key. The digest shows a record that is lost or stale. The
//! digest is a sum, so a transaction updates it from the records that it changes alone, in any order.

use super::RmtError;
use super::keys::describe;
use twox_hash::{XxHash3_64, XxHash3_128};

const CHECKSUM_BYTES: usize = 8;

/// What is hashed. The length tells where the key ends, so that no two records are hashed alike.
fn hashed(key: &[u8], record: &[u8]) -> Vec<u8> {
    [&(key.len() as u32).to_le_bytes(), key, record].concat()
}

fn checksum(key: &[u8], record: &[u8]) -> [u8; CHECKSUM_BYTES] {
    XxHash3_64::oneshot(&hashed(key, record)).to_le_bytes()
}

/// What the record adds to the digest.
pub(super) fn digest_of(key: &[u8], record: &[u8]) -> u128 {
    XxHash3_128::oneshot(&hashed(key, record))
}

pub(super) fn seal(key: &[u8], record: &[u8]) -> Vec<u8> {
    [record, &checksum(key, record)].concat()
}

/// The record in `value`, if it is whole and this key's.
pub(super) fn open<'a>(key: &[u8], value: &'a [u8]) -> Result<&'a [u8], RmtError> {
    match value.split_last_chunk() {
        Some((record, sum)) if *sum == checksum(key, record) => Ok(record),
        _ => Err(RmtError::Damaged { key: describe(key), what: "its checksum does not agree".to_owned() }),
    }
}
