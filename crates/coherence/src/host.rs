//! A host's side: what it was told of a file.

use crate::safeguard::{Safeguard, is_left_out};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use stripewise_layout::RegionIndex;

/// What programs of a host see of a file: its shared memory there.
pub trait Shared {
    /// Whether the region has no word.
    fn is_absent(&self, region: RegionIndex) -> bool;
    /// Writers mark in this move slot from here on, in which nothing is marked yet; false: the region is in motion.
    fn follow(&self, region: RegionIndex, slot: u8) -> bool;
    /// Nothing is marked in the move slot.
    fn clear_marks(&self, slot: u8);
    /// Writers wait from here on; false: the region does not move in this slot.
    fn seal(&self, region: RegionIndex, slot: u8) -> bool;
    /// Writers go on, and mark.
    fn unseal(&self, region: RegionIndex, slot: u8);
    /// Writers go on where they were, if the region is in motion in this slot.
    fn give_up(&self, region: RegionIndex, slot: u8);
    /// The region's word goes: whoever needs it asks.
    fn retract(&self, region: RegionIndex);
    /// Writers that wait look again.
    fn wake_writers(&self);
    /// Nobody begins I/O from here on.
    fn shut_gate(&self);
    /// I/O goes on.
    fn open_gate(&self);
    /// Whether nobody may begin I/O.
    fn is_gate_shut(&self) -> bool;
    /// The file is at least so long.
    fn extend_to(&self, size_bytes: u64);
    /// The file is so long, and words of regions beyond go.
    fn truncate_to(&self, size_bytes: u64);
    /// As of which truncation the file has its size here, whoever served this host then.
    fn truncations(&self) -> u64;
    /// It has it as of this one from here on.
    fn note_truncations(&self, truncations: u64);
}

/// What a host knows of a file's size.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Known {
    /// At least.
    pub size_bytes: u64,
    /// As in [`News::truncations`]: a size from before a later truncation says nothing.
    pub truncations: u64,
}

impl Known {
    /// Whether what a host that comes back knows counts, for a master that has counted so many truncations, from `first` on, and whose table has `recorded` for the
    /// last one. A host that learned it under an earlier master has taken part in all truncations of this one, or there was none; unless it has not heard how
    /// the last one ended, for which its I/O was stopped, and has been since.
    #[must_use]
    pub fn counts_for(&self, truncations: u64, first: u64, recorded: u64) -> bool {
        let has_heard = self.truncations >= recorded || is_left_out(Safeguard::Heard);
        self.truncations >= truncations || self.truncations < first && has_heard
    }
}

/// How the words of a region that moves are shown on a host.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Stage {
    /// Writers mark.
    Moving,
    /// Writers wait.
    Sealed,
    /// The host does not take part any more.
    Over,
}

/// A host's part of a region's move.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Part {
    /// Of the move; later ones have higher turns.
    pub turn: u64,
    /// Of the last message of this move that is over.
    pub number: u64,
    /// Move slot of the marks.
    pub slot: u8,
    /// What it has come to.
    pub stage: Stage,
}

/// A message about a region's move.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Message {
    /// The region.
    pub region: RegionIndex,
    /// See [`Part::turn`].
    pub turn: u64,
    /// See [`Part::number`].
    pub number: u64,
    /// See [`Part::slot`].
    pub slot: u8,
    /// What the host is to do.
    pub step: Step,
}

/// What a host does for a region that moves.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Step {
    /// Writers mark what they touch; those inside are waited for.
    Begin,
    /// Hand over the marks.
    Collect,
    /// New writers wait; those inside are waited for, and their marks handed over.
    Seal,
    /// Writers go on, and mark.
    Unseal,
    /// The region's word goes: whoever needs it asks the master. News with fewer recalls comes too late.
    Recall {
        /// See [`News::recalls`].
        recalls: u64,
    },
    /// The move is given up, and writers go on where they were.
    GiveUp,
}

/// What a host has to do after it took a step, before it answers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Then {
    /// Nothing.
    Answer,
    /// Wait for writers inside the region.
    Drain,
    /// Hand over the marks.
    Collect,
    /// Both, one after the other.
    DrainAndCollect,
    /// Say that there are no marks: programs here have no memory of the file yet.
    NothingMarked,
}

/// Why a host did not take a step.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum NotTaken {
    /// It heard of something later.
    Late,
    /// It does not take part in this move, so its writers have not marked.
    Unknown,
    /// Something has ended the region's motion.
    Ended,
}

/// Whether a host can answer for a file that it does not follow: else programs may use it as they knew it under another master, and nobody sees their I/O. `follows_all`:
/// what programs had open before is followed.
#[must_use]
pub fn can_answer(has_memory: bool, follows_all: bool) -> bool {
    has_memory || follows_all || is_left_out(Safeguard::Coming)
}

