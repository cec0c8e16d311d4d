//! Sub-requests of one request that are under way together, and requests past the page cache.

use crate::hooked::{AllIn, OPEN_HELD, hold};
use crate::mounts::{Kind, Mounts};
use crate::world::{Dice, World, read, uniform, write};
use std::io::{IoSlice, IoSliceMut, Write};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::Arc;
use stripewise_layout::FileOffset;
use stripewise_store::client::ClientOptions;
use stripewise_store::file::IoMode;
use stripewise_store::shared::slots::LANES;

const MODES: [IoMode; 4] = [
    IoMode { direct: false, durable: false },
    IoMode { direct: false, durable: true },
    IoMode { direct: true, durable: false },
    IoMode { direct: true, durable: true },
];

/// Each of eight servers is held until all eight are at work: a request that asked one after the other would never end.
#[test]
fn all_sub_requests_of_a_read_and_of_a_write_are_under_way_together() {
    const SERVERS: usize = 8;
    let world = World::new(SERVERS);
    let _broker = world.broker();
    let all_in = AllIn::default();
    let holding = all_in.clone();
    hold(&world.root, Arc::new(move || holding.enter(SERVERS)), true);
    let client = world.client_with(ClientOptions { open_server: OPEN_HELD, ..ClientOptions::default() });
    let stripes: Vec<(u16, u32)> = (0..SERVERS as u16).map(|server| (server, 4096)).collect();
    let (_stub, file) = world.create_unnamed(&client, uniform(1 << 20, &stripes));
    let bytes: Vec<u8> = (0..SERVERS * 4096).map(|at| (at / 4096 * 7 + at % 251) as u8).collect();
    assert_eq!(write(&file, 0, &bytes), bytes.len());
    assert!(read(&file, 0, bytes.len()) == bytes);
    assert_eq!(all_in.begun(), 2 * SERVERS);
}

/// The same of requests: each waits inside its server for those of all other threads.
#[test]
fn requests_of_many_threads_are_under_way_together() {
    const THREADS: usize = 100;
    let world = World::new(2);
    let _broker = world.broker();
    let all_in = AllIn::default();
    let holding = all_in.clone();
    hold(&world.root, Arc::new(move || holding.enter(2 * THREADS)), true);
    let client = world.client_with(ClientOptions { open_server: OPEN_HELD, ..ClientOptions::default() });
    let (_stub, file) = world.create_unnamed(&client, uniform(4 << 20, &[(0, 4096), (1, 4096)]));
    let bytes = |thread: usize| -> Vec<u8> { (0..8192).map(|at| (at / 4096 * 7 + at % 251 + thread) as u8).collect() };
    let of_each = |act: &(dyn Fn(usize) + Sync)| {
        std::thread::scope(|scope| (0..THREADS).for_each(|thread| drop(scope.spawn(move || act(thread)))));
    };
    of_each(&|thread| assert_eq!(write(&file, thread as u64 * 8192, &bytes(thread)), 8192));
    of_each(&|thread| assert!(read(&file, thread as u64 * 8192, 8192) == bytes(thread)));
    assert_eq!(all_in.begun(), 4 * THREADS);
}

/// More than have a lane: those without wait for one.
#[test]
fn more_threads_than_lanes_all_write() {
    const THREADS: usize = LANES + 40;
    let world = World::new(2);
    let _broker = world.broker();
    let client = world.client();
    let (_stub, file) = world.create_unnamed(&client, uniform(4 << 20, &[(0, 4096), (1, 4096)]));
    let together = std::sync::Barrier::new(THREADS);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (file, together) = (&file, &together);
            scope.spawn(move || {
                let bytes = [thread as u8; 8192];
                for _ in 0..5 {
                    together.wait();
                    assert_eq!(write(file, thread as u64 * 8192, &bytes), bytes.len());
                }
            });
        }
    });
    for thread in 0..THREADS {
        assert!(read(&file, thread as u64 * 8192, 8192) == [thread as u8; 8192]);
    }
}

/// Memory that begins `shift` bytes behind a page's border.
fn aligned(memory: &mut Vec<u8>, length: usize, shift: usize) -> &mut [u8] {
    memory.clear();
    memory.resize(length + 2 * 4096, 0xee);
    let start = memory.as_ptr().align_offset(4096) + shift;
    &mut memory[start..start + length]
}

