//! Keys and values of the table's object.

use super::error::RadosTableError;
use super::objects::{Objects, TABLE};
use crate::coordination::{Candidate, unique_name};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::time::{Duration, SystemTime};

const FORMAT: u32 = 1;
pub(super) const MASTER: &str = "master";
pub(super) const STATE: &str = "state";
/// What keys of the table start with.
pub(super) const ENTRIES: &str = "t/";
/// What keys of recent batches start with.
pub(super) const RECENT_BATCHES: &str = "w/";
/// Batches whose changes are kept.
pub(super) const RECENT: u64 = 1024;
/// Changes of a batch that are kept, in bytes; of a larger one it is only known that it was.
const MAX_RECENT_BYTES: usize = 64 << 10;

/// What stands, or is to stand, at a key of the table.
pub(super) type Entry = (Vec<u8>, Option<Vec<u8>>);

fn push_hexadecimal(text: &mut String, bytes: &[u8]) {
    for byte in bytes {
        for digit in [byte >> 4, byte & 15] {
            text.extend(char::from_digit(digit.into(), 16));
        }
    }
}

/// Of a key of the table, the one in omap. They sort alike.
pub(super) fn entry_key(key: &[u8]) -> String {
    let mut text = String::with_capacity(ENTRIES.len() + 2 * key.len());
    text.push_str(ENTRIES);
    push_hexadecimal(&mut text, key);
    text
}

/// The reverse.
pub(super) fn table_key(objects: &dyn Objects, key: &str) -> Result<Vec<u8>, RadosTableError> {
    let digits = key.strip_prefix(ENTRIES).map(str::as_bytes).unwrap_or_default();
    let digit = |digit: u8| char::from(digit).to_digit(16).map(|digit| digit as u8);
    let pairs = digits.chunks(2).map(|pair| match pair {
        [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
        _ => None,
    });
    pairs.collect::<Option<_>>().ok_or_else(|| damaged(objects, key, "it is not in hexadecimal digits".to_owned()))
}

/// No value in omap is empty.
pub(super) fn entry_value(value: &[u8]) -> Vec<u8> {
    [b"=", value].concat()
}

pub(super) fn table_value(objects: &dyn Objects, key: &str, mut value: Vec<u8>) -> Result<Vec<u8>, RadosTableError> {
    match value.first() {
        Some(b'=') => {
            value.remove(0);
            Ok(value)
        }
        _ => Err(damaged(objects, key, "it does not begin with `=`".to_owned())),
    }
}

pub(super) fn recent_key(number: u64) -> String {
    format!("{RECENT_BATCHES}{number:016x}")
}

pub(super) fn damaged(objects: &dyn Objects, key: &str, what: String) -> RadosTableError {
    let (pool, object) = (objects.pool().to_owned(), TABLE.to_owned());
    RadosTableError::Damaged { pool, object, key: key.to_owned(), what }
}

/// Of a value in JSON with a format.
pub(super) fn decode<T: DeserializeOwned>(
    objects: &dyn Objects,
    key: &str,
    value: &[u8],
) -> Result<T, RadosTableError> {
    #[derive(Deserialize)]
    struct Format {
        format: u32,
    }
    let fault = |error: serde_json::Error| damaged(objects, key, error.to_string());
    let Format { format } = serde_json::from_slice(value).map_err(fault)?;
    match format {
        FORMAT => serde_json::from_slice(value).map_err(fault),
        found => {
            let (pool, object) = (objects.pool().to_owned(), TABLE.to_owned());
            Err(RadosTableError::Format { pool, object, key: key.to_owned(), found, known: FORMAT })
        }
    }
}

/// Which batch was the last.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct State {
    format: u32,
    /// How many there were.
    pub(super) number: u64,
    /// Its name, which no other has.
    pub(super) batch: String,
}

impl State {
    /// Of a batch that follows.
    pub(super) fn after(state: Option<&Self>) -> Self {
        let number = state.map_or(0, |state| state.number) + 1;
        Self { format: FORMAT, number, batch: unique_name() }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("numbers and a string")
    }
}

/// What a recent batch changed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Recent {
    pub(super) batch: String,
    /// In the batch's order; `None`: too much to be kept.
    pub(super) changes: Option<Vec<Entry>>,
}

impl Recent {
    pub(super) fn of(batch: &str, changes: &[Entry]) -> Self {
        let bytes: usize = changes.iter().map(|(key, value)| key.len() + value.as_ref().map_or(0, Vec::len)).sum();
        Self { batch: batch.to_owned(), changes: (bytes <= MAX_RECENT_BYTES).then(|| changes.to_vec()) }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        postcard::to_stdvec(self).expect("bytes in lists")
    }

    pub(super) fn decode(objects: &dyn Objects, key: &str, value: &[u8]) -> Result<Self, RadosTableError> {
        postcard::from_bytes(value).map_err(|error| damaged(objects, key, error.to_string()))
    }
}

/// The term of the first master of a new table. Servers and hosts know the terms of masters whose records were lost with the table before it: its masters were
/// fewer than a hundred a second, so none had as high a term. A term has [`crate::coordination::NUMBERS_OF_A_TERM`] bits below it; until the year 2300 that fits.
fn first_term(since_1970: Duration) -> u64 {
    (since_1970.as_millis() / 10) as u64 + 1
}

/// Who was elected last. The whole record is the fence.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct MasterRecord {
    format: u32,
    pub(super) term: u64,
    /// `None`: it resigned.
    pub(super) candidate: Option<Candidate>,
    /// Under which Ceph knows its process.
    pub(super) addresses: String,
    /// What it has the lock by.
    pub(super) cookie: String,
}

impl MasterRecord {
    /// Of the master that follows.
    pub(super) fn after(before: Option<&Self>, candidate: &Candidate, addresses: String, cookie: String) -> Self {
        let now = || SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        let term = before.map_or_else(|| first_term(now()), |before| before.term + 1);
        Self { format: FORMAT, term, candidate: Some(candidate.clone()), addresses, cookie }
    }

    pub(super) fn resigned(&self) -> Self {
        Self { candidate: None, ..self.clone() }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("numbers and strings")
    }
}

/// Of what was looked up, the value of a key.
pub(super) fn value_of<'f>(found: &'f [(String, Vec<u8>)], key: &str) -> Option<&'f [u8]> {
    found.iter().find(|(found, _)| found == key).map(|(_, value)| value.as_slice())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coordination::NUMBERS_OF_A_TERM;

    #[test]
    fn the_first_term_of_a_new_table_is_above_those_of_a_lost_one() {
        let candidate = Candidate { name: "host".to_owned(), address: String::new() };
        let made = Duration::from_secs(1_800_000_000);
        let mut last = MasterRecord::after(None, &candidate, String::new(), String::new());
        last.term = first_term(made);
        for _ in 0..99 {
            last = MasterRecord::after(Some(&last), &candidate, String::new(), String::new());
        }
        assert!(first_term(made + Duration::from_secs(1)) > last.term);
        let late = Duration::from_secs(330 * 365 * 24 * 3600);
        assert!(first_term(late).leading_zeros() >= NUMBERS_OF_A_TERM);
    }
}
