//! What the search changes, and the placement that it stands for.

use rand::Rng as _;
use rand::rngs::SmallRng;
use std::cmp::Ordering;
use std::fmt;
use stripewise::laboratory::Lab;
use stripewise_layout::{ByteCount, Layout, Placement, ServerClass, ServerId};
use stripewise_trace::FileAccess;

const STEP_BYTES: u64 = 4096;
const GROUPS: usize = 8;
/// Shares of the cycle's even part that pairs give an HServer, in eighths.
const EIGHTHS: u8 = 8;

/// How the regions of a group lie.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Shape {
    /// Each region on one server, those with the least to do first.
    WholeSsd,
    WholeHdd,
    WholeAny,
    /// Each request over so many servers of the class, groups by turns.
    SpreadSsd(u8),
    SpreadHdd(u8),
    /// `<h, s>` that covers a request, h so many eighths of an even share.
    Pair(u8),
    /// 64 KiB over all.
    Fixed,
}

impl Shape {
    fn drawn(random: &mut SmallRng) -> Self {
        match random.random_range(0..9) {
            0 | 1 => Shape::WholeSsd,
            2 => Shape::WholeHdd,
            3 | 4 => Shape::WholeAny,
            5 => Shape::SpreadSsd([2, 4][random.random_range(0..2)]),
            6 => Shape::SpreadHdd([2, 3, 4, 6, 12][random.random_range(0..5)]),
            7 => Shape::Pair(random.random_range(0..=EIGHTHS)),
            _ => Shape::Fixed,
        }
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Shape::WholeSsd => f.write_str("whole on an SSD"),
            Shape::WholeHdd => f.write_str("whole on a disk"),
            Shape::WholeAny => f.write_str("whole on any server"),
            Shape::SpreadSsd(width) => write!(f, "over {width} SSDs"),
            Shape::SpreadHdd(width) => write!(f, "over {width} disks"),
            Shape::Pair(eighths) => write!(f, "pairs with {eighths}/8 of an even share on disks"),
            Shape::Fixed => f.write_str("64KiB over all"),
        }
    }
}

#[derive(Clone, PartialEq, Debug)]
pub(super) struct Genome {
    /// From the most accessed regions on.
    shapes: [Shape; GROUPS],
    /// Share of the regions, 0 to 1, at which each group but the last ends; ascending.
    limits: [f64; GROUPS - 1],
    /// How much more than a disk an SSD is given to do.
    ssd_weight: f64,
}

impl Genome {
    /// The first three are what a person would try.
    pub(super) fn start(number: u32, random: &mut SmallRng) -> Self {
        let mut limits = [0.0; GROUPS - 1];
        for (place, limit) in limits.iter_mut().enumerate() {
            *limit = ((place + 1) as f64 / GROUPS as f64).powi(2);
        }
        let all = |shape| [shape; GROUPS];
        let hot = |hot, cold| {
            let mut shapes = [cold; GROUPS];
            // The sixth of the regions that has space on SSDs.
            shapes[..3].fill(hot);
            shapes
        };
        let shapes = match number {
            0 => hot(Shape::WholeSsd, Shape::WholeHdd),
            1 => all(Shape::WholeAny),
            2 => hot(Shape::Pair(4), Shape::SpreadHdd(12)),
            _ => std::array::from_fn(|_| Shape::drawn(random)),
        };
        Self { shapes, limits, ssd_weight: [2.0, 1.0, 4.0][number as usize % 3] }
    }

    /// One thing changed.
    pub(super) fn mutated(&self, random: &mut SmallRng) -> Self {
        let mut next = self.clone();
        match random.random_range(0..10) {
            0..4 => next.shapes[random.random_range(0..GROUPS)] = Shape::drawn(random),
            4 => {
                // A group takes its neighbour's shape.
                let place = random.random_range(1..GROUPS);
                next.shapes[place] = next.shapes[place - 1];
            }
            5..8 => {
                let place = random.random_range(0..GROUPS - 1);
                let low = if place > 0 { next.limits[place - 1] } else { 0.0 };
                let high = next.limits.get(place + 1).copied().unwrap_or(1.0);
                next.limits[place] = low + (high - low) * random.random::<f64>();
            }
            _ => next.ssd_weight = (next.ssd_weight * (random.random::<f64>() - 0.5).exp()).clamp(0.2, 40.0),
        }
        next
    }
}

