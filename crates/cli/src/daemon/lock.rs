//! Who follows a plan on a cluster: one process at a time, by a lock that ends with it.

use anyhow::{Context as _, Result, bail};
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
pub(crate) struct DaemonLock {
    file: File,
}

/// What `take` found.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) lock: DaemonLock,
    /// The process that held it before and ended without giving it back.
    pub(crate) died: Option<u32>,
}

impl DaemonLock {
    /// Takes the cluster's lock; an error that names the process that holds it.
    pub(crate) fn take(cluster: &Cluster) -> Result<Taken> {
        // Makes the directory if this is the first command.
        let state = StateDirectory::open(&cluster.state)?;
        let path = cluster.state.join(NAME);
        let cannot = |what: &str| format!("cannot {what} {}", path.display());
        let mut file = File::from(state.open_file(NAME, OFlags::RDWR | OFlags::CREATE)?);
        let locked = flock(&file, FlockOperation::NonBlockingLockExclusive);
        let mut text = String::new();
        file.read_to_string(&mut text).with_context(|| cannot("read"))?;
        let noted: Option<u32> = text.trim().parse().ok();
        match locked {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                let process =
                    noted.map_or_else(|| "another process".to_owned(), |process| format!("process {process}"));
                bail!(
                    "{process} is the daemon of {} already (`stripewise daemon` or `stripewise run --migrate`); stop it first, or leave the moves to it",
                    cluster.state.display()
                );
            }
            Err(errno) => return Err(errno).with_context(|| cannot("lock")),
        }
        file.set_len(0).and_then(|()| file.rewind()).with_context(|| cannot("write"))?;
        writeln!(file, "{}", std::process::id()).with_context(|| cannot("write"))?;
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
