//! Predictions of writes by what they wait for.

use crate::testbed::{DISK, FLASH, KIB, MIB, class, cluster, file, profile, request};
use proptest::prelude::*;
use stripewise_layout::{ByteCount, Direction, Layout, Order, Placement, RequestKind, ServerId, WriteClass};
use stripewise_model::{Caveat, Concurrency, Line, OrderedLines, Profile};
use stripewise_planner::{PolicyName, plan, predict};
use stripewise_trace::{AccessClass, Company};

/// Disks whose buffered writes are sorted, and whose synchronous ones wait for a flush.
fn with_classes(mut profile: Profile) -> Profile {
    for server in &mut profile.servers {
        let line = |alpha_s| Line { alpha_s, ..server.write_random };
        let both = |alpha_s| OrderedLines { sequential: line(alpha_s), random: line(alpha_s) };
        server.buffered_write = Some(both(0.1 * server.write_random.alpha_s));
        server.synchronous_write = Some(both(2.0 * server.write_random.alpha_s));
    }
    profile
}

fn written(class: WriteClass, request_bytes: u64) -> AccessClass {
    AccessClass { kind: RequestKind::Write(class), request_bytes, order: Order::Random }
}

fn layout(servers: u16, stripe_bytes: u32) -> Placement {
    let layout = Layout::new((0..servers).map(|server| (ServerId(server), stripe_bytes))).unwrap();
    Placement::uniform(ByteCount(4 * MIB), layout.clone(), layout)
}

proptest! {
    /// Nobody waits for what is written back: neither how many processes write, nor how they keep company, nor the time of a
    /// request alone changes how long it takes; only the load of the busiest server does.
    #[test]
    fn buffered_writes_take_as_long_as_the_busiest_server(
        counts in proptest::collection::vec(0u64..50, 1..8), kib in prop_oneof![Just(4u64), Just(64), Just(1000)],
        servers in 1u16..5, stripe in prop_oneof![Just(64u32 << 10), Just(4 << 20)], together in 0.0..1.0f64,
    ) {
        prop_assume!(counts.iter().sum::<u64>() > 0);
        let cluster = cluster(3, 2, 4 * MIB, None);
        let profile = with_classes(profile(&cluster, DISK, FLASH, 0.0, 0.0));
        let counts: Vec<[u64; 1]> = counts.into_iter().map(|count| [count]).collect();
        let counts: Vec<&[u64]> = counts.iter().map(|count| &count[..]).collect();
        let mut access = file("/a", 32 * MIB, 4 * MIB, &[written(WriteClass::Buffered, kib * KIB)], &counts);
        access.windows[0].company = Company { same_region: together, ..Company::default() };
        let time_s = |processes| {
            let concurrency = Concurrency { processes, processes_per_node: 1 };
            let found = predict(&layout(servers, stripe), &access, &profile, None, concurrency);
            let busiest_s = found.server_load_s.iter().copied().fold(0.0, f64::max);
            (found.total.time_s, busiest_s)
        };
        let (alone_s, busiest_s) = time_s(1);
        prop_assert!((alone_s / busiest_s - 1.0).abs() < 1e-6, "{} and {}", alone_s, busiest_s);
        prop_assert_eq!(time_s(64).0, alone_s);
    }
}

#[test]
fn each_class_of_writes_is_predicted_by_its_own_line() {
    let cluster = cluster(1, 1, 4 * MIB, None);
    let profile = with_classes(profile(&cluster, DISK, FLASH, 0.0, 0.0));
    let concurrency = Concurrency { processes: 1, processes_per_node: 1 };
    let time_s = |class: AccessClass| {
        // One for each region, so that none writes again what is dirty.
        let access = file("/a", 400 * MIB, 4 * MIB, &[class], &[&[1][..]; 100]);
        predict(&layout(1, 4 << 20), &access, &profile, None, concurrency).total.time_s
    };
    let bytes_s = 64.0 * 1024.0 * DISK[3].1;
    for (class, alpha_s) in [
        (WriteClass::Direct, DISK[3].0),
        (WriteClass::Buffered, 0.1 * DISK[3].0),
        (WriteClass::Synchronous, 2.0 * DISK[3].0),
    ] {
        let (found, expected) = (time_s(written(class, 64 * KIB)), 100.0 * (alpha_s + bytes_s));
        assert!((found / expected - 1.0).abs() < 1e-6, "{class}: {found} instead of {expected}");
    }
    let direct = time_s(class(Direction::Write, 64 * KIB, Order::Random));
    assert_eq!(direct, time_s(written(WriteClass::Direct, 64 * KIB)), "writes are direct unless told otherwise");
}

