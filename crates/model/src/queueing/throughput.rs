//! Approximate mean value analysis of a closed fork-join network with service times that are not exponential.
//!
//! The time of a request is the time alone plus what its slowest sub-request waits. Waits of the siblings are alike as far as the same requests
//! queue before them: with the share of requests that the servers have in common we go from equal waits (the slowest is any) to
//! independent ones, each zero where the station is idle and else exponential, as in an M/G/1 queue under load. Mean of the largest then follows by
//! integration. Nelson and Tantawi (IEEE Trans. Computers 37(6), 1988) and Varki (IEEE TPDS 12(11), 2001) bound the fork-join response by these two
//! ends; both treat exponential service, where a request also waits for the slowest service, which constant services do not have.
//!
//! Mean value analysis goes from one process to p (Reiser and Lavenberg, J. ACM 27(2), 1980): a request that arrives at a station with n
//! processes in the network finds there what n - 1 processes leave on average.

use super::{Network, ServerDemand, Work};

impl Network {
    /// Requests per second that are reached; at most [`Self::bound`].
    #[must_use]
    pub fn throughput(&self, processes: u32, think_s: f64) -> f64 {
        if self.requests <= 0.0 {
            return f64::INFINITY;
        }
        throughput(self, processes.max(1), think_s)
    }
}

/// Populations that are stepped through one by one; above, each step is longer by a [`STRIDE`]th.
const SINGLE_STEPS: u32 = 256;
const STRIDE: u32 = 16;

/// How finely the waiting of forks is worked out.
#[derive(Clone, Copy)]
struct Precision {
    /// What forks add to the waits of their parts changes little from one population to the next: it is worked out again when the population has
    /// grown by this part since the last time, and follows the waits in between.
    fork_stride: u32,
    /// Widest waits of forks are rounded up to one of so many steps between powers of two, so that forks share their exponentials.
    scales_per_octave: f64,
}

const PRECISION: Precision = Precision { fork_stride: 3, scales_per_octave: 4.0 };

/// One server as a station with one queue.
///
/// Device and link follow each other. Were both services constant, the two waits together would be the wait at the slower one alone, for the
/// faster one only sees sub-requests at the pace of the slower (Friedman, Operations Research 13(1), 1965: "Reduction methods for tandem
/// queuing systems"). Were both exponential, each would add its own (Jackson). Between the two we interpolate by the squared variation.
struct Queue {
    /// Sub-requests per request.
    visits: f64,
    slow: Stage,
    fast: Stage,
    /// How much of the wait at the faster stage adds to that at the slower one, 0 to 1.
    second_wait: f64,
    /// How often a sub-request waits at the device once more, for a flush behind all that came before it.
    flushes: f64,
    is_device_slow: bool,
}

struct Stage {
    mean_s: f64,
    squared_variation: f64,
    /// Sub-requests waiting or in service on average, and the share of time in which it is busy, at the population before.
    length: f64,
    busy: f64,
}

impl Queue {
    fn of(demand: ServerDemand) -> Self {
        let stage = |work: Work| Stage {
            mean_s: work.mean_s,
            squared_variation: work.squared_variation(),
            length: 0.0,
            busy: 0.0,
        };
        let (device, link) = (stage(demand.device), stage(demand.link));
        let second_wait = ((device.squared_variation + link.squared_variation) / 2.0).min(1.0);
        let is_device_slow = device.mean_s >= link.mean_s;
        let (slow, fast) = if is_device_slow { (device, link) } else { (link, device) };
        Self { visits: demand.visits, slow, fast, second_wait, flushes: demand.flushes, is_device_slow }
    }

    /// Seconds that an arriving sub-request waits at both stages together, and its flush at the device. A flush asks for no service, so it
    /// makes nobody wait.
    fn wait_s(&self, growth: f64) -> f64 {
        let device = if self.is_device_slow { &self.slow } else { &self.fast };
        let flush_s = if self.flushes > 0.0 { self.flushes * device.wait_s(growth) } else { 0.0 };
        self.slow.wait_s(growth) + self.second_wait * self.fast.wait_s(growth) + flush_s
    }

