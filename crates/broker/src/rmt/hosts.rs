//! What hosts of a cluster that has many know of each other: who may have files open, who was shut out, who ever took part, and which servers are emptied.

use super::keys::name_key;
use super::records::{HostRecord, KeyRecord, encode};
use super::{MappingStore, RmtError, SCAN, Table, decode};

const HOSTS: &[u8] = b"a";
const SHUT_OUT: u8 = b'd';
const DRAINED: u8 = b'q';
const KEY: &[u8] = b"k";
const KNOWN: u8 = b'j';

/// Those that are noted in a store, which need not be open as a table yet.
pub(crate) fn hosts_in(store: &dyn MappingStore) -> Result<Vec<String>, RmtError> {
    named_in(store, HOSTS[0])
}

/// The names of all keys of a kind.
fn named_in(store: &dyn MappingStore, kind: u8) -> Result<Vec<String>, RmtError> {
    let (mut all, mut after) = (Vec::new(), None::<Vec<u8>>);
    loop {
        let entries = store.scan(&[kind], after.as_deref(), SCAN)?;
        all.extend(entries.iter().map(|(key, _)| String::from_utf8_lossy(&key[1..]).into_owned()));
        match entries.into_iter().next_back() {
            Some((last, _)) => after = Some(last),
            None => return Ok(all),
        }
    }
}

/// Whether a host was shut out of the servers and has not come back since, by a store that need not be open as a table yet.
pub(crate) fn is_shut_out_in(store: &dyn MappingStore, host: &str) -> Result<bool, RmtError> {
    Ok(store.get(&name_key(SHUT_OUT, host)?)?.is_some())
}

/// Which key the cluster has, by a store that need not be open as a table yet; `None`: the one that it was made with.
pub(crate) fn key_record_in(store: &dyn MappingStore) -> Result<Option<KeyRecord>, RmtError> {
    store.get(KEY)?.map(|bytes| decode(KEY, &bytes)).transpose()
}

/// See [`key_record_in`].
pub(crate) fn key_record(table: &Table) -> Result<Option<KeyRecord>, RmtError> {
    key_record_in(table.store.as_ref())
}

/// Notes, durably, which key the cluster has.
pub(crate) fn set_key_record(table: &Table, record: &KeyRecord) -> Result<(), RmtError> {
    table.set(KEY.to_vec(), Some(encode(record)))
}

/// Whether the engine that holds the table answers.
pub(crate) fn probe(table: &Table) -> Result<(), RmtError> {
    table.store.get(HOSTS).map(drop)
}

impl Table {
    /// Whether a host was shut out of the servers, and has not come back since.
    pub fn is_shut_out(&self, host: &str) -> Result<bool, RmtError> {
        is_shut_out_in(self.store.as_ref(), host)
    }

    /// Notes, durably, that a host is shut out, or that it is not any more.
    pub fn note_shut_out(&self, host: &str, is_shut_out: bool) -> Result<(), RmtError> {
        match self.is_shut_out(host)? == is_shut_out {
            true => Ok(()),
            false => self.set(name_key(SHUT_OUT, host)?, is_shut_out.then(|| encode(&HostRecord::default()))),
        }
    }

    /// Notes, durably, that a host is there, or that it is not.
    pub fn note_host(&self, host: &str, is_there: bool) -> Result<(), RmtError> {
        note(self, HOSTS[0], host, is_there)
    }
}

fn note(table: &Table, kind: u8, host: &str, is_there: bool) -> Result<(), RmtError> {
    let key = name_key(kind, host)?;
    match table.store.get(&key)?.is_some() == is_there {
        true => Ok(()),
        false => table.set(key, is_there.then(|| encode(&HostRecord::default()))),
    }
}

/// All hosts that ever took part and were not forgotten, whether or not they have an agent now.
pub(crate) struct KnownHosts<'a>(pub(crate) &'a Table);

impl KnownHosts<'_> {
    /// Their names.
    pub(crate) fn all(&self) -> Result<Vec<String>, RmtError> {
        named_in(self.0.store.as_ref(), KNOWN)
    }

    /// Notes, durably, that a host takes part, or that it is gone for good.
    pub(crate) fn note(&self, host: &str, is_known: bool) -> Result<(), RmtError> {
        note(self.0, KNOWN, host, is_known)
    }

    /// Directories in which the host was found to see what others change, and they what it changes.
    pub(crate) fn probed_with(&self, host: &str) -> Result<Vec<String>, RmtError> {
        Ok(self.0.get::<HostRecord>(&name_key(KNOWN, host)?)?.map_or_else(Vec::new, |record| record.probed))
    }

    /// Notes, durably, that these are all.
    pub(crate) fn note_probed_with(&self, host: &str, probed: Vec<String>) -> Result<(), RmtError> {
        self.0.set(name_key(KNOWN, host)?, Some(encode(&HostRecord { probed })))
    }
}

/// Names of the servers that are being emptied. A cluster of one host has them in its state directory.
pub(crate) fn drained_in(table: &Table) -> Result<Vec<String>, RmtError> {
    named_in(table.store.as_ref(), DRAINED)
}

/// Notes, durably, that a server is being emptied, or that it is not any more.
pub(crate) fn note_drained(table: &Table, server: &str, is_drained: bool) -> Result<(), RmtError> {
    note(table, DRAINED, server, is_drained)
}

/// Hosts that may have files open by another table are expected in this one, those that were shut out are to be told, and servers are emptied as there.
pub(crate) fn expect_as(table: &Table, other: &Table) -> Result<(), RmtError> {
    for host in named_in(other.store.as_ref(), HOSTS[0])? {
        table.note_host(&host, true)?;
    }
    for host in named_in(other.store.as_ref(), SHUT_OUT)? {
        table.note_shut_out(&host, true)?;
    }
    for host in KnownHosts(other).all()? {
        KnownHosts(table).note_probed_with(&host, KnownHosts(other).probed_with(&host)?)?;
    }
    drained_in(other)?.iter().try_for_each(|server| note_drained(table, server, true))
}
