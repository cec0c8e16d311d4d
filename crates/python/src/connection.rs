//! The process's clients, one for each cluster, kept until the process ends.

use crate::brokers;
use crate::failure::{failed, of_file, os_error};
use crate::requests::under_way;
use pyo3::prelude::*;
use rustix::io::Errno;
use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use stripewise::messages::chain;
use stripewise::{Session, Voice};
use stripewise_store::client::{Client, ClientError, ClientOptions};
use stripewise_store::packet::PacketError;

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

/// A call of the package: the cluster that it means, and the broker that it waits for.
pub(crate) struct Caller {
    pub(crate) session: Session,
    broker: Mutex<Awaited>,
}

#[derive(Default)]
struct Awaited {
    /// The state directory whose broker this call has started.
    started: Option<PathBuf>,
    /// Whether the last attempt failed only because that broker does not serve yet.
    is_coming: bool,
}

impl Caller {
    fn broker(&self) -> MutexGuard<'_, Awaited> {
        self.broker.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs `call` while the interpreter's other threads go on, again until the broker that it has to start serves; so it asks for clients before it changes
/// anything. Between the attempts nothing is held: the process may fork, and Ctrl-C ends the wait.
pub(crate) fn with_cluster<T: Send>(
    py: Python<'_>,
    cluster: Option<PathBuf>,
    call: impl Fn(&Caller) -> PyResult<T> + Sync,
) -> PyResult<T> {
    let caller = Caller { session: session(cluster), broker: Mutex::default() };
    let begin = Instant::now();
    loop {
        let answer = py.detach(|| {
            let _no_fork = under_way();
            call(&caller)
        });
        let is_coming = std::mem::take(&mut caller.broker().is_coming);
        if answer.is_ok() || !is_coming || begin.elapsed() > BROKER_PATIENCE {
            return answer;
        }
        py.check_signals()?;
        py.detach(|| std::thread::sleep(BROKER_INTERVAL));
    }
}

/// The client of the cluster in `state`, connected now if there is none yet. A broker is started where none serves and the caller means that cluster.
pub(crate) fn client(state: &Path, caller: &Caller) -> Result<Client, PyErr> {
    let session = &caller.session;
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
    let client = connect(state, caller)?;
    clients.insert(state.to_owned(), client.clone());
    Ok(client)
}

/// One attempt. An error of a broker that is on its way is noted in the caller, who repeats it.
fn connect(state: &Path, caller: &Caller) -> Result<Client, PyErr> {
    let options = ClientOptions {
        connect_patience: Duration::ZERO,
        start_broker: Some(brokers::start),
        ..ClientOptions::default()
    };
    let error = match Client::connect(state, options) {
        Ok(client) => return Ok(client),
        Err(error) => error,
    };
    // One that ends closes what had not come to it yet.
    let is_missing = matches!(
        error,
        ClientError::Unreachable { .. }
            | ClientError::Packet(PacketError::Closed)
            | ClientError::StateDirectory { source: Errno::NOENT, .. }
    );
    let mut awaited = caller.broker();
    let is_started = awaited.started.as_deref() == Some(state);
    if !is_started && !is_missing {
        return Err(of_file(&error, state));
    }
    let may_come = if is_started { brokers::may_come(state) } else { brokers::start(state) };
    awaited.started = Some(state.to_owned());
    if !may_come {
        return Err(os_error(Errno::CONNREFUSED, &format!("{}; {}", chain(&error), brokers::remedy(state)), state));
    }
    awaited.is_coming = true;
    Err(of_file(&error, state))
}
