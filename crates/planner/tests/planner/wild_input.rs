//! Input that no run produces, and clusters at the edge: clear results, no panic.

use crate::testbed::{self, KIB, MIB};
use proptest::prelude::*;
use stripewise_layout::{ByteCount, Cluster, Direction, Order, RegionIndex, ServerClass, figures};
use stripewise_model::{Concurrency, StripePair};
use stripewise_planner::{Online, Plan, PlanRequest, PolicyName, RequestError, plan};
use stripewise_trace::{
    AccessClass, Benchmark, ClassIndex, Company, FileAccess, ProgramCountOptions, RegionAccess, Slices,
    Synchronizations, WindowAccess, WindowProcesses, count_program,
};

/// Numbers near the ends and in the middle of their range.
fn wild() -> impl Strategy<Value = u64> {
    prop_oneof![0u64..10, any::<u64>(), Just(u64::MAX), Just(1 << 32), 0..1u64 << 40]
}

fn wild_file(number: usize, region_bytes: u64) -> impl Strategy<Value = FileAccess> {
    let size = prop_oneof![1..=region_bytes, Just(1), Just(region_bytes), wild()];
    let class = (any::<bool>(), size, any::<bool>()).prop_map(|(write, request_bytes, random)| AccessClass {
        kind: if write { Direction::Write } else { Direction::Read }.into(),
        request_bytes,
        order: if random { Order::Random } else { Order::Sequential },
    });
    let counts = proptest::collection::vec((0u16..5, wild()), 0..5);
    let region = (0u32..300, counts, any::<u32>(), any::<u32>(), any::<u64>());
    let time = || prop_oneof![Just(0.0), -1e9..1e9f64, Just(f64::MAX), Just(f64::INFINITY), Just(f64::NAN)];
    let window = (time(), time(), proptest::collection::vec(region, 0..6));
    let classes = proptest::collection::vec(class, 0..5);
    let file_size = prop_oneof![Just(0), 0..300 * region_bytes, wild()];
    (classes, proptest::collection::vec(window, 0..4), file_size, any::<bool>()).prop_map(
        move |(classes, windows, size_bytes, tidy)| FileAccess {
            path: format!("/data/{number}"),
            size_bytes,
            region_size: ByteCount(region_bytes),
            windows: windows
                .into_iter()
                .enumerate()
                .map(|(window, (start_s, end_s, regions))| WindowAccess {
                    start_s: if tidy { window as f64 } else { start_s },
                    end_s: if tidy { window as f64 } else { end_s },
                    company: Company::default(),
                    processes: WindowProcesses::default(),
                    synchronizations: Synchronizations::default(),
                    regions: wild_regions(regions, tidy),
                })
                .collect(),
            classes,
        },
    )
}

type DrawnRegion = (u32, Vec<(u16, u64)>, u32, u32, u64);

/// `tidy` ones are in order, so that more of the input gets past the first check.
fn wild_regions(drawn: Vec<DrawnRegion>, tidy: bool) -> Vec<RegionAccess> {
    let mut regions: Vec<RegionAccess> = drawn
        .into_iter()
        .map(|(region, counts, processes, processes_per_node, slices)| RegionAccess {
            region: RegionIndex(region),
            counts: counts.into_iter().map(|(class, count)| (ClassIndex(class), count)).collect(),
            processes,
            processes_per_node,
            slices: Slices(slices),
        })
        .collect();
    if tidy {
        regions.sort_by_key(|region| region.region);
        regions.dedup_by_key(|region| region.region);
    }
    regions
}

fn wild_files() -> impl Strategy<Value = Vec<FileAccess>> {
    prop_oneof![
        wild_file(0, MIB).prop_map(|file| vec![file]),
        (wild_file(0, MIB), wild_file(1, MIB)).prop_map(|(a, b)| vec![a, b]),
        Just(Vec::new()),
    ]
}

