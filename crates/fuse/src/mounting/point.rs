//! The mount point: an empty directory apart from what is mounted, made and removed if need be.

use super::kernel;
use rustix::io::Errno;
use std::path::{Path, PathBuf};
use stripewise_layout::printing::shown;
use thiserror::Error;

/// Why a directory is no mount point.
#[derive(Debug, Error)]
pub enum PointError {
    /// It holds files, which the mount would hide.
    #[error(
        "the mount point {} is not empty; name an empty directory, or one that is yet to be made, with --at",
        shown(path)
    )]
    NotEmpty {
        /// As it was named.
        path: PathBuf,
    },
    /// A mount is there already.
    #[error("{} is mounted already, with {source_name}; unmount it with `umount {}` first", shown(path), shown(path))]
    Mounted {
        /// As it was named.
        path: PathBuf,
        /// What is mounted there.
        source_name: String,
    },
    /// Root mounts for the owner of a cluster on directories of that owner only.
    #[error(
        "the mount point {} belongs to user {holder}; with --as-owner it must be user {owner}'s, so name another with --at",
        shown(path)
    )]
    OfAnother {
        /// As it was named.
        path: PathBuf,
        /// Whose it is.
        holder: u32,
        /// The cluster's owner.
        owner: u32,
    },
    /// One lies in the other.
    #[error(
        "the mount point {} and the directory {} lie in each other; name a mount point outside with --at",
        shown(path),
        shown(directory)
    )]
    Nested {
        /// As it was named.
        path: PathBuf,
        /// What is to be mounted.
        directory: PathBuf,
    },
    /// The system refused.
    #[error("cannot {action} the mount point {}", shown(path))]
    System {
        /// `open` or `make`.
        action: &'static str,
        /// As it was named.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
}

/// A mount point. What is mounted there is unmounted when this is dropped.
#[derive(Debug)]
pub(super) struct Point {
    path: PathBuf,
    was_made: bool,
    is_mounted: bool,
}

impl Point {
    /// Checks the mount point `named` for the absolute `directory`; makes it if nothing stands there. A mount of ours whose process ended is taken away.
    pub(super) fn prepare(named: &Path, directory: &Path) -> Result<Self, PointError> {
        let refused = |action, source| PointError::System { action, path: named.to_owned(), source };
        if let Err(error) = std::fs::metadata(named)
            && error.raw_os_error() == Some(Errno::NOTCONN.raw_os_error())
        {
            remove_dead(named)?;
        }
        let was_made = match std::fs::create_dir(named) {
            Ok(()) => true,
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => false,
            Err(error) => return Err(refused("make", error)),
        };
        let path = std::fs::canonicalize(named).map_err(|error| refused("open", error))?;
        let point = Self { path, was_made, is_mounted: false };
        if point.path.starts_with(directory) || directory.starts_with(&point.path) {
            return Err(PointError::Nested { path: named.to_owned(), directory: directory.to_owned() });
        }
        if let Some(source_name) = kernel::mounted_at(&point.path) {
            return Err(PointError::Mounted { path: named.to_owned(), source_name });
        }
        let mut entries = std::fs::read_dir(&point.path).map_err(|error| refused("open", error))?;
        if entries.next().is_some() {
            return Err(PointError::NotEmpty { path: named.to_owned() });
        }
        Ok(point)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn is_mounted(&self) -> bool {
        self.is_mounted
    }

    pub(super) fn set_mounted(&mut self) {
        self.is_mounted = true;
    }

    /// Somebody else has unmounted it.
    pub(super) fn set_unmounted(&mut self) {
        self.is_mounted = false;
    }

    /// Takes the mount out of the tree. Files that are open stay so.
    pub(super) fn unmount(&mut self) {
        self.is_mounted = false;
        kernel::unmount(&self.path);
    }
}

impl Drop for Point {
    fn drop(&mut self) {
        if self.is_mounted {
            self.unmount();
        }
        if self.was_made {
            let _ = std::fs::remove_dir(&self.path);
        }
    }
}

/// Takes away a mount whose process has ended, if it is one of this program's.
fn remove_dead(named: &Path) -> Result<(), PointError> {
    // The table of mounts has no links in its paths. A slash at the end would ask the dead mount whether it is a directory.
    let refused = |source| PointError::System { action: "open", path: named.to_owned(), source };
    let dead = std::fs::canonicalize(named.components().collect::<PathBuf>()).map_err(refused)?;
    match kernel::mounted_at(&dead) {
        Some(source_name) if kernel::is_ours(&source_name) => {
            kernel::unmount(&dead);
            Ok(())
        }
        Some(source_name) => Err(PointError::Mounted { path: named.to_owned(), source_name }),
        // The name leads into a dead mount.
        None => Err(refused(Errno::NOTCONN.into())),
    }
}
