//! What the broker will take of a plan where files end in the middle of a region, or where servers are nearly full.
//!
//! A policy books the bytes that a file has in a region. The broker promises a region its full size on every server that has a capacity, because the file may grow, and places
//! one where its full size is free. So servers may take less than the policy gave them. What they will not take is laid elsewhere here, the
//! regions with the fewest requests first, so that predictions, verdict and `apply` agree.

use crate::policy::{FileChoice, Task, region_bytes, region_count};
use std::collections::BTreeSet;
use stripewise_layout::figures::{bytes, counted};
use stripewise_layout::{ByteCount, Layout, RegionIndex, ServerId};

/// Turns of an even layout for each server.
const UNITS_PER_SERVER: u64 = 64;

/// A region in one window of its file's choice.
#[derive(Clone, Copy)]
struct Booked {
    file: usize,
    region: u32,
    requests: u64,
}

/// What became of a policy's choice.
pub(crate) struct Kept {
    /// Says which regions lie elsewhere than they were to.
    pub(crate) note: Option<String>,
    /// What the broker asks of each server in the window where that is most; 0 where it is known to fit.
    pub(crate) needed_bytes: Vec<u64>,
}

/// What servers have and what is promised of it.
#[derive(Clone)]
struct Promises<'t> {
    /// What each may take; `None`: not known.
    space: &'t [Option<u64>],
    /// Whether it has a capacity, of which regions are promised their full size.
    has_capacity: &'t [bool],
    taken: Vec<u64>,
    /// The most that a region asks for beyond what it takes.
    beyond: Vec<u64>,
}

/// A region's part of one server.
struct Share {
    server: usize,
    /// Of what is free, from then on.
    taken: u64,
    /// Of what is free, when the region is placed.
    asked: u64,
}

impl Promises<'_> {
    fn shares(&self, layout: &Layout, full_bytes: u64, used_bytes: u64) -> Vec<Share> {
        let view = layout.view();
        let of_turn = |(turn, stripe): (usize, &stripewise_layout::Stripe)| {
            let (server, asked) = (usize::from(stripe.server.0), view.object_bytes(turn, full_bytes));
            let taken = if self.has_capacity[server] { asked } else { view.object_bytes(turn, used_bytes) };
            Share { server, taken, asked }
        };
        layout.stripes().iter().enumerate().map(of_turn).collect()
    }

    fn fit(&self, shares: &[Share]) -> bool {
        shares.iter().all(|share| {
            let beyond = self.beyond[share.server].max(share.asked - share.taken);
            let needed = self.taken[share.server].saturating_add(share.taken).saturating_add(beyond);
            self.space[share.server].is_none_or(|space| needed <= space)
        })
    }

    fn take(&mut self, shares: &[Share]) {
        for share in shares {
            self.taken[share.server] = self.taken[share.server].saturating_add(share.taken);
            self.beyond[share.server] = self.beyond[share.server].max(share.asked - share.taken);
        }
    }

    /// A layout of stripes as long as servers have space left; `None`: there is too little.
    fn even(&self, full_bytes: u64, step_bytes: u64) -> Option<Layout> {
        let left = |server: usize| match self.space[server] {
            Some(space) => space.saturating_sub(self.taken[server] + self.beyond[server]).min(full_bytes),
            None => full_bytes,
        };
        let servers = self.space.len();
        let total: u128 = (0..servers).map(|server| u128::from(left(server))).sum();
        let units = (UNITS_PER_SERVER * servers as u64).min(full_bytes / step_bytes).max(1);
        let stripe = |server: usize| {
            let turns = u128::from(left(server)) * u128::from(units) / total.max(1);
            Some((ServerId(server as u16), u32::try_from(turns * u128::from(step_bytes)).ok()?))
        };
        let stripes = (0..servers).map(stripe).collect::<Option<Vec<(ServerId, u32)>>>()?;
        Layout::new(stripes.into_iter().filter(|(_, bytes)| *bytes > 0)).ok()
    }
}

