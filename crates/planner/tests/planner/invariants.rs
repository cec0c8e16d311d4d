//! What holds for every policy on every input.

use crate::testbed::{self, KIB, MIB, has_requests};
use proptest::prelude::*;
use stripewise_layout::{RegionIndex, ServerClass};
use stripewise_planner::{MoveKind, PolicyName, compare, plan, predict};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn plans_are_sound(
        (m, n) in (0usize..5, 0usize..4).prop_filter("servers", |(m, n)| m + n > 0),
        files in testbed::files(MIB, 3).prop_filter("requests", |files| has_requests(files)),
        hdd in testbed::lines(), ssd in testbed::lines(), room in 1..3 * MIB,
        subtract_move_cost in any::<bool>(), exact in any::<bool>(), seed in any::<u64>(),
    ) {
        let cluster = testbed::cluster(m, n, MIB, Some(room));
        let profile = testbed::profile(&cluster, hdd, ssd, 1e-4, 8e-9);
        let mut request = testbed::request(&cluster, &profile, &files);
        request.options.subtract_move_cost = subtract_move_cost;
        request.options.exact = exact;
        request.options.seed = seed;
        for made in compare(&request, &PolicyName::ALL).unwrap().plans {
            let hybrid = m > 0 && n > 0;
            for server in made.servers.iter().filter(|server| hybrid && server.class == ServerClass::Ssd) {
                prop_assert!(server.used_bytes <= room, "{}: {} holds {}", made.policy, server.name, server.used_bytes);
            }
            let size: u64 = files.iter().map(|file| file.size_bytes).sum();
            let held: u64 = made.servers.iter().map(|server| server.used_bytes).sum();
            prop_assert!(held >= size, "{}: {held} of {size} bytes placed", made.policy);
            for (file, planned) in files.iter().zip(&made.files) {
                for window in &planned.windows {
                    prop_assert_eq!(window.placement.check(m + n), Ok(()));
                    prop_assert!(window.placement.planned_regions() * MIB >= file.size_bytes);
                    prop_assert!(m == 0 || window.placement.fallback_layout().stripes().iter().all(|s| usize::from(s.server.0) < m));
                }
                for pair in planned.windows.windows(2) {
                    let mut changed: Vec<u32> = (0..pair[0].placement.planned_regions() as u32)
                        .filter(|r| pair[0].placement.layout_of(RegionIndex(*r)) != pair[1].placement.layout_of(RegionIndex(*r)))
                        .collect();
                    let uses_ssd = |window: usize, region: u32| {
                        let layout = pair[window].placement.layout_of(RegionIndex(region));
                        layout.stripes().iter().any(|stripe| usize::from(stripe.server.0) >= m)
                    };
                    for moved in &pair[1].moves {
                        let sides = (uses_ssd(0, moved.region.0), uses_ssd(1, moved.region.0));
                        let expected = match sides {
                            (true, false) => MoveKind::Outgoing,
                            (false, true) => MoveKind::Incoming,
                            _ => MoveKind::Restripe,
                        };
                        prop_assert_eq!(moved.kind, expected);
                    }
                    prop_assert!(pair[1].moves.is_sorted_by_key(|moved| moved.kind));
                    let mut moved: Vec<u32> = pair[1].moves.iter().map(|moved| moved.region.0).collect();
                    moved.sort_unstable();
                    changed.sort_unstable();
                    prop_assert_eq!(moved, changed);
                }
            }
        }
    }

    #[test]
    fn predicted_bytes_and_requests_are_those_of_the_trace(
        files in testbed::files(MIB, 3).prop_filter("requests", |files| has_requests(files)), room in MIB..9 * MIB,
    ) {
        let cluster = testbed::cluster(3, 2, MIB, Some(room));
        let profile = testbed::profile(&cluster, testbed::DISK, testbed::FLASH, 1e-4, 8e-9);
        let request = testbed::request(&cluster, &profile, &files);
        let (mut requests, mut bytes) = (0, 0);
        for file in &files {
            for (class, count) in file.windows.iter().flat_map(|w| &w.regions).flat_map(|r| &r.counts) {
                requests += count;
                bytes += count * file.class(*class).request_bytes;
            }
        }
        for policy in PolicyName::ALL {
            let made = plan(policy, &request).unwrap();
            prop_assert_eq!((made.predicted.total.requests, made.predicted.total.bytes), (requests, bytes));
            // Each window predicted alone, under its own placement, adds up to the plan's time.
            let mut time_s = 0.0;
            for (file, planned) in files.iter().zip(&made.files) {
                for window in 0..file.windows.len() {
                    let placement = &planned.windows[window.min(planned.windows.len() - 1)].placement;
                    time_s += predict(placement, file, &profile, Some(window), made.concurrency).total.time_s;
                }
            }
            prop_assert!((time_s - made.predicted.total.time_s).abs() <= 1e-9 * time_s);
        }
    }

    #[test]
    fn threads_do_not_change_a_plan(
        files in testbed::files(MIB, 2).prop_filter("requests", |files| has_requests(files)), room in MIB..9 * MIB,
    ) {
        let cluster = testbed::cluster(3, 2, MIB, Some(room));
        let profile = testbed::profile(&cluster, testbed::DISK, testbed::FLASH, 1e-4, 8e-9);
        let request = testbed::request(&cluster, &profile, &files);
        let alone = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
        for policy in PolicyName::ALL {
            let one = alone.install(|| plan(policy, &request).unwrap());
            prop_assert_eq!(one.to_json(), plan(policy, &request).unwrap().to_json());
        }
    }
}

#[test]
fn the_hottest_regions_get_the_room_and_leave_it_when_they_cool() {
    use stripewise_layout::{Direction, Order};
    let cluster = testbed::cluster(4, 2, MIB, Some(MIB));
    let profile = testbed::profile(&cluster, testbed::DISK, testbed::FLASH, 1e-4, 8e-9);
    let class = testbed::class(Direction::Read, 64 * KIB, Order::Random);
    // 64 KiB requests go to <0,32KiB>: each region takes half of each SServer, so two of six fit.
    let first = testbed::file("/data/a", 6 * MIB, MIB, &[class], &[&[1], &[9], &[2], &[8], &[3], &[4]]);
    let mut second = testbed::file("/data/a", 6 * MIB, MIB, &[class], &[&[9], &[9], &[0], &[1], &[0], &[0]]);
    let mut both = first;
    both.windows.append(&mut second.windows);
    both.windows[1].start_s = 600.0;
    both.windows[1].end_s = 1200.0;
    let files = [both];
    let made = plan(PolicyName::H2dp, &testbed::request(&cluster, &profile, &files)).unwrap();
    let map = |window: usize| {
        let spans = stripewise_planner::region_map(&made.files[0].windows[window].placement, &cluster);
        spans.iter().map(|span| format!("{}x{}", span.regions, span.layout)).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(map(0), "1x<16KiB,0B> 1x<0B,32KiB> 1x<16KiB,0B> 1x<0B,32KiB> 2x<16KiB,0B>");
    assert_eq!(map(1), "2x<0B,32KiB> 4x<16KiB,0B>");
    let moves: Vec<(u32, MoveKind)> = made.files[0].windows[1].moves.iter().map(|m| (m.region.0, m.kind)).collect();
    assert_eq!(moves, [(3, MoveKind::Outgoing), (0, MoveKind::Incoming)]);
}
