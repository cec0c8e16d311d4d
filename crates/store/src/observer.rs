//! Watching what programs read and write on the managed files of a cluster.
//!
//! An [`Observer`] has the broker tell it of files that are open, maps the memory in which their processes note requests (`shared::recent`), and
//! reads what is new whenever it is asked to. Programs notice nothing but the noting; processes may come, die, and close files at any time, and
//! what they had noted is still read. Where a process made more requests between two looks than its ring holds, the oldest were overwritten:
//! they are counted as missed.
//!
//! It outlives a change of broker: the successor is asked at the next [`Observer::meet`], and the files' memory is the same.

mod hosts;
mod rings;

use crate::client::{Client, ClientError};
use crate::protocol::{Admin, ObservedFile, Reply, Request};
use crate::shared::process_slot::ProcessSlot;
pub use crate::shared::recent::Noted;
pub use hosts::{HostStream, HostsObserver};
pub use rings::{FileRings, RingsError};
use rustix::fd::OwnedFd;
use std::collections::BTreeMap;
use stripewise_layout::FileId;

/// What one thread of a process did on one file since the last look.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stream<'a> {
    /// The file read or written.
    pub file: FileId,
    /// Bytes of its regions.
    pub region_bytes: u64,
    /// One for each living process; a later process may get the number of a dead one.
    pub process: ProcessSlot,
    /// The ring that they were noted in, below [`RINGS`](crate::shared::slots::RINGS). A thread keeps to one as long as no other is in it; threads beyond the number of a process's own
    /// rings share the last ones.
    pub lane: usize,
    /// Those that are known, in the order in which they ended.
    pub requests: &'a [Noted],
    /// How many came before them, after the last look, and are not known.
    pub missed: u64,
}

/// A file that is watched.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Watched {
    /// Its identity.
    pub file: FileId,
    /// Where it stood when it was first seen.
    pub path: String,
    /// Bytes of its regions.
    pub region_bytes: u64,
    /// Logical size now.
    pub size_bytes: u64,
}

struct Memory {
    path: String,
    region_bytes: u64,
    rings: FileRings,
}

/// Quiet files are looked at for new processes every so many times.
const QUIET_TURN: u64 = 10;

/// Watches until dropped; then, with the client's last handle, processes stop noting.
pub struct Observer {
    client: Client,
    /// Of which broker the number is.
    since_ns: u64,
    after: u64,
    files: BTreeMap<FileId, Memory>,
    turns: u64,
}

impl Observer {
    /// From here on processes note their requests. The client's connection must be one of the broker's own user or root.
    ///
    /// # Errors
    ///
    /// [`ClientError::Refused`] with
    /// [`Refusal::NotPermitted`](crate::protocol::Refusal::NotPermitted) to other users, otherwise
    /// those of [`Self::meet`].
    pub fn start(client: Client) -> Result<Self, ClientError> {
        let mut observer = Self { client, since_ns: 0, after: 0, files: BTreeMap::new(), turns: 0 };
        observer.meet()?;
        Ok(observer)
    }

    /// Takes in files and processes that came meanwhile, and leaves files that are no more; returns these.
    ///
    /// # Errors
    ///
    /// Those of [`Client::request`], and [`ClientError::Os`] or [`ClientError::Unexpected`] where a
    /// file's memory cannot be mapped.
    pub fn meet(&mut self) -> Result<Vec<FileId>, ClientError> {
        loop {
            let request = Request::Admin(Admin::Observe { after: self.after, reset: self.since_ns == 0 });
            let (since_ns, files, more) = match self.client.request(&request, &[])?.0 {
                Reply::Observed { since_ns, files, more } => (since_ns, files, more),
                reply => return Err(unexpected("Observe", &reply)),
            };
            if std::mem::replace(&mut self.since_ns, since_ns) != since_ns && self.after > 0 {
                // Numbers are another broker's.
                self.after = 0;
                continue;
            }
            for observed in files {
                self.after = observed.number;
                self.take_in(observed)?;
            }
            if !more {
                break;
            }
        }
        let gone = self.files.iter().filter(|(_, memory)| memory.rings.is_gone());
        let gone: Vec<FileId> = gone.map(|(file, _)| *file).collect();
        gone.iter().for_each(|file| drop(self.files.remove(file)));
        self.turns += 1;
        let is_turn = self.turns.is_multiple_of(QUIET_TURN);
        let checked = self.files.values_mut().filter(|memory| is_turn || !memory.rings.is_quiet());
        checked.for_each(|memory| memory.rings.find_processes());
        Ok(gone)
    }

    fn take_in(&mut self, observed: ObservedFile) -> Result<(), ClientError> {
        let file = observed.file;
        let asked = self.client.request(&Request::Admin(Admin::ObservedMemory { file }), &[]);
        let along = match asked {
            Ok((Reply::Opened { .. }, descriptors)) => match <[OwnedFd; 3]>::try_from(descriptors) {
                Ok(along) => along,
                Err(found) => {
                    let what = format!("{} descriptors", found.len());
                    return Err(ClientError::Unexpected { request: "ObservedMemory", what });
                }
            },
            Ok((reply, _)) => return Err(unexpected("ObservedMemory", &reply)),
            // Removed in the meantime.
            Err(ClientError::Refused(_)) => return Ok(()),
            Err(error) => return Err(error),
        };
        let fault = |error: RingsError| match error {
            RingsError::Os(source) => ClientError::Os { action: "mapping a file's shared memory", source },
            RingsError::Control(error) => {
                ClientError::Unexpected { request: "ObservedMemory", what: error.to_string() }
            }
        };
        let identity = FileRings::identity_of(&along[2]).map_err(|errno| fault(errno.into()))?;
        if let Some(known) = self.files.get_mut(&file).filter(|known| known.rings.has(identity)) {
            known.path = observed.path;
            return Ok(());
        }
        let rings = FileRings::map(file, &along).map_err(fault)?;
        self.files.insert(file, Memory { path: observed.path, region_bytes: observed.region_bytes, rings });
        Ok(())
    }

    /// All files that were seen to be open and that still exist, in the order of their numbers.
    pub fn files(&self) -> impl Iterator<Item = Watched> {
        self.files.iter().map(|(file, memory)| Watched {
            file: *file,
            path: memory.path.clone(),
            region_bytes: memory.region_bytes,
            size_bytes: memory.rings.size_bytes(),
        })
    }

    /// Hands over what came since the last time from processes that are known, stream by stream in the order of files, processes and lanes. What
    /// others noted waits for [`Self::meet`].
    pub fn drain(&mut self, mut see: impl FnMut(&Stream<'_>)) {
        for (file, memory) in &mut self.files {
            let (file, region_bytes) = (*file, memory.region_bytes);
            memory.rings.read(|process, lane, requests, missed| {
                see(&Stream { file, region_bytes, process, lane, requests, missed });
            });
        }
    }
}

fn unexpected(request: &'static str, reply: &Reply) -> ClientError {
    ClientError::Unexpected { request, what: format!("{reply:?}") }
}

/// The time now, as of [`Noted::time_ms`].
#[must_use]
pub fn now_ms() -> u32 {
    crate::shared::recent::now_ms()
}
