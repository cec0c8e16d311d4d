//! A mount that stands in the tree before anybody serves it.
//!
//! Whoever is to serve it must be able to mount. Root that becomes the owner of a cluster is so no more, so it mounts before: it looks for the mount
//! point with the rights of the owner only, by a descriptor that no link leads elsewhere, and mounts on a directory of the owner's alone.

use super::kernel::{self, Whose};
use super::point::{Point, PointError};
use super::{MountError, MountOptions};
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::path::PathBuf;
use stripewise_store::entry::User;

/// A mount that nobody serves yet. It is unmounted when this is dropped.
#[derive(Debug)]
pub struct Attached {
    pub(super) directory: PathBuf,
    pub(super) point: Point,
    pub(super) device: OwnedFd,
}

impl Attached {
    /// Mounts as `options` say, for the user of this process.
    ///
    /// # Errors
    ///
    /// [`MountError`]; nothing is mounted then.
    pub fn make(options: &MountOptions) -> Result<Self, MountError> {
        let (directory, mut point) = find(options)?;
        let device = kernel::mount(point.path(), &directory, options)?;
        point.set_mounted();
        Ok(Self { directory, point, device })
    }

    /// Mounts as root for the user `owner`, who serves it: by this process, once it has become that user.
    ///
    /// # Errors
    ///
    /// [`MountError`]; nothing is mounted then.
    pub fn make_for(owner: u32, options: &MountOptions) -> Result<Self, MountError> {
        let user = User::of(owner);
        let refused = |source| MountError::Owner { owner, source };
        let (directory, mut point, held) = user.act(|| find_and_hold(options)).map_err(refused)??;
        let found = rustix::fs::fstat(&held).map_err(refused)?;
        if found.st_uid != owner {
            let path = options.mount_point.clone();
            return Err(PointError::OfAnother { path, holder: found.st_uid, owner }.into());
        }
        let device = kernel::mount_on(&held, point.path(), &directory, options, Whose { uid: owner, gid: user.gid() })?;
        point.set_mounted();
        Ok(Self { directory, point, device })
    }
}

fn find(options: &MountOptions) -> Result<(PathBuf, Point), MountError> {
    let directory = std::fs::canonicalize(&options.directory);
    let refused = |source| MountError::Directory { path: options.directory.clone(), source };
    let directory = directory.map_err(|error| refused(Errno::from_io_error(&error).unwrap_or(Errno::IO)))?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(&directory, flags, Mode::empty()).map_err(refused)?;
    let point = Point::prepare(&options.mount_point, &directory)?;
    Ok((directory, point))
}

fn find_and_hold(options: &MountOptions) -> Result<(PathBuf, Point, OwnedFd), MountError> {
    let (directory, point) = find(options)?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let held = rustix::fs::open(point.path(), flags, Mode::empty());
    let held = held.map_err(|source| MountError::Mount { path: options.mount_point.clone(), source })?;
    Ok((directory, point, held))
}
