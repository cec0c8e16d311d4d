//! What hosts of a cluster that has many know of each other: who may have files open, who was shut out, who ever took part, and which servers are emptied.

use super::keys::name_key;
use super::records::{HostRecord, KeyRecord, encode};
use super::{Changes, MappingStore, RmtError, SCAN, Table, decode};
use crate::agent_identity::AgentIdentity;

const HOSTS: &[u8] = b"a";
const SHUT_OUT: u8 = b'd';
const DRAINED: u8 = b'q';
const KEY: &[u8] = b"k";
const KNOWN: u8 = b'j';

/// Those that may have files open by a store that need not be open as a table yet, each with its last agent.
pub(crate) fn hosts_in(store: &dyn MappingStore) -> Result<Vec<(String, AgentIdentity)>, RmtError> {
    let with_agent = |host: String| {
        let agent = agent_in(store, &host)?.unwrap_or_default();
        Ok((host, agent))
    };
    named_in(store, HOSTS[0])?.into_iter().map(with_agent).collect()
}

/// The last agent of a host that may have files open; `None`: it has none open.
pub(crate) fn agent_in(store: &dyn MappingStore, host: &str) -> Result<Option<AgentIdentity>, RmtError> {
    Ok(record_in(store, HOSTS[0], host)?.map(|record| record.agent.unwrap_or_default()))
}

