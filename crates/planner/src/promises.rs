//! What the broker will take of a plan where files end in the middle of a region.
//!
//! A policy books the bytes that a file has in a region. The broker promises a region its full size on every server that has a capacity, because the file may grow. Of a
//! plan for many files that are smaller than their regions, servers may so take less than the policy gave them. What they will not take is taken out of the plan here, the
//! regions with the fewest requests first, so that predictions, verdict and `apply` agree.

use crate::policy::{FileChoice, Task, region_bytes, region_count};
use stripewise_layout::figures::{bytes, counted};
use stripewise_layout::{Layout, RegionIndex};

/// A region in one window of its file's choice.
#[derive(Clone, Copy)]
struct Booked {
    file: usize,
    region: u32,
    requests: u64,
}

/// Gives regions that the broker would not place where the choices have them their file's fallback layout, and says so.
pub(crate) fn keep(task: &Task<'_>, choices: &mut [FileChoice]) -> Option<String> {
    let request = task.request;
    let mut space: Vec<Option<u64>> = vec![None; task.groups.count];
    if request.promises_whole_regions {
        for ssd in task.groups.ssd.iter().filter(|ssd| request.cluster.room_bytes(**ssd).is_some()) {
            let server = usize::from(ssd.0);
            space[server] = task.capacity.bytes(server);
        }
    }
    if space.iter().all(Option::is_none) {
        return None;
    }
    let share = |layout: &Layout, file: usize, region: u32| -> Vec<(usize, u64)> {
        let of_file = &request.files[file];
        let view = layout.view();
        let of_turn = |(turn, stripe): (usize, &stripewise_layout::Stripe)| {
            let server = usize::from(stripe.server.0);
            let length = match space[server] {
                Some(_) => of_file.region_size.0,
                None => region_bytes(of_file, RegionIndex(region)),
            };
            (server, view.object_bytes(turn, length))
        };
        layout.stripes().iter().enumerate().map(of_turn).collect()
    };
    let windows = choices.iter().map(|choice| choice.windows.len()).max().unwrap_or(0);
    let (mut removed, mut longest) = (std::collections::BTreeSet::new(), 0);
    for window in 0..windows {
        let mut booked: Vec<Booked> = Vec::new();
        for (file, choice) in choices.iter().enumerate().filter(|(_, choice)| window < choice.windows.len()) {
            let requests = requests(task, file, (choice.windows.len() > 1).then_some(window));
            let regions = (0..region_count(&request.files[file])).zip(requests);
            booked.extend(regions.map(|(region, requests)| Booked { file, region, requests }));
        }
        booked.sort_by_key(|one| (std::cmp::Reverse(one.requests), one.file, one.region));
        let mut taken = vec![0u64; task.groups.count];
        for Booked { file, region, .. } in booked {
            let choice = &mut choices[file];
            let Some(number) = choice.windows[window].get(region as usize).copied() else { continue };
            let mut of_region = share(&choice.layouts[number as usize], file, region);
            let fits = |(server, bytes): &(usize, u64)| {
                space[*server].is_none_or(|space| taken[*server].saturating_add(*bytes) <= space)
            };
            let fallback = &choice.layouts[choice.fallback as usize];
            if !of_region.iter().all(fits) && choice.layouts[number as usize] != *fallback {
                of_region = share(fallback, file, region);
                choice.windows[window][region as usize] = choice.fallback;
                removed.insert((file, region));
                longest = longest.max(region_bytes(&request.files[file], RegionIndex(region)));
            }
            of_region.iter().for_each(|(server, bytes)| taken[*server] = taken[*server].saturating_add(*bytes));
        }
    }
    let region_size = request.cluster.region_size.0;
    let smaller = longest.checked_next_power_of_two().filter(|smaller| *smaller < region_size && !removed.is_empty());
    let remedy = smaller.map_or_else(String::new, |smaller| {
        format!("; plan with --region {} (or `init` with it)", stripewise_layout::ByteCount(smaller.max(4096)))
    });
    (!removed.is_empty()).then(|| {
        format!(
            "{} lie in the fallback layout for want of space: a region is promised its full {} on its servers, also where its file ends before{remedy}",
            counted(removed.len(), "region", "regions"),
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