/// Classes of those files that pass are cut to what a region holds, so that most inputs are planned and not refused.
fn mended(mut files: Vec<FileAccess>) -> Vec<FileAccess> {
    for file in &mut files {
        file.classes.iter_mut().for_each(|class| class.request_bytes = class.request_bytes.clamp(1, MIB));
        file.size_bytes = file.size_bytes.min(500 * MIB);
        let known = file.classes.len();
        for region in file.windows.iter_mut().flat_map(|window| &mut window.regions) {
            region.counts.retain(|(class, _)| usize::from(class.0) < known);
        }
    }
    files
}

/// What must hold of any plan that is made.
fn assert_sound(plan: &Plan, cluster: &Cluster, files: &[FileAccess]) -> Result<(), TestCaseError> {
    for (file, planned) in files.iter().zip(&plan.files) {
        for window in &planned.windows {
            prop_assert_eq!(window.placement.check(cluster.servers.len()), Ok(()));
            let planned_bytes = u128::from(window.placement.planned_regions()) * u128::from(MIB);
            prop_assert!(planned_bytes >= u128::from(file.size_bytes));
        }
    }
    for (index, server) in plan.servers.iter().enumerate() {
        if server.room_bytes == Some(0) {
            prop_assert_eq!(server.used_bytes, 0, "{} has no room", &server.name);
        }
        let overfull = server.room_bytes.is_some_and(|capacity| server.used_bytes > capacity);
        let named = plan.notes.iter().any(|note| note.contains(&format!("server {} has space for", server.name)));
        prop_assert!(!overfull || named, "server {index} is overfull and no note says so");
        let hybrid = cluster.servers.iter().any(|other| other.class != server.class);
        prop_assert!(
            !overfull
                || server.class == ServerClass::Hdd
                || !hybrid
                || plan.servers.iter().all(|other| { other.class == ServerClass::Ssd || other.room_bytes == Some(0) }),
            "an SServer is overfull while there are HServers"
        );
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn wild_accesses_are_planned_or_refused_but_never_panic(
        (m, n) in (0usize..4, 0usize..3).prop_filter("servers", |(m, n)| m + n > 0),
        files in wild_files(), mend in any::<bool>(),
        capacities in proptest::collection::vec(proptest::option::weighted(0.5, prop_oneof![Just(0), 0..400 * MIB, wild()]), 6),
        step in prop_oneof![Just(512u64), Just(4096), Just(1 << 30), wild()],
        p in prop_oneof![Just(None), (any::<u32>(), any::<u32>()).prop_map(Some)],
        (h, s) in (wild(), wild()), pair in any::<bool>(), groups in any::<u32>(), imbalance in any::<f64>(),
        replica_room in proptest::option::of(wild()), (exact, per_byte, subtract) in any::<(bool, bool, bool)>(),
        min_stripe in proptest::option::of(wild()),
    ) {
        let files = if mend { mended(files) } else { files };
        let mut cluster = testbed::cluster(m, n, MIB, None);
        for (server, capacity) in cluster.servers.iter_mut().zip(capacities) {
            server.capacity = capacity.map(ByteCount);
        }
        let profile = testbed::profile(&cluster, testbed::DISK, testbed::FLASH, 1e-4, 8e-9);
        let mut request = testbed::request(&cluster, &profile, &files);
        request.concurrency = p.map(|(processes, processes_per_node)| Concurrency { processes, processes_per_node });
        let options = &mut request.options;
        (options.step.0, options.group_servers, options.imbalance) = (step, groups, imbalance);
        (options.exact, options.benefit_per_ssd_byte, options.subtract_move_cost) = (exact, per_byte, subtract);
        options.replica_room = replica_room.map(ByteCount);
        options.min_stripe = min_stripe.map(ByteCount);
        options.pair = pair.then_some(StripePair::new(h, s));
        if mend {
            (options.step.0, options.group_servers, options.imbalance) = (step.clamp(1, 64) * 512, groups.max(1), 0.2);
            options.pair = pair.then_some(StripePair::new(h % MIB + 1, s % MIB));
            options.min_stripe = min_stripe.map(|bytes| ByteCount((bytes % 2048 + 1) * 512));
        }
        for policy in PAPERS {
            match plan(policy, &request) {
                Ok(made) => assert_sound(&made, &cluster, &files)?,
                Err(error) => prop_assert!(!error.to_string().is_empty()),
            }
        }
    }
}

proptest! {
    // Few: a search takes longer than all of the papers' policies together.
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn the_optimum_of_wild_accesses_is_planned_or_refused_but_never_panics(
        (m, n) in (0usize..4, 0usize..3).prop_filter("servers", |(m, n)| m + n > 0),
        files in wild_files(), mend in proptest::bool::weighted(0.8),
        capacities in proptest::collection::vec(proptest::option::weighted(0.5, prop_oneof![Just(0), 0..400 * MIB, wild()]), 6),
        p in prop_oneof![Just(None), (any::<u32>(), any::<u32>()).prop_map(Some)],
        online in proptest::option::weighted(0.3, 0.0..=1.0f64), limit_s in proptest::option::weighted(0.3, 1e-6..1e-2f64),
    ) {
        let mut files = if mend { mended(files) } else { files };
        if mend {
            // Regions that nobody accesses are many and tell nothing more here.
            files.iter_mut().for_each(|file| file.size_bytes = file.size_bytes.min(64 * MIB));
        }
        let mut cluster = testbed::cluster(m, n, MIB, None);
        for (server, capacity) in cluster.servers.iter_mut().zip(capacities) {
            server.capacity = capacity.map(ByteCount);
        }
        let profile = testbed::profile(&cluster, testbed::DISK, testbed::FLASH, 1e-4, 8e-9);
        let mut request = testbed::request(&cluster, &profile, &files);
        request.concurrency = p.map(|(processes, processes_per_node)| Concurrency { processes, processes_per_node });
        request.options.online = online.map(|decay| Online { decay });
        request.options.time_limit_s = limit_s;
        match plan(PolicyName::Opt, &request) {
            Ok(made) => {
                assert_sound(&made, &cluster, &files)?;
                let optimum = made.optimum.expect("the optimum says how far it is from the best");
                let times = [optimum.bound_s, optimum.value_s, optimum.gap];
                prop_assert!(times.iter().all(|time| time.is_finite() && *time >= 0.0), "{:?}", times);
            }
            Err(error) => prop_assert!(!error.to_string().is_empty()),
        }
    }
}

/// The policies of the papers; the optimum is tried on fewer cases.
const PAPERS: [PolicyName; 10] = [
    PolicyName::Def,
    PolicyName::Random,
    PolicyName::OneDh,
    PolicyName::OneDv,
    PolicyName::TwoD,
    PolicyName::Cost,
    PolicyName::Segment,
    PolicyName::Padp,
    PolicyName::Psa,
    PolicyName::H2dp,
];

fn read_of(bytes: u64, regions: usize) -> [FileAccess; 1] {
    let class = testbed::class(Direction::Read, 64 * KIB, Order::Random);
    let counts: Vec<&[u64]> = vec![&[5]; regions];
    [testbed::file("/data/a", bytes, MIB, &[class], &counts)]
}

#[test]
fn a_server_that_is_excluded_or_has_capacity_0_holds_nothing() {
    let files = read_of(8 * MIB, 8);
    for policy in PAPERS {
        for by_name in [true, false] {
            let mut cluster = testbed::cluster(3, 2, MIB, Some(64 * MIB));
            if !by_name {
                cluster.servers[1].capacity = Some(ByteCount(0));
                cluster.servers[3].capacity = Some(ByteCount(0));
            }
            let profile = testbed::profile(&cluster, testbed::DISK, testbed::FLASH, 1e-4, 8e-9);
            let mut request = testbed::request(&cluster, &profile, &files);
            if by_name {
                request.options.exclude = vec!["hdd1".to_owned(), "ssd0".to_owned()];
            }
            let made = plan(policy, &request).unwrap();
            let used: Vec<bool> = made.servers.iter().map(|server| server.used_bytes > 0).collect();
            assert_eq!((used[1], used[3]), (false, false), "{policy}");
            assert!(used[4], "{policy} uses the SServer that is left");
            let placement = made.files[0].initial();
            let named = placement.layouts.iter().flat_map(|layout| layout.stripes()).map(|stripe| stripe.server.0);
            assert!(named.into_iter().all(|server| server != 1 && server != 3), "{policy}");
        }
    }
}

#[test]
fn without_ssds_to_use_everything_is_planned_on_disks() {
    let files = read_of(8 * MIB, 8);
    for policy in PAPERS {
        let cluster = testbed::cluster(3, 1, MIB, Some(64 * MIB));
        let profile = testbed::profile(&cluster, testbed::DISK, testbed::FLASH, 1e-4, 8e-9);
        let mut request = testbed::request(&cluster, &profile, &files);
        request.options.ssd_room = Some(ByteCount(0));
        let made = plan(policy, &request).unwrap();
        let used: Vec<u64> = made.servers.iter().map(|server| server.used_bytes).collect();
        assert_eq!((used[3], used[..3].iter().sum::<u64>()), (0, 8 * MIB), "{policy}");
    }
}

#[test]
fn what_does_not_fit_is_refused_with_the_least_that_would() {
    let files = read_of(8 * MIB, 8);
    let mut cluster = testbed::cluster(2, 1, MIB, Some(MIB));
    let profile = testbed::profile(&cluster, testbed::DISK, testbed::FLASH, 1e-4, 8e-9);
    cluster.servers[0].capacity = Some(ByteCount(4 * MIB));
    cluster.servers[1].capacity = Some(ByteCount(3 * MIB - 1));
    let error = |change: &dyn Fn(&mut PlanRequest<'_>)| {
        let mut request = testbed::request(&cluster, &profile, &files);
        change(&mut request);
        plan(PolicyName::H2dp, &request).unwrap_err()
    };
    assert_eq!(error(&|_| {}), RequestError::Capacity { needed: 8 << 20, capacity: (8 << 20) - 1 });
    assert_eq!(
        error(&|_| {}).to_string(),
        "the files hold 8388608 bytes, but the servers have space for 8388607 together; give them capacity for at least 8388608, exclude \
         fewer, or plan fewer files"
    );
    assert_eq!(
        error(&|request| request.options.ssd_room = Some(ByteCount(0))).to_string().matches("8388608").count(),
        2
    );
    let all = || cluster.servers.iter().map(|server| server.name.clone()).collect();
    assert_eq!(error(&|request| request.options.exclude = all()), RequestError::NoServers);
    let text = error(&|request| request.options.exclude = vec!["disk9".to_owned()]).to_string();
    assert_eq!(
        text,
        "`disk9` is not a server of this cluster, so it cannot be excluded; its servers are hdd0, hdd1, ssd0"
    );
    let text = error(&|request| request.options.pair = Some(StripePair::new(0, 0))).to_string();
    assert!(text.starts_with("the pair <0,0> gives no server a stripe"), "{text}");
    assert_eq!(error(&|request| request.options.group_servers = 0), RequestError::GroupServers { servers: 0 });
    for bytes in [0, 500, 64 << 20] {
        let text = error(&|request| request.options.min_stripe = Some(ByteCount(bytes))).to_string();
        let said = "cannot be planned in regions of 1MiB; use a multiple of 512 bytes up to the region size";
        assert!(text.contains(said), "{text}");
    }
    let text = error(&|request| request.options.imbalance = -1.0).to_string();
    assert_eq!(text, "an imbalance of -1 cannot be kept; use a number from 0 on, for example 0.2");
}

#[test]
fn disks_that_are_too_small_for_a_policy_are_named_with_what_it_needs() {
    let files = read_of(8 * MIB, 8);
    let mut cluster = testbed::cluster(2, 1, MIB, Some(6 * MIB));
    cluster.servers[..2].iter_mut().for_each(|server| server.capacity = Some(ByteCount(2 * MIB)));
    let profile = testbed::profile(&cluster, testbed::DISK, testbed::FLASH, 1e-4, 8e-9);
    let made = plan(PolicyName::Def, &testbed::request(&cluster, &profile, &files)).unwrap();
    // 64 KiB over three servers: 22 of 64 KiB of 64 in every region on hdd0.
    let used = made.servers[0].used_bytes;
    assert!(used > 2 * MIB);
    let note = format!("server hdd0 has space for 2 MiB, but the plan needs {} there", figures::bytes(used));
    assert!(made.notes.contains(&note), "{:?}", made.notes);
}

/// Where every process has a file, or a part of one, to itself, no region sees more than one process; p is that of the run all the same. Of some
/// of the files alone it is at most the sum of theirs.
#[test]
fn p_counts_the_processes_of_all_files() {
    let p = |text: &str, files: usize| {
        let program = text.parse::<Benchmark>().unwrap().program().unwrap();
        let options = ProgramCountOptions { region_size: ByteCount(MIB), ..ProgramCountOptions::default() };
        let counted = count_program(&*program, &options);
        let regions = || counted.iter().flat_map(|file| &file.windows).flat_map(|window| &window.regions);
        assert!(regions().all(|region| region.processes == 1));
        let cluster = testbed::cluster(4, 2, MIB, None);
        let profile = testbed::profile(&cluster, testbed::DISK, testbed::FLASH, 1e-4, 8e-9);
        let request = PlanRequest { concurrency: None, ..testbed::request(&cluster, &profile, &counted[..files]) };
        let made = plan(PolicyName::H2dp, &request).unwrap();
        assert_eq!(made.concurrency, request.concurrency());
        request.concurrency().factors()
    };
    let own_files = "ior:processes=12,nodes=3,file_per_process=yes,block=2MiB,transfer=64KiB";
    assert_eq!((p(own_files, 12), p(own_files, 5), p(own_files, 1)), ((12.0, 4.0), (5.0, 4.0), (1.0, 1.0)));
    assert_eq!(p("ior:processes=12,nodes=3,block=2MiB,transfer=64KiB", 1), (12.0, 4.0));
}

#[test]
fn p_and_c_are_those_of_each_window() {
    let cluster = testbed::cluster(4, 2, MIB, None);
    let profile = testbed::profile(&cluster, testbed::DISK, testbed::FLASH, 1e-4, 8e-9);
    let mut files = read_of(2 * MIB, 2);
    let mut later = files[0].windows[0].clone();
    (later.start_s, later.end_s) = (600.0, 1200.0);
    later.regions.iter_mut().for_each(|region| (region.processes, region.processes_per_node) = (3, 2));
    files[0].windows[0].regions[1].processes = 48;
    files[0].windows.push(later);
    let request = PlanRequest { concurrency: None, ..testbed::request(&cluster, &profile, &files) };
    let of = |window| request.window_concurrency(window).factors();
    assert_eq!((of(0), of(1), request.concurrency().factors()), ((48.0, 1.0), (3.0, 2.0), (48.0, 2.0)));
    // H2DP's stripes follow p: with many waiting, 64 KiB go to the SServers; a plan for the whole run says the most of both.
    let made = plan(PolicyName::H2dp, &request).unwrap();
    assert_eq!(made.concurrency.factors(), (48.0, 2.0));
    let given = Concurrency { processes: 5, processes_per_node: 4 };
    let request = PlanRequest { concurrency: Some(given), ..request };
    assert_eq!(request.window_concurrency(1), given);
}
