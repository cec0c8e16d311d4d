//! The keys of this host while it serves, and what replaces them: see [`crate::rekeying`].

use crate::guard;
use crate::hosts::{ClusterKey, KeyError, KeyFiles, LinkError, Listener};
use crate::rmt::KeyRecord;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, Weak};

/// The keys of this host.
pub(crate) struct HostKeys {
    files: Mutex<KeyFiles>,
    /// What others of this cluster connect to.
    listener: OnceLock<Weak<Listener>>,
}

/// What a host does to replace its key.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum KeyStep {
    /// Accept this key too, in the form of its file.
    Prepare { next: String },
    /// Show the key of this fingerprint, and accept the former one too.
    Commit { fingerprint: String },
    /// Accept no other key than the one that is shown.
    End,
}

impl std::fmt::Debug for KeyStep {
    /// Without the key.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::Prepare { .. } => "Prepare",
            Self::Commit { .. } => "Commit",
            Self::End => "End",
        })
    }
}

/// Why a step was not taken.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KeysError {
    #[error(transparent)]
    Key(#[from] KeyError),
    #[error(transparent)]
    Listener(#[from] LinkError),
    #[error(
        "the key file {path} has key {shown}, and the cluster's is {wanted} since `stripewise host rekey` replaced it: copy the file from another host of the cluster, with mode 600"
    )]
    Stale { path: String, shown: String, wanted: String },
}

impl HostKeys {
    pub(crate) fn load(path: &Path) -> Result<Self, KeyError> {
        Ok(Self { files: Mutex::new(KeyFiles::load(path)?), listener: OnceLock::new() })
    }

    /// What this host shows, and accepts.
    pub(crate) fn key(&self) -> ClusterKey {
        guard(&self.files).key()
    }

    /// The fingerprint of what it shows.
    pub(crate) fn shown(&self) -> String {
        guard(&self.files).shown()
    }

    /// From here on the listener's key is this host's, at every step.
    pub(crate) fn belong_to(&self, listener: &Arc<Listener>) {
        let _ = self.listener.set(Arc::downgrade(listener));
    }

    /// Takes a step, and lets those who connect from now on meet what it comes to.
    pub(crate) fn take(&self, step: &KeyStep) -> Result<(), KeysError> {
        let mut files = guard(&self.files);
        match step {
            KeyStep::Prepare { next } => files.prepare(next)?,
            KeyStep::Commit { fingerprint } => {
                if !files.commit(fingerprint)? {
                    return Err(stale(&files, fingerprint));
                }
            }
            KeyStep::End => files.end()?,
        }
        self.show(&files)
    }

    /// Catches up with what the table says of the cluster's key. The files are read again: a person may have copied one.
    pub(crate) fn catch_up(&self, record: Option<&KeyRecord>) -> Result<(), KeysError> {
        let mut files = guard(&self.files);
        let path = files.path().to_owned();
        *files = KeyFiles::load(&path)?;
        if let Some(record) = record {
            if !files.commit(&record.fingerprint)? {
                return Err(stale(&files, &record.fingerprint));
            }
            if record.has_ended {
                files.end()?;
            }
        }
        self.show(&files)
    }

    fn show(&self, files: &KeyFiles) -> Result<(), KeysError> {
        match self.listener.get().and_then(Weak::upgrade) {
            Some(listener) => Ok(listener.use_key(&files.key())?),
            None => Ok(()),
        }
    }

    /// Ends all links that others made: they come back, and need the present key.
    pub(crate) fn end_links(&self) {
        if let Some(listener) = self.listener.get().and_then(Weak::upgrade) {
            listener.close_links();
        }
    }
}

fn stale(files: &KeyFiles, wanted: &str) -> KeysError {
    KeysError::Stale { path: files.path().display().to_string(), shown: files.shown(), wanted: wanted.to_owned() }
}
