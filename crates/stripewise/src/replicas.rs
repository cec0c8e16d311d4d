//! Making the replicas of managed files again where they are not what the file holds.

use crate::interrupt::Interrupt;
use crate::messages::shown;
use crate::moves::{MoveError, report_pause, totals};
use crate::progress::{Task, Voice};
use crate::store::{Store, StoreError};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::Duration;
use stripewise_layout::FileId;
use stripewise_layout::figures::counted;
use stripewise_planner::Replica;
use stripewise_store::protocol::{Admin, Reply, WantedReplicas};
use thiserror::Error;

/// How often the broker is asked how far it is: at first, and once it turns out to take long.
const FIRST_PAUSE: Duration = Duration::from_millis(2);
const MAX_PAUSE: Duration = Duration::from_millis(100);
/// How often syncs are ordered again that ended without a reason: by another broker's start, or by a program that went on writing.
const MAX_ORDERS: u32 = 3;

/// Why replicas are not as wanted.
#[derive(Debug, Error)]
pub enum ReplicaError {
    /// The broker cannot be asked.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The broker does not say what moves.
    #[error(transparent)]
    Moves(#[from] MoveError),
    /// An interrupt came.
    #[error(
        "stopped: {fresh} of {wanted} replicas of {} hold what it holds; the others are not read, and nothing is half made",
        shown(path)
    )]
    Stopped {
        /// The file.
        path: PathBuf,
        /// Replicas that hold what the file holds.
        fresh: u64,
        /// Replicas that its placed regions are to have.
        wanted: u64,
    },
}

/// What the replicas of one file are after a sync.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Synced {
    /// As it was named.
    pub path: PathBuf,
    /// Its id.
    pub file: FileId,
    /// Replicas that its placed regions are to have.
    pub wanted: u64,
    /// Of those, such as hold what the file holds.
    pub fresh: u64,
    /// Of one that does not: why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

impl Synced {
    /// What is to be said of it; `None`: it has every replica.
    pub fn complaint(&self) -> Option<String> {
        let lacking = self.wanted.checked_sub(self.fresh).filter(|lacking| *lacking > 0)?;
        let why = self.why.as_deref().unwrap_or("programs write the file");
        let lacks = counted(lacking as usize, "replica is", "replicas are");
        Some(format!("{}: {lacks} missing of {}: {why}", shown(&self.path), self.wanted))
    }
}

/// As a plan names them.
pub fn wanted(replicas: &[Replica]) -> Vec<WantedReplicas> {
    let wanted = |replica: &Replica| WantedReplicas {
        first: replica.first,
        regions: replica.regions,
        layout: replica.layout.clone(),
    };
    replicas.iter().map(wanted).collect()
}

/// Makes the replicas of the managed file at `path` and waits until all are made that can be.
///
/// # Errors
/// When the broker cannot be asked, or an interrupt comes.
pub fn sync(store: &Store, voice: &Voice, path: &Path, interrupt: Interrupt) -> Result<Synced, ReplicaError> {
    let managed = store.managed(path, false)?;
    let (file, region_bytes) = (managed.striped.id(), managed.striped.region_bytes());
    let (mut orders, mut pause, mut pause_reported) = (0, FIRST_PAUSE, None);
    let mut bar: Option<Box<dyn Task>> = None;
    loop {
        let Reply::Replicas { wanted, fresh, syncing, why } = store.admin(Admin::Replicas { file })? else {
            return Err(StoreError::Answer { question: "a question for replicas" }.into());
        };
        let is_over = fresh == wanted || orders == MAX_ORDERS || (orders > 0 && why.is_some());
        if syncing == 0 && is_over {
            return Ok(Synced { path: path.to_owned(), file, wanted, fresh, why: why.filter(|_| fresh < wanted) });
        }
        if interrupt.came() {
            return Err(ReplicaError::Stopped { path: path.to_owned(), fresh, wanted });
        }
        if syncing == 0 {
            orders += 1;
            store.done(Admin::SyncReplicas { file })?;
            continue;
        }
        report_pause(&totals(store)?, &mut pause_reported, voice);
        let what = || format!("replicas of {}", shown(path));
        let bar = bar.get_or_insert_with(|| voice.bytes(wanted * region_bytes, &what()));
        bar.set(fresh * region_bytes);
        std::thread::sleep(pause);
        pause = (pause * 2).min(MAX_PAUSE);
    }
}
