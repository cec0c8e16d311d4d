//! The model's prediction for any placement: bandwidth per direction, time, and service seconds per server.
//!
//! In each window the requests of all files form a closed queueing network of p processes ([`stripewise_model::queueing`]), whatever policy
//! placed them, so that policies are compared by one model; each decides by its own paper's cost. The time of a window is its requests
//! over the network's throughput. Where the processes keep company in one region after the other, that region's servers are all they have:
//! for the share of time in which they do, each region's requests form a network of their own. Reads and writes are taken to follow each
//! other, as phases of a program do; where they go on side by side and load the same servers, the sum of the times is the same.
//! The spread is that of the fitted lines, weighted by device time, times the share of device time in all service time, that of the model, and
//! that of a sample as small as the traced requests are. No prediction is without one.

mod counting;
mod in_order;

use crate::served::Served;
use counting::{FileSum, LayoutCounts, counts_by_layout};
use in_order::{Drawn, Presence};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use stripewise_layout::{Direction, Placement};
use stripewise_model::queueing::{self, Bottleneck, KINDS, Network, Side, Streaming, Tally, marching_share};
use stripewise_model::{Concurrency, Profile};
use stripewise_trace::{AccessClass, FileAccess, Slices, WindowAccess};

/// Layouts of one tally, at least: tallies are made side by side and merged in order.
const LAYOUTS_PER_TALLY: usize = 16;

/// Tallies of one file, at most; a bound for what is held at once. The number of threads decides neither, so that sums are always the same.
const TALLIES: usize = 8;

/// What the model is wrong by, besides the lines: nine of ten predictions of random access in `stripewise reproduce model-check` are nearer to what
/// is simulated. Sequential streams of few processes are further off; docs/equations.md says by how much.
pub const MODEL_SPREAD: f64 = 0.12;

/// What a run of so many requests may differ by from the mean that is predicted, because few requests do not average out: the relative
/// standard deviation of a mean of `requests` times that vary by as much as they take.
fn sample_spread(requests: u64) -> f64 {
    if requests == 0 { 0.0 } else { (requests as f64).powf(-0.5) }
}

/// `±12 %`: how far what happens may be from what is predicted; rounded up, so that it never reads as nothing.
#[must_use]
pub fn within(spread: f64) -> String {
    format!("\u{b1}{:.0} %", (spread * 100.0 - 1e-9).ceil().max(1.0))
}

/// What one direction, or all requests together, is predicted to do.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Throughput {
    /// Requests in the windows predicted.
    pub requests: u64,
    /// Bytes of those requests.
    pub bytes: u64,
    /// Seconds that they take, the windows' times added up.
    pub time_s: f64,
    /// Million bytes per second.
    pub mb_per_s: f64,
    /// Relative spread of the time, from the profile's fits, the model and the number of requests; never 0 where there are any.
    pub spread: f64,
}

/// What a run is predicted to do under a placement, in one window or in all of them.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Prediction {
    /// `None` without reads.
    pub read: Option<Throughput>,
    /// `None` without writes.
    pub write: Option<Throughput>,
    /// All requests; reads and writes are taken to follow each other.
    pub total: Throughput,
    /// Service seconds of each server's device, in cluster order.
    pub server_load_s: Vec<f64>,
}

impl Prediction {
    /// The largest relative spread of reads, of writes and of both together.
    #[must_use]
    pub fn spread(&self) -> f64 {
        [self.read, self.write].into_iter().flatten().map(|one| one.spread).fold(self.total.spread, f64::max)
    }

    /// Gives figures of plans that were made before the model's own spread counted at least that one.
    pub(crate) fn widen(&mut self) {
        for one in [self.read.as_mut(), self.write.as_mut(), Some(&mut self.total)].into_iter().flatten() {
            one.spread = one.spread.max(if one.time_s > 0.0 { MODEL_SPREAD } else { 0.0 });
        }
    }
}

