//! Regions by their heat, servers with the work that they have so far, and layouts by simple rules.

use super::super::{Task, file_request_bytes};
use super::block::Block;
use super::program::Item;
use super::turning::{left_over_turns, turned, without_empty};
use crate::servers::ceil_to;
use stripewise_layout::{Layout, Order, ServerId};
use stripewise_trace::AccessClass;

/// Servers that regions lie on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Servers {
    Hdd,
    Ssd,
    All,
}

/// How regions lie on them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Spread {
    /// Stripes of so many bytes.
    Fixed(u64),
    /// Stripes that spread a request over so many servers.
    Over(u64),
    /// One cycle holds a request; an SServer's stripe is so many times an HServer's.
    Pair(u64),
    /// Each region on the one that would be through with its work first.
    Whole,
}

/// What of the servers is used how far.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Bias {
    /// Share of the SServers' room that may be used.
    pub(super) capacity: f64,
    /// How much longer than an HServer an SServer may take, where regions lie whole on any server.
    pub(super) ssd_weight: f64,
}

/// Seconds on a server's device and on its link.
#[derive(Clone, Copy, Default)]
pub(super) struct Work {
    pub(super) device_s: f64,
    pub(super) link_s: f64,
}

impl Work {
    pub(super) fn busy_s(&self) -> f64 {
        self.device_s.max(self.link_s)
    }
}

/// What is accessed how often, hottest first.
pub(super) struct Scene<'a> {
    pub(super) task: &'a Task<'a>,
    pub(super) windows: usize,
    pub(super) items: &'a [Item],
    /// By item: requests of each class in all windows.
    counts: Vec<Vec<(AccessClass, f64)>>,
    /// Items, the hottest first.
    pub(super) order: Vec<usize>,
    /// By file.
    request_bytes: Vec<u64>,
    /// All regions begin at the same turn: ranks that go through a file in order keep their distances where layouts do not change.
    keeps_turns: bool,
}

impl<'a> Scene<'a> {
    pub(super) fn new(block: &'a Block<'a>) -> Self {
        let (task, program) = (block.task, block.program());
        let of_item = |item: &Item| -> Vec<(AccessClass, f64)> {
            let counts = item.counts.iter().flatten();
            counts.map(|(class, count)| (block.classes()[usize::from(*class)], *count)).collect()
        };
        let counts: Vec<Vec<(AccessClass, f64)>> = program.items.iter().map(of_item).collect();
        let first = task.groups.all().next().map_or(0, |id| usize::from(id.0));
        let heat: Vec<f64> = counts.iter().map(|counts| whole_work(task, counts, first).device_s).collect();
        let mut order: Vec<usize> = (0..counts.len()).collect();
        // Stable: of equal ones as they lie in the files.
        order.sort_by(|a, b| heat[*b].total_cmp(&heat[*a]));
        let request_bytes = |file| file_request_bytes(file, task.step_bytes);
        Self {
            task,
            windows: program.windows,
            items: &program.items,
            counts,
            order,
            request_bytes: task.request.files.iter().map(request_bytes).collect(),
            keeps_turns: block.has_marches_in_order(),
        }
    }

    /// The layout of the item's next region, as far as there is one; `None` as well where none of the servers has space for a whole region.
    pub(super) fn layout(
        &self,
        (servers, spread): (Servers, Spread),
        bias: Bias,
        item: usize,
        filling: &Filling,
    ) -> Option<Layout> {
        let groups = &self.task.groups;
        let of_item = &self.items[item];
        let chosen: Vec<ServerId> = match servers {
            Servers::Hdd => groups.hdd.clone(),
            Servers::Ssd => groups.ssd.clone(),
            Servers::All => groups.all().collect(),
        };
        let request_bytes = self.request_bytes[of_item.file];
        let stripes = |bytes: &dyn Fn(ServerId) -> u64| -> Option<Layout> {
            let pairs = chosen.iter().map(|id| Some((*id, u32::try_from(bytes(*id)).ok()?)));
            let cycle = Layout::new(pairs.collect::<Option<Vec<_>>>()?).ok()?;
            Some(self.begun_where_least_is_done(cycle, item, filling))
        };
        match spread {
            Spread::Fixed(bytes) => stripes(&|_| ceil_to(bytes, self.task.step_bytes)),
            Spread::Over(width) => {
                let width = width.min(chosen.len() as u64).max(1);
                stripes(&|_| ceil_to(request_bytes.div_ceil(width), self.task.step_bytes))
            }
            Spread::Pair(times) => {
                let of = |id: ServerId| if groups.ssd.contains(&id) { times } else { 1 };
                let parts: u64 = chosen.iter().map(|id| of(*id)).sum();
                let part = ceil_to(request_bytes.div_ceil(parts.max(1)), self.task.step_bytes);
                stripes(&|id| of(id) * part)
            }
            Spread::Whole => {
                let weight = |id: &ServerId| if groups.ssd.contains(id) { bias.ssd_weight } else { 1.0 };
                let bytes = u32::try_from(ceil_to(of_item.region_bytes, self.task.step_bytes)).ok()?;
                let through_s = |id: &ServerId| {
                    let server = usize::from(id.0);
                    let (known, more) = (filling.work[server], self.whole_work(item, server));
                    (known.device_s + more.device_s).max(known.link_s + more.link_s) / weight(id)
                };
                let mut best: Option<(f64, u64, ServerId)> = None;
                for id in &chosen {
                    let used = filling.used_bytes[usize::from(id.0)];
                    let candidate = (through_s(id), used, *id);
                    let is_better = best.is_none_or(|(known_s, known_used, _)| {
                        candidate.0 < known_s || (candidate.0 == known_s && used < known_used)
                    });
                    if is_better && self.has_space(*id, of_item.region_bytes, bias.capacity, filling) {
                        best = Some(candidate);
                    }
                }
                best.and_then(|(_, _, id)| Layout::new([(id, bytes)]).ok())
            }
        }
    }

