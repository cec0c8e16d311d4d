//! Requests by region and class: a plain grid while that is well filled, a map otherwise.

use super::hashing::Quick;
use std::collections::HashMap;

/// The requests of one window, by region and class number, and the slices in which they began.
pub(super) enum Table {
    Grid(Grid),
    Map { cells: HashMap<(u32, u32), (u32, u64), Quick>, span: Span, last_class: u32, small: Small },
}

/// Cells that a grid may have whatever its filling.
#[derive(Clone, Copy)]
pub(super) struct Small(u64);

impl Small {
    /// For any number of tables.
    pub(super) const FOR_MANY: Self = Self(1 << 9);
    /// For a few tables, which need not begin as maps then: 35 KiB.
    pub(super) const FOR_FEW: Self = Self(1 << 12);
}

/// One of the 64 slices of a window.
#[derive(Clone, Copy)]
pub(super) struct Slice {
    eighth: u32,
    bit: u8,
}

impl Slice {
    /// The one whose bit is set.
    pub(super) fn of(slices: u64) -> Self {
        let number = slices.trailing_zeros();
        Self { eighth: number / 8, bit: 1 << (number % 8) }
    }

    fn slices(self) -> u64 {
        u64::from(self.bit) << (8 * self.eighth)
    }
}

/// The regions from the first in use to the last.
#[derive(Clone, Copy)]
pub(super) struct Span {
    first: u32,
    last: u32,
}

impl Span {
    fn with(self, region: u32) -> Self {
        Self { first: self.first.min(region), last: self.last.max(region) }
    }
}

/// Counts and slices of each region from `first` on.
pub(super) struct Grid {
    first: u32,
    /// A row of 2^`class_bits` classes for each region.
    counts: Vec<u32>,
    class_bits: u32,
    /// By region, slices without those in `eighth_seen`.
    slices: Vec<u64>,
    /// By region, the slices of the eighth of the window that the last request began in: a fraction of the memory, so that the counts
    /// stay in the processor's first cache. Requests come nearly in order of time, so the eighth seldom changes.
    eighth_seen: Vec<u8>,
    eighth: u32,
    small: Small,
}

impl Grid {
    fn with_extent(extent: Extent, small: Small) -> Self {
        let rows = extent.rows as usize;
        Self {
            first: extent.first,
            counts: vec![0; rows << extent.class_bits],
            class_bits: extent.class_bits,
            slices: vec![0; rows],
            eighth_seen: vec![0; rows],
            eighth: 0,
            small,
        }
    }

    /// All regions that have space; none while there is nothing.
    fn span(&self) -> Option<Span> {
        let last = self.slices.len().checked_sub(1)? as u32;
        Some(Span { first: self.first, last: self.first + last })
    }

    /// The row of a region and its cell for a class, if both have space.
    #[inline(always)]
    fn cell(&mut self, region: u32, class: u32) -> Option<(usize, &mut u32)> {
        if class >> self.class_bits != 0 {
            return None;
        }
        let row = region.wrapping_sub(self.first) as usize;
        let cell = self.counts.get_mut((row << self.class_bits) | class as usize)?;
        Some((row, cell))
    }

    #[inline(always)]
    fn count(&mut self, region: u32, class: u32, slice: Slice) -> bool {
        let Some((row, cell)) = self.cell(region, class) else { return false };
        *cell += 1;
        if slice.eighth != self.eighth {
            self.go_to(slice.eighth);
        }
        if let Some(seen) = self.eighth_seen.get_mut(row) {
            *seen |= slice.bit;
        }
        true
    }

    fn add(&mut self, region: u32, class: u32, count: u32, slices: u64) -> bool {
        let Some((row, cell)) = self.cell(region, class) else { return false };
        *cell += count;
        self.slices[row] |= slices;
        true
    }

    #[cold]
    fn go_to(&mut self, eighth: u32) {
        for (slices, seen) in self.slices.chunks_mut(8).zip(self.eighth_seen.chunks_mut(8)) {
            if seen.iter().any(|seen| *seen != 0) {
                for (slices, seen) in slices.iter_mut().zip(seen) {
                    *slices |= u64::from(std::mem::take(seen)) << (8 * self.eighth);
                }
            }
        }
        self.eighth = eighth;
    }

    fn filled(&self) -> usize {
        self.counts.iter().filter(|count| **count > 0).count()
    }

    fn for_each(&self, mut use_cell: impl FnMut(u32, u32, u32, u64)) {
        for (index, count) in self.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            let row = index >> self.class_bits;
            let slices = self.slices[row] | u64::from(self.eighth_seen[row]) << (8 * self.eighth);
            let class = index & ((1 << self.class_bits) - 1);
            use_cell(self.first + row as u32, class as u32, *count, slices);
        }
    }
}

/// Cells of a grid at most: 4 MiB.
const GRID_LIMIT: u64 = 1 << 20;
/// Beyond a small one, one cell in so many must be in use: a map takes as much memory as a grid of that filling.
const GRID_FILLING: u64 = 8;

impl Table {
    pub(super) fn new(small: Small) -> Self {
        Self::Grid(Grid::with_extent(Extent { first: 0, rows: 0, class_bits: 1 }, small))
    }

    fn small(&self) -> Small {
        match self {
            Self::Grid(grid) => grid.small,
            Self::Map { small, .. } => *small,
        }
    }