/// In every mode and of any alignment, buffered requests among direct ones: the file is a vector of bytes.
#[test]
fn requests_in_every_mode_and_of_any_alignment_see_each_others_bytes() {
    let world = World::on_disk(5);
    let _broker = world.broker();
    let client = world.client();
    let stripes = [(0, 8192), (1, 4096), (2, 512), (3, 16384), (4, 777 + 3319)];
    let (_stub, file) = world.create_unnamed(&client, uniform(128 << 10, &stripes));
    const SPAN: u64 = 700_000;
    let seed = std::env::var("STRIPEWISE_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(11);
    println!("seed {seed}");
    let (mut dice, mut memory, mut model) = (Dice(seed), Vec::new(), Vec::new());
    let before = client.calls_at_once();
    for round in 0..120 {
        let mode = MODES[dice.roll(4) as usize];
        let step = [1, 512, 4096][dice.roll(3) as usize];
        let at = dice.roll(SPAN / step) * step;
        let length = (1 + dice.roll(200_000 / step)) * step;
        let shift = if dice.roll(2) == 0 { 0 } else { dice.roll(4096) as usize };
        let buffer = aligned(&mut memory, length as usize, shift);
        if dice.roll(2) == 0 {
            buffer.iter_mut().for_each(|byte| *byte = dice.roll(256) as u8);
            // In two buffers, which need not be aligned themselves.
            let (first, second) = buffer.split_at(dice.roll(length + 1) as usize);
            let parts = [IoSlice::new(first), IoSlice::new(second)];
            assert_eq!(file.write_with(FileOffset(at), &parts, mode).unwrap(), length as usize, "round {round}");
            let end = (at + length) as usize;
            model.resize(model.len().max(end), 0);
            model[at as usize..end].copy_from_slice(buffer);
        } else {
            let read = file.read_with(FileOffset(at), &mut [IoSliceMut::new(buffer)], mode).unwrap();
            let from = (at as usize).min(model.len());
            let expected = &model[from..model.len().min(from + length as usize)];
            assert!(buffer[..read] == *expected, "round {round}: {length} at {at} in {mode:?}");
        }
        assert_eq!(file.size_bytes(), model.len() as u64);
    }
    assert!(read(&file, 0, model.len()) == model);
    if client.calls_at_once() == before {
        let _ = writeln!(std::io::stderr(), "no disk or no io_uring here: only the calls in turn were tested");
    }
}

/// Pages of a file that the page cache holds.
fn cached_pages(path: &Path) -> usize {
    let file = std::fs::File::open(path).unwrap();
    let length = file.metadata().unwrap().len() as usize;
    if length == 0 {
        return 0;
    }
    let mut pages = vec![0u8; length.div_ceil(4096)];
    // SAFETY: a mapping of this file alone, which nothing reads, and a byte for each of its pages.
    unsafe {
        let start = libc::mmap(std::ptr::null_mut(), length, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd(), 0);
        assert_ne!(start, libc::MAP_FAILED);
        assert_eq!(libc::mincore(start, length, pages.as_mut_ptr()), 0);
        libc::munmap(start, length);
    }
    pages.iter().filter(|page| **page & 1 == 1).count()
}

#[test]
fn direct_requests_leave_nothing_in_the_page_cache() {
    let kinds = [("s0", Kind::Ext4), ("s1", Kind::Xfs)];
    let Some((world, mounts)) = Mounts::world(2, &kinds) else { return };
    {
        let _broker = world.broker();
        let client = world.client();
        let (_stub, file) = world.create_unnamed(&client, uniform(1 << 20, &[(0, 65536), (1, 65536)]));
        let cached = || world.objects().iter().map(|path| cached_pages(path)).collect::<Vec<_>>();
        let (mut memory, direct) = (Vec::new(), IoMode { direct: true, durable: false });
        let buffer = aligned(&mut memory, 512 << 10, 0);
        buffer.iter_mut().enumerate().for_each(|(at, byte)| *byte = (at / 4096 + at % 253) as u8);
        let bytes = buffer.to_vec();
        assert_eq!(file.write_with(FileOffset(0), &[IoSlice::new(buffer)], direct).unwrap(), bytes.len());
        assert_eq!(cached(), [0, 0], "written past the cache");
        buffer.fill(0xee);
        assert_eq!(file.read_with(FileOffset(0), &mut [IoSliceMut::new(buffer)], direct).unwrap(), bytes.len());
        assert!(*buffer == bytes[..]);
        assert_eq!(cached(), [0, 0], "read past the cache");
        assert!(read(&file, 0, bytes.len()) == bytes);
        assert!(cached().iter().all(|pages| *pages > 0), "a buffered read leaves pages: {:?}", cached());
        file.close().unwrap();
    }
    drop(mounts);
}
