//! What a run takes longer because its processes end one after the other.
//!
//! Throughput is that of all processes together. Where each has so much to do for itself and is held up by chance, some end early, and those that are left may be too few to keep the
//! servers busy.

use super::Network;

/// Processes of one group end together, at most; so many groups tell as much.
const GROUPS: u32 = 64;

/// Relative standard deviation of the time that a process takes on one server before it goes on to another: between 0.5, which makes the estimate that of simulated servers that are all alike, and
/// 0.9, which does for six disks and two SSDs. Ours.
const STAY_DEVIATION: f64 = 0.7;

/// The time of a run over that of the same requests at the throughput of all its processes, at least 1. Each process has the same to do, in `stays` (above 0) parts on servers
/// that are drawn, so its own time has a relative deviation of 0.7 / sqrt(stays), taken as normal.
///
/// Those that are left each go on faster, by what the throughput of so many says. That is taken to be p / (a + b p), as of balanced stations, through the rates of all and of half.
#[must_use]
pub fn ends_apart(network: &Network, processes: u32, stays: f64) -> f64 {
    let (all, half) = (f64::from(processes), f64::from(processes.div_ceil(2)));
    if processes < 2 || stays <= 0.0 {
        return 1.0;
    }
    let cycle_s = |processes: u32| f64::from(processes) / network.throughput(processes, 0.0);
    let full_s = cycle_s(processes);
    let per_process_s = (full_s - cycle_s(processes.div_ceil(2))) / (all - half);
    let own_s = full_s - per_process_s * all;
    let groups = processes.min(GROUPS);
    let (mut time, mut before) = (0.0, 0.0);
    for group in 0..groups {
        let share = (f64::from(group) + 0.5) / f64::from(groups);
        let end = (1.0 + STAY_DEVIATION * normal_quantile(share) / stays.sqrt()).max(0.0);
        let left = all * (1.0 - f64::from(group) / f64::from(groups));
        time += (end - before) * ((own_s + per_process_s * left) / full_s).min(1.0);
        before = end;
    }
    time.max(1.0)
}

/// The value below which a standard normal variable is with that probability, between 0 and 1: within 5e-4 by the rational approximation 26.2.23 of Abramowitz and Stegun.
fn normal_quantile(probability: f64) -> f64 {
    let tail = probability.min(1.0 - probability);
    let t = (-2.0 * tail.ln()).sqrt();
    let above =
        t - (2.515_517 + t * (0.802_853 + t * 0.010_328)) / (1.0 + t * (1.432_788 + t * (0.189_269 + t * 0.001_308)));
    if probability < 0.5 { -above } else { above }
}

#[cfg(test)]
mod tests {
    use super::super::{Fork, Part, RequestDemand, ServerDemand, Work};
    use super::*;
    use stripewise_layout::SplitMix64;

    /// Stations of exponential service, so that the turn at which they serve makes no difference.
    fn network(services_s: &[f64]) -> Network {
        let mut network = Network::new(services_s.len());
        for (server, mean_s) in services_s.iter().copied().enumerate() {
            let device = Work { mean_s, mean_square_s2: 2.0 * mean_s * mean_s };
            let servers = vec![ServerDemand { server, visits: 1.0, device, link: Work::default(), flushes: 0.0 }];
            let parts = vec![Part { server, device_s: mean_s, link_s: 0.0 }];
            network.add(&RequestDemand { servers, unloaded_s: mean_s, forks: vec![Fork { share: 1.0, parts }] }, 1.0);
        }
        network
    }

    /// Seconds of a run in which each process makes `stays` visits to drawn stations, of `parts` services each, of which each station does one for each process in turn.
    fn simulated_s(services_s: &[f64], processes: u32, stays: u32, parts: u32, seed: u64) -> f64 {
        let mut random = SplitMix64::new(seed);
        let mut free = vec![0.0f64; services_s.len()];
        let mut next: Vec<(f64, u32, usize)> =
            (0..processes).map(|process| (f64::from(process) * 1e-9, 0, 0)).collect();
        let mut end_s = 0.0f64;
        loop {
            let found = next
                .iter_mut()
                .filter(|(_, done, _)| *done < stays * parts)
                .min_by(|(one, ..), (other, ..)| one.total_cmp(other));
            let Some((at, done, station)) = found else { return end_s };
            if *done % parts == 0 {
                *station = random.below(services_s.len() as u64) as usize;
            }
            free[*station] = free[*station].max(*at) + services_s[*station];
            (*at, *done) = (free[*station], *done + 1);
            end_s = end_s.max(*at);
        }
    }

    #[test]
    fn quantiles_are_those_of_tables() {
        for (probability, expected) in [(0.5, 0.0), (0.841_345, 1.0), (0.975, 1.959_964), (0.001, -3.090_232)] {
            assert!((normal_quantile(probability) - expected).abs() < 5e-4, "{probability}");
        }
    }

    #[test]
    fn few_long_parts_make_a_run_longer_as_simulated() {
        let alike = |stations: usize| vec![1e-3; stations];
        // Six disks and two SSDs: a process is soon through with the latter.
        let unlike = [vec![9e-3; 6], vec![2e-3; 2]].concat();
        for (services_s, processes, stays) in [
            (alike(8), 16u32, 24u32),
            (alike(8), 16, 96),
            (alike(8), 64, 24),
            (alike(16), 16, 12),
            (alike(4), 32, 48),
            (unlike.clone(), 16, 24),
            (unlike.clone(), 16, 96),
            (unlike, 64, 24),
        ] {
            let (parts, runs) = (8, 40);
            let found_s = (0..runs).map(|seed| simulated_s(&services_s, processes, stays, parts, seed)).sum::<f64>();
            let found_s = found_s / runs as f64;
            let network = network(&services_s);
            let requests = f64::from(processes * stays * parts);
            let steady_s = requests / network.throughput(processes, 0.0);
            let estimated_s = steady_s * ends_apart(&network, processes, f64::from(stays));
            let name = format!("{} stations, {processes} processes, {stays} stays", services_s.len());
            println!(
                "{name}: {found_s:.3} s simulated, {estimated_s:.3} s estimated, {steady_s:.3} s without their ends"
            );
            assert!((estimated_s / found_s - 1.0).abs() < 0.08, "{name}: {found_s} s, not {estimated_s} s");
        }
    }

    #[test]
    fn processes_that_are_held_up_alike_end_together() {
        let network = network(&[1e-3; 8]);
        assert_eq!(ends_apart(&network, 1, 4.0), 1.0);
        assert!(ends_apart(&network, 16, 1e9) < 1.001);
        assert!(ends_apart(&network, 16, 4.0) > ends_apart(&network, 16, 64.0));
    }
}
