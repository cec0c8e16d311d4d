//! The order of operations under a model checker, as in `marking`: the code of `fragments` with the checker's atomics; two writers of small and of long
//! ranges that overlap, one of whom may die before any access to shared memory, disk or log; a reader; and a broker that writes back, evicts, copies
//! in and cleans up, in any order.
//!
//! A disk has three cells, an entry holds two of them. Every write has a value of its own, and who reads a cell from a slot that was used again finds
//! another cell's value there. Held at the end: of each cell there is an order of all its writes and reads, one after the other, that fits when each began and
//! ended, the disk after a last flush included. After each `fsync` nothing on the disk is older than what was written before it. No slot is lost,
//! no cell has two entries, and what is clean equals the disk.
//!
//! So that this proves something, each safeguard is left out in turn, and the checker has to find what goes wrong. `STRIPED_SCHEDULES` makes it long.

use super::entry::STATE;
use super::*;
use crate::shared::marking::{Word, occupy};
use shuttle::rand::{Rng, thread_rng};
use shuttle::sync::atomic::AtomicBool;
use shuttle::sync::mpsc::Sender;
use shuttle::sync::{Arc, Mutex};
use shuttle::thread;
use std::sync::atomic::Ordering::SeqCst;
use stripewise_layout::{ObjectOffset, RegionIndex};

mod history;
mod mortal;
mod moved;
use history::History;
use mortal::{Doom, Mortal, doom};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum LeftOut {
    Nothing,
    /// The slot is read and its entry is called clean while writers are inside.
    FlushDrain,
    /// What a writer changed meanwhile is called clean.
    FlushCheck,
    /// Two write back at the same time.
    FlushLock,
    /// Readers do not look whether the entry held their range all the time.
    StillHolds,
    WriterAlone,
    CopyInAlone,
    CopyInDrain,
    /// A copy is called clean though a writer removed its entry.
    CopyInCheck,
    /// A clean entry is made dirty after its slot was written.
    DirtyFirst,
    /// One that is being written back stays so.
    Redirty,
    KillClean,
    KillPending,
    /// Writers of the disk leave dirty slots as they are.
    BothWrite,
    SlotsFirst,
    /// Who cannot write a slot removes the entry though another one has written it.
    ForsakeCheck,
    NoteAfter,
    /// `fsync` takes a flush for done that has begun.
    NoteWhileFlushing,
    CleanUpDrain,
}

const ALL: [LeftOut; 18] = [
    LeftOut::FlushDrain,
    LeftOut::FlushCheck,
    LeftOut::FlushLock,
    LeftOut::StillHolds,
    LeftOut::WriterAlone,
    LeftOut::CopyInAlone,
    LeftOut::CopyInDrain,
    LeftOut::CopyInCheck,
    LeftOut::DirtyFirst,
    LeftOut::Redirty,
    LeftOut::KillClean,
    LeftOut::KillPending,
    LeftOut::BothWrite,
    LeftOut::SlotsFirst,
    LeftOut::ForsakeCheck,
    LeftOut::NoteAfter,
    LeftOut::NoteWhileFlushing,
    LeftOut::CleanUpDrain,
];

const WRITERS: usize = 2;
const WRITES: u64 = 2;
const CELLS: u64 = 3;
const SLOT_CELLS: u64 = 2;
const GRANTED: u32 = 3;
const WRITE: u64 = 2 << 62;

fn range(offset: u64, length: u64) -> DiskRange {
    DiskRange { region: RegionIndex(0), offset: ObjectOffset(offset), length }
}

fn cells(range: &DiskRange) -> std::ops::Range<u64> {
    range.offset.0..range.end()
}

/// Disk or log are to be read or written, or a thread loses its processor.
fn take_long() {
    let mut rng = thread_rng();
    if rng.gen_range(0..4) == 0 {
        (0..rng.gen_range(0..60)).for_each(|_| thread::yield_now());
    }
}

