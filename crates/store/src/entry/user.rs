//! Acting as another user for the time of a few calls.

use rustix::io::Errno;
use std::ffi::CStr;

/// Nobody's group: for users whom the system's user database does not know.
const NO_GROUP: u32 = 65_534;

/// A user with the groups that the system gives them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct User {
    uid: u32,
    gid: u32,
    groups: Vec<libc::gid_t>,
}

impl User {
    /// The user `uid`; one that the system does not know is in no group.
    #[must_use]
    pub fn of(uid: u32) -> Self {
        let mut buffer = vec![0 as libc::c_char; 16_384];
        // SAFETY: all zeros is a valid passwd, whose pointers are null.
        let mut entry: libc::passwd = unsafe { std::mem::zeroed() };
        let mut found = std::ptr::null_mut();
        // SAFETY: entry, buffer (with its length) and found live until the call returns.
        let result = unsafe { libc::getpwuid_r(uid, &mut entry, buffer.as_mut_ptr(), buffer.len(), &mut found) };
        if result != 0 || found.is_null() {
            return Self { uid, gid: NO_GROUP, groups: Vec::new() };
        }
        // SAFETY: getpwuid_r filled the entry, whose name lies in the buffer and ends with a zero.
        let name = unsafe { CStr::from_ptr(entry.pw_name) };
        let mut groups = vec![0; 64];
        loop {
            let mut count = groups.len() as libc::c_int;
            // SAFETY: the name ends with a zero, and groups has space for count numbers.
            let result = unsafe { libc::getgrouplist(name.as_ptr(), entry.pw_gid, groups.as_mut_ptr(), &mut count) };
            let count = usize::try_from(count).unwrap_or_default();
            if result >= 0 {
                groups.truncate(count);
                return Self { uid, gid: entry.pw_gid, groups };
            }
            groups.resize(count.max(groups.len() * 2), 0);
        }
    }

    /// Its own group.
    #[must_use]
    pub fn gid(&self) -> u32 {
        self.gid
    }

    /// Runs `action` with the rights of this user to files, and no more: what root does for a user's file cannot reach what the user
    /// could not. Where this process is not root, it acts as itself; the kernel knows what it may do.
    ///
    /// The rights are those of a thread that lives for the action only (`setgroups`, `setfsgid`, `setfsuid`, which change one thread
    /// each when called as system calls), so that no failure can leave them behind. With another file-system user the kernel takes
    /// away root's power over files (`CAP_DAC_OVERRIDE`, `CAP_FOWNER` and so on) by itself, and what is created belongs to the user.
    ///
    /// # Errors
    ///
    /// That of taking the user's rights on, in which case `action` has not run.
    pub fn act<T: Send>(&self, action: impl FnOnce() -> T + Send) -> rustix::io::Result<T> {
        if self.uid == 0 || !rustix::process::geteuid().is_root() {
            return Ok(action());
        }
        std::thread::scope(|scope| {
            let acting = scope.spawn(|| self.become_it().map(|()| action()));
            acting.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Makes this process the user, for good: root's rights are given up. Before any other thread runs.
    ///
    /// # Errors
    ///
    /// That of the first call that failed; the process may then have the user's groups already.
    pub fn become_for_good(&self) -> rustix::io::Result<()> {
        use rustix::thread::{Gid, Uid};
        let groups: Vec<Gid> = self.groups.iter().map(|group| Gid::from_raw(*group)).collect();
        rustix::thread::set_thread_groups(&groups)?;
        rustix::thread::set_thread_gid(Gid::from_raw(self.gid))?;
        rustix::thread::set_thread_uid(Uid::from_raw(self.uid))
    }

    /// Changes this thread, for good, in what concerns files.
    fn become_it(&self) -> rustix::io::Result<()> {
        let groups: Vec<_> = self.groups.iter().map(|group| rustix::thread::Gid::from_raw(*group)).collect();
        rustix::thread::set_thread_groups(&groups)?;
        // These two return the number of before and tell no failure: asked once more, they return that of now.
        let set = |call, id: u32| {
            // SAFETY: plain numbers; the calls change this thread only.
            unsafe { libc::syscall(call, id) };
            // SAFETY: the same; -1 is no user, so nothing changes.
            let now = unsafe { libc::syscall(call, u32::MAX) };
            if now == libc::c_long::from(id) { Ok(()) } else { Err(Errno::PERM) }
        };
        set(libc::SYS_setfsgid, self.gid)?;
        set(libc::SYS_setfsuid, self.uid)
    }
}
