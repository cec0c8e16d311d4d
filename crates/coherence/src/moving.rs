//! The master's side of a region's move: which step follows which.
//!
//! [`JointMove::next`] says what to do, and is told what came of it. All hosts go through the same steps: writers mark, are held up by the seal, and hand over
//! their marks. A region has one word on each host, and these cannot change together. Therefore the words of other hosts are *recalled* under the seal, before the
//! move is committed: from then on whoever needs the region there asks, and is answered when the move has ended. So a word that a host has
//! is true, however long the host was not heard of, and a host that does not answer can only keep a move from being committed.

use crate::host::{Message, Part, Stage, Step};
use crate::safeguard::{Safeguard, is_left_out};
use stripewise_layout::RegionIndex;

/// Seals that may be broken because a writer inside did not come out.
const MAX_SEALS: u32 = 6;
/// Rounds of copying before the last one, which is done under the seal whatever is left.
const MAX_ROUNDS: u32 = 16;

/// What the mover does next.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Act {
    /// Have all hosts that may have the file open take the step, and take over the marks that they hand over.
    Ask(Message),
    /// Wait for writers of this host inside the region; under the seal briefly.
    Drain {
        /// Other writers wait meanwhile.
        under_seal: bool,
    },
    /// Write back what logs hold of the region; nobody adds to them.
    ClearLogs,
    /// Look at how much is marked, before round `rounds`: [`Outcome::Much`] or [`Outcome::Little`]. `is_last`: nothing may be much.
    Judge {
        /// Rounds that were copied.
        rounds: u32,
        /// No further round is allowed.
        is_last: bool,
    },
    /// Copy what is marked, while all write.
    Copy,
    /// Sync the new place, so that little is left to be synced under the seal.
    Sync,
    /// Writers of this host wait from here on.
    Seal,
    /// Writers of this host go on, and mark.
    Unseal,
    /// Everything is to be copied again.
    MarkAll,
    /// Under the seal: whether what is marked takes so long that writers should be let in once more.
    JudgeSeal,
    /// Under the seal: copy and sync what is marked.
    CopyRest,
    /// Lock the file and make the new objects ready; [`Outcome::Much`]: something was marked meanwhile, and the lock is free again. The lock is held until
    /// [`Act::Publish`], or until the move ends.
    Lock,
    /// Record the new place, durably.
    Commit,
    /// Read what the table says: [`Outcome::Done`]: the move is committed; [`Outcome::Failed`]: it is not, and never will be.
    Verify,
    /// The region lies at its new place, and writers of this host go on.
    Publish,
    /// Show the new place to all hosts.
    Show,
    /// Writers of this host go on where they were.
    PutBack,
    /// Remove the new objects.
    ThrowAway,
    /// The move is over.
    End(End),
}

/// How a move ends.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum End {
    /// The region lies at its new place.
    Committed,
    /// It lies where it did.
    GivenUp,
    /// The next master knows.
    Unknown,
}

/// What came of an act.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Outcome {
    /// It is done.
    Done,
    /// It is done, and a writer died inside, who may have written what it did not mark.
    Died,
    /// A writer inside does not come out.
    Stuck,
    /// Of a look at the marks.
    Much,
    /// Of a look at the marks.
    Little,
    /// It did not go well, or somebody ended the move.
    Failed,
    /// It is not known whether it took effect.
    Unknown,
    /// This host is not the master any more.
    Deposed,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum At {
    Start,
    Begun,
    Drained,
    Cleared,
    Collected,
    Judged,
    Copied,
    Synced,
    SealedHere,
    SealedElsewhere,
    DrainedSealed,
    JudgedSeal,
    MarkedAll,
    UnsealedHere { is_last: bool },
    UnsealedElsewhere,
    Rest,
    Locked,
    Recalled,
    Committed,
    Published,
    Shown,
    PutBack,
    GivenUp,
    ThrownAway,
    Over,
}

/// A region's move, as other hosts know it too.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct JointMove {
    region: RegionIndex,
    slot: u8,
    turn: u64,
    /// See [`crate::seats::Seats::departures`].
    departures: u64,
    number: u64,
    stage: Stage,
    at: At,
    rounds: u32,
    seals: u32,
    died: bool,
    recalls: u64,
}

impl JointMove {
    /// To be called under the file's lock, under which the region begins to move here; the turn is new.
    #[must_use]
    pub fn new(region: RegionIndex, slot: u8, turn: u64, departures: u64) -> Self {
        Self {
            region,
            slot,
            turn,
            departures,
            number: 0,
            stage: Stage::Moving,
            at: At::Start,
            rounds: 0,
            seals: 0,
            died: false,
            recalls: 0,
        }
    }

    /// The region.
    #[must_use]
    pub fn region(&self) -> RegionIndex {
        self.region
    }

    /// What a host that opens the file is told of the move; `None`: it is over. Whoever is asked to take a step counts among the hosts of the file before, or is told
    /// of the step here.
    #[must_use]
    pub fn part(&self) -> Option<Part> {
        // The last step may be asked of that host too, and is then taken once more.
        let (turn, number, slot, stage) = (self.turn, self.number.saturating_sub(1), self.slot, self.stage);
        (stage != Stage::Over).then_some(Part { turn, number, slot, stage })
    }

    /// Whether all hosts that took part so far still do. Of a host that has departed nobody has the marks.
    #[must_use]
    pub fn has_all(&self, departures: u64) -> bool {
        departures == self.departures || is_left_out(Safeguard::Departures)
    }

    /// The number that comes with [`Step::Recall`], drawn under the lock.
    pub fn set_recalls(&mut self, recalls: u64) {
        self.recalls = recalls;
    }

