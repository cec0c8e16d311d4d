//! Who follows a plan on a cluster: one process at a time, by a lock that ends with it.

use super::error::{DaemonError, Result};
use crate::paths::OnPath as _;
use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;
use std::fs::File;
use std::io::{Read, Seek, Write};
use stripewise_layout::Cluster;
use stripewise_store::state::StateDirectory;

/// In the state directory.
const NAME: &str = "daemon";

/// Held until dropped; the kernel gives it up with the process.
#[derive(Debug)]
pub(super) struct DaemonLock {
    file: File,
}

/// What `take` found.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) lock: DaemonLock,
    /// The process that held it before and ended without giving it back.
    pub(super) died: Option<u32>,
}

impl DaemonLock {
    /// Takes the cluster's lock; an error that names the process that holds it.
    pub(super) fn take(cluster: &Cluster) -> Result<Taken> {
        let state = StateDirectory::of(cluster)?;
        let path = cluster.state.join(NAME);
        let mut file = File::from(state.open_file(NAME, OFlags::RDWR | OFlags::CREATE)?);
        let locked = flock(&file, FlockOperation::NonBlockingLockExclusive);
        let mut text = String::new();
        file.read_to_string(&mut text).on("read", &path)?;
        let noted: Option<u32> = text.trim().parse().ok();
        match locked {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                let process =
                    noted.map_or_else(|| "another process".to_owned(), |process| format!("process {process}"));
                return Err(DaemonError::Another { process, state: cluster.state.clone() });
            }
            Err(errno) => Err(errno).on("lock", &path)?,
        }
        file.set_len(0).and_then(|()| file.rewind()).on("write", &path)?;
        writeln!(file, "{}", std::process::id()).on("write", &path)?;
        Ok(Taken { lock: Self { file }, died: noted })
    }
}

impl Drop for DaemonLock {
    fn drop(&mut self) {
        let _ = self.file.set_len(0);
        // A child that is just being started may still have a copy of the descriptor: closing ours would not be enough.
        let _ = flock(&self.file, FlockOperation::Unlock);
    }
}
