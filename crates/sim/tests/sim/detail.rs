//! Devices in more detail, in the simulator.

use crate::script::{REGION_BYTES, Script, access, numbers, read, run, servers, striped, uniform};
use stripewise_device::{DeviceModel, DiskOrder, PageCacheSpec, lookup_disk, lookup_flash};
use stripewise_layout::Direction;
use stripewise_sim::{Scenario, ServerDetail, SimError, SimOptions, simulate};

fn disk(order: DiskOrder) -> ServerDetail {
    ServerDetail {
        device: DeviceModel::Disk { spec: lookup_disk("hdd-7200").unwrap(), order },
        ..ServerDetail::default()
    }
}

/// Random reads of 4 KiB over 100 GiB.
fn scattered(processes: u64, requests: u64) -> Script {
    let mut next = numbers(3);
    let regions = 100 << 10;
    let steps = (0..processes)
        .map(|_| (0..requests).map(|_| read(next() % (regions * REGION_BYTES / 4096) * 4096, 4096)).collect());
    Script::new(regions, steps.collect())
}

#[test]
fn a_mechanical_disk_with_one_process_is_near_its_mean() {
    let (system, program) = (servers(&["hdd-7200"], None), scattered(1, 400));
    let files = uniform(striped([0], 1 << 20));
    let mean = run(&system, &program, &files, SimOptions::default());
    let options = SimOptions { detail: vec![disk(DiskOrder::Fifo)], ..SimOptions::default() };
    let mechanical = run(&system, &program, &files, options);
    // A tenth of the disk: shorter seeks than the data sheet's average, the same rotation.
    let ratio = mechanical.time_s / mean.time_s;
    assert!((0.5..0.85).contains(&ratio), "{ratio}");
}

#[test]
fn seeds_change_the_mechanical_disk_and_nothing_else() {
    let (system, program) = (servers(&["hdd-7200"], Some("gigabit")), scattered(4, 50));
    let files = uniform(striped([0], 1 << 20));
    let run = |seed, detail| run(&system, &program, &files, SimOptions { seed, detail, ..SimOptions::default() });
    assert_eq!(run(1, Vec::new()), run(2, Vec::new()));
    let detail = || vec![disk(DiskOrder::Elevator)];
    assert_eq!(run(1, detail()), run(1, detail()));
    assert_ne!(run(1, detail()).time_s, run(2, detail()).time_s);
}

#[test]
fn the_elevator_pays_with_many_processes() {
    let (system, program) = (servers(&["hdd-7200"], None), scattered(32, 40));
    let time_s = |order| {
        let options = SimOptions { detail: vec![disk(order)], ..SimOptions::default() };
        run(&system, &program, &uniform(striped([0], 1 << 20)), options).time_s
    };
    let (fifo, elevator, shortest) =
        (time_s(DiskOrder::Fifo), time_s(DiskOrder::Elevator), time_s(DiskOrder::ShortestPositioning));
    assert!(elevator < 0.9 * fifo && shortest < elevator, "{fifo} {elevator} {shortest}");
}

#[test]
fn an_ssd_in_parts_tells_its_write_amplification() {
    let system = servers(&["sata-ssd-2012"], None);
    let steps =
        (0..4).map(|process| (0..100).map(|n| access(Direction::Write, (n * 4 + process) << 20, 1 << 20)).collect());
    let program = Script::new(400, steps.collect());
    let flash = ServerDetail {
        device: DeviceModel::Flash { spec: lookup_flash("sata-ssd-2012").unwrap() },
        ..ServerDetail::default()
    };
    let options = SimOptions { detail: vec![flash], ..SimOptions::default() };
    let outcome = run(&system, &program, &uniform(striped([0], 1 << 20)), options);
    assert!(outcome.servers[0].write_amplification >= 1.0);
    assert!(outcome.servers[0].device_busy_s > 0.0 && outcome.servers[0].device_busy_s <= outcome.time_s * 1.01);
    assert!((300.0..520.0).contains(&outcome.write.mb_per_s), "{}", outcome.write.mb_per_s);
}

#[test]
fn what_the_cache_holds_needs_no_disk() {
    let system = servers(&["hdd-7200"], None);
    let once: Vec<_> = (0..64).map(|number| read(number * 4096 * 7 % (16 << 20), 4096)).collect();
    let twice: Vec<_> = once.iter().chain(&once).copied().collect();
    let cached = || SimOptions {
        detail: vec![ServerDetail { cache: Some(PageCacheSpec::linux(64 << 20)), ..ServerDetail::default() }],
        ..SimOptions::default()
    };
    let files = uniform(striped([0], 1 << 20));
    let first = run(&system, &Script::new(16, vec![once]), &files, cached());
    let both = run(&system, &Script::new(16, vec![twice]), &files, cached());
    assert!(both.time_s < 1.02 * first.time_s, "{} {}", both.time_s, first.time_s);
    assert_eq!(both.servers[0].cache_hits, first.servers[0].cache_hits + 64);
}

#[test]
fn writes_run_at_memory_speed_up_to_the_limit_and_then_at_the_disks() {
    let system = servers(&["hdd-7200"], None);
    let cached = |bytes| SimOptions {
        detail: vec![ServerDetail { cache: Some(PageCacheSpec::linux(bytes)), ..ServerDetail::default() }],
        ..SimOptions::default()
    };
    let program = Script::new(256, vec![(0..256).map(|n| access(Direction::Write, n << 20, 1 << 20)).collect()]);
    let files = uniform(striped([0], 1 << 20));
    let ample = run(&system, &program, &files, cached(4 << 30));
    assert!((ample.write.mb_per_s / 4000.0 - 1.0).abs() < 0.01, "{}", ample.write.mb_per_s);
    assert_eq!(ample.servers[0].dirty_bytes, 256 << 20);
    let scarce = run(&system, &program, &files, cached(64 << 20));
    // 12.8 MiB at memory speed, the rest at the disk's 125 MB/s.
    assert!((110.0..140.0).contains(&scarce.write.mb_per_s), "{}", scarce.write.mb_per_s);
    assert!(scarce.servers[0].dirty_bytes <= (64 << 20) / 5);
}

#[test]
fn details_are_for_all_servers_or_for_none() {
    let system = servers(&["hdd-7200", "hdd-7200"], None);
    let options = SimOptions { detail: vec![disk(DiskOrder::Fifo)], ..SimOptions::default() };
    let program = Script::new(1, vec![vec![read(0, 1)]]);
    let files = [uniform(striped([0, 1], 4096))];
    let scenario = Scenario { system: &system, program: &program, files: &files, options };
    assert_eq!(simulate(&scenario, &mut |_| {}), Err(SimError::Detail { servers: 2, detail: 1 }));
}
