use super::*;
use crate::counts::count;
use crate::workload::{Pattern, TraceShape, Workload, write_trace};
use proptest::prelude::*;
use stripewise_layout::{ByteCount, Direction, RegionIndex};

const REGION: ByteCount = ByteCount(1 << 20);

fn any_access() -> impl Strategy<Value = FileAccess> {
    let class = (any::<bool>(), any::<bool>(), 1..9u64).prop_map(|(write, random, size)| AccessClass {
        kind: if write { Direction::Write } else { Direction::Read }.into(),
        request_bytes: size << 12,
        order: if random { Order::Random } else { Order::Sequential },
    });
    let region = (proptest::collection::btree_map(0..6u16, 1..50u64, 1..4), 1..9u32, 1..5u32, 1..=u64::MAX);
    let company =
        (0.0..1.0, 0.0..1.0, 0u64..9, 0u64..9).prop_map(|(same_region, adjoining, skip_bytes, apart_bytes)| Company {
            same_region,
            adjoining,
            skip_bytes,
            apart_bytes,
        });
    let window = (proptest::collection::btree_map(0..12u32, region, 0..6), company);
    (proptest::collection::btree_set(class, 6), proptest::collection::vec(window, 0..4), 1..9u64).prop_map(
        |(classes, windows, size)| FileAccess {
            path: "/data/a".to_owned(),
            size_bytes: size << 20,
            region_size: REGION,
            classes: classes.into_iter().collect(),
            windows: windows
                .into_iter()
                .enumerate()
                .map(|(number, (regions, company))| WindowAccess {
                    start_s: number as f64 * 5.0,
                    end_s: number as f64 * 5.0 + 5.0,
                    company,
                    processes: WindowProcesses {
                        file: ProcessCount { processes: size as u32 + 2, per_node: size as u32 },
                        run: ProcessCount { processes: size as u32 + 9, per_node: size as u32 + 1 },
                    },
                    synchronizations: Synchronizations { apart: 1.0, ..Synchronizations::default() },
                    regions: regions
                        .into_iter()
                        .map(|(region, (counts, processes, processes_per_node, slices))| RegionAccess {
                            region: RegionIndex(region),
                            counts: counts.into_iter().map(|(class, count)| (ClassIndex(class), count)).collect(),
                            processes,
                            processes_per_node,
                            slices: Slices(slices),
                        })
                        .collect(),
                })
                .collect(),
        },
    )
}

type Cells = BTreeMap<(usize, u32, AccessClass), u64>;
/// Processes, the most of them on a node, and slices, by window and region.
type Users = BTreeMap<(usize, u32), (u32, u32, u64)>;

/// Requests by window, region and class; and of each window and region: processes, most per node, slices.
fn cells(files: &[FileAccess]) -> (Cells, Users) {
    let (mut cells, mut facts) = (Cells::new(), BTreeMap::new());
    for file in files {
        for (number, window) in file.windows.iter().enumerate() {
            for region in &window.regions {
                for (class, count) in &region.counts {
                    *cells.entry((number, region.region.0, file.class(*class))).or_insert(0) += count;
                }
                let fact: &mut (u32, u32, u64) = facts.entry((number, region.region.0)).or_default();
                *fact = (fact.0 + region.processes, fact.1.max(region.processes_per_node), fact.2 | region.slices.0);
            }
        }
    }
    (cells, facts)
}

proptest! {
    #[test]
    fn merging_adds_up(parts in proptest::collection::vec(any_access(), 1..4)) {
        let merged = FileAccess::merge(parts.clone(), 100).unwrap();
        prop_assert_eq!(cells(std::slice::from_ref(&merged)), cells(&parts));
        prop_assert_eq!(merged.size_bytes, parts.iter().map(|part| part.size_bytes).max().unwrap());
        for (number, window) in merged.windows.iter().enumerate() {
            let of_parts = || parts.iter().filter_map(|part| Some(part.windows.get(number)?.processes));
            let sum = |count: fn(&WindowProcesses) -> u32| of_parts().map(|processes| count(&processes)).sum::<u32>();
            let most = |count: fn(&WindowProcesses) -> u32| of_parts().map(|processes| count(&processes)).max().unwrap();
            let WindowProcesses { file, run } = window.processes;
            prop_assert_eq!((file.processes, run.processes), (sum(|p| p.file.processes), sum(|p| p.run.processes)));
            prop_assert_eq!((file.per_node, run.per_node), (most(|p| p.file.per_node), most(|p| p.run.per_node)));
        }
        prop_assert_eq!(merged.windows.len(), parts.iter().map(|part| part.windows.len()).max().unwrap());
        let of_region = |region: &RegionAccess| region.counts.iter().map(|(_, count)| count).sum::<u64>();
        for (number, window) in merged.windows.iter().enumerate() {
            prop_assert!(window.regions.is_sorted_by_key(|region| region.region));
            prop_assert!(window.regions.iter().all(|region| region.counts.is_sorted_by_key(|(class, _)| *class)));
            let windows = parts.iter().filter_map(|part| part.windows.get(number));
            let weighed = windows.map(|window| {
                (window.regions.iter().map(of_region).sum::<u64>() as f64, window.company.same_region)
            });
            let (requests, sum) = weighed.fold((0.0, 0.0), |(all, sum), (one, value)| (all + one, sum + one * value));
            let expected = if parts.len() == 1 { parts[0].windows[number].company.same_region }
                else if requests == 0.0 { 0.0 } else { sum / requests };
            prop_assert!((window.company.same_region - expected).abs() < 1e-9);
            let distances = |company: Company| (company.skip_bytes, company.apart_bytes);
            let known = parts.iter().filter_map(|part| part.windows.get(number)).map(|window| distances(window.company));
            prop_assert!(known.chain([(0, 0)]).any(|known| known == distances(window.company)));
        }
        // Few classes allowed: requests stay.
        let few = FileAccess::merge(parts.clone(), 4).unwrap();
        prop_assert!(parts.len() == 1 || few.classes.len() <= 4);
        prop_assert_eq!(cells(&[few]).0.values().sum::<u64>(), cells(&parts).0.values().sum::<u64>());
    }
}

