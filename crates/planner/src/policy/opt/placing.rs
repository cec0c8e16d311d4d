//! From shapes to layouts on servers, window by window.
//!
//! A region's layout is its shape, begun at the turn where the least work is (`dealing.rs`), those that load one server longest first. A region that
//! keeps its shape keeps its layout. Room is booked to the byte, server by server; a region that no longer fits takes the cheapest of its options
//! that does.

use super::super::{FileChoice, Task, file_request_bytes, region_count};
use super::dealing::Dealer;
use super::paths::Prices;
use super::program::Program;
use super::rounding::by_heat;
use super::shapes::kind_of_servers;
use crate::capacity::Ledger;
use crate::servers::ceil_to;
use std::collections::HashMap;
use stripewise_layout::{Layout, ServerId};
use stripewise_trace::FileAccess;

/// Where the data is before the first window: for every file its layouts and the number of each region's.
pub(crate) type Before<'a> = &'a [FileChoice];

/// Layouts on servers for all windows of the program. `before` are choices whose last window holds before the first one.
pub(crate) fn place(
    task: &Task<'_>,
    program: &Program,
    prices: &Prices,
    chosen: &[u16],
    before: Option<Before<'_>>,
) -> Vec<FileChoice> {
    let all: Vec<ServerId> = (0..task.groups.count).map(|server| ServerId(server as u16)).collect();
    let mut files: Vec<PlacedFile> = task.request.files.iter().map(|file| PlacedFile::new(task, file)).collect();
    let order = by_heat(program, prices);
    let kind_of = kind_of_servers(&program.kinds, task.groups.count);
    for window in 0..program.windows {
        let mut ledger = Ledger::new(task.capacity);
        let mut dealer = Dealer::new(program, window, &kind_of);
        let mut waiting: Vec<(f64, usize, u32)> = Vec::new();
        // Those that stay first: their room is taken already.
        for item in &order {
            let of_item = &program.items[*item];
            let option = chosen[item * program.windows + window];
            let stays = match window {
                0 => before.is_some() && program.before(*item) == Some(option),
                _ => chosen[item * program.windows + window - 1] == option,
            };
            for region in &of_item.regions {
                let known = match (stays, window) {
                    (false, _) => None,
                    (true, 0) => before.map(|before| last_layout(before, of_item.file, *region).clone()),
                    (true, _) => Some(files[of_item.file].layout(*region).clone()),
                };
                match known.filter(|layout| ledger.book(layout, of_item.region_bytes, &all)) {
                    Some(layout) => {
                        dealer.keep(*item, option, &layout, of_item.region_bytes);
                        files[of_item.file].set(*region, layout);
                    }
                    None => waiting.push((dealer.length_s(*item, option), *item, *region)),
                }
            }
        }
        // Stable: of equal ones the hottest, then as they lie in the file.
        waiting.sort_by(|a, b| b.0.total_cmp(&a.0));
        for (_, item, region) in waiting {
            let of_item = &program.items[item];
            let option = chosen[item * program.windows + window];
            let bytes = of_item.region_bytes;
            let mut deal = |option: u16| dealer.deal(item, option, bytes, |layout| ledger.book(layout, bytes, &all));
            // Nearly all fit where they should.
            let placed = deal(option)
                .or_else(|| others_cheapest_first(program, prices, item, window, option).into_iter().find_map(deal));
            let file = &mut files[of_item.file];
            match placed {
                Some(layout) => file.set(region, layout),
                None => {
                    let fallback = file.fallback_layout().clone();
                    ledger.add(&fallback, bytes, 1);
                    file.set(region, fallback);
                }
            }
        }
        files.iter_mut().for_each(|file| file.windows.push(file.current.clone()));
    }
    let choice =
        |file: PlacedFile| FileChoice { layouts: file.layouts, windows: file.windows, fallback: file.fallback };
    files.into_iter().map(choice).collect()
}

/// The layout of a region in the last window of choices.
pub(crate) fn last_layout(choices: &[FileChoice], file: usize, region: u32) -> &Layout {
    layout_in(choices, usize::MAX, file, region)
}

/// The layout of a region in a window of choices; the last one holds on.
pub(crate) fn layout_in(choices: &[FileChoice], window: usize, file: usize, region: u32) -> &Layout {
    let choice = &choices[file];
    let regions = &choice.windows[window.min(choice.windows.len() - 1)];
    let number = regions.get(region as usize).copied().unwrap_or(choice.fallback);
    &choice.layouts[number as usize]
}

fn others_cheapest_first(program: &Program, prices: &Prices, item: usize, window: usize, but: u16) -> Vec<u16> {
    let mut others: Vec<(f64, u16)> = (0..program.options(item) as u16)
        .filter(|option| *option != but)
        .map(|option| (program.priced_s(item, option, window, prices), option))
        .collect();
    others.sort_by(|a, b| a.0.total_cmp(&b.0));
    others.into_iter().map(|(_, option)| option).collect()
}

/// The layouts of one file's regions, while they are chosen; of regions that are not set, those for which there is no space elsewhere.
pub(super) struct PlacedFile {
    layouts: Vec<Layout>,
    numbers: HashMap<Layout, u32>,
    current: Vec<u32>,
    windows: Vec<Vec<u32>>,
    fallback: u32,
}

impl PlacedFile {
    pub(super) fn new(task: &Task<'_>, file: &FileAccess) -> Self {
        let request_bytes = file_request_bytes(file, task.step_bytes);
        let fallback = task.groups.pure_layout(ceil_to(request_bytes.max(1), task.step_bytes));
        let current = vec![0; region_count(file) as usize];
        Self {
            numbers: HashMap::from([(fallback.clone(), 0)]),
            layouts: vec![fallback],
            current,
            windows: Vec::new(),
            fallback: 0,
        }
    }

    fn layout(&self, region: u32) -> &Layout {
        &self.layouts[self.current[region as usize] as usize]
    }

    pub(super) fn fallback_layout(&self) -> &Layout {
        &self.layouts[self.fallback as usize]
    }

    /// The same in so many windows.
    pub(super) fn finish(self, windows: usize) -> FileChoice {
        FileChoice { layouts: self.layouts, windows: vec![self.current; windows], fallback: self.fallback }
    }

    pub(super) fn set(&mut self, region: u32, layout: Layout) {
        let next = self.layouts.len() as u32;
        let number = *self.numbers.entry(layout).or_insert_with_key(|layout| {
            self.layouts.push(layout.clone());
            next
        });
        self.current[region as usize] = number;
    }
}
