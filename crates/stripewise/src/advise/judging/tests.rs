use super::*;
use crate::export::export_for;
use crate::site::{LoadedSite, load};
use stripewise_layout::{ByteCount, Direction, Order, RegionIndex};
use stripewise_planner::native::lookup;
use stripewise_planner::{PlanKey, PlanOptions, PolicyName, Sources, plan};
use stripewise_trace::{
    AccessClass, ClassIndex, Company, RegionAccess, Slices, Synchronizations, WindowAccess, WindowProcesses,
};

const REGION: u64 = 64 << 20;

/// Random reads of 64 KiB by 32 processes, so many of each region.
fn file(path: &str, requests: &[u64]) -> FileAccess {
    let regions = requests.iter().enumerate().map(|(region, count)| RegionAccess {
        region: RegionIndex(region as u32),
        counts: vec![(ClassIndex(0), *count)],
        processes: 32,
        processes_per_node: 1,
        slices: Slices::ALL,
    });
    FileAccess {
        path: path.to_owned(),
        size_bytes: requests.len() as u64 * REGION,
        region_size: ByteCount(REGION),
        classes: vec![AccessClass { kind: Direction::Read.into(), request_bytes: 64 << 10, order: Order::Random }],
        windows: vec![WindowAccess {
            start_s: 0.0,
            end_s: 600.0,
            company: Company::default(),
            processes: WindowProcesses::default(),
            synchronizations: Synchronizations::default(),
            regions: regions.collect(),
        }],
    }
}

/// The example's site, with other lines.
fn site(fs: &str, old: &str, new: &str) -> LoadedSite {
    let example = lookup(fs).unwrap().example;
    assert!(example.contains(old));
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("site.toml");
    std::fs::write(&path, example.replace(old, new)).unwrap();
    load(&path).unwrap()
}

fn judged(loaded: &LoadedSite, files: &[FileAccess]) -> Judged {
    let request = PlanRequest {
        cluster: &loaded.servers.cluster,
        profile: &loaded.servers.profile,
        files,
        key: PlanKey::new("app", 32),
        sources: Sources::default(),
        options: PlanOptions::default(),
        free_bytes: &[],
        promises_whole_regions: false,
        concurrency: None,
    };
    let planned = plan(PolicyName::DEFAULT, &request).unwrap();
    let exported = export_for(&planned, loaded, files).unwrap();
    let now = layouts_now(&loaded.site, files, &HashMap::new());
    let variant = Variant { assumed: Arrangement::Apart.even(), request, now };
    best(&loaded.site, &[variant], vec![(planned, exported)]).unwrap().unwrap()
}

#[test]
fn advice_and_the_export_in_it_say_the_same_of_one_layout() {
    let files = [file("/a", &[5_000, 5_000, 100, 100]), file("/b", &[800; 2])];
    // Of one stripe by default, as CephFS itself prints it, and where the layout says the targets.
    for (fs, old, new) in [
        ("cephfs", "stripe_count = 0", "stripe_count = 0"),
        ("cephfs", "stripe_count = 0", "stripe_count = 1"),
        ("moosefs", "stripe_count = 0", "stripe_count = 1"),
        ("orangefs", "version = 1", "version = 1"),
    ] {
        let judged = judged(&site(fs, old, new), &files);
        let loss = judged.exported.predicted.as_ref().unwrap();
        let near = |one: f64, other: f64| (one / other - 1.0).abs() < 1e-9;
        for (found, said) in
            [(judged.now(), loss.default), (judged.advised(), loss.exported), (judged.ideal(), loss.ideal)]
        {
            let is_same = near(found.time_s, said.time_s) && near(found.spread, said.spread);
            assert!(is_same, "{fs}, {new}: {found:?} is not {said:?}");
        }
        assert!((judged.gain().expected - loss.gain.expected).abs() < 1e-9, "{fs}, {new}");
        let moving = judged.moving();
        assert!(moving.time.time_s > 0.0 && moving.bytes == 6 * REGION, "{fs}, {new}: {moving:?}");
    }
}