struct World {
    left_out: LeftOut,
    entries: Vec<Mortal>,
    free: Vec<Mortal>,
    dirtied: Mortal,
    /// One for each writer. Nobody waits for readers.
    lanes: Vec<Mortal>,
    alive: Vec<AtomicBool>,
    disk: Vec<Mortal>,
    log: Vec<Mortal>,
    /// The broker does one thing at a time.
    broker: Mutex<()>,
    /// Locked as long as the dead are to be dead.
    grave: Mutex<()>,
    history: History,
}

impl World {
    fn new(left_out: LeftOut) -> Self {
        let words = |count: u64, value| (0..count).map(|_| Mortal::new(value)).collect();
        Self {
            left_out,
            entries: words((WAYS * ENTRY_WORDS) as u64, 0),
            free: words(1, (1 << GRANTED) - 1),
            dirtied: Mortal::new(0),
            lanes: words(WRITERS as u64, 0),
            alive: (0..WRITERS).map(|_| AtomicBool::new(true)).collect(),
            disk: (0..CELLS).map(|cell| Mortal::new(history::value(0, cell))).collect(),
            log: words(u64::from(GRANTED) * SLOT_CELLS, u64::MAX),
            broker: Mutex::new(()),
            grave: Mutex::new(()),
            history: History::new(CELLS),
        }
    }

    /// Comes back when all is over and nobody looks any more.
    fn die(&self, writer: usize, ended: &Sender<()>) {
        self.alive[writer].store(false, SeqCst);
        ended.send(()).unwrap();
        drop(self.grave.lock().unwrap());
    }

