//! A master in the model: its locks and threads, which drive the machines as the broker's do.

mod changes;

use super::Label;
use super::world::{FILE, HOLE, HOSTS, Host, Motion, Opened, Question, REGION, SLOT, Snapshot, World};
use crate::host::{Known, News};
use crate::moving::{self, Act, End, JointMove};
use crate::seats::Seats;
use crate::stopping::{self, Stop};
use crate::truncating::{self, Truncating};

/// Cuts and turns of one term are fewer.
pub(super) const TERM: u64 = 1000;

/// What came of the question to one host.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum Slot {
    NotAsked,
    Sent {
        link: u8,
    },
    /// The host waits for programs inside that it found there.
    Draining {
        link: u8,
        collects: bool,
        writer: bool,
        reader: bool,
    },
    Answered(Answer),
    Failed,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum Answer {
    Done,
    Size(Option<Known>),
    Marked { is_marked: bool, known: Option<Known> },
    Stuck,
    Refused,
}

/// A question to all hosts of the file, and what came of it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Asks {
    pub(super) question: Question,
    pub(super) slots: [Slot; HOSTS],
}

impl Asks {
    fn is_over(&self) -> bool {
        self.slots.iter().all(|slot| matches!(slot, Slot::NotAsked | Slot::Answered(_) | Slot::Failed))
    }

    fn is_refused(&self) -> bool {
        self.slots.iter().any(|slot| matches!(slot, Slot::Failed | Slot::Answered(Answer::Refused)))
    }

    fn sizes(&self) -> Vec<Known> {
        let known = |slot: &Slot| match slot {
            Slot::Answered(Answer::Size(known) | Answer::Marked { known, .. }) => *known,
            _ => None,
        };
        self.slots.iter().filter_map(known).collect()
    }
}

/// The file's lock.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Lock {
    Free,
    Mover,
    Truncation,
    /// The file is yet to be loaded.
    Loading,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Mover {
    pub(super) joint: JointMove,
    pub(super) act: Act,
    pub(super) new: u8,
    /// A writer of this host was inside when it began to be waited for.
    waits: bool,
    pub(super) is_abandoned: bool,
}

