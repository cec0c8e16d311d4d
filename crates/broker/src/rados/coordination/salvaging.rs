//! What can be read of a damaged table, and what its recent batches say of it.
//!
//! The batches of `w/` hold what was changed with its values. Of a key that one of them changed the last one's value is what a master left there, so they are put over
//! what stands in `t/`. A batch of which it is only known that it was may have changed any key: those before it say nothing.

use super::super::KeyRange;
use super::error::RadosTableError;
use super::objects::{Objects, TABLE};
use super::state::{
    ENTRIES, RECENT, RECENT_BATCHES, Recent, STATE, State, decode, recent_key, table_key, table_value, value_of,
};
use crate::coordination::Salvage;
use std::collections::BTreeMap;

/// Keys that are asked for at once.
const PAGE: u64 = 1024;
/// How often it is read again because a master changed it meanwhile.
const ATTEMPTS: usize = 16;

type Found = Vec<(String, Vec<u8>)>;

pub(super) fn salvage(objects: &dyn Objects) -> Result<Salvage, RadosTableError> {
    let state = || -> Result<Option<Vec<u8>>, RadosTableError> {
        let (found, _) = objects.read(TABLE, &[STATE], KeyRange::NONE)?;
        Ok(value_of(&found, STATE).map(<[u8]>::to_vec))
    };
    for _ in 0..ATTEMPTS {
        let before = state()?;
        let (entries, batches) = (all(objects, ENTRIES)?, all(objects, RECENT_BATCHES)?);
        if state()? == before {
            return Ok(salvaged(objects, before.as_deref(), entries, batches));
        }
    }
    Err(RadosTableError::Restless { pool: objects.pool().to_owned() })
}

fn all(objects: &dyn Objects, prefix: &str) -> Result<Found, RadosTableError> {
    let (mut all, mut after) = (Found::new(), String::new());
    loop {
        let (found, more) = objects.read(TABLE, &[], KeyRange { prefix, after: &after, limit: PAGE })?;
        let last = found.last().map(|(key, _)| key.clone());
        all.extend(found.into_iter().filter(|(key, _)| key.starts_with(prefix)));
        match last {
            Some(last) if more && last.starts_with(prefix) => after = last,
            _ => return Ok(all),
        }
    }
}

fn salvaged(objects: &dyn Objects, state: Option<&[u8]>, entries: Found, batches: Found) -> Salvage {
    let (mut present, mut damages) = (BTreeMap::new(), Vec::new());
    for (key, value) in entries {
        match table_key(objects, &key).and_then(|inner| Ok((inner, table_value(objects, &key, value)?))) {
            Ok((key, value)) => drop(present.insert(key, value)),
            Err(error) => damages.push(error.to_string()),
        }
    }
    let state = state.map(|value| decode::<State>(objects, STATE, value)).transpose();
    let last = match state {
        Ok(state) => state.map(|state| state.number),
        Err(error) => {
            damages.push(error.to_string());
            None
        }
    };
    let history = last.and_then(|last| {
        let mut table = present.clone();
        let known = known_batches(objects, last, &batches);
        (!known.is_empty()).then_some(())?;
        for (key, value) in known.into_iter().flatten() {
            match value {
                Some(value) => drop(table.insert(key, value)),
                None => drop(table.remove(&key)),
            }
        }
        Some(table.into_iter().collect())
    });
    Salvage { present: present.into_iter().collect(), damages, history }
}

/// What the last batches changed, in their order: as far back as there is no gap, and none that was too large to be kept.
fn known_batches(objects: &dyn Objects, last: u64, batches: &Found) -> Vec<Vec<super::state::Entry>> {
    let changes_of = |number: &u64| {
        let key = recent_key(*number);
        Recent::decode(objects, &key, value_of(batches, &key)?).ok()?.changes
    };
    let mut known: Vec<_> =
        (last.saturating_sub(RECENT)..=last).rev().map_while(|number| changes_of(&number)).collect();
    known.reverse();
    known
}
