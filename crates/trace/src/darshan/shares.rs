//! What each rank did, and when the run moved its bytes.
//!
//! Records of one rank say it. A shared record has the sums of all ranks and the slowest and the fastest of them: these two get what is theirs, and
//! the rest is spread evenly over the others. Where DXT has all requests of a shared file, every rank gets its own. A bound stands beside the
//! estimate, since different files may have different slowest ranks that are not named, and others may come close to these.

use super::TIMELINE_SLICES;
use super::counters::LevelCounters;
use std::collections::BTreeMap;

/// What one rank did.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct RankShare {
    /// Bytes read and written.
    pub bytes: f64,
    /// Seconds in reads, writes and metadata calls.
    pub time_s: f64,
    /// Of them in reads and writes.
    pub data_s: f64,
}

impl RankShare {
    fn plus(self, other: Self, times: f64) -> Self {
        Self {
            bytes: self.bytes + other.bytes * times,
            time_s: self.time_s + other.time_s * times,
            data_s: self.data_s + other.data_s * times,
        }
    }
}

/// Requests of one rank on a shared file, by DXT.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Traced {
    pub(super) requests: u64,
    pub(super) bytes: u64,
    pub(super) data_s: f64,
}

impl Traced {
    pub(super) fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.data_s += other.data_s;
    }
}

/// What each rank did.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Shares {
    /// What is known of a rank: its own records, and by what it differs from the others of a shared one.
    own: BTreeMap<u32, RankShare>,
    /// What every rank has besides.
    each: RankShare,
    /// Seconds in reads and writes of a rank's own records, which are exact, for the bound.
    own_data_s: BTreeMap<u32, f64>,
    /// Seconds in reads and writes that a rank can have in shared records at most.
    shared_data_s: f64,
    sum: RankShare,
    processes: u32,
}

impl Shares {
    pub(super) fn add(&mut self, rank: i64, processes: u32, level: &LevelCounters) {
        self.processes = processes;
        self.sum = self.sum.plus(whole(level), 1.0);
        match u32::try_from(rank) {
            Ok(rank) => {
                let own = self.own.entry(rank).or_default();
                *own = own.plus(whole(level), 1.0);
                *self.own_data_s.entry(rank).or_default() += level.data_s();
            }
            Err(_) => self.add_shared(level, 1.0),
        }
    }

    /// `times` -1 takes it back.
    fn add_shared(&mut self, level: &LevelCounters, times: f64) {
        let part = Parts::of(level, self.processes);
        self.each = self.each.plus(part.each, times);
        for (rank, more) in part.known {
            let own = self.own.entry(rank).or_default();
            *own = own.plus(more, times);
        }
        self.shared_data_s += times * most_data_s(level);
    }

    /// What a file's records add, those of all ranks together; `by_rank` where all requests are known.
    pub(super) fn add_file(&mut self, level: &LevelCounters, processes: u32, by_rank: Option<&BTreeMap<u32, Traced>>) {
        // Of several records of one rank each, the slowest is known as of a shared one.
        let only = level.slowest.rank.filter(|_| !level.is_shared && level.ranks == 1);
        self.add(only.map_or(-1, i64::from), processes, level);
        if let Some(by_rank) = by_rank {
            self.settle(level, by_rank);
        }
    }

    /// Puts the requests of all ranks in the place of a shared record. Says whether none is missing; nothing changes otherwise.
    pub(super) fn settle(&mut self, level: &LevelCounters, by_rank: &BTreeMap<u32, Traced>) -> bool {
        let traced: u64 = by_rank.values().map(|traced| traced.requests).sum();
        if !level.is_shared || traced != level.requests() {
            return false;
        }
        self.add_shared(level, -1.0);
        let metadata_s = level.metadata_s / f64::from(self.processes.max(1));
        self.each.time_s += metadata_s;
        for (rank, traced) in by_rank {
            let own = self.own.entry(*rank).or_default();
            let share = RankShare { bytes: traced.bytes as f64, time_s: traced.data_s, data_s: traced.data_s };
            *own = own.plus(share, 1.0);
            *self.own_data_s.entry(*rank).or_default() += traced.data_s;
        }
        true
    }

