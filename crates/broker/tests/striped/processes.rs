//! Several processes on one file.

use crate::world::{Dice, World, open_stub, read, succeed, uniform, write};
use std::io::{IoSlice, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;
use stripewise_broker::BrokerOptions;
use stripewise_layout::FileOffset;
use stripewise_store::protocol::{Admin, Request};

/// Serves until its input ends.
pub(crate) fn serve(world: &World) -> ! {
    serve_with(world, BrokerOptions::default())
}

/// Writes no log of fragments back by itself.
pub(crate) fn serve_and_leave_logs(world: &World) -> ! {
    serve_with(world, BrokerOptions { quiet_after: Some(Duration::MAX), ..BrokerOptions::default() })
}

fn serve_with(world: &World, options: BrokerOptions) -> ! {
    let broker = world.broker_with(options);
    println!("serving");
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    broker.stop();
    // Without the harness's last words, which nobody reads.
    std::process::exit(0);
}

const GRAIN: u64 = 100;
const SPAN: u64 = 40_000;

/// Byte `at` after its owner's write number `turn`.
fn value(at: u64, turn: u64) -> u8 {
    (at.wrapping_mul(7) ^ turn.wrapping_mul(13)) as u8
}

/// Writes and reads back only the grains that are this process's own; the grains of the others share its stripes.
pub(crate) fn write_own_bytes(world: &World, arguments: &[String]) {
    let (me, count, seed) =
        (arguments[0].parse::<u64>().unwrap(), arguments[1].parse::<u64>().unwrap(), arguments[2].parse().unwrap());
    let client = world.client();
    let (_stub, file) = world.open(&client, "shared", true);
    let mut dice = Dice(seed);
    let mut model = vec![0u8; SPAN as usize];
    for turn in 1..400 {
        let grain = dice.roll(SPAN / GRAIN / count) * count + me;
        let (from, to) = (dice.roll(GRAIN), dice.roll(GRAIN + 1));
        let (at, end) = (grain * GRAIN + from.min(to), grain * GRAIN + from.max(to));
        let bytes: Vec<u8> = (at..end).map(|at| value(at, turn)).collect();
        if dice.roll(3) > 0 {
            assert_eq!(write(&file, at, &bytes), bytes.len());
            model[at as usize..end as usize].copy_from_slice(&bytes);
        } else {
            let expected = &model[at as usize..end as usize];
            let found = read(&file, at, expected.len());
            assert_eq!(found, expected[..found.len()], "seed {seed}, turn {turn}, at {at}");
            assert!(expected[found.len()..].iter().all(|byte| *byte == 0), "own bytes beyond the size");
        }
    }
    for grain in (me..SPAN / GRAIN).step_by(count as usize) {
        let at = grain * GRAIN;
        let found = read(&file, at, GRAIN as usize);
        assert_eq!(found, model[at as usize..at as usize + found.len()], "seed {seed}, at {at}");
    }
    std::fs::write(world.root.join(format!("model{me}")), model).unwrap();
    file.close().unwrap();
}

#[test]
fn processes_that_share_stripes_keep_each_others_bytes() {
    share_stripes(&World::new(4));
}

#[test]
fn processes_that_share_stripes_and_slots_keep_each_others_bytes() {
    share_stripes(&World::with_fragments(4));
}

fn share_stripes(world: &World) {
    let _broker = world.broker();
    let client = world.client();
    let (_stub, file) = world.create(&client, "shared", uniform(8192, &[(0, 33), (2, 1000), (1, 90), (3, 512)]));
    let seed = u64::from(std::process::id());
    let count = 5;
    let children: Vec<_> = (0..count)
        .map(|me| world.spawn("writer", &[me.to_string(), count.to_string(), (seed + me).to_string()]))
        .collect();
    children.into_iter().for_each(succeed);
    let mut expected = vec![0u8; SPAN as usize];
    for me in 0..count {
        let model = std::fs::read(world.root.join(format!("model{me}"))).unwrap();
        expected.iter_mut().zip(model).for_each(|(byte, own)| *byte |= own);
    }
    let found = read(&file, 0, SPAN as usize + 1);
    assert_eq!(found.len() as u64, file.size_bytes());
    assert_eq!(found, expected[..found.len()], "seed {seed}");
    assert!(expected[found.len()..].iter().all(|byte| *byte == 0), "seed {seed}: bytes beyond the size were lost");
}

const RECORD: usize = 57;
const RECORDS: u32 = 300;

fn record(process: u32, number: u32) -> Vec<u8> {
    let mut bytes = vec![(process as u8) ^ (number as u8) ^ 0x55; RECORD];
    bytes[..4].copy_from_slice(&process.to_le_bytes());
    bytes[4..8].copy_from_slice(&number.to_le_bytes());
    bytes
}

pub(crate) fn append_records(world: &World, arguments: &[String]) {
    let me: u32 = arguments[0].parse().unwrap();
    let client = world.client();
    let (_stub, file) = world.open(&client, "log", true);
    std::thread::scope(|scope| {
        // A thread of its own: waiters of one process are told apart from a dead holder.
        for thread in 0..2 {
            let file = &file;
            scope.spawn(move || {
                for number in 0..RECORDS {
                    let bytes = record(me * 2 + thread, number);
                    let (head, tail) = bytes.split_at(20);
                    let (_, written) = file.append(&[IoSlice::new(head), IoSlice::new(tail)]).unwrap();
                    assert_eq!(written, RECORD);
                }
            });
        }
    });
}

#[test]
fn appends_of_eight_processes_lose_nothing() {
    let world = World::new(3);
    let _broker = world.broker();
    let client = world.client();
    let (_stub, file) = world.create(&client, "log", uniform(4096, &[(0, 50), (1, 70), (2, 999)]));
    let children: Vec<_> = (0..8).map(|me| world.spawn("appender", &[me.to_string()])).collect();
    children.into_iter().for_each(succeed);
    let total = RECORD * RECORDS as usize * 16;
    assert_eq!(file.size_bytes(), total as u64);
    let bytes = read(&file, 0, total);
    let mut next = [0u32; 16];
    for found in bytes.chunks_exact(RECORD) {
        let process = u32::from_le_bytes(found[..4].try_into().unwrap());
        let expected = record(process, next[process as usize]);
        assert_eq!(found, expected, "records of one thread keep their order");
        next[process as usize] += 1;
    }
    assert_eq!(next, [RECORDS; 16]);
}

#[test]
fn status_follows_what_another_process_writes() {
    let world = World::new(2);
    let _broker = world.broker();
    let client = world.client();
    let (_stub, file) = world.create(&client, "shared", uniform(8192, &[(0, 4096), (1, 4096)]));
    let empty = file.status().unwrap();
    assert_eq!((empty.size_bytes, empty.blocks_512), (0, 0));
    let modified = || std::fs::metadata(world.path("shared")).unwrap().modified().unwrap();
    let made = modified();
    succeed(world.spawn("writer", &["0".into(), "1".into(), "9".into()]));
    let full = file.status().unwrap();
    assert!(full.size_bytes > 30_000 && full.blocks_512 * 512 >= full.size_bytes / 2);
    assert!(full.modified_ns.is_none() && modified() > made, "the writer gave the stub its time when it closed");
    assert_eq!(file.status().unwrap(), full);
    file.truncate(0).unwrap();
    assert_eq!(file.status().unwrap().blocks_512, 0);
    file.allocate(FileOffset(0), 20_000, true).unwrap();
    assert_eq!(file.size_bytes(), 0);
    assert!(file.region_layout(stripewise_layout::RegionIndex(2)).is_some());
}

/// Slots that this process has locked in the world's table of processes, as the kernel tells: it joins adjacent ones.
///
/// Other tests shift the table while it is read, so that one may be missed or seen twice: it is read until it says what is expected.
fn assert_locks_held(world: &World, expected: u64) {
    let begun = std::time::Instant::now();
    while locks_held(world) != expected {
        assert!(begun.elapsed() < Duration::from_secs(100), "{} locks, not {expected}", locks_held(world));
    }
}

fn locks_held(world: &World) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let table = std::fs::metadata(world.root.join("state/run/processes")).unwrap();
    let (own, inode) = (std::process::id().to_string(), table.ino().to_string());
    let locks = std::fs::read_to_string("/proc/locks").unwrap();
    let slots = |line: &str| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let is_ours = words[1] == "POSIX" && words[4] == own && words[5].rsplit(':').next() == Some(inode.as_str());
        let number = |word: &str| word.parse::<u64>().unwrap();
        if is_ours { number(words[7]) - number(words[6]) + 1 } else { 0 }
    };
    locks.lines().map(slots).sum()
}

