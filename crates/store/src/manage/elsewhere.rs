//! Programs of other hosts that have a file open which is to be replaced.
//!
//! The master of the cluster asks the agents of all hosts that ever took part; each looks at its own processes. A host that cannot say is an error that
//! names it: only a person can know then that no program there has the file.

use super::{Lease, ManageError, Moving, client_fault};
use crate::client::{Client, ClientError};
use crate::entry::DirectoryEntry;
use crate::holders::Wanted;
use crate::protocol::{Admin, Reply, Request, SharedFile};
use rustix::fs::{OFlags, Stat};
use rustix::io::Errno;
use std::path::Path;

/// Refuses the file of a path, which may stand under another name by now, while a program of another host has it open. `is_stub`: a stub, whose users the broker knows; what programs do to its text counts.
pub(super) fn refuse_holders(
    client: &Client,
    (entry, stands_at): (&DirectoryEntry, &DirectoryEntry),
    found: &Stat,
    is_stub: bool,
    moving: &Moving<'_>,
) -> Result<(), ManageError> {
    if !client.is_shared() {
        return Ok(());
    }
    let path = entry.path();
    let directory = rustix::fs::fstat(entry.directory()).map_err(super::os(path, "look at its directory"))?;
    let file = SharedFile {
        path: path.to_string_lossy().into_owned(),
        stands_at: stands_at.path().to_string_lossy().into_owned(),
        directory_inode: directory.st_ino,
        inode: found.st_ino,
        mode: found.st_mode,
        is_stub,
    };
    let request = Request::Admin(Admin::Holders { file, unchecked: moving.unchecked_hosts.to_vec() });
    match client.request(&request, &[]).map_err(client_fault(path))?.0 {
        Reply::Holders { holders } if holders.is_empty() => Ok(()),
        Reply::Holders { holders } => {
            Err(ManageError::OpenElsewhere { path: path.to_owned(), holders: holders.join(", ") })
        }
        reply => {
            let what = format!("{reply:?}");
            Err(client_fault(path)(ClientError::Unexpected { request: "Holders", what }))
        }
    }
}

/// Programs of this host, other than this one, that have the file of another host open. An error says in words why that cannot be known.
///
/// # Errors
///
/// Where the directory is another or cannot be reached here, or processes of other users may write the file and cannot be seen.
pub fn holders_on_this_host(file: &SharedFile) -> Result<Vec<String>, String> {
    let fault = |errno: Errno| {
        format!(
            "cannot look at the directory of {} ({errno}); mount the same file system at the same path on every host",
            file.path
        )
    };
    let entry = DirectoryEntry::at(Path::new(&file.stands_at)).map_err(fault)?;
    let directory = rustix::fs::fstat(entry.directory()).map_err(fault)?;
    if directory.st_ino != file.directory_inode {
        return Err(format!(
            "has another directory at the path of {}; mount the same file system at the same path on every host",
            file.path
        ));
    }
    // By numbers: a name may be known here later than where it was given.
    let wanted = Wanted { device: directory.st_dev, inode: file.inode, counts_paths: !file.is_stub };
    let found = wanted.find();
    if !found.holders.is_empty() {
        return Ok(found.holders);
    }
    let by_lease = if file.is_stub { None } else { holders_by_lease(&entry, file.inode) };
    match by_lease {
        Some(holders) => Ok(holders),
        None if !found.is_complete && file.mode & 0o022 != 0 => Err(format!(
            "cannot see which files processes of other users have open, and these may write {}; take that right from them (chmod go-w), or run the agent there as root",
            file.path
        )),
        None => Ok(Vec::new()),
    }
}

/// By the kernel's word, which knows of processes that cannot be seen; `None`: it has none.
fn holders_by_lease(entry: &DirectoryEntry, inode: u64) -> Option<Vec<String>> {
    let descriptor = match entry.open_regular(OFlags::RDONLY | OFlags::NOATIME) {
        Err(Errno::PERM) => entry.open_regular(OFlags::RDONLY),
        result => result,
    };
    let descriptor = match descriptor {
        Ok(descriptor) => descriptor,
        Err(Errno::AGAIN) => return Some(vec!["a program that holds a lease on it".to_owned()]),
        Err(_) => return None,
    };
    if !rustix::fs::fstat(&descriptor).is_ok_and(|found| found.st_ino == inode) {
        return None;
    }
    match Lease::take(&descriptor, entry.path()) {
        Ok(lease) => lease.is_real().then(Vec::new),
        Err(ManageError::OpenElsewhere { holders, .. }) => Some(vec![holders]),
        Err(_) => None,
    }
}