    /// The rank that spends most time in I/O, as far as the log tells them apart.
    #[must_use]
    pub fn busiest(&self) -> RankShare {
        let others = (self.own.len() < self.processes as usize).then(RankShare::default);
        let most = self.own.values().copied().chain(others).max_by(|one, two| one.time_s.total_cmp(&two.time_s));
        self.each.plus(most.unwrap_or_default(), 1.0)
    }

    /// The mean rank.
    #[must_use]
    pub fn mean(&self) -> RankShare {
        RankShare::default().plus(self.sum, 1.0 / f64::from(self.processes.max(1)))
    }

    /// Seconds that no rank spends more of in reads and writes.
    #[must_use]
    pub fn most_data_s(&self) -> f64 {
        // What was taken back leaves the rounding of floats.
        self.own_data_s.values().copied().fold(0.0, f64::max) + self.shared_data_s.max(0.0)
    }
}

fn whole(level: &LevelCounters) -> RankShare {
    RankShare { bytes: level.bytes() as f64, time_s: level.time_s(), data_s: level.data_s() }
}

/// Seconds in reads and writes that a rank has in a shared record at most.
fn most_data_s(level: &LevelCounters) -> f64 {
    match level.slowest.time_s {
        // The log does not say it: all of it may be one rank's.
        slowest_s if slowest_s <= 0.0 => level.data_s(),
        slowest_s => slowest_s.min(level.data_s()),
    }
}

/// A shared record by rank.
struct Parts {
    each: RankShare,
    known: Vec<(u32, RankShare)>,
}

impl Parts {
    fn of(level: &LevelCounters, processes: u32) -> Self {
        let (sum, ranks) = (whole(level), f64::from(processes.max(1)));
        let data = if sum.time_s > 0.0 { sum.data_s / sum.time_s } else { 0.0 };
        let mean = RankShare::default().plus(sum, 1.0 / ranks);
        let (slowest, fastest) = (level.slowest, level.fastest);
        let mut ends = Vec::new();
        if processes > 1 && slowest.time_s >= mean.time_s && slowest.time_s <= sum.time_s {
            // Which rank a log without its number means does not matter, as long as it is the same.
            ends.push((slowest.rank.unwrap_or(0), slowest));
            if processes > 2 && fastest.rank != slowest.rank && fastest.time_s <= mean.time_s {
                ends.extend(fastest.rank.map(|rank| (rank, fastest)));
            }
        }
        let share = |time_s: f64, bytes: u64| RankShare { bytes: bytes as f64, time_s, data_s: time_s * data };
        let of_ends =
            ends.iter().fold(RankShare::default(), |of_ends, (_, end)| of_ends.plus(share(end.time_s, end.bytes), 1.0));
        let rest = sum.plus(of_ends, -1.0);
        let others = ranks - ends.len() as f64;
        let each = |rest: f64| rest.max(0.0) / others;
        let each = RankShare { bytes: each(rest.bytes), time_s: each(rest.time_s), data_s: each(rest.data_s) };
        let known = ends.into_iter().map(|(rank, end)| (rank, share(end.time_s, end.bytes).plus(each, -1.0))).collect();
        Self { each, known }
    }
}

/// Spreads a record's bytes over the slices of a run.
pub(super) fn spread(timeline: &mut [[f64; 2]], run_s: f64, level: &LevelCounters) {
    if run_s.is_nan() || run_s <= 0.0 {
        return;
    }
    let slice_s = run_s / TIMELINE_SLICES as f64;
    for (place, found) in [&level.read, &level.write].into_iter().enumerate() {
        if found.bytes == 0 || !found.start_s.is_finite() {
            continue;
        }
        let last = timeline.len() - 1;
        let slice = |at_s: f64| ((at_s / slice_s) as usize).min(last);
        let (first, last) = (slice(found.start_s), slice(found.end_s.max(found.start_s)));
        let of_slice = found.bytes as f64 / (last - first + 1) as f64;
        timeline[first..=last].iter_mut().for_each(|sums| sums[place] += of_slice);
    }
}
