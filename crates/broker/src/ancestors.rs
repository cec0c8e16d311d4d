//! The directories above a stub, by their inodes: whichever of them are renamed, each is found again in the one above it.

use crate::guard;
use crate::proof::Facts;
use crate::rmt::{FileRecord, Inode};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{CWD, Mode, OFlags};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use stripewise_store::entry::open_directory;

/// Deeper directories are known by their names alone.
const MAX_ANCESTORS: usize = 64;

const WALK: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The directory that a stub's name is in, and those above it, the nearest first.
#[derive(Clone, Default)]
pub(crate) struct Ancestors {
    parent: Option<Inode>,
    above: Vec<Inode>,
}

impl Ancestors {
    pub(crate) fn of_directory(directory: &OwnedFd) -> Self {
        let inode_of = |directory: &dyn AsFd| Facts::of(directory.as_fd()).ok().map(|facts| facts.inode);
        let Some(parent) = inode_of(directory) else { return Self::default() };
        let mut above: Vec<Inode> = Vec::new();
        let mut last = parent;
        let mut next = up(directory);
        // The root is above itself.
        while let Some(directory) = next.take()
            && let Some(inode) = inode_of(&directory)
            && inode != last
            && above.len() < MAX_ANCESTORS
        {
            above.push(inode);
            last = inode;
            next = up(&directory);
        }
        Self { parent: Some(parent), above }
    }

    /// Of the name at `path`.
    pub(crate) fn of_path(path: &str) -> Self {
        let directory = Path::new(path).parent().and_then(|parent| open_directory(parent).ok());
        directory.as_ref().map(Self::of_directory).unwrap_or_default()
    }

    /// The record of a stub that stands at `path`, below these directories.
    pub(crate) fn record(self, path: String, record: &FileRecord) -> FileRecord {
        FileRecord { path, parent: self.parent, above: self.above, ..record.clone() }
    }
}

/// The ancestors last asked for, for the next name in the same directory. Kept as long as the path leads to the same directory: what was renamed above that
/// meanwhile is as old as in the records of the files that were made there before.
#[derive(Default)]
pub(crate) struct RecentAncestors {
    last: Mutex<Option<(PathBuf, Ancestors)>>,
}

impl RecentAncestors {
    /// As [`Ancestors::of_path`].
    pub(crate) fn of_path(&self, path: &str) -> Ancestors {
        let Some(parent) = Path::new(path).parent() else { return Ancestors::default() };
        if let Some((last, ancestors)) = &*guard(&self.last)
            && last == parent
            && let Ok(Some(facts)) = Facts::at_name(CWD, parent.as_os_str())
            && ancestors.parent == Some(facts.inode)
        {
            return ancestors.clone();
        }
        let Ok(directory) = open_directory(parent) else { return Ancestors::default() };
        let ancestors = Ancestors::of_directory(&directory);
        *guard(&self.last) = Some((parent.to_owned(), ancestors.clone()));
        ancestors
    }
}

fn up(directory: impl AsFd) -> Option<OwnedFd> {
    rustix::fs::openat(directory, "..", WALK, Mode::empty()).ok()
}