    fn ask(&mut self, step: Step) -> Act {
        self.number += 1;
        match step {
            Step::Seal => self.stage = Stage::Sealed,
            Step::Unseal => self.stage = Stage::Moving,
            Step::GiveUp => self.stage = Stage::Over,
            Step::Begin | Step::Collect | Step::Recall { .. } => {}
        }
        Act::Ask(Message { region: self.region, turn: self.turn, number: self.number, slot: self.slot, step })
    }

    fn goes_to(&mut self, at: At, act: Act) -> Act {
        self.at = at;
        act
    }

    fn asks(&mut self, at: At, step: Step) -> Act {
        self.at = at;
        self.ask(step)
    }

    /// What to do next, after the last act had this outcome; at first after [`Outcome::Done`].
    pub fn next(&mut self, outcome: Outcome) -> Act {
        match (self.at, outcome) {
            (At::Start, _) => self.asks(At::Begun, Step::Begin),
            (At::Begun, Outcome::Done) => self.goes_to(At::Drained, Act::Drain { under_seal: false }),
            (At::Drained, Outcome::Done | Outcome::Died) => self.goes_to(At::Cleared, Act::ClearLogs),
            // All is copied at first, whatever is marked. What was marked by then is copied again in the next round.
            (At::Cleared, Outcome::Done) => self.goes_to(At::Judged, Act::Judge { rounds: 0, is_last: false }),
            (At::Copied | At::UnsealedElsewhere, Outcome::Done) => self.asks(At::Collected, Step::Collect),
            (At::Collected, Outcome::Done | Outcome::Died) => {
                let (rounds, is_last) = (self.rounds, self.rounds >= MAX_ROUNDS);
                self.goes_to(At::Judged, Act::Judge { rounds, is_last })
            }
            (At::Judged, Outcome::Much) => {
                self.rounds += 1;
                self.goes_to(At::Copied, Act::Copy)
            }
            (At::Judged, Outcome::Little) => self.goes_to(At::Synced, Act::Sync),
            (At::Synced, Outcome::Done) => self.goes_to(At::SealedHere, Act::Seal),
            (At::SealedHere, Outcome::Done) => self.asks(At::SealedElsewhere, Step::Seal),
            (At::SealedElsewhere, Outcome::Done | Outcome::Died) => {
                self.died = outcome == Outcome::Died;
                self.goes_to(At::DrainedSealed, Act::Drain { under_seal: true })
            }
            (At::SealedElsewhere | At::DrainedSealed, Outcome::Stuck) => {
                self.seals += 1;
                self.goes_to(At::UnsealedHere { is_last: self.seals == MAX_SEALS }, Act::Unseal)
            }
            (At::DrainedSealed, Outcome::Done | Outcome::Died) if self.died || outcome == Outcome::Died => {
                self.goes_to(At::MarkedAll, Act::MarkAll)
            }
            (At::DrainedSealed, Outcome::Done) if self.rounds < MAX_ROUNDS => {
                self.goes_to(At::JudgedSeal, Act::JudgeSeal)
            }
            (At::DrainedSealed, Outcome::Done) | (At::JudgedSeal, Outcome::Little) => {
                self.goes_to(At::Rest, Act::CopyRest)
            }
            (At::MarkedAll, Outcome::Done) => {
                // Once for each that died: not counted.
                self.rounds = self.rounds.min(MAX_ROUNDS - 2);
                self.goes_to(At::UnsealedHere { is_last: false }, Act::Unseal)
            }
            (At::JudgedSeal, Outcome::Much) => self.goes_to(At::UnsealedHere { is_last: false }, Act::Unseal),
            (At::UnsealedHere { is_last: false }, Outcome::Done) => self.asks(At::UnsealedElsewhere, Step::Unseal),
            (At::Rest, Outcome::Done) => self.goes_to(At::Locked, Act::Lock),
            (At::Locked, Outcome::Much) => self.goes_to(At::Rest, Act::CopyRest),
            (At::Locked, Outcome::Done) if is_left_out(Safeguard::Recall) => self.goes_to(At::Committed, Act::Commit),
            (At::Locked, Outcome::Done) => self.asks(At::Recalled, Step::Recall { recalls: self.recalls }),
            (At::Recalled, Outcome::Done) => self.goes_to(At::Committed, Act::Commit),
            (At::Committed, Outcome::Done) => {
                self.stage = Stage::Over;
                self.goes_to(At::Published, Act::Publish)
            }
            (At::Committed, Outcome::Unknown) if !is_left_out(Safeguard::KnownOutcome) => Act::Verify,
            (At::Committed, Outcome::Deposed) => self.goes_to(At::Over, Act::End(End::Unknown)),
            (At::Published, Outcome::Done) => self.goes_to(At::Shown, Act::Show),
            // It is committed: its objects stay.
            (At::Published, _) => self.goes_to(At::Over, Act::End(End::Unknown)),
            (At::Shown, _) => self.goes_to(At::Over, Act::End(End::Committed)),
            (At::PutBack, _) => self.asks(At::GivenUp, Step::GiveUp),
            // A host that does not hear it finds out when it comes back.
            (At::GivenUp, _) => self.goes_to(At::ThrownAway, Act::ThrowAway),
            (At::ThrownAway, _) => self.goes_to(At::Over, Act::End(End::GivenUp)),
            _ => {
                self.stage = Stage::Over;
                self.goes_to(At::PutBack, Act::PutBack)
            }
        }
    }
}

#[cfg(test)]
impl JointMove {
    pub(crate) fn visit_turns(&mut self, visit: &mut dyn FnMut(&mut u64)) {
        visit(&mut self.turn);
    }

    /// Whether the move began after so many departures; from here on they are counted from there.
    pub(crate) fn has_seen(&mut self, departures: u64) -> bool {
        std::mem::take(&mut self.departures) == departures
    }
}
