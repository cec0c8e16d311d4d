//! The part of a plan's moves to be done before the next plan is made.
//!
//! The mover copies one region after the other, and a hot set can need more copying than fits into a window. If all regions that leave the
//! SServers went first, as within one list of moves, nothing would be gained until the last of them had left. So the moves are ranked: the region with the
//! most requests per byte first, each after as many of the coldest that leave as free space for it; and no more are begun than can be done in
//! the window. What is left is planned again after it, with what is known by then.

use super::super::super::{FileChoice, Task, region_bytes};
use std::collections::HashMap;
use stripewise_layout::{Direction, Layout, Order, RegionIndex};

/// Bytes that the mover copies at a time.
const CHUNK_BYTES: u64 = 1 << 20;

/// A region that changes its layout.
#[derive(Clone, Copy, Debug)]
struct Step<'a> {
    file: usize,
    region: usize,
    from: &'a Layout,
    to: &'a Layout,
    bytes: u64,
    /// Requests that are expected of it, per byte.
    heat: f64,
}

/// What the mover and the requests are expected to do in the window to come.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    /// Seconds that it lasts.
    pub(super) length_s: f64,
    /// Seconds from the issue of a request to its end, in the mean.
    pub(super) response_s: f64,
}

impl Window {
    /// Of `windows` windows that together take so long and make the requests of the task's one.
    pub(super) fn of(task: &Task<'_>, time_s: f64, windows: f64) -> Self {
        let regions = task.request.files.iter().flat_map(|file| &file.windows).flat_map(|window| &window.regions);
        let requests: f64 = regions.flat_map(|region| &region.counts).map(|(_, count)| *count as f64).sum();
        let processes = f64::from(task.concurrency.processes.max(1));
        // Little's law: p requests are always on their way.
        Self { length_s: time_s / windows.max(1.0), response_s: processes * time_s / requests.max(1.0) }
    }
}

/// The choices in force after the window, which is their only one: those of `planned` where the move is done in it, those of `now` elsewhere.
pub(super) fn stage(task: &Task<'_>, now: &[FileChoice], planned: Vec<FileChoice>, window: Window) -> Vec<FileChoice> {
    stage_some(task, now, planned, window, usize::MAX)
}

/// As [`stage`], with so many moves at most.
pub(super) fn stage_some(
    task: &Task<'_>,
    now: &[FileChoice],
    planned: Vec<FileChoice>,
    window: Window,
    most: usize,
) -> Vec<FileChoice> {
    let mut staged = super::super::joined(now.to_vec(), planned);
    let mut left_s = window.length_s;
    let mut done: Vec<Vec<bool>> = staged.iter().map(|choice| vec![false; choice.windows[1].len()]).collect();
    for step in ranked(task, &staged, steps(task, &staged)).into_iter().take(most) {
        if left_s <= 0.0 {
            break;
        }
        left_s -= seconds(task, &step, window.response_s);
        done[step.file][step.region] = true;
    }
    for (choice, done) in staged.iter_mut().zip(done) {
        let now = choice.windows.remove(0);
        let next = choice.windows[0].iter_mut().zip(now).zip(done);
        // A region that was not placed yet is longer than `now`.
        next.filter(|(_, done)| !done).for_each(|((next, now), _)| *next = now);
    }
    staged
}

/// All regions that change their layout between the two windows of the choices.
fn steps<'a>(task: &Task<'_>, joined: &'a [FileChoice]) -> Vec<Step<'a>> {
    let mut steps = Vec::new();
    for (number, (choice, file)) in joined.iter().zip(task.request.files).enumerate() {
        let mut requests: HashMap<u32, u64> = HashMap::new();
        for access in file.windows.iter().flat_map(|window| &window.regions) {
            let known = requests.entry(access.region.0).or_insert(0);
            *known = access.counts.iter().fold(*known, |sum, (_, count)| sum.saturating_add(*count));
        }
        for (region, (from, to)) in choice.windows[0].iter().zip(&choice.windows[1]).enumerate() {
            let (from, to) = (&choice.layouts[*from as usize], &choice.layouts[*to as usize]);
            if from == to {
                continue;
            }
            let bytes = region_bytes(file, RegionIndex(region as u32));
            let heat = requests.get(&(region as u32)).map_or(0.0, |count| *count as f64 / bytes.max(1) as f64);
            steps.push(Step { file: number, region, from, to, bytes, heat });
        }
    }
    steps
}

