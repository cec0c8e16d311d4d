//! The hosts of a cluster, and forgetting one that is gone.

use crate::store::{Store, StoreError};
use serde::Serialize;
use stripewise_store::protocol::{Admin, HostInfo, Reply};

/// A host of the cluster.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Host {
    /// As its kernel has it.
    pub name: String,
    /// Whether it is the one that changes the mapping table.
    pub is_master: bool,
    /// Whether it answers the master.
    pub answers: bool,
    /// How many files it has open; `null`: it has not said since the master changed, and may have any.
    pub files: Option<u64>,
}

/// The hosts that use the cluster now or are waited for, the master first.
///
/// # Errors
///
/// [`StoreError`] if the broker cannot be asked.
pub fn list(store: &Store) -> Result<Vec<Host>, StoreError> {
    let Reply::Hosts { hosts } = store.admin(Admin::Hosts)? else {
        return Err(StoreError::Answer { question: "a question about hosts" });
    };
    let host = |HostInfo { name, is_master, answers, files }: HostInfo| Host { name, is_master, answers, files };
    Ok(hosts.into_iter().map(host).collect())
}

/// A host that does not answer is gone for good: what it had open counts as closed.
///
/// # Errors
///
/// [`StoreError`]; a host that answers, or that is not known, is refused.
pub fn forget(store: &Store, host: &str) -> Result<(), StoreError> {
    store.done(Admin::ForgetHost { host: host.to_owned() })
}
