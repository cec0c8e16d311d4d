//! New files.
//!
//! A managed file is born without its name ([`NewStub`]), gets its stub's text and its record from the broker, and then its name, unless that was taken
//! meanwhile: so it appears complete.
//! New files belong to whom the call came from, not to whom the mount belongs to: root makes them as that user ([`identity`]). Where this process may not, others
//! make none: as the process's own they could carry its set-user bit.

use crate::failure::failed;
use crate::identity;
use crate::managed::Managed;
use crate::nodes::Node;
use crate::umask;
use fuser::{FileAttr, FileType};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, Gid, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use stripewise_store::client::ClientError;
use stripewise_store::file::StripedFile;
use stripewise_store::new_stub::{Birth, NewStub};
use stripewise_store::protocol::Refusal;

/// Whose a new file is, and what its mode may not have.
#[derive(Clone, Copy)]
pub(crate) struct Owner {
    uid: u32,
    gid: u32,
    mask: Mode,
}

impl Owner {
    /// `mask`: the program's.
    pub(crate) fn of(request: &fuser::Request, mask: u32) -> Self {
        Self { uid: request.uid(), gid: request.gid(), mask: Mode::from_raw_mode(mask) }
    }

    /// Whether the owner of a new file may certainly open that older one instead. It is the owner's too, so the first bits of its mode say all, and no ACL.
    pub(crate) fn may_open(self, found: &FileAttr, flags: i32) -> bool {
        let reads = flags & libc::O_ACCMODE != libc::O_WRONLY;
        let writes = flags & libc::O_ACCMODE != libc::O_RDONLY || flags & libc::O_TRUNC != 0;
        let permits = |bit: u32, is_needed: bool| !is_needed || u32::from(found.perm) & bit != 0;
        found.kind == FileType::RegularFile
            && found.uid == self.uid
            && permits(libc::S_IRUSR, reads)
            && permits(libc::S_IWUSR, writes)
    }

    /// Whether a set-user bit is dropped of what the owner changes.
    pub(crate) fn drops_privileges(self) -> bool {
        self.uid != 0
    }

    /// `PERM`: this process cannot give the owner a file.
    fn check(self) -> rustix::io::Result<()> {
        let own = rustix::process::geteuid();
        if own.is_root() || own.as_raw() == self.uid { Ok(()) } else { Err(Errno::PERM) }
    }

    /// Makes something as the owner, with the owner's mask.
    fn act<T>(self, make: impl FnOnce() -> Result<T, Errno>) -> Result<T, Errno> {
        let is_root = rustix::process::geteuid().is_root();
        umask::with(self.mask, || {
            if is_root && !self.is_process() { identity::with(self.uid, self.gid, make) } else { make() }
        })
    }

    /// Gives the new file the owner's group. Root has made it so; another process can only of an open file, if it is of that group.
    fn take(self, parent: &Node, file: &OwnedFd) -> rustix::io::Result<()> {
        if rustix::process::geteuid().is_root() || self.is_process() || parent.stat()?.st_mode & libc::S_ISGID != 0 {
            return Ok(());
        }
        let mode = rustix::fs::fstat(file)?.st_mode;
        rustix::fs::fchown(file, None, Some(Gid::from_raw(self.gid)))?;
        kept(mode).map_or(Ok(()), |mode| rustix::fs::fchmod(file, mode))
    }

    fn is_process(self) -> bool {
        self.uid == rustix::process::geteuid().as_raw() && self.gid == rustix::process::getegid().as_raw()
    }
}

/// The mode to set again after a change of owner, which drops set-user and set-group bits; `None` without any.
fn kept(mode: u32) -> Option<Mode> {
    let mode = Mode::from_raw_mode(mode);
    mode.intersects(Mode::SUID | Mode::SGID).then_some(mode)
}

/// A file just made and open.
pub(crate) struct Made {
    pub(crate) file: OwnedFd,
    /// Of a managed one.
    pub(crate) striped: Option<Arc<StripedFile>>,
}

/// Makes a regular file of a name that is free, open for reading and writing; an ordinary one in sync with its device if `flags` say so.
pub(crate) fn make(
    managed: &Managed,
    parent: &Node,
    name: &OsStr,
    mode: Mode,
    flags: OFlags,
    owner: Owner,
) -> Result<Made, Errno> {
    owner.check()?;
    let path = parent.path()?.join(name);
    if !managed.client().takes(&path) {
        return make_ordinary(parent, name, mode, flags, owner);
    }
    // Else it would be made for nothing.
    if rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW).is_ok() {
        return Err(Errno::EXIST);
    }
    let client = managed.client();
    // Other hosts look at it by a name.
    let birth = if client.is_shared() { Birth::Named } else { Birth::Either };
    let access = OFlags::RDWR | OFlags::CLOEXEC;
    let (file, mut stub) = owner.act(|| NewStub::make(parent.as_fd(), c".", access, mode, birth))?;
    owner.take(parent, &file)?;
    let striped = match client.create(&path, file.as_fd()) {
        Ok(striped) => striped,
        // The directory was managed when the mount began.
        Err(ClientError::Refused(Refusal::NotManaged { .. })) => {
            drop((file, stub));
            return make_ordinary(parent, name, mode, flags, owner);
        }
        Err(error) => return Err(failed(&error)),
    };
    let name = CString::new(name.as_bytes()).map_err(|_| Errno::INVAL)?;
    match stub.link(file.as_fd(), &name) {
        Ok(()) => client.report_linked(striped.id()),
        Err(errno) => {
            if let Err(error) = client.abandon(striped.id()) {
                failed(&error);
            }
            return Err(errno);
        }
    }
    Ok(Made { file, striped: Some(striped) })
}

fn make_ordinary(parent: &Node, name: &OsStr, mode: Mode, flags: OFlags, owner: Owner) -> Result<Made, Errno> {
    let syncs = flags & (OFlags::SYNC | OFlags::DSYNC);
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC | syncs;
    let file = owner.act(|| rustix::fs::openat(parent, name, flags, mode))?;
    owner.take(parent, &file).inspect_err(|_| {
        let _ = rustix::fs::unlinkat(parent, name, AtFlags::empty());
    })?;
    Ok(Made { file, striped: None })
}

/// Makes what is no regular file: a FIFO, a socket or a device.
pub(crate) fn make_special(parent: &Node, name: &OsStr, mode: u32, device: u32, owner: Owner) -> Result<(), Errno> {
    owner.check()?;
    let (major, minor) = (device >> 8 & 0xfff, device & 0xff | device >> 12 & 0xfff00);
    let kind = rustix::fs::FileType::from_raw_mode(mode);
    let (mode, device) = (Mode::from_raw_mode(mode), rustix::fs::makedev(major, minor));
    owner.act(|| rustix::fs::mknodat(parent, name, kind, mode, device))
}

/// Makes a directory.
pub(crate) fn make_directory(parent: &Node, name: &OsStr, mode: u32, owner: Owner) -> Result<(), Errno> {
    owner.check()?;
    owner.act(|| rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(mode)))
}

/// Makes a symbolic link.
pub(crate) fn make_link(parent: &Node, name: &OsStr, target: &OsStr, owner: Owner) -> Result<(), Errno> {
    owner.check()?;
    owner.act(|| rustix::fs::symlinkat(target.as_bytes(), parent, name))
}
