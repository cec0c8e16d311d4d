//! Small clusters, profiles and accesses.

use proptest::prelude::*;
use stripewise_layout::{ByteCount, Cluster, Direction, Order, RegionIndex, Server, ServerClass, ServerUrl};
use stripewise_model::{Concurrency, Line, NetworkProfile, NetworkSource, PROFILE_VERSION, Profile, ServerProfile};
use stripewise_planner::{PlanKey, PlanOptions, PlanRequest, Sources};
use stripewise_trace::{
    AccessClass, ClassIndex, Company, FileAccess, RegionAccess, Slices, Synchronizations, WindowAccess, WindowProcesses,
};

pub(crate) const KIB: u64 = 1 << 10;
pub(crate) const MIB: u64 = 1 << 20;
pub(crate) const GIB: u64 = 1 << 30;

/// `hservers` HServers and then `sservers` SServers, each of those with `ssd_room_bytes` if given.
pub(crate) fn cluster(hservers: usize, sservers: usize, region_bytes: u64, ssd_room_bytes: Option<u64>) -> Cluster {
    let server = |class: ServerClass, index: usize, capacity: Option<u64>| Server {
        capacity: capacity.map(ByteCount),
        ..Server::new(format!("{class}{index}"), class, ServerUrl::new("file", format!("/servers/{class}{index}")))
    };
    let hdd = (0..hservers).map(|index| server(ServerClass::Hdd, index, None));
    let ssd = (0..sservers).map(|index| server(ServerClass::Ssd, index, ssd_room_bytes));
    Cluster::new("testbed", "/state", ByteCount(region_bytes), hdd.chain(ssd).collect())
}

/// Startup and transfer of one class: sequential read, random read, sequential write, random write, in (s, s/byte).
pub(crate) type ClassLines = [(f64, f64); 4];

/// A disk of about 2012 and an SSD of its time.
pub(crate) const DISK: ClassLines = [(0.4e-3, 10e-9), (5.0e-3, 10e-9), (0.5e-3, 10e-9), (4.0e-3, 10e-9)];
pub(crate) const FLASH: ClassLines = [(0.1e-3, 4e-9), (0.12e-3, 4e-9), (0.15e-3, 6e-9), (0.3e-3, 6e-9)];

pub(crate) fn profile(cluster: &Cluster, hdd: ClassLines, ssd: ClassLines, e_s: f64, t_s_per_byte: f64) -> Profile {
    let servers = cluster.servers.iter().map(|server| {
        let lines = if server.class == ServerClass::Hdd { hdd } else { ssd };
        let line = |(alpha_s, beta_s_per_byte)| Line { alpha_s, beta_s_per_byte, r2: 0.99, spread: 0.05, samples: 100 };
        ServerProfile {
            name: server.name.clone(),
            class: server.class,
            read_sequential: line(lines[0]),
            read_random: line(lines[1]),
            write_sequential: line(lines[2]),
            write_random: line(lines[3]),
            buffered_write: None,
            synchronous_write: None,
            flush_wait: None,
        }
    });
    Profile {
        version: PROFILE_VERSION,
        cluster: cluster.id.clone(),
        emulated: false,
        measured_at: "2024-01-01T00:00:00Z".to_owned(),
        servers: servers.collect(),
        network: NetworkProfile { e_s, t_s_per_byte, source: NetworkSource::Given },
        caveats: Vec::new(),
    }
}

pub(crate) fn request<'a>(cluster: &'a Cluster, profile: &'a Profile, files: &'a [FileAccess]) -> PlanRequest<'a> {
    PlanRequest {
        cluster,
        profile,
        files,
        key: PlanKey::new("app", 32),
        sources: Sources::default(),
        options: PlanOptions::default(),
        free_bytes: &[],
        promises_whole_regions: false,
        concurrency: Some(Concurrency { processes: 32, processes_per_node: 1 }),
    }
}

