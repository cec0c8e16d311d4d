//! How long a sample of a period's requests takes on a placement: p processes, each with one request in flight.
//!
//! Every server is two stations in a row, device and link, that serve in order of arrival; a request's sub-requests run side by side, and the
//! process issues its next request when the last is done. For such servers the time at which a sub-request will be done is known when
//! it is issued, so a sample costs one pass without events. Mean value analysis with a fork-join correction, which the design names
//! for ranking, misses by more than near-equal candidates differ; a sample of 16,000 requests takes a few milliseconds and is
//! exact but for its draws. All candidates see the same requests in the same order.
//!
//! In a crowd, whichever process is idle takes the next request. Ranks that march through a file in order have sequences of their own, every p-th
//! request, and their sample is of consecutive requests, with the disks' heads followed (`heads.rs`). Programs whose processes are known
//! apart are pools of one sample, each with its own processes, which leave when their requests are done.
//!
//! Moves go on beside the requests, as the live mover does them: one region after the other, read and then written in chunks; requests find the
//! old layout until the region is copied. The sample stands for many requests each, so only that part of each region is copied.

mod drawn;
mod draws;
mod march;

use super::demand::SeenClass;
use super::heads::{Heads, Spot};
use super::side_by_side::SideBySide;
use drawn::Draw;
pub(crate) use drawn::Drawn;
use draws::Pool;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use stripewise_layout::{Direction, Layout, Order, RegionOffset, SplitMix64};
use stripewise_model::Profile;

/// Processes of a sample, at most: more keep every station busy as well.
const MAX_PROCESSES: u32 = 512;

/// Bytes that the mover copies at a time.
const CHUNK_BYTES: u64 = 1 << 20;

/// Of ranks that march out of step each begins this much after the one before: about a seek. Longer runs than a sample drift as far by themselves
/// where their requests do not keep them together.
const LAG_NS: u64 = 3_000_000;

/// Ranks that start in any order begin so late at most: tens of requests.
const LATEST_NS: u64 = 150_000_000;

/// The process number of the mover.
const MOVER: u32 = u32::MAX;

/// A region that changes its layout while the requests go on.
pub(crate) struct Moving<'a> {
    pub(crate) item: usize,
    pub(crate) from: &'a Layout,
    pub(crate) to: &'a Layout,
    pub(crate) bytes: u64,
}

/// The requests that candidates are tried with.
#[derive(Debug)]
pub(crate) struct Sample {
    pools: Vec<Pool>,
    /// Requests that each draw stands for.
    weight: f64,
    /// Nanoseconds of startup and per byte, by class and server.
    devices: Vec<Vec<(f64, f64)>>,
    /// Whether a process waits for its requests, by class.
    awaited: Vec<bool>,
    /// Share of what is at a device that a request's flush waits for, by class and server; empty for classes that flush nothing.
    flushes: Vec<Vec<f64>>,
    /// Nanoseconds of sequential and random startup, by class and server.
    startups: Vec<Vec<(f64, f64)>>,
    /// As `devices`, for reading and writing regions in moves.
    moving: [Vec<(f64, f64)>; 2],
    link: (f64, f64),
}

impl Sample {
    /// Of the part of an item's requests that falls into the period and keeps company ([`Drawn::march`]) or none.
    pub(crate) fn draw(drawn: &Drawn<'_>) -> Self {
        let (pool, total) = draws::pool(drawn);
        Self::of(drawn, vec![pool], total)
    }

    /// Of all requests of the period, each program's by its own processes; [`Drawn::march`] and [`Drawn::processes`] have no part in it.
    pub(crate) fn draw_side_by_side(drawn: &Drawn<'_>, programs: &[SideBySide]) -> Self {
        let (pools, total) = draws::pools(drawn, programs);
        Self::of(drawn, pools, total)
    }

