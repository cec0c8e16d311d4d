//! Shared memory with bytes that nobody wrote, found by a broker that takes over from one that was killed: it is rebuilt or refused, and never believed.

use crate::moves::{REGION, all_done, any_layout, ask, order, scale, start_moves, wait_for};
use crate::replicas::wanted;
use crate::world::{Dice, World, succeed, uniform, wait_for_line, write};
use std::fs::File;
use std::io::{IoSliceMut, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};
use stripewise_layout::{FileId, FileOffset};
use stripewise_store::client::{Client, ClientError};
use stripewise_store::protocol::Admin;

fn bytes_of(at: u64, length: u64) -> Vec<u8> {
    (at..at + length).map(|at| (at * 7 % 251) as u8 + 1).collect()
}

/// Writes, says so, and has the file open until its input ends.
pub(crate) fn write_and_stay(world: &World, arguments: &[String]) -> ! {
    let numbers: Vec<u64> = arguments.iter().map(|text| text.parse().unwrap()).collect();
    let client = world.client();
    let (_stub, file) = world.open(&client, "f", true);
    write(&file, numbers[0], &bytes_of(numbers[0], numbers[1]));
    println!("written");
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    file.close().unwrap();
    std::process::exit(0);
}

fn try_read(world: &World, client: &Client, file: FileId) -> Result<Vec<u8>, ClientError> {
    let stub = File::options().read(true).write(true).open(world.path("f")).unwrap();
    let file = client.open(stub.as_fd(), file)?;
    let mut found = vec![0xa5; file.size_bytes() as usize];
    let read = file.read_at(FileOffset(0), &mut [IoSliceMut::new(&mut found)]).unwrap();
    assert_eq!(read, found.len());
    Ok(found)
}

/// Turns some bits over, somewhere in these ranges.
fn damage(path: &std::path::Path, ranges: &[std::ops::Range<u64>], dice: &mut Dice) -> Vec<(u64, u8)> {
    let file = File::options().read(true).write(true).open(path).unwrap();
    let count = 1 + dice.roll(3);
    let flip = |_| {
        let range = &ranges[dice.roll(ranges.len() as u64) as usize];
        let (at, mut byte) = (range.start + dice.roll(range.end - range.start), [0]);
        file.read_exact_at(&mut byte, at).unwrap();
        byte[0] ^= 1 + dice.roll(255) as u8;
        file.write_all_at(&byte, at).unwrap();
        (at, byte[0])
    };
    (0..count).map(flip).collect()
}

const FIRST_LAYOUTS_AT: u64 = 128;
const REGIONS_AT: u64 = 640;
const REPLICAS_AT: u64 = 4096 + (9 << 20);
/// Magic, file, region size, life, gate, flags and the rest; layouts; words of regions and replicas. Without the boot's id: memory of another boot is
/// nobody's by rights.
const CONTROL: [std::ops::Range<u64>; 5] = [
    0..16,
    32..76,
    FIRST_LAYOUTS_AT..FIRST_LAYOUTS_AT + 200,
    REGIONS_AT..REGIONS_AT + 4 * 8,
    REPLICAS_AT..REPLICAS_AT + 4 * 24,
];

/// Of the slots, all but those of the first processes, whose lives are others' locks.
const LANES: std::ops::Range<u64> = 4096..4096 * 128;

/// `STRIPED_DAMAGES` makes it long.
#[test]
fn damaged_shared_memory_is_made_anew_or_refused_and_no_byte_is_lost_or_wrong() {
    let seed = scale("STRIPED_SEED", u64::from(std::process::id()));
    println!("seed {seed}");
    let mut dice = Dice(seed);
    let world = World::new(4);
    let (id, mut length) = {
        let _broker = world.broker();
        let client = world.client();
        let (_stub, file) = world.create(&client, "f", uniform(REGION, &[(0, 4096), (1, 4096)]));
        write(&file, 0, &bytes_of(0, 2 * REGION));
        let layouts = (0..2).map(|region| order(file.id(), region, region, &any_layout(&mut dice, 4)));
        all_done(&wait_for(&client, start_moves(&client, layouts.collect())));
        ask(&client, Admin::SetReplicas { file: file.id(), wanted: vec![wanted(0, 2, &[(2, 1000), (3, 3000)])] });
        (file.id(), 2 * REGION)
    };
    for number in 0..scale("STRIPED_DAMAGES", 30) {
        let mut broker = world.spawn_broker();
        let more = 1 + dice.roll(9000);
        let mut child = world.spawn("staying-writer", &[length, more].map(|number| number.to_string()));
        wait_for_line(&mut child, "written");
        // Known to nobody but the shared memory.
        length += more;
        broker.kill().unwrap();
        broker.wait().unwrap();
        let lives = dice.roll(3) == 0;
        if !lives {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        let run = |kind: &str| world.root.join(format!("state/run/{id}.{kind}"));
        let is_size = dice.roll(5) == 0;
        let damaged = match dice.roll(4) {
            _ if is_size => damage(&run("ext"), &[0..7, 14..16], &mut dice),
            0 => damage(&run("slots"), std::slice::from_ref(&LANES), &mut dice),
            _ => damage(&run("ctl"), &CONTROL, &mut dice),
        };
        let context = format!("seed {seed}, number {number}, lives: {lives}, size: {is_size}, {damaged:?}");
        let successor = world.broker();
        let client = world.client();
        let mut found = try_read(&world, &client, id);
        if lives {
            if let Err(error) = &found {
                let said = error.to_string();
                let names = said.contains(&format!("process {} with ", child.id())) && said.contains("end it first");
                assert!(names || (is_size && said.contains("is damaged")), "{context}: {said}");
            }
            child.kill().unwrap();
            child.wait().unwrap();
            let begun = Instant::now();
            found = try_read(&world, &client, id);
            let is_final = |error: &ClientError| is_size && error.to_string().contains("last fsync");
            while found.as_ref().is_err_and(|error| !is_final(error)) && begun.elapsed() < Duration::from_secs(100) {
                found = try_read(&world, &client, id);
            }
        }
        match found {
            Ok(found) => assert!(found == bytes_of(0, length), "{context}: {} bytes, not {length}", found.len()),
            Err(error) => {
                let said = error.to_string();
                assert!(is_size && said.contains("is damaged") && said.contains("last fsync"), "{context}: {said}");
                // As it says.
                ["ctl", "ext", "slots"].iter().for_each(|kind| std::fs::remove_file(run(kind)).unwrap());
                let found = try_read(&world, &client, id).unwrap();
                assert!(found == bytes_of(0, found.len() as u64) && found.len() as u64 == length - more, "{context}");
                length -= more;
            }
        }
        drop(client);
        successor.stop();
    }
    let broker = world.spawn_broker();
    succeed(broker);
}
