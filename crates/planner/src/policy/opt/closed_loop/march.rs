//! Requests of ranks that go through files in order, one behind the other.
//!
//! What is in flight together are runs of adjoining requests, mostly one. Rows of a grid are several, a plane's width apart
//! ([`stripewise_trace::Company::apart_bytes`]): each goes on where it ended until it meets the next one, and then all are a block further on. Short
//! marches are drawn as they are, request by request; of long ones stretches of whole regions.

use super::super::program::Item;
use super::drawn::{Counts, Draw, Drawn};
use std::collections::HashMap;
use stripewise_layout::SplitMix64;
use stripewise_trace::Company;

/// Requests of a march that is drawn as it is, at most.
const WHOLE: f64 = 65_536.0;

/// Share of the requests that have the one size of such a march: pieces at borders of regions are left out.
const OF_ONE_SIZE: f64 = 0.95;

/// Parts of a march that are looked at, regions of each at least, and consecutive requests of a region at most.
const STRETCHES: usize = 8;
const MIN_REGIONS: usize = 3;
const OF_REGION: usize = 1024;

/// The same of rows that lie apart. Nothing keeps their ranks abreast, and where each has come to after many steps is what decides.
const STRETCHES_OF_ROWS: usize = 1;
const OF_REGION_OF_ROWS: usize = 4096;

/// Offsets that are looked at in one block, at most: counts may say anything of sizes and distances.
const MAX_OFFSETS: usize = 1 << 20;

/// Requests of one rank in a stretch, at least.
pub(super) const OF_RANK: usize = 16;

/// Where requests lie that are in flight together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Rows {
    /// Runs of adjoining requests.
    runs: u64,
    /// Requests of each.
    of_run: u64,
    /// From the start of one run to that of the next.
    apart_bytes: u64,
    /// From the start of a request to that of the next of the run.
    pitch_bytes: u64,
}

impl Rows {
    fn of(company: Company, ranks: usize, request_bytes: u64) -> Self {
        let pitch_bytes = request_bytes.saturating_add(company.skip_bytes).max(1);
        let ranks = ranks.max(1) as u64;
        // Of a run all requests adjoin but the first.
        let runs = (ranks as f64 * (1.0 - company.adjoining)).round().clamp(1.0, ranks as f64) as u64;
        let of_run = ranks.div_ceil(runs);
        match company.apart_bytes {
            apart_bytes if runs > 1 && apart_bytes >= of_run.saturating_mul(pitch_bytes) => {
                Self { runs, of_run, apart_bytes, pitch_bytes }
            }
            _ => Self { runs: 1, of_run: ranks, apart_bytes: u64::MAX, pitch_bytes },
        }
    }

    /// Bytes that the runs go through together.
    fn block_bytes(&self) -> u64 {
        if self.runs == 1 { 0 } else { self.runs.saturating_mul(self.apart_bytes) }
    }

    /// Offsets of requests below `length`, in the order in which ranks ask for them.
    fn offsets(self, length: u64) -> Box<dyn Iterator<Item = u64>> {
        let Self { runs, of_run, apart_bytes, pitch_bytes } = self;
        if runs == 1 {
            return Box::new((0..length.div_ceil(pitch_bytes)).map(move |number| number * pitch_bytes));
        }
        let block_bytes = self.block_bytes();
        let step_bytes = of_run.saturating_mul(pitch_bytes);
        let steps = apart_bytes / step_bytes;
        let of_block = move |block: u64| {
            let of_step = move |step: u64| {
                (0..runs).flat_map(move |run| {
                    let of_block = run.saturating_mul(apart_bytes).saturating_add(step * step_bytes);
                    let first = (block * block_bytes).saturating_add(of_block);
                    (0..of_run).map(move |number| first.saturating_add(number * pitch_bytes))
                })
            };
            (0..steps).flat_map(of_step)
        };
        let offsets = (0..length.div_ceil(block_bytes)).flat_map(of_block).take(MAX_OFFSETS);
        Box::new(offsets.filter(move |offset| *offset < length))
    }
}

/// The requests of some periods, one after the other: all of them, or, if they are too many or `wanted` says how many, so many. `counts` are those of the
/// periods.
pub(super) fn draws(
    drawn: &Drawn<'_>,
    counts: &[Counts],
    ranks: usize,
    wanted: Option<usize>,
    random: &mut SplitMix64,
) -> Vec<Draw> {
    let total: f64 = counts.iter().map(Counts::total).sum();
    let mut march = March { drawn, ranks, turn: 0, draws: Vec::new() };
    // Of short ones it would count most who begins when.
    let is_long = total >= (STRETCHES * OF_RANK * ranks) as f64;
    if wanted.is_none() && is_long && total <= WHOLE && march.is_of_one_size(counts) {
        march.all(counts);
        return march.draws;
    }
    let wanted = wanted.map_or((2.0 * total).min(WHOLE), |wanted| wanted as f64);
    for of_period in counts.iter().filter(|counts| counts.total() > 0.0) {
        march.stretches(of_period, (wanted * of_period.total() / total) as usize, random);
    }
    march.draws
}

