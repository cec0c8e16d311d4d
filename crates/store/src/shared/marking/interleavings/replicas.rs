//! The same of replicas: one is made of the region's place, read, forgotten by the first write after that, and freed, while writers and a reader go on.
//!
//! Held at every step: a reader sees what was written before it came, does not go back, and sees nothing that was freed.

use super::*;
use shuttle::sync::Mutex;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Without {
    Nothing,
    /// Writers do not have the replica forgotten.
    Pin,
    SecondMark,
    FirstDrain,
    SealDrain,
    /// The replica is freed with readers in it.
    LastDrain,
}

/// Place 0 is the region's place, 1 its replica.
struct Replicated {
    region: Region,
    replica: CheckedU64,
    /// The broker's lock of the file.
    inner: Mutex<()>,
    /// Of each writer, its last write that has ended.
    ended: Vec<CheckedU64>,
}

impl Replicated {
    fn write(&self, writer: usize, number: u64, without: Without) {
        let region = &self.region;
        loop {
            let Some(free) = occupy(&region.lanes[writer], WRITE) else { unreachable!("one thread for each lane") };
            let word = Word::load(&region.word);
            let put = || region.put(0, writer, number);
            match Motion::of(word) {
                Motion::Replicated if without != Without::Pin => {
                    Word::store(&region.lanes[writer], free);
                    self.pin(without);
                    continue;
                }
                Motion::Sealed(_) => {
                    Word::store(&region.lanes[writer], free);
                    thread::yield_now();
                    continue;
                }
                Motion::Still | Motion::Replicated => put(),
                Motion::Moving(_) if without == Without::SecondMark => {
                    Marks::new(&region.marks).mark(writer..=writer);
                    put();
                }
                Motion::Moving(_) => Marks::new(&region.marks).write(writer..=writer, put),
            }
            Word::store(&region.lanes[writer], free);
            Word::store(&self.ended[writer], number);
            return;
        }
    }

    /// The broker's part.
    fn pin(&self, without: Without) {
        let inner = self.inner.lock().unwrap();
        let region = &self.region;
        let word = Word::load(&region.word);
        if Motion::of(word) != Motion::Replicated {
            return;
        }
        Word::store(&region.word, Motion::Still.in_word(word));
        Word::store(&self.replica, 0);
        drop(inner);
        if without != Without::LastDrain {
            region.drain(READ | WRITE, &mut [false; WRITERS + 1]);
        }
        for half in region.places[1].iter().flatten() {
            half.store(FREED, SeqCst);
        }
    }

    fn sync(&self, without: Without) {
        let (region, marks) = (&self.region, Marks::new(&self.region.marks));
        let mut dead = [false; WRITERS + 1];
        begin(&region.word, marks, WRITERS, SLOT);
        if without != Without::FirstDrain {
            region.drain(WRITE, &mut dead);
        }
        region.copy();
        assert!(seal(&region.word, SLOT));
        if without != Without::SealDrain {
            region.drain(WRITE, &mut dead);
        }
        region.copy();
        let _inner = self.inner.lock().unwrap();
        Word::store(&self.replica, 1);
        Word::store(&region.word, Motion::Replicated.in_word(Word::load(&region.word)));
    }

    fn read(&self, seen: &mut [u64; WRITERS]) {
        let before: Vec<u64> = self.ended.iter().map(Word::load).collect();
        let region = &self.region;
        let free = occupy(&region.lanes[WRITERS], READ).expect("one thread for each lane");
        let is_replicated = Motion::of(Word::load(&region.word)) == Motion::Replicated;
        let place = &region.places[usize::from(is_replicated && Word::load(&self.replica) != 0)];
        for (chunk, seen) in seen.iter_mut().enumerate() {
            let found = Word::load(&place[chunk][0]);
            assert_ne!(found, FREED, "read where it was freed");
            assert!(found >= before[chunk], "{found}, though {} had ended", before[chunk]);
            assert!(found >= *seen, "{found} after {seen}");
            *seen = found;
        }
        Word::store(&region.lanes[WRITERS], free);
    }
}

fn scenario(without: Without) {
    let ended = (0..WRITERS).map(|_| CheckedU64::new(0)).collect();
    let shared =
        Arc::new(Replicated { region: Region::new(), replica: CheckedU64::new(0), inner: Mutex::new(()), ended });
    let mut threads: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || (0..WRITES).for_each(|number| shared.write(writer, number + 1, without)))
        })
        .collect();
    let reading = Arc::clone(&shared);
    threads.push(thread::spawn(move || {
        let mut seen = [0; WRITERS];
        (0..4).for_each(|_| reading.read(&mut seen));
    }));
    shared.sync(without);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    if Motion::of(Word::load(&shared.region.word)) == Motion::Replicated {
        for halves in &shared.region.places[1] {
            assert!(halves.iter().all(|half| Word::load(half) == WRITES), "the replica lacks a write");
        }
    }
    shared.read(&mut [WRITES; WRITERS]);
}

#[test]
fn no_schedule_reads_a_stale_replica() {
    shuttle::check_random(|| scenario(Without::Nothing), schedules());
    shuttle::check_pct(|| scenario(Without::Nothing), schedules(), 3);
}

#[test]
fn every_safeguard_of_replicas_is_needed() {
    for without in [Without::Pin, Without::SecondMark, Without::FirstDrain, Without::SealDrain, Without::LastDrain] {
        let run = || {
            shuttle::check_random(move || scenario(without), 20_000);
            shuttle::check_pct(move || scenario(without), 20_000, 3);
        };
        assert!(std::panic::catch_unwind(run).is_err(), "nothing goes wrong without {without:?}");
    }
}
