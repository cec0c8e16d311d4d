//! Brings the clocks of all processes to one time line.
//!
//! On one node the monotonic clock (and the ticks) are common to all processes, so the node's earliest process fixes the wall clock for
//! all of them; a wall clock that is set during the run moves nothing. The rate of the ticks comes from the longest baseline measured
//! on the node, because a process of a few milliseconds knows its own rate badly.

use super::{ProcessSource, TraceTime};
use std::collections::HashMap;

/// What the header of a process says of its clocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClockFacts {
    /// Ticks are nanoseconds of the monotonic clock.
    pub(crate) counts_ns: bool,
    pub(crate) start_wall_ns: u64,
    pub(crate) start_monotonic_ns: u64,
    pub(crate) start_ticks: u64,
    /// A later pair of ticks and monotonic ns.
    pub(crate) last: Option<(u64, u64)>,
    /// 0 when unknown.
    pub(crate) ticks_per_second: u64,
}

impl ClockFacts {
    /// Ticks that are nanoseconds since 1970 themselves.
    pub(crate) const fn nanoseconds() -> Self {
        Self {
            counts_ns: true,
            start_wall_ns: 0,
            start_monotonic_ns: 0,
            start_ticks: 0,
            last: None,
            ticks_per_second: 0,
        }
    }
}

/// Baselines shorter than this are trusted less than a rate that somebody measured before.
const TRUSTED_BASELINE_NS: u64 = 100_000_000;
/// Processes of one node whose clocks disagree by more were not on one boot of it.
const SAME_BOOT_NS: u64 = 60_000_000_000;

/// Turns the ticks of one process into time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timeline {
    /// Ticks at `base_ns`.
    base_ticks: u64,
    base_ns: i64,
    ns_per_tick: f64,
    exact: bool,
}

impl Timeline {
    #[inline]
    fn ns(&self, ticks: u64) -> i64 {
        let delta = ticks.wrapping_sub(self.base_ticks) as i64;
        let delta = if self.exact { delta } else { (delta as f64 * self.ns_per_tick).round() as i64 };
        self.base_ns.saturating_add(delta)
    }

    pub(crate) fn seconds_per_tick(&self) -> f64 {
        if self.exact { 1e-9 } else { self.ns_per_tick * 1e-9 }
    }

    pub(super) fn unix_ns(&self, ticks: u64) -> u64 {
        u64::try_from(self.ns(ticks)).unwrap_or(0)
    }

    /// Since the origin that [`since_origin`](Self::since_origin) set.
    #[inline]
    pub(crate) fn trace_time(&self, ticks: u64) -> TraceTime {
        TraceTime(u64::try_from(self.ns(ticks)).unwrap_or(0))
    }

    pub(super) fn since_origin(self, origin_unix_ns: u64) -> Self {
        Self { base_ns: self.base_ns.saturating_sub_unsigned(origin_unix_ns), ..self }
    }
}

fn baseline_ns(facts: &ClockFacts) -> u64 {
    facts.last.map_or(0, |(_, ns)| ns.saturating_sub(facts.start_monotonic_ns))
}

fn own_rate(facts: &ClockFacts) -> Option<f64> {
    let (ticks, _) = facts.last?;
    let ticks = ticks.checked_sub(facts.start_ticks).filter(|ticks| *ticks > 0)?;
    Some(baseline_ns(facts) as f64 / ticks as f64).filter(|rate| *rate > 0.0)
}

fn rate_on_node(facts: &[&ClockFacts]) -> f64 {
    let longest =
        facts.iter().copied().filter(|facts| own_rate(facts).is_some()).max_by_key(|facts| baseline_ns(facts));
    let reported = facts.iter().map(|facts| facts.ticks_per_second).find(|rate| *rate > 0);
    match (longest, reported) {
        (Some(facts), None) => own_rate(facts).unwrap_or(1.0),
        (Some(facts), Some(_)) if baseline_ns(facts) >= TRUSTED_BASELINE_NS => own_rate(facts).unwrap_or(1.0),
        (_, Some(rate)) => 1e9 / rate as f64,
        // A lone process that died within its first 2,000 records: durations in ticks are all there is.
        (None, None) => 1.0,
    }
}

