//! Record locks of programs (`fcntl`), kept on the file itself, so that they exclude redirected programs and others too.
//!
//! A lock belongs to an open file description of this process, one for each owner that the kernel names; so the kernel drops nothing of it when this process
//! closes another descriptor of the file. An owner that is a process loses its locks with the flush of any of its descriptors, as POSIX has it. One that is an open file of a program
//! (`F_OFD_SETLK`) has no flush of its own, and loses them when that open is released. By then every process that had a descriptor of it has flushed.
//!
//! Who waits for a lock asks again and again in a thread of its own: a wait in the kernel could not be broken off when the program gets a signal.

#![allow(unsafe_code, reason = "locks that belong to a description are set by system calls")]

use crate::failure::to_fuse;
use crate::nodes::{Node, lock};
use fuser::{FileHandle, LockOwner, ReplyEmpty};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(20);

/// A lock as it is asked for; `end` is the last byte.
#[derive(Clone, Copy)]
pub(crate) struct Asked {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// `F_RDLCK`, `F_WRLCK` or `F_UNLCK`.
    pub(crate) kind: i32,
}

/// Who asks about a lock, and by which open of the file.
#[derive(Clone, Copy)]
pub(crate) struct Locker {
    pub(crate) owner: LockOwner,
    pub(crate) handle: FileHandle,
}

/// The description that holds an owner's locks.
struct Holder {
    file: Arc<OwnedFd>,
    /// By which the owner asked first.
    handle: FileHandle,
}

/// The descriptions that hold locks.
#[derive(Default)]
pub(crate) struct Locks {
    /// By the numbers of file and owner.
    holders: Mutex<HashMap<u64, HashMap<u64, Holder>>>,
}

impl Locks {
    /// Sets or drops a lock, without waiting.
    pub(crate) fn set(&self, node: &Node, locker: Locker, asked: Asked) -> Result<(), Errno> {
        let Some(holder) = self.holder(node, locker, asked.kind != libc::F_UNLCK)? else { return Ok(()) };
        control(&holder, libc::F_OFD_SETLK, asked).map(drop)
    }

    /// Sets a lock as soon as it can be had, or fails with `INTR` when the thread `thread` of a program gets a signal.
    pub(crate) fn wait(
        self: &Arc<Self>,
        node: Arc<Node>,
        locker: Locker,
        asked: Asked,
        thread: u32,
        reply: ReplyEmpty,
    ) {
        let locks = self.clone();
        let wait = move || {
            let mut pause = FIRST_PAUSE;
            loop {
                match locks.set(&node, locker, asked) {
                    Ok(()) => return reply.ok(),
                    Err(Errno::AGAIN | Errno::ACCESS) if !has_signal(thread) => std::thread::sleep(pause),
                    Err(Errno::AGAIN | Errno::ACCESS) => return reply.error(fuser::Errno::EINTR),
                    Err(errno) => return reply.error(to_fuse(errno)),
                }
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        };
        // Without a thread the reply is dropped, which tells the kernel of an error.
        let _ = std::thread::Builder::new().name("lock".into()).spawn(wait);
    }

    /// A lock that stands in the way of the asked one, with the process that has it; 0 where that is not known.
    pub(crate) fn get(&self, node: &Node, locker: Locker, asked: Asked) -> Result<Option<(Asked, u32)>, Errno> {
        let Some(holder) = self.holder(node, locker, true)? else { return Ok(None) };
        let found = control(&holder, libc::F_OFD_GETLK, asked)?;
        if i32::from(found.l_type) == libc::F_UNLCK {
            return Ok(None);
        }
        let start = found.l_start as u64;
        let end = if found.l_len == 0 { i64::MAX as u64 } else { start + found.l_len as u64 - 1 };
        Ok(Some((Asked { start, end, kind: found.l_type.into() }, u32::try_from(found.l_pid).unwrap_or(0))))
    }

    /// The owner closes a descriptor of the file.
    pub(crate) fn drop_owner(&self, node: u64, owner: LockOwner) {
        let dropped = lock(&self.holders).get_mut(&node).and_then(|owners| owners.remove(&owner.0));
        drop(dropped);
    }

    /// An open of the file is released.
    pub(crate) fn drop_handle(&self, node: u64, handle: FileHandle) {
        let mut holders = lock(&self.holders);
        let Some(owners) = holders.get_mut(&node) else { return };
        let dropped: Vec<_> = owners.extract_if(|_, holder| holder.handle == handle).collect();
        if owners.is_empty() {
            holders.remove(&node);
        }
        drop(holders);
        drop(dropped);
    }

    fn holder(&self, node: &Node, locker: Locker, make: bool) -> Result<Option<Arc<OwnedFd>>, Errno> {
        let mut holders = lock(&self.holders);
        let known = holders.get(&node.number()).and_then(|owners| owners.get(&locker.owner.0));
        if known.is_some() || !make {
            return Ok(known.map(|holder| holder.file.clone()));
        }
        // A lock for writing needs an open for writing; the kernel has seen to it that the program's is one.
        let opened = node.open(OFlags::RDWR).or_else(|_| node.open(OFlags::RDONLY))?;
        let file = Arc::new(opened);
        let holder = Holder { file: file.clone(), handle: locker.handle };
        holders.entry(node.number()).or_default().insert(locker.owner.0, holder);
        Ok(Some(file))
    }
}

fn control(holder: &OwnedFd, command: i32, asked: Asked) -> Result<libc::flock, Errno> {
    let is_open_ended = asked.end >= i64::MAX as u64;
    let mut range = libc::flock {
        l_type: asked.kind as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: asked.start as i64,
        l_len: if is_open_ended { 0 } else { (asked.end - asked.start) as i64 + 1 },
        l_pid: 0,
    };
    // SAFETY: the descriptor is open, and the range is this frame's for the time of the call, which does not wait.
    let result = unsafe { libc::fcntl(holder.as_raw_fd(), command, &raw mut range) };
    if result == -1 {
        let error = std::io::Error::last_os_error();
        return Err(Errno::from_io_error(&error).unwrap_or(Errno::IO));
    }
    Ok(range)
}

/// Whether the thread has a signal that it does not block, or is gone.
fn has_signal(thread: u32) -> bool {
    let status = match std::fs::read_to_string(format!("/proc/{thread}/status")) {
        Ok(status) => status,
        Err(error) => return error.kind() == std::io::ErrorKind::NotFound,
    };
    let set = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        u64::from_str_radix(line.trim(), 16).ok()
    };
    let pending = set("SigPnd:").unwrap_or(0) | set("ShdPnd:").unwrap_or(0);
    pending & !set("SigBlk:").unwrap_or(0) != 0
}
