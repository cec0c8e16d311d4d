//! Time dilation: emulated devices that run slower than they are, so that they and not this machine set a run's pace.
//!
//! All times of all devices and links are multiplied by one factor, and every time that is measured is divided by it. Devices keep
//! their proportions exactly, and what the machine itself costs shrinks beside them by the factor. [`HostCost`], measured before the
//! first run, says how slow devices have to be; [`is_host_bound`] says afterwards whether they were slow enough.

use anyhow::Result;
use stripewise_layout::Cluster;
use stripewise_store::server::emulated::EmulatedUrl;

/// A rank may start or wake up this share of the run late.
const LATE_SHARE: f64 = 0.01;
/// In the devices' time: a wake-up this late is no result, unless the run is so long that [`LATE_SHARE`] of it is more.
const STALL_S: f64 = 0.02;
/// How late the last rank starts, beside the time that the first requests of all take, on a machine that others use too.
const START_S: f64 = 0.012;
/// Devices take at least this many times what the machine needs for the bytes.
const PACE_MARGIN: f64 = 4.0;
/// Devices that set the pace by far may run faster than they are, to save time, but lateness counts for more then.
const MIN_DILATION: f64 = 0.75;
const MAX_DILATION: f64 = 64.0;
/// Dilations are whole numbers of these parts of one, which reads better.
const STEPS: f64 = 20.0;

/// Devices at next to no time, for a run that shows what the machine itself needs.
pub(crate) const HOST_SPEED: f64 = 1e-6;

/// The cluster with all times of its emulated servers multiplied by `factor`.
///
/// # Errors
/// When the URL of an emulated server is wrong.
pub(crate) fn dilated(cluster: &Cluster, factor: f64) -> Result<Cluster> {
    let mut slower = cluster.clone();
    for server in &mut slower.servers {
        if let Some(url) = EmulatedUrl::of(&server.url).map_err(anyhow::Error::msg)? {
            let time_scale = url.time_scale * factor;
            server.url = EmulatedUrl { time_scale, ..url }.at(server.url.directory());
        }
    }
    Ok(slower)
}

/// Whether a run that took `seconds` tells of the machine rather than of devices dilated by `dilation`: its ranks started apart by more
/// than 1 % of it, or one woke up late by more than 20 ms of the devices' time and more than 1 % of it. All times are the machine's.
pub(crate) fn is_host_bound(late_s: f64, start_skew_s: f64, seconds: f64, dilation: f64) -> bool {
    start_skew_s > seconds * LATE_SHARE || late_s > (STALL_S * dilation).max(seconds * LATE_SHARE)
}

/// Ranks that do the same number of requests each, one after the other.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Pass {
    pub(crate) ranks: u32,
    pub(crate) request_bytes: u64,
    /// Of each rank.
    pub(crate) requests: u64,
    /// What the devices take, undilated.
    pub(crate) devices_s: f64,
}

/// What this machine needs for a request, all ranks at work.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct HostCost {
    request_s: f64,
    byte_s: f64,
    /// Grows with every run that was the machine's nevertheless.
    margin: f64,
}

impl HostCost {
    /// From runs at [`HOST_SPEED`]: bytes of a request, and million bytes per second. Of runs with requests of one size the slowest counts.
    pub(crate) fn fit(runs: &[(u64, f64)]) -> Self {
        let seconds = |(bytes, mb_s): (u64, f64)| bytes as f64 / (mb_s * 1e6);
        let slowest =
            |bytes: u64| runs.iter().filter(|run| run.0 == bytes).map(|run| seconds(*run)).fold(0.0, f64::max);
        let small = runs.iter().map(|run| run.0).min().unwrap_or(0);
        let large = runs.iter().map(|run| run.0).max().unwrap_or(0);
        let (small_s, large_s) = (slowest(small), slowest(large));
        let byte_s = match large > small {
            true => (large_s - small_s).max(0.0) / (large - small) as f64,
            false => large_s / large.max(1) as f64,
        };
        Self { request_s: (small_s - byte_s * small as f64).max(0.0), byte_s, margin: 1.0 }
    }

    /// The factor by which devices are slowed for a run whose shortest pass is `pass`, so that it takes at least `wall_s`, that ranks
    /// start within 1 % of it of each other, and that the machine moves the bytes several times as fast as the devices.
    pub(crate) fn dilation(&self, pass: &Pass, wall_s: f64) -> f64 {
        let round_s = f64::from(pass.ranks) * (self.request_s + self.byte_s * pass.request_bytes as f64);
        let start_s = (START_S + round_s) / LATE_SHARE;
        let pace_s = PACE_MARGIN * round_s * pass.requests as f64;
        let wanted_s = wall_s.max(start_s).max(pace_s) * self.margin;
        let factor = (wanted_s / pass.devices_s).clamp(MIN_DILATION, MAX_DILATION);
        if factor.is_nan() { 1.0 } else { (factor * STEPS).round() / STEPS }
    }