/// The prediction for the accesses of one window of a file, or of all its windows, under one placement. The placement must have passed
/// [`Placement::check`] for the profile's servers; a window that the file does not have has no requests.
#[must_use]
pub fn predict(
    placement: &Placement,
    access: &FileAccess,
    profile: &Profile,
    window: Option<usize>,
    concurrency: Concurrency,
) -> Prediction {
    let mut sum = PredictionSum::new(profile);
    for (number, accesses) in access.windows.iter().enumerate() {
        if window.is_none_or(|wanted| wanted == number) {
            sum.add(placement, access, accesses, concurrency);
        }
    }
    sum.finish()
}

#[derive(Clone, Copy, Default)]
struct DirectionSum {
    requests: u64,
    bytes: u128,
    time_s: f64,
    spread_time_s: f64,
}

impl DirectionSum {
    fn merge(self, other: Self) -> Self {
        Self {
            requests: self.requests.saturating_add(other.requests),
            bytes: self.bytes.saturating_add(other.bytes),
            time_s: self.time_s + other.time_s,
            spread_time_s: self.spread_time_s + other.spread_time_s,
        }
    }

    fn throughput(self) -> Throughput {
        let over_time = |value: f64| if self.time_s > 0.0 { value / self.time_s } else { 0.0 };
        Throughput {
            requests: self.requests,
            bytes: u64::try_from(self.bytes).unwrap_or(u64::MAX),
            time_s: self.time_s,
            mb_per_s: over_time(self.bytes as f64 / 1e6),
            spread: over_time(self.spread_time_s).hypot(sample_spread(self.requests)),
        }
    }
}

/// All files in one window.
struct WindowSum<'a> {
    processes: u32,
    files: Vec<FileSum<'a>>,
}

/// Where a file lies.
#[derive(Clone, PartialEq, Debug)]
pub struct Laid {
    /// Which bytes of each region lie on which servers.
    pub placement: Placement,
    /// No more bytes than this lie one behind the other on a server: stripes that are longer stand for several of the region. `None`: stripes are what they say.
    pub run_bytes: Option<u64>,
}

impl From<Placement> for Laid {
    fn from(placement: Placement) -> Self {
        Self { placement, run_bytes: None }
    }
}

/// The station that sets the pace.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Busiest {
    pub(crate) bottleneck: Bottleneck,
    /// Share of the time in which it is busy, 0 to 1.
    pub(crate) busy: f64,
}

/// The requests of one direction in one window, all files together.
struct Mix {
    direction: Direction,
    sum: DirectionSum,
    network: Network,
    /// Writes that no process waits for. They take as long as the station that they load most.
    written_back: Network,
    /// Device seconds times the spread of their lines, and all service seconds.
    spread_s: f64,
    service_s: f64,
    /// Requests whose processes go around the servers in turn.
    in_turn: f64,
    drawn: Drawn,
}

impl Mix {
    fn new(direction: Direction, servers: usize) -> Self {
        let sum = DirectionSum::default();
        let (network, written_back) = (Network::new(servers), Network::new(servers));
        Self {
            direction,
            sum,
            network,
            written_back,
            spread_s: 0.0,
            service_s: 0.0,
            in_turn: 0.0,
            drawn: Drawn::default(),
        }
    }

    fn count(&mut self, (class, count): &(AccessClass, u64)) {
        self.sum.requests = self.sum.requests.saturating_add(*count);
        self.sum.bytes = self.sum.bytes.saturating_add(u128::from(*count) * u128::from(class.request_bytes));
    }

    /// Adds the requests of a file, which for `together` of the time have their servers to themselves for `own_s` seconds.
    fn add(&mut self, tally: &Tally<'_>, together: f64, own_s: f64) {
        let service = tally.service_s(self.direction);
        self.spread_s += service.device_spread_s;
        self.service_s += service.all_s;
        self.sum.time_s += own_s;
        for side in Side::ALL.into_iter().filter(|side| side.direction() == self.direction) {
            match side {
                Side::Reads | Side::AwaitedWrites => self.network.add_tally(tally, side, 1.0 - together),
                // Written back whenever it suits, also where processes march from region to region.
                Side::WrittenBack => self.written_back.add_tally(tally, side, 1.0),
            }
        }
    }

    /// Seconds of the station that is loaded most by what is written back.
    fn drain_s(&self) -> f64 {
        busiest_s(&self.written_back)
    }

