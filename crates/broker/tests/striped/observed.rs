//! Watching what processes do.

use crate::world::{Dice, World, read, uniform, write};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, IoSlice, Write};
use std::process::Child;
use std::sync::atomic::{AtomicBool, Ordering};
use stripewise_layout::{FileOffset, RequestKind, WriteClass};
use stripewise_store::file::IoMode;
use stripewise_store::observer::{Noted, Observer};

const SIZE: u64 = 1 << 18;

/// Kind, offset, bytes.
type Access = (RequestKind, u64, u32);

/// Of [`write()`], which writes as programs do that set no flags.
const WRITTEN: RequestKind = RequestKind::Write(WriteClass::Buffered);

/// What was drained: by process and lane the requests and those missed.
#[derive(Default, Debug)]
struct Drained {
    streams: BTreeMap<(u16, usize), Vec<Access>>,
    missed: u64,
}

impl Drained {
    fn take(&mut self, observer: &mut Observer) {
        observer.meet().unwrap();
        observer.drain(|stream| {
            self.missed += stream.missed;
            let known = self.streams.entry((stream.process.0, stream.lane)).or_default();
            known.extend(stream.requests.iter().map(|noted: &Noted| (noted.kind, noted.offset.0, noted.bytes)));
        });
    }

    fn all(&self) -> Vec<Access> {
        self.streams.values().flatten().copied().collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    /// One thread's requests come out as it made them, those that move nothing left out; where it was too fast, the sum is right.
    #[test]
    fn what_a_thread_did_is_what_is_drained(
        bursts in prop::collection::vec(prop::collection::vec((any::<bool>(), 0..SIZE, 0..40_000usize), 0..90), 1..6)
    ) {
        let world = World::new(4);
        let _broker = world.broker();
        let client = world.client();
        let (_stub, file) = world.create(&client, "f", uniform(16 << 10, &[(0, 4096), (2, 3000)]));
        write(&file, 0, &[1]);
        let mut observer = Observer::start(world.client()).unwrap();
        let mut drained = Drained::default();
        let mut expected = Vec::new();
        for burst in bursts {
            let before = expected.len();
            for (is_write, at, length) in burst {
                let (kind, moved) = if is_write {
                    (WRITTEN, write(&file, at, &vec![7; length]))
                } else {
                    (RequestKind::Read, read(&file, at, length).len())
                };
                if moved > 0 {
                    expected.push((kind, at, moved as u32));
                }
            }
            drained.take(&mut observer);
            // The oldest ones are gone where there were too many.
            let found = drained.all().len();
            let lost = expected.len() - found;
            prop_assert_eq!(drained.missed, lost as u64);
            expected.drain(before..before + lost);
            drained.missed = 0;
            prop_assert_eq!(&drained.all(), &expected);
        }
    }
}

/// What each write waited for is noted with it.
#[test]
fn writes_are_drained_with_what_they_waited_for() {
    let world = World::new(4);
    let _broker = world.broker();
    let client = world.client();
    let (_stub, file) = world.create(&client, "f", uniform(16 << 10, &[(0, 4096), (2, 4096)]));
    write(&file, 0, &vec![1; SIZE as usize]);
    let mut observer = Observer::start(world.client()).unwrap();
    let modes = [(false, false), (true, false), (false, true), (true, true)]
        .map(|(direct, durable)| IoMode { direct, durable });
    for (at, mode) in (0..).step_by(4096).zip(modes) {
        assert_eq!(file.write_with(FileOffset(at), &[IoSlice::new(&[2; 4096])], mode).unwrap(), 4096);
    }
    let (_, written) = file.append_with(&[IoSlice::new(&[2; 10])], modes[2]).unwrap();
    assert_eq!((written, read(&file, 9, 3)), (10, vec![2; 3]));
    let mut drained = Drained::default();
    drained.take(&mut observer);
    let write_of = |class, at, bytes| (RequestKind::Write(class), at, bytes);
    let expected = [
        write_of(WriteClass::Buffered, 0, 4096),
        write_of(WriteClass::Direct, 4096, 4096),
        write_of(WriteClass::Synchronous, 8192, 4096),
        write_of(WriteClass::Synchronous, 12288, 4096),
        write_of(WriteClass::Synchronous, SIZE, 10),
        (RequestKind::Read, 9, 3),
    ];
    assert_eq!((drained.all(), drained.missed), (expected.to_vec(), 0));
}

/// Reads and writes as `SEED COUNT` say, says so, and again for every line that it gets.
pub(crate) fn access(world: &World, arguments: &[String]) {
    let (seed, count): (u64, u64) = (arguments[0].parse().unwrap(), arguments[1].parse().unwrap());
    let client = world.client();
    let (_stub, file) = world.open(&client, "f", true);
    for (turn, line) in std::io::stdin().lock().lines().enumerate() {
        assert_eq!(line.unwrap(), "go");
        requests(seed + turn as u64, count).for_each(|(kind, at, length)| match kind {
            RequestKind::Read => drop(read(&file, at, length as usize)),
            RequestKind::Write(_) => drop(write(&file, at, &vec![1; length as usize])),
        });
        println!("accessed");
    }
}

fn requests(seed: u64, count: u64) -> impl Iterator<Item = Access> {
    let mut dice = Dice(seed);
    (0..count).map(move |_| {
        let kind = if dice.roll(3) == 0 { WRITTEN } else { RequestKind::Read };
        (kind, dice.roll(SIZE / 2), 1 + dice.roll(5000) as u32)
    })
}

fn go(child: &mut Child, says: &mut impl Iterator<Item = std::io::Result<String>>) {
    child.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
    assert!(says.any(|line| line.unwrap().contains("accessed")));
}

/// Processes that were there before the observer, came after it, and died; each request is drained once, from the right stream.
#[test]
fn processes_before_and_after_the_observer_are_seen() {
    let world = World::new(4);
    let _broker = world.broker();
    let client = world.client();
    let (_stub, file) = world.create(&client, "f", uniform(16 << 10, &[(0, 4096), (2, 3000)]));
    write(&file, 0, &vec![1; SIZE as usize]);
    drop(file);
    let start = |seed: u64| world.spawn("accessor", &[seed.to_string(), "40".to_owned()]);
    let mut early = start(1000);
    let mut early_says = BufReader::new(early.stdout.take().unwrap()).lines();
    go(&mut early, &mut early_says);
    let mut observer = Observer::start(world.client()).unwrap();
    let mut drained = Drained::default();
    drained.take(&mut observer);
    assert_eq!(drained.all(), [], "what was before nobody knows");
    go(&mut early, &mut early_says);
    let mut late = start(2000);
    let mut late_says = BufReader::new(late.stdout.take().unwrap()).lines();
    go(&mut late, &mut late_says);
    late.kill().unwrap();
    late.wait().unwrap();
    // The dead one is found by what it left.
    observer.meet().unwrap();
    drained.take(&mut observer);
    let expected: Vec<Vec<_>> = [1001, 2000].map(|seed| requests(seed, 40).collect()).to_vec();
    let mut found: Vec<Vec<_>> = drained.streams.values().cloned().collect();
    found.sort_by_key(|requests| expected.iter().position(|expected| expected == requests));
    assert_eq!((found, drained.missed), (expected, 0));
    // Another broker: nothing is lost, and new files are found.
    drop(early.stdin.take());
    early.wait().unwrap();
    let watched: Vec<_> = observer.files().collect();
    assert_eq!((watched.len(), watched[0].size_bytes, watched[0].region_bytes), (1, SIZE, 16 << 10));
    assert!(watched[0].path.ends_with("/files/f"), "{}", watched[0].path);
}

#[test]
fn a_change_of_broker_loses_no_request_and_removed_files_leave() {
    let world = World::new(4);
    let broker = world.broker();
    let client = world.client();
    let (stub, file) = world.create(&client, "f", uniform(16 << 10, &[(0, 4096)]));
    write(&file, 0, &[1; 100]);
    let mut observer = Observer::start(world.client()).unwrap();
    let mut drained = Drained::default();
    write(&file, 5, &[1; 100]);
    broker.stop();
    write(&file, 6, &[1; 100]);
    let _broker = world.broker();
    observer.meet().unwrap();
    // It has not been asked for yet by anybody but the observer.
    write(&file, 7, &[1; 100]);
    let (_other_stub, other) = world.create(&client, "g", uniform(16 << 10, &[(2, 4096)]));
    write(&other, 8, &[1; 100]);
    observer.meet().unwrap();
    drained.take(&mut observer);
    let offsets = |drained: &Drained| {
        // Files are drained in the order of their ids, which are drawn.
        drained.all().iter().map(|(_, at, _)| *at).collect::<std::collections::BTreeSet<_>>()
    };
    assert_eq!((offsets(&drained), drained.missed), ([5, 6, 7, 8].into(), 0));
    client.remove(&world.path("f"), std::os::fd::AsFd::as_fd(&stub), file.id()).unwrap();
    let id = file.id();
    drop((file, stub));
    let begun = std::time::Instant::now();
    while !observer.meet().unwrap().contains(&id) {
        assert!(begun.elapsed().as_secs() < 60, "the removed file stays");
        std::thread::yield_now();
    }
    assert_eq!(observer.files().count(), 1);
    // The observer's end is that of the noting, as soon as the broker has heard of it.
    drop(observer);
    loop {
        let mut observer = Observer::start(world.client()).unwrap();
        write(&other, 9, &[1; 100]);
        let mut drained = Drained::default();
        drained.take(&mut observer);
        if offsets(&drained) == [9].into() {
            break;
        }
        assert_eq!(offsets(&drained), [8, 9].into());
        assert!(begun.elapsed().as_secs() < 100, "what was noted for the observer before is noted for the next");
    }
}

/// Many threads at once beside an observer that is always behind: no request is counted twice or torn, and none forgotten.
#[test]
fn threads_beside_a_draining_observer_are_counted_right() {
    let world = World::new(4);
    let _broker = world.broker();
    let client = world.client();
    let (stub, file) = world.create(&client, "f", uniform(16 << 10, &[(0, 4096), (2, 3000)]));
    write(&file, 0, &vec![1; SIZE as usize]);
    let mut observer = Observer::start(world.client()).unwrap();
    const THREADS: u64 = 6;
    const EACH: u64 = 4000;
    let done = AtomicBool::new(false);
    let mut drained = Drained::default();
    std::thread::scope(|scope| {
        let working: Vec<_> = (0..THREADS)
            .map(|thread| {
                let file = &file;
                // The length says who it was, the offset which request.
                scope.spawn(move || {
                    for number in 0..EACH {
                        assert_eq!(read(file, number * 8, 1 + thread as usize).len(), 1 + thread as usize);
                    }
                })
            })
            .collect();
        let (observer, drained, done) = (&mut observer, &mut drained, &done);
        scope.spawn(move || {
            while !done.load(Ordering::SeqCst) {
                drained.take(observer);
            }
        });
        working.into_iter().for_each(|thread| thread.join().unwrap());
        done.store(true, Ordering::SeqCst);
    });
    drained.take(&mut observer);
    let all = drained.all();
    assert_eq!(all.len() as u64 + drained.missed, THREADS * EACH);
    let mut seen = std::collections::BTreeSet::new();
    for request in &all {
        assert!(
            request.0 == RequestKind::Read && request.1.is_multiple_of(8) && (1..=6).contains(&request.2),
            "{request:?}"
        );
        assert!(seen.insert((request.1, request.2)), "twice: {request:?}");
    }
    drop((file, stub));
}
