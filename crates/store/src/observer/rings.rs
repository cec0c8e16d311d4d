//! The rings of one file: what its processes noted, read from its memory.

use crate::shared::control::{ControlBlock, ControlError, Life};
use crate::shared::extent::Extent;
use crate::shared::process_slot::ProcessSlot;
use crate::shared::recent::Noted;
use crate::shared::slots::{RINGS, Slots};
use rustix::fd::OwnedFd;
use std::collections::{HashMap, HashSet};
use stripewise_layout::FileId;

/// A file whose requests are read.
pub struct FileRings {
    /// Device and inode of the slots.
    identity: (u64, u64),
    control: ControlBlock,
    extent: Extent,
    slots: Slots,
    /// By process and lane: the request that is read next.
    next: HashMap<(u16, usize), u64>,
    /// Processes whose rings are read: those that have the file open, and such as left something there.
    processes: Vec<ProcessSlot>,
    /// Reads since anything came.
    quiet: u32,
}

/// A file that is quiet for so many reads is looked at for new processes less often.
const QUIET: u32 = 500;

/// Why a file's memory cannot be mapped.
#[derive(Debug, thiserror::Error)]
pub enum RingsError {
    /// The system refused.
    #[error(transparent)]
    Os(#[from] rustix::io::Errno),
    /// The control block is none, or of another version.
    #[error(transparent)]
    Control(#[from] ControlError),
}

impl FileRings {
    /// Maps a file's control block, extent and slots.
    ///
    /// # Errors
    /// [`RingsError`].
    pub fn map(file: FileId, [control, extent, slots]: &[OwnedFd; 3]) -> Result<Self, RingsError> {
        Ok(Self {
            identity: Self::identity_of(slots)?,
            control: ControlBlock::open(control, file, false)?,
            extent: Extent::open(extent, false)?,
            slots: Slots::open_to_watch(slots)?,
            next: HashMap::new(),
            processes: Vec::new(),
            quiet: 0,
        })
    }

    pub(super) fn identity_of(slots: &OwnedFd) -> rustix::io::Result<(u64, u64)> {
        let found = rustix::fs::fstat(slots)?;
        Ok((found.st_dev, found.st_ino))
    }

    /// Whether these are the slots of the file.
    pub(super) fn has(&self, identity: (u64, u64)) -> bool {
        self.identity == identity
    }

    /// Whether the file is no more.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.control.life() == Life::Gone
    }

    /// Nothing came for long.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.quiet >= QUIET
    }

    /// Logical size now.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.extent.size_bytes()
    }

    /// Finds processes that are new. A look at the whole table, of which most is empty.
    pub fn find_processes(&mut self) {
        let users: HashSet<ProcessSlot> = self.slots.users().map(|(process, _)| process).collect();
        let mut processes = std::mem::take(&mut self.processes);
        processes.clear();
        let has_news = |process: &ProcessSlot| (0..RINGS).any(|lane| self.next_of(*process, lane).is_some());
        processes.extend(self.slots.ever_used().filter(|process| users.contains(process) || has_news(process)));
        self.processes = processes;
    }

    /// The request of a lane from which on nothing was read, if there is any.
    fn next_of(&self, process: ProcessSlot, lane: usize) -> Option<u64> {
        let recent = self.slots.recent(process, lane)?;
        match self.next.get(&(process.0, lane)) {
            Some(next) => (recent.count() != *next).then_some(*next),
            None => self.control.notices().observation().and_then(|number| recent.first_of(number)),
        }
    }

    /// Hands over what came since the last time from processes that are known, by process and lane, with how many were missed before. What others noted waits
    /// for [`Self::find_processes`].
    pub fn read(&mut self, mut see: impl FnMut(ProcessSlot, usize, &[Noted], u64)) {
        let mut requests = Vec::new();
        self.quiet = self.quiet.saturating_add(1);
        for number in 0..self.processes.len() {
            let process = self.processes[number];
            for lane in 0..RINGS {
                let Some(next) = self.next_of(process, lane) else { continue };
                requests.clear();
                let Some(recent) = self.slots.recent(process, lane) else { continue };
                let (end, missed) = recent.read(next, |request| requests.push(request));
                self.next.insert((process.0, lane), end);
                self.quiet = 0;
                if !requests.is_empty() || missed > 0 {
                    see(process, lane, &requests, missed);
                }
            }
        }
    }
}
