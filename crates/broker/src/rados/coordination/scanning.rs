//! Many keys of the table as they were at one moment, though several operations read them.

use super::super::KeyRange;
use super::error::RadosTableError;
use super::objects::{Objects, TABLE};
use super::state::{
    ENTRIES, Entry, RECENT, RECENT_BATCHES, Recent, STATE, State, decode, entry_key, recent_key, table_key,
    table_value, value_of,
};
use crate::rmt::Entries;
use std::collections::BTreeMap;

/// Keys that are asked for at once: what Ceph gives unless it is configured otherwise.
const PAGE: usize = 1024;
/// How often a scan begins again because more was changed meanwhile than is kept.
const ATTEMPTS: usize = 16;

/// Batches after `number`, and the number of the last one; `None`: some of them are no longer there.
pub(super) fn batches_after(objects: &dyn Objects, number: u64) -> Result<Option<(u64, Vec<Recent>)>, RadosTableError> {
    let mut batches = Vec::new();
    loop {
        let after = recent_key(number + batches.len() as u64);
        let range = KeyRange { prefix: RECENT_BATCHES, after: &after, limit: RECENT };
        let (found, has_more) = objects.read(TABLE, &[STATE], range)?;
        let state = value_of(&found, STATE).map(|value| decode::<State>(objects, STATE, value)).transpose()?;
        let last = state.map_or(0, |state| state.number);
        for (key, value) in found.iter().filter(|(key, _)| key.starts_with(RECENT_BATCHES)) {
            if *key != recent_key(number + batches.len() as u64 + 1) {
                return Ok(None);
            }
            batches.push(Recent::decode(objects, key, value)?);
        }
        match number + batches.len() as u64 {
            reached if reached == last => return Ok(Some((last, batches))),
            reached if reached < last && has_more => {}
            _ => return Ok(None),
        }
    }
}

/// As [`crate::rmt::MappingStore::scan`].
pub(super) fn scan(
    objects: &dyn Objects,
    prefix: &[u8],
    after: Option<&[u8]>,
    limit: usize,
) -> Result<Entries, RadosTableError> {
    if limit == 0 {
        return Ok(Entries::new());
    }
    for _ in 0..ATTEMPTS {
        if let Some(entries) = (Scan { objects, prefix, after, limit }).run()? {
            return Ok(entries);
        }
    }
    Err(RadosTableError::Restless { pool: objects.pool().to_owned() })
}

struct Scan<'s> {
    objects: &'s dyn Objects,
    prefix: &'s [u8],
    after: Option<&'s [u8]>,
    limit: usize,
}

impl Scan<'_> {
    /// `None`: it has to begin again.
    fn run(&self) -> Result<Option<Entries>, RadosTableError> {
        let mut entries = BTreeMap::new();
        let mut last = self.after.map(entry_key).unwrap_or_default();
        let (mut first, mut pages) = (None, 0_usize);
        loop {
            let mut is_whole = false;
            while entries.len() < self.limit && !is_whole {
                let (state, has_more) = self.page(&mut last, &mut entries)?;
                first.get_or_insert(state);
                pages += 1;
                is_whole = !has_more;
            }
            if pages > 1 {
                let end = (!is_whole).then_some(last.as_str());
                let Some(changes) = self.changes(first.unwrap_or_default())? else { return Ok(None) };
                self.apply(changes, end, &mut entries);
            }
            if is_whole || entries.len() >= self.limit {
                return Ok(Some(entries.into_iter().take(self.limit).collect()));
            }
        }
    }

    /// Reads a page of keys after `last`, which it sets. Returns the number of the last batch, and whether there are more keys.
    fn page(
        &self,
        last: &mut String,
        entries: &mut BTreeMap<Vec<u8>, Vec<u8>>,
    ) -> Result<(u64, bool), RadosTableError> {
        let prefix = entry_key(self.prefix);
        let limit = PAGE.min(self.limit - entries.len()) as u64;
        let (found, has_more) =
            self.objects.read(TABLE, &[STATE], KeyRange { prefix: &prefix, after: last.as_str(), limit })?;
        let state = value_of(&found, STATE).map(|value| decode::<State>(self.objects, STATE, value)).transpose()?;
        let has_more = has_more && found.iter().any(|(key, _)| key.starts_with(ENTRIES));
        for (key, value) in found.into_iter().filter(|(key, _)| key.starts_with(ENTRIES)) {
            entries.insert(table_key(self.objects, &key)?, table_value(self.objects, &key, value)?);
            *last = key;
        }
        Ok((state.map_or(0, |state| state.number), has_more))
    }

    fn changes(&self, since: u64) -> Result<Option<Vec<Entry>>, RadosTableError> {
        let Some((_, batches)) = batches_after(self.objects, since)? else { return Ok(None) };
        let changes: Option<Vec<_>> = batches.into_iter().map(|batch| batch.changes).collect();
        Ok(changes.map(|changes| changes.concat()))
    }

    /// Puts changes over what was read, up to the last key that was.
    fn apply(&self, changes: Vec<Entry>, end: Option<&str>, entries: &mut BTreeMap<Vec<u8>, Vec<u8>>) {
        let is_read = |key: &[u8]| {
            key.starts_with(self.prefix)
                && self.after.is_none_or(|after| key > after)
                && end.is_none_or(|end| entry_key(key).as_str() <= end)
        };
        for (key, value) in changes.into_iter().filter(|(key, _)| is_read(key)) {
            match value {
                Some(value) => drop(entries.insert(key, value)),
                None => drop(entries.remove(&key)),
            }
        }
    }
}
