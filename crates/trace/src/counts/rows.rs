//! The regions of one window of a file while requests are added up.

use super::hashing::Quick;
use crate::access::{ClassIndex, ProcessCount, RegionAccess, Slices};
use crate::trace::{NodeIndex, ProcessIndex};
use std::collections::HashMap;
use stripewise_layout::RegionIndex;

/// The regions of one window, in order of appearance.
#[derive(Default)]
pub(crate) struct Rows {
    /// Region to row plus one, by place; 0 is none.
    near: Vec<u32>,
    /// The same for the regions beyond.
    far: HashMap<u32, u32, Quick>,
    last_far: u32,
    rows: Vec<Row>,
    cells: Cells,
    /// Cells in use.
    filled: usize,
    processes: Processes,
}

struct Row {
    region: u32,
    processes: Processes,
    slices: u64,
}

/// Counts processes that come node by node, so that a change is seen by looking at the last one.
#[derive(Clone, Copy, Default)]
pub(crate) struct Processes {
    last: Option<(ProcessIndex, NodeIndex)>,
    count: u32,
    on_node: u32,
    on_node_most: u32,
}

impl Processes {
    pub(crate) fn see(&mut self, process: ProcessIndex, node: NodeIndex) {
        if self.last.is_some_and(|(last, _)| last == process) {
            return;
        }
        if self.last.is_none_or(|(_, last)| last != node) {
            self.on_node = 0;
        }
        self.last = Some((process, node));
        self.count += 1;
        self.on_node += 1;
        self.on_node_most = self.on_node_most.max(self.on_node);
    }

    pub(crate) fn count(&self) -> ProcessCount {
        ProcessCount { processes: self.count, per_node: self.on_node_most }
    }
}

/// Requests by row and class.
enum Cells {
    /// Rows of 2^`class_bits` classes.
    Dense {
        counts: Vec<u64>,
        class_bits: u32,
    },
    Sparse(HashMap<(u32, u32), u64, Quick>),
}

impl Default for Cells {
    fn default() -> Self {
        Self::Dense { counts: Vec::new(), class_bits: 0 }
    }
}

/// The table by place is so many times as long as it has entries, at most.
const NEAR_FILLING: usize = 8;
/// Classes beyond which cells are kept apart.
const DENSE_CLASS_BITS: u32 = 5;

impl Cells {
    fn reserve(&mut self, classes: usize) {
        let needed = classes.next_power_of_two().ilog2();
        let Self::Dense { counts, class_bits } = self else { return };
        if needed <= *class_bits {
            return;
        }
        if needed > DENSE_CLASS_BITS {
            let mut cells = HashMap::default();
            self.for_each(|row, class, count| {
                cells.insert((row, class), count);
            });
            *self = Self::Sparse(cells);
            return;
        }
        let mut wider = vec![0; (counts.len() >> *class_bits) << needed];
        for (index, count) in counts.iter().enumerate() {
            wider[(index >> *class_bits) << needed | (index & ((1 << *class_bits) - 1))] = *count;
        }
        (*counts, *class_bits) = (wider, needed);
    }

    fn add_row(&mut self) {
        if let Self::Dense { counts, class_bits } = self {
            counts.resize(counts.len() + (1 << *class_bits), 0);
        }
    }

    /// True when the cell was empty.
    fn add(&mut self, row: u32, class: u32, count: u64) -> bool {
        let cell = match self {
            Self::Dense { counts, class_bits } => &mut counts[(row as usize) << *class_bits | class as usize],
            Self::Sparse(cells) => cells.entry((row, class)).or_insert(0),
        };
        *cell += count;
        *cell == count
    }

    fn for_each(&self, mut use_cell: impl FnMut(u32, u32, u64)) {
        match self {
            Self::Dense { counts, class_bits } => {
                for (index, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
                    use_cell((index >> class_bits) as u32, (index & ((1 << class_bits) - 1)) as u32, *count);
                }
            }
            Self::Sparse(cells) => cells.iter().for_each(|((row, class), count)| use_cell(*row, *class, *count)),
        }
    }
}

impl Rows {
    /// Must be called before a class is added that is new: `classes` are known now.
    pub(crate) fn reserve(&mut self, classes: usize) {
        self.cells.reserve(classes);
    }

    /// Cells in use.
    pub(crate) fn filled(&self) -> usize {
        self.filled
    }

    fn row(&mut self, region: u32) -> u32 {
        let known = match self.near.get(region as usize) {
            Some(place) => *place,
            None => self.far.get(&region).copied().unwrap_or(0),
        };
        if known != 0 {
            return known - 1;
        }
        self.rows.push(Row { region, processes: Processes::default(), slices: 0 });
        self.cells.add_row();
        let place = self.rows.len() as u32;
        match self.near.get_mut(region as usize) {
            Some(near) => *near = place,
            None => {
                self.far.insert(region, place);
                self.last_far = self.last_far.max(region);
                let length = (self.last_far as usize + 1).next_power_of_two();
                if length <= NEAR_FILLING * self.rows.len() {
                    self.near.resize(length, 0);
                    self.far.drain().for_each(|(region, place)| self.near[region as usize] = place);
                }
            }
        }
        place - 1
    }

    /// Processes that requests were added of.
    pub(crate) fn processes(&self) -> ProcessCount {
        self.processes.count()
    }

    /// Adds requests of a process. Processes must come node by node.
    pub(crate) fn add(
        &mut self,
        region: u32,
        class: u32,
        count: u64,
        slices: u64,
        process: ProcessIndex,
        node: NodeIndex,
    ) {
        let index = self.row(region);
        self.filled += usize::from(self.cells.add(index, class, count));
        let row = &mut self.rows[index as usize];
        row.slices |= slices;
        row.processes.see(process, node);
        self.processes.see(process, node);
    }

    /// Gives classes other numbers, `classes` in all; cells that become one are added.
    pub(crate) fn renumber(&mut self, map: &[u32], classes: usize) {
        let old = std::mem::take(&mut self.cells);
        self.cells.reserve(classes);
        self.rows.iter().for_each(|_| self.cells.add_row());
        self.filled = 0;
        old.for_each(|row, class, count| {
            self.filled += usize::from(self.cells.add(row, map[class as usize], count));
        });
    }

    /// The regions in ascending order; `map` says what became of every class.
    pub(crate) fn finish(self, map: &[ClassIndex]) -> Vec<RegionAccess> {
        let mut counts: Vec<Vec<(ClassIndex, u64)>> = vec![Vec::new(); self.rows.len()];
        self.cells.for_each(|row, class, count| {
            let of_row = &mut counts[row as usize];
            let class = map[class as usize];
            match of_row.iter_mut().find(|(known, _)| *known == class) {
                Some((_, known)) => *known += count,
                None => of_row.push((class, count)),
            }
        });
        let regions = self.rows.iter().zip(counts).map(|(row, mut counts)| {
            counts.sort_unstable();
            counts.shrink_to_fit();
            let ProcessCount { processes, per_node } = row.processes.count();
            RegionAccess {
                region: RegionIndex(row.region),
                counts,
                processes,
                processes_per_node: per_node,
                slices: Slices(row.slices),
            }
        });
        let mut regions: Vec<RegionAccess> = regions.collect();
        regions.sort_by_key(|region| region.region);
        regions
    }
}
