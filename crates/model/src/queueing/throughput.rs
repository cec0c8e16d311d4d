//! Approximate mean value analysis of a closed fork-join network with service times that are not exponential.
//!
//! Mean value analysis goes from one process to p (Reiser and Lavenberg, J. ACM 27(2), 1980): a request that arrives at a station with n
//! processes in the network finds there what n - 1 processes leave on average.

use super::Network;

/// Populations that are stepped through one by one; larger ones are solved as a fixed point (Schweitzer).
const EXACT_POPULATION: u32 = 256;

/// One server as a station with one queue.
struct Queue {
    /// Sub-requests per request.
    visits: f64,
    slow: Stage,
    fast: Stage,
    /// How much of the wait at the faster stage adds to that at the slower one.
    second_wait: f64,
}

struct Stage {
    mean_s: f64,
    squared_variation: f64,
    /// Sub-requests waiting or in service on average, and the share of time in which it is busy, at the population before.
    length: f64,
    busy: f64,
}

impl Stage {
    /// Seconds that an arriving sub-request waits: those that wait before it, and the rest of the one in service.
    fn wait_s(&self) -> f64 {
        let residual = (1.0 + self.squared_variation) / 2.0;
        self.mean_s * ((self.length - self.busy).max(0.0) + self.busy * residual)
    }
}

struct JoinedFork {
    share: f64,
    /// Position in the queues and seconds without waiting.
    parts: Vec<(usize, f64)>,
    longest_s: f64,
}

pub(super) fn throughput(network: &Network, processes: u32, think_s: f64) -> f64 {
    let mut queues = Vec::new();
    let mut position = std::collections::HashMap::new();
    for demand in network.demands() {
        position.insert(demand.server as u32, queues.len());
        let stage = |work: super::Work| Stage {
            mean_s: work.mean_s,
            squared_variation: work.squared_variation(),
            length: 0.0,
            busy: 0.0,
        };
        let (device, link) = (stage(demand.device), stage(demand.link));
        let second_wait = ((device.squared_variation + link.squared_variation) / 2.0).min(1.0);
        let (slow, fast) = if device.mean_s >= link.mean_s { (device, link) } else { (link, device) };
        queues.push(Queue { visits: demand.visits, slow, fast, second_wait });
    }
    let forks = joined_forks(network, &position);
    let forked: Vec<f64> = forked_visits(&forks, queues.len());
    let limit = network.bottleneck().map_or(f64::INFINITY, |found| 1.0 / found.demand_s);
    let unloaded_s = network.unloaded_s();
    let mut rate = 0.0;
    for population in 1..=processes.min(EXACT_POPULATION) {
        let waits: Vec<f64> =
            queues.iter().map(|queue| queue.slow.wait_s() + queue.second_wait * queue.fast.wait_s()).collect();
        let single_s: f64 = queues
            .iter()
            .zip(&waits)
            .zip(&forked)
            .map(|((queue, wait_s), forked)| (queue.visits - forked).max(0.0) * wait_s)
            .sum();
        let joined_s: f64 = forks.iter().map(|fork| fork.share * fork.waiting_s(&waits)).sum();
        let cycle_s = think_s + unloaded_s + single_s + joined_s;
        rate = (f64::from(population) / cycle_s).min(limit);
        for queue in &mut queues {
            for stage in [&mut queue.slow, &mut queue.fast] {
                let wait_s = stage.wait_s();
                stage.busy = rate * queue.visits * stage.mean_s;
                stage.length = rate * queue.visits * (stage.mean_s + wait_s);
            }
        }
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

fn joined_forks(network: &Network, position: &std::collections::HashMap<u32, usize>) -> Vec<JoinedFork> {
    let mut forks: Vec<JoinedFork> = Vec::new();
    for (servers, sum) in network.forks() {
        let share = sum.requests / network.requests();
        let parts: Vec<(usize, f64)> = servers
            .iter()
            .zip(&sum.alone_s)
            .map(|(server, alone_s)| (position[server], alone_s / sum.requests))
            .collect();
        let longest_s = parts.iter().map(|(_, alone_s)| *alone_s).fold(0.0, f64::max);
        forks.push(JoinedFork { share, parts, longest_s });
    }
    forks
}

impl JoinedFork {
    /// Seconds by which the slowest part is later than without waiting.
    fn waiting_s(&self, waits: &[f64]) -> f64 {
        let together = self.parts.iter().map(|(queue, alone_s)| alone_s + waits[*queue]).fold(0.0, f64::max);
        together - self.longest_s
    }
}
