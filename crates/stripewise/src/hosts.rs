//! The hosts of a cluster: who they are, forgetting one that is gone, the key by which they know each other, and what they see of each other's changes in a directory.

use crate::messages::shown;
use crate::paths::{OnPath as _, PathError};
use crate::store::{Store, StoreError};
use serde::Serialize;
use std::hash::{BuildHasher, RandomState};
use std::path::Path;
use stripewise_store::protocol::{Admin, AgentInfo, HostInfo, ProbedHost, Reply};
use thiserror::Error;

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
    /// Nothing was heard of it for the host timeout: truncations and moves of files that it may have open do not wait for it any longer.
    pub is_silent: bool,
    /// Seconds since anything was heard of it; 0 of the master.
    pub unheard_s: f64,
    /// How many files it has open; `null`: it has not said since the master changed, and may have any.
    pub files: Option<u64>,
    /// The process that serves it; `null`: it has not come since the master changed.
    pub agent: Option<Agent>,
    /// The number by which it was admitted last, higher than any before; `null`: it was not, or the cluster has one host.
    pub admission: Option<u64>,
}

/// The process that serves a host.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Agent {
    /// Its id on its host.
    pub process: u32,
    /// Of its stripewise.
    pub version: String,
    /// When it began to serve, ns since 1970 by its host's clock.
    pub since_ns: u64,
}

/// What the master knows of hosts.
pub(crate) struct Hosts {
    /// The master first.
    pub(crate) hosts: Vec<Host>,
    pub(crate) term: Option<u64>,
    /// What is wrong with the engine of the mapping table, as the master has it.
    pub(crate) coordinator: Result<(), String>,
    pub(crate) key: Option<String>,
}

/// Asks the master for them.
pub(crate) fn ask(store: &Store) -> Result<Hosts, StoreError> {
    let Reply::Hosts { hosts, term, coordinator, key } = store.admin(Admin::Hosts)? else {
        return Err(StoreError::Answer { question: "a question about hosts" });
    };
    Ok(Hosts { hosts: hosts.into_iter().map(Host::from).collect(), term, coordinator, key })
}

impl From<HostInfo> for Host {
    fn from(info: HostInfo) -> Self {
        let agent = |AgentInfo { process, version, since_ns }| Agent { process, version, since_ns };
        Self {
            name: info.name,
            is_master: info.is_master,
            answers: info.answers,
            is_silent: info.is_silent,
            unheard_s: info.unheard_ms as f64 / 1e3,
            files: info.files,
            agent: info.agent.map(agent),
            admission: info.admission,
        }
    }
}

/// The hosts that use the cluster now or are waited for, the master first.
///
/// # Errors
///
/// [`StoreError`] if the broker cannot be asked.
pub fn list(store: &Store) -> Result<Vec<Host>, StoreError> {
    Ok(ask(store)?.hosts)
}

/// A host that does not answer is gone for good: what it had open counts as closed.
///
/// # Errors
///
/// [`StoreError`]; a host that answers, or that is not known, is refused.
pub fn forget(store: &Store, host: &str) -> Result<(), StoreError> {
    store.done(Admin::ForgetHost { host: host.to_owned() })
}

/// What became of the cluster's key.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Rekeyed {
    /// The fingerprint of the key that all hosts have now: the first 16 digits of the public key's SHA-256.
    pub key: String,
    /// How many hosts have it.
    pub hosts: u64,
    /// It was made by an earlier call that was interrupted, and this one has ended that; no further key was made.
    pub was_begun: bool,
}

/// Replaces the cluster's key pair on all hosts, or goes through with a replacement that was interrupted.
///
/// # Errors
///
/// [`StoreError`]; where a host does not answer, nothing is replaced, or both keys are accepted until this is called again.
pub fn rekey(store: &Store) -> Result<Rekeyed, StoreError> {
    let order = RandomState::new().hash_one(std::process::id());
    match store.admin(Admin::Rekey { order })? {
        Reply::Rekeyed { fingerprint, hosts, was_begun } => Ok(Rekeyed { key: fingerprint, hosts, was_begun }),
        _ => Err(StoreError::Answer { question: "an order for another key" }),
    }
}

/// Why a directory is not probed.
#[derive(Debug, Error)]
pub enum ProbeError {
    /// The cluster cannot be used, no other host has an agent, or one cannot reach the directory.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The directory is not here.
    #[error(transparent)]
    Path(#[from] PathError),
    /// A name that hosts cannot be told.
    #[error("{} is not UTF-8; directories of a cluster have names in UTF-8", shown(path))]
    NotUtf8 {
        /// Absolute path.
        path: std::path::PathBuf,
    },
}

/// What hosts see of each other's changes in a directory.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Probed {
    /// Absolute path without links.
    pub directory: String,
    /// Whether all of these hosts can have stubs there: names and locks.
    pub fit_for_stubs: bool,
    /// Whether it can be a server's: names, lengths and bytes.
    pub fit_for_servers: bool,
    /// Each was probed together with the master's host.
    pub hosts: Vec<ProbedWith>,
}

/// What a host and the master's see of each other's changes; of each property what is wrong with it, or `null`.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct ProbedWith {
    /// The host that is not the master's.
    pub host: String,
    /// Names that one of them gives or takes are seen by the other at once.
    pub names: Option<String>,
    /// So is the length of a file.
    pub attributes: Option<String>,
    /// So are bytes, also next to bytes that the other has just written.
    pub data: Option<String>,
    /// `fcntl` locks keep programs of the other out.
    pub locks: Option<String>,
}

/// Probes a directory from the master's host and each other that has an agent. Files that it makes there are removed again.
///
/// # Errors
///
/// [`ProbeError`]: where no other host has an agent, or one cannot reach the directory.
pub fn probe(store: &Store, directory: &Path) -> Result<Probed, ProbeError> {
    let real = std::fs::canonicalize(directory).on("find", directory)?;
    let directory = real.into_os_string().into_string().map_err(|path| ProbeError::NotUtf8 { path: path.into() })?;
    let Reply::Probed { hosts } = store.admin(Admin::Probe { directory: directory.clone() })? else {
        return Err(StoreError::Answer { question: "a probe" }.into());
    };
    let shown =
        |ProbedHost { host, names, attributes, data, locks }| ProbedWith { host, names, attributes, data, locks };
    let hosts: Vec<ProbedWith> = hosts.into_iter().map(shown).collect();
    let is_fit =
        |properties: fn(&ProbedWith) -> [&Option<String>; 3]| hosts.iter().flat_map(properties).all(Option::is_none);
    Ok(Probed {
        fit_for_stubs: is_fit(|host| [&host.names, &host.locks, &None]),
        fit_for_servers: is_fit(|host| [&host.names, &host.attributes, &host.data]),
        directory,
        hosts,
    })
}