    /// Takes the queues to a population that completes `rate` requests per second.
    fn serve(&mut self, rate: f64, growth: f64) {
        for stage in [&mut self.slow, &mut self.fast] {
            let wait_s = stage.wait_s(growth);
            stage.busy = (rate * self.visits * stage.mean_s).min(1.0);
            stage.length = rate * self.visits * (stage.mean_s + wait_s);
        }
    }
}

impl Stage {
    /// Those that wait before it, and the rest of the one in service: (1 + squared variation) / 2 of a service for one that arrives at any moment.
    fn wait_s(&self, growth: f64) -> f64 {
        let residual = (1.0 + self.squared_variation) / 2.0;
        self.mean_s * ((self.length * growth - self.busy).max(0.0) + self.busy * residual)
    }
}

/// Requests of several parts over one set of servers.
struct JoinedFork {
    share: f64,
    /// Position in the queues and seconds without waiting.
    parts: Vec<(usize, f64)>,
    longest_s: f64,
    /// How alike the waits of its parts are, 0 independent to 1 equal.
    likeness: f64,
}

pub(super) fn throughput(network: &Network, processes: u32, think_s: f64) -> f64 {
    throughput_with(network, processes, think_s, PRECISION)
}

fn throughput_with(network: &Network, processes: u32, think_s: f64, precision: Precision) -> f64 {
    let mut queues: Vec<Queue> = network.demands().map(Queue::of).collect();
    let forks = joined_forks(network, &queues);
    let forked = forked_visits(&forks, queues.len());
    let limit = network.bottleneck().map_or(f64::INFINITY, |found| 1.0 / found.demand_s);
    let alone_s = think_s + network.unloaded_s();
    let (mut rate, mut population) = (0.0f64, 0);
    let mut joining = Joining { stride: precision.fork_stride, known: [None; 2] };
    while population < processes {
        let before = population;
        population =
            if before < SINGLE_STEPS { before + 1 } else { before.saturating_add(before / STRIDE).min(processes) };
        // One process less than now sees the queues of the population before; over a longer stride they grow in proportion.
        let growth = if before == 0 { 0.0 } else { f64::from(population - 1) / f64::from(before) };
        let mut waits = Waits::of(&queues, growth, precision.scales_per_octave);
        let (mut single_s, mut parts_s) = (0.0, 0.0);
        for ((queue, wait_s), forked) in queues.iter().zip(&waits.seconds).zip(&forked) {
            single_s += (queue.visits - forked).max(0.0) * wait_s;
            parts_s += forked * wait_s;
        }
        let joined_s = joining
            .waiting_s(population, parts_s, || forks.iter().map(|fork| fork.share * fork.waiting_s(&mut waits)).sum());
        let cycle_s = alone_s + single_s + joined_s;
        // A process more never makes the others' work less.
        rate = (f64::from(population) / cycle_s).min(limit).max(rate);
        queues.iter_mut().for_each(|queue| queue.serve(rate, growth));
    }
    rate
}

/// The waiting of forks as a multiple of the waits of all their parts, at the populations where it was worked out.
struct Joining {
    /// [`Precision::fork_stride`].
    stride: u32,
    /// Population and multiple: the last two.
    known: [Option<(u32, f64)>; 2],
}

impl Joining {
    /// Seconds that forks wait when their parts together wait `parts_s`; `exact_s` works it out.
    fn waiting_s(&mut self, population: u32, parts_s: f64, exact_s: impl FnOnce() -> f64) -> f64 {
        if parts_s <= 0.0 {
            return 0.0;
        }
        match self.known {
            [Some((before, of_before)), Some((last, of_last))]
                if population < last.saturating_add((last / self.stride).max(1)) =>
            {
                // On with the slope of the last two over the logarithm of the population, which never turns the multiple around.
                let steps = (f64::from(population) / f64::from(last)).ln() / (f64::from(last) / f64::from(before)).ln();
                (of_last + steps * (of_last - of_before)).max(0.0) * parts_s
            }
            _ => {
                let exact_s = exact_s();
                self.known = [self.known[1], Some((population, exact_s / parts_s))];
                exact_s
            }
        }
    }
}