/// Gives regions that the broker would not place where the choices have them their file's fallback layout, or one by what servers have left where
/// that has no space either, and says so.
pub(crate) fn keep(task: &Task<'_>, choices: &mut [FileChoice]) -> Kept {
    let request = task.request;
    let servers = task.groups.count;
    let mut kept = Kept { note: None, needed_bytes: vec![0; servers] };
    let space: Vec<Option<u64>> = (0..servers).map(|server| task.capacity.bytes(server)).collect();
    if !request.promises_whole_regions || fits_whole(task, choices, &space) {
        return kept;
    }
    let has_capacity: Vec<bool> = request.cluster.ids().map(|id| request.cluster.room_bytes(id).is_some()).collect();
    let nothing =
        Promises { space: &space, has_capacity: &has_capacity, taken: vec![0; servers], beyond: vec![0; servers] };
    let windows = choices.iter().map(|choice| choice.windows.len()).max().unwrap_or(0);
    let (mut removed, mut spread, mut longest) = (BTreeSet::new(), BTreeSet::new(), 0);
    for window in 0..windows {
        let mut booked: Vec<Booked> = Vec::new();
        for (file, choice) in choices.iter().enumerate().filter(|(_, choice)| window < choice.windows.len()) {
            let requests = requests(task, file, (choice.windows.len() > 1).then_some(window));
            let regions = (0..region_count(&request.files[file])).zip(requests);
            booked.extend(regions.map(|(region, requests)| Booked { file, region, requests }));
        }
        booked.sort_by_key(|one| (std::cmp::Reverse(one.requests), one.file, one.region));
        let mut promises = nothing.clone();
        for Booked { file, region, .. } in booked {
            let choice = &mut choices[file];
            let Some(number) = choice.windows[window].get(region as usize).copied() else { continue };
            let (full_bytes, used_bytes) =
                (request.files[file].region_size.0, region_bytes(&request.files[file], RegionIndex(region)));
            let shares = |layout: &Layout, promises: &Promises<'_>| promises.shares(layout, full_bytes, used_bytes);
            let mut of_region = shares(&choice.layouts[number as usize], &promises);
            if !promises.fit(&of_region) {
                let of_fallback = shares(&choice.layouts[choice.fallback as usize], &promises);
                let even = match promises.fit(&of_fallback) {
                    true => None,
                    false => promises.even(full_bytes, request.options.step.0),
                };
                let of_even = even.map(|layout| (shares(&layout, &promises), layout));
                let chosen = match of_even.filter(|(shares, _)| promises.fit(shares)) {
                    Some((shares, layout)) => {
                        of_region = shares;
                        spread.insert((file, region));
                        number_of(choice, layout)
                    }
                    None => {
                        of_region = of_fallback;
                        choice.fallback
                    }
                };
                if choice.layouts[number as usize] != choice.layouts[chosen as usize] {
                    choice.windows[window][region as usize] = chosen;
                    removed.insert((file, region));
                    longest = longest.max(used_bytes);
                }
            }
            promises.take(&of_region);
        }
        for (needed, (taken, beyond)) in kept.needed_bytes.iter_mut().zip(promises.taken.iter().zip(&promises.beyond)) {
            *needed = (*needed).max(taken.saturating_add(*beyond));
        }
    }
    kept.note = note(task, removed.len(), spread.len(), longest);
    kept
}

/// Whether servers have space for regions of full size, however far their files reach.
fn fits_whole(task: &Task<'_>, choices: &[FileChoice], space: &[Option<u64>]) -> bool {
    let windows = choices.iter().map(|choice| choice.windows.len()).max().unwrap_or(0);
    (0..windows).all(|window| {
        let mut taken = vec![0u64; space.len()];
        for (choice, file) in choices.iter().zip(task.request.files) {
            let Some(numbers) = choice.windows.get(window) else { continue };
            let mut regions = vec![0u64; choice.layouts.len()];
            numbers.iter().for_each(|number| regions[*number as usize] += 1);
            for (layout, regions) in choice.layouts.iter().zip(regions).filter(|(_, regions)| *regions > 0) {
                for (turn, stripe) in layout.stripes().iter().enumerate() {
                    let bytes = layout.view().object_bytes(turn, file.region_size.0).saturating_mul(regions);
                    let taken = &mut taken[usize::from(stripe.server.0)];
                    *taken = taken.saturating_add(bytes);
                }
            }
        }
        taken.iter().zip(space).all(|(taken, space)| space.is_none_or(|space| *taken <= space))
    })
}

/// The position of a layout among those of a choice.
fn number_of(choice: &mut FileChoice, layout: Layout) -> u32 {
    let known = choice.layouts.iter().position(|known| *known == layout);
    let number = known.unwrap_or(choice.layouts.len());
    if number == choice.layouts.len() {
        choice.layouts.push(layout);
    }
    number as u32
}

fn note(task: &Task<'_>, removed: usize, spread: usize, longest: u64) -> Option<String> {
    let region_size = task.request.cluster.region_size.0;
    let smaller = longest.checked_next_power_of_two().filter(|smaller| *smaller < region_size && removed > 0);
    let remedy = smaller.map_or_else(String::new, |smaller| {
        format!("; plan with --region {} (or `init` with it)", ByteCount(smaller.max(4096)))
    });
    let of_them = match spread {
        0 => String::new(),
        spread => format!(" ({spread} of them by what servers have left, as the fallback layout is full too)"),
    };
    (removed > 0).then(|| {
        format!(
            "{} in the fallback layout for want of space{of_them}: a region is promised its full {} on its servers, also where its file ends before{remedy}",
            counted(removed, "region lies", "regions lie"),
            bytes(region_size),
        )
    })
}

/// Requests to each region of a file, in one window or in all.
fn requests(task: &Task<'_>, file: usize, window: Option<usize>) -> Vec<u64> {
    let access = &task.request.files[file];
    let mut requests = vec![0u64; region_count(access) as usize];
    let windows = access.windows.iter().enumerate().filter(|(number, _)| window.is_none_or(|wanted| wanted == *number));
    for region in windows.flat_map(|(_, window)| &window.regions) {
        if let Some(sum) = requests.get_mut(region.region.0 as usize) {
            *sum = region.counts.iter().fold(*sum, |sum, (_, count)| sum.saturating_add(*count));
        }
    }
    requests
}
