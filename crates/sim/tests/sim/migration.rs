//! Regions that move while the program runs.

use crate::script::{REGION_BYTES, Script, access, read, run, servers, striped, windows};
use stripewise_layout::{ByteCount, Direction, Layout, Placement};
use stripewise_sim::{FilePlacements, Migration, PlacedWindow, SimOptions};
use stripewise_trace::Step;

const REGIONS: u64 = 16;

fn copied(bandwidth_bytes_per_s: Option<f64>) -> SimOptions {
    let migration = Migration::Copied { bandwidth_bytes_per_s, chunk: ByteCount(256 << 10) };
    SimOptions { migration, slice_s: 0.05, ..SimOptions::default() }
}

/// Requests of 64 KiB all over the file for `seconds` at most 10 ms apart.
fn foreground(direction: Direction, seconds: u64) -> Script {
    let steps = (0..seconds * 100).flat_map(|number| {
        let place = number * 7 % (REGIONS * 16) * (64 << 10);
        [Step::Until { nanoseconds: number * 10_000_000 }, access(direction, place, 64 << 10)]
    });
    Script::new(REGIONS, vec![steps.collect()])
}

fn from_first_to_second() -> FilePlacements {
    windows(&[(0.0, striped([0], 1 << 20)), (0.5, striped([1], 1 << 20))])
}

#[test]
fn every_region_is_copied_once_when_nobody_writes() {
    let system = servers(&["hdd-7200", "sata-ssd-2012"], Some("gigabit"));
    let program = foreground(Direction::Read, 10);
    let outcome = run(&system, &program, &from_first_to_second(), copied(None));
    assert_eq!((outcome.moved_bytes, outcome.unmoved_bytes), (REGIONS * REGION_BYTES, 0));
    assert_eq!(outcome.timeline.iter().map(|slice| slice.moved_bytes).sum::<u64>(), REGIONS * REGION_BYTES);
    let free = SimOptions { migration: Migration::Free, ..SimOptions::default() };
    let free = run(&system, &program, &from_first_to_second(), free);
    assert_eq!(free.moved_bytes, REGIONS * REGION_BYTES);
    // While the copy goes on, reads still go to the disk, and they wait for it.
    assert!(outcome.servers[0].bytes > free.servers[0].bytes);
    assert!(outcome.latency.mean_s > free.latency.mean_s);
    let everything: u64 = outcome.servers.iter().map(|server| server.bytes).sum();
    assert_eq!(everything, outcome.read.bytes, "what the mover reads and writes is not the program's");
}

#[test]
fn the_bandwidth_is_kept() {
    let system = servers(&["nvme", "nvme"], None);
    let program = foreground(Direction::Read, 6);
    let rate = 4e6;
    let outcome = run(&system, &program, &from_first_to_second(), copied(Some(rate)));
    assert_eq!(outcome.unmoved_bytes, 0);
    let moving = outcome.timeline.iter().filter(|slice| slice.moved_bytes > 0);
    let (first, last) = (moving.clone().next().unwrap().start_s, moving.clone().next_back().unwrap().start_s);
    let expected_s = (REGIONS * REGION_BYTES) as f64 / rate;
    assert!((last - first - expected_s).abs() < 0.15, "{first} {last} {expected_s}");
    // The end of the run finds a slower copy half way.
    let slow = run(&system, &program, &from_first_to_second(), copied(Some(1e6)));
    assert!(slow.unmoved_bytes > 0 && slow.moved_bytes + slow.unmoved_bytes >= REGIONS * REGION_BYTES);
}

#[test]
fn writes_meanwhile_go_to_both_places_or_make_the_chunk_be_copied_again() {
    let system = servers(&["hdd-7200", "sata-ssd-2012"], Some("gigabit"));
    // Every request writes into region 0, which is the first to move.
    let steps = (0..1000).flat_map(|number| {
        [Step::Until { nanoseconds: number * 2_000_000 }, access(Direction::Write, number % 16 * (64 << 10), 64 << 10)]
    });
    let program = Script::new(REGIONS, vec![steps.collect()]);
    let outcome = run(&system, &program, &from_first_to_second(), copied(None));
    let served: u64 = outcome.servers.iter().map(|server| server.bytes).sum();
    assert_eq!(outcome.unmoved_bytes, 0);
    assert!(served > outcome.write.bytes, "some writes went to both places");
    assert!(outcome.moved_bytes > REGIONS * REGION_BYTES, "some chunks were copied again");
}

#[test]
fn what_leaves_ssds_goes_first() {
    let system = servers(&["hdd-7200", "sata-ssd-2012"], None);
    let (disk, flash): (Layout, Layout) = (striped([0], 1 << 20), striped([1], 1 << 20));
    let placement = |first: &Layout, second: &Layout| {
        let half = REGIONS as usize / 2;
        let regions = std::iter::repeat_n(first, half).chain(std::iter::repeat_n(second, half)).cloned();
        Placement::from_regions(ByteCount(REGION_BYTES), regions, disk.clone(), disk.clone())
    };
    let files = FilePlacements {
        windows: vec![
            PlacedWindow { start_s: 0.0, placement: placement(&disk, &flash) },
            PlacedWindow { start_s: 0.5, placement: placement(&flash, &disk) },
        ],
    };
    // Ends when about half is moved: then all that left the SSD is on the disk, which serves every read.
    let steps = |region: u64| vec![vec![Step::Until { nanoseconds: 1_500_000_000 }, read(region << 20, 4096)]];
    let slow = || copied(Some((REGIONS / 2 * REGION_BYTES) as f64));
    for (region, server) in [(0, 0), (REGIONS - 2, 0)] {
        let outcome = run(&system, &Script::new(REGIONS, steps(region)), &files, slow());
        assert_eq!(outcome.servers[server].bytes, 4096, "region {region} after {} bytes", outcome.moved_bytes);
    }
}

#[test]
fn a_region_that_shall_go_back_is_abandoned() {
    let system = servers(&["nvme", "nvme"], None);
    let there_and_back =
        windows(&[(0.0, striped([0], 1 << 20)), (0.5, striped([1], 1 << 20)), (1.0, striped([0], 1 << 20))]);
    let outcome = run(&system, &foreground(Direction::Read, 6), &there_and_back, copied(Some(8e6)));
    assert_eq!(outcome.unmoved_bytes, 0);
    // Half a second at 8 MB/s there, and the same way back.
    let moved = outcome.moved_bytes as f64;
    assert!((moved / 8e6 - 1.0).abs() < 0.2, "{moved}");
}
