//! The mapping table at a start and a stop: whether it is there, whole and of this version; and the last good copy of it.
//!
//! The whole table is read before it is served from ([`Audit`]), by a reader that no damage can kill. What is found whole is copied to `rmt.good/`, unless nothing
//! changed since the last copy; so is what a broker leaves when it stops. A repair begins with that copy.

use crate::BrokerError;
use crate::log::{Log, note};
use crate::rmt::lmdb::LmdbStore;
use crate::rmt::{Audit, MappingStore, RmtError, Table};
use std::path::Path;
use stripewise_store::server::ObjectStore;
use stripewise_store::shared::processes::Processes;
use stripewise_store::state::StateDirectory;

/// Opens the table that hosts share, over its engine. An engine keeps its own copies and finds its own damages; every value has a checksum all the same.
pub(crate) fn open_shared(
    store: Box<dyn MappingStore>,
    state: &StateDirectory,
    servers: &[Box<dyn ObjectStore>],
) -> Result<Table, BrokerError> {
    if store.scan(b"", None, 1).map_err(BrokerError::from)?.is_empty() {
        refuse_lost_table(state, servers)?;
    }
    Ok(Table::new(store)?)
}

/// Opens the table of this state directory, if all is well with it.
pub(crate) fn open(
    state: &StateDirectory,
    log: &Log,
    servers: &[Box<dyn ObjectStore>],
    processes: &Processes,
    wrap: impl FnOnce(Box<dyn MappingStore>) -> Box<dyn MappingStore>,
) -> Result<Table, BrokerError> {
    let directory = state.table_path();
    match LmdbStore::exists(&directory) {
        true => refuse_damage(&directory, &Audit::of(&directory)?)?,
        false => refuse_lost_table(state, servers)?,
    }
    let store = wrap(Box::new(LmdbStore::open(&directory)?));
    refuse_old_users(store.as_ref(), processes)?;
    let table = Table::new(store)?.witnessed_in(&directory)?;
    keep_good_copy(&table, state, log);
    Ok(table)
}

/// Replaces the last good copy, unless nothing was changed since. What fails is noted: the copy before it stays.
pub(crate) fn keep_good_copy(table: &Table, state: &StateDirectory, log: &Log) {
    if let Err(error) = table.keep_good_copy(&state.table_path()) {
        note!(log, warn, %error, "the mapping table could not be copied");
    }
}

fn refuse_damage(directory: &Path, audit: &Audit) -> Result<(), BrokerError> {
    match audit.is_whole() {
        true => Ok(()),
        false => Err(BrokerError::DamagedTable { table: directory.to_owned(), damages: audit.damages.clone() }),
    }
}

/// A new table over servers that hold objects would make orphans of them all.
pub(crate) fn refuse_lost_table(state: &StateDirectory, servers: &[Box<dyn ObjectStore>]) -> Result<(), BrokerError> {
    if let Some(transactions) = Audit::last_transaction(&state.table_path()) {
        let what = format!("it is missing or empty, but {transactions} transactions were committed");
        return Err(BrokerError::DamagedTable { table: state.table_path(), damages: vec![what] });
    }
    for server in servers {
        // A server that cannot be looked at has no say.
        let objects = server.objects().map_or(0, |objects| objects.len());
        if objects > 0 {
            let server = server.name().to_owned();
            return Err(BrokerError::LostTable { state: state.path().to_owned(), server, objects });
        }
    }
    Ok(())
}

/// Who has a slot while the table is of an earlier version was admitted by a broker of that version, and shares memory with its kind.
fn refuse_old_users(table: &dyn MappingStore, processes: &Processes) -> Result<(), BrokerError> {
    let earlier = Table::earlier_version(table)?;
    match earlier.and_then(|found| processes.any_living().map(|process| (found, process))) {
        Some((found, process)) => Err(BrokerError::OldUser { found, process }),
        None => Ok(()),
    }
}

/// The damages as one sentence.
pub(crate) fn first_of(damages: &[String]) -> String {
    match damages {
        [] => "nothing is known of it".to_owned(),
        [only] => only.clone(),
        [first, more @ ..] => format!("{first} (and {} more)", more.len()),
    }
}

impl From<RmtError> for stripewise_store::protocol::Refusal {
    fn from(error: RmtError) -> Self {
        let what = error.to_string();
        if error.is_full() { Self::NoSpace { what } } else { Self::Table { what } }
    }
}
