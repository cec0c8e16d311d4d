//! Servers that make a reader wait: real disks, and emulated devices.

use crate::world::{Dice, World, read, uniform, write};
use rustix::fs::{Advice, fadvise, fstatfs};
use std::io::{IoSliceMut, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use stripewise_layout::FileOffset;

fn forget_cached(world: &World) {
    for path in world.objects() {
        let object = std::fs::File::open(path).unwrap();
        object.sync_all().unwrap();
        fadvise(&object, 0, None, Advice::DontNeed).unwrap();
    }
}

#[test]
fn reads_that_wait_for_several_disks_are_issued_at_once_and_right() {
    const TMPFS: i64 = 0x0102_1994;
    let world = World::on_disk(5);
    let _broker = world.broker();
    let client = world.client();
    let stripes = [(0, 4096), (1, 10_000), (2, 512), (3, 30_000), (4, 777)];
    let (stub, file) = world.create_unnamed(&client, uniform(256 << 10, &stripes));
    let mut model: Vec<u8> = (0..900_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    write(&file, 0, &model);
    // A hole within placed regions, an unplaced region, and short objects at the end.
    file.truncate(700_000).unwrap();
    file.truncate(2_000_000).unwrap();
    write(&file, 1_900_000, b"end");
    file.sync(false).unwrap();
    model.truncate(700_000);
    model.resize(2_000_000, 0);
    model[1_900_000..1_900_003].copy_from_slice(b"end");
    let mut dice = Dice(7);
    let mut reads_at_once = 0;
    for round in 0..30 {
        forget_cached(&world);
        let before = client.calls_at_once();
        for _ in 0..3 {
            let at = dice.roll(model.len() as u64) as usize;
            let parts: Vec<usize> = (0..1 + dice.roll(5)).map(|_| dice.roll(120_000) as usize).collect();
            let mut memory: Vec<Vec<u8>> = parts.iter().map(|length| vec![0xee; *length]).collect();
            let mut slices: Vec<IoSliceMut> = memory.iter_mut().map(|part| IoSliceMut::new(part)).collect();
            let count = file.read_at(FileOffset(at as u64), &mut slices).unwrap();
            assert_eq!(count, parts.iter().sum::<usize>().min(model.len() - at));
            assert!(memory.concat()[..count] == model[at..at + count], "round {round}: {count} bytes at {at}");
        }
        reads_at_once += client.calls_at_once() - before;
        write(&file, at_of(round), &[round as u8; 5000]);
        model[at_of(round) as usize..][..5000].fill(round as u8);
        file.sync(true).unwrap();
    }
    if fstatfs(&stub).unwrap().f_type == TMPFS || !has_io_uring() {
        let _ = writeln!(std::io::stderr(), "no disk or no io_uring here: only the calls in turn were tested");
    } else {
        assert!(reads_at_once > 0 && client.calls_at_once() > reads_at_once, "cold reads and syncs go out at once");
    }
}

/// One region after the other was synced, each as slow as its own slowest device, while the other devices had nothing to do.
#[test]
fn objects_of_several_regions_are_synced_at_once() {
    const TMPFS: i64 = 0x0102_1994;
    let world = World::on_disk(2);
    let _broker = world.broker();
    let client = world.client();
    // One object for each region, and more of them than are synced together.
    let (stub, file) = world.create_unnamed(&client, uniform(4096, &[(1, 4096)]));
    const REGIONS: u64 = 600;
    write(&file, 0, &[7; REGIONS as usize * 4096]);
    let calls_of_sync = |data_only| {
        let before = client.calls_at_once();
        file.sync(data_only).unwrap();
        client.calls_at_once() - before
    };
    let synced = calls_of_sync(false);
    // A write that a busy device holds up counts too, but not here.
    write(&file, 3 * 4096, &[8; 3 * 4096]);
    let again = calls_of_sync(true);
    if fstatfs(&stub).unwrap().f_type == TMPFS || !has_io_uring() {
        let _ = writeln!(std::io::stderr(), "no disk or no io_uring here: only the calls in turn were tested");
    } else {
        assert_eq!((synced, again), (REGIONS, 3));
    }
}

/// Bytes of all objects of `region` that are in memory.
fn cached_bytes(world: &World, region: u32) -> u64 {
    let of_region = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().starts_with(&format!("{region}."));
    let objects = world.objects().into_iter().filter(of_region);
    objects.map(|path| resident_bytes(&std::fs::File::open(path).unwrap())).sum()
}

fn resident_bytes(object: &std::fs::File) -> u64 {
    const PAGE: usize = 4096;
    let bytes = object.metadata().unwrap().len() as usize;
    let mut resident = vec![0u8; bytes.div_ceil(PAGE)];
    // SAFETY: a mapping of the whole file at an address of the kernel's choice; `resident` has a byte for each of its pages.
    unsafe {
        let mapped = rustix::mm::mmap(
            std::ptr::null_mut(),
            bytes,
            rustix::mm::ProtFlags::READ,
            rustix::mm::MapFlags::SHARED,
            object,
            0,
        );
        let mapped = mapped.unwrap();
        assert_eq!(libc::mincore(mapped, bytes, resident.as_mut_ptr()), 0);
        rustix::mm::munmap(mapped, bytes).unwrap();
    }
    resident.iter().map(|page| u64::from(page & 1) * PAGE as u64).sum()
}

/// The kernel never reads ahead into the objects of another region: one process waited for all servers at the begin of each.
#[test]
fn a_program_that_goes_through_a_file_has_the_next_regions_read_ahead() {
    const TMPFS: i64 = 0x0102_1994;
    const REGION: u64 = 1 << 20;
    let world = World::on_disk(3);
    let _broker = world.broker();
    let client = world.client();
    let (stub, file) = world.create_unnamed(&client, uniform(REGION, &[(0, 65_536), (1, 131_072), (2, 65_536)]));
    let data: Vec<u8> = (0..24 * REGION as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    write(&file, 0, &data);
    file.sync(false).unwrap();
    if fstatfs(&stub).unwrap().f_type == TMPFS {
        let _ = writeln!(std::io::stderr(), "no disk here: reading ahead was not tested");
        return;
    }
    forget_cached(&world);
    // Here and there, so that nothing is known of what comes next.
    for region in [20, 3, 11] {
        read(&file, region * REGION + 5000, 100_000);
    }
    assert_eq!((4..11).map(|region| cached_bytes(&world, region)).sum::<u64>(), 0);
    let mut at = 0;
    while at + 200_000 <= 4 * REGION {
        assert!(read(&file, at, 200_000) == data[at as usize..][..200_000]);
        at += 200_000;
    }
    let patience = Instant::now() + Duration::from_secs(60);
    while cached_bytes(&world, 4) < REGION {
        assert!(Instant::now() < patience, "of region 4 only {} bytes were read ahead", cached_bytes(&world, 4));
        std::thread::yield_now();
    }
    assert_eq!((7..11).map(|region| cached_bytes(&world, region)).sum::<u64>(), 0, "two regions ahead and no more");
    assert!(read(&file, 0, data.len()) == data);
}

fn at_of(round: u64) -> u64 {
    round * 61_001
}

fn has_io_uring() -> bool {
    std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled").is_ok_and(|text| text.trim() == "0")
}

#[test]
fn a_request_takes_the_time_of_its_slowest_device_and_no_less() {
    let world = World::with_urls(4, |directory| format!("emulated://{directory}?device=hdd-7200&time_scale=0.2"));
    let _broker = world.broker();
    let client = world.client();
    let stripes = [(0, 65536), (1, 65536), (2, 65536), (3, 65536)];
    let (_stub, file) = world.create_unnamed(&client, uniform(1 << 20, &stripes));
    write(&file, 0, &[1; 1 << 20]);
    let device = stripewise_device::lookup_device("hdd-7200").unwrap().dilated(0.2);
    let transfer = |bytes| device.demand(stripewise_layout::Direction::Read, bytes, Some(0)).serial;
    let begun = Instant::now();
    assert_eq!(read(&file, 0, 1 << 20), [1; 1 << 20]);
    let spent = begun.elapsed();
    // Never faster than the device's bare transfer; how much later it comes is the machine's business.
    assert!(spent >= Duration::from_nanos(transfer(256 << 10).0), "{spent:?}");
    assert!(client.stations().is_some());
}
