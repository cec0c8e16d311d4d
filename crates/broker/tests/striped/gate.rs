//! Truncation against writers: what was written before a cut never comes back.

use crate::world::{World, read, succeed, uniform, write};
use std::io::Read;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A multiple of 16, so that halves are whole words.
const BLOCK: u64 = 704;
const BLOCKS: u64 = 40;

/// The completed count of each writer is in a file, so that the truncating process can read it.
fn count_file(world: &World, writer: u64) -> std::fs::File {
    let path = world.root.join(format!("count{writer}"));
    std::fs::OpenOptions::new().create(true).truncate(false).read(true).write(true).open(path).unwrap()
}

fn completed(file: &std::fs::File) -> u64 {
    use std::os::unix::fs::FileExt;
    let mut bytes = [0; 8];
    if file.read_at(&mut bytes, 0).unwrap() == 8 { u64::from_le_bytes(bytes) } else { 0 }
}

/// Fills blocks with an ever higher number until the parent ends its input.
pub(crate) fn write_counted_blocks(world: &World, arguments: &[String]) {
    use std::os::unix::fs::FileExt;
    let writer: u64 = arguments[0].parse().unwrap();
    let client = world.client();
    let (_stub, file) = world.open(&client, "cut", true);
    let counted = count_file(world, writer);
    static END: AtomicBool = AtomicBool::new(false);
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        END.store(true, Ordering::SeqCst);
    });
    let mut number = 0u64;
    while !END.load(Ordering::SeqCst) {
        number += 1;
        let bytes: Vec<u8> = number.to_le_bytes().repeat((BLOCK / 2 / 8) as usize);
        // Each writer has its half of every block.
        let at = number.wrapping_mul(7) % BLOCKS * BLOCK + writer * (BLOCK / 2);
        assert_eq!(write(&file, at, &bytes), bytes.len());
        counted.write_all_at(&number.to_le_bytes(), 0).unwrap();
    }
}

#[test]
fn what_was_cut_stays_cut_under_concurrent_writers() {
    let world = World::new(4);
    let _broker = world.broker();
    let client = world.client();
    // Stripes of whole words, so that no word is torn by a reader.
    let (_stub, file) = world.create(&client, "cut", uniform(4096, &[(0, 8), (1, 256), (2, 1024), (3, 64)]));
    let counts = [count_file(&world, 0), count_file(&world, 1)];
    let writers: Vec<_> = (0..2).map(|writer| world.spawn("gate-writer", &[writer.to_string()])).collect();
    while counts.iter().any(|count| completed(count) == 0) {
        std::thread::yield_now();
    }
    for round in 0..60u64 {
        let before = [completed(&counts[0]), completed(&counts[1])];
        let size = round * 131 % (BLOCK * BLOCKS / 2);
        file.truncate(size).unwrap();
        file.truncate(BLOCK * BLOCKS).unwrap();
        let bytes = read(&file, 0, (BLOCK * BLOCKS) as usize);
        let half = BLOCK as usize / 2;
        for (number, part) in bytes.chunks(half).enumerate() {
            let start = number as u64 * BLOCK / 2;
            if start < size {
                continue;
            }
            for word in part.chunks_exact(8) {
                let found = u64::from_le_bytes(word.try_into().unwrap());
                // Writes that were complete before the cut began are gone; later ones and those under way may be there.
                assert!(
                    found == 0 || found > before[number % 2],
                    "round {round}: {found} at {start} was cut at {size}, {before:?} were done before"
                );
            }
        }
    }
    writers.into_iter().for_each(succeed);
}

#[test]
fn threads_that_truncate_and_write_meet_no_error() {
    let world = World::new(3);
    let _broker = world.broker();
    let client = world.client();
    let (_stub, file) = world.create(&client, "busy", uniform(4096, &[(0, 100), (1, 300), (2, 200)]));
    let writes = AtomicU64::new(0);
    std::thread::scope(|scope| {
        // More threads than the process has lanes of its first kind.
        for thread in 0..20u64 {
            let (file, writes) = (&file, &writes);
            scope.spawn(move || {
                for turn in 0..60 {
                    match (thread + turn) % 10 {
                        0 => file.truncate(turn * 200).unwrap(),
                        1 => file.sync(true).unwrap(),
                        _ => {
                            let bytes = [thread as u8 + 1; 500];
                            assert_eq!(write(file, thread * 600 + turn, &bytes), 500);
                            writes.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                    let found = read(file, thread * 600, 600);
                    assert!(found.iter().all(|byte| *byte == 0 || *byte == thread as u8 + 1));
                }
            });
        }
    });
    assert_eq!(writes.into_inner(), 20 * 60 * 8 / 10);
}