#[test]
fn what_does_not_belong_together_is_refused() {
    let access = |path: &str, region: u64, window_s: f64| FileAccess {
        path: path.to_owned(),
        size_bytes: 1,
        region_size: ByteCount(region),
        classes: Vec::new(),
        windows: vec![WindowAccess {
            start_s: 0.0,
            end_s: window_s,
            company: Company::default(),
            processes: WindowProcesses::default(),
            synchronizations: Synchronizations::default(),
            regions: Vec::new(),
        }],
    };
    let refuse = |other| FileAccess::merge(vec![access("/a", 4096, 5.0), other], 32).unwrap_err().to_string();
    assert!(refuse(access("/b", 4096, 5.0)).contains("/b and /a"));
    assert!(refuse(access("/a", 8192, 5.0)).contains("8192"));
    assert!(refuse(access("/a", 4096, 6.0)).contains("same windows"));
    assert_eq!(FileAccess::merge(Vec::new(), 32), Err(MergeError::Nothing));
}

#[test]
fn traces_are_aligned_at_their_starts() {
    let directory = tempfile::tempdir().unwrap();
    let trace = |name: &str, file: &str, ranks, requests_per_rank, start_unix_ns| {
        let path = directory.path().join(name);
        std::fs::create_dir(&path).unwrap();
        let workload = Workload {
            pattern: Pattern::Sequential,
            file_size: ByteCount(64 << 20),
            request_size: ByteCount(64 << 10),
            direction: Direction::Read,
            ranks,
            requests_per_rank,
            seed: 1,
        };
        let shape = TraceShape { file: file.to_owned(), start_unix_ns, ..TraceShape::default() };
        write_trace(&workload.generator().unwrap(), &shape, &path).unwrap();
        Trace::open(&path).unwrap()
    };
    let traces = [
        trace("one", "/data/shared", 4, 100, 1_700_000_000_000_000_000),
        trace("two", "/data/shared", 2, 400, 1_800_000_000_000_000_000),
        trace("three", "/data/own", 1, 10, 0),
    ];
    let options = CountOptions { window_s: 0.2, region_size: REGION, ..CountOptions::default() };
    let together = count_together(&traces, &options).unwrap().files;
    assert_eq!(together.iter().map(|file| file.path.as_str()).collect::<Vec<_>>(), ["/data/own", "/data/shared"]);
    let processes = |file: usize, window: usize| {
        let WindowProcesses { file, run } = together[file].windows[window].processes;
        (file.processes, run.processes)
    };
    // Of the run are the processes of all programs, also for the file that only one of them has.
    assert_eq!([processes(0, 0), processes(1, 0)], [(1, 7), (6, 7)]);
    assert_eq!([processes(0, 1), processes(1, 1)], [(0, 2), (2, 2)]);
    // One request each millisecond: 100 requests are half a window, 400 two windows.
    assert!(together.iter().all(|file| file.windows.len() == 2));
    let requests = |file: &FileAccess, window: usize| -> u64 {
        file.windows[window].regions.iter().flat_map(|region| &region.counts).map(|(_, count)| count).sum()
    };
    assert_eq!([requests(&together[1], 0), requests(&together[1], 1)], [4 * 100 + 2 * 200, 2 * 200]);
    assert_eq!([requests(&together[0], 0), requests(&together[0], 1)], [10, 0]);
    // The ten requests of the short program are at the very begin of the window that lasts as long as the longest program.
    assert!(together[0].windows[0].regions.iter().all(|region| region.slices.0 < 1 << 5));
    let alone = count(&traces[2], &options).unwrap();
    assert!(alone[0].windows[0].regions.iter().any(|region| region.slices.0 > 1 << 50));
    let first = &together[1].windows[0].regions[0];
    assert_eq!((first.region, first.processes), (RegionIndex(0), 2));
    assert_eq!(count_together(&[], &options).unwrap().files, []);
}
