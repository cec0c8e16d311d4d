//! How long a sample of a period's requests takes on a placement: p processes, each with one request in flight.
//!
//! Every server is two stations in a row, device and link, that serve in order of arrival; a request's sub-requests run side by side, and the
//! process issues its next request when the last is done. For such servers the time at which a sub-request will be done is known when
//! it is issued, so a sample costs one pass without events. Mean value analysis with a fork-join correction, which the design names
//! for ranking, misses by more than near-equal candidates differ; a sample of 16,000 requests takes a few milliseconds and is
//! exact but for its draws. All candidates see the same requests in the same order.
//!
//! In a crowd, whichever process is idle takes the next request. Ranks that march through a file in order have sequences of their own, every p-th
//! request, and their sample is of consecutive requests, with the disks' heads followed (`heads.rs`).
//!
//! Moves go on beside the requests, as the live mover does them: one region after the other, read and then written in chunks; requests find the
//! old layout until the region is copied. The sample stands for many requests each, so only that part of each region is copied.

use super::demand::SeenClass;
use super::heads::{Heads, Spot};
use super::program::Item;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use stripewise_layout::{Direction, Layout, Order, RegionOffset};
use stripewise_model::Profile;

/// Requests of a sample: twice as many as there are, in these limits.
const SAMPLE: (usize, usize) = (256, 16_000);

/// Processes of a sample, at most: more keep every station busy as well.
const MAX_PROCESSES: u32 = 512;

/// Bytes that the mover copies at a time.
const CHUNK_BYTES: u64 = 1 << 20;

#[derive(Clone, Copy, Debug)]
struct Draw {
    item: u32,
    class: u16,
    offset: u64,
    bytes: u64,
    /// The region's number in the order of the march.
    turn: u32,
}

/// Share of requests that continue others' from which on a march is taken to be in order.
const IN_ORDER: f64 = 0.5;

/// Parts of a march that are looked at, regions of each at least, and consecutive requests of a region at most.
const STRETCHES: usize = 8;
const MIN_REGIONS: usize = 3;
const OF_REGION: u64 = 1024;

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
    draws: Vec<Draw>,
    /// Requests that each draw stands for.
    weight: f64,
    processes: usize,
    /// Whether the draws are ranks' own sequences through a file.
    in_order: bool,
    /// Nanoseconds of startup and per byte, by class and server.
    devices: Vec<Vec<(f64, f64)>>,
    /// Whether a process waits for its requests, by class.
    awaited: Vec<bool>,
    /// Nanoseconds of sequential and random startup, by class and server.
    startups: Vec<Vec<(f64, f64)>>,
    /// As `devices`, for reading and writing regions in moves.
    moving: [Vec<(f64, f64)>; 2],
    link: (f64, f64),
}

/// What a sample is drawn from.
pub(crate) struct Drawn<'a> {
    pub(crate) profile: &'a Profile,
    pub(crate) items: &'a [Item],
    pub(crate) window: usize,
    pub(crate) period: usize,
    pub(crate) classes: &'a [SeenClass],
    pub(crate) processes: u32,
    pub(crate) seed: u64,
    /// Requests of a march instead of a crowd.
    pub(crate) march: bool,
}

impl Sample {
    /// Of the part of an item's requests that falls into the period and keeps company (`march`) or none: requests in proportion, shuffled; or, in
    /// a march, stretches of requests one behind the other, into the next regions where those are longer.
    pub(crate) fn draw(drawn: &Drawn<'_>) -> Self {
        let part = |item: &Item| {
            let together = item.same_region[drawn.window];
            item.shares[drawn.period] * if drawn.march { together } else { 1.0 - together }
        };
        let ends: Vec<(f64, u32, u16)> = drawn
            .items
            .iter()
            .enumerate()
            .flat_map(|(number, item)| {
                let part = part(item);
                let counts = item.counts[drawn.window].iter().filter(move |_| part > 0.0);
                counts.map(move |(class, count)| (*count as f64 * part, number as u32, *class))
            })
            .scan(0.0, |sum, (count, item, class)| {
                *sum += count;
                Some((*sum, item, class))
            })
            .collect();
        let total = ends.last().map_or(0.0, |(end, _, _)| *end);
        let mut random = SplitMix(drawn.seed);
        let seen_in_order = |class: &SeenClass| class.continuing >= IN_ORDER;
        let in_order = drawn.march && drawn.classes.iter().any(seen_in_order);
        let wanted = ((2.0 * total) as usize).clamp(SAMPLE.0, SAMPLE.1);
        let pick = |share: f64| {
            let (_, item, class) = ends[ends.partition_point(|(end, _, _)| *end <= share * total).min(ends.len() - 1)];
            (item, class, drawn.classes[usize::from(class)].class.request_bytes)
        };
        let slots = |item: u32, bytes: u64| (drawn.items[item as usize].region_bytes / bytes).max(1);
        let mut draws = Vec::with_capacity(wanted);
        if in_order && total > 0.0 {
            let region = |item: u32| (drawn.items[item as usize].file, drawn.items[item as usize].regions[0]);
            let mut turn = 0;
            for number in 0..STRETCHES {
                // Anywhere in its part of the march: regular distances may meet only one of the layouts that take turns.
                let share = (number as f64 + random.below(1 << 20) as f64 / f64::from(1 << 20)) / STRETCHES as f64;
                let (mut item, class, bytes) = pick(share);
                let least = (16 * processes(drawn)).max(wanted / STRETCHES);
                let (end, mut regions) = (draws.len() + least, 0);
                // Whole regions, and the next stretch as if it lay behind: ranks keep their distances, and no seek is charged that the run does not have.
                while draws.len() < end || regions < MIN_REGIONS {
                    let of_region = slots(item, bytes).min(OF_REGION);
                    draws.extend((0..of_region).map(|slot| Draw { item, class, offset: slot * bytes, bytes, turn }));
                    (turn, regions) = (turn + 1, regions + 1);
                    let next = item + 1;
                    let goes_on = drawn.items.get(next as usize).is_some_and(|one| {
                        let (file, number) = region(item);
                        one.is_accessed() && region(next) == (file, number + 1)
                    });
                    item = if goes_on { next } else { item };
                }
            }
        } else if total > 0.0 {
            let run = if drawn.march { 16 * processes(drawn) } else { 1 };
            let runs = wanted.div_ceil(run).max(4);
            for number in 0..runs {
                let (item, class, bytes) = pick((number as f64 + 0.5) / runs as f64);
                let slots = slots(item, bytes);
                draws.extend((0..run).map(|_| Draw {
                    item,
                    class,
                    offset: random.below(slots) * bytes,
                    bytes,
                    turn: 0,
                }));
            }
        }
        if !drawn.march {
            for last in (1..draws.len()).rev() {
                draws.swap(last, random.below(last as u64 + 1) as usize);
            }
        }
        Self::of(drawn, draws, total, in_order)
    }

