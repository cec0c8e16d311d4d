//! The mapping table at a start and a stop: whether it is there, whole and of this version; and the last good copy of it.
//!
//! The whole table is read before it is served from ([`Audit`]), by a reader that no damage can kill. What is found whole is copied to `rmt.good/`, unless nothing
//! changed since the last copy; so is what a broker leaves when it stops. A repair begins with that copy.
//!
//! The table that hosts share is read by each new master in the same way. Its engine keeps copies and history of its own.

use crate::BrokerError;
use crate::engine;
use crate::log::{Log, note};
use crate::rmt::lmdb::LmdbStore;
use crate::rmt::{
    Audit, ClusterRecord, Entries, Forgetting, GOOD_COPY, KnownHosts, MappingStore, RmtError, Table, drained_in,
    earlier_version, noted_in,
};
use std::path::Path;
use stripewise_layout::Cluster;
use stripewise_store::server::ObjectStore;
use stripewise_store::shared::processes::Processes;
use stripewise_store::state::StateDirectory;

/// Opens the table that hosts share, over its engine. The master reads all of it first; a follower serves from nothing of it, and reads what it asks for.
pub(crate) fn open_shared(
    store: Box<dyn MappingStore>,
    state: &StateDirectory,
    (cluster, servers): (&Cluster, &[Box<dyn ObjectStore>]),
    is_master: bool,
) -> Result<Table, BrokerError> {
    if !is_master {
        return Ok(Table::new(store)?);
    }
    let damages = damages_of_shared(&store.scan(b"", None, usize::MAX)?, state, (cluster, servers))?;
    if !damages.is_empty() {
        return Err(BrokerError::DamagedSharedTable { table: name_of(cluster), damages });
    }
    // The state directory holds nothing else of the table.
    Ok(noted_in(Table::new(store)?, &state.table_path())?)
}

/// What is wrong with the entries of a table that hosts share. This host knows of its last transaction under a master of its own.
pub(crate) fn damages_of_shared(
    entries: &Entries,
    state: &StateDirectory,
    (cluster, servers): (&Cluster, &[Box<dyn ObjectStore>]),
) -> Result<Vec<String>, BrokerError> {
    let last = Audit::last_transaction(&state.table_path());
    if entries.is_empty() {
        if let Some((server, objects)) = first_holder(servers, || name_of(cluster))? {
            return Err(BrokerError::LostSharedTable { table: name_of(cluster), server, objects });
        }
        let lost = |last| format!("it is empty, but {last} transactions were committed");
        return Ok(last.map(lost).into_iter().collect());
    }
    Ok(Audit::of_entries(entries, last).damages)
}

/// Where the table that hosts share is.
pub(crate) fn name_of(cluster: &Cluster) -> String {
    cluster.coordinator.as_ref().map_or_else(|| "the state directory".to_owned(), engine::name_of)
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

/// Who opens a table.
#[derive(Clone, Copy)]
pub(crate) enum Opener<'a> {
    /// The broker of a cluster of one host.
    Alone,
    /// The master of a cluster of many, which has this name.
    Master(&'a str),
    Follower,
}

/// Makes sure that the table is the cluster's, and has it mean the servers of cluster.toml: those that were added at the end, and no more those that were taken
/// out there and that nothing means.
pub(crate) fn belong_to(
    table: &Table,
    cluster: &Cluster,
    opener: Opener<'_>,
    (state, log, processes): (&StateDirectory, &Log, &Processes),
) -> Result<(), BrokerError> {
    let servers = cluster.servers.iter().map(|server| server.name.clone()).collect();
    let drained = match (table.belong_to(&ClusterRecord { id: cluster.id.clone(), servers }), opener) {
        (Err(RmtError::Servers { .. }), Opener::Alone) => state.drained()?,
        (Err(RmtError::Servers { .. }), Opener::Master(_)) => drained_in(table)?,
        (belongs, _) => return Ok(belongs?),
    };
    let forgetting = Forgetting::of(table, cluster, &drained)?;
    // Programs and hosts know servers by their numbers, and go on when another serves them.
    let user = match (processes.any_living(), opener) {
        (Some(process), _) => {
            Some((format!("process {process}"), "end it first, then the last can be taken out".into()))
        }
        (None, Opener::Master(own)) => {
            let others = KnownHosts(table).all()?.into_iter().find(|host| host != own);
            let remedy =
                |host: &String| format!("`stripewise host forget {host}` first, then the last can be taken out");
            others.map(|host| (format!("host {host}"), remedy(&host)))
        }
        (None, _) => None,
    };
    if let Some((user, remedy)) = user {
        return Err(forgetting.refusal(format!("{user} knows them so"), remedy).into());
    }
    let names = forgetting.commit(table)?;
    note!(log, info, servers = names.join(", "), "servers were taken out of the mapping table");
    if let Opener::Alone = opener {
        let left: Vec<&str> = drained.iter().filter(|name| !names.contains(name)).map(String::as_str).collect();
        state.keep_drained(&left)?;
        // The one before it would mean them again.
        keep_good_copy(table, state, log);
    }
    Ok(())
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
    let copy = LmdbStore::copy_path(&state.table_path(), GOOD_COPY);
    if let Some(transactions) = [state.table_path(), copy].iter().filter_map(|path| Audit::last_transaction(path)).max()
    {
        let what = format!("it is missing or empty, but {transactions} transactions were committed");
        return Err(BrokerError::DamagedTable { table: state.table_path(), damages: vec![what] });
    }
    match first_holder(servers, || state.table_path().display().to_string())? {
        Some((server, objects)) => Err(BrokerError::LostTable { state: state.path().to_owned(), server, objects }),
        None => Ok(()),
    }
}

/// The first server that holds objects of the cluster, and how many. An error where none of those that can be asked does, but not all can: a `table` that is
/// not there may have been lost then.
pub(crate) fn first_holder(
    servers: &[Box<dyn ObjectStore>],
    table: impl FnOnce() -> String,
) -> Result<Option<(String, usize)>, BrokerError> {
    let mut fault = None;
    for server in servers {
        match server.objects() {
            Ok(objects) if objects.is_empty() => {}
            Ok(objects) => return Ok(Some((server.name().to_owned(), objects.len()))),
            Err(error) => fault = fault.or(Some(error)),
        }
    }
    match fault {
        None => Ok(None),
        Some(error) => Err(BrokerError::NoTable { table: table(), what: error.to_string() }),
    }
}

/// Who has a slot while the table is of an earlier version was admitted by a broker of that version, and shares memory with its kind.
fn refuse_old_users(table: &dyn MappingStore, processes: &Processes) -> Result<(), BrokerError> {
    let earlier = earlier_version(table)?;
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
        Self::from(&error)
    }
}

impl From<&RmtError> for stripewise_store::protocol::Refusal {
    fn from(error: &RmtError) -> Self {
        let what = error.to_string();
        if error.is_full() { Self::NoSpace { what } } else { Self::Table { what } }
    }
}