    /// After a run that was host-bound; returns the dilation with which it is repeated.
    pub(crate) fn raise(&mut self, dilation: f64) -> f64 {
        const MORE: f64 = 1.5;
        self.margin = (self.margin * 1.2).min(2.0);
        (dilation * MORE).min(MAX_DILATION)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1 ms for 4 MiB, nothing besides.
    const COST: HostCost = HostCost { request_s: 0.0, byte_s: 1e-3 / (4 << 20) as f64, margin: 1.0 };

    fn pass(request_bytes: u64, devices_s: f64) -> Pass {
        Pass { ranks: 32, request_bytes, requests: 5, devices_s }
    }

    #[test]
    fn costs_are_those_of_the_slowest_runs_of_the_smallest_and_the_largest_requests() {
        let rate = |bytes: u64, seconds: f64| (bytes, bytes as f64 / seconds / 1e6);
        let cost = HostCost::fit(&[rate(1 << 20, 3e-4), rate(1 << 20, 2e-4), rate(3 << 20, 5e-4)]);
        assert!(
            (cost.byte_s * f64::from(2 << 20) - 2e-4).abs() < 1e-9 && (cost.request_s - 2e-4).abs() < 1e-9,
            "{cost:?}"
        );
        let one = HostCost::fit(&[rate(1 << 20, 3e-4)]);
        assert!(one.request_s.abs() < 1e-12 && (one.byte_s * f64::from(1 << 20) - 3e-4).abs() < 1e-9, "{one:?}");
        // Noise never makes a cost negative.
        let odd = HostCost::fit(&[rate(1 << 20, 5e-4), rate(4 << 20, 4e-4)]);
        assert!(odd.byte_s == 0.0 && (odd.request_s - 5e-4).abs() < 1e-9, "{odd:?}");
    }

    #[test]
    fn fast_devices_are_slowed_until_the_machine_keeps_up_and_slow_ones_run_faster() {
        // Starting takes 12 ms and 32 times 1 ms, so a run takes 4.4 s.
        assert_eq!(COST.dilation(&pass(4 << 20, 0.44), 2.0), 10.0);
        assert_eq!(COST.dilation(&pass(64 << 10, 0.5), 2.0), 4.0, "small requests start at once");
        assert_eq!(COST.dilation(&pass(64 << 10, 2.5), 2.0), 0.8);
        assert_eq!(COST.dilation(&pass(64 << 10, 100.0), 2.0), MIN_DILATION);
        assert_eq!(COST.dilation(&pass(64 << 10, 1e-9), 2.0), MAX_DILATION);
        let many = Pass { requests: 100, ..pass(4 << 20, 1.0) };
        assert_eq!(COST.dilation(&many, 2.0), 12.8, "four times 100 rounds of 32 ms");
        let mut cost = COST;
        assert_eq!(cost.raise(4.0), 6.0);
        assert!(cost.dilation(&pass(64 << 10, 0.5), 2.0) > 4.0, "later runs are slowed more");
    }

    #[test]
    fn a_hundredth_of_the_run_is_host_bound_whatever_the_dilation() {
        assert!(!is_host_bound(0.019, 0.009, 1.0, 1.0));
        assert!(is_host_bound(0.0, 0.011, 1.0, 1.0));
        assert!(is_host_bound(0.021, 0.0, 1.0, 1.0));
        assert!(!is_host_bound(0.079, 0.0, 1.0, 4.0), "20 ms of the devices' time");
        assert!(is_host_bound(0.081, 0.0, 1.0, 4.0));
        assert!(!is_host_bound(0.079, 0.0, 8.0, 1.0), "a hundredth of a long run");
        assert!(is_host_bound(0.081, 0.0, 8.0, 1.0));
    }

    #[test]
    fn only_emulated_servers_are_dilated() {
        let text = include_str!("../../fuzz/corpus/cluster/emulated.toml");
        let cluster = Cluster::parse(text, std::path::Path::new("/cluster.toml")).unwrap();
        let slower = dilated(&cluster, 8.0).unwrap();
        assert_eq!(slower.servers[0], cluster.servers[0]);
        let scale = |cluster: &Cluster| EmulatedUrl::of(&cluster.servers[1].url).unwrap().unwrap().time_scale;
        assert_eq!(scale(&slower), 8.0 * scale(&cluster));
    }
}
