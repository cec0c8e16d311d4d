//! Brokers that this process starts.
//!
//! A cluster that nobody serves, or whose broker went away, gets one: the command is started as `stripewise broker --until-idle`, which ends soon after the last
//! program that uses the cluster. It is another process, so that a notebook may fork, or be stopped, while others use the cluster.

use std::collections::HashMap;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use stripewise_darshan::COMMAND_VARIABLE;

/// By state directory; only those whose cluster file is known.
static BROKERS: Mutex<Option<HashMap<PathBuf, Broker>>> = Mutex::new(None);

struct Broker {
    cluster_file: PathBuf,
    started: Option<Child>,
    /// Why the last one did not come.
    failure: Option<String>,
}

impl Broker {
    /// Whether the one that was started here still runs, or ended because another serves.
    fn may_come(&mut self) -> bool {
        let Some(child) = &mut self.started else { return self.failure.is_none() };
        match child.try_wait() {
            Ok(None) => return true,
            Ok(Some(status)) if !status.success() => {
                let words = words(&self.cluster_file);
                self.failure = Some(format!("`{words}` ended with {status}; run it to see why"));
            }
            // The parent's, in a child of `fork`; or waited for by the program.
            Ok(Some(_)) | Err(_) => {}
        }
        self.started = None;
        self.failure.is_none()
    }

    fn start(&mut self) -> bool {
        if self.may_come() && self.started.is_some() {
            return true;
        }
        let command = std::env::var_os(COMMAND_VARIABLE).filter(|named| !named.is_empty());
        let command = command.unwrap_or("stripewise".into());
        // In a process group of its own: Ctrl-C in a notebook is not for it.
        let started = Command::new(&command)
            .arg("--cluster")
            .arg(&self.cluster_file)
            .args(["broker", "--until-idle"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn();
        self.failure = started.as_ref().err().map(|error| {
            format!("cannot start {} as a broker: {error}; name the command in {COMMAND_VARIABLE}", command.display())
        });
        self.started = started.ok();
        self.started.is_some()
    }
}

fn words(cluster_file: &Path) -> String {
    format!("stripewise -C {} broker", cluster_file.display())
}

fn with<T>(state: &Path, call: impl FnOnce(&mut Broker) -> T) -> Option<T> {
    let mut brokers = BROKERS.lock().unwrap_or_else(PoisonError::into_inner);
    brokers.get_or_insert_default().get_mut(state).map(call)
}

/// Names the cluster file with which a broker of `state` is started.
pub(crate) fn name(state: &Path, cluster_file: &Path) {
    let Ok(cluster_file) = std::path::absolute(cluster_file) else { return };
    let mut brokers = BROKERS.lock().unwrap_or_else(PoisonError::into_inner);
    let brokers = brokers.get_or_insert_default();
    match brokers.get_mut(state) {
        Some(broker) => broker.cluster_file = cluster_file,
        None => {
            brokers.insert(state.to_owned(), Broker { cluster_file, started: None, failure: None });
        }
    }
}

/// Starts a broker of `state`, unless one that was started here is still on its way. Returns whether one may come.
pub(crate) fn start(state: &Path) -> bool {
    with(state, Broker::start).unwrap_or(false)
}

/// Whether a broker that was started may still come.
pub(crate) fn may_come(state: &Path) -> bool {
    with(state, Broker::may_come).unwrap_or(false)
}

/// What is to be done where no broker came.
pub(crate) fn remedy(state: &Path) -> String {
    with(state, |broker| broker.failure.clone().unwrap_or_else(|| format!("start `{}`", words(&broker.cluster_file))))
        .unwrap_or_else(|| {
            "name its cluster file (cluster=, or STRIPEWISE_CLUSTER), so that a broker can be started".to_owned()
        })
}
