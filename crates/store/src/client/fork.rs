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
//! before its next control operation. A child of `vfork` that forks must not leave a guard behind: the client's memory is its parent's, where the pair
//! is not open ([`Child::Helper`]).

use super::open_file::SharedFile;
use super::{Client, Control, Core, process_table};
use crate::descriptors::{self, Descriptor};
use crate::protocol::Event;
use crate::shared::processes::Processes;
use crate::size_limit;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::AsFd;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::sync::Arc;
use stripewise_layout::FileId;

/// How long the parent waits for the child's registration before it goes on.
const MOMENT: Timespec = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// What was forked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Child {
    /// As the program asked for.
    OfProgram,
    /// One that registers or ends before this process goes on: nothing of the fork is left then.
    Helper,
}

/// Forks whose guards still stand.
#[derive(Default)]
pub(super) struct Pending {
    /// Between `before_fork` and its counterpart.
    now: Option<Now>,
    guards: Vec<GuardedFork>,
}

impl Pending {
    /// The guard of the fork that was just made; the child has the other end.
    fn take_guard(&mut self) -> Option<GuardedFork> {
        self.now.take().map(|Now { child_end, guard }| {
            drop(child_end);
            guard
        })
    }
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
    /// Waits no longer than `timeout`.
    fn has_hung_up(&self, timeout: Option<&Timespec>) -> bool {
        let mut polled = [PollFd::from_borrowed_fd(self.parent_end.as_fd(), PollFlags::empty())];
        poll(&mut polled, timeout).is_ok() && polled[0].revents().contains(PollFlags::HUP)
    }
}

impl Client {
    /// Takes the client's locks, so that no other thread is inside one of them when memory is copied. Must be followed by
    /// [`Self::after_fork_in_parent`], also when the fork failed, and by [`Self::after_fork_in_child`] in the child. A process with several clients calls
    /// [`before_fork`] and its counterparts.
    pub fn before_fork(&self) {
        before_fork(std::slice::from_ref(self));
    }

    /// In the parent, after the fork or after it failed: frees the locks again.
    pub fn after_fork_in_parent(&self, child: Child) {
        after_fork_in_parent(std::slice::from_ref(self), child);
    }

    /// In the child, before anything else of this library. Without a free process slot every use of a file fails from here on.
    pub fn after_fork_in_child(&self) {
        after_fork_in_child(std::slice::from_ref(self));
    }
}

/// [`Client::before_fork`] of all clients that a process has.
pub fn before_fork(clients: &[Client]) {
    for Client { core } in clients {
        core.control.take_for_fork();
        core.objects.take_for_fork();
        guard_files(core);
    }
    // Each one lock for all; the first is taken by making a guard as well.
    // Who has it takes the next one.
    process_table::take_for_fork();
    descriptors::take_for_fork();
    size_limit::take_for_fork();
}

/// [`Client::after_fork_in_parent`] of the same clients.
pub fn after_fork_in_parent(clients: &[Client], child: Child) {
    free_locks(clients);
    clients.iter().for_each(|client| settle_in_parent(&client.core, child));
}

/// [`Client::after_fork_in_child`] of the same clients.
pub fn after_fork_in_child(clients: &[Client]) {
    free_locks(clients);
    // Of all tables, so before any client claims.
    Processes::forget_parents_claims();
    clients.iter().for_each(|client| register_in_child(&client.core));
}

fn settle_in_parent(core: &Core, child: Child) {
    let mut control = core.control.lock();
    let Some(guard) = control.fork.take_guard() else { return };
    match child {
        Child::OfProgram => {
            let settled = guard.has_hung_up(Some(&MOMENT));
            control.fork.guards.push(guard);
            if settled {
                core.settle_forks(&mut control);
            }
        }
        Child::Helper => {
            while !guard.has_hung_up(None) {}
            core.end_guard(&mut control, guard);
        }
    }
}

fn register_in_child(core: &Core) {
    core.objects.forget_pins();
    core.rings.forget_in_child();
    core.agent.forget_in_child();
    let mut control = core.control.lock();
    // The parent's: its socket, and what it has yet to settle.
    control.connection = None;
    control.unconfirmed.clear();
    control.fork.guards.clear();
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

/// Guards every open file, with the lock held by [`before_fork`].
fn guard_files(core: &Core) {
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
}

fn free_locks(clients: &[Client]) {
    size_limit::free_after_fork();
    descriptors::free_after_fork();
    process_table::free_after_fork();
    for Client { core } in clients {
        core.objects.free_after_fork();
        core.control.free_after_fork();
    }
}

impl Core {
    /// Drops the guards of forks whose child has registered or died.
    pub(super) fn settle_forks(&self, control: &mut Control) {
        let mut number = 0;
        while number < control.fork.guards.len() {
            if !control.fork.guards[number].has_hung_up(Some(&AT_ONCE)) {
                number += 1;
                continue;
            }
            let guard = control.fork.guards.swap_remove(number);
            self.end_guard(control, guard);
        }
    }

    fn end_guard(&self, control: &mut Control, guard: GuardedFork) {
        for (file, shared) in &guard.files {
            // A lost broker counts users itself when it comes back.
            let _ = self.leave(control, *file, shared);
        }
    }
}