#[test]
fn every_client_of_a_process_keeps_its_slot_through_other_clients_and_brokers() {
    let world = World::new(1);
    let broker = world.broker();
    let first = world.client();
    assert_locks_held(&world, 1);
    let second = world.client();
    assert_locks_held(&world, 2);
    broker.stop();
    let _broker = world.broker();
    for client in [&first, &second] {
        client.request(&Request::Admin(Admin::Usage), &[]).unwrap();
        assert_locks_held(&world, 2);
    }
    drop(second);
    assert_locks_held(&world, 1);
    first.request(&Request::Admin(Admin::Usage), &[]).unwrap();
}

/// To close a second one would drop the locks of the first client for a moment: a mover that looked then took its writes for those of a dead process and lost
/// them.
#[test]
fn a_process_has_one_descriptor_of_the_table_of_processes_however_many_clients_it_has() {
    use std::os::unix::fs::MetadataExt;
    let world = World::new(1);
    // In a process of its own, for the broker opens the table too.
    let broker = world.spawn_broker();
    let first = world.client();
    let inode = |path: &Path| std::fs::metadata(path).map(|found| (found.dev(), found.ino())).ok();
    let table = inode(&world.root.join("state/run/processes"));
    let descriptors = || -> Vec<PathBuf> {
        let entries = std::fs::read_dir("/proc/self/fd").unwrap().map(|entry| entry.unwrap().path());
        entries.filter(|path| inode(path) == table).collect()
    };
    let one = descriptors();
    assert_eq!(one.len(), 1);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..10).for_each(|_| drop(world.client())));
        }
    });
    assert_eq!(descriptors(), one);
    assert_locks_held(&world, 1);
    drop(first);
    succeed(broker);
}

