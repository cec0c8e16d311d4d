//! The order of operations under a model checker: the code of `marking` with the checker's atomics, writers that may die inside, a reader,
//! and a mover that takes the steps of `broker::moves`. The checker tries schedules, at random and by priorities that change at a few points (PCT).
//!
//! Held at every step: nobody inside sees a place that was freed, and what a reader has seen of a chunk does not go back. At the end the new place has what
//! the old one had. So that this proves something, each safeguard is left out in turn, and the checker has to find what goes wrong.
//!
//! Replicas, which are made in the same way, have a scenario of their own (`replicas`).
//!
//! The checker knows sequential consistency only, which is what the code asks for. `STRIPED_SCHEDULES` makes it long.

use super::*;
use shuttle::sync::Arc;
use shuttle::sync::atomic::{AtomicBool, AtomicU64 as CheckedU64};
use shuttle::thread;

mod replicas;

impl Word for CheckedU64 {
    fn load(&self) -> u64 {
        self.load(SeqCst)
    }
    fn peek(&self) -> u64 {
        self.load(SeqCst)
    }
    fn store(&self, value: u64) {
        self.store(value, SeqCst);
    }
    fn fetch_or(&self, bits: u64) -> u64 {
        self.fetch_or(bits, SeqCst)
    }
    fn swap(&self, value: u64) -> u64 {
        self.swap(value, SeqCst)
    }
    fn compare_exchange(&self, current: u64, new: u64) -> bool {
        self.compare_exchange(current, new, SeqCst, SeqCst).is_ok()
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum LeftOut {
    Nothing,
    SecondMark,
    FirstDrain,
    SealDrain,
    /// The dead count as gone, and nothing is copied again.
    Dead,
    /// Nor where another took over the dead one's lanes.
    Forgotten,
    LastDrain,
}

const WRITERS: usize = 2;
const WRITES: u64 = 2;
const SLOT: u8 = 5;
const FREED: u64 = u64::MAX;
const READ: u64 = 1 << 62;
const WRITE: u64 = 2 << 62;

/// Each writer has a chunk of two halves, so that a write can be seen half done. Generation 0 is the old place, 1 the new one.
struct Region {
    word: CheckedU64,
    marks: Vec<CheckedU64>,
    /// The last lane is the reader's.
    lanes: Vec<CheckedU64>,
    alive: Vec<AtomicBool>,
    /// Write lanes cleared by those who took over from the dead, as in `slots`.
    forgotten: CheckedU64,
    places: [Vec<[CheckedU64; 2]>; 2],
}

impl Region {
    fn new() -> Self {
        let place = || (0..WRITERS).map(|_| [CheckedU64::new(0), CheckedU64::new(0)]).collect();
        Self {
            word: CheckedU64::new(PLACED),
            marks: vec![CheckedU64::new(0)],
            lanes: (0..=WRITERS).map(|_| CheckedU64::new(0)).collect(),
            forgotten: CheckedU64::new(0),
            alive: (0..=WRITERS).map(|_| AtomicBool::new(true)).collect(),
            places: [place(), place()],
        }
    }

    fn place(&self, word: u64) -> &[[CheckedU64; 2]] {
        &self.places[(word >> 32) as usize]
    }

    fn put(&self, word: u64, chunk: usize, number: u64) {
        for half in &self.place(word)[chunk] {
            assert_ne!(half.swap(number, SeqCst), FREED, "written where it was freed");
        }
    }

    /// One write; false: the writer died in it.
    fn write(&self, writer: usize, number: u64, dies: bool, left_out: LeftOut) -> bool {
        use shuttle::rand::Rng;
        loop {
            let Some(free) = occupy(&self.lanes[writer], WRITE) else { unreachable!("one thread for each lane") };
            let word = Word::load(&self.word);
            let put = || self.put(word, writer, number);
            let marks = Marks::new(&self.marks);
            match Motion::of(word) {
                Motion::Sealed(_) => {
                    Word::store(&self.lanes[writer], free);
                    thread::yield_now();
                    continue;
                }
                Motion::Still => put(),
                Motion::Replicated => unreachable!("nothing is made next to the place here"),
                Motion::Moving(_) if dies || left_out == LeftOut::SecondMark => {
                    marks.mark(writer..=writer);
                    put();
                }
                Motion::Moving(_) => marks.write(writer..=writer, put),
            }
            if dies {
                self.alive[writer].store(false, SeqCst);
                // Sometimes a new process has the same slot right away.
                if shuttle::rand::thread_rng().gen_bool(0.5) {
                    self.forgotten.fetch_add(1, SeqCst);
                    Word::store(&self.lanes[writer], free);
                }
                return false;
            }
            Word::store(&self.lanes[writer], free);
            return true;
        }
    }

    fn read(&self, seen: &mut [u64; WRITERS]) {
        let free = occupy(&self.lanes[WRITERS], READ).expect("one thread for each lane");
        let place = self.place(Word::load(&self.word));
        for (chunk, seen) in seen.iter_mut().enumerate() {
            let found = Word::load(&place[chunk][0]);
            assert_ne!(found, FREED, "read where it was freed");
            assert!(found >= *seen, "{found} after {seen}");
            *seen = found;
        }
        Word::store(&self.lanes[WRITERS], free);
    }

    /// True: one died inside.
    fn drain(&self, kinds: u64, dead: &mut [bool]) -> bool {
        let inside = |lane: &CheckedU64| Some(Word::load(lane)).filter(|word| word & kinds & (READ | WRITE) != 0);
        let uses: Vec<Option<u64>> = self.lanes.iter().map(inside).collect();
        let mut died = false;
        for (number, word) in uses.into_iter().enumerate() {
            let Some(word) = word else { continue };
            while Word::load(&self.lanes[number]) == word && !dead[number] {
                if !self.alive[number].load(SeqCst) {
                    (dead[number], died) = (true, true);
                }
                thread::yield_now();
            }
        }
        died
    }

    fn copy(&self) {
        let taken = Marks::new(&self.marks).take();
        for chunk in (0..WRITERS).filter(|chunk| taken[0] >> chunk & 1 == 1) {
            for half in 0..2 {
                Word::store(&self.places[1][chunk][half], Word::load(&self.places[0][chunk][half]));
            }
        }
    }

    fn do_move(&self, left_out: LeftOut) {
        let marks = Marks::new(&self.marks);
        let mut dead = [false; WRITERS + 1];
        let mut forgotten = Word::load(&self.forgotten);
        begin(&self.word, marks, WRITERS, SLOT);
        if left_out != LeftOut::FirstDrain {
            self.drain(WRITE, &mut dead);
        }
        loop {
            self.copy();
            assert!(seal(&self.word, SLOT));
            let died = left_out != LeftOut::SealDrain && self.drain(WRITE, &mut dead);
            let count = Word::load(&self.forgotten);
            let was_forgotten = count != forgotten && left_out != LeftOut::Forgotten;
            if died && left_out != LeftOut::Dead || was_forgotten {
                forgotten = count;
                marks.mark(0..=WRITERS - 1);
                assert!(unseal(&self.word, SLOT));
                continue;
            }
            self.copy();
            break;
        }
        if matches!(left_out, LeftOut::Nothing | LeftOut::Dead | LeftOut::Forgotten) {
            for chunk in 0..WRITERS {
                for half in 0..2 {
                    let [old, new] = [0, 1].map(|place: usize| Word::load(&self.places[place][chunk][half]));
                    assert_eq!(old, new, "chunk {chunk}");
                }
            }
        }
        Word::store(&self.word, 1 << 32 | PLACED);
        if left_out != LeftOut::LastDrain {
            self.drain(READ | WRITE, &mut dead);
        }
        for half in self.places[0].iter().flatten() {
            half.store(FREED, SeqCst);
        }
    }
}

fn scenario(left_out: LeftOut) {
    use shuttle::rand::Rng;
    let region = Arc::new(Region::new());
    let dies_at = shuttle::rand::thread_rng().gen_range(0..2 * WRITES);
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let region = Arc::clone(&region);
            thread::spawn(move || {
                (0..WRITES)
                    .take_while(|number| region.write(writer, number + 1, writer == 0 && *number == dies_at, left_out))
                    .count() as u64
            })
        })
        .collect();
    let reading = Arc::clone(&region);
    let reader = thread::spawn(move || {
        let mut seen = [0; WRITERS];
        (0..3).for_each(|_| reading.read(&mut seen));
        seen
    });
    region.do_move(left_out);
    let written: Vec<u64> = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
    let seen = reader.join().unwrap();
    for (chunk, written) in written.into_iter().enumerate() {
        for half in &region.places[1][chunk] {
            let found = Word::load(half);
            // The one that died may have done all of its write.
            let dead = chunk == 0 && written < WRITES;
            assert!(
                found == written || dead && found == written + 1,
                "chunk {chunk} has {found}, {written} were written"
            );
            assert!(found >= seen[chunk], "chunk {chunk} went back to {found} from {}", seen[chunk]);
        }
    }
}

fn schedules() -> usize {
    std::env::var("STRIPED_SCHEDULES").ok().and_then(|text| text.parse().ok()).unwrap_or(1500)
}

#[test]
fn no_schedule_loses_a_byte_or_reads_what_was_freed() {
    shuttle::check_random(|| scenario(LeftOut::Nothing), schedules());
    shuttle::check_pct(|| scenario(LeftOut::Nothing), schedules(), 3);
}

#[test]
fn every_safeguard_is_needed() {
    for left_out in [
        LeftOut::SecondMark,
        LeftOut::FirstDrain,
        LeftOut::SealDrain,
        LeftOut::Dead,
        LeftOut::Forgotten,
        LeftOut::LastDrain,
    ] {
        let run = || {
            shuttle::check_random(move || scenario(left_out), 20_000);
            shuttle::check_pct(move || scenario(left_out), 20_000, 3);
        };
        assert!(std::panic::catch_unwind(run).is_err(), "nothing goes wrong without {left_out:?}");
    }
}
