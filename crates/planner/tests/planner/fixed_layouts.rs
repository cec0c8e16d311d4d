//! `random`, `1-dh`, `1-dv`, `2-d` and `cost`: layouts by hand, and costs against loops over single requests.

use crate::testbed::{self, KIB, MIB, has_requests};
use proptest::prelude::*;
use stripewise_layout::{ByteCount, Direction, Layout, Order, RegionIndex, ServerId};
use stripewise_model::cost_intelligent::{ProcessLayout, TableForm, request_cost};
use stripewise_model::{StripePair, UniformParameters};
use stripewise_planner::{Plan, PlanKey, PlanRequest, PlannedProgram, PolicyName, plan};
use stripewise_trace::{AccessClass, FileAccess};

/// Server and stripe in KiB of every turn.
fn stripes(layout: &Layout) -> Vec<(u16, u64)> {
    layout.stripes().iter().map(|stripe| (stripe.server.0, u64::from(stripe.size_bytes) / KIB)).collect()
}

fn initial(plan: &Plan, file: usize, region: u32) -> Vec<(u16, u64)> {
    stripes(plan.files[file].initial().layout_of(RegionIndex(region)))
}

/// `files` files of four regions of 1 MiB that read 256 KiB at a time, on 3 HServers and 1 SServer.
fn planned(policy: PolicyName, files: usize, processes_of_region: u32, key_processes: u32) -> Plan {
    planned_with(policy, files, processes_of_region, PlanKey::new("app", key_processes))
}

fn planned_with(policy: PolicyName, files: usize, processes_of_region: u32, key: PlanKey) -> Plan {
    let cluster = testbed::cluster(3, 1, MIB, None);
    let profile = testbed::profile(&cluster, testbed::DISK, testbed::FLASH, 1e-4, 8e-9);
    let class = testbed::class(Direction::Read, 256 * KIB, Order::Random);
    let files: Vec<FileAccess> = (0..files)
        .map(|number| {
            let mut file = testbed::file(&format!("/data/{number}"), 4 * MIB, MIB, &[class], &[&[9], &[9], &[9], &[9]]);
            file.windows[0].regions.iter_mut().for_each(|region| region.processes = processes_of_region);
            file
        })
        .collect();
    plan(policy, &PlanRequest { key, ..testbed::request(&cluster, &profile, &files) }).unwrap()
}

#[test]
fn files_of_one_process_lie_on_one_server_a_group_or_all() {
    let of = |policy| {
        let plan = planned(policy, 5, 1, 5);
        (0..5).map(|file| initial(&plan, file, 2)).collect::<Vec<_>>()
    };
    assert_eq!(of(PolicyName::OneDv), [[(0, 256)], [(1, 256)], [(2, 256)], [(3, 256)], [(0, 256)]]);
    // The third file is the second of its group, and begins on the group's second server.
    let groups = [[(0, 128), (1, 128)], [(2, 128), (3, 128)], [(1, 128), (0, 128)], [(3, 128), (2, 128)]];
    assert_eq!(of(PolicyName::TwoD)[..4], groups);
    let first: Vec<u16> = of(PolicyName::OneDh).iter().map(|layout| layout[0].0).collect();
    assert_eq!(first, [0, 1, 2, 3, 0]);
    assert_eq!(of(PolicyName::OneDh)[2], [(2, 64), (3, 64), (0, 64), (1, 64)]);
}

#[test]
fn requests_to_a_shared_file_touch_one_server_a_group_or_all() {
    // Many processes in a region; or one in each region, but fewer such files than processes.
    for (files, of_region, processes) in [(1, 32, 32), (1, 1, 32), (5, 1, 6)] {
        let of = |policy| initial(&planned(policy, files, of_region, processes), 0, 0);
        assert_eq!(of(PolicyName::OneDv), [(0, 256), (1, 256), (2, 256), (3, 256)]);
        assert_eq!(of(PolicyName::TwoD), [(0, 128), (1, 128), (2, 128), (3, 128)]);
        assert_eq!(of(PolicyName::OneDh), [(0, 64), (1, 64), (2, 64), (3, 64)]);
    }
    for (policy, kib) in [(PolicyName::OneDh, 64), (PolicyName::TwoD, 128), (PolicyName::OneDv, 256)] {
        let second = initial(&planned(policy, 5, 1, 6), 1, 0);
        assert_eq!(
            second,
            [(1, kib), (2, kib), (3, kib), (0, kib)],
            "{policy}: the next file begins on the next server"
        );
    }
}

