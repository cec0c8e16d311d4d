//! Files that end in the middle of a region: the broker promises the region all of it, and a plan puts no more on an SSD than that allows.

use crate::testbed::{self, DISK, FLASH, KIB, MIB};
use stripewise_layout::{ByteCount, Cluster, Direction, Order, RegionIndex, ServerClass};
use stripewise_planner::{Plan, PlanRequest, PolicyName, plan};
use stripewise_trace::FileAccess;

const REGION: u64 = MIB;
const FILE: u64 = 128 * KIB;

/// Files of one region each, the later the hotter.
fn files(count: u64) -> Vec<FileAccess> {
    let class = testbed::class(Direction::Read, 64 * KIB, Order::Random);
    (0..count).map(|n| testbed::file(&format!("/data/{n}"), FILE, REGION, &[class], &[&[100 * (n + 1)]])).collect()
}

fn planned(cluster: &Cluster, policy: PolicyName, files: &[FileAccess], promises_whole_regions: bool) -> Plan {
    let profile = testbed::profile(cluster, DISK, FLASH, 1e-4, 8e-9);
    plan(policy, &PlanRequest { promises_whole_regions, ..testbed::request(cluster, &profile, files) }).unwrap()
}

/// Files with bytes on an SSD.
fn on_ssd(cluster: &Cluster, plan: &Plan) -> Vec<String> {
    let is_ssd = |server: stripewise_layout::ServerId| cluster.server(server).unwrap().class == ServerClass::Ssd;
    let has = |file: &&stripewise_planner::PlannedFile| {
        file.initial().layout_of(RegionIndex(0)).stripes().iter().any(|stripe| is_ssd(stripe.server))
    };
    plan.files.iter().filter(has).map(|file| file.path.clone()).collect()
}

/// Bytes that the broker would promise on each SSD.
fn promised(cluster: &Cluster, plan: &Plan) -> u64 {
    let (mut most, ids) = (0, cluster.ids());
    for id in ids.filter(|id| cluster.server(*id).unwrap().class == ServerClass::Ssd) {
        let of_file = |file: &stripewise_planner::PlannedFile| {
            let layout = file.initial().layout_of(RegionIndex(0)).clone();
            let turns = layout.stripes().iter().enumerate().filter(|(_, stripe)| stripe.server == id);
            turns.map(|(turn, _)| layout.view().object_bytes(turn, REGION)).sum::<u64>()
        };
        most = most.max(plan.files.iter().map(of_file).sum());
    }
    most
}

#[test]
fn no_more_is_planned_on_an_ssd_than_the_broker_will_promise_there() {
    // Space for two whole regions on each of two SSDs, or for sixteen of these files on each.
    let cluster = testbed::cluster(4, 2, REGION, Some(2 * REGION));
    let files = files(24);
    for policy in ["opt", "h2dp", "random", "segment"].map(|name| name.parse::<PolicyName>().unwrap()) {
        let plan = planned(&cluster, policy, &files, true);
        assert!(promised(&cluster, &plan) <= 2 * REGION, "{policy}: {} promised", promised(&cluster, &plan));
        let used = planned(&cluster, policy, &files, false);
        if on_ssd(&cluster, &used).len() > on_ssd(&cluster, &plan).len() {
            let note = plan.notes.iter().find(|note| note.contains("promised its full 1 MiB")).expect("it is said");
            assert!(note.contains("plan with --region 128KiB"), "{note}");
            assert!(
                plan.predicted.total.time_s >= used.predicted.total.time_s,
                "{policy}: no time is promised for what will not be"
            );
        }
    }
}

#[test]
fn the_hottest_files_keep_their_place() {
    let cluster = testbed::cluster(4, 2, REGION, Some(2 * REGION));
    let plan = planned(&cluster, "opt".parse().unwrap(), &files(24), true);
    let kept = on_ssd(&cluster, &plan);
    assert!(!kept.is_empty() && kept.contains(&"/data/23".to_owned()), "{kept:?}");
    assert!(!kept.contains(&"/data/0".to_owned()), "{kept:?}");
}

#[test]
fn whole_regions_and_servers_without_a_capacity_are_planned_as_before() {
    let class = testbed::class(Direction::Read, 64 * KIB, Order::Random);
    let whole = [testbed::file("/data/a", 6 * REGION, REGION, &[class], &[&[50], &[40], &[30], &[20], &[10], &[5]])];
    let cluster = testbed::cluster(4, 2, REGION, Some(2 * REGION));
    let unlimited = testbed::cluster(4, 2, REGION, None);
    for (cluster, files) in [(&cluster, &whole[..]), (&unlimited, &files(24)[..])] {
        for policy in ["opt", "h2dp"].map(|name| name.parse::<PolicyName>().unwrap()) {
            assert_eq!(planned(cluster, policy, files, true), planned(cluster, policy, files, false), "{policy}");
        }
    }
    assert_eq!(cluster.region_size, ByteCount(REGION));
}