fn record_in(store: &dyn MappingStore, kind: u8, host: &str) -> Result<Option<HostRecord>, RmtError> {
    let key = name_key(kind, host)?;
    store.get(&key)?.map(|bytes| decode(&key, &bytes)).transpose()
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

/// Whether this agent of the host, or one before it, was shut out of the servers and has not come back since, by a store that need not be open as a table
/// yet.
pub(crate) fn is_shut_out_in(store: &dyn MappingStore, host: &str, agent: &AgentIdentity) -> Result<bool, RmtError> {
    let record = record_in(store, SHUT_OUT, host)?;
    Ok(record.is_some_and(|record| {
        record.shut_out.is_empty() || record.shut_out.iter().any(|shut_out| agent.succeeds(shut_out))
    }))
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
    /// Notes, durably, that the agent that was there last is shut out. Another machine of that name, which may come before it comes back, is not.
    pub fn note_shut_out(&self, host: &str) -> Result<(), RmtError> {
        let agent = agent_in(self.store.as_ref(), host)?.unwrap_or_default();
        let mut record = record_in(self.store.as_ref(), SHUT_OUT, host)?.unwrap_or_default();
        if record.shut_out.contains(&agent) {
            return Ok(());
        }
        record.shut_out.push(agent);
        self.set(name_key(SHUT_OUT, host)?, Some(encode(&record)))
    }

    /// Notes, durably, that this agent knows whether it was shut out.
    pub fn note_back(&self, host: &str, agent: &AgentIdentity) -> Result<(), RmtError> {
        let Some(mut record) = record_in(self.store.as_ref(), SHUT_OUT, host)? else { return Ok(()) };
        let before = record.shut_out.len();
        record.shut_out.retain(|shut_out| !agent.succeeds(shut_out));
        match record.shut_out.len() {
            0 => self.set(name_key(SHUT_OUT, host)?, None),
            left if left == before => Ok(()),
            _ => self.set(name_key(SHUT_OUT, host)?, Some(encode(&record))),
        }
    }

    /// Notes, durably, that a host is there with this agent, or that it is not.
    pub fn note_host(&self, host: &str, agent: Option<&AgentIdentity>) -> Result<(), RmtError> {
        match agent {
            None => note(self, HOSTS[0], host, false),
            Some(agent) if agent_in(self.store.as_ref(), host)?.as_ref() == Some(agent) => Ok(()),
            Some(agent) => {
                let record = HostRecord { agent: Some(agent.clone()), ..HostRecord::default() };
                self.set(name_key(HOSTS[0], host)?, Some(encode(&record)))
            }
        }
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

    /// Directories in which the host was found to see what others change, and they what it changes. Another machine of that name may see them otherwise.
    pub(crate) fn probed_with(&self, host: &str, agent: &AgentIdentity) -> Result<Vec<String>, RmtError> {
        let record = record_in(self.0.store.as_ref(), KNOWN, host)?.unwrap_or_default();
        let is_of_machine = record.agent.is_none_or(|probed| agent.is_on_machine_of(&probed));
        Ok(if is_of_machine { record.probed } else { Vec::new() })
    }

    /// Notes, durably, that these are all.
    pub(crate) fn note_probed_with(
        &self,
        host: &str,
        agent: &AgentIdentity,
        probed: Vec<String>,
    ) -> Result<(), RmtError> {
        let record = HostRecord { probed, agent: Some(agent.clone()), ..HostRecord::default() };
        self.0.set(name_key(KNOWN, host)?, Some(encode(&record)))
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

/// Of a server that is not the cluster's any more.
pub(super) fn no_longer_drained(changes: &mut Changes, server: &str) -> Result<(), RmtError> {
    changes.set(name_key(DRAINED, server)?, None);
    Ok(())
}

/// Hosts that may have files open by another table are expected in this one, those that were shut out are to be told, and servers are emptied as there.
pub(crate) fn expect_as(table: &Table, other: &Table) -> Result<(), RmtError> {
    for kind in [HOSTS[0], SHUT_OUT, KNOWN] {
        for host in named_in(other.store.as_ref(), kind)? {
            let record = record_in(other.store.as_ref(), kind, &host)?.unwrap_or_default();
            table.set(name_key(kind, &host)?, Some(encode(&record)))?;
        }
    }
    drained_in(other)?.iter().try_for_each(|server| note_drained(table, server, true))
}

#[cfg(test)]
mod tests {
    use super::super::begin_in_memory;
    use super::*;

    fn agent(machine: &str, boot: &str, directory: &str) -> AgentIdentity {
        AgentIdentity { machine: machine.to_owned(), boot: boot.to_owned(), directory: directory.to_owned() }
    }

    #[test]
    fn a_host_is_expected_with_the_agent_that_was_there_last() {
        let table = begin_in_memory().unwrap();
        let (first, rebooted) = (agent("m1", "b1", "d1"), agent("m1", "b2", "d2"));
        table.note_host("h1", Some(&first)).unwrap();
        assert_eq!(hosts_in(table.store.as_ref()).unwrap(), [("h1".to_owned(), first)]);
        table.note_host("h1", Some(&rebooted)).unwrap();
        let made_again = begin_in_memory().unwrap();
        expect_as(&made_again, &table).unwrap();
        for table in [&table, &made_again] {
            assert_eq!(hosts_in(table.store.as_ref()).unwrap(), [("h1".to_owned(), rebooted.clone())]);
        }
        table.note_host("h1", None).unwrap();
        assert_eq!(agent_in(table.store.as_ref(), "h1").unwrap(), None);
    }

    #[test]
    fn who_was_shut_out_learns_it_although_another_had_its_name_meanwhile() {
        let table = begin_in_memory().unwrap();
        let [first, second, third] = ["1", "2", "3"].map(|number| agent(&format!("m{number}"), number, number));
        let told = |agent: &AgentIdentity| is_shut_out_in(table.store.as_ref(), "h1", agent).unwrap();
        for gone in [&first, &second] {
            table.note_host("h1", Some(gone)).unwrap();
            // A second time after a crash.
            table.note_shut_out("h1").unwrap();
            table.note_shut_out("h1").unwrap();
            table.note_host("h1", None).unwrap();
            table.note_back("h1", &third).unwrap();
        }
        assert!(told(&first) && told(&second) && !told(&third));
        let made_again = begin_in_memory().unwrap();
        expect_as(&made_again, &table).unwrap();
        assert!(is_shut_out_in(made_again.store.as_ref(), "h1", &first).unwrap());
        table.note_back("h1", &first).unwrap();
        assert!(!told(&first) && told(&second));
        table.note_back("h1", &second).unwrap();
        assert!(!told(&second) && table.store.get(&name_key(SHUT_OUT, "h1").unwrap()).unwrap().is_none());
        // Of whom nothing was noted, whoever comes learns it.
        table.note_shut_out("h1").unwrap();
        assert!(told(&third));
        table.note_back("h1", &third).unwrap();
        assert!(!told(&first));
    }

    #[test]
    fn directories_are_probed_with_another_machine_of_a_known_name() {
        let table = begin_in_memory().unwrap();
        let known = KnownHosts(&table);
        known.note("h1", true).unwrap();
        known.note_probed_with("h1", &agent("m1", "b1", "d1"), vec!["/data".to_owned()]).unwrap();
        assert_eq!(known.probed_with("h1", &agent("m1", "b2", "d2")).unwrap(), ["/data"]);
        assert!(known.probed_with("h1", &agent("m2", "b2", "d2")).unwrap().is_empty());
    }
}