/// The steps in the order in which they should be done; none before there is space for it.
fn ranked<'a>(task: &Task<'_>, joined: &[FileChoice], steps: Vec<Step<'a>>) -> Vec<Step<'a>> {
    let mut used_bytes = vec![0u64; task.groups.count];
    for (choice, file) in joined.iter().zip(task.request.files) {
        for (region, layout) in choice.windows[0].iter().enumerate() {
            let bytes = region_bytes(file, RegionIndex(region as u32));
            parts(&choice.layouts[*layout as usize], bytes).for_each(|(server, bytes)| used_bytes[server] += bytes);
        }
    }
    let on_ssds = |layout: &Layout, bytes: u64| -> u64 {
        let of_ssds =
            layout.stripes().iter().enumerate().filter(|(_, stripe)| task.groups.ssd.contains(&stripe.server));
        of_ssds.map(|(turn, _)| layout.view().object_bytes(turn, bytes)).sum()
    };
    let (mut leaving, mut coming): (Vec<Step>, Vec<Step>) =
        steps.into_iter().partition(|step| on_ssds(step.to, step.bytes) < on_ssds(step.from, step.bytes));
    // The next one at the end.
    leaving.sort_by(|a, b| b.heat.total_cmp(&a.heat).then((b.file, b.region).cmp(&(a.file, a.region))));
    coming.sort_by(|a, b| b.heat.total_cmp(&a.heat).then((a.file, a.region).cmp(&(b.file, b.region))));
    let mut order = Vec::with_capacity(leaving.len() + coming.len());
    let mut do_it = |step: Step<'a>, used_bytes: &mut Vec<u64>| {
        parts(step.from, step.bytes).for_each(|(server, bytes)| used_bytes[server] -= bytes);
        parts(step.to, step.bytes).for_each(|(server, bytes)| used_bytes[server] += bytes);
        order.push(step);
    };
    for step in coming {
        let fits = |used_bytes: &[u64]| {
            let lacks = |(server, bytes): (usize, u64)| {
                let freed = parts(step.from, step.bytes)
                    .filter(|(from, _)| *from == server)
                    .map(|(_, bytes)| bytes)
                    .sum::<u64>();
                task.capacity
                    .bytes(server)
                    .is_some_and(|capacity| used_bytes[server].saturating_sub(freed).saturating_add(bytes) > capacity)
            };
            !parts(step.to, step.bytes).any(lacks)
        };
        while !fits(&used_bytes) {
            let Some(next) = leaving.pop() else { break };
            do_it(next, &mut used_bytes);
        }
        // One that still lacks room waits for the next plan.
        if fits(&used_bytes) {
            do_it(step, &mut used_bytes);
        }
    }
    while let Some(next) = leaving.pop() {
        do_it(next, &mut used_bytes);
    }
    order
}

/// Bytes of a region on each server of its layout.
fn parts(layout: &Layout, region_bytes: u64) -> impl Iterator<Item = (usize, u64)> {
    let view = layout.view();
    let stripes = layout.stripes().iter().enumerate();
    stripes.map(move |(turn, stripe)| (usize::from(stripe.server.0), view.object_bytes(turn, region_bytes)))
}

/// Seconds that the mover takes for a step: each chunk is read and then written, and waits for the servers as long as a request does.
fn seconds(task: &Task<'_>, step: &Step<'_>, response_s: f64) -> f64 {
    let profile = task.request.profile;
    let half = |layout: &Layout, direction| -> f64 {
        let chunk = CHUNK_BYTES.min(step.bytes);
        let part = |(server, bytes): (usize, u64)| {
            let line = profile.servers[server].line(direction, Order::Sequential);
            let (network, bytes) = (&profile.network, bytes as f64);
            if bytes > 0.0 { line.seconds(bytes) + network.e_s + bytes * network.t_s_per_byte } else { 0.0 }
        };
        parts(layout, chunk).map(part).fold(0.0, f64::max)
    };
    let chunk_s = half(step.from, Direction::Read) + half(step.to, Direction::Write) + 2.0 * response_s;
    chunk_s * step.bytes as f64 / CHUNK_BYTES.min(step.bytes).max(1) as f64
}