    fn of(drawn: &Drawn<'_>, draws: Vec<Draw>, total: f64, in_order: bool) -> Self {
        let servers = 0..drawn.profile.servers.len();
        let moving = [Direction::Read, Direction::Write].map(|direction| {
            let line = |server: usize| drawn.profile.servers[server].line(direction, Order::Sequential);
            servers.clone().map(|s| nanoseconds((line(s).alpha_s, line(s).beta_s_per_byte))).collect()
        });
        Self {
            weight: if draws.is_empty() { 0.0 } else { total / draws.len() as f64 },
            draws,
            processes: processes(drawn),
            in_order,
            awaited: drawn.classes.iter().map(|class| drawn.profile.is_awaited(class.class.kind)).collect(),
            devices: devices(drawn.profile, drawn.classes),
            startups: startups(drawn.profile, drawn.classes),
            moving,
            link: nanoseconds((drawn.profile.network.e_s, drawn.profile.network.t_s_per_byte)),
        }
    }

    /// Whether it is of ranks that go through a file in order.
    pub(crate) fn is_in_order(&self) -> bool {
        self.in_order && !self.is_empty()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.draws.is_empty()
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
        if !self.in_order {
            return in_step;
        }
        // Ranks that keep in step meet few seeks, but nobody makes them start so, and a long run gets them out of it: what counts is the slowest.
        let one_by_one = self.seconds_from(|rank| LAG_NS * u64::from(rank), devices, layouts, moves);
        let mut random = SplitMix(0);
        let late: Vec<u64> = (0..self.processes).map(|_| random.below(LATEST_NS)).collect();
        let shuffled = self.seconds_from(|rank| late[rank as usize], devices, layouts, moves);
        in_step.max(one_by_one).max(shuffled)
    }

    /// As [`Self::seconds`]; each process begins at its own time.
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
        let mut heads = self.in_order.then(|| Heads::new(servers.len()));
        // When idle again, and who.
        let mut idle: BinaryHeap<Reverse<(u64, u32)>> =
            (0..self.processes as u32).map(|process| Reverse((begin_ns(process), process))).collect();
        if !moves.is_empty() && self.weight > 0.0 {
            idle.push(Reverse((0, MOVER)));
        }
        let mut mover = Mover { next: 0, copied: 0, writing: false };
        // The next draw of each rank of a march, of all processes of a crowd.
        let mut next: Vec<usize> = if self.in_order { (0..self.processes).collect() } else { vec![0] };
        let mut end_ns = 0u64;
        let mut left = self.draws.len();
        while left > 0 {
            let Some(Reverse((now, who))) = idle.pop() else { break };
            if who == MOVER {
                if let Some(done) = mover.step(self, moves, now, &mut servers, &mut current) {
                    idle.push(Reverse((done, MOVER)));
                }
                continue;
            }
            let (turn, stride) = if self.in_order { (who as usize, self.processes) } else { (0, 1) };
            // A rank at the end of its sequence leaves.
            let Some(draw) = self.draws.get(next[turn]) else { continue };
            next[turn] += stride;
            left -= 1;
            let class = usize::from(draw.class);
            let layout = current[draw.item as usize];
            let done = match &mut heads {
                Some(heads) => self.serve_in_order(layout, draw, now, &devices[class], &mut servers, heads),
                None => self.serve(layout, draw.offset, draw.bytes, now, &devices[class], &mut servers),
            };
            end_ns = end_ns.max(done);
            // What is written back later keeps the servers busy and its process not.
            idle.push(Reverse((if self.awaited[class] { done } else { now }, who)));
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

fn processes(drawn: &Drawn<'_>) -> usize {
    drawn.processes.clamp(1, MAX_PROCESSES) as usize
}

fn nanoseconds((alpha_s, beta_s_per_byte): (f64, f64)) -> (f64, f64) {
    (alpha_s * 1e9, beta_s_per_byte * 1e9)
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

/// SplitMix64: plans must not change with a library's generator.
struct SplitMix(u64);

impl SplitMix {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^= mixed >> 31;
        ((u128::from(mixed) * u128::from(bound)) >> 64) as u64
    }
}