    /// Counts a request.
    #[inline(always)]
    pub(super) fn add(&mut self, region: u32, class: u32, slice: Slice) {
        if let Self::Grid(grid) = self
            && grid.count(region, class, slice)
        {
            return;
        }
        self.add_with_capacity_of(region, class, 1, slice.slices());
    }

    #[cold]
    fn add_with_capacity_of(&mut self, region: u32, class: u32, count: u32, slices: u64) {
        if let Self::Grid(grid) = self {
            if grid.add(region, class, count, slices) {
                return;
            }
            let last_class = class.max((1 << grid.class_bits) - 1);
            match fitting(grid.span(), region, last_class, grid.filled(), grid.small) {
                Some(extent) => self.lay_out(extent),
                None => self.scatter(region),
            }
        }
        match self {
            Self::Grid(grid) => {
                let is_there = grid.add(region, class, count, slices);
                debug_assert!(is_there, "the grid was laid out for region {region} and class {class}");
            }
            Self::Map { cells, span, last_class, small } => {
                let cell = cells.entry((region, class)).or_insert((0, 0));
                *cell = (cell.0 + count, cell.1 | slices);
                (*span, *last_class) = (span.with(region), (*last_class).max(class));
                let filled = cells.len();
                // Asked whenever the filling has doubled.
                if filled.is_power_of_two()
                    && let Some(extent) = fitting(Some(*span), region, *last_class, filled, *small)
                {
                    self.lay_out(extent);
                }
            }
        }
    }

    /// As a grid with that room.
    fn lay_out(&mut self, extent: Extent) {
        let mut grid = Grid::with_extent(extent, self.small());
        self.for_each(|region, class, count, slices| {
            grid.add(region, class, count, slices);
        });
        *self = Self::Grid(grid);
    }

    /// As a map that is to hold the region too.
    fn scatter(&mut self, region: u32) {
        let mut cells = HashMap::default();
        let (mut span, mut last_class) = (Span { first: region, last: region }, 0);
        self.for_each(|region, class, count, slices| {
            cells.insert((region, class), (count, slices));
            span = span.with(region);
            last_class = last_class.max(class);
        });
        *self = Self::Map { cells, span, last_class, small: self.small() };
    }

    /// Region, class, count and slices of every cell in use. The slices of a grid's cells are those of the whole region.
    pub(super) fn for_each(&self, mut use_cell: impl FnMut(u32, u32, u32, u64)) {
        match self {
            Self::Grid(grid) => grid.for_each(use_cell),
            Self::Map { cells, .. } => {
                cells.iter().for_each(|((region, class), (count, slices))| use_cell(*region, *class, *count, *slices))
            }
        }
    }

    /// Gives classes other numbers; cells that become one are added.
    pub(super) fn renumber(&mut self, map: &[u32]) {
        let mut renumbered = Self::new(self.small());
        self.for_each(|region, class, count, slices| {
            renumbered.add_with_capacity_of(region, map[class as usize], count, slices);
        });
        *self = renumbered;
    }
}

/// What a grid has space for.
#[derive(Clone, Copy)]
struct Extent {
    first: u32,
    rows: u64,
    class_bits: u32,
}

/// Room for the regions of a span, one more and all classes up to a last one, if a grid may be that large. The rows that make their number
/// a power of two are on the side on which the span grows.
fn fitting(span: Option<Span>, region: u32, last_class: u32, filled: usize, small: Small) -> Option<Extent> {
    let before = span.unwrap_or(Span { first: region, last: region });
    let now = before.with(region);
    let class_bits = (u32::BITS - last_class.leading_zeros()).max(1);
    let rows = (u64::from(now.last - now.first) + 1).next_power_of_two();
    let first = if region < before.first { (u64::from(now.last) + 1).saturating_sub(rows) as u32 } else { now.first };
    let allowed = GRID_LIMIT.min(small.0.max(GRID_FILLING * filled as u64));
    let is_allowed = rows.checked_mul(1 << class_bits).is_some_and(|cells| cells <= allowed);
    (is_allowed && u64::from(first) + rows <= 1 << 32).then_some(Extent { first, rows, class_bits })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn a_table_is_a_map_of_counts(
            adds in proptest::collection::vec(
                (prop_oneof![0..4u32, 0..3_000u32, any::<u32>()], prop_oneof![8 => 0..3u32, 1 => 0..2_000u32], 0..64u32), 0..4_000),
            merged in any::<bool>(),
            few in any::<bool>(),
        ) {
            let mut table = Table::new(if few { Small::FOR_FEW } else { Small::FOR_MANY });
            let mut counts: BTreeMap<(u32, u32), u32> = BTreeMap::new();
            let mut slices: BTreeMap<u32, u64> = BTreeMap::new();
            for (region, class, slice) in &adds {
                table.add(*region, *class, Slice::of(1 << slice));
                *counts.entry((*region, if merged { class / 2 } else { *class })).or_insert(0) += 1;
                *slices.entry(*region).or_insert(0) |= 1 << slice;
            }
            if merged {
                table.renumber(&(0..2_000).map(|class| class / 2).collect::<Vec<u32>>());
            }
            let (mut found, mut found_slices) = (BTreeMap::new(), BTreeMap::new());
            table.for_each(|region, class, count, seen| {
                found.insert((region, class), count);
                *found_slices.entry(region).or_insert(0) |= seen;
            });
            prop_assert_eq!(found, counts);
            prop_assert_eq!(found_slices, slices);
        }
    }
}