    fn of(drawn: &Drawn<'_>, pools: Vec<Pool>, total: f64) -> Self {
        let servers = 0..drawn.profile.servers.len();
        let moving = [Direction::Read, Direction::Write].map(|direction| {
            let line = |server: usize| drawn.profile.servers[server].line(direction, Order::Sequential);
            servers.clone().map(|s| nanoseconds((line(s).alpha_s, line(s).beta_s_per_byte))).collect()
        });
        let draws: usize = pools.iter().map(|pool| pool.draws.len()).sum();
        Self {
            weight: if draws == 0 { 0.0 } else { total / draws as f64 },
            pools,
            awaited: drawn.classes.iter().map(|class| drawn.profile.is_awaited(class.class.kind)).collect(),
            flushes: flushes(drawn.profile, drawn.classes),
            devices: devices(drawn.profile, drawn.classes),
            startups: startups(drawn.profile, drawn.classes),
            moving,
            link: nanoseconds((drawn.profile.network.e_s, drawn.profile.network.t_s_per_byte)),
        }
    }

    /// Whether it is of ranks that go through a file in order.
    pub(crate) fn is_in_order(&self) -> bool {
        self.pools.iter().any(|pool| pool.in_order && !pool.draws.is_empty())
    }

    /// Whether some of its processes are no such ranks.
    pub(crate) fn has_crowd(&self) -> bool {
        self.pools.iter().any(|pool| !pool.in_order && !pool.draws.is_empty())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.pools.iter().all(|pool| pool.draws.is_empty())
    }

