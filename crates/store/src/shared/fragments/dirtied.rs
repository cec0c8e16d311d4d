//! Whether slots hold bytes that `fsync` has to bring to the disks.

use crate::shared::marking::Word;

/// One word that tells `fsync` whether there may be bytes that only slots have.
///
/// A writer notes *after* it made an entry dirty and before its write returns. Were it before, a flush could begin between the two, miss the entry
/// and have taken the note. While a flush goes on the word is not zero, so that an `fsync` at that time waits for it.
#[derive(Debug)]
pub struct Dirtied<'a, W>(pub &'a W);

const NOTED: u64 = 1;
const BEING_FLUSHED: u64 = 2;

impl<W: Word> Dirtied<'_, W> {
    /// To be called after an entry was made dirty and before its write returns.
    #[inline]
    pub fn note(&self) {
        if self.0.load() != NOTED {
            self.0.store(NOTED);
        }
    }

    /// Whether a sync of the file has to flush first.
    #[must_use]
    pub fn needs_flush(&self) -> bool {
        self.0.load() != 0
    }

    /// Broker only, before it looks for entries to write back; one flush at a time. Whether there is anything that `fsync` needs; entries of the
    /// dead, who did not come to note them, may be dirty nevertheless.
    pub fn begin_flush(&self) -> bool {
        self.needs_flush() && self.0.swap(BEING_FLUSHED) != 0
    }

    /// Broker only, when every entry that was dirty has been written to its disk. Not after an error: the word still tells of it then.
    pub fn end_flush(&self) {
        let _ = self.0.compare_exchange(BEING_FLUSHED, 0);
    }
}