/// The client once kept a descriptor of the stub that was open as the program's, and to close it dropped the program's locks.
#[test]
fn a_program_keeps_its_record_locks_over_a_change_of_brokers_and_its_rights_without_a_descriptor() {
    use rustix::fs::{FlockOperation, fcntl_lock};
    use std::os::unix::fs::MetadataExt;
    use stripewise_store::client::record_locks::are_held_on;
    let world = World::new(2);
    // Of processes of their own: what they close is theirs.
    let mut broker = world.spawn_broker();
    let client = world.client();
    let (stub, file) = world.create(&client, "locked", uniform(4096, &[(0, 1000), (1, 1000)]));
    let reading = open_stub(&client, &std::fs::File::open(world.path("locked")).unwrap());
    let inode = stub.metadata().unwrap().ino();
    fcntl_lock(&stub, FlockOperation::LockExclusive).unwrap();
    let mut change_brokers = || {
        broker.kill().unwrap();
        broker.wait().unwrap();
        broker = world.spawn_broker();
    };
    change_brokers();
    write(&file, 0, &[1; 5000]);
    file.sync(false).unwrap();
    reading.close().unwrap();
    assert!(are_held_on(inode));
    drop(stub);
    assert!(!are_held_on(inode));
    change_brokers();
    write(&file, 5000, &[2; 5000]);
    file.sync(false).unwrap();
    assert_eq!(read(&file, 4000, 2000), [[1; 1000], [2; 1000]].concat());
    file.close().unwrap();
    drop(broker.stdin.take());
    broker.wait().unwrap();
}