fn forked_visits(forks: &[JoinedFork], queues: usize) -> Vec<f64> {
    let mut forked = vec![0.0; queues];
    for fork in forks {
        for (queue, _) in &fork.parts {
            forked[*queue] += fork.share;
        }
    }
    forked
}

fn joined_forks(network: &Network, queues: &[Queue]) -> Vec<JoinedFork> {
    let count = queues.len();
    let touched: Vec<u32> = network.demands().map(|demand| demand.server as u32).collect();
    let position = |server: &u32| touched.binary_search(server).expect("a fork's servers have demands");
    let mut together = vec![0.0; count * count];
    let mut forks: Vec<JoinedFork> = Vec::new();
    for (servers, sum) in network.forks() {
        let share = sum.requests / network.requests();
        let alone_s = sum.alone_s.iter().map(|alone_s| alone_s / sum.requests);
        let parts: Vec<(usize, f64)> = servers.iter().map(position).zip(alone_s).collect();
        for (one, _) in &parts {
            for (other, _) in &parts {
                together[one * count + other] += share;
            }
        }
        let longest_s = parts.iter().map(|(_, alone_s)| *alone_s).fold(0.0, f64::max);
        forks.push(JoinedFork { share, parts, longest_s, likeness: 0.0 });
    }
    let roots: Vec<f64> = queues.iter().map(|queue| queue.visits.sqrt().recip()).collect();
    for fork in &mut forks {
        let (mut sum, mut pairs) = (0.0, 0.0);
        for (number, (one, _)) in fork.parts.iter().enumerate() {
            for (other, _) in &fork.parts[..number] {
                sum += together[one * count + other] * (roots[*one] * roots[*other]);
                pairs += 1.0;
            }
        }
        fork.likeness = (sum / f64::max(pairs, 1.0)).min(1.0);
    }
    forks
}

/// Nodes and weights of Gauss's quadrature on [0, 1] with eight points, exact up to degree 15.
const NODES: [(f64, f64); 8] = [
    (0.019_855_071_751_232, 0.050_614_268_145_188),
    (0.101_666_761_293_187, 0.111_190_517_226_687),
    (0.237_233_795_041_836, 0.156_853_322_938_944),
    (0.408_282_678_752_175, 0.181_341_891_689_181),
    (0.591_717_321_247_825, 0.181_341_891_689_181),
    (0.762_766_204_958_164, 0.156_853_322_938_944),
    (0.898_333_238_706_813, 0.111_190_517_226_687),
    (0.980_144_928_248_768, 0.050_614_268_145_188),
];

/// What an arriving sub-request waits at each queue: 0 with probability 1 - busy and else exponential.
struct Waits {
    /// Mean seconds.
    seconds: Vec<f64>,
    /// Share of time in which each is busy, at most 1.
    busy: Vec<f64>,
    /// Mean seconds of those that wait.
    scales_s: Vec<f64>,
    /// [`Precision::scales_per_octave`].
    scales_per_octave: f64,
    /// For every widest scale of a fork in use, by its number: the scale, and for every queue busy y^(scale / own scale) at the nodes.
    tables: Vec<(i32, f64, Vec<[f64; NODES.len()]>)>,
}

impl Waits {
    fn of(queues: &[Queue], growth: f64, scales_per_octave: f64) -> Self {
        let seconds: Vec<f64> = queues.iter().map(|queue| queue.wait_s(growth)).collect();
        let busy: Vec<f64> = queues.iter().map(|queue| queue.slow.busy).collect();
        let scales_s = seconds.iter().zip(&busy).map(|(wait_s, busy)| wait_s / busy.max(1e-9)).collect();
        let busy = busy.into_iter().map(|busy| busy.min(1.0)).collect();
        Self { scales_per_octave, tables: Vec::new(), seconds, busy, scales_s }
    }

    /// The position of the table for the least scale that is not below `widest_s`.
    fn table(&mut self, widest_s: f64) -> usize {
        let number = (widest_s.log2() * self.scales_per_octave).ceil() as i32;
        if let Some(known) = self.tables.iter().position(|(known, ..)| *known == number) {
            return known;
        }
        let scale_s = (f64::from(number) / self.scales_per_octave).exp2();
        let of_queue = |(own_s, busy): (&f64, &f64)| {
            let exponent = if *own_s > 0.0 { scale_s / own_s } else { 0.0 };
            NODES.map(|(y, _)| busy * y.powf(exponent))
        };
        let table = self.scales_s.iter().zip(&self.busy).map(of_queue).collect();
        self.tables.push((number, scale_s, table));
        self.tables.len() - 1
    }
}