impl fmt::Display for Genome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts: Vec<(Shape, f64)> = Vec::new();
        for (shape, end) in self.shapes.iter().zip(self.limits.iter().chain([&1.0])) {
            match parts.last_mut() {
                Some((last, last_end)) if last == shape => *last_end = *end,
                _ => parts.push((*shape, *end)),
            }
        }
        let words: Vec<String> =
            parts.iter().map(|(shape, end)| format!("{shape} up to {:.1} %", end * 100.0)).collect();
        write!(f, "regions by their heat {}", words.join(", "))?;
        write!(f, "; an SSD gets {:.1} times the work of a disk", self.ssd_weight)
    }
}

/// The regions by how often they are accessed, and the servers.
pub(super) struct Heat {
    region_size: ByteCount,
    request_bytes: u64,
    /// By region: requests.
    requests: Vec<u64>,
    /// Regions, the most accessed first.
    order: Vec<usize>,
    hdd: Vec<ServerId>,
    ssd: Vec<ServerId>,
    /// By server.
    room_bytes: Vec<Option<u64>>,
}

impl Heat {
    pub(super) fn of(lab: &Lab, file: &FileAccess, request_bytes: u64) -> Self {
        let regions = file.size_bytes.div_ceil(file.region_size.0) as usize;
        let mut requests = vec![0; regions];
        for region in file.windows.iter().flat_map(|window| &window.regions) {
            requests[region.region.0 as usize] += region.counts.iter().map(|(_, count)| count).sum::<u64>();
        }
        let mut order: Vec<usize> = (0..regions).collect();
        order.sort_by_key(|region| std::cmp::Reverse(requests[*region]));
        let of_class = |class: ServerClass| {
            let servers = lab.cluster.servers.iter().enumerate().filter(|(_, server)| server.class == class);
            servers.map(|(index, _)| ServerId(index as u16)).collect()
        };
        Self {
            region_size: file.region_size,
            request_bytes,
            requests,
            order,
            hdd: of_class(ServerClass::Hdd),
            ssd: of_class(ServerClass::Ssd),
            room_bytes: lab.cluster.ids().map(|id| lab.cluster.room_bytes(id)).collect(),
        }
    }

    /// What a genome stands for. Regions that find no space lie whole on disks.
    pub(super) fn placement(&self, genome: &Genome) -> Placement {
        let mut fill = Fill {
            heat: self,
            ssd_weight: genome.ssd_weight,
            work: vec![0.0; self.room_bytes.len()],
            left_bytes: self.room_bytes.iter().map(|capacity| capacity.unwrap_or(u64::MAX)).collect(),
            turn: 0,
        };
        let mut layouts: Vec<Option<Layout>> = vec![None; self.requests.len()];
        for (rank, region) in self.order.iter().enumerate() {
            let share = rank as f64 / self.order.len() as f64;
            let group = genome.limits.partition_point(|limit| *limit <= share);
            layouts[*region] = Some(fill.place(genome.shapes[group], self.requests[*region] as f64));
        }
        let whole = self.striped(&self.hdd[..1], self.region_size.0);
        let layouts = layouts.into_iter().map(|layout| layout.unwrap_or_else(|| whole.clone()));
        Placement::from_regions(self.region_size, layouts.collect::<Vec<_>>(), whole.clone(), whole)
    }

    fn striped(&self, servers: &[ServerId], stripe_bytes: u64) -> Layout {
        let stripe = stripe_bytes.next_multiple_of(STEP_BYTES) as u32;
        Layout::new(servers.iter().map(|id| (*id, stripe))).expect("servers once each, with a stripe")
    }
}

struct Fill<'a> {
    heat: &'a Heat,
    ssd_weight: f64,
    /// By server: requests over the server's weight.
    work: Vec<f64>,
    left_bytes: Vec<u64>,
    turn: usize,
}

