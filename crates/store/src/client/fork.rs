//! What becomes of a client when its process forks.
//!
//! A child has its parent's memory and descriptors, but not its kernel locks and not its right to the connection. Right after the fork it
//! takes a process slot of its own and registers as a user of every open file; both need shared memory and one `fcntl` only, no
//! broker. It connects when it first has a request.
//!
//! Between the fork and that registration the parent may close a file whose last name is gone, and the broker would free its data under the
//! child. So before the fork the parent counts itself as a user of every open file once more (the *guard*), and makes a pair of sockets of which
//! the child alone keeps one end: the child closes it when it has registered, the kernel when the child dies first. The parent drops
//! the guard when the pair has hung up. It waits for that a moment after the fork; what takes longer (a stopped child) it settles
//! before its next control operation.

use super::open_file::SharedFile;
use super::{Client, Control, Core};
use crate::descriptors::{self, Descriptor};
use crate::protocol::Event;
use crate::shared::processes::Processes;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::AsFd;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::sync::Arc;
use stripewise_layout::FileId;

/// How long the parent waits for the child's registration before it goes on.
const MOMENT: Timespec = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// Forks whose guards still stand.
#[derive(Default)]
pub(super) struct Pending {
    /// Between `before_fork` and its counterpart.
    now: Option<Now>,
    guards: Vec<GuardedFork>,
}

struct Now {
    child_end: Descriptor,
    guard: GuardedFork,
}

struct GuardedFork {
    parent_end: Descriptor,
    files: Vec<(FileId, Arc<SharedFile>)>,
}

impl GuardedFork {
    fn has_hung_up(&self, timeout: &Timespec) -> bool {
        let mut polled = [PollFd::from_borrowed_fd(self.parent_end.as_fd(), PollFlags::empty())];
        poll(&mut polled, Some(timeout)).is_ok() && polled[0].revents().contains(PollFlags::HUP)
    }
}

impl Client {
    /// Takes the client's locks, so that no other thread is inside one of them when memory is copied. Must be followed by
    /// [`Self::after_fork_in_parent`], also when the fork failed, and by [`Self::after_fork_in_child`] in the child.
    pub fn before_fork(&self) {
        let core = &*self.core;
        core.control.take_for_fork();
        core.objects.take_for_fork();
        descriptors_before(core);
    }

    /// In the parent, after the fork or after it failed: frees the locks again.
    pub fn after_fork_in_parent(&self) {
        let core = &*self.core;
        free_locks(core);
        let mut control = core.control.lock();
        if let Some(Now { child_end, guard }) = control.fork.now.take() {
            drop(child_end);
            let settled = guard.has_hung_up(&MOMENT);
            control.fork.guards.push(guard);
            if settled {
                core.settle_forks(&mut control);
            }
        }
    }

    /// In the child, before anything else of this library. Without a free process slot every use of a file fails from here on.
    pub fn after_fork_in_child(&self) {
        let core = &*self.core;
        free_locks(core);
        core.objects.forget_pins();
        core.rings.forget_in_child();
        core.agent.forget_in_child();
        let mut control = core.control.lock();
        // The parent's: its socket, and what it has yet to settle.
        control.connection = None;
        control.fork.guards.clear();
        Processes::forget_parents_claims();
        let identity = core.processes.claim();
        core.set_identity(identity);
        if let Some((slot, incarnation)) = identity {
            let uses = control.open.values().map(|entry| entry.shared.slots.add_user(slot, incarnation));
            // One that is not counted as a user must not use the file. Every other one, all the same.
            if uses.filter(Result::is_err).count() > 0 {
                core.processes.release(slot);
                core.set_identity(None);
            }
        }
        // Registered: lets the parent's guard go.
        control.fork.now = None;
    }
}

/// Guards every open file, with the lock held by [`Client::before_fork`].
fn descriptors_before(core: &Core) {
    // SAFETY: `take_for_fork` has just taken the lock for this thread, and nothing else uses the value until it is freed.
    let control = unsafe { core.control.held_for_fork() };
    // The child, which may write these files, does not know of it.
    for file in std::mem::take(&mut control.linked) {
        core.send(control, Event::Linked { file });
    }
    if let (Some((slot, incarnation)), false) = (core.identity(), control.open.is_empty())
        && let Ok((parent_end, child_end)) =
            socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
    {
        let files: Vec<_> = control.open.iter().map(|((file, _), entry)| (*file, Arc::clone(&entry.shared))).collect();
        for (_, shared) in &files {
            // It has the file open, so its entry is there.
            let _ = shared.slots.add_user(slot, incarnation);
        }
        let guard = GuardedFork { parent_end: Descriptor::raise(parent_end, core.base), files };
        control.fork.now = Some(Now { child_end: Descriptor::raise(child_end, core.base), guard });
    }
    descriptors::take_for_fork();
}

fn free_locks(core: &Core) {
    descriptors::free_after_fork();
    core.objects.free_after_fork();
    core.control.free_after_fork();
}

impl Core {
    /// Drops the guards of forks whose child has registered or died.
    pub(super) fn settle_forks(&self, control: &mut Control) {
        let mut number = 0;
        while number < control.fork.guards.len() {
            if !control.fork.guards[number].has_hung_up(&AT_ONCE) {
                number += 1;
                continue;
            }
            let guard = control.fork.guards.swap_remove(number);
            for (file, shared) in &guard.files {
                // A lost broker counts users itself when it comes back.
                let _ = self.leave(control, *file, shared);
            }
        }
    }
}