/// A file as the master has it, for a host that uses it.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct News {
    /// The last turn that the master had given out. Moves of the file that have this turn or an earlier one, and are not among `moves`, are over.
    pub as_of: u64,
    /// The master keeps the file shut.
    pub is_shut: bool,
    /// The file's size.
    pub size_bytes: u64,
    /// Raised by every truncation of the file, and higher under every later master.
    pub truncations: u64,
    /// How often a region of the file was recalled from hosts; higher under every later master.
    pub recalls: u64,
    /// Regions that move.
    pub moves: Vec<(RegionIndex, Part)>,
}

/// What a host was told of a file, by whichever master.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct HostView {
    /// The last turn by which I/O was stopped, and the last that is over.
    stopped: u64,
    resumed: u64,
    truncations: u64,
    recalls: u64,
    as_of: u64,
    parts: BTreeMap<RegionIndex, Part>,
}

impl HostView {
    /// Whether the master keeps the file shut.
    #[must_use]
    pub fn is_shut(&self) -> bool {
        self.stopped > self.resumed
    }

    /// In which stage of which move slot a word of the region is to be shown; `None`: it does not move.
    #[must_use]
    pub fn motion(&self, region: RegionIndex) -> Option<(Stage, u8)> {
        self.parts.get(&region).filter(|part| part.stage != Stage::Over).map(|part| (part.stage, part.slot))
    }

    /// Moves in which the host takes part: regions with their turns.
    pub fn active(&self) -> impl Iterator<Item = (RegionIndex, u64)> {
        let active = self.parts.iter().filter(|(_, part)| part.stage != Stage::Over);
        active.map(|(region, part)| (*region, part.turn))
    }

    /// Whether the host takes part in the region's move of this turn.
    #[must_use]
    pub fn takes_part(&self, region: RegionIndex, turn: u64) -> bool {
        self.parts.get(&region).is_some_and(|part| part.turn == turn && part.stage != Stage::Over)
    }

    /// Nobody begins I/O on the file from here on; those inside are to be waited for. False: the message comes too late.
    #[must_use]
    pub fn stop(&mut self, shared: Option<&impl Shared>, turn: u64) -> bool {
        if turn <= self.resumed {
            return false;
        }
        self.stopped = self.stopped.max(turn);
        if let Some(shared) = shared {
            shared.shut_gate();
        }
        true
    }

    /// I/O goes on, on a file that is so long now.
    pub fn resume(&mut self, shared: Option<&impl Shared>, turn: u64, known: Known) {
        self.resumed = self.resumed.max(turn);
        self.take_size(shared, known);
        self.show_gate(shared);
    }

    fn show_gate(&self, shared: Option<&impl Shared>) {
        let Some(shared) = shared else { return };
        match (self.is_shut(), shared.is_gate_shut()) {
            (true, false) => shared.shut_gate(),
            // Also one that was shut under a master that is gone.
            (false, true) => shared.open_gate(),
            _ => {}
        }
    }

    /// The size as the master knows it: the file's own after a truncation, else at least that.
    fn take_size(&mut self, shared: Option<&impl Shared>, known: Known) {
        if known.truncations < self.truncations {
            return;
        }
        self.truncations = known.truncations;
        // Memory that a former agent left is as long as before.
        let Some(shared) = shared else { return };
        let is_truncated = known.truncations > shared.truncations();
        // What was drained when the gate was shut is in the master's size.
        match is_truncated && shared.is_gate_shut() {
            true => shared.truncate_to(known.size_bytes),
            false => shared.extend_to(known.size_bytes),
        }
        shared.note_truncations(known.truncations);
    }

    /// Whether the news come after what was heard; else they are to be asked for again.
    #[must_use]
    pub fn is_news(&self, news: &News) -> bool {
        news.truncations >= self.truncations && news.recalls >= self.recalls
    }

    /// Takes in how things stand. `is_new`: what the host had of the file before, if anything, is not what it was told here, so that it takes part in the moves
    /// of which the news tell from here on. Words that the news bring are shown afterwards, each in its motion.
    pub fn take_news(&mut self, shared: &impl Shared, is_new: bool, news: &News) {
        self.recalls = self.recalls.max(news.recalls);
        if news.as_of >= self.as_of {
            self.as_of = news.as_of;
            self.end_parts(shared, news);
        }
        if is_new {
            for (region, part) in &news.moves {
                let is_newer = |known: &Part| (part.turn, part.number) > (known.turn, known.number);
                if self.parts.get(region).is_none_or(is_newer) {
                    self.parts.insert(*region, *part);
                }
            }
        }
        if news.is_shut {
            self.stopped = self.stopped.max(news.as_of);
        } else {
            self.resumed = self.resumed.max(news.as_of);
        }
        self.take_size(Some(shared), Known { size_bytes: news.size_bytes, truncations: news.truncations });
        self.show_gate(Some(shared));
    }

