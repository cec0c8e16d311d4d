//! Making files as the user who asks for them.
//!
//! A file that root made and then gave away by its name could be another by then: who may write the directory exchanges the name. So a thread of root's takes
//! the user's identity on for the one call that makes the file, and the kernel gives the file its owner, group and mode at once.
//!
//! The kernel has permitted the call before, by all groups of the program, which are not known here. So the thread keeps the right to pass modes by
//! (`CAP_DAC_OVERRIDE`) and to make devices, and gives up root's other rights over files.

#![allow(unsafe_code, reason = "a thread's identity for files is changed by system calls")]

use rustix::fs::Gid;
use rustix::io::Errno;
use rustix::process::DumpableBehavior;
use rustix::thread::{CapabilitySet, CapabilitySets};
use std::sync::LazyLock;

/// Root's rights over files.
const OVER_FILES: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::LINUX_IMMUTABLE)
    .union(CapabilitySet::MAC_OVERRIDE)
    .union(CapabilitySet::MKNOD);
const KEPT: CapabilitySet = CapabilitySet::DAC_OVERRIDE.union(CapabilitySet::MKNOD);

/// Before the first change of identity, with which the kernel takes it away.
static IS_DUMPABLE: LazyLock<bool> =
    LazyLock::new(|| matches!(rustix::process::dumpable_behavior(), Ok(DumpableBehavior::Dumpable)));

/// Makes something as the user, of that group only. Takes root.
pub(crate) fn with<T>(user: u32, group: u32, make: impl FnOnce() -> Result<T, Errno>) -> Result<T, Errno> {
    let _acting = Acting::begin(user, group)?;
    make()
}

/// A thread that acts as a user; it is what it was when this is dropped.
struct Acting {
    groups: Vec<Gid>,
    user: u32,
    group: u32,
    capabilities: CapabilitySets,
}

impl Acting {
    fn begin(user: u32, group: u32) -> rustix::io::Result<Self> {
        LazyLock::force(&IS_DUMPABLE);
        let capabilities = rustix::thread::capabilities(None)?;
        let groups = rustix::process::getgroups()?;
        let (own_user, own_group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        // Who may not do this may not undo it.
        rustix::thread::set_thread_groups(&[])?;
        let own = Self { groups, user: own_user, group: own_group, capabilities };
        set(libc::SYS_setfsgid, group)?;
        set(libc::SYS_setfsuid, user)?;
        if user != own.user {
            let effective = (capabilities.effective - OVER_FILES) | (capabilities.permitted & KEPT);
            rustix::thread::set_capabilities(None, CapabilitySets { effective, ..capabilities })?;
        }
        Ok(own)
    }

    fn end(&self) -> rustix::io::Result<()> {
        set(libc::SYS_setfsuid, self.user)?;
        set(libc::SYS_setfsgid, self.group)?;
        rustix::thread::set_thread_groups(&self.groups)?;
        rustix::thread::set_capabilities(None, self.capabilities)?;
        if *IS_DUMPABLE {
            rustix::process::set_dumpable_behavior(DumpableBehavior::Dumpable)?;
        }
        Ok(())
    }
}

impl Drop for Acting {
    fn drop(&mut self) {
        if let Err(errno) = self.end() {
            // Whatever this thread did next it would do as the wrong user.
            tracing::error!("a thread of the mount cannot become root again ({errno}); the mount ends");
            std::process::abort();
        }
    }
}

/// Sets one of the ids of this thread that are for files.
fn set(call: libc::c_long, id: u32) -> rustix::io::Result<()> {
    // SAFETY: plain numbers; the call changes this thread only.
    unsafe { libc::syscall(call, id) };
    // It reports no failure, and returns the id of before: -1 is none, so nothing changes.
    // SAFETY: the same.
    let now = unsafe { libc::syscall(call, u32::MAX) };
    if now == libc::c_long::from(id) { Ok(()) } else { Err(Errno::PERM) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn what_is_made_for_a_user_is_the_users_and_the_thread_is_root_again_after_it() {
        if !rustix::process::geteuid().is_root() {
            return eprintln!("SKIPPED: acting as another takes root");
        }
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let state = || {
            let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
            let is_kept = |line: &&str| ["Uid:", "Gid:", "Groups:", "Cap"].iter().any(|start| line.starts_with(start));
            let lines: Vec<_> = status.lines().filter(is_kept).map(str::to_owned).collect();
            (lines, rustix::process::dumpable_behavior().unwrap())
        };
        let before = state();
        let foreign = path("foreign");
        std::fs::write(&foreign, "").unwrap();
        let made = with(65534, 65533, || {
            std::fs::write(path("file"), "").unwrap();
            Ok(std::os::unix::fs::chown(&foreign, Some(65534), None).is_err())
        });
        assert_eq!((made, state()), (Ok(true), before.clone()), "what is root's is not given away");
        let made = path("file").metadata().unwrap();
        assert_eq!((made.uid(), made.gid()), (65534, 65533));
        assert_eq!(with(65534, 65533, || Err::<(), _>(Errno::EXIST)), Err(Errno::EXIST));
        assert!(std::panic::catch_unwind(|| with(65534, 65533, || -> Result<(), Errno> { panic!() })).is_err());
        assert_eq!(state(), before);
    }
}
