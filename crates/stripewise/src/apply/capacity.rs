//! Whether there is space for all files of a plan, asked before the first is moved.
//!
//! The broker asks again for each file, by the same rules (`stripewise_broker::capacity`): a server's capacity holds what placed regions
//! may come to occupy, a region is placed where the file system has its share free, else in the fallback layout. What this adds is the sum:
//! files moved before take space from those after them, and give back what their originals took.

use super::error::ApplyError;
use super::step::{Action, Step};
use crate::limits;
use crate::moves::capacity::CapacityError;
use crate::paths::OnPath as _;
use crate::store::Store;
use rustix::fs::{SeekFrom, seek};
use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use stripewise_layout::{Cluster, Layout, Placement, RegionIndex};
use stripewise_planner::PlannedFile;
use stripewise_store::protocol::ServerUsage;

/// What is left of the servers.
struct FreeSpace {
    servers: Vec<Left>,
    /// Of each file system.
    free_bytes: HashMap<u64, u64>,
}

struct Left {
    name: String,
    /// Of the capacity; none without one.
    capacity_bytes: Option<u64>,
    /// Of what its file system has free.
    kept_free_bytes: u64,
    /// Number of the file system that the server lies on.
    file_system: u64,
    /// Why it is not known what is free.
    unknown: Option<String>,
}

struct Full {
    server: usize,
    asked_bytes: u64,
    left_bytes: u64,
}

/// A file that is to be moved.
struct Original {
    /// Regions that hold data, each with the most that is written there.
    regions: Vec<(RegionIndex, u64)>,
    /// Its file system, and the bytes that are free there once it is gone.
    frees: Option<(u64, u64)>,
}

/// Notes in `steps` how many regions find no space in their own layout and fall back; an error that names the first file with a region
/// that finds none at all, and the server.
pub(super) fn check(store: &Store, files: &[PlannedFile], steps: &mut [Step]) -> Result<(), ApplyError> {
    let mut space = FreeSpace::of(&store.cluster, store.usage()?);
    for (file, step) in files.iter().zip(steps).filter(|(_, step)| step.action == Action::Move) {
        let placement = file.initial();
        limits::check_region(&store.cluster, placement.region_size)?;
        let original = Original::open(&step.path, placement.region_size.0)?;
        step.fallback_regions = space.take(&step.path, placement, &original)?;
    }
    Ok(())
}

impl FreeSpace {
    fn of(cluster: &Cluster, usage: Vec<ServerUsage>) -> Self {
        let mut free_bytes = HashMap::new();
        let servers = cluster.ids().zip(usage).map(|(id, usage)| {
            let own = u64::MAX - u64::from(id.0);
            let file_system = usage.standing.as_ref().map_or(own, |standing| standing.file_system.unwrap_or(own));
            if let Ok(standing) = &usage.standing {
                free_bytes.insert(file_system, standing.free_bytes);
            }
            Left {
                capacity_bytes: cluster.room_bytes(id).map(|capacity| capacity.saturating_sub(usage.promised_bytes)),
                name: usage.name,
                kept_free_bytes: cluster.kept_free_bytes(id),
                file_system,
                // The broker places nothing on a server with a fault, but on others in its place.
                unknown: usage.standing.err().filter(|_| usage.fault.is_none()),
            }
        });
        Self { servers: servers.collect(), free_bytes }
    }

    /// Takes what one file needs, region by region; the number of regions that fell back.
    fn take(&mut self, path: &Path, placement: &Placement, original: &Original) -> Result<u64, ApplyError> {
        let region_bytes = placement.region_size.0;
        let mut fallback_regions = 0;
        for (region, written_bytes) in &original.regions {
            let (own, fallback) = (placement.layout_of(*region), placement.fallback_layout());
            self.check_known(own)?;
            let Err(_) = self.take_region(own, region_bytes, *written_bytes) else { continue };
            fallback_regions += 1;
            if let Err(full) = self.take_region(fallback, region_bytes, *written_bytes) {
                return Err(ApplyError::NoSpace {
                    region: *region,
                    path: path.to_owned(),
                    server: self.servers[full.server].name.clone(),
                    left_bytes: full.left_bytes,
                    asked_bytes: full.asked_bytes,
                });
            }
        }
        if let Some((file_system, bytes)) = original.frees {
            self.free_bytes.entry(file_system).and_modify(|free| *free += bytes);
        }
        Ok(fallback_regions)
    }

    fn check_known(&self, layout: &Layout) -> Result<(), ApplyError> {
        let mut servers = layout.stripes().iter().map(|stripe| &self.servers[usize::from(stripe.server.0)]);
        match servers.find_map(|server| server.unknown.as_ref().zip(Some(&server.name))) {
            Some((why, server)) => Err(CapacityError::Unknown { server: server.clone(), why: why.clone() }.into()),
            None => Ok(()),
        }
    }