    /// Moves of which the news would tell are over if they do not: given up, since a commit would have been heard of.
    fn end_parts(&mut self, shared: &impl Shared, news: &News) {
        let is_over = |region: RegionIndex, part: &Part| {
            part.turn <= news.as_of && !news.moves.iter().any(|(of, listed)| *of == region && listed.turn == part.turn)
        };
        self.parts.retain(|region, part| {
            let is_over = is_over(*region, part);
            if is_over && part.stage != Stage::Over {
                shared.give_up(*region, part.slot);
            }
            !is_over
        });
    }

    /// Takes a step of a region's move. `shared` is `None` as long as no program here can use the file.
    ///
    /// # Errors
    ///
    /// The host does not take it, and nothing has changed.
    pub fn take_step(&mut self, shared: Option<&impl Shared>, message: &Message) -> Result<Then, NotTaken> {
        let Message { region, turn, number, slot, step } = *message;
        let known = self.parts.get(&region).copied();
        let is_late = match known {
            Some(part) => (part.turn, part.number) >= (turn, number) || (part.turn != turn && turn <= self.as_of),
            None => turn <= self.as_of,
        };
        if is_late && !is_left_out(Safeguard::Order) {
            return Err(NotTaken::Late);
        }
        let own = known.filter(|part| part.turn == turn);
        let active = own.filter(|part| part.stage != Stage::Over);
        let takes_part = active.is_some() || shared.is_none();
        let (stage, then) = match step {
            Step::Begin => (Stage::Moving, Self::begin(shared, message, known)?),
            Step::Collect if takes_part => (active.map_or(Stage::Moving, |part| part.stage), Then::Collect),
            Step::Seal if takes_part => (Stage::Sealed, Self::seal(shared, message, active)?),
            Step::Unseal if takes_part => {
                if let Some(shared) = shared {
                    shared.unseal(region, slot);
                }
                (Stage::Moving, Then::Answer)
            }
            Step::Recall { recalls } if active.is_some_and(|part| part.stage == Stage::Sealed) || shared.is_none() => {
                self.recalls = self.recalls.max(recalls);
                // Writers that wait go on when the master says how the move has ended, or when they look for themselves.
                if let Some(shared) = shared {
                    shared.retract(region);
                }
                (Stage::Over, Then::Answer)
            }
            Step::Collect | Step::Seal | Step::Unseal | Step::Recall { .. } => return Err(NotTaken::Unknown),
            Step::GiveUp => {
                if let Some(shared) = shared {
                    if own.is_some() {
                        shared.give_up(region, slot);
                    }
                    shared.wake_writers();
                }
                (Stage::Over, Then::Answer)
            }
        };
        // A later move's part stays when one is given up that did not begin here.
        if step != Step::GiveUp || known.is_none_or(|part| part.turn <= turn) {
            self.parts.insert(region, Part { turn, number, slot, stage });
        }
        let is_collected = matches!(then, Then::Collect | Then::DrainAndCollect);
        Ok(if shared.is_none() && is_collected { Then::NothingMarked } else { then })
    }

    fn begin(shared: Option<&impl Shared>, message: &Message, known: Option<Part>) -> Result<Then, NotTaken> {
        let Some(shared) = shared else { return Ok(Then::Answer) };
        let Message { region, turn, slot, .. } = *message;
        match known {
            // As the host was told when it opened the file; nobody has been inside since who did not mark.
            Some(part) if part.turn == turn && part.stage == Stage::Moving => return Ok(Then::Drain),
            // The master begins another only when that one is over.
            Some(part) if part.stage != Stage::Over => shared.give_up(region, part.slot),
            _ => {}
        }
        if shared.is_absent(region) {
            shared.clear_marks(slot);
        } else if !shared.follow(region, slot) {
            return Err(NotTaken::Ended);
        }
        Ok(Then::Drain)
    }

    fn seal(shared: Option<&impl Shared>, message: &Message, active: Option<Part>) -> Result<Then, NotTaken> {
        let Some(shared) = shared else { return Ok(Then::DrainAndCollect) };
        let is_sealed = active.is_some_and(|part| part.stage == Stage::Sealed);
        if !is_sealed && !shared.is_absent(message.region) && !shared.seal(message.region, message.slot) {
            return Err(NotTaken::Ended);
        }
        Ok(match is_left_out(Safeguard::Drain) {
            false => Then::DrainAndCollect,
            true => Then::Collect,
        })
    }
}

#[cfg(test)]
impl HostView {
    pub(crate) fn visit_turns(&mut self, visit: &mut dyn FnMut(&mut u64)) {
        [&mut self.stopped, &mut self.resumed, &mut self.as_of].into_iter().for_each(&mut *visit);
        self.parts.values_mut().for_each(|part| visit(&mut part.turn));
    }
}
