//! A cluster, its profile and a file's accesses, for the tests of policies.

use stripewise_layout::{ByteCount, Cluster, Direction, Order, RegionIndex, Server, ServerClass, ServerUrl};
use stripewise_model::{Line, NetworkProfile, NetworkSource, PROFILE_VERSION, Profile, ServerProfile};
use stripewise_trace::{
    AccessClass, ClassIndex, Company, FileAccess, RegionAccess, Slices, Synchronizations, WindowAccess, WindowProcesses,
};

pub(crate) const REGION_BYTES: u64 = 1 << 20;

/// Servers of both classes; each SSD has space for so many regions.
pub(crate) fn cluster(hservers: usize, sservers: usize, ssd_regions: u64) -> Cluster {
    let server = |class: ServerClass, index: usize| Server {
        capacity: (class == ServerClass::Ssd).then_some(ByteCount(ssd_regions * REGION_BYTES)),
        ..Server::new(format!("{class}{index}"), class, ServerUrl::new("file", format!("/servers/{class}{index}")))
    };
    let hdd = (0..hservers).map(|index| server(ServerClass::Hdd, index));
    let ssd = (0..sservers).map(|index| server(ServerClass::Ssd, index));
    Cluster::new("fixture", "/state", ByteCount(REGION_BYTES), hdd.chain(ssd).collect())
}

/// Disks that seek and SSDs that do not.
pub(crate) fn profile(cluster: &Cluster) -> Profile {
    let servers = cluster.servers.iter().map(|server| {
        let alpha_s = if server.class == ServerClass::Hdd { 5e-3 } else { 1e-4 };
        let line = || Line { alpha_s, beta_s_per_byte: 8e-9, r2: 1.0, spread: 0.0, samples: 100 };
        ServerProfile {
            name: server.name.clone(),
            class: server.class,
            read_sequential: line(),
            read_random: line(),
            write_sequential: line(),
            write_random: line(),
            buffered_write: None,
            synchronous_write: None,
            flush_wait: None,
        }
    });
    Profile {
        version: PROFILE_VERSION,
        cluster: cluster.id.clone(),
        emulated: false,
        measured_at: String::new(),
        servers: servers.collect(),
        network: NetworkProfile { e_s: 1e-4, t_s_per_byte: 8e-9, source: NetworkSource::Given },
        caveats: Vec::new(),
    }
}

/// Reads of 64 KiB by so many processes, so many of each region of 1 MiB.
pub(crate) fn file(requests: &[u64], processes: u32) -> FileAccess {
    file_of("/data/a", REGION_BYTES, requests, processes)
}

/// The same of a named file in regions of any size.
pub(crate) fn file_of(path: &str, region_bytes: u64, requests: &[u64], processes: u32) -> FileAccess {
    let regions = requests.iter().enumerate().filter(|(_, count)| **count > 0).map(|(region, count)| RegionAccess {
        region: RegionIndex(region as u32),
        counts: vec![(ClassIndex(0), *count)],
        processes,
        processes_per_node: 1,
        slices: Slices::ALL,
    });
    FileAccess {
        path: path.to_owned(),
        size_bytes: requests.len() as u64 * region_bytes,
        region_size: ByteCount(region_bytes),
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
