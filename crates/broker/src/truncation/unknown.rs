//! A truncation of which it is not known what the table says: in a table that is elsewhere a commit may have taken effect, or may do so still, although it ended with an
//! error.
//!
//! Whoever is master next does what a recorded intent says, and asks nobody. So what may be recorded must not be followed by a write: the file stays shut on all hosts
//! until the table has taken another change, after which it is known, or until there is another master.

use super::Truncation;
use crate::managed::{Inner, Managed};
use crate::rmt::{Changes, Fate, RmtError, Table, fate_of};
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};
use stripewise_store::protocol::Refusal;

/// For how long the table is asked under the file's lock whether an intent is recorded; longer than an election of etcd takes. After that the file is looked at again.
const INTENT_PATIENCE: Duration = Duration::from_secs(10);
const INTENT_PAUSE: Duration = Duration::from_millis(50);

impl Truncation {
    /// After the commit of an intent that ended with this error; nothing is in flight. `Ok`: it is recorded all the same. Otherwise it is not, and never will be, or
    /// the file stays shut.
    pub(super) fn read_intent(&self, managed: &Managed, size_bytes: u64, error: RmtError) -> Result<(), Refusal> {
        if self.context.others().is_none() {
            // A table of this host alone does nothing after an error.
            return Err(error.into());
        }
        let is_recorded = |table: &Table| {
            let record = table.file(managed.file)?;
            Ok(record.is_some_and(|record| record.truncating_to_bytes == Some(size_bytes)))
        };
        let deadline = Instant::now() + INTENT_PATIENCE;
        loop {
            match fate_of(self.context.table(), &error, is_recorded) {
                Fate::Applied => return Ok(()),
                Fate::NotApplied => return Err(error.into()),
                Fate::Unknown if Instant::now() < deadline && !self.context.is_shut_out() => {
                    std::thread::sleep(INTENT_PAUSE);
                }
                Fate::Unknown | Fate::Deposed => {
                    self.keep_shut(managed);
                    return Err(error.into());
                }
            }
        }
    }

    /// The gate stays shut when whoever has it in hand lets go of it, if other hosts use the table.
    pub(super) fn keep_shut(&self, managed: &Managed) {
        managed.is_truncation_unknown.store(self.context.others().is_some(), SeqCst);
    }

    /// The table says of the file's last truncation what is so: one that did not begin is not recorded, and one that is done is over.
    pub(super) fn settle_record(&self, managed: &Managed, inner: &mut Inner) -> Result<(), Refusal> {
        if inner.freed {
            managed.is_truncation_unknown.store(false, SeqCst);
            return Ok(());
        }
        if let Some(truncated_to_bytes) = inner.record.truncating_to_bytes {
            self.note_truncation(managed, inner, truncated_to_bytes)?;
        } else if managed.is_truncation_unknown.load(SeqCst) {
            let mut changes = Changes::default();
            changes.put_file(managed.file, &inner.record);
            self.context.table().commit(&changes)?;
        }
        if managed.is_truncation_unknown.swap(false, SeqCst) {
            managed.control.set_truncating(None);
        }
        Ok(())
    }

    /// Of a file that stays shut, unless it is known by now that nobody will cut it.
    pub(crate) fn settle_unknown(&self, managed: &Managed, inner: &mut Inner) -> Result<(), Refusal> {
        match managed.is_truncation_unknown.load(SeqCst) {
            true => self.settle_record(managed, inner),
            false => Ok(()),
        }
    }
}