    /// Seconds that all requests take when items have these layouts, and disks see the classes as in `seen` where that is not how the sample was
    /// drawn. With `moves`, their regions go from their old layouts to these meanwhile.
    pub(crate) fn seconds<'a>(
        &self,
        profile: &Profile,
        seen: Option<&[SeenClass]>,
        layouts: &[&'a Layout],
        moves: &[Moving<'a>],
    ) -> f64 {
        let other = seen.map(|seen| devices(profile, seen));
        let devices = other.as_ref().unwrap_or(&self.devices);
        let in_step = self.seconds_from(|_| 0, devices, layouts, moves);
        if !self.is_in_order() {
            return in_step;
        }
        // Ranks that keep in step meet few seeks, but nobody makes them start so, and a long run gets them out of it: what counts is the slowest.
        let one_by_one = self.seconds_from(|rank| LAG_NS * u64::from(rank), devices, layouts, moves);
        let mut random = SplitMix64::new(0);
        let late: Vec<u64> = (0..MAX_PROCESSES).map(|_| random.below(LATEST_NS)).collect();
        let shuffled = self.seconds_from(|rank| late[rank as usize], devices, layouts, moves);
        in_step.max(one_by_one).max(shuffled)
    }

    /// As [`Self::seconds`]; each rank of a march begins at its own time.
    fn seconds_from<'a>(
        &self,
        begin_ns: impl Fn(u32) -> u64,
        devices: &[Vec<(f64, f64)>],
        layouts: &[&'a Layout],
        moves: &[Moving<'a>],
    ) -> f64 {
        let mut current: Vec<&Layout> = layouts.to_vec();
        moves.iter().for_each(|one| current[one.item] = one.from);
        let mut servers: Vec<(f64, f64)> = vec![(0.0, 0.0); self.moving[0].len()];
        let mut heads = self.is_in_order().then(|| Heads::new(servers.len()));
        let mut turns = Turns::of(&self.pools);
        // When idle again, and who.
        let mut idle: BinaryHeap<Reverse<(u64, u32)>> = turns.begin(begin_ns).collect();
        if !moves.is_empty() && self.weight > 0.0 {
            idle.push(Reverse((0, MOVER)));
        }
        // By process, where its write is done: which flush it waits for.
        let mut flushing: Vec<Option<(&Draw, &Layout)>> = vec![None; turns.pool_of.len()];
        let mut mover = Mover { next: 0, copied: 0, writing: false };
        let mut end_ns = 0u64;
        let mut left: usize = self.pools.iter().map(|pool| pool.draws.len()).sum();
        while left > 0 {
            // Whoever acts stays on top of the heap until it is known when it is idle again.
            let Some(mut first) = idle.peek_mut() else { break };
            let Reverse((now, who)) = *first;
            if who == MOVER {
                match mover.step(self, moves, now, &mut servers, &mut current) {
                    Some(done) => first.0.0 = done,
                    None => drop(PeekMut::pop(first)),
                }
                continue;
            }
            if let Some((draw, layout)) = flushing[who as usize].take() {
                let done = self.flush(layout, draw, now, &servers);
                end_ns = end_ns.max(done);
                first.0.0 = done;
                continue;
            }
            // A process without requests leaves.
            let Some((draw, in_order)) = turns.next(who as usize) else {
                PeekMut::pop(first);
                continue;
            };
            left -= 1;
            let class = usize::from(draw.class);
            let layout = current[draw.item as usize];
            let done = match &mut heads {
                Some(heads) if in_order => self.serve_in_order(layout, draw, now, &devices[class], &mut servers, heads),
                Some(heads) => {
                    layout.view().split(RegionOffset(draw.offset), draw.bytes).for_each(|part| {
                        heads.disturb(usize::from(part.server.0));
                    });
                    self.serve(layout, draw.offset, draw.bytes, now, &devices[class], &mut servers)
                }
                None => self.serve(layout, draw.offset, draw.bytes, now, &devices[class], &mut servers),
            };
            end_ns = end_ns.max(done);
            if !self.flushes[class].is_empty() {
                flushing[who as usize] = Some((draw, layout));
            }
            // What is written back later keeps the servers busy and its process not.
            first.0.0 = if self.awaited[class] { done } else { now };
        }
        end_ns as f64 * 1e-9 * self.weight
    }

    fn serve(
        &self,
        layout: &Layout,
        offset: u64,
        bytes: u64,
        now: u64,
        lines: &[(f64, f64)],
        servers: &mut [(f64, f64)],
    ) -> u64 {
        let mut done = now as f64;
        for part in layout.view().split(RegionOffset(offset), bytes) {
            let server = usize::from(part.server.0);
            let (startup, per_byte) = lines[server];
            let length = part.length as f64;
            let (device, link) = &mut servers[server];
            *device = device.max(now as f64) + startup + length * per_byte;
            *link = link.max(*device) + self.link.0 + length * self.link.1;
            done = done.max(*link);
        }
        done.ceil() as u64
    }

    /// When the flush of a request that was served at `now` is done, behind what its servers have by then.
    fn flush(&self, layout: &Layout, draw: &Draw, now: u64, servers: &[(f64, f64)]) -> u64 {
        let shares = &self.flushes[usize::from(draw.class)];
        let parts = layout.view().split(RegionOffset(draw.offset), draw.bytes);
        let waits = parts.map(|part| {
            let server = usize::from(part.server.0);
            shares[server] * (servers[server].0 - now as f64).max(0.0)
        });
        (now as f64 + waits.fold(0.0, f64::max)).ceil() as u64
    }

    /// As [`Self::serve`], with startups by where the disks were left.
    fn serve_in_order(
        &self,
        layout: &Layout,
        draw: &Draw,
        now: u64,
        lines: &[(f64, f64)],
        servers: &mut [(f64, f64)],
        heads: &mut Heads,
    ) -> u64 {
        let mut done = now as f64;
        for part in layout.view().split(RegionOffset(draw.offset), draw.bytes) {
            let server = usize::from(part.server.0);
            let (sequential, random) = self.startups[usize::from(draw.class)][server];
            let per_byte = lines[server].1;
            let spot = Spot { region: draw.turn, offset: part.offset.0 };
            let startup = match heads.note(server, spot, part.length) {
                Some(skipped) => (sequential + skipped as f64 * per_byte).min(random.max(sequential)),
                None => random,
            };
            let length = part.length as f64;
            let (device, link) = &mut servers[server];
            *device = device.max(now as f64) + startup + length * per_byte;
            *link = link.max(*device) + self.link.0 + length * self.link.1;
            done = done.max(*link);
        }
        done.ceil() as u64
    }
}

/// Who issues which request next.
struct Turns<'a> {
    pools: &'a [Pool],
    /// By process: its pool, and where the processes of that pool begin.
    pool_of: Vec<(usize, usize)>,
    /// The next request of every rank of a march; of a crowd, the first process has that of all.
    next: Vec<usize>,
}

impl<'a> Turns<'a> {
    fn of(pools: &'a [Pool]) -> Self {
        let (mut pool_of, mut next) = (Vec::new(), Vec::new());
        for (number, pool) in pools.iter().enumerate() {
            let first = pool_of.len();
            pool_of.extend((0..pool.processes).map(|_| (number, first)));
            next.extend((0..pool.processes).map(|rank| if pool.in_order { rank } else { 0 }));
        }
        Self { pools, pool_of, next }
    }

