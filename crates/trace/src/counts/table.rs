//! Requests by region and class: a plain grid while that is well filled, a map otherwise.

use super::hashing::Quick;
use std::collections::HashMap;

/// The requests of one window, by region and class number, and the slices in which they began.
pub(super) enum Table {
    Grid {
        /// A row of 2^`class_bits` classes for each region.
        counts: Vec<u32>,
        /// By region.
        slices: Vec<u64>,
        class_bits: u32,
    },
    Map {
        cells: HashMap<(u32, u32), (u32, u64), Quick>,
        last_region: u32,
        last_class: u32,
    },
}

/// Cells of a grid at most: 4 MiB.
const GRID_LIMIT: u64 = 1 << 20;
/// A grid may be so large whatever its filling.
const GRID_SMALL: u64 = 1 << 9;
/// Beyond, one cell in so many must be in use: a map takes as much memory as a grid of that filling.
const GRID_FILLING: u64 = 8;

impl Table {
    pub(super) const EMPTY: Self = Self::Grid { counts: Vec::new(), slices: Vec::new(), class_bits: 1 };

    /// Counts a request whose slice is the bit set in `slice`.
    #[inline(always)]
    pub(super) fn add(&mut self, region: u32, class: u32, slice: u64) {
        if let Self::Grid { counts, slices, class_bits } = self
            && class >> *class_bits == 0
            && let Some(cell) = counts.get_mut(((region as usize) << *class_bits) | class as usize)
            && let Some(seen) = slices.get_mut(region as usize)
        {
            *cell += 1;
            *seen |= slice;
            return;
        }
        self.add_with_room(region, class, 1, slice);
    }

    #[cold]
    fn add_with_room(&mut self, region: u32, class: u32, count: u32, slice: u64) {
        if let Self::Grid { counts, class_bits, .. } = self
            && (class >> *class_bits != 0 || region as usize >= counts.len() >> *class_bits)
        {
            let rows = (counts.len() >> *class_bits) as u64;
            let filled = counts.iter().filter(|count| **count > 0).count();
            match fitting(rows, *class_bits, region, class, filled) {
                Some((rows, bits)) => self.widen(rows, bits),
                None => self.scatter(),
            }
        }
        match self {
            Self::Grid { counts, slices, class_bits } => {
                counts[((region as usize) << *class_bits) | class as usize] += count;
                slices[region as usize] |= slice;
            }
            Self::Map { cells, last_region, last_class } => {
                let cell = cells.entry((region, class)).or_insert((0, 0));
                *cell = (cell.0 + count, cell.1 | slice);
                (*last_region, *last_class) = ((*last_region).max(region), (*last_class).max(class));
                let filled = cells.len();
                // Asked whenever the filling has doubled.
                if filled.is_power_of_two()
                    && let Some((rows, bits)) = fitting(0, 1, *last_region, *last_class, filled)
                {
                    self.gather(rows, bits);
                }
            }
        }
    }

    fn widen(&mut self, rows: u64, bits: u32) {
        let Self::Grid { counts, slices, class_bits, .. } = self else { return };
        let mut wider = vec![0; (rows << bits) as usize];
        for (index, count) in counts.iter().enumerate() {
            let row = index >> *class_bits;
            wider[(row << bits) | (index & ((1 << *class_bits) - 1))] = *count;
        }
        *counts = wider;
        slices.resize(rows as usize, 0);
        *class_bits = bits;
    }

    fn scatter(&mut self) {
        let mut cells = HashMap::default();
        let (mut last_region, mut last_class) = (0, 0);
        self.for_each(|region, class, count, slices| {
            cells.insert((region, class), (count, slices));
            (last_region, last_class) = (last_region.max(region), last_class.max(class));
        });
        *self = Self::Map { cells, last_region, last_class };
    }

    fn gather(&mut self, rows: u64, bits: u32) {
        let (mut counts, mut slices) = (vec![0; (rows << bits) as usize], vec![0; rows as usize]);
        self.for_each(|region, class, count, seen| {
            counts[((region as usize) << bits) | class as usize] = count;
            slices[region as usize] |= seen;
        });
        *self = Self::Grid { counts, slices, class_bits: bits };
    }

    /// Region, class, count and slices of every cell in use. The slices of a grid's cells are those of the whole region.
    pub(super) fn for_each(&self, mut use_cell: impl FnMut(u32, u32, u32, u64)) {
        match self {
            Self::Grid { counts, slices, class_bits, .. } => {
                for (index, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
                    let region = index >> class_bits;
                    use_cell(region as u32, (index & ((1 << class_bits) - 1)) as u32, *count, slices[region]);
                }
            }
            Self::Map { cells, .. } => {
                cells.iter().for_each(|((region, class), (count, slices))| use_cell(*region, *class, *count, *slices))
            }
        }
    }

    /// Gives classes other numbers; cells that become one are added.
    pub(super) fn renumber(&mut self, map: &[u32]) {
        let mut renumbered = Self::EMPTY;
        self.for_each(|region, class, count, slices| {
            renumbered.add_with_room(region, map[class as usize], count, slices);
        });
        *self = renumbered;
    }
}

/// Rows and class bits of a grid that has room for region and class, if one may be that large.
fn fitting(rows: u64, class_bits: u32, region: u32, class: u32, filled: usize) -> Option<(u64, u32)> {
    let bits = class_bits.max(u32::BITS - class.leading_zeros());
    let rows = (u64::from(region) + 1).next_power_of_two().max(rows);
    let allowed = GRID_LIMIT.min(GRID_SMALL.max(GRID_FILLING * filled as u64));
    rows.checked_mul(1 << bits).filter(|cells| *cells <= allowed).map(|_| (rows, bits))
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
        ) {
            let mut table = Table::EMPTY;
            let mut counts: BTreeMap<(u32, u32), u32> = BTreeMap::new();
            let mut slices: BTreeMap<u32, u64> = BTreeMap::new();
            for (region, class, slice) in &adds {
                table.add(*region, *class, 1 << slice);
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
