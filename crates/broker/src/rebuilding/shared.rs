//! The table that hosts share: whether it is whole, and making it again in its engine.
//!
//! Whoever makes it again is elected master first, so nobody changes it meanwhile. Three sources are tried, in this order:
//!
//! 1. What the engine's history says that the last master left. If that is whole, it is put back as it was, and nothing else is asked.
//! 2. What servers are told, together with the records of the history and of the damaged table that are whole, as on one host.
//!
//! Hosts that may have had files open are expected by the next master as after any change of the master. A copy of the damaged table stays in the engine.

use super::{Rebuilding, Sources, refuse, refuse_users};
use crate::context::watched_servers;
use crate::coordination::{Candidate, Coordinator, Mastership, NUMBERS_OF_A_TERM, Salvage};
use crate::engine::coordinator_of;
use crate::log::{Log, note};
use crate::membership::Membership;
use crate::rmt::{Audit, Batch, Entries, MappingStore, begin_in_memory, entries_of, expect_as, salvaged};
use crate::table::{damages_of_shared, first_holder, first_of, name_of};
use crate::{BrokerError, BrokerOptions};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use stripewise_layout::{Cluster, Coordinator as Coordination};
use stripewise_store::server::ObjectStore;
use stripewise_store::state::{BrokerLock, HostIdentity, StateDirectory};

/// How long a master before this one is waited for: a lost one's time ends within this.
const PATIENCE: Duration = Duration::from_secs(6);
/// Keys and values that take effect together, in bytes; engines have limits.
const MAX_BYTES: usize = 16 << 20;
/// What the number of the first transaction is beyond all that are known: other hosts may know of later ones.
const UNKNOWN_TRANSACTIONS: u64 = 1 << 20;
/// Name of the copy of a damaged table.
const DAMAGED: &str = "damaged";

/// What is wrong with the table, whoever serves it.
pub(super) fn damages(
    cluster: &Cluster,
    coordination: &Coordination,
    state: &Arc<StateDirectory>,
    options: &BrokerOptions,
) -> Result<Vec<String>, BrokerError> {
    let coordinator = coordinator_of(cluster, coordination)?;
    let salvage = coordinator.salvage()?;
    let mut found = of_salvage(&salvage, cluster, state)?;
    // A new cluster has no table either, and nothing on its servers, which only a master may look at.
    if found.is_empty()
        && salvage.present.is_empty()
        && coordinator.master()?.is_none()
        && let Some(lock) = state.try_lock()?
    {
        let mastership = stand(coordinator.as_ref(), state)?;
        let servers = servers_of(cluster, (&Arc::new(lock), options), mastership.as_ref());
        let holder = first_holder(&servers, || name_of(cluster));
        mastership.resign()?;
        let lost = |(server, objects)| BrokerError::LostSharedTable { table: name_of(cluster), server, objects };
        found.extend(holder?.map(|holder| lost(holder).to_string()));
    }
    Ok(found)
}

fn servers_of(
    cluster: &Cluster,
    (lock, options): (&Arc<BrokerLock>, &BrokerOptions),
    mastership: &dyn Mastership,
) -> Vec<Box<dyn ObjectStore>> {
    let master = mastership.master();
    let membership = Arc::new(Membership::of_master(&master.candidate.name, master.term << NUMBERS_OF_A_TERM));
    watched_servers(cluster, lock, options, Some(&membership))
}

fn of_salvage(salvage: &Salvage, cluster: &Cluster, state: &Arc<StateDirectory>) -> Result<Vec<String>, BrokerError> {
    let found = damages_of_shared(&salvage.present, state, (cluster, &[]))?;
    Ok(salvage.damages.iter().cloned().chain(found).collect())
}

pub(super) fn rebuild(
    cluster: &Cluster,
    coordination: &Coordination,
    state: &Arc<StateDirectory>,
    options: &BrokerOptions,
) -> Result<Vec<String>, BrokerError> {
    let Some(lock) = state.try_lock()? else {
        return Err(refuse("a process of this host serves the cluster; end it, then repeat".to_owned()));
    };
    refuse_users(state)?;
    let coordinator = coordinator_of(cluster, coordination)?;
    let mastership = stand(coordinator.as_ref(), state)?;
    let restored = restore(cluster, state, (&Arc::new(lock), options), coordinator.as_ref(), mastership.as_ref());
    let resigned = mastership.resign();
    let said = restored?;
    resigned?;
    if !said.is_empty() {
        note!(Log::new(state), info, "{}", said.join("; "));
    }
    Ok(said)
}