    fn finish(mut self, processes: u32) -> DirectionSum {
        let requests = self.network.requests();
        let share = |of: f64| if requests > 0.0 { of / requests } else { 0.0 };
        let rate = self.network.throughput_in_turn(processes, 0.0, share(self.in_turn));
        let apart = match self.drawn.stays > 0.0 {
            true => queueing::ends_apart(&self.network, processes, self.drawn.stays / f64::from(processes.max(1))),
            false => 1.0,
        };
        self.sum.time_s += requests / rate * (1.0 + share(self.drawn.requests) * (apart - 1.0)) + self.drain_s();
        let lines_spread = if self.service_s > 0.0 { self.spread_s / self.service_s } else { 0.0 };
        self.sum.spread_time_s = self.sum.time_s * lines_spread.hypot(MODEL_SPREAD);
        self.sum
    }
}

/// Adds up windows and files.
pub(crate) struct PredictionSum<'a> {
    profile: &'a Profile,
    /// By start; windows of equal number start together in all files. Times are not negative, so their bits are in order.
    windows: BTreeMap<u64, WindowSum<'a>>,
}

impl<'a> PredictionSum<'a> {
    pub(crate) fn new(profile: &'a Profile) -> Self {
        Self { profile, windows: BTreeMap::new() }
    }

    /// Adds one window of one file under one placement, with the window's p.
    pub(crate) fn add(
        &mut self,
        placement: &'a Placement,
        access: &FileAccess,
        window: &WindowAccess,
        concurrency: Concurrency,
    ) {
        self.add_in_runs((placement, None), access, window, concurrency);
    }

    /// The same of a file that lies so.
    pub(crate) fn add_laid(
        &mut self,
        laid: &'a Laid,
        access: &FileAccess,
        window: &WindowAccess,
        concurrency: Concurrency,
    ) {
        self.add_in_runs((&laid.placement, laid.run_bytes), access, window, concurrency);
    }