impl JoinedFork {
    /// Seconds by which the slowest part is later than without waiting.
    fn waiting_s(&self, waits: &mut Waits) -> f64 {
        let equal_s = self.parts.iter().map(|(queue, alone_s)| alone_s + waits.seconds[*queue]).fold(0.0, f64::max);
        let independent_s = if self.likeness < 1.0 { self.independent_s(waits) } else { equal_s };
        let slowest_s = self.likeness * equal_s + (1.0 - self.likeness) * independent_s.max(equal_s);
        slowest_s - self.longest_s
    }

    /// Mean of the largest of independent times, each its seconds alone and its wait.
    fn independent_s(&self, waits: &mut Waits) -> f64 {
        let widest_s = self.parts.iter().map(|(queue, _)| waits.scales_s[*queue]).fold(0.0, f64::max);
        if widest_s <= 0.0 {
            return self.longest_s;
        }
        let table = waits.table(widest_s);
        let (_, scale_s, table) = &waits.tables[table];
        // With y = exp(-(t - longest) / scale), the mean is longest + scale times the integral of P(largest > t) / y over [0, 1].
        let mut below = [1.0; NODES.len()];
        for (queue, alone_s) in &self.parts {
            let own_s = waits.scales_s[*queue];
            if own_s > 0.0 {
                let later_s = self.longest_s - alone_s;
                let decay = if later_s > 0.0 { (-later_s / own_s).exp() } else { 1.0 };
                below.iter_mut().zip(&table[*queue]).for_each(|(below, at_node)| *below *= 1.0 - decay * at_node);
            }
        }
        let integral: f64 = NODES.iter().zip(below).map(|((y, weight), below)| weight * (1.0 - below) / y).sum();
        self.longest_s + scale_s * integral
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Fork, Part, RequestDemand};
    use super::*;
    use proptest::prelude::*;

    /// Forks over servers of a ring, as (first, parts), each with a weight; seconds of each server's device and link.
    fn network(forks: &[(usize, usize, f64)], services_s: &[(f64, f64)]) -> Network {
        let mut network = Network::new(services_s.len());
        for (first, count, weight) in forks {
            let mut servers: Vec<usize> = (0..*count).map(|turn| (first + turn) % services_s.len()).collect();
            servers.sort_unstable();
            let constant = |mean_s: f64| Work { mean_s, mean_square_s2: mean_s * mean_s };
            let demand = |server: &usize| {
                let (device_s, link_s) = services_s[*server];
                let (device, link) = (constant(device_s), constant(link_s));
                ServerDemand { server: *server, visits: 1.0, device, link, flushes: 0.0 }
            };
            let part = |server: &usize| Part {
                server: *server,
                device_s: services_s[*server].0,
                link_s: services_s[*server].1,
            };
            let parts: Vec<Part> = servers.iter().map(part).collect();
            let unloaded_s = parts.iter().map(Part::alone_s).fold(0.0, f64::max);
            let forks = vec![Fork { share: 1.0, parts }];
            network.add(&RequestDemand { servers: servers.iter().map(demand).collect(), unloaded_s, forks }, *weight);
        }
        network
    }

    proptest! {
        #[test]
        fn few_populations_and_scales_are_enough(
            forks in proptest::collection::vec((0usize..8, 1usize..9, 0.1..10.0f64), 1..12),
            services_s in proptest::collection::vec((1e-4..2e-2f64, 1e-4..5e-3f64), 8),
        ) {
            let network = network(&forks, &services_s);
            let every = Precision { fork_stride: u32::MAX, scales_per_octave: 4096.0 };
            for processes in [2, 5, 16, 32, 100, 400] {
                let (found, full) =
                    (throughput(&network, processes, 0.0), throughput_with(&network, processes, 0.0, every));
                prop_assert!((found / full - 1.0).abs() < 5e-3, "{} processes: {} and {}", processes, found, full);
            }
        }
    }
}