/// The plan of `opt` for a file on one disk and one SSD, of which this much is free in MiB.
fn on_two(file_mib: u64, free_mib: [u64; 2], ssd_room: Option<ByteCount>) -> (Cluster, Plan) {
    const REGION: u64 = 64 * MIB;
    let cluster = testbed::cluster(1, 1, REGION, None);
    let profile = testbed::profile(&cluster, DISK, FLASH, 1e-4, 8e-9);
    let class = testbed::class(Direction::Read, 64 * KIB, Order::Random);
    let counts = [&[20_000u64][..]].repeat((file_mib * MIB).div_ceil(REGION) as usize);
    let files = [testbed::file("/data/f", file_mib * MIB, REGION, &[class], &counts)];
    let free = free_mib.map(|mib| Some(mib * MIB));
    let mut request =
        PlanRequest { promises_whole_regions: true, free_bytes: &free, ..testbed::request(&cluster, &profile, &files) };
    request.options.ssd_room = ssd_room;
    let plan = plan(PolicyName::DEFAULT, &request).unwrap();
    (cluster, plan)
}

/// A region is placed where its full size is free: the second one's 56 MiB fitted neither the SSD nor, by then, the disk.
#[test]
fn nearly_full_servers_get_regions_by_what_they_have_left() {
    let (cluster, plan) = on_two(120, [78, 78], None);
    assert!(plan.verdict.fits, "{}", plan.verdict.reason);
    let placement = plan.files[0].initial();
    let mut free = vec![78 * MIB; cluster.servers.len()];
    for (region, used) in [(0, 64 * MIB), (1, 56 * MIB)] {
        let layout = placement.layout_of(RegionIndex(region));
        for (turn, stripe) in layout.stripes().iter().enumerate() {
            let free = &mut free[usize::from(stripe.server.0)];
            assert!(layout.view().object_bytes(turn, 64 * MIB) <= *free, "region {region} in {layout:?}");
            *free -= layout.view().object_bytes(turn, used);
        }
    }
}

#[test]
fn a_plan_that_servers_have_no_space_for_is_not_recommended() {
    let (_, plan) = on_two(100, [60, 58], None);
    assert!(!plan.verdict.fits && !plan.verdict.apply && plan.verdict.word() == "does not fit");
    let reason = &plan.verdict.reason;
    assert!(reason.starts_with("does not fit: server ") && reason.contains("--exclude"), "{reason}");
    assert!(plan.notes[0].contains("has space for") && reason.contains(&plan.notes[0]), "{:?}", plan.notes);
    // An option makes no space.
    assert!(on_two(100, [200, 200], Some(ByteCount(150 * MIB))).1.verdict.fits);
    let (_, plan) = on_two(150, [200, 20], Some(ByteCount(150 * MIB)));
    assert!(
        plan.verdict.reason.starts_with("does not fit: server ssd0 has space for 20 MiB"),
        "{}",
        plan.verdict.reason
    );
}

/// A cluster can be planned for before it has its disks.
#[test]
fn declared_capacities_are_planned_by_where_too_little_is_free_and_the_verdict_says_so() {
    let files = files(8);
    let mut cluster = testbed::cluster(2, 1, MIB, Some(16 * MIB));
    cluster.servers.iter_mut().for_each(|server| server.capacity = Some(ByteCount(16 * MIB)));
    let profile = testbed::profile(&cluster, DISK, FLASH, 1e-4, 8e-9);
    let request = testbed::request(&cluster, &profile, &files);
    let free = [Some(128 * KIB); 3];
    let lacking = plan(PolicyName::Opt, &PlanRequest { free_bytes: &free, ..request.clone() }).unwrap();
    let whole = plan(PolicyName::Opt, &request).unwrap();
    assert_eq!(lacking.files, whole.files);
    assert!(!lacking.verdict.apply && !lacking.verdict.fits, "{:?}", lacking.verdict);
    assert!(lacking.verdict.reason.starts_with("does not fit: server "), "{:?}", lacking.verdict);
    // Without capacities nothing says that there will be more.
    cluster.servers.iter_mut().for_each(|server| server.capacity = None);
    let request = testbed::request(&cluster, &profile, &files);
    assert!(plan(PolicyName::Opt, &PlanRequest { free_bytes: &free, ..request }).is_err());
}
