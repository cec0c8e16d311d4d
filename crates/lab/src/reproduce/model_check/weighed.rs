//! The layouts that each policy weighs for an access pattern, and what its model says they cost.
//!
//! Of long lists (lattices of stripe pairs, powers of two) evenly spaced ones are taken.

use anyhow::Result;
use stripewise::laboratory::Lab;
use stripewise_layout::{Layout, Placement, ServerClass, ServerId};
use stripewise_model::cost_intelligent::{ProcessLayout, TableForm, request_cost};
use stripewise_model::padp::PadpPattern;
use stripewise_model::queueing::{Network, Streaming, request_demand};
use stripewise_model::segment::SegmentPattern;
use stripewise_model::{ClassParameters, Concurrency, StripePair, UniformParameters, h2dp};
use stripewise_trace::AccessClass;

/// Lattice of stripe sizes.
const STEP_BYTES: u64 = 4096;
/// How many layouts of a policy are taken at most.
#[derive(Clone, Copy, Debug)]
pub(super) struct Breadth {
    /// Of stripe pairs.
    pub(super) pairs: usize,
    /// Of stripe sizes that are powers of two.
    pub(super) stripes: usize,
    /// How many servers of a class, at least 1, beside all of them: a region on a part of them.
    pub(super) widths: &'static [usize],
}

impl Breadth {
    pub(super) const FULL: Breadth = Breadth { pairs: 8, stripes: 11, widths: &[1, 2] };
    /// For runs that take their time.
    pub(super) const SAMPLE: Breadth = Breadth { pairs: 3, stripes: 4, widths: &[1] };
}

/// A layout of a file, and what one model says it costs; only the order of costs matters.
pub(super) struct Weighed {
    pub(super) placement: Placement,
    pub(super) cost: f64,
}

struct Scene<'a> {
    lab: &'a Lab,
    class: AccessClass,
    concurrency: Concurrency,
    regions: usize,
    breadth: Breadth,
    hdd: Vec<ServerId>,
    ssd: Vec<ServerId>,
}

/// What every policy weighs; policies for hybrid servers only where there are both classes.
pub(super) fn weighed(
    lab: &Lab,
    class: AccessClass,
    concurrency: Concurrency,
    regions: usize,
    breadth: Breadth,
) -> Result<Vec<(&'static str, Vec<Weighed>)>> {
    let of_class = |class| {
        let servers = lab.cluster.servers.iter().enumerate().filter(move |(_, server)| server.class == class);
        servers.map(|(index, _)| ServerId(index as u16)).collect()
    };
    let (hdd, ssd) = (of_class(ServerClass::Hdd), of_class(ServerClass::Ssd));
    let scene = Scene { lab, class, concurrency, regions, breadth, hdd, ssd };
    if scene.ssd.is_empty() {
        return Ok(vec![("cost, HServers alone", scene.cost()?), ("segment, HServers alone", scene.segment()?)]);
    }
    Ok(vec![
        ("padp", scene.padp()?),
        ("psa", scene.psa()?),
        ("h2dp", scene.h2dp()?),
        ("cost", scene.cost()?),
        ("segment", scene.segment()?),
        ("opt", scene.opt()?),
    ])
}

fn ceil_step(bytes: u64) -> u64 {
    bytes.next_multiple_of(STEP_BYTES)
}

/// At most `most`, evenly spaced, both ends among them.
fn thinned<T: Clone>(all: &[T], most: usize) -> Vec<T> {
    if all.len() <= most {
        return all.to_vec();
    }
    (0..most).map(|number| all[number * (all.len() - 1) / (most - 1)].clone()).collect()
}

fn servers_of(lab: &Lab) -> u64 {
    lab.cluster.servers.len() as u64
}

