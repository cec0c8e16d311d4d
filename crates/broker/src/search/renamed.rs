//! A stub in a directory of which, or of any directory above it, the name was changed.
//!
//! The path is walked from the root on. Where another directory has the recorded one's name by now, or none, the recorded one is looked for by its
//! inode among the names beside: so any number of directories of one path may have been renamed. One that was moved into another directory
//! is found only in a managed directory, whose own new name is followed in the same way.

use super::{FLAGS, Search};
use crate::proof::Facts;
use crate::rmt::{FileRecord, Inode};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Dir, FileType, Mode, OFlags};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

const WALK: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Looks in the directory that stood at `parent` when the record was made, if it stands elsewhere; returns where the managed directories above it stand
/// now that do not stand at their paths.
pub(super) fn search(search: &mut Search, parent: &Path, record: &FileRecord, managed: &[String]) -> Vec<PathBuf> {
    let names: Vec<&OsStr> = parent.components().filter_map(normal).collect();
    // The nearest first, the root last, which has no name.
    let known: Vec<Inode> = record.parent.iter().chain(&record.above).copied().collect();
    let (mut moved, mut roots) = (false, Vec::new());
    let Ok(mut at) = rustix::fs::open("/", WALK, Mode::empty()) else { return roots };
    let (mut was, mut is) = (PathBuf::from("/"), PathBuf::from("/"));
    for (depth, name) in names.iter().enumerate() {
        let inode = known.get(names.len() - 1 - depth);
        let by_name = rustix::fs::openat(&at, *name, WALK, Mode::empty()).ok();
        let found = match by_name.filter(|directory| inode.is_none_or(|inode| is_it(directory, inode))) {
            Some(directory) => Some((directory, (*name).to_owned())),
            None => inode.and_then(|inode| find(search, &at, inode)),
        };
        let Some((directory, now)) = found else { return roots };
        moved |= now != **name;
        was.push(name);
        is.push(now);
        if moved && managed.iter().any(|root| Path::new(root) == was) {
            roots.push(is.clone());
        }
        at = directory;
    }
    if moved && let Ok(directory) = rustix::fs::openat(&at, ".", FLAGS, Mode::empty()) {
        search.search_in(&directory, &is);
    }
    roots
}

fn normal(component: Component<'_>) -> Option<&OsStr> {
    match component {
        Component::Normal(name) => Some(name),
        _ => None,
    }
}

/// Device numbers may be others than before the last boot; an inode's number and birth are not.
fn is_it(directory: impl AsFd, inode: &Inode) -> bool {
    Facts::of(directory).is_ok_and(|facts| {
        let found = facts.inode;
        inode.is(&found) || inode.born_ns != 0 && (inode.inode, inode.born_ns) == (found.inode, found.born_ns)
    })
}

/// The directory of that inode in `directory`, and its name.
fn find(search: &mut Search, directory: &OwnedFd, inode: &Inode) -> Option<(OwnedFd, OsString)> {
    let entries = rustix::fs::openat(directory, ".", FLAGS, Mode::empty()).and_then(Dir::new);
    let Ok(entries) = entries else {
        search.is_incomplete = true;
        return None;
    };
    for entry in entries {
        if !search.has_space() {
            return None;
        }
        let Ok(entry) = entry else {
            search.is_incomplete = true;
            return None;
        };
        search.examined += 1;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if entry.ino() == inode.inode
            && matches!(entry.file_type(), FileType::Directory | FileType::Unknown)
            && !matches!(name.as_bytes(), b"." | b"..")
            && let Ok(found) = rustix::fs::openat(directory, name, WALK, Mode::empty())
            && is_it(&found, inode)
        {
            return Some((found, name.to_owned()));
        }
    }
    None
}
