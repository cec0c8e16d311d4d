//! Programs that work on a file while the broker works on its fragments, or stop, or die.

use crate::cluster::{REGION, Testbed};
use crate::fragments::findings;
use crate::user::{OBJECT, REGIONS, User, range, until};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use stripewise_layout::{Direction, Layout, RegionIndex, ServerId};
use stripewise_store::protocol::{Admin, MoveOrder, Request};
use stripewise_store::shared::fragments::hints::Suggestion;
use stripewise_store::shared::fragments::{Class, State, WriteChoice, WritePlan};
use stripewise_store::shared::slots::InFlight;

/// Readers find every byte, whatever the broker does at the same time.
#[test]
fn copying_in_and_writing_back_never_cross_a_writer() {
    let testbed = Testbed::with_fragments(16);
    let _broker = testbed.start();
    let user = User::create(&testbed, "f");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Each thread's own bytes, side by side with the others'.
        let writers: Vec<_> = (0..3u64)
            .map(|own| {
                let (user, stop) = (&user, &stop);
                scope.spawn(move || {
                    let mut round = 0u8;
                    for number in 0..4000u64 {
                        let at = range((number % 2) as u32, (number % 5) * 3000 + own * 700, 700);
                        round = round.wrapping_add(1);
                        let choice = match number % 7 {
                            0 | 1 => WriteChoice::Disk,
                            2 => WriteChoice::Present,
                            _ => WriteChoice::Add(Class::ALL[number as usize % 2]),
                        };
                        user.write_unnoted(0, &at, &[round; 700], choice);
                        user.hints.suggest(&Suggestion { disk: ServerId(0), range: at, class: Class::Random });
                        assert_eq!(user.read(0, &at), [round; 700], "{own} {number}");
                        if stop.load(Ordering::SeqCst) {
                            return;
                        }
                    }
                })
            })
            .collect();
        // A failed writer ends the others.
        let results: Vec<_> = writers
            .into_iter()
            .map(|writer| writer.join().inspect_err(|_| stop.store(true, Ordering::SeqCst)))
            .collect();
        assert!(results.iter().all(Result::is_ok));
    });
    let before: Vec<Vec<u8>> = (0..2).map(|region| user.read(0, &range(region, 0, OBJECT as u64))).collect();
    user.flush().unwrap();
    assert_eq!(user.newer(), 0);
    for (region, before) in (0..).zip(before) {
        assert!(user.on_disk(0, region) == before, "region {region}");
    }
}

/// A writer that was inside before an entry was called flushing may write its slot until it leaves.
#[test]
fn writing_back_waits_for_the_writers_inside() {
    let testbed = Testbed::with_fragments(64);
    let _broker = testbed.start();
    let mut user = User::create(&testbed, "f");
    let at = range(0, 100, 300);
    user.write_small(0, &at, 1);
    let what = InFlight { direction: Direction::Write, first: RegionIndex(0), last: RegionIndex(0) };
    let lane = user.opened.slots.occupy(user.client.claim.unwrap().0, 0, what).unwrap();
    let WritePlan::Slot(seen) = user.log(0).sets.plan_write(&at, WriteChoice::Present) else { panic!("it is there") };
    user.table.note_dirtied();
    std::thread::scope(|scope| {
        let flush = scope.spawn(|| user.flush());
        until("it is being written back", || user.entries(0)[0].state() == State::Flushing);
        user.write_slot(0, &at, &[2; 300], &seen);
        lane.free();
        flush.join().unwrap().unwrap();
    });
    assert_eq!((user.on_disk(0, 0)[100..400].to_vec(), user.newer()), (vec![2; 300], 0));
    // One that comes later keeps it dirty.
    let lane = user.opened.slots.occupy(user.client.claim.unwrap().0, 0, what).unwrap();
    let WritePlan::Slot(_) = user.log(0).sets.plan_write(&at, WriteChoice::Present) else { panic!("it is there") };
    user.table.note_dirtied();
    std::thread::scope(|scope| {
        let flush = scope.spawn(|| user.flush());
        until("it is being written back", || user.entries(0)[0].state() == State::Flushing);
        user.write_unnoted(0, &range(0, 0, 200), &[3; 200], WriteChoice::Disk);
        assert_eq!(user.entries(0)[0].state(), State::Dirty);
        lane.free();
        flush.join().unwrap().unwrap();
    });
    assert!(user.table.is_dirtied() || user.newer() == 0, "whatever is dirty is known to be");
    user.flush().unwrap();
    let expected = [vec![3; 200], vec![2; 200]].concat();
    assert_eq!((&user.on_disk(0, 0)[..400], user.newer()), (&expected[..], 0));
}