impl Scene<'_> {
    fn m(&self) -> u64 {
        self.hdd.len() as u64
    }

    fn n(&self) -> u64 {
        self.ssd.len() as u64
    }

    fn uniform(&self, layout: Layout) -> Placement {
        Placement::uniform(self.lab.cluster.region_size, layout.clone(), layout)
    }

    fn pair(&self, pair: StripePair) -> Result<Placement> {
        let hdd = self.hdd.iter().map(|id| (*id, pair.h_bytes as u32));
        let ssd = self.ssd.iter().map(|id| (*id, pair.s_bytes as u32));
        Ok(self.uniform(Layout::new(hdd.chain(ssd).filter(|(_, bytes)| *bytes > 0))?))
    }

    fn striped(&self, stripe_bytes: u64) -> Result<Placement> {
        self.pair(StripePair::new(stripe_bytes, stripe_bytes))
    }

    /// s such that `<h, s>` covers a request.
    fn covering(&self, h_bytes: u64) -> StripePair {
        let rest = self.class.request_bytes.saturating_sub(self.m() * h_bytes);
        StripePair::new(h_bytes, ceil_step(rest.div_ceil(self.n())))
    }

    /// h on the lattice from 0 to r / m: both linear programs' ends and what lies between.
    fn padp(&self) -> Result<Vec<Weighed>> {
        let parameters = ClassParameters::of(&self.lab.profile);
        let of_class = |class| parameters.of_class(class, self.class.kind, self.class.order);
        let pattern = PadpPattern {
            hservers: parameters.hservers,
            sservers: parameters.sservers,
            request_bytes: self.class.request_bytes as f64,
            concurrency: self.concurrency,
            hdd: of_class(ServerClass::Hdd),
            ssd: of_class(ServerClass::Ssd),
            e_s: parameters.e_s,
            t_s_per_byte: parameters.t_s_per_byte,
        };
        let last = ceil_step(self.class.request_bytes.div_ceil(self.m())) / STEP_BYTES;
        let pairs: Vec<StripePair> = (0..=last).map(|step| self.covering(step * STEP_BYTES)).collect();
        let weigh = |pair: StripePair| -> Result<Weighed> {
            let cost = pattern.cost_s(pair.h_bytes as f64, pair.s_bytes as f64);
            Ok(Weighed { placement: self.pair(pair)?, cost })
        };
        thinned(&pairs, self.breadth.pairs).into_iter().map(weigh).collect()
    }

    /// By table 2 of H2DP, as `h2dp` and `psa` weigh pairs.
    fn by_table_2(&self, pairs: &[StripePair]) -> Result<Vec<Weighed>> {
        let parameters = ClassParameters::of(&self.lab.profile);
        let weigh = |pair: StripePair| -> Result<Weighed> {
            let cost = h2dp::hybrid_cost(&parameters, pair, self.class, self.concurrency).total_s();
            Ok(Weighed { placement: self.pair(pair)?, cost })
        };
        pairs.iter().map(|pair| weigh(*pair)).collect()
    }

    /// h from r / (m + n) to r / m, s > 0.
    fn psa(&self) -> Result<Vec<Weighed>> {
        let r = self.class.request_bytes;
        let first = ceil_step(r.div_ceil(self.m() + self.n())) / STEP_BYTES;
        let first = if self.m() * first * STEP_BYTES < r { first } else { first - 1 };
        let steps = (first..).take_while(|step| self.m() * step * STEP_BYTES < r);
        let pairs: Vec<StripePair> = steps.map(|step| self.covering(step * STEP_BYTES)).collect();
        // And the HServers alone, with which the hybrid servers are compared.
        let pure = StripePair::new(ceil_step(r.div_ceil(self.m())), 0);
        self.by_table_2(&thinned(&pairs, self.breadth.pairs).into_iter().chain([pure]).collect::<Vec<_>>())
    }

    /// h from 0 to r / (m + n), s > h; and the HServers alone.
    fn h2dp(&self) -> Result<Vec<Weighed>> {
        let r = self.class.request_bytes;
        let last = r / (self.m() + self.n()) / STEP_BYTES;
        let pairs: Vec<StripePair> = (0..=last)
            .map(|step| self.covering(step * STEP_BYTES))
            .filter(|pair| pair.s_bytes > pair.h_bytes)
            .collect();
        let pure = StripePair::new(ceil_step(r.div_ceil(self.m())), 0);
        self.by_table_2(&thinned(&pairs, self.breadth.pairs).into_iter().chain([pure]).collect::<Vec<_>>())
    }

    /// 1-DH, 1-DV and 2-D in a shared file, over all servers.
    fn cost(&self) -> Result<Vec<Weighed>> {
        let parameters = UniformParameters::of_servers(&self.lab.profile, |_| true);
        let servers = self.m() + self.n();
        let groups = (2..servers as u32).filter(|groups| (servers as u32).is_multiple_of(*groups));
        let two_d = groups.map(|groups| (ProcessLayout::TwoD { groups }, servers / u64::from(groups)));
        let all = [(ProcessLayout::OneDh, servers)].into_iter().chain(two_d).chain([(ProcessLayout::OneDv, 1)]);
        let weigh = |(layout, width): (ProcessLayout, u64)| -> Result<Weighed> {
            let cost = request_cost(&parameters, layout, TableForm::Corrected, self.class, self.concurrency).total_s();
            Ok(Weighed { placement: self.striped(ceil_step(self.class.request_bytes.div_ceil(width)))?, cost })
        };
        all.map(weigh).collect()
    }

    /// Powers of two from 4 KiB to 4 MiB over all servers, such that a region reaches them all.
    fn segment(&self) -> Result<Vec<Weighed>> {
        let parameters = UniformParameters::of_servers(&self.lab.profile, |_| true);
        let pattern = SegmentPattern {
            servers: parameters.servers,
            request_bytes: self.class.request_bytes,
            concurrency: self.concurrency,
            line: parameters.of_class(self.class.kind, self.class.order),
            e_s: parameters.e_s,
            v_s_per_byte: parameters.v_s_per_byte,
        };
        let weigh = |exponent: u32| -> Result<Weighed> {
            let stripe_bytes = 1u64 << exponent;
            Ok(Weighed { placement: self.striped(stripe_bytes)?, cost: pattern.cost(stripe_bytes).total_s() })
        };
        let reaching = self.lab.cluster.region_size.0 / servers_of(self.lab);
        let all: Vec<u32> = (12..=22).take_while(|exponent| 1u64 << exponent <= reaching).collect();
        thinned(&all, self.breadth.stripes).into_iter().map(weigh).collect()
    }

    /// By the queueing network: regions whole on one server in turn, over all servers of a class, over groups of them, over all, and pairs.
    fn opt(&self) -> Result<Vec<Weighed>> {
        let r = self.class.request_bytes;
        let all: Vec<ServerId> = self.hdd.iter().chain(&self.ssd).copied().collect();
        let region_bytes = self.lab.cluster.region_size.0;
        let mut shapes: Vec<Vec<Layout>> = Vec::new();
        for servers in [&self.hdd, &self.ssd, &all] {
            for width in self.breadth.widths.iter().copied().chain([servers.len()]) {
                // A region on one server has one stripe.
                let stripe = if width == 1 { region_bytes } else { ceil_step(r.div_ceil(width as u64)) };
                let groups = servers.chunks_exact(width);
                let layouts = groups.map(|group| Layout::new(group.iter().map(|id| (*id, stripe as u32))));
                shapes.push(layouts.collect::<Result<_, _>>()?);
            }
        }
        let weigh = |layouts: Vec<Layout>| -> Result<Weighed> {
            let mut network = Network::new(self.lab.profile.servers.len());
            for layout in &layouts {
                let share = layouts.len() as f64;
                let touched = 1.0 / share;
                let streams = Streaming {
                    processes: self.concurrency.processes,
                    presence: touched,
                    touching: touched,
                    adjoining: 0.0,
                };
                let demand = request_demand(&self.lab.profile, layout, self.class, streams, region_bytes);
                network.add(&demand, 1.0 / share);
            }
            let cost = 1.0 / network.throughput(self.concurrency.processes, 0.0);
            let regions = layouts.iter().cycle().take(self.regions).cloned();
            let last = layouts[0].clone();
            let region_size = self.lab.cluster.region_size;
            Ok(Weighed { placement: Placement::from_regions(region_size, regions, last.clone(), last), cost })
        };
        let mut weighed = shapes.into_iter().map(weigh).collect::<Result<Vec<_>>>()?;
        for pair in self.h2dp()?.into_iter().take(3) {
            let layout = pair.placement.layouts[0].clone();
            weighed.push(weigh(vec![layout])?);
        }
        Ok(weighed)
    }
}