#[test]
fn files_of_several_programs_are_compared_with_the_processes_of_all() {
    // A program of 2 processes and one of 8, in either order: files are own if there is one for each of the ten.
    for (first, second) in [(2, 8), (8, 2)] {
        let key = PlanKey { with: vec![PlannedProgram::new("tool", second)], ..PlanKey::new("app", first) };
        let of = |files| initial(&planned_with(PolicyName::OneDv, files, 1, key.clone()), 1, 0);
        assert_eq!(of(10), [(1, 256)], "{first} and {second}");
        assert_eq!(of(9), [(1, 256), (2, 256), (3, 256), (0, 256)], "{first} and {second}");
    }
}

#[test]
fn a_cycle_longer_than_a_region_goes_on_in_the_next() {
    let cluster = testbed::cluster(3, 1, MIB, None);
    let profile = testbed::profile(&cluster, testbed::DISK, testbed::FLASH, 1e-4, 8e-9);
    let class = testbed::class(Direction::Read, 512 * KIB, Order::Random);
    let counts: Vec<&[u64]> = vec![&[9]; 4];
    let files = [testbed::file("/data/a", 4 * MIB, MIB, &[class], &counts)];
    let made = plan(PolicyName::OneDv, &testbed::request(&cluster, &profile, &files)).unwrap();
    // Two stripes of 512 KiB in a region of 1 MiB.
    let first = |region| initial(&made, 0, region)[0];
    assert_eq!([0, 1, 2, 3].map(first), [(0, 512), (2, 512), (0, 512), (2, 512)]);
    assert_eq!(made.servers.iter().map(|server| server.used_bytes).collect::<Vec<_>>(), [MIB; 4]);
}

#[test]
fn no_stripe_is_smaller_than_the_least_that_is_asked_for() {
    let cluster = testbed::cluster(12, 4, MIB, Some(8 * MIB));
    let profile = testbed::profile(&cluster, testbed::DISK, testbed::FLASH, 1e-4, 8e-9);
    for request_kib in [16, 64, 256, 512, 1024] {
        let class = testbed::class(Direction::Read, request_kib * KIB, Order::Random);
        let counts: Vec<Vec<u64>> = (0..64).map(|region| vec![1 + region]).collect();
        let counts: Vec<&[u64]> = counts.iter().map(Vec::as_slice).collect();
        let files = [testbed::file("/data/a", 64 * MIB, MIB, &[class], &counts)];
        for policy in [PolicyName::Padp, PolicyName::Psa, PolicyName::H2dp] {
            let with = |min_stripe| {
                let mut request = testbed::request(&cluster, &profile, &files);
                request.options.min_stripe = min_stripe;
                plan(policy, &request).unwrap()
            };
            let all =
                |plan: &Plan| -> Vec<Vec<(u16, u64)>> { (0..64).map(|region| initial(plan, 0, region)).collect() };
            let least = |plan: &Plan| all(plan).iter().flatten().map(|(_, kib)| *kib).min().unwrap();
            let (free, large) = (with(None), with(Some(ByteCount(64 * KIB))));
            assert!(least(&large) >= 64, "{policy}, {request_kib} KiB: {} KiB", least(&large));
            assert!(least(&free) < 64 || request_kib == 1024, "{policy}, {request_kib} KiB: nothing was to be raised");
            assert!(large.servers[12..].iter().any(|ssd| ssd.used_bytes > 0), "{policy} leaves the SSDs empty");
            // The lattice has no smaller stripe than a step.
            assert_eq!(all(&free), all(&with(Some(ByteCount(4 * KIB)))), "{policy}, {request_kib} KiB");
        }
    }
}

#[test]
fn a_full_ssd_leaves_the_hservers_in_the_same_kind_of_layout() {
    let cluster = testbed::cluster(3, 1, MIB, Some(MIB));
    let profile = testbed::profile(&cluster, testbed::DISK, testbed::FLASH, 1e-4, 8e-9);
    let class = testbed::class(Direction::Read, 256 * KIB, Order::Random);
    let counts: Vec<&[u64]> = vec![&[9]; 16];
    let files = [testbed::file("/data/a", 16 * MIB, MIB, &[class], &counts)];
    let made = plan(PolicyName::OneDv, &testbed::request(&cluster, &profile, &files)).unwrap();
    let both: Vec<Vec<(u16, u64)>> = (0..16).map(|region| initial(&made, 0, region)).collect();
    let with_ssd = both.iter().filter(|layout| layout.len() == 4).count();
    let without = both.iter().filter(|layout| **layout == [(0, 256), (1, 256), (2, 256)]).count();
    // A region of 1 MiB has one stripe of 256 KiB on the SServer.
    assert_eq!((with_ssd, without), (4, 12));
}

