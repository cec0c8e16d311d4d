//! What can be read of a damaged table, and what etcd's history says of it.
//!
//! etcd keeps every revision of a key until it is compacted. A commit of a master changes the key `state`, which nobody else has a reason to touch. So the table as
//! it stood at the revision of the last change of `state` is the one that a master left, whatever became of its keys since. Where `state` is gone too, the last
//! revision that has it is looked for.

use super::client::{Call, ask, transact};
use super::error::EtcdError;
use super::keys::{Keys, behind};
use super::messages::{Found, Number, Operation, Range, Transaction};
use super::staging::State;
use super::store::EtcdStore;
use crate::coordination::Salvage;
use crate::rmt::{Entries, MappingStore as _};

/// Entries that are read at once.
const PAGE: i64 = 512;

pub(super) struct Salvaging<'e> {
    pub(super) table: &'e EtcdStore,
    pub(super) calls: &'e dyn Call,
    pub(super) keys: &'e Keys,
}

/// The last batch of a master, by `state` at some revision.
struct Left {
    /// At which the table was as that batch left it.
    revision: i64,
    /// It is all in the table.
    is_whole: bool,
}

impl Salvaging<'_> {
    pub(super) fn run(&self) -> Result<Salvage, EtcdError> {
        let success = vec![Operation::Range(Range::of(&self.keys.state()))];
        let mut outcome = transact(self.calls, &Transaction { success, ..Transaction::default() })?;
        let now = outcome.header.revision.0;
        let mut damages = Vec::new();
        let left = match outcome.take(0) {
            found if found.kvs.is_empty() => self.left_before(now)?,
            found => self.left_in(&found).unwrap_or_else(|what| {
                damages.push(what);
                None
            }),
        };
        let present = match self.table.scan(b"", None, usize::MAX) {
            Ok(entries) => entries,
            // What is staged is lost: without it.
            Err(error) => {
                damages.push(error.to_string());
                self.entries_at(0)?
            }
        };
        let history = match left.filter(|left| left.is_whole) {
            None => None,
            Some(left) => match self.entries_at(left.revision) {
                Err(EtcdError::Compacted { .. }) => None,
                read => Some(read?),
            },
        };
        Ok(Salvage { present, damages, history })
    }

    fn left_in(&self, found: &Found) -> Result<Option<Left>, String> {
        let Some(entry) = found.kvs.first() else { return Ok(None) };
        let state = State::decode(&self.keys.state(), &entry.value.0).map_err(|error| error.to_string())?;
        Ok(Some(Left { revision: entry.mod_revision.0, is_whole: state.parts == 0 }))
    }

    /// By the last revision before `now` that has the key `state`, if one of those that are kept has.
    fn left_before(&self, now: i64) -> Result<Option<Left>, EtcdError> {
        let (mut low, mut high, mut last) = (1, now - 1, None);
        while low <= high {
            let middle = low + (high - low) / 2;
            let range = Range { revision: Number(middle), ..Range::of(&self.keys.state()) };
            match ask::<Found>(self.calls, "/v3/kv/range", &range) {
                Ok(found) if found.kvs.is_empty() => high = middle - 1,
                Ok(found) => {
                    last = self.left_in(&found).unwrap_or(None);
                    low = middle + 1;
                }
                Err(EtcdError::Compacted { .. }) => low = middle + 1,
                Err(error) => return Err(error),
            }
        }
        Ok(last)
    }

    /// The table's entries at a revision; 0: now.
    fn entries_at(&self, revision: i64) -> Result<Entries, EtcdError> {
        let prefix = self.keys.table(b"");
        let (mut entries, mut start) = (Entries::new(), prefix.clone());
        loop {
            let page =
                Range { limit: Number(PAGE), revision: Number(revision), ..Range::between(&start, &behind(&prefix)) };
            let found: Found = ask(self.calls, "/v3/kv/range", &page)?;
            let next = found.kvs.last().filter(|_| found.more).map(|entry| [&entry.key.0[..], &[0]].concat());
            entries
                .extend(found.kvs.into_iter().map(|entry| (self.keys.in_table(&entry.key.0).to_vec(), entry.value.0)));
            match next {
                Some(next) => start = next,
                None => return Ok(entries),
            }
        }
    }
}
