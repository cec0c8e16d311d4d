//! Where objects lie on the devices of servers that are modelled in detail: extents in order of allocation.
//!
//! Before the run all files are laid out, file by file and region by region, as if they had been written in order; a region that
//! moves gets new extents behind everything else. What does not fit begins again at the device's start: this is about places,
//! not about room.

use crate::places::{Cycle, Places};
use stripewise_layout::RegionIndex;

/// The first addresses of a region's objects, by turn of its cycle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Extents(u32);

pub(crate) struct Addresses {
    /// Bytes of each server's device.
    capacities: Vec<u64>,
    next: Vec<u64>,
    /// Extents of all regions, one after the other.
    starts: Vec<u64>,
    regions: Vec<Vec<Extents>>,
}

impl Addresses {
    pub(crate) fn new(capacities: Vec<u64>, places: &Places<'_>) -> Self {
        let next = vec![0; capacities.len()];
        let mut addresses = Self { capacities, next, starts: Vec::new(), regions: Vec::new() };
        for (number, file) in places.files.iter().enumerate() {
            let regions = (0..file.regions()).map(|region| {
                let region = RegionIndex(region);
                let bytes = file.geometry.used_bytes(region, file.size_bytes);
                addresses.allocate(places.cycle(places.cycle_number(number, region)), bytes)
            });
            let extents = regions.collect();
            addresses.regions.push(extents);
        }
        addresses
    }

    /// Extents for a region's first `bytes`.
    pub(crate) fn allocate(&mut self, cycle: &Cycle, bytes: u64) -> Extents {
        let extents = Extents(self.starts.len() as u32);
        for (turn, server) in cycle.servers().enumerate() {
            let next = &mut self.next[server as usize];
            self.starts.push(*next);
            *next += cycle.object_bytes(turn, bytes);
        }
        extents
    }

    /// Bytes given out on a server, at most its capacity.
    pub(crate) fn used_bytes(&self, server: usize) -> u64 {
        self.next[server].min(self.capacities[server])
    }

    pub(crate) fn extents(&self, file: usize, region: RegionIndex) -> Option<Extents> {
        self.regions[file].get(region.0 as usize).copied()
    }

    pub(crate) fn set(&mut self, file: usize, region: RegionIndex, extents: Extents) {
        self.regions[file][region.0 as usize] = extents;
    }

    /// The address of a byte of an object. Regions past the announced size of the file lie behind everything.
    pub(crate) fn address(&self, extents: Option<Extents>, turn: u32, server: u32, offset: u64) -> u64 {
        let start = match extents {
            Some(Extents(first)) => self.starts[(first + turn) as usize],
            None => self.next[server as usize],
        };
        (start + offset) % self.capacities[server as usize].max(1)
    }
}