    fn add_in_runs(
        &mut self,
        (placement, run_bytes): (&'a Placement, Option<u64>),
        access: &FileAccess,
        window: &WindowAccess,
        concurrency: Concurrency,
    ) {
        if window.regions.is_empty() {
            return;
        }
        let sum = self
            .windows
            .entry(window.start_s.to_bits())
            .or_insert_with(|| WindowSum { processes: concurrency.processes, files: Vec::new() });
        let counts_of = |served: &Served<'_>| counts_by_layout(placement, access, window, served);
        let served = Served::drained(self.profile, access, window, |_| {
            let once = Served::in_one_pass(self.profile, access, window);
            drain_s(self.profile, access.region_size.0, &counts_of(&once))
        });
        let counts = counts_of(&served);
        sum.files.push(FileSum {
            region_bytes: access.region_size.0,
            run_bytes,
            company: window.company,
            processes: {
                let of_regions = || window.regions.iter().map(|region| region.processes.max(1));
                let (busiest, sum) = (of_regions().max().unwrap_or(1), of_regions().fold(0, u32::saturating_add));
                let known = window.processes.file.processes;
                busiest..=(if known > 0 { known } else { sum }).max(busiest)
            },
            slices: Slices(window.regions.iter().fold(0, |all, region| all | region.slices.0)),
            idle_s: served.idle_s,
            counts,
        });
    }

    /// The busiest station of the direction that takes longer in the window that does; `None` without requests.
    pub(crate) fn busiest(&self) -> Option<Busiest> {
        let mut longest: Option<(f64, Busiest)> = None;
        for window in self.windows.values() {
            for mix in window.mixes(self.profile, |_| 0.0, &mut vec![0.0; self.profile.servers.len()]) {
                let rate = mix.network.throughput(window.processes, 0.0);
                let awaited = mix.network.bottleneck().map(|bottleneck| {
                    let found = Busiest { busy: (rate * bottleneck.demand_s).min(1.0), bottleneck };
                    (mix.network.requests() / rate, found)
                });
                let drained = mix.written_back.bottleneck();
                let drained = drained.map(|bottleneck| (mix.drain_s(), Busiest { busy: 1.0, bottleneck }));
                for (time_s, found) in awaited.into_iter().chain(drained) {
                    if longest.is_none_or(|(known_s, _)| time_s > known_s) {
                        longest = Some((time_s, found));
                    }
                }
            }
        }
        longest.map(|(_, found)| found)
    }

    pub(crate) fn finish(self) -> Prediction {
        let (mut read, mut write) = (DirectionSum::default(), DirectionSum::default());
        let mut load_s = vec![0.0; self.profile.servers.len()];
        for window in self.windows.values() {
            let [reads, writes] = window.directions(self.profile, &mut load_s);
            (read, write) = (read.merge(reads), write.merge(writes));
        }
        let of = |sum: DirectionSum| (sum.requests > 0).then(|| sum.throughput());
        Prediction { read: of(read), write: of(write), total: read.merge(write).throughput(), server_load_s: load_s }
    }
}

/// Seconds in which the station that is loaded most is through with what these requests write back.
fn drain_s(profile: &Profile, region_bytes: u64, counts: &[LayoutCounts<'_>]) -> f64 {
    let servers = profile.servers.len();
    let mut tally = Tally::new(profile, &vec![Streaming::AS_TRACED; servers], region_bytes);
    counts.iter().for_each(|counts| add_counts(&mut tally, counts));
    let mut written_back = Network::new(servers);
    written_back.add_tally(&tally, Side::WrittenBack, 1.0);
    busiest_s(&written_back)
}

/// Seconds of the station that is loaded most.
fn busiest_s(network: &Network) -> f64 {
    network.bottleneck().map_or(0.0, |found| found.demand_s * network.requests())
}

/// What the requests of some layouts ask for, and the seconds of reads and of writes while each region's are on their own.
struct LayoutsSum<'a> {
    tally: Tally<'a>,
    own_s: [f64; 2],
}

impl<'a> LayoutsSum<'a> {
    /// `together`: share of the time in which the regions are on their own.
    fn of(empty: impl Fn() -> Tally<'a>, layouts: &[LayoutCounts<'_>], together: f64, processes: u32) -> Self {
        let mut sum = Self { tally: empty(), own_s: [0.0; 2] };
        for counts in layouts {
            if together <= 0.0 {
                add_counts(&mut sum.tally, counts);
                continue;
            }
            let mut own = empty();
            add_counts(&mut own, counts);
            for (own_s, side) in sum.own_s.iter_mut().zip([Side::Reads, Side::AwaitedWrites]) {
                let mut network = Network::new(sum.tally.servers());
                network.add_tally(&own, side, together);
                *own_s += network.requests() / network.throughput(processes, 0.0);
            }
            sum.tally.merge(&own);
        }
        sum
    }

    fn merge(mut self, other: Self) -> Self {
        self.tally.merge(&other.tally);
        self.own_s.iter_mut().zip(other.own_s).for_each(|(own_s, other_s)| *own_s += other_s);
        self
    }
}

fn add_counts(tally: &mut Tally<'_>, counts: &LayoutCounts<'_>) {
    for of_size in counts.served.chunk_by(|(one, _), (other, _)| one.request_bytes == other.request_bytes) {
        let mut by_kind = [0.0; KINDS];
        for (class, count) in of_size {
            by_kind[queueing::kind(class.kind, class.order)] += count;
        }
        tally.add(counts.layout, of_size[0].0.request_bytes, by_kind);
    }
}