    fn sets(&self) -> Sets<'_, Mortal> {
        Sets::new(&self.entries, &self.free, SLOT_CELLS)
    }

    fn without(&self, safeguard: LeftOut) -> bool {
        self.left_out == safeguard
    }

    fn in_slot(&self, seen: &Seen, cell: u64) -> &Mortal {
        &self.log[(u64::from(seen.slot) * SLOT_CELLS + cell - seen.range.offset.0) as usize]
    }

    fn put_slot(&self, seen: &Seen, range: &DiskRange, write: u64) {
        take_long();
        for cell in cells(range).filter(|cell| cells(&seen.range).contains(cell)) {
            self.in_slot(seen, cell).store(history::value(write, cell));
        }
    }

    fn put_disk(&self, range: &DiskRange, write: u64) {
        take_long();
        cells(range).for_each(|cell| self.disk[cell as usize].store(history::value(write, cell)));
    }

    fn note(&self) {
        Dirtied(&self.dirtied).note();
    }

    fn write(&self, writer: usize, range: &DiskRange, choice: WriteChoice) {
        let write = self.history.begin_write(range);
        let free = occupy(&self.lanes[writer], WRITE).expect("one thread for each lane");
        if self.without(LeftOut::NoteAfter) {
            self.note();
        }
        let is_noted = self.write_inside(range, choice, write);
        if is_noted && !self.without(LeftOut::NoteAfter) {
            self.note();
        }
        Word::store(&self.lanes[writer], free);
        self.history.end_write(write);
    }

    /// Whether an entry is dirty by it.
    fn write_inside(&self, range: &DiskRange, choice: WriteChoice, write: u64) -> bool {
        let sets = self.sets();
        let too_early = self.covering(range, choice).filter(|_| self.without(LeftOut::DirtyFirst));
        if let Some(seen) = &too_early {
            self.put_slot(seen, range, write);
        }
        loop {
            match self.plan_without(range, choice).unwrap_or_else(|| sets.plan_write(range, choice)) {
                WritePlan::Slot(seen) => {
                    if thread_rng().gen_range(0..4) == 0 && self.fails(&seen) {
                        continue;
                    }
                    if too_early.as_ref().is_none_or(|early| early.slot != seen.slot) {
                        self.put_slot(&seen, range, write);
                    }
                    return true;
                }
                WritePlan::Fill(seen) => {
                    self.put_slot(&seen, range, write);
                    if sets.declare(&seen, State::Dirty) {
                        return true;
                    }
                    sets.free_slot(seen.slot);
                }
                WritePlan::Disk(mut newer) => {
                    if self.without(LeftOut::BothWrite) {
                        newer.clear();
                    }
                    if self.without(LeftOut::SlotsFirst) {
                        self.put_disk(range, write);
                    }
                    newer.iter().for_each(|seen| self.put_slot(seen, range, write));
                    if !self.without(LeftOut::SlotsFirst) {
                        self.put_disk(range, write);
                    }
                    return !newer.is_empty();
                }
            }
        }
    }

    /// The slot refuses a write. Whether the entry is gone by it. (Of a slot that took a part, readers may see that and then what was there before.)
    fn fails(&self, seen: &Seen) -> bool {
        let sets = self.sets();
        take_long();
        if !self.without(LeftOut::ForsakeCheck) {
            return sets.forsake(seen);
        }
        let now = sets.peek(seen.number).filter(|now| now.state() == State::Dirty && sets.still_holds(seen));
        let is_gone = seen.before == State::Clean && now.is_some_and(|now| sets.change(&now, State::Empty).is_some());
        if is_gone {
            sets.free_slot(seen.slot);
        }
        is_gone
    }

    fn covering(&self, range: &DiskRange, choice: WriteChoice) -> Option<Seen> {
        let found = self.sets().overlaps(range);
        let [seen] = found[..] else { return None };
        (choice != WriteChoice::Disk && seen.state().is_filled() && seen.range.covers(range)).then_some(seen)
    }

    /// What a writer would do without one of the steps of [`Sets::plan_write`], where it makes a difference.
    fn plan_without(&self, range: &DiskRange, choice: WriteChoice) -> Option<WritePlan> {
        let sets = self.sets();
        let stays = |seen: &Seen| match self.left_out {
            LeftOut::KillClean => seen.state() == State::Clean,
            LeftOut::KillPending => seen.state() == State::Pending,
            LeftOut::Redirty => seen.state() == State::Flushing,
            _ => false,
        };
        match self.left_out {
            LeftOut::WriterAlone => match choice {
                WriteChoice::Add(class) if sets.overlaps(range).is_empty() => {
                    sets.publish(range, class).map(WritePlan::Fill)
                }
                _ => None,
            },
            LeftOut::Redirty if self.covering(range, choice).is_some_and(|seen| stays(&seen)) => {
                self.covering(range, choice).map(WritePlan::Slot)
            }
            LeftOut::KillClean | LeftOut::KillPending | LeftOut::Redirty => {
                let found = sets.overlaps(range);
                let is_so = !found.is_empty() && found.iter().all(stays) && self.covering(range, choice).is_none();
                is_so.then(|| WritePlan::Disk(found.into_iter().filter(|seen| seen.state().is_newer()).collect()))
            }
            _ => None,
        }
    }

    fn get_slot(&self, seen: &Seen, range: &DiskRange) -> Vec<u64> {
        take_long();
        let both = range.offset.0.max(seen.range.offset.0)..range.end().min(seen.range.end());
        both.map(|cell| self.in_slot(seen, cell).load()).collect()
    }

    fn get_disk(disk: &[Mortal], range: &DiskRange) -> Vec<u64> {
        take_long();
        cells(range).map(|cell| disk[cell as usize].load()).collect()
    }

    /// Where the values may come from beside the disk, and the values.
    fn peek(&self, disk: &[Mortal], range: &DiskRange) -> (Vec<Seen>, Vec<u64>) {
        match self.sets().plan_read(range) {
            ReadPlan::Slot(seen) => (vec![seen], self.get_slot(&seen, range)),
            ReadPlan::Disk(newer) => {
                let mut found = Self::get_disk(disk, range);
                for seen in &newer {
                    let values = self.get_slot(seen, range);
                    let first = seen.range.offset.0.saturating_sub(range.offset.0) as usize;
                    found[first..first + values.len()].copy_from_slice(&values);
                }
                (newer, found)
            }
        }
    }

    fn read(&self, range: &DiskRange) {
        let begun = self.history.now();
        let sets = self.sets();
        let found = loop {
            let (from, found) = self.peek(&self.disk, range);
            if self.without(LeftOut::StillHolds) || from.iter().all(|seen| sets.still_holds(seen)) {
                break found;
            }
        };
        for (cell, value) in cells(range).zip(found) {
            self.history.read(cell, value, begun);
        }
    }

    /// Waits for the writers that are inside now, each `patience` times. Whether all are out.
    fn drain(&self, patience: u32) -> bool {
        let uses: Vec<u64> = self.lanes.iter().map(Word::load).collect();
        uses.into_iter().enumerate().filter(|(_, word)| word & WRITE != 0).fold(true, |all, (writer, word)| {
            let is_inside = || Word::load(&self.lanes[writer]) == word && self.alive[writer].load(SeqCst);
            for _ in 0..patience {
                if !is_inside() {
                    return all;
                }
                thread::yield_now();
            }
            all && !is_inside()
        })
    }

    fn flush(&self, patience: u32) {
        let _one = (!self.without(LeftOut::FlushLock)).then(|| self.broker.lock().unwrap());
        let (sets, dirtied) = (self.sets(), Dirtied(&self.dirtied));
        dirtied.begin_flush();
        if self.without(LeftOut::NoteWhileFlushing) {
            dirtied.end_flush();
        }
        let newer = sets.all().filter(|seen| seen.state().is_newer());
        let flushing: Vec<Seen> = newer.filter_map(|seen| sets.begin_flushing(&seen)).collect();
        let is_over = flushing.is_empty() || self.without(LeftOut::FlushDrain) || self.drain(patience);
        for seen in flushing {
            let values = self.get_slot(&seen, &seen.range);
            take_long();
            for (cell, value) in cells(&seen.range).zip(values) {
                self.disk[cell as usize].store(value);
            }
            let to = if is_over { State::Clean } else { State::Dirty };
            if sets.change(&seen, to).is_none()
                && self.without(LeftOut::FlushCheck)
                && let Some(now) = sets.peek(seen.number)
            {
                let _ = sets.change(&now, State::Clean);
            }
        }
        if is_over {
            dirtied.end_flush();
        }
    }

    fn fsync(&self) {
        let begun = self.history.now();
        if Dirtied(&self.dirtied).needs_flush() {
            self.flush(u32::MAX);
        }
        for cell in 0..CELLS {
            self.history.synced(cell, self.disk[cell as usize].load(), begun);
        }
    }

    fn copy_in(&self, range: &DiskRange, patience: u32) {
        let _one = self.broker.lock().unwrap();
        let sets = self.sets();
        let Some(own) = sets.publish(range, Class::Random) else { return };
        if !self.without(LeftOut::CopyInAlone) && !sets.alone(&own) {
            return;
        }
        if !self.without(LeftOut::CopyInDrain) && !self.drain(patience) {
            sets.take_back(&own);
            return;
        }
        let values = Self::get_disk(&self.disk, range);
        take_long();
        for (cell, value) in cells(range).zip(values) {
            self.in_slot(&own, cell).store(value);
        }
        if !sets.declare(&own, State::Clean) {
            if self.without(LeftOut::CopyInCheck) {
                let word = sets.word(own.number);
                word.store(word.load() & !STATE | State::Clean as u64);
            } else {
                sets.free_slot(own.slot);
            }
        }
    }

    fn evict(&self) {
        let sets = self.sets();
        for seen in sets.all().filter(|seen| seen.state() == State::Clean) {
            let _ = sets.remove(&seen);
        }
    }

    fn clean_up(&self) {
        let _one = self.broker.lock().unwrap();
        let sets = self.sets();
        let claimed = sets.claimed();
        let pending: Vec<Seen> = sets.all().filter(|seen| seen.state() == State::Pending).collect();
        if !self.without(LeftOut::CleanUpDrain) {
            self.drain(u32::MAX);
        }
        sets.remove_claimed(&claimed);
        pending.iter().filter(|seen| sets.remove(seen)).for_each(|seen| sets.free_slot(seen.slot));
    }

    /// When nobody is inside.
    fn check_end(&self) {
        self.clean_up();
        self.flush(0);
        let sets = self.sets();
        let entries: Vec<Seen> = sets.all().collect();
        let mut is_taken = [false; CELLS as usize];
        for seen in &entries {
            assert_eq!(seen.state(), State::Clean, "{seen:?}");
            for cell in cells(&seen.range) {
                assert!(!std::mem::replace(&mut is_taken[cell as usize], true), "two entries: {entries:?}");
                let (slot, disk) = (self.in_slot(seen, cell).load(), self.disk[cell as usize].load());
                assert_eq!(slot, disk, "clean and not what the disk has: {seen:?}");
            }
        }
        sets.regain_slots(GRANTED);
        assert_eq!(sets.free_slots() + entries.len() as u32, GRANTED, "slots: {entries:?}");
        let begun = self.history.now();
        (0..CELLS).for_each(|cell| self.history.read(cell, self.disk[cell as usize].load(), begun));
        self.history.check();
    }
}

