//! The messages between the agents of a cluster's hosts and their master.
//!
//! An agent passes on what its programs ask, as they ask it ([`Request`]). Descriptors do not cross: in their place goes what the kernel says of
//! them on that host ([`Shown`]), and the master looks at the same files by their paths. An answer carries what the agent needs
//! to make or renew the file's shared memory on its host ([`Snapshot`]).

use crate::host_keys::KeyStep;
use crate::managed::{Inner, Managed};
use crate::probing::{Act, Seen};
use crate::rmt::FileState;
use serde::{Deserialize, Serialize};
use std::ops::RangeInclusive;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;
use stripewise_coherence::host::{Message, News, Step};
use stripewise_layout::{FileId, Generation, Layout, RegionIndex, ServerId};
use stripewise_store::protocol::{AccessedFile, AgentInfo, Refusal, Reply, Request, SharedFile};

/// Raised with every change of these messages and of those that they carry; hosts of two versions refuse each other by name.
pub(crate) const MESSAGES_VERSION: u32 = 8;

/// A descriptor that came with a request, as its host sees it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Shown {
    /// Where its file stands, as its host knows; empty where it knows no name. A program of another host may have renamed or removed it since.
    pub(crate) path: String,
    /// The managed file whose stub it is, where the request or the stub's text says so: the master may know it by that, too.
    pub(crate) file: Option<FileId>,
    pub(crate) inode: u64,
    pub(crate) is_readable: bool,
    pub(crate) is_writable: bool,
}

pub(crate) use stripewise_coherence::host::Known;

/// What an agent asks of the master.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) enum ToMaster {
    /// First: this host wants to take part. By this process.
    Join { agent: AgentInfo },
    /// Then, with the admission that was the answer: the files that programs of this host have open, whoever was master when they opened them.
    /// `key`: the fingerprint of the key that this host shows.
    Holding { admission: u64, files: Vec<FileId>, key: String },
    /// One of those: it is open at the new master as it was at the last.
    Reopen { file: FileId, known: Known },
    /// A request of a program; with the size of the file that it concerns, if that is open here.
    Request { request: Request, shown: Vec<Shown>, known: Option<Known> },
    /// No program of this host has any file open, and its agent ends.
    Leaving,
    /// A program of this host is gone that held these files for `apply` or `release`, and had begun these changes of names.
    GivenUp { files: Vec<FileId>, changes: Vec<u64> },
    /// Before `Holding`: probe with this host what it has not used yet.
    Probe,
}

impl ToMaster {
    /// What is asked, in a word.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Join { .. } => "join",
            Self::Holding { .. } => "holding",
            Self::Reopen { .. } => "reopen",
            Self::Request { request, .. } => request.kind(),
            Self::Leaving => "leaving",
            Self::GivenUp { .. } => "given_up",
            Self::Probe => "probe",
        }
    }
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
    /// A step of a region's move; writers that have to be waited for are, for so long.
    Move { file: FileId, message: Message, patience: Duration },
    /// Show what the master has; writers that a seal holds up go on.
    Show { snapshot: Box<Snapshot> },
    /// Wait for I/O under way in the region.
    Drain { file: FileId, region: RegionIndex },
    /// What programs did on files since this was asked last.
    Accesses,
    /// A step towards another key of the cluster: see [`crate::rekeying`].
    Keys(KeyStep),
    /// Which programs of this host have the file open, mapped or locked.
    Holders { file: SharedFile },
    /// Take a step of a probe.
    Probe { act: Act },
}

impl ToAgent {
    /// What is asked, in a word.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Size { .. } => "size",
            Self::Shut { .. } => "shut",
            Self::Open { .. } => "open",
            Self::Move { message, .. } => match message.step {
                Step::Begin => "move_begin",
                Step::Collect => "move_collect",
                Step::Seal => "move_seal",
                Step::Unseal => "move_unseal",
                Step::Recall { .. } => "move_recall",
                Step::GiveUp => "move_give_up",
            },
            Self::Show { .. } => "show",
            Self::Drain { .. } => "drain",
            Self::Accesses => "accesses",
            Self::Keys(_) => "keys",
            Self::Holders { .. } => "holders",
            Self::Probe { .. } => "probe",
        }
    }
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
    Accessed(Vec<AccessedFile>),
    /// Programs in words; an error says why they are not known.
    Holders(Result<Vec<String>, String>),
    Probed(Result<Seen, String>),
    Refused(Refusal),
}

/// A file as the master has it, for a host that uses it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Snapshot {
    pub(crate) file: FileId,
    pub(crate) region_bytes: u64,
    /// What concerns the protocol of moves and truncations.
    pub(crate) news: News,
    pub(crate) is_being_made: bool,
    pub(crate) has_leftovers: bool,
    /// Some of its regions: those that were asked for, above all.
    pub(crate) regions: Vec<(RegionIndex, Generation, Stripes)>,
}

impl Snapshot {
    /// As the file is under its lock, with the places of these regions. `as_of`: the last turn that was given out.
    pub(crate) fn of(managed: &Managed, inner: &Inner, as_of: u64, regions: RangeInclusive<RegionIndex>) -> Self {
        let regions = inner.regions.range(regions);
        let moves = inner.moving.iter().filter_map(|(region, active)| Some((*region, active.part()?))).collect();
        let news = News {
            as_of,
            is_shut: managed.control.gate().is_shut(),
            size_bytes: managed.extent.size_bytes(),
            truncations: managed.truncations.load(SeqCst),
            recalls: managed.recalls.load(SeqCst),
            moves,
        };
        Self {
            file: managed.file,
            region_bytes: inner.record.region_bytes,
            news,
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