/// Whether item `next` is the region behind that of `item`.
fn goes_on(items: &[Item], item: u32, next: u32) -> bool {
    let place = |item: u32| items.get(item as usize).map(|item| (item.file, item.regions[0]));
    let behind = place(item).map(|(file, region)| (file, region + 1));
    place(next) == behind && items[next as usize].is_accessed()
}

struct March<'a> {
    drawn: &'a Drawn<'a>,
    ranks: usize,
    /// The next region's number in the order of the march.
    turn: u32,
    draws: Vec<Draw>,
}

impl March<'_> {
    fn request_bytes(&self, class: u16) -> u64 {
        self.drawn.classes[usize::from(class)].class.request_bytes
    }

    fn region_bytes(&self, item: u32) -> u64 {
        self.drawn.items[item as usize].region_bytes
    }

    fn rows(&self, item: u32, request_bytes: u64) -> Rows {
        Rows::of(self.drawn.companies[self.drawn.items[item as usize].file], self.ranks, request_bytes)
    }

    fn is_of_one_size(&self, counts: &[Counts]) -> bool {
        let mut sizes: HashMap<u64, f64> = HashMap::new();
        for (_, class, count) in counts.iter().flat_map(Counts::each) {
            *sizes.entry(self.request_bytes(class)).or_insert(0.0) += count;
        }
        let total: f64 = counts.iter().map(Counts::total).sum();
        sizes.values().any(|count| *count >= OF_ONE_SIZE * total)
    }

    /// Every request of every period.
    fn all(&mut self, counts: &[Counts]) {
        // Of items and classes, what is still to be drawn of those periods that have begun.
        let mut due: Vec<Vec<(u16, f64)>> = vec![Vec::new(); self.drawn.items.len()];
        let left = |of_item: &Vec<(u16, f64)>| of_item.iter().map(|(_, count)| *count).sum::<f64>().round();
        for of_period in counts {
            for (item, class, count) in of_period.each() {
                let of_item = &mut due[item as usize];
                match of_item.iter_mut().find(|(known, _)| *known == class) {
                    Some((_, sum)) => *sum += count,
                    None => of_item.push((class, count)),
                }
            }
            let items = self.drawn.items;
            // Each round goes once through every part of a file that is not done with yet.
            loop {
                let open: Vec<u32> =
                    (0..).zip(&due).filter(|(_, of_item)| left(of_item) >= 1.0).map(|(item, _)| item).collect();
                if open.is_empty() {
                    break;
                }
                for part in open.chunk_by(|item, next| goes_on(items, *item, *next)) {
                    let most = |of_item: &Vec<(u16, f64)>| {
                        let most =
                            of_item.iter().enumerate().max_by(|a, b| a.1.1.total_cmp(&b.1.1).then(b.0.cmp(&a.0)));
                        most.map_or(0, |(at, _)| at)
                    };
                    let chosen: Vec<usize> = part.iter().map(|item| most(&due[*item as usize])).collect();
                    let limits: Vec<f64> = part.iter().map(|item| left(&due[*item as usize])).collect();
                    let classes: Vec<u16> =
                        part.iter().zip(&chosen).map(|(item, at)| due[*item as usize][*at].0).collect();
                    let drawn = self.pass(part, &classes, |at| limits[at] as usize);
                    for ((item, at), count) in part.iter().zip(chosen).zip(drawn) {
                        match count {
                            // There is no place for a request.
                            0 => due[*item as usize].clear(),
                            count => due[*item as usize][at].1 -= count as f64,
                        }
                    }
                }
            }
        }
    }

    /// Regions that a block of the item's rows reaches into.
    fn regions_of_block(&self, item: u32, request_bytes: u64) -> usize {
        let regions = self.rows(item, request_bytes).block_bytes().div_ceil(self.region_bytes(item).max(1));
        usize::try_from(regions).unwrap_or(usize::MAX).max(1)
    }

    /// Once through regions that lie one behind the other, each with requests of one class and no more than the limit; returns how many each got.
    fn pass(&mut self, part: &[u32], classes: &[u16], limit: impl Fn(usize) -> usize) -> Vec<usize> {
        let mut drawn = Vec::with_capacity(part.len());
        let size = self.regions_of_block(part[0], self.request_bytes(classes[0]));
        for (block, classes) in part.chunks(size).zip(classes.chunks(size)) {
            let limits: Vec<usize> = (drawn.len()..drawn.len() + block.len()).map(&limit).collect();
            drawn.extend(self.block(block, classes, &limits));
        }
        drawn
    }

    fn block(&mut self, items: &[u32], classes: &[u16], limits: &[usize]) -> Vec<usize> {
        let (mut drawn, mut open) = (vec![0; items.len()], limits.iter().filter(|limit| **limit > 0).count());
        let region_bytes = self.region_bytes(items[0]);
        let length: u64 = items.iter().map(|item| self.region_bytes(*item)).sum();
        let rows = self.rows(items[0], self.request_bytes(classes[0]));
        let first = self.drawn.first_offset(items[0], rows.pitch_bytes);
        for offset in rows.offsets(length.saturating_sub(first)).map(|offset| first + offset) {
            if open == 0 {
                break;
            }
            let at = ((offset / region_bytes) as usize).min(items.len() - 1);
            if drawn[at] == limits[at] {
                continue;
            }
            drawn[at] += 1;
            open -= usize::from(drawn[at] == limits[at]);
            let (item, bytes) = (items[at], self.request_bytes(classes[at]));
            let within = (offset - at as u64 * region_bytes).min(self.region_bytes(item).saturating_sub(bytes));
            let turn = self.turn + at as u32;
            self.draws.push(Draw { item, class: classes[at], offset: within, bytes, turn });
        }
        self.turn += items.len() as u32;
        drawn
    }

    /// Parts of the file from one end to the other, whole regions of requests in order.
    fn stretches(&mut self, counts: &Counts, wanted: usize, random: &mut SplitMix64) {
        let (first, class) = counts.pick(0.0);
        let is_one_run = self.rows(first, self.request_bytes(class)).runs == 1;
        let (stretches, of_region) =
            if is_one_run { (STRETCHES, OF_REGION) } else { (STRETCHES_OF_ROWS, OF_REGION_OF_ROWS) };
        for number in 0..stretches {
            // Anywhere in its part of the march: regular distances may meet only one of the layouts that take turns.
            let share = (number as f64 + random.below(1 << 20) as f64 / f64::from(1 << 20)) / stretches as f64;
            let (mut item, class) = counts.pick(share);
            let least = (OF_RANK * self.ranks).max(wanted / stretches);
            let (end, mut regions) = (self.draws.len() + least, 0);
            let size = self.regions_of_block(item, self.request_bytes(class));
            let items = self.drawn.items;
            // Whole regions, and the next stretch as if it lay behind: ranks keep their distances, and no seek is charged that the run does not have.
            while self.draws.len() < end || regions < MIN_REGIONS {
                let mut part = vec![item];
                while part.len() < size && goes_on(items, item, item + 1) {
                    item += 1;
                    part.push(item);
                }
                let before = self.draws.len();
                self.pass(&part, &vec![class; part.len()], |_| of_region);
                regions += part.len();
                if goes_on(items, item, item + 1) {
                    item += 1;
                }
                if self.draws.len() == before {
                    break;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_that_adjoin_are_one_run() {
        let company = Company { same_region: 1.0, adjoining: 15.0 / 16.0, skip_bytes: 24, apart_bytes: 0 };
        let rows = Rows::of(company, 16, 1000);
        assert_eq!((rows.runs, rows.of_run), (1, 16));
        assert_eq!(rows.offsets(4096).collect::<Vec<_>>(), [0, 1024, 2048, 3072]);
        // Counts that say nothing of distances.
        assert_eq!(Rows::of(Company { adjoining: 0.5, ..Company::default() }, 16, 1000).runs, 1);
    }

    #[test]
    fn rows_of_a_grid_go_on_side_by_side_until_they_meet() {
        // Two rows of two requests of 10 bytes, 40 bytes apart.
        let company = Company { same_region: 1.0, adjoining: 0.5, skip_bytes: 0, apart_bytes: 40 };
        let rows = Rows::of(company, 4, 10);
        let offsets: Vec<u64> = rows.offsets(160).collect();
        assert_eq!(offsets[..8], [0, 10, 40, 50, 20, 30, 60, 70]);
        assert_eq!(offsets[8..], [80, 90, 120, 130, 100, 110, 140, 150]);
        assert_eq!(rows.offsets(85).filter(|offset| *offset >= 80).collect::<Vec<_>>(), [80]);
    }
}
