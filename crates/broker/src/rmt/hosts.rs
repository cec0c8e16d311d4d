//! The hosts that may have files open, of a cluster that has many.

use super::keys::name_key;
use super::records::{HostRecord, encode};
use super::{MappingStore, RmtError, SCAN, Table};

const HOSTS: &[u8] = b"a";
const SHUT_OUT: u8 = b'd';

/// Those that are noted in a store, which need not be open as a table yet.
pub(crate) fn hosts_in(store: &dyn MappingStore) -> Result<Vec<String>, RmtError> {
    let (mut all, mut after) = (Vec::new(), None::<Vec<u8>>);
    loop {
        let entries = store.scan(HOSTS, after.as_deref(), SCAN)?;
        let name = |key: &[u8]| String::from_utf8_lossy(&key[HOSTS.len()..]).into_owned();
        all.extend(entries.iter().map(|(key, _)| name(key)));
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

impl Table {
    /// Whether a host was shut out of the servers, and has not come back since.
    pub fn is_shut_out(&self, host: &str) -> Result<bool, RmtError> {
        is_shut_out_in(self.store.as_ref(), host)
    }

    /// Notes, durably, that a host is shut out, or that it is not any more.
    pub fn note_shut_out(&self, host: &str, is_shut_out: bool) -> Result<(), RmtError> {
        match self.is_shut_out(host)? == is_shut_out {
            true => Ok(()),
            false => self.set(name_key(SHUT_OUT, host)?, is_shut_out.then(|| encode(&HostRecord {}))),
        }
    }

    /// Notes, durably, that a host is there, or that it is not.
    pub fn note_host(&self, host: &str, is_there: bool) -> Result<(), RmtError> {
        let key = name_key(HOSTS[0], host)?;
        match self.store.get(&key)?.is_some() == is_there {
            true => Ok(()),
            false => self.set(key, is_there.then(|| encode(&HostRecord {}))),
        }
    }
}