    /// Takes one region, of which `written_bytes` will be written, if every server has space for its full share; else nothing.
    fn take_region(&mut self, layout: &Layout, region_bytes: u64, written_bytes: u64) -> Result<(), Full> {
        let share = |turn, bytes| layout.view().object_bytes(turn, bytes);
        let turns = || layout.stripes().iter().map(|stripe| usize::from(stripe.server.0)).enumerate();
        let mut asked: HashMap<u64, u64> = HashMap::new();
        for (turn, server) in turns() {
            let (left, asked_bytes) = (&self.servers[server], share(turn, region_bytes));
            let full = |left_bytes| Full { server, asked_bytes, left_bytes };
            if let Some(capacity) = left.capacity_bytes.filter(|capacity| *capacity < asked_bytes) {
                return Err(full(capacity));
            }
            let asked = asked.entry(left.file_system).or_default();
            let free =
                self.free_bytes.get(&left.file_system).map(|free| free.saturating_sub(left.kept_free_bytes + *asked));
            if let Some(free) = free.filter(|free| *free < asked_bytes) {
                return Err(full(free));
            }
            *asked += asked_bytes;
        }
        for (turn, server) in turns() {
            let left = &mut self.servers[server];
            left.capacity_bytes = left.capacity_bytes.map(|capacity| capacity - share(turn, region_bytes));
            let written = share(turn, written_bytes);
            self.free_bytes.entry(left.file_system).and_modify(|free| *free = free.saturating_sub(written));
        }
        Ok(())
    }
}

impl Original {
    fn open(path: &Path, region_bytes: u64) -> Result<Self, ApplyError> {
        let file = File::open(path).on("look at", path)?;
        let metadata = file.metadata().on("look at", path)?;
        let size_bytes = metadata.len();
        let mut regions = Vec::new();
        let mut offset = 0;
        while offset < size_bytes {
            // Past the last data: ENXIO. File systems that know no holes call all of it data.
            let Ok(data) = seek(&file, SeekFrom::Data(offset)) else { break };
            let number = data / region_bytes;
            offset = (number + 1) * region_bytes;
            let written_bytes = region_bytes.min(size_bytes - number * region_bytes);
            regions.push((
                RegionIndex(u32::try_from(number).map_err(std::io::Error::other).on("look at", path)?),
                written_bytes,
            ));
        }
        // A file with further names stays under them.
        let frees = (metadata.nlink() == 1).then(|| (metadata.dev(), metadata.blocks() * 512));
        Ok(Self { regions, frees })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stripewise_layout::{ByteCount, ServerId};

    const REGION: u64 = 1 << 20;

    fn server(name: &str, capacity_bytes: Option<u64>, file_system: u64) -> Left {
        Left { name: name.into(), capacity_bytes, kept_free_bytes: 10, file_system, unknown: None }
    }

    fn original(sizes: &[u64], frees: Option<(u64, u64)>) -> Original {
        Original { regions: (0..).map(RegionIndex).zip(sizes.iter().copied()).collect(), frees }
    }

    /// On servers 0 and 1 in halves; else on server 0.
    fn halves() -> Placement {
        let layout = Layout::new([(ServerId(0), 1 << 10), (ServerId(1), 1 << 10)]).unwrap();
        Placement::from_regions(
            ByteCount(REGION),
            [layout.clone()],
            layout,
            Layout::new([(ServerId(0), 1 << 10)]).unwrap(),
        )
    }

    #[test]
    fn capacities_hold_full_regions_of_all_files_and_full_servers_send_regions_to_the_fallback() {
        let mut space = FreeSpace {
            servers: vec![server("a", Some(3 * REGION), 1), server("b", Some(REGION), 2)],
            free_bytes: HashMap::from([(1, 1 << 40), (2, 1 << 40)]),
        };
        let mut take = |sizes: &[u64]| space.take(Path::new("/d/f"), &halves(), &original(sizes, None));
        assert_eq!(take(&[5]).unwrap(), 0);
        assert_eq!(take(&[REGION, 5]).unwrap(), 1, "b is full, a takes all of the second region");
        let said = take(&[5, 5]).unwrap_err().to_string();
        assert!(said.starts_with("no space for region 1 of /d/f: server a has 0 B left of the 1 MiB"), "{said}");
    }

    #[test]
    fn servers_on_one_file_system_share_what_is_free_and_originals_give_theirs_back() {
        let space = |free_bytes| FreeSpace {
            servers: vec![server("a", None, 1), server("b", None, 1)],
            free_bytes: HashMap::from([(1, free_bytes)]),
        };
        let take = |space: &mut FreeSpace, frees| space.take(Path::new("f"), &halves(), &original(&[REGION], frees));
        assert!(take(&mut space(REGION + 9), None).is_err());
        let mut space = space(REGION + 10);
        take(&mut space, Some((1, REGION))).unwrap();
        assert_eq!(space.free_bytes[&1], REGION + 10);
        take(&mut space, Some((7, REGION))).unwrap();
        assert!(take(&mut space, None).is_err());
    }

    #[test]
    fn only_regions_with_data_are_placed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("sparse");
        let file = File::create(&path).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, b"x", 5 * REGION + 7).unwrap();
        let found = Original::open(&path, REGION).unwrap().regions;
        assert!(found == [(RegionIndex(5), 8)] || found.len() == 6, "{found:?}");
    }
}
