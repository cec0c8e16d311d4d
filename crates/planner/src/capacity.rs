//! How many bytes every server may still take, and the ledger that policies book regions in.

use stripewise_layout::{ByteCount, Cluster, Layout, ServerClass, ServerId, figures};

/// Regions of a proposed size that the SServers hold at least, so that there is a choice among regions.
const REGIONS_ON_SSD: u64 = 8;

/// Smaller regions cost more in the mapping table than SServers of that size can bring.
const MIN_PROPOSED_REGION: u64 = 64 << 10;

/// Room of every server in cluster order; `None` is unknown and counts as unbounded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Capacity {
    bytes: Vec<Option<u64>>,
}

impl Capacity {
    /// Capacity less reserve and what is set aside for fragments where the cluster file gives a capacity, and no more than the free space less
    /// both where that is known. `ssd_room` replaces that for every SServer. Servers named in `exclude` have none.
    #[must_use]
    pub fn of(cluster: &Cluster, free_bytes: &[Option<u64>], ssd_room: Option<ByteCount>, exclude: &[String]) -> Self {
        let bytes = cluster.ids().zip(&cluster.servers).map(|(id, server)| {
            let free = free_bytes.get(usize::from(id.0)).copied().flatten();
            match (server.class, ssd_room) {
                _ if exclude.contains(&server.name) => Some(0),
                (ServerClass::Ssd, Some(capacity)) => Some(capacity.0),
                _ => {
                    let free = free.map(|free| free.saturating_sub(cluster.kept_free_bytes(id)));
                    cluster.room_bytes(id).into_iter().chain(free).min()
                }
            }
        });
        Self { bytes: bytes.collect() }
    }

    /// Bytes that may be filled on a server, if known; nothing is planned for a server with 0.
    #[must_use]
    pub fn bytes(&self, server: usize) -> Option<u64> {
        self.bytes.get(server).copied().flatten()
    }

    /// Says that no region of this size fits on the `ssd` servers, however it is striped over them, and which size would fit. The broker promises
    /// every region its full size, also where its file ends before. `has_parts`: the plan puts stripes of regions there all the same.
    pub(crate) fn too_large_region(&self, ssd: &[ServerId], region_size: ByteCount, has_parts: bool) -> Option<String> {
        let bytes = ssd.iter().map(|id| self.bytes(usize::from(id.0))).collect::<Option<Vec<u64>>>()?;
        // Over the k largest, evenly; servers with capacity 0 are to stay unused.
        let mut bytes: Vec<u64> = bytes.into_iter().filter(|bytes| *bytes > 0).collect();
        bytes.sort_unstable_by(|a, b| b.cmp(a));
        let largest =
            (1..).zip(&bytes).map(|(servers, smallest): (u64, &u64)| servers.saturating_mul(*smallest)).max()?;
        if region_size.0 <= largest {
            return None;
        }
        let fits = (largest / REGIONS_ON_SSD).checked_ilog2().map_or(0, |log2| 1u64 << log2);
        let remedy = match fits >= MIN_PROPOSED_REGION {
            true => format!("plan with --region {} (or `init` with it), or give them more capacity", ByteCount(fits)),
            false => "give them more capacity".to_owned(),
        };
        let (fits, so) = match has_parts {
            true => ("lies on the SSD servers alone", "they hold parts of regions"),
            false => ("fits on the SSD servers", "they stay unused"),
        };
        Some(format!(
            "no region of {} {fits}, which have space for one of {} at most, so {so}; {remedy}",
            figures::bytes(region_size.0),
            figures::bytes(largest)
        ))
    }

    /// Bytes that all servers together may take; `None` when that of any is unknown.
    #[must_use]
    pub fn total_bytes(&self) -> Option<u128> {
        self.bytes.iter().map(|bytes| bytes.map(u128::from)).sum()
    }
}

/// What is booked on every server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Ledger<'a> {
    capacity: &'a Capacity,
    used_bytes: Vec<u64>,
    /// Servers and their bytes of the region at hand: kept, since thousands of regions are booked.
    parts: Vec<(usize, u64)>,
}

impl<'a> Ledger<'a> {
    pub(crate) fn new(capacity: &'a Capacity) -> Self {
        Self { used_bytes: vec![0; capacity.bytes.len()], parts: Vec::new(), capacity }
    }

