//! The messages between the agents of a cluster's hosts and their master.
//!
//! An agent passes on what its programs ask, as they ask it ([`Request`]). Descriptors do not cross: in their place goes what the kernel says of
//! them on that host ([`Shown`]), and the master looks at the same files by their paths. An answer carries what the agent needs
//! to make or renew the file's shared memory on its host ([`Snapshot`]).

use crate::managed::{Inner, Managed};
use crate::rmt::FileState;
use serde::{Deserialize, Serialize};
use std::ops::RangeInclusive;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;
use stripewise_layout::{FileId, Generation, Layout, RegionIndex, ServerId};
use stripewise_store::protocol::{Refusal, Reply, Request};

/// Raised with every change of these messages and of those that they carry; hosts of two versions refuse each other by name.
pub(crate) const MESSAGES_VERSION: u32 = 3;

/// A descriptor that came with a request, as its host sees it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Shown {
    /// Where its file stands.
    pub(crate) path: String,
    pub(crate) inode: u64,
    pub(crate) is_readable: bool,
    pub(crate) is_writable: bool,
}

/// What a host knows of a file's size.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Known {
    pub(crate) size_bytes: u64,
    /// As in [`Snapshot::truncations`]: a size from before a later cut says nothing.
    pub(crate) truncations: u64,
}

/// What an agent asks of the master.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) enum ToMaster {
    /// First: this host wants to take part.
    Join,
    /// Then, with the admission that was the answer: the files that programs of this host have open, whoever was master when they opened them.
    Holding { admission: u64, files: Vec<FileId> },
    /// One of those: it is open at the new master as it was at the last.
    Reopen { file: FileId, size_bytes: u64 },
    /// A request of a program; with the size of the file that it concerns, if that is open here.
    Request { request: Request, shown: Vec<Shown>, known: Option<Known> },
    /// No program of this host has any file open, and its agent ends.
    Leaving,
}

/// What the master answers.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) enum FromMaster {
    Heard,
    /// To [`ToMaster::Join`]. `is_shut_out`: what programs of this host had open is closed.
    Admitted {
        admission: u64,
        is_shut_out: bool,
    },
    Answer {
        reply: Box<Reply>,
        snapshot: Option<Box<Snapshot>>,
    },
    Refused(Refusal),
    /// It is not the master, or not yet.
    NotMaster,
}

/// What the master asks of an agent.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum ToAgent {
    /// How long the file is, as far as this host knows.
    Size { file: FileId },
    /// Let no I/O on the file begin, and wait for what is under way.
    Shut { file: FileId, turn: u64 },
    /// I/O goes on; the file is so long now. A `Shut` of this turn or an earlier one that comes later shuts nothing.
    Open { file: FileId, turn: u64, known: Known },
    /// A step of a region's move, which has this turn.
    Move { file: FileId, region: RegionIndex, turn: u64, step: MoveStep },
    /// Show what the master has; writers that a seal holds up go on.
    Show { snapshot: Box<Snapshot> },
    /// Wait for I/O under way in the region.
    Drain { file: FileId, region: RegionIndex },
}

/// What a host does for a region that moves: see [`crate::quiescing`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum MoveStep {
    /// Writers mark what they touch in this move slot; those inside are waited for.
    Begin { slot: u8, patience: Duration },
    /// Hand over the marks.
    Collect,
    /// New writers wait; those inside are waited for, and their marks handed over.
    Seal { patience: Duration },
    /// Writers go on, and mark.
    Unseal,
    /// The region's word goes: whoever needs it asks the master. Snapshots with fewer recalls come too late.
    Recall { recalls: u64 },
    /// The move is given up, and writers go on where they were.
    GiveUp,
}

/// What an agent answers.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) enum FromAgent {
    Done,
    /// `None`: the file is not open on this host.
    Size(Option<Known>),
    /// What programs have touched of a region that moves. `has_died`: a writer died inside, and may have written what it did not mark.
    Marked {
        marks: Vec<u64>,
        known: Option<Known>,
        has_died: bool,
    },
    /// A process, in words, whose I/O does not end.
    Stuck(String),
    Refused(Refusal),
}

/// A file as the master has it, for a host that uses it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Snapshot {
    pub(crate) file: FileId,
    pub(crate) region_bytes: u64,
    pub(crate) size_bytes: u64,
    /// Raised by every cut of the file, and higher under every later master.
    pub(crate) truncations: u64,
    /// How often a region of the file was recalled from hosts; higher under every later master.
    pub(crate) recalls: u64,
    pub(crate) is_being_made: bool,
    pub(crate) has_leftovers: bool,
    /// Some of its regions: those that were asked for, above all.
    pub(crate) regions: Vec<(RegionIndex, Generation, Stripes)>,
}

impl Snapshot {
    /// As the file is under its lock, with the places of these regions.
    pub(crate) fn of(managed: &Managed, inner: &Inner, regions: RangeInclusive<RegionIndex>) -> Self {
        let regions = inner.regions.range(regions);
        Self {
            file: managed.file,
            region_bytes: inner.record.region_bytes,
            size_bytes: managed.extent.size_bytes(),
            truncations: managed.truncations.load(SeqCst),
            recalls: managed.recalls.load(SeqCst),
            is_being_made: matches!(inner.record.state, FileState::Creating | FileState::Importing { .. }),
            has_leftovers: inner.record.has_leftovers,
            regions: regions.map(|(region, placed)| (*region, placed.generation, stripes_of(&placed.layout))).collect(),
        }
    }
}

/// Servers with their stripe sizes in bytes.
pub(crate) type Stripes = Vec<(u16, u32)>;

pub(crate) fn stripes_of(layout: &Layout) -> Stripes {
    layout.stripes().iter().map(|stripe| (stripe.server.0, stripe.size_bytes)).collect()
}

pub(crate) fn layout_of(stripes: &Stripes) -> Option<Layout> {
    Layout::new(stripes.iter().map(|(server, size_bytes)| (ServerId(*server), *size_bytes))).ok()
}

pub(crate) fn encode(message: &impl Serialize) -> Vec<u8> {
    postcard::to_stdvec(message).expect("plain values")
}

/// A message; an error says that it is none.
pub(crate) fn decode<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, String> {
    postcard::from_bytes(bytes).map_err(|error| format!("a message that is not understood ({error})"))
}
