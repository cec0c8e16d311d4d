use super::*;
use crate::export::export_for;
use crate::site::{LoadedSite, load};
use stripewise_layout::{ByteCount, Direction, Order, RegionIndex, ServerClass};
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

#[test]
fn a_layout_of_lustre_is_that_of_the_file_on_lustre_alone() {
    let files = [file("/a", &[800; 4])];
    let striped = LustreLayout { components: vec![(1 << 20, 2, String::new())], targets: vec![0, 1] };
    let known = HashMap::from([("/a", &striped)]);
    let now = |fs: &str| {
        let loaded = site(fs, "version = 1", "version = 1");
        let plain = format!("{:?}", layouts_now(&loaded.site, &files, &HashMap::new()).files);
        let now = layouts_now(&loaded.site, &files, &known);
        (now.known, now.elsewhere, format!("{:?}", now.files) == plain)
    };
    assert_eq!(now("lustre"), (1, 0, false));
    assert_eq!(now("beegfs"), (0, 1, true), "what BeeGFS gives it by default");
    let mut judged = judged(&site("beegfs", "version = 1", "version = 1"), &files);
    judged.foreign_layouts = 1;
    let layout = judged.layout(&site("beegfs", "version = 1", "version = 1").site);
    assert!(layout[0].contains(" by default (1 file lay on Lustre in the run); "), "{layout:?}");
}

#[test]
fn what_lies_on_fast_targets_is_said_of_the_layout_and_not_of_the_plan() {
    let loaded = site("beegfs", "capacity = \"20TiB\"", "capacity = \"200MiB\"");
    let files = [file("/a", &[5_000, 5_000, 10, 10, 10, 10]), file("/b", &[10; 4])];
    let mut judged = judged(&loaded, &files);
    let said = |judged: &Judged| judged.layout(&loaded.site).into_iter().find(|line| line.contains(" fast targets"));
    let bytes_of = |judged: &Judged, class: ServerClass| -> Vec<u64> {
        let is_of = |name: &str| {
            let target = loaded.site.targets.iter().position(|target| target.name == name);
            loaded.site.class(target.unwrap()) == class
        };
        let of_file = |file: &ExportedFile| file.targets.iter().filter(|on| is_of(&on.name)).map(|on| on.bytes).sum();
        judged.exported.files.iter().map(of_file).collect()
    };
    let found = [ServerClass::Ssd, ServerClass::Hdd].map(|class| bytes_of(&judged, class));
    assert_eq!(found, [vec![6 * REGION, 0], vec![0, 4 * REGION]], "a file lies on targets of one class");
    assert_eq!(said(&judged).unwrap(), "384 MiB of 640 MiB go to the 2 fast targets");
    // A file that is refused does not count.
    judged.exported.files.pop();
    assert_eq!(said(&judged), None, "all of it lies there");
}

#[test]
fn what_a_run_saves_is_no_more_than_was_measured() {
    let judged_at = |most_s: Option<f64>| {
        let mut judged = judged(&site("moosefs", "version = 1", "version = 1"), &[file("/a", &[5_000; 4])]);
        let measured = most_s.map(|most_s| Measured { busiest_s: most_s, most_s });
        judged.limits = Limits { planned: measured, laid_out: measured, run_s: 1e6, has_others: false };
        judged
    };
    let free = judged_at(None);
    let (predicted, advised) = (free.gain(), free.advised());
    assert!(predicted.low > 0.5, "{predicted:?}");
    // As long as is predicted: nothing changes.
    let same = judged_at(Some(free.now().time_s * 10.0));
    assert_eq!((same.gain(), same.saved_s()), (predicted, free.saved_s()));
    let as_predicted = [predicted.low, predicted.expected, predicted.high].map(|gain| gain * advised.time_s);
    assert!(free.saved_s().iter().zip(as_predicted).all(|(one, other)| (one - other).abs() < 1e-9));
    let (_, longest_s) = advised.ends();
    let short = judged_at(Some(longest_s * 1.1));
    assert!((short.gain().low - 0.1).abs() < 1e-9 && short.gain().expected == predicted.expected, "{:?}", short.gain());
    assert!(short.saved_s().iter().all(|saved_s| *saved_s < longest_s * 1.1), "{:?}", short.saved_s());
    assert!(short.moving().runs > free.moving().runs && short.moving().most_runs > short.moving().runs);
    // No loss is ruled out.
    let even = judged_at(Some(longest_s * 0.99));
    assert!(even.gain().low < 0.0 && even.measured_below_advised().is_none());
    assert!(judged_at(Some(advised.ends().0 * 0.99)).measured_below_advised().is_some());
}