/// The disk is read for an entry only after everybody who did not see the entry has written it.
#[test]
fn copying_in_waits_for_the_writers_inside() {
    let testbed = Testbed::with_fragments(64);
    let _broker = testbed.start();
    let user = User::create(&testbed, "f");
    let at = range(0, 100, 300);
    user.write_unnoted(0, &at, &[1; 300], WriteChoice::Disk);
    let what = InFlight { direction: Direction::Write, first: RegionIndex(0), last: RegionIndex(0) };
    for byte in 2..20 {
        let lane = user.opened.slots.occupy(user.client.claim.unwrap().0, 0, what).unwrap();
        let WritePlan::Disk(newer) = user.log(0).sets.plan_write(&at, WriteChoice::Disk) else { panic!("not asked") };
        assert!(newer.is_empty());
        until("it is being copied in", || {
            // Again and again: one that waits for a lane too long is given up.
            user.hints.suggest(&Suggestion { disk: ServerId(0), range: at, class: Class::Random });
            !user.entries(0).is_empty()
        });
        let generation = stripewise_layout::Generation(user.opened.generation(0).unwrap());
        user.object(ServerId(0), 0, generation).write_all_at(&[byte; 300], 100).unwrap();
        lane.free();
        until("it is, or was given up", || user.count(State::Pending) == 0);
        assert_eq!(user.read(0, &at), [byte; 300]);
        // Makes way for the next.
        user.write_unnoted(0, &range(0, 400, 1), &[0], WriteChoice::Disk);
        user.write_unnoted(0, &at, &[byte; 300], WriteChoice::Disk);
    }
}

#[test]
fn what_the_dead_leave_is_cleared_away() {
    let testbed = Testbed::with_fragments(64);
    let _broker = testbed.start();
    let mut user = User::create(&testbed, "f");
    let mut dead = testbed.client();
    let (slot, incarnation) = dead.claim();
    let opened = dead.open(user.file(), &user.stub).unwrap();
    opened.slots.add_user(slot, incarnation).unwrap();
    let what = InFlight { direction: Direction::Write, first: RegionIndex(0), last: RegionIndex(0) };
    let _lane = opened.slots.occupy(slot, 0, what).unwrap();
    let left = user.log(0).sets.publish(&range(0, 0, 100), Class::Random).unwrap();
    let lost = user.log(0).sets.take_slot().unwrap();
    let free = user.log(0).sets.free_slots();
    // It lives: an entry that is being filled stays, whatever the broker is asked for.
    user.flush().unwrap();
    assert_eq!((user.entries(0), user.log(0).sets.free_slots()), (vec![left], free));
    drop(dead);
    until("entry and slots are free", || user.log(0).sets.free_slots() == free + 2);
    assert_ne!(left.slot, lost);
    user.write_small(0, &range(0, 50, 100), 1);
    user.flush().unwrap();
    user.check_disks();
}

/// A process that was stopped in the middle of a write keeps its entries dirty, and nobody else waiting.
#[test]
fn stopped_writer() {
    let Ok(root) = std::env::var("STRIPEWISE_TEST_STOPPED") else { return };
    let testbed = Testbed::at(std::path::Path::new(&root));
    let user = User::open(&testbed, "f");
    let what = InFlight { direction: Direction::Write, first: RegionIndex(0), last: RegionIndex(0) };
    let _lane = user.opened.slots.occupy(user.client.claim.unwrap().0, 0, what).unwrap();
    user.write_unnoted(0, &range(0, 100, 300), &[7; 300], WriteChoice::Present);
    rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::STOP).unwrap();
    // Another thread may be the first to stop.
    loop {
        std::thread::park();
    }
}

#[test]
fn a_stopped_writer_keeps_nobody_waiting() {
    let testbed = Testbed::with_fragments(64);
    let _broker = testbed.start();
    let mut user = User::create(&testbed, "f");
    user.write_small(0, &range(0, 100, 300), 1);
    user.write_small(0, &range(1, 100, 300), 1);
    let mut stopped = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["fragments_at_once::stopped_writer", "--exact", "--nocapture"])
        .env("STRIPEWISE_TEST_STOPPED", testbed.root())
        .spawn()
        .unwrap();
    let is_stopped = || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", stopped.id())).unwrap();
        stat.rsplit_once(") ").unwrap().1.starts_with('T')
    };
    until("the writer stops", is_stopped);
    user.flush().unwrap();
    assert_eq!(user.on_disk(0, 0)[100..400], [7; 300], "what it wrote before is on the disk");
    let state = |region| user.entries(0).into_iter().find(|seen| seen.range.region.0 == region).unwrap().state();
    assert_eq!((state(0), state(1)), (State::Dirty, State::Clean), "it may write on");
    assert!(user.table.is_dirtied());
    stopped.kill().unwrap();
    stopped.wait().unwrap();
    until("the broker sees that it died", || {
        user.flush().unwrap();
        user.newer() == 0
    });
    user.write(0, &range(0, 0, 50), &[3; 50], WriteChoice::Disk);
    user.write(0, &range(0, 100, 300), &[7; 300], WriteChoice::Present);
    user.flush().unwrap();
    user.check_disks();
}

