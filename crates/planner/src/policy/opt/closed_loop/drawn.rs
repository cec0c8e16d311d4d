//! What samples are drawn from, and the requests that they are made of.

use super::super::demand::SeenClass;
use super::super::program::Item;
use super::super::side_by_side::{Part, SideBySide};
use std::ops::Range;
use stripewise_layout::SplitMix64;
use stripewise_model::Profile;
use stripewise_trace::Company;

/// Share of requests that continue others' from which on a march is taken to be in order.
const IN_ORDER: f64 = 0.5;

/// What a sample is drawn from.
pub(crate) struct Drawn<'a> {
    pub(crate) profile: &'a Profile,
    pub(crate) items: &'a [Item],
    pub(crate) window: usize,
    /// Of that window; more than one only of a march.
    pub(crate) periods: Range<usize>,
    pub(crate) classes: &'a [SeenClass],
    /// By file, in the window.
    pub(crate) companies: Vec<Company>,
    /// By file.
    pub(crate) region_sizes: Vec<u64>,
    /// Whose requests of a file.
    pub(crate) part: Part,
    pub(crate) processes: u32,
    pub(crate) seed: u64,
    /// Requests of a march instead of a crowd.
    pub(crate) march: bool,
    /// As another run with the same popularity would have them.
    pub(crate) redrawn: bool,
}

impl Drawn<'_> {
    /// Of the requests of one of the programs that run side by side.
    pub(super) fn of(&self, program: &SideBySide) -> Self {
        let mut companies = self.companies.clone();
        companies[program.file] = program.company(companies[program.file]);
        let (part, processes) = (program.part, program.processes);
        let (periods, region_sizes) = (self.periods.clone(), self.region_sizes.clone());
        Self { periods, companies, region_sizes, part, processes, ..*self }
    }

    /// Whether requests of the class are among those of the part.
    pub(super) fn has(&self, class: u16) -> bool {
        self.part == Part::All || self.classes[usize::from(class)].part == self.part
    }

    /// Whether ranks that march go through the file in order.
    pub(crate) fn is_in_order(&self) -> bool {
        self.classes.iter().any(|class| class.continuing >= IN_ORDER)
    }

    /// Where the first request of a region begins: at a multiple of `pitch_bytes` in the file, which need not be one in the region.
    pub(crate) fn first_offset(&self, item: u32, pitch_bytes: u64) -> u64 {
        let item = &self.items[item as usize];
        let start = u64::from(item.regions[0]).saturating_mul(self.region_sizes[item.file]);
        start.checked_next_multiple_of(pitch_bytes.max(1)).map_or(0, |first| first - start)
    }

    /// Share of the item's requests that are part of a march.
    pub(super) fn marching(&self, item: &Item) -> f64 {
        let together = item.same_region[self.window];
        let adjoining = self.companies[item.file].adjoining;
        if !self.is_in_order() || adjoining < IN_ORDER {
            return together;
        }
        // What is in flight together may be longer than a region and is a march all the same: of one run all requests adjoin but the first.
        let processes = f64::from(self.processes.max(2));
        (adjoining * processes / (processes - 1.0)).clamp(together, 1.0)
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Draw {
    pub(super) item: u32,
    pub(super) class: u16,
    pub(super) offset: u64,
    pub(super) bytes: u64,
    /// The region's number in the order of the march.
    pub(super) turn: u32,
}

/// Requests of each item and class that may be drawn, added up.
pub(super) struct Counts(Vec<(f64, u32, u16)>);

impl Counts {
    pub(super) fn of(counts: impl Iterator<Item = (f64, u32, u16)>) -> Self {
        let added = counts.scan(0.0, |sum, (count, item, class)| {
            *sum += count;
            Some((*sum, item, class))
        });
        Self(added.collect())
    }

    /// Items and classes, with the requests of each.
    pub(super) fn each(&self) -> impl Iterator<Item = (u32, u16, f64)> + '_ {
        let before = std::iter::once(0.0).chain(self.0.iter().map(|(end, ..)| *end));
        self.0.iter().zip(before).map(|((end, item, class), before)| (*item, *class, end - before))
    }

    pub(super) fn total(&self) -> f64 {
        self.0.last().map_or(0.0, |(end, _, _)| *end)
    }

    /// Item and class at a share of the requests.
    pub(super) fn pick(&self, share: f64) -> (u32, u16) {
        let wanted = share * self.total();
        let (_, item, class) = self.0[self.0.partition_point(|(end, _, _)| *end <= wanted).min(self.0.len() - 1)];
        (item, class)
    }

    /// The counts of another run with the same popularity: what was asked for n times is asked for about the square root of n more or less
    /// often. Whole regions that balance to the last request now will not do so then.
    pub(super) fn redrawn(&self, random: &mut SplitMix64) -> Self {
        Self::of(
            self.each().map(|(item, class, count)| ((count + count.sqrt() * normal(random)).max(0.0), item, class)),
        )
    }
}

/// Nearly normal, mean 0 and variance 1: twelve uniform ones less their mean.
fn normal(random: &mut SplitMix64) -> f64 {
    let scale = 1u64 << 32;
    (0..12).map(|_| random.below(scale) as f64 / scale as f64).sum::<f64>() - 6.0
}