fn small(rng: &mut impl Rng) -> DiskRange {
    range(rng.gen_range(0..2), SLOT_CELLS)
}

fn any(rng: &mut impl Rng) -> DiskRange {
    match rng.gen_range(0..4) {
        0 => range(1, 1),
        1 => range(0, CELLS),
        _ => small(rng),
    }
}

fn write_and_peek(world: &World, writer: usize) {
    let mut rng = thread_rng();
    for _ in 0..WRITES {
        let choice = match rng.gen_range(0..4) {
            0 | 1 => WriteChoice::Add(Class::Fragment),
            2 => WriteChoice::Present,
            _ => WriteChoice::Disk,
        };
        let range = if choice == WriteChoice::Disk { any(&mut rng) } else { small(&mut rng) };
        world.write(writer, &range, choice);
        if !world.alive[writer].load(SeqCst) {
            return;
        }
        // These do not die: the broker does their work.
        let suspended = doom(None);
        match rng.gen_range(0..3) {
            0 => world.fsync(),
            1 => world.read(&range),
            _ => {}
        }
        doom(suspended);
    }
}

fn be_broker(world: &World) {
    let mut rng = thread_rng();
    for _ in 0..4 {
        let patience = *[0, 1, u32::MAX].get(rng.gen_range(0..3)).unwrap();
        match rng.gen_range(0..8) {
            0..=2 => world.flush(patience),
            3 | 4 => world.copy_in(&small(&mut rng), patience),
            5 | 6 => world.evict(),
            _ => world.clean_up(),
        }
    }
}

