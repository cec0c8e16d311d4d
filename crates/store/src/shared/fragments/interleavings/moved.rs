//! A region gets another place while readers are in it. Its entries are gone before that, and nobody adds one; but afterwards writers add entries that are
//! ranges of the new place, and a reader who came for the old one finds them.

use super::*;

/// The new place has the file's cells in reverse.
fn in_new_place(cells: &DiskRange) -> DiskRange {
    range(CELLS - cells.end(), cells.length)
}

struct Moved {
    world: World,
    /// 0: the old place counts, which is the world's disk.
    generation: Mortal,
    new_disk: Vec<Mortal>,
    rechecks: bool,
}

impl Moved {
    fn new(rechecks: bool) -> Self {
        let new_disk = (0..CELLS).rev().map(|cell| Mortal::new(history::value(0, cell))).collect();
        Self { world: World::new(LeftOut::Nothing), generation: Mortal::new(0), new_disk, rechecks }
    }

    /// The mover's last step, and what anybody writes after it.
    fn publish_and_write(&self) {
        self.generation.store(1);
        let (world, sets) = (&self.world, self.world.sets());
        for _ in 0..WRITES {
            let file_cells = small(&mut thread_rng());
            let place = in_new_place(&file_cells);
            let write = world.history.begin_write(&file_cells);
            let values: Vec<u64> = cells(&file_cells).rev().map(|cell| history::value(write, cell)).collect();
            let value = |cell: u64| values[(cell - place.offset.0) as usize];
            let put_slot = |seen: &Seen| {
                for cell in cells(&place).filter(|cell| cells(&seen.range).contains(cell)) {
                    world.in_slot(seen, cell).store(value(cell));
                }
            };
            match sets.plan_write(&place, WriteChoice::Add(Class::Fragment)) {
                WritePlan::Slot(seen) => put_slot(&seen),
                WritePlan::Fill(seen) => {
                    put_slot(&seen);
                    assert!(sets.declare(&seen, State::Dirty), "nobody else writes");
                }
                WritePlan::Disk(newer) => {
                    newer.iter().for_each(put_slot);
                    cells(&place).for_each(|cell| self.new_disk[cell as usize].store(value(cell)));
                }
            }
            world.history.end_write(write);
        }
    }

    fn read(&self, file_cells: &DiskRange) {
        let (world, begun) = (&self.world, self.world.history.now());
        loop {
            let generation = self.generation.load();
            let (place, disk) = match generation {
                0 => (*file_cells, &world.disk),
                _ => (in_new_place(file_cells), &self.new_disk),
            };
            take_long();
            let (from, mut found) = world.peek(disk, &place);
            let is_of_this_place = from.is_empty() || !self.rechecks || self.generation.load() == generation;
            if !is_of_this_place || !from.iter().all(|seen| world.sets().still_holds(seen)) {
                continue;
            }
            if generation == 1 {
                found.reverse();
            }
            for (cell, value) in cells(file_cells).zip(found) {
                world.history.read(cell, value, begun);
            }
            return;
        }
    }
}

fn scenario(rechecks: bool) {
    let moved = Arc::new(Moved::new(rechecks));
    let reading = Arc::clone(&moved);
    let reader = thread::spawn(move || (0..2).for_each(|_| reading.read(&any(&mut thread_rng()))));
    moved.publish_and_write();
    reader.join().unwrap();
    moved.read(&range(0, CELLS));
    moved.world.history.check();
}

#[test]
fn a_reader_of_the_old_place_takes_nothing_of_the_new_one() {
    shuttle::check_random(|| scenario(true), schedules());
    shuttle::check_pct(|| scenario(true), schedules(), 3);
}

#[test]
fn readers_have_to_read_the_region_again() {
    let run = || {
        for _ in 0..40 {
            shuttle::check_random(|| scenario(false), 500);
            shuttle::check_pct(|| scenario(false), 500, 3);
        }
    };
    assert!(std::panic::catch_unwind(run).is_err(), "nothing goes wrong without a second look");
}