/// The truncation, as whoever wants it sees it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Change {
    Wanted,
    UnderWay,
    Over,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Truncation {
    stop: Stop,
    pub(super) at: At,
    waits: (bool, bool),
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum At {
    Stopping(stopping::Act),
    Truncating { act: truncating::Act, left: Truncating },
    Resuming { is_refused: bool },
}

/// Objects that belong to nothing any more, and who of this host may be inside them.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Discard {
    place: u8,
    waits: (bool, bool),
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Master {
    pub(super) host: usize,
    pub(super) term: u8,
    pub(super) seats: Seats<usize, Option<u8>>,
    pub(super) lock: Lock,
    place: u8,
    truncations: u64,
    recalls: u64,
    pub(super) mover: Option<Mover>,
    pub(super) truncation: Option<Truncation>,
    pub(super) discards: Vec<Discard>,
    /// Questions of the mover, the truncation and the freeing of objects.
    pub(super) asks: [Option<Asks>; 3],
    /// Its threads do nothing any more.
    pub(super) is_over: bool,
}

pub(super) const MOVER: usize = 0;
pub(super) const TRUNCATION: usize = 1;
pub(super) const FREEING: usize = 2;

impl Master {
    pub(super) fn first(hosts: &[Host; HOSTS]) -> Self {
        let mut seats = Seats::new([], TERM);
        for (number, host) in hosts.iter().enumerate().skip(1) {
            seats.holds(number, Some(host.link), (host.opened == Opened::Open).then_some(FILE));
            seats.reopens(&number, FILE);
        }
        Self::with(0, 1, seats, 0)
    }

    fn with(host: usize, term: u8, seats: Seats<usize, Option<u8>>, place: u8) -> Self {
        let first = u64::from(term) * TERM;
        Self {
            host,
            term,
            seats,
            lock: Lock::Free,
            place,
            truncations: first,
            recalls: first,
            mover: None,
            truncation: None,
            discards: Vec::new(),
            asks: [None, None, None],
            is_over: false,
        }
    }

    /// One that does nothing any more.
    pub(super) fn nobody() -> Self {
        Self { is_over: true, ..Self::with(0, 0, Seats::new([], 0), 0) }
    }

    /// One whose host was a follower. It expects all other hosts, which may have the file open.
    pub(super) fn next(host: usize, term: u8, expected: &[bool; HOSTS]) -> Self {
        let others = (0..HOSTS).filter(|other| *other != host && expected[*other]).map(|other| (other, None));
        let seats = Seats::new(others, u64::from(term) * TERM);
        Self { lock: Lock::Loading, ..Self::with(host, term, seats, 0) }
    }

    /// Taken under the lock.
    pub(super) fn snapshot(&self, size_bytes: u64) -> Snapshot {
        let moves = self.mover.iter().filter(|mover| !mover.is_abandoned);
        let moves = moves.filter_map(|mover| Some((REGION, mover.joint.part()?))).collect();
        let news = News {
            as_of: self.seats.last_turn(),
            is_shut: false,
            size_bytes,
            truncations: self.truncations,
            recalls: self.recalls,
            moves,
        };
        Snapshot { news, place: self.place }
    }

    pub(super) fn raise(&self, memory_size: &mut u64, known: Known) {
        if known.truncations >= self.truncations {
            *memory_size = known.size_bytes.max(*memory_size);
        }
    }

    pub(super) fn raise_again(&self, memory_size: &mut u64, known: Known, recorded: u64) {
        if known.counts_for(self.truncations, u64::from(self.term) * TERM, recorded) {
            *memory_size = known.size_bytes.max(*memory_size);
        }
    }

    pub(super) fn discard(&mut self, place: u8) {
        self.discards.push(Discard { place, waits: (false, false) });
    }

    pub(super) fn is_idle(&self) -> bool {
        self.mover.is_none()
            && self.truncation.is_none()
            && self.discards.is_empty()
            && self.asks.iter().all(Option::is_none)
    }
}

#[cfg(test)]
impl World {
    pub(super) fn is_master(&self, m: usize) -> bool {
        self.masters[m].term == self.table.term
    }

    fn memory_of(&mut self, m: usize) -> &mut super::world::Memory {
        let host = self.masters[m].host;
        &mut self.hosts[host].memory
    }

    /// Whether what this master sends to servers has an effect.
    fn reaches_servers(&self, m: usize) -> bool {
        !self.hosts[self.masters[m].host].is_fenced && (self.is_master(m) || !self.fences)
    }

    /// Asks every host that may have the file open.
    fn ask(&mut self, m: usize, task: usize, question: Question) {
        let mut slots = [const { Slot::NotAsked }; HOSTS];
        for (host, seat) in self.masters[m].seats.of(FILE) {
            slots[*host] = seat.link.map_or(Slot::Failed, |link| Slot::Sent { link });
        }
        self.masters[m].asks[task] = Some(Asks { question, slots });
    }

    /// As `fencing::shut_out_silent`; whether there was one.
    fn shut_out_silent(&mut self, m: usize) -> bool {
        let silent: Vec<usize> =
            self.masters[m].seats.of(FILE).map(|(host, _)| *host).filter(|host| self.hosts[*host].is_silent).collect();
        if !self.fences || silent.is_empty() || !self.is_master(m) {
            return false;
        }
        for host in silent {
            self.shut_out(m, host);
        }
        true
    }

    fn shut_out(&mut self, m: usize, host: usize) {
        self.masters[m].seats.begins_to_shut_out(host);
        self.table.shut_out[host] = true;
        self.hosts[host].is_fenced = true;
        self.table.hosts[host] = false;
        self.masters[m].seats.departs(&host);
    }

    /// As `Quiescing::end_moves`.
    pub(super) fn abandon(&mut self, m: usize) {
        if let Some(mover) = &mut self.masters[m].mover
            && mover.act != Act::Show
        {
            mover.is_abandoned = true;
            self.memory_of(m).set_motion(&[Motion::Moving, Motion::Sealed], Motion::Still);
        }
    }

    /// What its threads can do.
    pub(super) fn steps_of_master(&self, m: usize, all: &mut Vec<(Label, World)>) {
        let master = &self.masters[m];
        let mut step = |label: Label, act: &dyn Fn(&mut World) -> bool| {
            let mut after = self.clone();
            if act(&mut after) {
                all.push((label, after));
            }
        };
        // What is asked here only spares copies of the world.
        if self.moves_left > 0 && master.mover.is_none() {
            step(("a region begins to move", m), &|world| world.begin_move(m));
        }
        if master.mover.is_some() {
            step(("the mover goes on", m), &|world| world.go_on(m, false));
        }
        if let Some(mover) = &self.masters[m].mover
            && (mover.act == Act::Commit && self.faults.lost > 0 || mover.waits && self.faults.slow > 0)
        {
            step(("a commit takes effect, or a writer is slow, and nobody hears of it", m), &|world| {
                world.go_on(m, true)
            });
        }
        if self.masters[m].mover.as_ref().is_some_and(|mover| mover.act == Act::Commit) && self.faults.lost > 0 {
            step(("a commit is lost", m), &|world| {
                world.faults.lost -= 1;
                world.advance(m, moving::Outcome::Unknown)
            });
        }
        if master.lock == Lock::Loading {
            step(("the new master loads the file", m), &|world| world.load(m));
        }
        if master.truncation.is_some() || self.truncation == Change::Wanted {
            step(("the truncation goes on", m), &|world| world.truncate(m));
        }
        if !master.discards.is_empty() {
            step(("objects are freed", m), &|world| world.free(m));
        }
    }

    fn begin_move(&mut self, m: usize) -> bool {
        let master = &self.masters[m];
        if self.moves_left == 0 || master.mover.is_some() || master.lock != Lock::Free || !self.is_master(m) {
            return false;
        }
        self.shut_out_silent(m);
        self.moves_left -= 1;
        let new = self.generations;
        self.generations += 1;
        self.objects[usize::from(new)] = Some(HOLE);
        self.table.discards |= 1 << new;
        let master = &mut self.masters[m];
        let (turn, departures) = (master.seats.next_turn(), master.seats.departures());
        let joint = JointMove::new(REGION, SLOT, turn, departures);
        master.mover = Some(Mover { joint, act: Act::Sync, new, waits: false, is_abandoned: false });
        let memory = self.memory_of(m);
        memory.set_motion(&[Motion::Still], Motion::Moving);
        memory.is_marked = true;
        self.advance(m, moving::Outcome::Done)
    }

    /// Takes what nobody can tell from the act before it together with that.
    fn advance(&mut self, m: usize, outcome: moving::Outcome) -> bool {
        let host = self.masters[m].host;
        let is_inside = self.is_inside(host, false);
        let mut outcome = outcome;
        loop {
            let Some(mover) = &mut self.masters[m].mover else { return false };
            mover.act = mover.joint.next(outcome);
            mover.waits = matches!(mover.act, Act::Drain { .. }) && is_inside;
            outcome = match mover.act {
                Act::ClearLogs | Act::Sync => moving::Outcome::Done,
                Act::Drain { .. } if !is_inside => moving::Outcome::Done,
                Act::Judge { rounds: 0, .. } => moving::Outcome::Much,
                Act::Judge { .. } | Act::JudgeSeal => moving::Outcome::Little,
                Act::MarkAll => {
                    self.memory_of(m).is_marked = true;
                    moving::Outcome::Done
                }
                Act::Ask(message) => {
                    self.ask(m, MOVER, Question::Step(message));
                    return true;
                }
                Act::Show => {
                    let size = self.memory_of(m).size;
                    let snapshot = self.masters[m].snapshot(size);
                    self.ask(m, MOVER, Question::Show(snapshot));
                    return true;
                }
                _ => return true,
            };
        }
    }

    fn copy(&mut self, m: usize, new: u8) {
        let memory = self.memory_of(m);
        if std::mem::take(&mut memory.is_marked) && self.reaches_servers(m) {
            let old = usize::from(self.masters[m].place);
            self.objects[usize::from(new)] = self.objects[old];
        }
    }

    fn go_on(&mut self, m: usize, is_unlucky: bool) -> bool {
        let master = &self.masters[m];
        let Some(mover) = master.mover.clone() else { return false };
        let host = master.host;
        let outcome = match mover.act {
            Act::Ask(_) | Act::Show => match self.answered(m) {
                Some(outcome) => outcome,
                None => return false,
            },
            Act::Drain { .. } if is_unlucky => {
                self.faults.slow -= 1;
                moving::Outcome::Stuck
            }
            Act::Drain { .. } if mover.waits && self.is_inside(host, false) => return false,
            Act::Copy | Act::CopyRest => {
                self.copy(m, mover.new);
                moving::Outcome::Done
            }
            Act::Seal => match !mover.is_abandoned && self.memory_of(m).set_motion(&[Motion::Moving], Motion::Sealed) {
                true => moving::Outcome::Done,
                false => moving::Outcome::Failed,
            },
            Act::Unseal => match self.memory_of(m).set_motion(&[Motion::Sealed], Motion::Moving) {
                true => moving::Outcome::Done,
                false => moving::Outcome::Failed,
            },
            Act::Lock => {
                if master.lock != Lock::Free {
                    return false;
                }
                let memory = self.memory_of(m);
                let is_sealed = memory.word.is_some_and(|(_, motion)| motion == Motion::Sealed);
                if mover.is_abandoned || !is_sealed {
                    moving::Outcome::Failed
                } else if memory.is_marked {
                    moving::Outcome::Much
                } else {
                    let master = &mut self.masters[m];
                    master.lock = Lock::Mover;
                    master.recalls += 1;
                    let recalls = master.recalls;
                    if let Some(mover) = &mut master.mover {
                        mover.joint.set_recalls(recalls);
                    }
                    moving::Outcome::Done
                }
            }
            Act::Commit => self.commit(m, mover.new, is_unlucky),
            Act::Verify => match (self.is_master(m), self.table.place == mover.new) {
                (true, true) => moving::Outcome::Done,
                (true, false) => moving::Outcome::Failed,
                (false, _) => moving::Outcome::Deposed,
            },
            Act::Publish => {
                let waits = (self.is_inside(host, false), self.is_reading(host));
                let master = &mut self.masters[m];
                let old = std::mem::replace(&mut master.place, mover.new);
                master.lock = Lock::Free;
                master.discards.push(Discard { place: old, waits });
                self.memory_of(m).word = Some((mover.new, Motion::Still));
                moving::Outcome::Done
            }
            Act::PutBack => {
                if !matches!(master.lock, Lock::Free | Lock::Mover) {
                    return false;
                }
                self.masters[m].lock = Lock::Free;
                self.memory_of(m).set_motion(&[Motion::Moving, Motion::Sealed], Motion::Still);
                moving::Outcome::Done
            }
            Act::ThrowAway => {
                self.masters[m].discard(mover.new);
                moving::Outcome::Done
            }
            Act::End(end) => {
                self.masters[m].mover = None;
                self.masters[m].is_over |= end == End::Unknown;
                return true;
            }
            _ => moving::Outcome::Done,
        };
        self.advance(m, outcome)
    }

    fn commit(&mut self, m: usize, new: u8, is_unlucky: bool) -> moving::Outcome {
        if !self.is_master(m) {
            return moving::Outcome::Deposed;
        }
        self.table.discards = self.table.discards & !(1 << new) | 1 << self.table.place;
        self.table.place = new;
        if !is_unlucky {
            return moving::Outcome::Done;
        }
        self.faults.lost -= 1;
        moving::Outcome::Unknown
    }

    /// What came of the mover's question, once all have answered or will not.
    fn answered(&mut self, m: usize) -> Option<moving::Outcome> {
        let asks = self.masters[m].asks[MOVER].take_if(|asks| asks.is_over())?;
        for slot in &asks.slots {
            if let Slot::Answered(Answer::Marked { is_marked, .. }) = slot {
                self.memory_of(m).is_marked |= is_marked;
            }
        }
        self.take_sizes(m, &asks);
        let master = &self.masters[m];
        let has_all = master.mover.as_ref().is_some_and(|mover| mover.joint.has_all(master.seats.departures()));
        Some(if asks.is_refused() || !has_all {
            moving::Outcome::Failed
        } else if asks.slots.contains(&Slot::Answered(Answer::Stuck)) {
            moving::Outcome::Stuck
        } else {
            moving::Outcome::Done
        })
    }

    fn take_sizes(&mut self, m: usize, asks: &Asks) {
        for known in asks.sizes() {
            let mut size = self.memory_of(m).size;
            self.masters[m].raise(&mut size, known);
            self.memory_of(m).size = size;
        }
    }

    fn is_reading(&self, host: usize) -> bool {
        self.is_inside(host, true) && !self.is_inside(host, false)
            || self.reader.as_ref().is_some_and(|(of, access)| {
                *of == host
                    && matches!(access, super::world::Access::Inside { .. } | super::world::Access::Landed { .. })
            })
    }

    pub(super) fn still_waits(&self, host: usize, (writer, reader): (bool, bool)) -> bool {
        writer && self.is_inside(host, false) || reader && self.is_reading(host)
    }

    /// Who is inside now.
    pub(super) fn insiders(&self, host: usize) -> (bool, bool) {
        (self.is_inside(host, false), self.is_reading(host))
    }
}