/// A time line in nanoseconds since 1970 for each process.
pub(super) fn unify(sources: &[ProcessSource]) -> Vec<Timeline> {
    let mut nodes: HashMap<&str, Vec<&ClockFacts>> = HashMap::new();
    for source in sources {
        nodes.entry(&source.node).or_default().push(&source.clock);
    }
    let nodes: HashMap<&str, (f64, &ClockFacts)> = nodes
        .into_iter()
        .filter_map(|(node, facts)| {
            let earliest = facts.iter().copied().min_by_key(|facts| (facts.start_wall_ns, facts.start_monotonic_ns))?;
            let counters: Vec<&ClockFacts> = facts.into_iter().filter(|facts| !facts.counts_ns).collect();
            Some((node, (rate_on_node(&counters), earliest)))
        })
        .collect();
    sources
        .iter()
        .map(|source| {
            let facts = &source.clock;
            let (ns_per_tick, first) = nodes.get(source.node.as_str()).copied().unwrap_or((1.0, facts));
            let own = i64::try_from(facts.start_wall_ns).unwrap_or(i64::MAX);
            let common = i64::try_from(first.start_wall_ns)
                .unwrap_or(i64::MAX)
                .saturating_add(facts.start_monotonic_ns.wrapping_sub(first.start_monotonic_ns) as i64);
            let base_ns = if common.abs_diff(own) <= SAME_BOOT_NS { common } else { own };
            Timeline { base_ticks: facts.start_ticks, base_ns, ns_per_tick, exact: facts.counts_ns }
        })
        .collect()
}

/// Ticks, relative to a time line's base, between two instants: `from <= ticks - base < to`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TickRange {
    from: i64,
    to: i64,
    base_ticks: u64,
}

impl TickRange {
    /// Before anything is known: holds no ticks.
    pub(crate) const NONE: Self = Self { from: 0, to: 0, base_ticks: 0 };

    #[inline]
    pub(crate) fn holds(&self, ticks: u64) -> bool {
        let delta = ticks.wrapping_sub(self.base_ticks) as i64;
        self.from <= delta && delta < self.to
    }
}

impl Timeline {
    /// The ticks whose trace time is at least `from` and, if there is a `to`, below that. Times before the trace's begin count as 0.
    pub(crate) fn ticks_between(&self, from: TraceTime, to: Option<TraceTime>) -> TickRange {
        let from = if from.0 == 0 { i64::MIN } else { self.first_at(from) };
        TickRange { from, to: to.map_or(i64::MAX, |to| self.first_at(to)), base_ticks: self.base_ticks }
    }

    /// The first ticks, relative to the base, whose trace time is at least `time`.
    fn first_at(&self, time: TraceTime) -> i64 {
        let is_there = |delta: i64| self.trace_time(self.base_ticks.wrapping_add(delta as u64)) >= time;
        let ns = time.0 as f64 - self.base_ns as f64;
        let near = if self.exact {
            i64::try_from(i128::from(time.0) - i128::from(self.base_ns)).unwrap_or(i64::MAX)
        } else {
            (ns / self.ns_per_tick) as i64
        };
        // Time grows with ticks, so the place is found by halving, of few ticks where the estimate is as good as it should be.
        let (mut low, mut high) = (near.saturating_sub(4), near.saturating_add(4));
        if is_there(low) {
            low = i64::MIN;
        }
        if !is_there(high) {
            high = i64::MAX;
        }
        while low < high {
            // Of halves, which cannot overflow.
            let middle = (low & high) + ((low ^ high) >> 1);
            if is_there(middle) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        low
    }
}
