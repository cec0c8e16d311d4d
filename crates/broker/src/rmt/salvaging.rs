//! Tables that are made from entries, and a table's entries: for what is damaged, and for what is made again.

use super::head::Deposition;
use super::{Audit, Entries, RmtError, Table, memory, witness};
use std::path::Path;
use std::sync::Mutex;

/// What can be read of the entries of a table that hosts share. It is not changed by changes to that.
pub(crate) fn salvaged(entries: &Entries) -> Table {
    in_memory(Audit::whole_of(entries))
}

/// A table of these entries that ends with the process.
pub(super) fn in_memory(entries: Entries) -> Table {
    let store = Box::new(memory::MemoryStore::new(entries));
    Table { store, head: Mutex::default(), witness: None, deposition: Deposition::default() }
}

/// An empty table that ends with the process.
pub(crate) fn begin_in_memory() -> Result<Table, RmtError> {
    Table::new(Box::new(memory::MemoryStore::default()))
}

/// All keys with their values, as they stand in the store.
pub(crate) fn entries_of(table: &Table) -> Result<Entries, RmtError> {
    table.store.scan(b"", None, usize::MAX)
}

/// From now on the table notes in `directory` which transaction was the last that is durable.
pub(crate) fn noted_in(mut table: Table, directory: &Path) -> Result<Table, RmtError> {
    let fault = |source| RmtError::Unreadable { path: directory.to_owned(), source };
    let witness = witness::Witness::open(directory).map_err(fault)?;
    witness.note(table.transactions()?).map_err(fault)?;
    table.witness = Some(witness);
    Ok(table)
}
