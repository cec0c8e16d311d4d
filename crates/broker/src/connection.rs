//! A client's connection, what the client has shown on it, and what it is answered.

use crate::context::Context;
use crate::guard;
use crate::proof::Granted;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::net::UCred;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;
use stripewise_layout::FileId;
use stripewise_store::protocol::{Refusal, Reply};
use stripewise_store::shared::process_slot::{Incarnation, MAX_PROCESSES, ProcessSlot};

/// One client's connection, and what the client has shown on it. Another host of the cluster has one too, which stands for all programs there.
pub(crate) struct Connection {
    pub(crate) id: u64,
    pub(crate) end: End,
    pub(crate) peer: UCred,
    /// Of the peer, once they were asked for.
    pub(crate) groups: OnceLock<Vec<u32>>,
    pub(crate) client: Arc<Mutex<Client>>,
    /// When a packet was served last.
    pub(crate) served: Mutex<Option<Instant>>,
}

/// Who is at the other end.
pub(crate) enum End {
    /// A program of this host.
    Program(OwnedFd),
    /// The agent of the host of this name.
    Host(String),
}

/// Connections of hosts have numbers from here on; those of programs are below.
const FIRST_OF_HOSTS: u64 = 1 << 63;

impl Connection {
    /// That of another host. Its agent has checked what its programs may do; it is of the same user.
    pub(crate) fn of_host(host: &str) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(FIRST_OF_HOSTS);
        let peer =
            UCred { pid: rustix::process::getpid(), uid: rustix::process::geteuid(), gid: rustix::process::getegid() };
        let client = Client { greeted: true, ..Client::default() };
        let end = End::Host(host.to_owned());
        let id = NEXT.fetch_add(1, Relaxed);
        let client = Arc::new(Mutex::new(client));
        Self { id, end, peer, groups: OnceLock::new(), client, served: Mutex::default() }
    }

    /// The host that it stands for; `None`: a program of this one.
    pub(crate) fn host(&self) -> Option<&str> {
        match &self.end {
            End::Program(_) => None,
            End::Host(host) => Some(host),
        }
    }

    /// The client has taken a process slot.
    pub(crate) fn claim(&self, slot: u16, incarnation: u64) -> Result<(), Refusal> {
        if slot >= MAX_PROCESSES {
            return Err(Refusal::Invalid { what: format!("process slot {slot} of {MAX_PROCESSES}") });
        }
        guard(&self.client).claim = Some((ProcessSlot(slot), Incarnation(incarnation)));
        Ok(())
    }

    /// Whether the client has closed the connection, or died. A host whose link has ended may come back.
    pub(crate) fn has_hung_up(&self) -> bool {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let End::Program(socket) = &self.end else { return false };
        let mut polled = [PollFd::new(socket, PollFlags::empty())];
        poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok()
            && polled[0].revents().intersects(PollFlags::HUP | PollFlags::ERR)
    }
}

#[derive(Default)]
pub(crate) struct Client {
    pub(crate) greeted: bool,
    pub(crate) claim: Option<(ProcessSlot, Incarnation)>,
    /// Files opened here, and for what.
    pub(crate) opened: HashMap<FileId, Granted>,
    /// Files that this client has held for itself, whether it has them open or not.
    pub(crate) held: HashSet<FileId>,
    /// Changes of names that a program of a host that follows has begun and not ended.
    pub(crate) changing: HashSet<u64>,
    pub(crate) creations: Creations,
    /// Device and inode of the lane that it handed over.
    pub(crate) lane: Option<(u64, u64)>,
}

/// Files that a client makes one after the other. After some that were all small and written, the next one is expected to be, too.
#[derive(Default)]
pub(crate) struct Creations {
    /// Made last and not closed yet.
    last: Option<FileId>,
    /// Small files that were written, in a row; `None` before the first.
    written: Option<u32>,
}

impl Creations {
    /// Files that have to be written in a row before one is expected to be.
    const ROW: u32 = 4;

    /// Returns whether the file is expected to be written at once. A client's first file goes by the row of those before it: many programs are one process of
    /// many that a script starts.
    pub(crate) fn made(&mut self, file: FileId, row_of_all: &AtomicU32) -> bool {
        self.last = Some(file);
        *self.written.get_or_insert_with(|| row_of_all.load(Relaxed)) >= Self::ROW
    }

    pub(crate) fn is_last(&self, file: FileId) -> bool {
        self.last == Some(file)
    }

    /// The last user of a file that this client made closed it; `is_small`: it was written, and no more than the object of its first stripe takes.
    pub(crate) fn closed(&mut self, file: FileId, is_small: bool, row_of_all: &AtomicU32) {
        if self.is_last(file) {
            self.last = None;
            let before = self.written.unwrap_or(0);
            let row = if is_small { before.saturating_add(1) } else { 0 };
            self.written = Some(row);
            row_of_all.store(row, Relaxed);
        }
    }
}

/// The client that a request is carried out for.
pub(crate) struct Requester<'a>(pub(crate) &'a Connection);

impl Requester<'_> {
    /// Whether it could still be told of the end: neither has its connection ended nor its process.
    pub(crate) fn is_there(&self, context: &Context) -> bool {
        let claim = guard(&self.0.client).claim;
        !self.0.has_hung_up() && claim.is_none_or(|(slot, incarnation)| context.is_alive(slot, incarnation))
    }

    /// The process and its number for the truncation that it asks for, if it numbers them.
    pub(crate) fn truncation(&self, context: &Context) -> Option<(ProcessSlot, Incarnation, u64)> {
        let (slot, incarnation) = guard(&self.0.client).claim?;
        let number = context.processes().truncation_asked(slot);
        (number != 0).then_some((slot, incarnation, number))
    }
}

/// A descriptor that goes along with a reply.
pub(crate) enum Carried {
    Own(OwnedFd),
    /// Must never be closed in this process.
    Kept(BorrowedFd<'static>),
}

impl AsFd for Carried {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Carried::Own(descriptor) => descriptor.as_fd(),
            Carried::Kept(descriptor) => *descriptor,
        }
    }
}

/// A reply with the descriptors that go along.
pub(crate) type Answer = Result<(Reply, Vec<Carried>), Refusal>;