fn scenario(left_out: LeftOut) {
    let mut rng = thread_rng();
    let world = Arc::new(World::new(left_out));
    let dead = world.grave.lock().unwrap();
    if rng.gen_bool(0.5) {
        world.copy_in(&small(&mut rng), 0);
    }
    let (ended, all_ended) = shuttle::sync::mpsc::channel();
    let mut threads = Vec::new();
    for writer in 0..WRITERS {
        let is_doomed = writer == 0 && rng.gen_bool(0.5);
        let accesses_left = rng.gen_range(0..80);
        let (world, ended) = (Arc::clone(&world), ended.clone());
        threads.push(thread::spawn(move || {
            if is_doomed {
                let (dying, ended) = (Arc::clone(&world), ended.clone());
                doom(Some(Doom::new(accesses_left, move || dying.die(writer, &ended))));
            }
            write_and_peek(&world, writer);
            let _ = ended.send(());
        }));
    }
    let (reading, ended) = (Arc::clone(&world), ended);
    threads.push(thread::spawn(move || {
        (0..3).for_each(|_| reading.read(&any(&mut thread_rng())));
        let _ = ended.send(());
    }));
    be_broker(&world);
    threads.iter().for_each(|_| all_ended.recv().unwrap());
    world.check_end();
    drop(dead);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

fn schedules() -> usize {
    std::env::var("STRIPED_SCHEDULES").ok().and_then(|text| text.parse().ok()).unwrap_or(1500)
}

#[test]
fn no_schedule_loses_a_byte_or_reads_an_old_one() {
    shuttle::check_random(|| scenario(LeftOut::Nothing), schedules());
    shuttle::check_pct(|| scenario(LeftOut::Nothing), schedules(), 3);
}

#[test]
fn every_safeguard_is_needed() {
    for left_out in ALL {
        let run = || {
            for _ in 0..40 {
                shuttle::check_random(move || scenario(left_out), 500);
                shuttle::check_pct(move || scenario(left_out), 500, 3);
            }
        };
        assert!(std::panic::catch_unwind(run).is_err(), "nothing goes wrong without {left_out:?}");
    }
}
