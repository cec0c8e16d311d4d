//! What a new file takes over from the one that it replaces, beside its bytes.

use crate::times::timespec;
use rustix::fd::OwnedFd;
use rustix::fs::{Gid, Mode, Stat, Timespec, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;
use std::ffi::CString;

/// Mode, owner, times and extended attributes, as they were at first sight.
pub(super) struct Likeness {
    pub(super) stat: Stat,
    times: Timestamps,
    attributes: Vec<(CString, Vec<u8>)>,
}

impl Likeness {
    pub(super) fn of(file: &OwnedFd) -> rustix::io::Result<Self> {
        let stat = rustix::fs::fstat(file)?;
        let time = |seconds, nanoseconds| Timespec { tv_sec: seconds, tv_nsec: nanoseconds };
        let times = Timestamps {
            last_access: time(stat.st_atime as _, stat.st_atime_nsec as _),
            last_modification: time(stat.st_mtime as _, stat.st_mtime_nsec as _),
        };
        Ok(Self { stat, times, attributes: attributes_of(file)? })
    }

    /// Whether neither bytes nor attributes changed since.
    pub(super) fn is_still_of(&self, file: &OwnedFd) -> bool {
        let changed = |s: &Stat| (s.st_ctime, s.st_ctime_nsec);
        self.is_still_of_renamed(file) && rustix::fs::fstat(file).is_ok_and(|now| changed(&now) == changed(&self.stat))
    }

    /// As [`Self::is_still_of`], but for the time of change, which a rename moves.
    pub(super) fn is_still_of_renamed(&self, file: &OwnedFd) -> bool {
        let key = |s: &Stat| (s.st_size, s.st_mtime, s.st_mtime_nsec, s.st_mode, s.st_uid, s.st_gid, s.st_nlink);
        rustix::fs::fstat(file).is_ok_and(|now| key(&now) == key(&self.stat))
    }

    /// Owner first: the old owner never has the new one's permissions.
    pub(super) fn give_owner_and_mode(&self, file: &OwnedFd) -> rustix::io::Result<()> {
        let now = rustix::fs::fstat(file)?;
        if (now.st_uid, now.st_gid) != (self.stat.st_uid, self.stat.st_gid) {
            rustix::fs::fchown(file, Some(Uid::from_raw(self.stat.st_uid)), Some(Gid::from_raw(self.stat.st_gid)))?;
        }
        rustix::fs::fchmod(file, Mode::from_raw_mode(self.stat.st_mode & 0o7777))
    }

    /// Extended attributes, access lists among them. What the kernel lets only some set (`security.*`, `trusted.*`) is given where it allows.
    pub(super) fn give_attributes(&self, file: &OwnedFd) -> rustix::io::Result<()> {
        for (name, value) in &self.attributes {
            let is_users = name.to_bytes().starts_with(b"user.") || name.to_bytes().starts_with(b"system.");
            match rustix::fs::fsetxattr(file, name.as_c_str(), value, XattrFlags::empty()) {
                Err(Errno::PERM | Errno::OPNOTSUPP) if !is_users => {}
                result => result?,
            }
        }
        Ok(())
    }

    pub(super) fn set_modified_ns(&mut self, modified_ns: u64) {
        self.times.last_modification = timespec(modified_ns);
    }

    pub(super) fn give_times(&self, file: &OwnedFd) -> rustix::io::Result<()> {
        rustix::fs::futimens(file, &self.times)
    }
}

fn attributes_of(file: &OwnedFd) -> rustix::io::Result<Vec<(CString, Vec<u8>)>> {
    // The kernel's limits: 64 KiB for all names and for one value.
    let mut names = vec![0u8; 65_536];
    let length = match rustix::fs::flistxattr(file, &mut names[..]) {
        Ok(length) => length,
        Err(Errno::OPNOTSUPP) => return Ok(Vec::new()),
        Err(errno) => return Err(errno),
    };
    let mut found = Vec::new();
    for name in names[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let name = CString::new(name).expect("split at zeros");
        let mut value = vec![0u8; 65_536];
        match rustix::fs::fgetxattr(file, name.as_c_str(), &mut value[..]) {
            Ok(length) => {
                value.truncate(length);
                found.push((name, value));
            }
            // Removed meanwhile, or not for this user's eyes.
            Err(Errno::NODATA | Errno::PERM | Errno::OPNOTSUPP) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(found)
}