/// Becomes master, so that nobody else does.
fn stand(coordinator: &dyn Coordinator, state: &StateDirectory) -> Result<Box<dyn Mastership>, BrokerError> {
    // The last agent of this host has ended, since its lock is held here.
    if let Some(term) = state.noted_mastership() {
        coordinator.end_term(term)?;
    }
    let name = HostIdentity::of_this_host()?.name;
    // Nobody is answered here, so nobody can follow.
    let candidate = Candidate { name, address: String::new() };
    match coordinator.campaign(&candidate, PATIENCE)? {
        Some(mastership) => Ok(mastership),
        None => {
            let master =
                coordinator.master()?.map_or_else(|| "another host".to_owned(), |master| master.candidate.name);
            Err(refuse(format!("{master} is master of the cluster; end all programs that use it there, then repeat")))
        }
    }
}

fn restore(
    cluster: &Cluster,
    state: &Arc<StateDirectory>,
    (lock, options): (&Arc<BrokerLock>, &BrokerOptions),
    coordinator: &dyn Coordinator,
    mastership: &dyn Mastership,
) -> Result<Vec<String>, BrokerError> {
    let salvage = coordinator.salvage()?;
    let servers = servers_of(cluster, (lock, options), mastership);
    let is_lost = salvage.present.is_empty() && first_holder(&servers, || name_of(cluster))?.is_some();
    if of_salvage(&salvage, cluster, state)?.is_empty() && !is_lost {
        return Ok(Vec::new());
    }
    let store = mastership.table();
    let mut said = vec![keep_damaged(store.as_ref(), &salvage)];
    let last = Audit::last_transaction(&state.table_path());
    if let Some(history) = salvage.history.as_ref().filter(|history| !history.is_empty())
        && Audit::of_entries(history, last).is_whole()
    {
        replace(store.as_ref(), &salvage.present, history)?;
        let what = format!("the mapping table in {} was put back as its last master left it", name_of(cluster));
        said.insert(0, what);
        return Ok(said);
    }
    let tables = salvage.history.iter().chain([&salvage.present]).map(salvaged).collect();
    let mut sources = Sources::with(tables, last);
    sources.transactions += UNKNOWN_TRANSACTIONS;
    let rebuilding = Rebuilding::new(cluster, state, &servers, sources)?;
    let table = begin_in_memory()?;
    let of_files = rebuilding.fill(&table)?;
    for source in rebuilding.sources.iter().rev() {
        expect_as(&table, source)?;
    }
    let entries = entries_of(&table)?;
    let audit = Audit::of_entries(&entries, last);
    if !audit.is_whole() {
        return Err(refuse(format!("the new table is not whole: {}", first_of(&audit.damages))));
    }
    replace(store.as_ref(), &salvage.present, &entries)?;
    said.insert(0, format!("the mapping table in {} was rebuilt", name_of(cluster)));
    said.extend(of_files);
    Ok(said)
}

fn keep_damaged(store: &dyn MappingStore, salvage: &Salvage) -> String {
    match store.keep_copy(DAMAGED) {
        _ if salvage.present.is_empty() => "nothing was left of the former one".to_owned(),
        Ok(()) => format!("what was left of the former one is kept there as the copy `{DAMAGED}`"),
        Err(error) => format!("what was left of the former one could not be kept: {error}"),
    }
}

/// Puts entries in the place of others. The head goes last: what is put back in part is damaged.
fn replace(store: &dyn MappingStore, present: &Entries, wanted: &Entries) -> Result<(), BrokerError> {
    let present: BTreeMap<_, _> = present.iter().map(|(key, value)| (key, value)).collect();
    let wanted: BTreeMap<_, _> = wanted.iter().map(|(key, value)| (key, value)).collect();
    let removed = present.keys().filter(|key| !wanted.contains_key(*key)).map(|key| ((*key).clone(), None));
    let is_new = |(key, value): &(&&Vec<u8>, &&Vec<u8>)| present.get(*key) != Some(*value);
    let put = wanted.iter().filter(is_new).map(|(key, value)| ((*key).clone(), Some((*value).clone())));
    let (head, others): (Vec<_>, Vec<_>) =
        removed.chain(put).partition(|(key, _): &(Vec<u8>, _)| key.first() == Some(&b'h'));
    let (mut batch, mut bytes) = (Batch::default(), 0);
    let commit = |batch: Batch| match store.commit(&batch)? {
        true => Ok(()),
        false => Err(BrokerError::from(crate::rmt::RmtError::Conflict)),
    };
    for (key, value) in others.into_iter().chain(head) {
        bytes += key.len() + value.as_ref().map_or(0, Vec::len);
        batch.changes.push((key, value));
        if bytes > MAX_BYTES {
            commit(std::mem::take(&mut batch))?;
            bytes = 0;
        }
    }
    commit(batch)
}