#[test]
fn drawn_pairs_cover_a_request_and_follow_the_seed() {
    let cluster = testbed::cluster(3, 2, MIB, None);
    let profile = testbed::profile(&cluster, testbed::DISK, testbed::FLASH, 1e-4, 8e-9);
    let class = testbed::class(Direction::Read, 100_003, Order::Random);
    let files: Vec<FileAccess> =
        (0..20).map(|number| testbed::file(&format!("/data/{number}"), MIB, MIB, &[class], &[&[9]])).collect();
    let pairs = |seed: u64, pair: Option<StripePair>| -> Vec<(u64, u64)> {
        let mut request = testbed::request(&cluster, &profile, &files);
        (request.options.seed, request.options.pair) = (seed, pair);
        let made = plan(PolicyName::Random, &request).unwrap();
        let size = |layout: &Layout, server: u16| {
            let stripe = layout.stripes().iter().find(|stripe| stripe.server == ServerId(server));
            stripe.map_or(0, |stripe| u64::from(stripe.size_bytes))
        };
        let layouts = made.files.iter().map(|file| file.initial().layout_of(RegionIndex(0)));
        layouts.map(|layout| (size(layout, 0), size(layout, 3))).collect()
    };
    let drawn = pairs(1, None);
    for (h, s) in &drawn {
        let cycle = 3 * h + 2 * s;
        assert!((100_003..100_003 + 2).contains(&cycle), "<{h},{s}>");
    }
    let distinct: std::collections::BTreeSet<_> = drawn.iter().collect();
    assert!(distinct.len() > 15 && drawn.iter().any(|(h, _)| h % 4096 != 0));
    assert_eq!(drawn, pairs(1, None));
    assert_ne!(drawn, pairs(2, None));
    assert_eq!(pairs(1, Some(StripePair::new(7, 8192))), [(7, 8192); 20]);
}

/// Overall cost by Cost-intelligent section 4: request by request.
fn overall_ps(request: &PlanRequest<'_>, file: &FileAccess, servers: &[usize], layout: ProcessLayout) -> u128 {
    let parameters = UniformParameters::of_servers(request.profile, |number| servers.contains(&number));
    let mut sum = 0;
    for (number, window) in file.windows.iter().enumerate() {
        for (class, count) in window.regions.iter().flat_map(|region| &region.counts) {
            for _ in 0..*count {
                let (class, concurrency) = (file.class(*class), request.window_concurrency(number));
                sum += request_cost(&parameters, layout, TableForm::Corrected, class, concurrency).total().0;
            }
        }
    }
    sum
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn cost_takes_the_cheapest_of_all_layouts_by_loops_over_requests(
        (m, n) in (0usize..7, 0usize..3).prop_filter("servers", |(m, n)| m + n > 0),
        files in testbed::files(MIB, 2).prop_filter("requests", |files| has_requests(files)),
        hdd in testbed::lines(), ssd in testbed::lines(), e_s in 0.0..1e-3f64,
    ) {
        let cluster = testbed::cluster(m, n, MIB, None);
        let profile = testbed::profile(&cluster, hdd, ssd, e_s, 8e-9);
        let mut request = testbed::request(&cluster, &profile, &files);
        request.concurrency = None;
        let made = plan(PolicyName::Cost, &request).unwrap();
        let servers: Vec<usize> = (0..m + n).collect();
        for (number, file) in files.iter().enumerate() {
            if file.windows.iter().all(|window| window.regions.is_empty()) {
                continue;
            }
            let overall = |layout| overall_ps(&request, file, &servers, layout);
            let widths: Vec<usize> = (1..=m + n).filter(|width| (m + n).is_multiple_of(*width)).collect();
            let of_width = |width: &usize| match (m + n) / width {
                1 => overall(ProcessLayout::OneDh),
                groups if *width == 1 => {
                    let _ = groups;
                    overall(ProcessLayout::OneDv)
                }
                groups => overall(ProcessLayout::TwoD { groups: groups as u32 }),
            };
            let least = widths.iter().map(of_width).min().unwrap();
            // The stripes of a shared file are s over the width, rounded up; find the widths that could have given them.
            let mean = mean_request(file);
            let layout = made.files[number].initial().layout_of(RegionIndex(0));
            prop_assert_eq!(layout.stripes().len(), m + n);
            let stripe = u64::from(layout.stripes()[0].size_bytes);
            let costs: Vec<u128> = widths
                .iter()
                .filter(|width| mean.div_ceil(**width as u64).next_multiple_of(4096).min(MIB) == stripe)
                .map(of_width)
                .collect();
            prop_assert!(costs.contains(&least), "stripe {stripe}: {costs:?}, least {least}");
        }
    }
}

fn mean_request(file: &FileAccess) -> u64 {
    let all = || file.windows.iter().flat_map(|window| &window.regions).flat_map(|region| &region.counts);
    let size = |class: &stripewise_trace::ClassIndex| u128::from(AccessClass::clone(&file.class(*class)).request_bytes);
    let bytes: u128 = all().map(|(class, count)| u128::from(*count) * size(class)).sum();
    let squares: u128 = all().map(|(class, count)| u128::from(*count) * size(class) * size(class)).sum();
    ((squares + bytes / 2) / bytes) as u64
}
