//! The steps of a region's move that other hosts take part in.
//!
//! Every host that may have the file open does what this one does: its writers mark, they are held up by the seal, their marks are collected. A
//! region has one word here but as many as there are hosts, so that they cannot change together. Therefore the words of other hosts are *recalled* under the
//! seal, before the move is committed: from then on whoever needs the region there asks, and is answered when the move has ended. So a word that
//! a host has is true, however long the host has not been heard of, and a host that does not answer can only keep a move from being committed.
//!
//! A host that opens the file while regions move has them given up: it would not mark. One that closes it takes its marks along, so that everything
//! counts as marked.

use super::Quiescing;
use crate::fencing;
use crate::host_messages::{FromAgent, MoveStep, Snapshot, ToAgent};
use crate::managed::{Inner, Managed};
use crate::others::Others;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;
use stripewise_layout::RegionIndex;
use stripewise_store::protocol::Refusal;

/// For how long a host waits for I/O that may still read an old place.
const READERS_PATIENCE: Duration = Duration::from_secs(1);

/// Why other hosts did not take a step.
pub(crate) enum Elsewhere {
    /// A process, in words, whose I/O does not end.
    Stuck(String),
    /// A host does not answer, or cannot do it.
    Refused(Refusal),
}

/// A region's move, as other hosts know it.
#[derive(Clone, Copy)]
pub(crate) struct RemoteMove<'a> {
    pub(crate) managed: &'a Managed,
    pub(crate) region: RegionIndex,
    /// Move slot of the marks.
    pub(crate) slot: u8,
    pub(crate) turn: Turn,
}

/// What a move is called on other hosts, and with whom it began.
#[derive(Clone, Copy)]
pub(crate) struct Turn {
    /// See [`crate::others::Others::next_turn`].
    number: u64,
    /// See [`crate::others::Others::departures`].
    departures: u64,
}

impl Quiescing {
    /// What a new move is called on other hosts.
    pub(crate) fn next_turn(&self) -> Turn {
        let of = |others: &Arc<Others>| Turn { number: others.next_turn(), departures: others.departures() };
        self.context.others().map_or(Turn { number: 0, departures: 0 }, of)
    }

    /// Has all hosts take the step. Marks and sizes that they hand over are this host's too, also where another host did not take the step: nobody
    /// hands them over again. Returns whether a writer died on one of them. An error as well where a host has departed since the move began: nobody has its marks.
    fn ask_hosts(&self, of: RemoteMove<'_>, step: MoveStep, work: Duration) -> Result<bool, Elsewhere> {
        let Some(others) = self.context.others() else { return Ok(false) };
        let file = of.managed.file;
        let question = ToAgent::Move { file, region: of.region, turn: of.turn.number, step };
        let (mut has_died, mut stuck) = (false, None);
        for answer in others.ask_of(file, &question, work).map_err(Elsewhere::Refused)? {
            match answer {
                FromAgent::Marked { marks, known, has_died: died } => {
                    has_died |= died;
                    of.managed.extent.marks(of.slot).add(&marks);
                    if let Some(known) = known {
                        of.managed.raise_to(known.size_bytes, known.truncations);
                    }
                }
                FromAgent::Stuck(who) => stuck = Some(who),
                _ => {}
            }
        }
        if others.departures() != of.turn.departures {
            let holder = "a host that was shut out while the region moved; the move begins again".to_owned();
            return Err(Elsewhere::Refused(Refusal::Busy { file, holder }));
        }
        stuck.map_or(Ok(has_died), |who| Err(Elsewhere::Stuck(who)))
    }

    /// Writers of other hosts mark from here on, and those who were inside are gone.
    pub(crate) fn begin_elsewhere(&self, of: RemoteMove<'_>, patience: Duration) -> Result<(), Elsewhere> {
        self.ask_hosts(of, MoveStep::Begin { slot: of.slot, patience }, patience).map(drop)
    }

    /// Their marks are this host's too.
    pub(crate) fn collect_elsewhere(&self, of: RemoteMove<'_>) -> Result<(), Elsewhere> {
        self.ask_hosts(of, MoveStep::Collect, Duration::ZERO).map(drop)
    }

    /// Writers of other hosts wait from here on; those who were inside are gone, their marks are this host's too, and so is what they made of the size.
    /// Returns whether one died inside.
    pub(crate) fn seal_elsewhere(&self, of: RemoteMove<'_>, patience: Duration) -> Result<bool, Elsewhere> {
        self.ask_hosts(of, MoveStep::Seal { patience }, patience)
    }

    /// Writers of other hosts go on, and mark.
    pub(crate) fn unseal_elsewhere(&self, of: RemoteMove<'_>) -> Result<(), Elsewhere> {
        self.ask_hosts(of, MoveStep::Unseal, Duration::ZERO).map(drop)
    }

    /// No other host knows where the region lies, until it asks. The file's lock is held until the move is committed, or fails; what is told of the file is
    /// told under that lock.
    pub(crate) fn recall(&self, of: RemoteMove<'_>, _inner: &Inner) -> Result<(), Elsewhere> {
        if self.context.others().is_none() {
            return Ok(());
        }
        let recalls = of.managed.recalls.fetch_add(1, SeqCst) + 1;
        self.ask_hosts(of, MoveStep::Recall { recalls }, Duration::ZERO).map(drop)
    }

    /// Writers of other hosts go on where they were. A host that does not hear it finds out when it comes back.
    pub(crate) fn put_back_elsewhere(&self, of: RemoteMove<'_>) {
        let _ = self.ask_hosts(of, MoveStep::GiveUp, Duration::ZERO);
    }

    /// Hosts know this of the file without asking, and writers that a seal held up go on. A host that does not hear it asks.
    pub(crate) fn show_elsewhere(&self, snapshot: Snapshot) {
        if let Some(others) = self.context.others() {
            let (file, snapshot) = (snapshot.file, Box::new(snapshot));
            let _ = others.ask_of(file, &ToAgent::Show { snapshot }, Duration::ZERO);
        }
    }

    /// Nobody on other hosts is inside the region any more who was. An error: somebody is, or a host does not answer.
    pub(crate) fn drain_elsewhere(&self, managed: &Managed, region: RegionIndex) -> Result<(), Refusal> {
        let Some(others) = self.context.others() else { return Ok(()) };
        let file = managed.file;
        fencing::shut_out_silent(&self.context, file)?;
        for answer in others.ask_of(file, &ToAgent::Drain { file, region }, READERS_PATIENCE)? {
            if let FromAgent::Stuck(holder) = answer {
                return Err(Refusal::Busy { file, holder });
            }
        }
        Ok(())
    }

    /// A host closes the file, with marks that nobody has collected.
    pub(crate) fn mark_for_host(&self, managed: &Managed, inner: &Inner) {
        inner.moving.values().for_each(|active| managed.extent.marks(active.slot).mark(0..=usize::MAX));
    }

    /// For how long I/O of this host may still read an old place of the region, as [`Self::drain_elsewhere`] asks of it; the process that goes on, if one does.
    pub(crate) fn drain_region(&self, managed: &Managed, region: RegionIndex) -> Result<(), String> {
        let uses = self.inside(managed, region, region);
        let patience = super::Patience { all: READERS_PATIENCE, stopped: None };
        let waited = self.wait(managed, uses, patience, &mut |_| false);
        waited.stuck.map_or(Ok(()), |slot| Err(self.stuck(slot)))
    }
}
