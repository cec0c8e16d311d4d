//! The number of the last transaction, kept next to the table in the file `committed`: the head's `transactions` and its XXH3-64
//! hash, 8 bytes each, little-endian. A table without the file is not checked.
//!
//! LMDB keeps the tree of the last but one transaction until the next. If the newer of its two meta pages is damaged in the right
//! place, or if somebody restores an older file, the table is intact but stale. This file shows that. It is written after each
//! transaction has taken effect, and it is not synced: it never names a transaction that is not durable, and after a power failure
//! it may name an earlier one, which is no contradiction.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use stripewise_store::state::COMMITTED as NAME;
use twox_hash::XxHash3_64;

const BYTES: usize = 16;

#[derive(Debug)]
pub(super) struct Witness {
    file: File,
}

impl Witness {
    /// Opens the file in the table's directory, or makes it.
    pub(super) fn open(directory: &Path) -> std::io::Result<Self> {
        let file = File::options().write(true).create(true).truncate(false).open(directory.join(NAME))?;
        Ok(Self { file })
    }

    pub(super) fn note(&self, transactions: u64) -> std::io::Result<()> {
        let number = transactions.to_le_bytes();
        let sum = XxHash3_64::oneshot(&number).to_le_bytes();
        self.file.write_all_at(&[number, sum].concat(), 0)
    }

    /// The number noted last; `None`: none. An error says what is wrong with it.
    pub(super) fn read(directory: &Path) -> Result<Option<u64>, String> {
        let bytes = match std::fs::read(directory.join(NAME)) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(format!("the number of its last transaction cannot be read: {error}")),
        };
        // As a power failure may leave it.
        if bytes.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        let halves = (bytes.first_chunk::<8>(), bytes.last_chunk::<8>());
        match halves {
            (Some(number), Some(sum)) if bytes.len() == BYTES && XxHash3_64::oneshot(number).to_le_bytes() == *sum => {
                Ok(Some(u64::from_le_bytes(*number)))
            }
            _ => Err("the file with the number of its last transaction is damaged".to_owned()),
        }
    }
}
