//! The steps of a region's move that other hosts take part in, as [`JointMove`] says which.
//!
//! A host that opens the file while regions move is told so, and takes part from then on. One that closes it takes its marks along, so that everything
//! counts as marked.

use super::Quiescing;
use crate::fencing;
use crate::host_messages::{FromAgent, Snapshot, ToAgent};
use crate::managed::{ActiveMove, Inner, Managed};
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;
use stripewise_coherence::host::Message;
use stripewise_coherence::moving::JointMove;
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

impl Quiescing {
    /// A region begins to move; the file's lock is held.
    pub(crate) fn joint_move(&self, region: RegionIndex, slot: u8) -> JointMove {
        let (turn, departures) =
            self.context.others().map_or((0, 0), |others| (others.next_turn(), others.departures()));
        JointMove::new(region, slot, turn, departures)
    }

    /// Has all hosts take a step of a move. Marks and sizes that they hand over are this host's too, also where another host did not take the step: nobody
    /// hands them over again. Returns whether a writer died on one of them. An error as well where a host has departed since the move began: nobody has its marks.
    pub(crate) fn take_step_elsewhere(
        &self,
        managed: &Managed,
        active: &ActiveMove,
        message: Message,
        patience: Duration,
    ) -> Result<bool, Elsewhere> {
        let Some(others) = self.context.others() else { return Ok(false) };
        let file = managed.file;
        let question = ToAgent::Move { file, message, patience };
        let (mut has_died, mut stuck) = (false, None);
        let mut refused = None;
        for answer in others.ask_each(file, &question, patience) {
            match answer {
                Ok(FromAgent::Marked { marks, known, has_died: died }) => {
                    has_died |= died;
                    managed.extent.marks(message.slot).add(&marks);
                    // The file's lock is held while hosts recall the region, and nobody hands over sizes then.
                    if let Some(known) = known {
                        managed.raise_to(known.size_bytes, known.truncations);
                    }
                }
                Ok(FromAgent::Stuck(who)) => stuck = Some(who),
                Ok(_) => {}
                Err(refusal) => refused = Some(refusal),
            }
        }
        if let Some(refusal) = refused {
            return Err(Elsewhere::Refused(refusal));
        }
        if !active.has_all(others.departures()) {
            let holder = "a host that was shut out while the region moved; the move begins again".to_owned();
            return Err(Elsewhere::Refused(Refusal::Busy { file, holder }));
        }
        stuck.map_or(Ok(has_died), |who| Err(Elsewhere::Stuck(who)))
    }

    /// The number by which hosts recall a region next: what they were told of the file before comes too late. The file's lock is held until the move is committed,
    /// or fails; what is told of the file is told under that lock.
    pub(crate) fn next_recall(&self, managed: &Managed, _inner: &Inner) -> u64 {
        match self.context.others() {
            Some(_) => managed.recalls.fetch_add(1, SeqCst) + 1,
            None => 0,
        }
    }

    /// The file as hosts are told of it, under its lock.
    pub(crate) fn snapshot(&self, managed: &Managed, inner: &Inner, region: RegionIndex) -> Option<Snapshot> {
        let as_of = self.context.others()?.last_turn();
        Some(Snapshot::of(managed, inner, as_of, region..=region))
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
