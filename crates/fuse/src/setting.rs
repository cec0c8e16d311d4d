//! Changes of size, mode, owner and times.

use crate::failure::failed;
use crate::managed::Managed;
use crate::nodes::Node;
use crate::opens::Open;
use fuser::TimeOrNow;
use rustix::fd::AsFd;
use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, OFlags, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, Uid};
use rustix::io::Errno;
use std::time::{SystemTime, UNIX_EPOCH};
use stripewise_store::file::StripedFile;
use stripewise_store::times::set_modified_ns;

/// What is to be changed of a file; `None`: nothing.
#[derive(Default)]
pub(crate) struct Changes {
    pub(crate) mode: Option<u32>,
    pub(crate) uid: Option<u32>,
    pub(crate) gid: Option<u32>,
    pub(crate) size_bytes: Option<u64>,
    /// Whether a change of size drops the set-user and set-group bits.
    pub(crate) drops_privileges: bool,
    pub(crate) accessed: Option<TimeOrNow>,
    pub(crate) modified: Option<TimeOrNow>,
}

impl Changes {
    /// `open`: by which the change was asked for, if by one.
    pub(crate) fn make(self, managed: &Managed, node: &Node, open: Option<&Open>) -> Result<(), Errno> {
        if let Some(size_bytes) = self.size_bytes {
            truncate(managed, node, open, size_bytes)?;
            if self.drops_privileges {
                drop_privileges(managed, node)?;
            }
        }
        if self.uid.is_some() || self.gid.is_some() {
            let (uid, gid) = (self.uid.map(Uid::from_raw), self.gid.map(Gid::from_raw));
            rustix::fs::chownat(node, c"", uid, gid, AtFlags::EMPTY_PATH)?;
        }
        if let Some(mode) = self.mode {
            change_mode(node, mode)?;
        }
        if self.mode.is_some() || self.uid.is_some() || self.gid.is_some() {
            report_attributes(managed, node)?;
        }
        if self.accessed.is_some() || self.modified.is_some() {
            self.set_times(managed, node)?;
        }
        Ok(())
    }

    fn set_times(&self, managed: &Managed, node: &Node) -> Result<(), Errno> {
        let _held = node.hold_times();
        let times = Timestamps { last_access: timespec(self.accessed), last_modification: timespec(self.modified) };
        match node.kind() {
            FileType::Symlink => rustix::fs::utimensat(node, c"", &times, AtFlags::EMPTY_PATH)?,
            _ => rustix::fs::utimensat(CWD, node.link(), &times, AtFlags::empty())?,
        }
        if self.modified.is_some()
            && managed.may_be(&node.stat()?)
            // Refused where this process may not write the file: then the time is its owner's affair alone.
            && let Ok(Some(file)) = managed.open_for_writing(node)
        {
            file.set_modified_ns(None).map_err(|error| failed(&error))?;
        }
        Ok(())
    }
}

/// Gives the stub the time of the last write, if it does not have it yet. A close waits for that, unlike for the end of the open, so that a time that is set after
/// the close is the later one.
pub(crate) fn settle_time(node: &Node, file: &StripedFile) {
    if !file.is_writable() {
        return;
    }
    let _held = node.hold_times();
    if let Some(modified_ns) = file.modified_ns()
        // Refused to who does not own the file. Then the broker does it at the end.
        && set_modified_ns(node, modified_ns).is_ok()
        && let Err(error) = file.hand_back_modified_ns(modified_ns)
    {
        failed(&error);
    }
}

/// The objects take over mode, owner and ACL of the stub.
pub(crate) fn report_attributes(managed: &Managed, node: &Node) -> Result<(), Errno> {
    if let Some(file) = managed.file(node)?
        && let Err(error) = managed.client().attributes_changed(node.as_fd(), file)
    {
        // The stub has them, which permits and refuses; `check` finds objects that were left behind.
        failed(&error);
    }
    Ok(())
}