impl WindowSum<'_> {
    /// For every file and server, what the disk sees of order: the streams of all files that are accessed in the same slices meet there.
    fn streams(&self, servers: usize) -> Vec<Vec<Streaming>> {
        let presences: Vec<Vec<Presence>> = self.files.iter().map(|file| file.presence(servers)).collect();
        let processes_of = self.processes_of_files();
        let meeting = |file: &FileSum<'_>, server: usize| {
            let (mut processes, mut present, mut touching) = (0.0, 0.0, 0.0);
            for ((other, presence), of_other) in self.files.iter().zip(&presences).zip(&processes_of) {
                let shared = f64::from((file.slices.0 & other.slices.0).count_ones())
                    / f64::from(file.slices.0.count_ones().max(1));
                processes += of_other * shared;
                present += of_other * shared * presence[server].lies;
                touching += of_other * shared * presence[server].touched;
            }
            let of_process = |sum: f64| if processes > 0.0 { sum / processes } else { 0.0 };
            Streaming::of(file.company, processes.round() as u32, of_process(present), of_process(touching))
        };
        self.files.iter().map(|file| (0..servers).map(|server| meeting(file, server)).collect()).collect()
    }

    /// Of every file: all processes of the window by the file's share of the requests, as far as its regions' processes allow. Where each process
    /// goes through a part of its own, no region knows of the others.
    fn processes_of_files(&self) -> Vec<f64> {
        let requests = |file: &FileSum<'_>| -> f64 {
            file.counts.iter().flat_map(|counts| &counts.traced).map(|(_, count)| *count as f64).sum()
        };
        let all: f64 = self.files.iter().map(requests).sum();
        let of_file = |file: &FileSum<'_>| {
            let share = f64::from(self.processes) * requests(file) / f64::max(all, 1.0);
            share.clamp(f64::from(*file.processes.start()), f64::from(*file.processes.end()))
        };
        self.files.iter().map(of_file).collect()
    }

    /// Reads and writes; adds the seconds of each server's device to `load_s`.
    fn directions(&self, profile: &Profile, load_s: &mut [f64]) -> [DirectionSum; 2] {
        // Marchers beside others leave no server to wait for them.
        let same_region = |file: &FileSum<'_>| match marching_share(file.company, *file.processes.end()) {
            Some(_) => 0.0,
            None => file.company.same_region.clamp(0.0, 1.0),
        };
        let [reads, mut writes] = self.mixes(profile, same_region, load_s);
        writes.sum.time_s += self.idle_s();
        let (reads, writes) = rayon::join(|| reads.finish(self.processes), || writes.finish(self.processes));
        [reads, writes]
    }

    /// Seconds in which the processes write and nothing is written back yet.
    fn idle_s(&self) -> f64 {
        let of_all =
            |file: &FileSum<'_>| (f64::from(*file.processes.end()) / f64::from(self.processes.max(1))).min(1.0);
        self.files.iter().map(|file| file.idle_s * of_all(file)).sum()
    }

    /// The mixes of reads and of writes; `together` says of a file for which share of the time its regions are on their own, which is in the time of
    /// the mixes already. Adds the seconds of each server's device to `load_s`.
    fn mixes(&self, profile: &Profile, together: impl Fn(&FileSum<'_>) -> f64, load_s: &mut [f64]) -> [Mix; 2] {
        let servers = profile.servers.len();
        let streams = self.streams(servers);
        let mut mixes = [Direction::Read, Direction::Write].map(|direction| Mix::new(direction, servers));
        for (file, streams) in self.files.iter().zip(&streams) {
            for counted in file.counts.iter().flat_map(|counts| &counts.traced) {
                mixes[usize::from(counted.0.direction() == Direction::Write)].count(counted);
            }
            let together = together(file);
            let empty =
                || Tally::new(profile, streams, file.region_bytes).in_runs_of(file.run_bytes.unwrap_or(u64::MAX));
            let per_tally = file.counts.len().div_ceil(TALLIES).max(LAYOUTS_PER_TALLY);
            let sums: Vec<LayoutsSum<'_>> = file
                .counts
                .par_chunks(per_tally)
                .map(|layouts| LayoutsSum::of(empty, layouts, together, self.processes))
                .collect();
            let Some(sum) = sums.into_iter().reduce(LayoutsSum::merge) else { continue };
            for (mix, own_s) in mixes.iter_mut().zip(sum.own_s) {
                mix.add(&sum.tally, together, own_s);
                let leaving = file.leaving(profile, mix.direction);
                mix.in_turn += (1.0 - together) * leaving.in_turn;
                mix.drawn.requests += (1.0 - together) * leaving.drawn.requests;
                mix.drawn.stays += (1.0 - together) * leaving.drawn.stays;
            }
            sum.tally.add_load(load_s);
        }
        mixes
    }
}
