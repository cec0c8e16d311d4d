//! Where every region lies now: the layouts of a file's windows, each kept once, and the number of its layout for each region.

use crate::scenario::{FilePlacements, SimError};
use std::collections::HashMap;
use stripewise_layout::{Layout, Placement, RegionGeometry, RegionIndex};

/// The part of a request that falls on one server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Part {
    /// Position in the layout's cycle.
    pub(crate) turn: u32,
    pub(crate) server: u32,
    /// Byte position in the object.
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

#[derive(Clone, Copy, Debug)]
struct Turn {
    server: u32,
    size_bytes: u64,
    /// Bytes of the cycle before this turn.
    before_bytes: u64,
}

/// A layout prepared so that a short request costs no look at stripes that it does not touch.
#[derive(Clone, Debug)]
pub(crate) struct Cycle {
    turns: Vec<Turn>,
    bytes: u64,
}

impl Cycle {
    fn new(layout: &Layout) -> Self {
        let mut bytes = 0;
        let turns = layout.stripes().iter().map(|stripe| {
            let size_bytes = u64::from(stripe.size_bytes);
            bytes += size_bytes;
            Turn { server: u32::from(stripe.server.0), size_bytes, before_bytes: bytes - size_bytes }
        });
        Self { turns: turns.collect(), bytes }
    }

    /// Share of the bytes on the servers for which `is` holds.
    pub(crate) fn share_on(&self, is: impl Fn(u32) -> bool) -> f64 {
        let on = self.turns.iter().filter(|turn| is(turn.server)).map(|turn| turn.size_bytes);
        on.sum::<u64>() as f64 / self.bytes as f64
    }

    pub(crate) fn stripe_bytes(&self, turn: u32) -> u64 {
        self.turns[turn as usize].size_bytes
    }

    /// The servers, in order of the cycle.
    pub(crate) fn servers(&self) -> impl Iterator<Item = u32> + '_ {
        self.turns.iter().map(|turn| turn.server)
    }

    /// Bytes of a region's first `region_bytes` that lie at `turn`.
    pub(crate) fn object_bytes(&self, turn: usize, region_bytes: u64) -> u64 {
        let turn = &self.turns[turn];
        region_bytes / self.bytes * turn.size_bytes
            + (region_bytes % self.bytes).saturating_sub(turn.before_bytes).min(turn.size_bytes)
    }

    /// Appends the parts of `[offset, offset + bytes)` of a region, at most one for a server, beginning with that of the first byte.
    /// The same parts as [`stripewise_layout::StripeView::split`] finds.
    #[inline]
    pub(crate) fn split(&self, offset: u64, bytes: u64, parts: &mut Vec<Part>) {
        if let [only] = self.turns[..] {
            parts.push(Part { turn: 0, server: only.server, offset, bytes });
            return;
        }
        let end = offset + bytes;
        let ((first_cycle, first), (last_cycle, last)) = if self.bytes.is_power_of_two() {
            let (shift, mask) = (self.bytes.trailing_zeros(), self.bytes - 1);
            ((offset >> shift, offset & mask), (end >> shift, end & mask))
        } else {
            ((offset / self.bytes, offset % self.bytes), (end / self.bytes, end % self.bytes))
        };
        let mut turn = self.turns.partition_point(|turn| turn.before_bytes <= first) - 1;
        let mut left = bytes;
        while left > 0 {
            let Turn { server, size_bytes, before_bytes } = self.turns[turn];
            let start = first_cycle * size_bytes + first.saturating_sub(before_bytes).min(size_bytes);
            let stop = last_cycle * size_bytes + last.saturating_sub(before_bytes).min(size_bytes);
            if stop > start {
                parts.push(Part { turn: turn as u32, server, offset: start, bytes: stop - start });
                left -= stop - start;
            }
            turn = if turn + 1 == self.turns.len() { 0 } else { turn + 1 };
        }
    }
}

/// One file.
pub(crate) struct FilePlace<'a> {
    pub(crate) geometry: RegionGeometry,
    pub(crate) size_bytes: u64,
    placements: &'a FilePlacements,
    pub(crate) window: usize,
    /// Number of the cycle of each region, up to the last that is planned or the file reaches.
    regions: Vec<u32>,
    beyond: u32,
}

impl FilePlace<'_> {
    /// Bytes of the file in a region.
    pub(crate) fn region_bytes(&self, region: RegionIndex) -> u64 {
        self.geometry.used_bytes(region, self.size_bytes)
    }

    /// Regions whose place is kept.
    pub(crate) fn regions(&self) -> u32 {
        self.regions.len() as u32
    }
}