/// Work of all kinds in any order, on two disks of which regions change the turns, through changes of broker.
#[test]
fn any_work_agrees_with_plain_bytes() {
    let seed = std::env::var("STRIPEWISE_SEED").map_or(u64::from(std::process::id()), |seed| seed.parse().unwrap());
    println!("STRIPEWISE_SEED={seed}");
    let mut state = seed;
    let mut roll = move |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let testbed = Testbed::with_fragments(24);
    let mut broker = testbed.start();
    let mut user = User::create(&testbed, "f");
    let full = u64::from(REGIONS) * REGION;
    // By turn and region.
    let mut model = vec![vec![vec![0u8; OBJECT]; REGIONS as usize]; 2];
    let mut moves = 0;
    for number in 0..600u64 {
        let (turn, region) = (roll(2) as u16, roll(u64::from(REGIONS)) as u32);
        let most = if roll(4) == 0 { 6000 } else { 1000 };
        let length = 1 + roll(most);
        let at = range(region, roll(OBJECT as u64 - length), length);
        let server = user.server_of(turn, region).unwrap();
        match roll(40) {
            0..20 => {
                let choice = match roll(4) {
                    0 => WriteChoice::Disk,
                    1 => WriteChoice::Present,
                    _ if length > 4096 => WriteChoice::Present,
                    _ => WriteChoice::Add(Class::ALL[roll(2) as usize]),
                };
                user.write_unnoted(server, &at, &vec![number as u8; length as usize], choice);
                model[usize::from(turn)][region as usize][at.offset.0 as usize..at.end() as usize].fill(number as u8);
            }
            20..30 => {
                let expected = &model[usize::from(turn)][region as usize][at.offset.0 as usize..at.end() as usize];
                assert!(user.read(server, &at) == expected, "{number}: turn {turn}, {at:?}");
            }
            30..34 => user.hints.suggest(&Suggestion { disk: ServerId(server), range: at, class: Class::Random }),
            34 => user.flush().unwrap(),
            35 | 36 => {
                let size_bytes = roll(full);
                user.client.ask(Request::Truncate { file: user.file(), size_bytes, number: 0 }).unwrap();
                user.client.ask(Request::Truncate { file: user.file(), size_bytes: full, number: 0 }).unwrap();
                user.client.place(user.file(), 0, REGIONS - 1).unwrap();
                for (turn, region) in (0..2).flat_map(|turn| (0..REGIONS).map(move |region| (turn, region))) {
                    let used = size_bytes.saturating_sub(u64::from(region) * REGION).min(REGION);
                    let layout = Layout::new((0..4).map(|server| (ServerId(server), 4096))).unwrap();
                    let kept = layout.view().object_bytes(turn, used) as usize;
                    model[turn][region as usize][kept..].fill(0);
                }
            }
            37 => {
                let mut servers = [0, 1, 2, 3];
                if roll(2) == 0 {
                    servers.swap(0, 1);
                }
                let layout = Layout::new(servers.map(|server| (ServerId(server), 4096))).unwrap();
                let order =
                    MoveOrder { file: user.file(), first: RegionIndex(region), last: RegionIndex(region), layout };
                broker.queue_moves(&[order]).unwrap();
                moves += 1;
                until("the region has moved", || broker.move_totals().done == moves);
            }
            38 => {
                broker.stop();
                (broker, moves) = (testbed.start(), 0);
                user.connect_again();
            }
            _ => {
                let admin = |on| Request::Admin(Admin::SetFragments { file: user.file(), on });
                user.client.ask(admin([None, Some(false)][roll(2) as usize])).unwrap();
            }
        }
    }
    user.flush().unwrap();
    for (turn, region) in (0..2u16).flat_map(|turn| (0..REGIONS).map(move |region| (turn, region))) {
        let server = user.server_of(turn, region).unwrap();
        assert!(user.on_disk(server, region) == model[usize::from(turn)][region as usize], "turn {turn} of {region}");
    }
    assert_eq!(findings(&user), 0);
}