/// One window in which every region sees each class as often as `counts` says for it.
pub(crate) fn file(
    path: &str,
    size_bytes: u64,
    region_bytes: u64,
    classes: &[AccessClass],
    counts: &[&[u64]],
) -> FileAccess {
    let regions = counts.iter().enumerate().map(|(region, counts)| RegionAccess {
        region: RegionIndex(region as u32),
        counts: counts.iter().enumerate().filter(|(_, n)| **n > 0).map(|(c, n)| (ClassIndex(c as u16), *n)).collect(),
        processes: 32,
        processes_per_node: 1,
        slices: Slices::ALL,
    });
    FileAccess {
        path: path.to_owned(),
        size_bytes,
        region_size: ByteCount(region_bytes),
        classes: classes.to_vec(),
        windows: vec![WindowAccess {
            start_s: 0.0,
            end_s: 600.0,
            company: Company::default(),
            processes: WindowProcesses::default(),
            synchronizations: Synchronizations::default(),
            regions: regions.filter(|region| !region.counts.is_empty()).collect(),
        }],
    }
}

pub(crate) fn class(direction: Direction, request_bytes: u64, order: Order) -> AccessClass {
    AccessClass { kind: direction.into(), request_bytes, order }
}

fn classes(region_bytes: u64) -> impl Strategy<Value = Vec<AccessClass>> {
    let size = prop_oneof![
        (1..=region_bytes / 4096).prop_map(|steps| steps * 4096),
        1..=region_bytes,
        Just(65_536.min(region_bytes)),
    ];
    let one = (any::<bool>(), size, any::<bool>()).prop_map(|(write, request_bytes, random)| AccessClass {
        kind: if write { Direction::Write } else { Direction::Read }.into(),
        request_bytes,
        order: if random { Order::Random } else { Order::Sequential },
    });
    proptest::collection::vec(one, 1..5)
}

/// Files with up to `windows` windows of regions with few requests.
pub(crate) fn files(region_bytes: u64, windows: usize) -> impl Strategy<Value = Vec<FileAccess>> {
    let region = (proptest::option::weighted(0.7, proptest::collection::vec(0u64..6, 4)), 1u32..40, 1u32..5);
    let window = proptest::collection::vec(region, 1..7);
    let one = (classes(region_bytes), proptest::collection::vec(window, 1..=windows), 0..3 * region_bytes);
    proptest::collection::vec(one, 1..3).prop_map(move |files| {
        let made = files.into_iter().enumerate().map(|(number, (classes, windows, extra))| {
            let count = windows.iter().map(Vec::len).max().unwrap_or(0) as u64;
            let windows = windows.into_iter().enumerate().map(|(window, regions)| WindowAccess {
                start_s: window as f64 * 600.0,
                end_s: (window + 1) as f64 * 600.0,
                company: Company::default(),
                processes: WindowProcesses::default(),
                synchronizations: Synchronizations::default(),
                regions: regions_of(regions, classes.len()),
            });
            FileAccess {
                path: format!("/data/file{number}"),
                size_bytes: (count * region_bytes + extra).saturating_sub(region_bytes / 3),
                region_size: ByteCount(region_bytes),
                windows: windows.collect(),
                classes,
            }
        });
        made.collect()
    })
}

type DrawnRegion = (Option<Vec<u64>>, u32, u32);

fn regions_of(drawn: Vec<DrawnRegion>, classes: usize) -> Vec<RegionAccess> {
    let accessed = drawn.into_iter().enumerate().filter_map(|(region, (counts, processes, processes_per_node))| {
        let counts: Vec<(ClassIndex, u64)> = counts?
            .into_iter()
            .take(classes)
            .enumerate()
            .filter(|(_, count)| *count > 0)
            .map(|(class, count)| (ClassIndex(class as u16), count))
            .collect();
        let region = RegionIndex(region as u32);
        (!counts.is_empty()).then_some(RegionAccess {
            region,
            counts,
            processes,
            processes_per_node,
            slices: Slices::ALL,
        })
    });
    accessed.collect()
}

/// Whether there is any request at all; planning refuses input without.
pub(crate) fn has_requests(files: &[FileAccess]) -> bool {
    files.iter().any(|file| file.windows.iter().any(|window| !window.regions.is_empty()))
}

/// Profiles with all kinds of relations between the classes.
pub(crate) fn lines() -> impl Strategy<Value = ClassLines> {
    let line = || (0.0..8e-3f64, 1e-10..2e-8f64);
    (line(), line(), line(), line()).prop_map(|(a, b, c, d)| [a, b, c, d])
}