    /// Books `region_bytes` under `layout` if its part fits on each of `servers`; books nothing otherwise. Stripes of a class are equal,
    /// so the SServer with the least room decides for all.
    pub(crate) fn book(&mut self, layout: &Layout, region_bytes: u64, servers: &[stripewise_layout::ServerId]) -> bool {
        let view = layout.view();
        let of_class = layout.stripes().iter().enumerate().filter(|(_, stripe)| servers.contains(&stripe.server));
        self.parts.clear();
        self.parts.extend(
            of_class.map(|(turn, stripe)| (usize::from(stripe.server.0), view.object_bytes(turn, region_bytes))),
        );
        let fits = self.parts.iter().all(|(server, bytes)| {
            self.capacity.bytes[*server]
                .is_none_or(|capacity| self.used_bytes[*server].saturating_add(*bytes) <= capacity)
        });
        if fits {
            self.parts.iter().for_each(|(server, bytes)| self.used_bytes[*server] += bytes);
        }
        fits
    }

    /// Books so many regions without asking for room.
    pub(crate) fn add(&mut self, layout: &Layout, region_bytes: u64, regions: u64) {
        let view = layout.view();
        for (turn, stripe) in layout.stripes().iter().enumerate() {
            self.used_bytes[usize::from(stripe.server.0)] += regions * view.object_bytes(turn, region_bytes);
        }
    }

    pub(crate) fn used_bytes(&self) -> &[u64] {
        &self.used_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn what_is_set_aside_for_fragments_is_no_room() {
        let server = |name: &str, class: &str, more: &str| {
            format!("[[server]]\nname = \"{name}\"\nclass = \"{class}\"\nurl = \"file://{name}\"\n{more}")
        };
        let servers = [
            server("h0", "hdd", ""),
            server("h1", "hdd", "fragment_room = \"64KiB\"\nfragments_on = \"s1\"\n"),
            server("s0", "ssd", "capacity = \"100KiB\"\nreserve = \"4KiB\"\n"),
            server("s1", "ssd", "reserve = \"4KiB\"\n"),
        ];
        let text = format!("version = 1\nid = \"c\"\nstate = \"s\"\nfragment_room = \"32KiB\"\n{}", servers.concat());
        let cluster = Cluster::parse(&text, Path::new("/x/cluster.toml")).unwrap();
        let capacity = |free: &[Option<u64>]| {
            let capacity = Capacity::of(&cluster, free, None, &[]);
            [0, 1, 2, 3].map(|server| capacity.bytes(server).map(|bytes| bytes >> 10))
        };
        assert_eq!(capacity(&[]), [None, None, Some(64), None]);
        assert_eq!(capacity(&[Some(100 << 10); 4]), [Some(100), Some(100), Some(64), Some(32)]);
        assert_eq!(capacity(&[Some(10 << 10); 4])[3], Some(0), "less is free than has to be left");
        assert_eq!(capacity(&[Some(56 << 10); 4])[2], Some(20), "less is free than its capacity");
    }

    #[test]
    fn regions_that_no_ssd_holds_are_named_with_a_size_that_fits() {
        let capacity = Capacity { bytes: vec![None, Some(64 << 20), Some(40 << 20), Some(0)] };
        let said = |ssd: &[u16], region: u64| {
            let ssd: Vec<ServerId> = ssd.iter().copied().map(ServerId).collect();
            capacity.too_large_region(&ssd, ByteCount(region), false)
        };
        // Over both: 40 MiB on each.
        assert_eq!((said(&[1], 64 << 20), said(&[1, 2, 3], 80 << 20)), (None, None));
        let one = said(&[1], 65 << 20).unwrap();
        assert!(one.contains("no region of 65 MiB fits") && one.contains("space for one of 64 MiB"), "{one}");
        assert!(one.contains("--region 8MiB"), "{one}");
        assert!(said(&[1, 2, 3], 81 << 20).unwrap().contains("--region 8MiB"));
        // Without capacity, with none at all, or where none is known.
        assert_eq!((said(&[3], 4096), said(&[], 4096), said(&[0, 1], 1 << 40)), (None, None, None));
        let small = Capacity { bytes: vec![Some(300 << 10)] };
        let said = small.too_large_region(&[ServerId(0)], ByteCount(1 << 20), true).unwrap();
        assert!(
            said.contains("no region of 1 MiB lies on the SSD servers alone") && !said.contains("unused"),
            "{said}"
        );
        assert!(said.ends_with("; give them more capacity"), "{said}");
    }
}
