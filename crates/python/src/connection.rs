//! The process's clients, one for each cluster, kept until the process ends.

use crate::brokers;
use crate::failure::{failed, of_file, os_error};
use pyo3::PyErr;
use rustix::io::Errno;
use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use stripewise::messages::chain;
use stripewise::{Session, Voice};
use stripewise_store::client::{Client, ClientError, ClientOptions};

/// For how long a broker that was started here may take to serve: it may have to recover what a killed one left.
const BROKER_PATIENCE: Duration = Duration::from_secs(30);
const BROKER_INTERVAL: Duration = Duration::from_millis(10);

static CLIENTS: Mutex<Option<HashMap<PathBuf, Client>>> = Mutex::new(None);

/// All clients that this process has.
pub(crate) fn all() -> Vec<Client> {
    let clients = CLIENTS.lock().unwrap_or_else(PoisonError::into_inner);
    clients.iter().flat_map(HashMap::values).cloned().collect()
}

/// The session of the cluster that is named, or else meant by environment and working directory, as the command has it.
pub(crate) fn session(cluster: Option<PathBuf>) -> Session {
    let of_environment = || std::env::var_os("STRIPEWISE_CLUSTER").filter(|named| !named.is_empty()).map(PathBuf::from);
    Session::new(cluster.or_else(of_environment), Voice::silent())
}

/// Cluster files by device, inode and time of change.
type FileVersion = (u64, u64, i64, i64);

static STATES: Mutex<Option<HashMap<FileVersion, PathBuf>>> = Mutex::new(None);

/// The state directory of the cluster that is meant; `None` if none is. A cluster file is read once, unless it changes.
pub(crate) fn state_of(session: &Session) -> Result<Option<PathBuf>, PyErr> {
    if let Some(state) = session.state_of_run() {
        return Ok(Some(state));
    }
    let Ok(found) = std::fs::metadata(session.cluster_path()) else { return Ok(None) };
    let version = (found.dev(), found.ino(), found.mtime(), found.mtime_nsec());
    let mut states = STATES.lock().unwrap_or_else(PoisonError::into_inner);
    let states = states.get_or_insert_default();
    if let Some(state) = states.get(&version) {
        return Ok(Some(state.clone()));
    }
    let state = session.state().map_err(failed)?;
    states.insert(version, state.clone());
    Ok(Some(state))
}

/// The client of the cluster in `state`, connected now if there is none yet. A broker is started where none serves and `session` means that cluster.
pub(crate) fn client(state: &Path, session: &Session) -> Result<Client, PyErr> {
    let is_meant =
        session.state_of_run().is_none() && state_of(session).is_ok_and(|meant| meant.as_deref() == Some(state));
    if is_meant {
        brokers::name(state, &session.cluster_path());
    }
    let mut clients = CLIENTS.lock().unwrap_or_else(PoisonError::into_inner);
    let clients = clients.get_or_insert_default();
    if let Some(client) = clients.get(state) {
        return Ok(client.clone());
    }
    let client = connect(state)?;
    clients.insert(state.to_owned(), client.clone());
    Ok(client)
}

fn connect(state: &Path) -> Result<Client, PyErr> {
    let options = || ClientOptions {
        connect_patience: Duration::ZERO,
        start_broker: Some(brokers::start),
        ..ClientOptions::default()
    };
    let begin = Instant::now();
    let mut is_started = false;
    loop {
        let error = match Client::connect(state, options()) {
            Ok(client) => return Ok(client),
            Err(error) => error,
        };
        let is_missing =
            matches!(error, ClientError::Unreachable { .. } | ClientError::StateDirectory { source: Errno::NOENT, .. });
        if !is_started && !is_missing {
            return Err(of_file(&error, state));
        }
        let may_come = if is_started { brokers::may_come(state) } else { brokers::start(state) };
        is_started = true;
        if !may_come {
            return Err(os_error(Errno::CONNREFUSED, &format!("{}; {}", chain(&error), brokers::remedy(state)), state));
        }
        if begin.elapsed() > BROKER_PATIENCE {
            return Err(of_file(&error, state));
        }
        std::thread::sleep(BROKER_INTERVAL);
    }
}
