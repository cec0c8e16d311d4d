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

/// Populations that are stepped through one by one; above, each step is longer by a [`STRIDE`]th.
const SINGLE_STEPS: u32 = 256;
const STRIDE: u32 = 16;

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
        let (slow, fast) = if device.mean_s >= link.mean_s { (device, link) } else { (link, device) };
        Self { visits: demand.visits, slow, fast, second_wait }
    }

    /// Seconds that an arriving sub-request waits at both stages together.
    fn wait_s(&self, growth: f64) -> f64 {
        self.slow.wait_s(growth) + self.second_wait * self.fast.wait_s(growth)
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
    let mut queues: Vec<Queue> = network.demands().map(Queue::of).collect();
    let forks = joined_forks(network, &queues);
    let forked = forked_visits(&forks, queues.len());
    let limit = network.bottleneck().map_or(f64::INFINITY, |found| 1.0 / found.demand_s);
    let alone_s = think_s + network.unloaded_s();
    let (mut rate, mut population) = (0.0f64, 0);
    while population < processes {
        let before = population;
        population = if before < SINGLE_STEPS { before + 1 } else { before.saturating_add(before / STRIDE).min(processes) };
        // One process less than now sees the queues of the population before; over a longer stride they grow in proportion.
        let growth = if before == 0 { 0.0 } else { f64::from(population - 1) / f64::from(before) };
        let waits: Vec<f64> = queues.iter().map(|queue| queue.wait_s(growth)).collect();
        let busy: Vec<f64> = queues.iter().map(|queue| queue.slow.busy).collect();
        let single_s: f64 = queues
            .iter()
            .zip(&waits)
            .zip(&forked)
            .map(|((queue, wait_s), forked)| (queue.visits - forked).max(0.0) * wait_s)
            .sum();
        let joined_s: f64 = forks.iter().map(|fork| fork.share * fork.waiting_s(&waits, &busy)).sum();
        let cycle_s = alone_s + single_s + joined_s;
        // A process more never makes the others' work less.
        rate = (f64::from(population) / cycle_s).min(limit).max(rate);
        queues.iter_mut().for_each(|queue| queue.serve(rate, growth));
    }
    rate
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
    for fork in &mut forks {
        let (mut sum, mut pairs) = (0.0, 0.0);
        for (number, (one, _)) in fork.parts.iter().enumerate() {
            for (other, _) in &fork.parts[..number] {
                sum += together[one * count + other] / (queues[*one].visits * queues[*other].visits).sqrt();
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

impl JoinedFork {
    /// Seconds by which the slowest part is later than without waiting.
    fn waiting_s(&self, waits: &[f64], busy: &[f64]) -> f64 {
        let equal_s = self.parts.iter().map(|(queue, alone_s)| alone_s + waits[*queue]).fold(0.0, f64::max);
        let independent_s = if self.likeness < 1.0 { self.independent_s(waits, busy) } else { equal_s };
        let slowest_s = self.likeness * equal_s + (1.0 - self.likeness) * independent_s.max(equal_s);
        slowest_s - self.longest_s
    }

    /// Mean of the largest of independent times, each its seconds alone and a wait that is 0 with probability 1 - busy and else exponential.
    fn independent_s(&self, waits: &[f64], busy: &[f64]) -> f64 {
        let scale = |queue: usize| waits[queue] / busy[queue].max(1e-9);
        let widest_s = self.parts.iter().map(|(queue, _)| scale(*queue)).fold(0.0, f64::max);
        if widest_s <= 0.0 {
            return self.longest_s;
        }
        // With y = exp(-(t - longest) / widest), the mean is longest + widest times the integral of P(largest > t) / y over [0, 1].
        let integral: f64 = NODES
            .iter()
            .map(|(y, weight)| {
                let below: f64 = self
                    .parts
                    .iter()
                    .map(|(queue, alone_s)| {
                        let own_s = scale(*queue);
                        if own_s <= 0.0 {
                            return 1.0;
                        }
                        let later_s = self.longest_s - alone_s - widest_s * y.ln();
                        1.0 - busy[*queue].min(1.0) * (-later_s / own_s).exp()
                    })
                    .product();
                weight * (1.0 - below) / y
            })
            .sum();
        self.longest_s + widest_s * integral
    }
}