impl Fill<'_> {
    fn place(&mut self, shape: Shape, requests: f64) -> Layout {
        let heat = self.heat;
        let all = || heat.hdd.iter().chain(&heat.ssd).copied().collect::<Vec<_>>();
        let layout = match shape {
            Shape::WholeSsd => self.whole(&heat.ssd),
            Shape::WholeHdd => self.whole(&heat.hdd),
            Shape::WholeAny => self.whole(&all()),
            Shape::SpreadSsd(width) => self.spread(&heat.ssd, usize::from(width)),
            Shape::SpreadHdd(width) => self.spread(&heat.hdd, usize::from(width)),
            Shape::Pair(eighths) => Some(self.pair(eighths)),
            Shape::Fixed => Some(heat.striped(&all(), 64 << 10)),
        };
        let layout = layout.filter(|layout| self.fits(layout)).or_else(|| self.whole(&heat.hdd));
        let layout = layout.unwrap_or_else(|| heat.striped(&heat.hdd, 64 << 10));
        self.book(&layout, requests);
        layout
    }

    fn weight(&self, server: ServerId) -> f64 {
        if self.heat.ssd.contains(&server) { self.ssd_weight } else { 1.0 }
    }

    /// On the server with the least work of those that have space.
    fn whole(&self, servers: &[ServerId]) -> Option<Layout> {
        let bytes = self.heat.region_size.0;
        let index = |id: &ServerId| usize::from(id.0);
        let fitting = servers.iter().filter(|id| self.left_bytes[index(id)] >= bytes);
        let least = |left: &&ServerId, right: &&ServerId| -> Ordering {
            self.work[index(left)].total_cmp(&self.work[index(right)])
        };
        fitting.min_by(least).map(|id| self.heat.striped(&[*id], bytes))
    }

    fn spread(&mut self, servers: &[ServerId], width: usize) -> Option<Layout> {
        let groups: Vec<&[ServerId]> = servers.chunks_exact(width.min(servers.len())).collect();
        self.turn += 1;
        let group = groups.get(self.turn % groups.len().max(1))?;
        Some(self.heat.striped(group, self.heat.request_bytes.div_ceil(group.len() as u64)))
    }

    fn pair(&self, eighths: u8) -> Layout {
        let (m, n, r) = (self.heat.hdd.len() as u64, self.heat.ssd.len() as u64, self.heat.request_bytes);
        let even = r / (m + n);
        let h = even * u64::from(eighths) / u64::from(EIGHTHS) / STEP_BYTES * STEP_BYTES;
        let s = (r - m * h).div_ceil(n).next_multiple_of(STEP_BYTES);
        let hdd = self.heat.hdd.iter().map(|id| (*id, h as u32));
        let ssd = self.heat.ssd.iter().map(|id| (*id, s as u32));
        Layout::new(hdd.chain(ssd).filter(|(_, bytes)| *bytes > 0)).expect("servers once each, with a stripe")
    }

    fn parts(&self, layout: &Layout) -> Vec<(ServerId, u64)> {
        let view = layout.view();
        let part = |(turn, stripe): (usize, &stripewise_layout::Stripe)| {
            (stripe.server, view.object_bytes(turn, self.heat.region_size.0))
        };
        layout.stripes().iter().enumerate().map(part).collect()
    }

    fn fits(&self, layout: &Layout) -> bool {
        self.parts(layout).iter().all(|(server, bytes)| self.left_bytes[usize::from(server.0)] >= *bytes)
    }

    fn book(&mut self, layout: &Layout, requests: f64) {
        let parts = self.parts(layout);
        let share = requests / parts.len() as f64;
        for (server, bytes) in parts {
            let index = usize::from(server.0);
            self.left_bytes[index] = self.left_bytes[index].saturating_sub(bytes);
            self.work[index] += share / self.weight(server);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reproduce::opt_cases::case::Case;
    use rand::SeedableRng as _;

    #[test]
    fn whatever_is_drawn_fits_the_ssds() {
        let case = Case::all()[1].shortened(4_096);
        let lab = case.lab().unwrap();
        let counts = lab.count(&case.run(1, 0).unwrap());
        let heat = Heat::of(&lab, &counts[0], case.request_bytes);
        let mut random = SmallRng::seed_from_u64(5);
        for start in 0..6 {
            let mut genome = Genome::start(start, &mut random);
            for _ in 0..5 {
                genome = genome.mutated(&mut random);
                assert!(genome.limits.is_sorted());
                let placement = heat.placement(&genome);
                assert_eq!((placement.check(16), placement.planned_regions()), (Ok(()), 2048));
                let mut used = [0u64; 16];
                for run in &placement.runs {
                    let layout = &placement.layouts[run.layout as usize];
                    for (turn, stripe) in layout.stripes().iter().enumerate() {
                        let bytes = layout.view().object_bytes(turn, 64 << 20);
                        used[usize::from(stripe.server.0)] += bytes * u64::from(run.regions);
                    }
                }
                assert!((12..16).all(|server| used[server] <= heat.room_bytes[server].unwrap()));
            }
        }
    }
}
