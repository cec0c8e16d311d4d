//! The directories above a stub, by their inodes: whichever of them are renamed, each is found again in the one above it.

use crate::proof::Facts;
use crate::rmt::{FileRecord, Inode};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use std::path::Path;
use stripewise_store::entry::open_directory;

/// Deeper directories are known by their names alone.
const MAX_ANCESTORS: usize = 64;

const WALK: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The directory that a stub's name is in, and those above it, the nearest first.
#[derive(Default)]
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

fn up(directory: impl AsFd) -> Option<OwnedFd> {
    rustix::fs::openat(directory, "..", WALK, Mode::empty()).ok()
}