/// A program that may not keep them writes: the file loses its set-user and set-group bits.
pub(crate) fn drop_privileges(managed: &Managed, node: &Node) -> Result<(), Errno> {
    let mode = node.stat()?.st_mode;
    let runs_as_group = mode & (libc::S_ISGID | libc::S_IXGRP) == libc::S_ISGID | libc::S_IXGRP;
    let dropped = mode & libc::S_ISUID | if runs_as_group { libc::S_ISGID } else { 0 };
    if dropped == 0 {
        return Ok(());
    }
    let changes = Changes { mode: Some(mode & 0o7777 & !dropped), ..Changes::default() };
    changes.make(managed, node, None)
}

/// Who gives rights to a file's group by an ACL without being of that group makes no program run as the group by it. Further groups of the caller are not known here.
pub(crate) fn drop_group_privilege(managed: &Managed, node: &Node, (user, group): (u32, u32)) -> Result<(), Errno> {
    let found = node.stat()?;
    let is_setgid_file = found.st_mode & (libc::S_IFMT | libc::S_ISGID) == libc::S_IFREG | libc::S_ISGID;
    if !is_setgid_file || user == 0 || found.st_gid == group {
        return Ok(());
    }
    let changes = Changes { mode: Some(found.st_mode & 0o7777 & !libc::S_ISGID), ..Changes::default() };
    changes.make(managed, node, None)
}

fn truncate(managed: &Managed, node: &Node, open: Option<&Open>, size_bytes: u64) -> Result<(), Errno> {
    match open {
        Some(Open::Managed(open)) if open.file.is_writable() => {
            return open.file.truncate(size_bytes).map_err(|error| failed(&error));
        }
        Some(Open::Ordinary(open)) => return rustix::fs::ftruncate(&open.file, size_bytes),
        _ => {}
    }
    match managed.open_for_writing(node) {
        Ok(Some(file)) => {
            file.truncate(size_bytes).map_err(|error| failed(&error))?;
            settle_time(node, &file);
            Ok(())
        }
        Ok(None) => rustix::fs::ftruncate(node.open(OFlags::WRONLY)?, size_bytes),
        // The data went with the last name, since nobody has the file open: the truncation came before that.
        Err(Errno::STALE) if node.stat()?.st_nlink == 0 => Ok(()),
        Err(errno) => Err(errno),
    }
}

fn change_mode(node: &Node, mode: u32) -> Result<(), Errno> {
    match node.kind() {
        FileType::Symlink => Err(Errno::OPNOTSUPP),
        _ => rustix::fs::chmodat(CWD, node.link(), Mode::from_raw_mode(mode), AtFlags::empty()),
    }
}

fn timespec(time: Option<TimeOrNow>) -> Timespec {
    match time {
        None => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        Some(TimeOrNow::Now) => Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
        Some(TimeOrNow::SpecificTime(time)) => specific(time),
    }
}

/// Nanoseconds count upwards, before 1970 too.
fn specific(time: SystemTime) -> Timespec {
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => Timespec { tv_sec: after.as_secs() as i64, tv_nsec: after.subsec_nanos().into() },
        Err(before) => {
            let before = before.duration();
            let borrowed = i64::from(before.subsec_nanos() > 0);
            let tv_nsec = i64::from(before.subsec_nanos());
            let tv_nsec = if borrowed > 0 { 1_000_000_000 - tv_nsec } else { 0 };
            Timespec { tv_sec: -(before.as_secs() as i64) - borrowed, tv_nsec }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn times_before_1970_are_set_with_their_nanoseconds_after_their_seconds() {
        let set = |time| (specific(time).tv_sec, specific(time).tv_nsec);
        assert_eq!(set(UNIX_EPOCH - Duration::from_millis(1500)), (-2, 500_000_000));
        assert_eq!(set(UNIX_EPOCH - Duration::from_secs(3)), (-3, 0));
        assert_eq!(set(UNIX_EPOCH + Duration::new(3, 7)), (3, 7));
    }
}
