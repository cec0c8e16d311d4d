//! Keys of the table. Numbers in them are big-endian, so that they sort.

use super::RmtError;
use super::inode::Inode;
use stripewise_layout::{FileId, Generation, RegionIndex, ServerId};

/// Longest directory or path that is a key; LMDB's keys end at 511 bytes.
const MAX_NAME_BYTES: usize = 500;

pub(super) fn file_key(kind: u8, file: FileId) -> Vec<u8> {
    let mut key = vec![kind];
    key.extend(file.0.to_be_bytes());
    key
}

pub(super) fn region_key(file: FileId, region: RegionIndex) -> Vec<u8> {
    let mut key = file_key(b'r', file);
    key.extend(region.0.to_be_bytes());
    key
}

pub(super) fn discard_key(file: FileId, region: RegionIndex, generation: Generation) -> Vec<u8> {
    let mut key = file_key(b'o', file);
    key.extend(region.0.to_be_bytes());
    key.extend(generation.0.to_be_bytes());
    key
}

pub(super) fn replica_key(file: FileId, region: RegionIndex, number: u8) -> Vec<u8> {
    let mut key = file_key(b's', file);
    key.extend(region.0.to_be_bytes());
    key.push(number);
    key
}

pub(super) fn log_key(file: FileId, disk: ServerId) -> Vec<u8> {
    let mut key = file_key(b'l', file);
    key.extend(disk.0.to_be_bytes());
    key
}

pub(super) fn inode_key(inode: Inode) -> Vec<u8> {
    let mut key = vec![b'i'];
    key.extend(inode.device.to_be_bytes());
    key.extend(inode.inode.to_be_bytes());
    key
}

pub(super) fn name_key(kind: u8, path: &str) -> Result<Vec<u8>, RmtError> {
    if path.len() > MAX_NAME_BYTES {
        return Err(RmtError::PathTooLong { path: path.to_owned(), limit: MAX_NAME_BYTES });
    }
    let mut key = vec![kind];
    key.extend(path.as_bytes());
    Ok(key)
}

pub(crate) fn describe(key: &[u8]) -> String {
    let value =
        |range: std::ops::Range<usize>| key.get(range).map(|b| b.iter().fold(0u64, |n, b| n << 8 | u64::from(*b)));
    match (key.first(), value(1..9)) {
        (Some(b'f' | b'p' | b'w' | b'g'), Some(file)) => format!("file {}", FileId(file)),
        (Some(b'r' | b'o' | b's'), Some(file)) => {
            format!("region {} of file {}", value(9..13).unwrap_or(0), FileId(file))
        }
        (Some(b'l'), Some(file)) => {
            format!("the log of server {} for file {}", value(9..11).unwrap_or(0), FileId(file))
        }
        (Some(b'i'), Some(device)) => format!("inode {} of device {device}", value(9..17).unwrap_or(0)),
        (Some(b'n'), Some(number)) => format!("the change {number:016x} of names"),
        (Some(b'v'), None) => "the version".to_owned(),
        (Some(b'c'), None) => "the cluster".to_owned(),
        (Some(b'k'), None) => "the cluster's key".to_owned(),
        (Some(b'h'), None) => "the digest of all records".to_owned(),
        (Some(_), _) => String::from_utf8_lossy(&key[1..]).into_owned(),
        (None, _) => "nothing".to_owned(),
    }
}

pub(super) fn file_in(key: &[u8]) -> FileId {
    FileId(key.get(1..9).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_be_bytes))
}
