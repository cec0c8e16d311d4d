//! The capacity of every server for the files that are watched.

use std::collections::BTreeMap;
use stripewise_layout::{ByteCount, Cluster, FileId, Layout, Placement, RegionIndex, ServerClass, ServerId};
use stripewise_store::protocol::{RegionInfo, ServerUsage};
use stripewise_trace::FileAccess;

/// A file at the end of a window.
pub(super) struct Now {
    pub(super) file: FileId,
    /// As it is expected to be used.
    pub(super) access: FileAccess,
    pub(super) regions: Vec<RegionInfo>,
    /// Regions on their way, which are left to it.
    pub(super) moving: BTreeMap<RegionIndex, Layout>,
    pub(super) placement: Placement,
}

/// Servers whose capacities differ by no more than this part of them are planned for as alike.
const ALIKE_SHARE: f64 = 0.1;

/// The cluster with the capacity on every server that these files may use: what they have and what is free.
pub(super) fn with_space_for(
    cluster: &Cluster,
    usage: &[ServerUsage],
    files: &[&Now],
    ssd_capacity: Option<ByteCount>,
) -> Cluster {
    let mut own_bytes = vec![0u64; cluster.servers.len()];
    for now in files {
        let count = now.regions.last().map_or(0, |last| last.region.0 + 1);
        for layout in (0..count).map(|region| now.placement.layout_of(RegionIndex(region))) {
            for (turn, stripe) in layout.stripes().iter().enumerate() {
                if let Some(own) = own_bytes.get_mut(usize::from(stripe.server.0)) {
                    *own += layout.view().object_bytes(turn, now.access.region_size.0);
                }
            }
        }
    }
    let mut fitted = cluster.clone();
    if let Some(now) = files.first() {
        fitted.region_size = now.access.region_size;
    }
    let capacities: Vec<u64> = (0..)
        .map(ServerId)
        .zip(usage.iter().zip(&own_bytes))
        .map(|(id, (usage, own))| match usage.room_bytes {
            Some(capacity) => capacity.saturating_sub(usage.promised_bytes.saturating_sub(*own)),
            None => {
                // Nothing is planned for a server that does not say what it has free: `online` leaves it out.
                let free = usage.standing.as_ref().map_or(0, |standing| standing.free_bytes);
                free.saturating_sub(cluster.kept_free_bytes(id)).saturating_add(*own)
            }
        })
        .zip(&cluster.servers)
        .map(|(capacity, server)| match ssd_capacity {
            Some(most) if server.class == ServerClass::Ssd => most.0.min(capacity),
            _ => capacity,
        })
        .collect();
    for (number, capacity) in capacities.iter().enumerate() {
        // Servers with a little more capacity than others would be planned for as of another kind.
        let alike = |other: &&u64| other.abs_diff(*capacity) as f64 <= ALIKE_SHARE * (**other).max(*capacity) as f64;
        let class = cluster.servers[number].class;
        let of_class = capacities.iter().zip(&cluster.servers).filter(|(_, server)| server.class == class);
        let least = of_class.map(|(capacity, _)| capacity).filter(alike).min().copied().unwrap_or(*capacity);
        // What lies there fits, however little is free.
        let least = least.max(own_bytes[number].min(*capacity));
        let kept_free = fitted.kept_free_bytes(ServerId(number as u16));
        fitted.servers[number].capacity = Some(ByteCount(least.saturating_add(kept_free)));
    }
    fitted
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::path::Path;
    use stripewise_layout::{FileId, Layout, Placement};
    use stripewise_store::protocol::RegionInfo;
    use stripewise_trace::FileAccess;

    fn layout(server: u16) -> Layout {
        Layout::new([(ServerId(server), 4096)]).unwrap()
    }

    /// A file of regions of 10 bytes on these servers.
    fn file(on: &[u16]) -> Now {
        let region_size = ByteCount(10);
        let layouts = on.iter().map(|server| layout(*server));
        let placement = Placement::from_regions(region_size, layouts, layout(0), layout(0));
        let info = |(number, server): (u32, &u16)| RegionInfo {
            region: RegionIndex(number),
            generation: stripewise_layout::Generation(1),
            stripes: vec![(*server, 4096)],
            fell_back: false,
            replicas: Vec::new(),
        };
        let access = FileAccess {
            path: "/f".into(),
            size_bytes: 10 * on.len() as u64,
            region_size,
            classes: Vec::new(),
            windows: Vec::new(),
        };
        let regions = (0..).zip(on).map(info).collect();
        Now { file: FileId(1), access, regions, moving: BTreeMap::new(), placement }
    }

    /// What others have on a server is not planned with; servers that differ little are alike, but what lies there fits.
    #[test]
    fn capacity_is_what_is_free_and_what_the_files_have() {
        let servers = ["h0=hdd", "s0=ssd", "s1=ssd", "s2=ssd"].map(|server| {
            let (name, class) = server.split_once('=').unwrap();
            format!("[[server]]\nname = \"{name}\"\nclass = \"{class}\"\nurl = \"file:///{name}\"\ncapacity = 1000\nreserve = 100\n")
        });
        let toml = format!("version = 1\nid = \"c\"\nstate = \"s\"\n{}", servers.concat());
        let cluster = Cluster::parse(&toml, Path::new("/x/cluster.toml")).unwrap();
        let capacities = |promised: [u64; 4], on: &[u16], ssd_capacity| {
            let usage = promised.map(|promised_bytes| ServerUsage {
                name: String::new(),
                promised_bytes,
                room_bytes: Some(900),
                objects: 0,
                drained: false,
                fault: None,
                silent_s: None,
                standing: Err("nobody asked".to_owned()),
            });
            let file = file(on);
            let fitted = with_space_for(&cluster, &usage, &[&file], ssd_capacity);
            assert_eq!(fitted.region_size, ByteCount(10));
            (0..4).map(|server| fitted.room_bytes(ServerId(server)).unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(capacities([10, 20, 0, 0], &[0, 1, 1], None), [900, 900, 900, 900]);
        // s0 has 30 bytes of others, s2 500: the first is like s1, the other is not.
        assert_eq!(capacities([10, 50, 0, 500], &[0, 1, 1], None), [900, 870, 870, 400]);
        assert_eq!(capacities([10, 20, 0, 0], &[0, 1, 1], Some(ByteCount(55))), [900, 55, 55, 55]);
        let full: Vec<u16> = [1].repeat(90);
        assert_eq!(capacities([0, 900, 60, 0], &full, None), [900, 900, 840, 840]);
    }
}