/// All files.
pub(crate) struct Places<'a> {
    cycles: Vec<Cycle>,
    numbers: HashMap<&'a Layout, u32>,
    pub(crate) files: Vec<FilePlace<'a>>,
}

impl<'a> Places<'a> {
    /// # Errors
    /// When windows of one file differ in their region size.
    pub(crate) fn new(sizes: &[(String, u64)], placements: &'a [FilePlacements]) -> Result<Self, SimError> {
        let mut places = Self { cycles: Vec::new(), numbers: HashMap::new(), files: Vec::new() };
        for ((path, size_bytes), placements) in sizes.iter().zip(placements) {
            let first = &placements.windows[0].placement;
            let region_size = first.region_size;
            if let Some(other) = placements.windows.iter().find(|window| window.placement.region_size != region_size) {
                let other = other.placement.region_size;
                return Err(SimError::RegionSize { path: path.clone(), first: region_size, other });
            }
            let geometry = RegionGeometry::new(region_size.0);
            let known = geometry.count_for(*size_bytes).max(1) as usize;
            let mut file = FilePlace {
                geometry,
                size_bytes: *size_bytes,
                placements,
                window: 0,
                regions: vec![0; known],
                beyond: places.number_of(&first.layouts[first.beyond as usize]),
            };
            places.numbers_of(first, &mut file.regions);
            places.files.push(file);
        }
        Ok(places)
    }

    fn number_of(&mut self, layout: &'a Layout) -> u32 {
        let cycles = &mut self.cycles;
        *self.numbers.entry(layout).or_insert_with(|| {
            cycles.push(Cycle::new(layout));
            (cycles.len() - 1) as u32
        })
    }

    /// Fills in the cycle of every region under `placement`.
    fn numbers_of(&mut self, placement: &'a Placement, regions: &mut [u32]) {
        let numbers: Vec<u32> = placement.layouts.iter().map(|layout| self.number_of(layout)).collect();
        let mut rest = regions;
        for run in &placement.runs {
            let (these, after) = rest.split_at_mut((run.regions as usize).min(rest.len()));
            these.fill(numbers[run.layout as usize]);
            rest = after;
        }
        rest.fill(numbers[placement.beyond as usize]);
    }

    pub(crate) fn cycle(&self, number: u32) -> &Cycle {
        &self.cycles[number as usize]
    }

    /// The cycle of a region now.
    #[inline]
    pub(crate) fn cycle_number(&self, file: usize, region: RegionIndex) -> u32 {
        let place = &self.files[file];
        match place.regions.get(region.0 as usize) {
            Some(number) => *number,
            // Past the size that the program announced: rare, so a search through the runs will do.
            None => {
                let placement = &place.placements.windows[place.window].placement;
                self.numbers.get(placement.layout_of(region)).copied().unwrap_or(place.beyond)
            }
        }
    }

    pub(crate) fn set(&mut self, file: usize, region: RegionIndex, cycle: u32) {
        self.files[file].regions[region.0 as usize] = cycle;
    }

    /// Enters `window` of a file; returns the regions that shall lie otherwise than they do, each with its cycle to come.
    pub(crate) fn enter(&mut self, file: usize, window: usize) -> Vec<(RegionIndex, u32)> {
        let placements = self.files[file].placements;
        let placement = &placements.windows[window].placement;
        let mut wanted = vec![0; self.files[file].regions.len()];
        self.numbers_of(placement, &mut wanted);
        let beyond = self.number_of(&placement.layouts[placement.beyond as usize]);
        let place = &mut self.files[file];
        (place.window, place.beyond) = (window, beyond);
        let pairs = place.regions.iter().zip(wanted).enumerate();
        pairs
            .filter(|(_, (now, wanted))| *now != wanted)
            .map(|(region, (_, wanted))| (RegionIndex(region as u32), wanted))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use stripewise_layout::{RegionOffset, ServerId};

    proptest! {
        #[test]
        fn parts_are_those_of_the_stripe_view(
            sizes in prop::collection::vec(1u32..40, 1..9), start in 0u64..500, bytes in 1u64..500,
        ) {
            let pairs = sizes.into_iter().enumerate().map(|(server, size)| (ServerId(server as u16), size));
            let layout = Layout::new(pairs).unwrap();
            let mut parts = Vec::new();
            Cycle::new(&layout).split(start, bytes, &mut parts);
            prop_assert!(parts[0].offset == layout.view().locate(RegionOffset(start)).offset.0);
            parts.sort_by_key(|part| part.turn);
            let expected: Vec<Part> = layout.view().split(RegionOffset(start), bytes).map(|part| Part {
                turn: part.turn as u32, server: u32::from(part.server.0), offset: part.offset.0, bytes: part.length,
            }).collect();
            prop_assert_eq!(parts, expected);
        }
    }
}