    /// The cycle begun at the turn where a region's last, unfinished one comes to the servers that would be through with it first. Begun at the same turn
    /// everywhere, the first servers of the cycle would have more of every region than the others.
    fn begun_where_least_is_done(&self, cycle: Layout, item: usize, filling: &Filling) -> Layout {
        let region_bytes = self.items[item].region_bytes;
        let left_over = left_over_turns(&cycle, region_bytes);
        if left_over == 0 || self.keeps_turns {
            return cycle;
        }
        let through_s = |server: usize| {
            let (known, more) = (filling.work[server], self.whole_work(item, server));
            known.busy_s() + more.busy_s() / left_over as f64
        };
        let of_servers: Vec<f64> =
            cycle.stripes().iter().map(|stripe| through_s(usize::from(stripe.server.0))).collect();
        let of_turns = |first: usize| -> f64 { of_servers.iter().cycle().skip(first).take(left_over).sum() };
        let turns = (0..of_servers.len()).map(|turn| (of_turns(turn), turn));
        let (_, turn) = turns.min_by(|a, b| a.0.total_cmp(&b.0)).unwrap_or_default();
        without_empty(turned(&cycle, turn), region_bytes)
    }

    fn has_space(&self, id: ServerId, bytes: u64, share: f64, filling: &Filling) -> bool {
        let server = usize::from(id.0);
        let share = if self.task.groups.ssd.contains(&id) { share } else { 1.0 };
        let capacity = self.task.capacity.bytes(server).map(|capacity| (capacity as f64 * share) as u64);
        capacity.is_none_or(|capacity| filling.used_bytes[server].saturating_add(bytes) <= capacity)
    }

    pub(super) fn fits(&self, layout: &Layout, region_bytes: u64, share: f64, filling: &Filling) -> bool {
        let view = layout.view();
        let stripes = layout.stripes().iter().enumerate();
        stripes
            .into_iter()
            .all(|(turn, stripe)| self.has_space(stripe.server, view.object_bytes(turn, region_bytes), share, filling))
    }

    /// One region of the item on one server.
    fn whole_work(&self, item: usize, server: usize) -> Work {
        let work = whole_work(self.task, &self.counts[item], server);
        let regions = self.items[item].regions.len() as f64;
        Work { device_s: work.device_s / regions, link_s: work.link_s / regions }
    }

    /// Seconds that one region of the item would take a disk alone.
    pub(super) fn heat_s(&self, item: usize) -> f64 {
        let first = self.task.groups.all().next().map_or(0, |id| usize::from(id.0));
        self.whole_work(item, first).device_s
    }

    pub(super) fn book(&self, layout: &Layout, item: usize, filling: &mut Filling) {
        self.add(layout, item, filling, 1.0);
        self.each_part(layout, item, |server, bytes| filling.used_bytes[server] += bytes);
    }

    /// Takes a region off that was booked.
    pub(super) fn remove(&self, layout: &Layout, item: usize, filling: &mut Filling) {
        self.add(layout, item, filling, -1.0);
        self.each_part(layout, item, |server, bytes| filling.used_bytes[server] -= bytes);
    }

    fn each_part(&self, layout: &Layout, item: usize, mut of_part: impl FnMut(usize, u64)) {
        for (turn, stripe) in layout.stripes().iter().enumerate() {
            of_part(usize::from(stripe.server.0), layout.view().object_bytes(turn, self.items[item].region_bytes));
        }
    }

    /// Of a stripe of x that is touched at all, a request touches about (r + x) / x: of the region's requests the stripe's share of the region times that.
    fn add(&self, layout: &Layout, item: usize, filling: &mut Filling, sign: f64) {
        let (profile, of_item) = (self.task.request.profile, &self.items[item]);
        for (turn, stripe) in layout.stripes().iter().enumerate() {
            let server = usize::from(stripe.server.0);
            let own_bytes = layout.view().object_bytes(turn, of_item.region_bytes) as f64;
            let part = own_bytes / (of_item.region_bytes as f64).max(1.0);
            for (class, count) in &self.counts[item] {
                let line = profile.servers[server].line(class.kind, Order::Random);
                let bytes = class.request_bytes as f64;
                let touched = (part * (1.0 + bytes / f64::from(stripe.size_bytes))).min(1.0);
                let count = sign * count / of_item.regions.len() as f64;
                filling.work[server].device_s += count * (touched * line.alpha_s + bytes * part * line.beta_s_per_byte);
                filling.work[server].link_s +=
                    count * (touched * profile.network.e_s + bytes * part * profile.network.t_s_per_byte);
            }
        }
    }
}

/// Work of requests that are served by one server.
fn whole_work(task: &Task<'_>, counts: &[(AccessClass, f64)], server: usize) -> Work {
    let profile = task.request.profile;
    let mut work = Work::default();
    for (class, count) in counts {
        let line = profile.servers[server].line(class.kind, Order::Random);
        let bytes = class.request_bytes as f64;
        work.device_s += count * line.seconds(bytes);
        work.link_s += count * (profile.network.e_s + bytes * profile.network.t_s_per_byte);
    }
    work
}

/// What is placed already, by server.
pub(super) struct Filling {
    pub(super) used_bytes: Vec<u64>,
    pub(super) work: Vec<Work>,
}

impl Filling {
    pub(super) fn empty(servers: usize) -> Self {
        Self { used_bytes: vec![0; servers], work: vec![Work::default(); servers] }
    }
}