    /// All processes, with the times at which they begin.
    fn begin(&self, begin_ns: impl Fn(u32) -> u64) -> impl Iterator<Item = Reverse<(u64, u32)>> {
        (0..).zip(&self.pool_of).map(move |(process, (pool, first))| {
            let rank = process - *first as u32;
            Reverse((if self.pools[*pool].in_order { begin_ns(rank) } else { 0 }, process))
        })
    }

    /// The next request of a process, and whether it is one of a march.
    fn next(&mut self, process: usize) -> Option<(&'a Draw, bool)> {
        let (pool, first) = self.pool_of[process];
        let pool = &self.pools[pool];
        let (turn, stride) = if pool.in_order { (process, pool.processes) } else { (first, 1) };
        let draw = pool.draws.get(self.next[turn])?;
        self.next[turn] += stride;
        Some((draw, pool.in_order))
    }
}

fn nanoseconds((alpha_s, beta_s_per_byte): (f64, f64)) -> (f64, f64) {
    (alpha_s * 1e9, beta_s_per_byte * 1e9)
}

fn flushes(profile: &Profile, classes: &[SeenClass]) -> Vec<Vec<f64>> {
    let of_class = |class: &SeenClass| {
        let shares: Vec<f64> = profile.servers.iter().map(|server| server.flush_wait_of(class.class.kind)).collect();
        if shares.iter().all(|share| *share == 0.0) { Vec::new() } else { shares }
    };
    classes.iter().map(of_class).collect()
}

/// By class and server.
fn devices(profile: &Profile, classes: &[SeenClass]) -> Vec<Vec<(f64, f64)>> {
    let of_class =
        |class: &SeenClass| (0..profile.servers.len()).map(|server| nanoseconds(class.line(profile, server))).collect();
    classes.iter().map(of_class).collect()
}

/// Sequential and random, by class and server.
fn startups(profile: &Profile, classes: &[SeenClass]) -> Vec<Vec<(f64, f64)>> {
    let of_class = |class: &SeenClass| {
        let alpha = |server: usize, order| profile.servers[server].line(class.class.kind, order).alpha_s;
        (0..profile.servers.len())
            .map(|server| nanoseconds((alpha(server, Order::Sequential), alpha(server, Order::Random))))
            .collect()
    };
    classes.iter().map(of_class).collect()
}

/// The process that copies regions.
struct Mover {
    next: usize,
    copied: u64,
    writing: bool,
}

impl Mover {
    /// Does the next half of a chunk; tells when it is done, or `None` after the last region.
    fn step<'a>(
        &mut self,
        sample: &Sample,
        moves: &[Moving<'a>],
        now: u64,
        servers: &mut [(f64, f64)],
        current: &mut [&'a Layout],
    ) -> Option<u64> {
        let one = moves.get(self.next)?;
        let bytes = ((one.bytes as f64 / sample.weight) as u64).max(1);
        let chunk = CHUNK_BYTES.min(bytes - self.copied);
        let (layout, lines) = if self.writing { (one.to, &sample.moving[1]) } else { (one.from, &sample.moving[0]) };
        let done = sample.serve(layout, self.copied, chunk, now, lines, servers);
        if self.writing {
            self.copied += chunk;
            if self.copied >= bytes {
                current[one.item] = one.to;
                self.next += 1;
                self.copied = 0;
            }
        }
        self.writing = !self.writing;
        Some(done)
    }
}