/// However often a region is written before it is written back, its servers get it once.
#[test]
fn what_is_dirty_already_is_written_back_once() {
    let cluster = cluster(3, 0, 4 * MIB, None);
    let profile = with_classes(profile(&cluster, DISK, FLASH, 0.0, 0.0));
    let concurrency = Concurrency { processes: 4, processes_per_node: 1 };
    let predicted = |count: u64| {
        let access = file("/a", 4 * MIB, 4 * MIB, &[written(WriteClass::Buffered, 64 * KIB)], &[&[count]]);
        predict(&layout(1, 4 << 20), &access, &profile, None, concurrency).total
    };
    let once_s = 0.1 * DISK[3].0 + 4.0 * MIB as f64 * DISK[3].1;
    for count in [10_000, 1_000_000] {
        let found = predicted(count);
        assert!((found.time_s / once_s - 1.0).abs() < 1e-6, "{count}: {} {once_s}", found.time_s);
        assert_eq!(found.bytes, count * 64 * KIB, "the program writes all of it");
    }
    assert!(predicted(32).time_s < 0.7 * 32.0 * predicted(1).time_s, "some of 32 are neighbours");
}

/// The flush of a synchronous write waits for the others' writes: one process has none to wait for, and a busy disk serves as many.
#[test]
fn flushes_cost_time_where_processes_meet() {
    let cluster = cluster(4, 0, 4 * MIB, None);
    let access = file("/a", 16 * MIB, 4 * MIB, &[written(WriteClass::Synchronous, 64 * KIB)], &[&[400][..]; 4]);
    let time_s = |flush_wait, processes| {
        let mut profile = with_classes(profile(&cluster, DISK, FLASH, 0.0, 0.0));
        profile.servers.iter_mut().for_each(|server| server.flush_wait = flush_wait);
        let concurrency = Concurrency { processes, processes_per_node: 1 };
        predict(&layout(4, 64 << 10), &access, &profile, None, concurrency).total.time_s
    };
    assert_eq!(time_s(None, 8), time_s(Some(0.0), 8));
    assert!((time_s(Some(1.0), 1) / time_s(None, 1) - 1.0).abs() < 1e-9);
    assert!((time_s(Some(1.0), 1000) / time_s(None, 1000) - 1.0).abs() < 0.02);
    let slower = time_s(Some(1.0), 8) / time_s(None, 8);
    assert!((1.08..1.35).contains(&slower), "{slower}");
}

/// The plan's notes repeat what its figures rest on.
#[test]
fn plans_say_what_was_assumed_of_writes() {
    let notes = [
        Caveat::DerivedWrites,
        Caveat::AssumedWrites { files: 1, path: "/a".to_owned() },
        Caveat::AssumedWrites { files: 3, path: "/a".to_owned() },
    ]
    .map(|caveat| caveat.to_string());
    assert_eq!(
        notes,
        [
            "the profile is of a version without classes of writes: buffered writes are taken to cost their bytes alone, \
             synchronous ones as much as direct ones. Run `stripewise calibrate` again",
            "the trace does not say whether writes to /a were direct, buffered or synchronous (format 1, or another \
             tool's trace): they are taken as buffered. Trace again to know",
            "the trace does not say whether writes to /a and 2 other files were direct, buffered or synchronous (format 1, \
             or another tool's trace): they are taken as buffered. Trace again to know",
        ]
    );
}

/// Five stripes and a third of 256 KiB on each of six disks: begun on the same disk everywhere, two of them had a sixth more to do than the others.
#[test]
fn regions_that_end_within_a_cycle_load_all_disks_alike() {
    let cluster = cluster(6, 2, 8 * MIB, Some(64 * MIB));
    let profile = with_classes(profile(&cluster, DISK, FLASH, 0.0, 0.0));
    let counts: Vec<[u64; 1]> = (0..64).map(|region| [if region % 4 == 0 { 60 } else { 12 }]).collect();
    let counts: Vec<&[u64]> = counts.iter().map(|count| &count[..]).collect();
    for class in [written(WriteClass::Buffered, 256 * KIB), class(Direction::Read, 256 * KIB, Order::Random)] {
        let files = [file("/a", 512 * MIB, 8 * MIB, &[class], &counts)];
        let planned = plan(PolicyName::Opt, &request(&cluster, &profile, &files)).unwrap();
        let disks = &planned.predicted.server_load_s[..6];
        let (least, most) =
            disks.iter().fold((f64::MAX, 0.0_f64), |(least, most), load| (least.min(*load), most.max(*load)));
        assert!(most < 1.04 * least, "{class:?}: {disks:?}");
    }
}
