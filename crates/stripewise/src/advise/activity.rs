//! What a run did, as far as findings need it: from Darshan's counters, or from the requests of a trace.

use serde::Serialize;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use stripewise_layout::Direction;
use stripewise_trace::darshan::{BINS, DarshanLog, Interface, LevelCounters, bin_of};

/// Requests of one direction, as the servers see them.
#[derive(Clone, Debug, Default)]
pub(super) struct Requests {
    pub(super) count: u64,
    pub(super) bytes: u64,
    pub(super) bins: [u64; BINS],
    /// Of requests whose order is known.
    pub(super) forward: u64,
    pub(super) ordered: u64,
}

/// A file that matters.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct BusyFile {
    /// As the program named it.
    pub path: String,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Reads and writes.
    pub requests: u64,
    /// Processes that opened it.
    pub processes: u32,
    /// Seconds in calls on it, all processes added up; `None` where the trace does not say it.
    pub time_s: Option<f64>,
    /// Kind of the file system that held it, if the log says it.
    pub file_system: Option<String>,
}

impl BusyFile {
    /// What another log has of the same file.
    fn add(&mut self, other: Self) {
        self.read_bytes = self.read_bytes.saturating_add(other.read_bytes);
        self.write_bytes = self.write_bytes.saturating_add(other.write_bytes);
        self.requests = self.requests.saturating_add(other.requests);
        self.processes = self.processes.saturating_add(other.processes);
        // Of one log alone it would read as the time of all.
        self.time_s = self.time_s.zip(other.time_s).map(|(one, two)| one + two);
        self.file_system = self.file_system.take().or(other.file_system);
    }

    pub(super) fn bytes(&self) -> u64 {
        self.read_bytes.saturating_add(self.write_bytes)
    }
}

/// What a run, or several together, did.
#[derive(Clone, Debug, Default)]
pub(super) struct Activity {
    pub(super) run_s: f64,
    pub(super) processes: u32,
    pub(super) read: Requests,
    pub(super) write: Requests,
    /// Seconds of reads and writes, and of metadata calls, all processes added up.
    pub(super) data_s: f64,
    pub(super) metadata_s: f64,
    pub(super) opens: u64,
    pub(super) syncs: u64,
    pub(super) not_aligned: u64,
    pub(super) alignment: u64,
    /// Requests of which it is known whether they are aligned.
    pub(super) alignable: u64,
    /// Of the process that spends most time in I/O: all of it, what of it are reads and writes, and its bytes.
    pub(super) busiest_s: f64,
    pub(super) busiest_data_s: f64,
    pub(super) busiest_bytes: f64,
    /// Seconds that no process spends more of in reads and writes.
    pub(super) most_data_s: f64,
    pub(super) mean_s: f64,
    pub(super) mean_bytes: f64,
    /// Calls of MPI-IO on files that several processes opened.
    pub(super) collective: u64,
    pub(super) independent: u64,
    /// Requests and bytes of MPI-IO, and of POSIX on the same files.
    pub(super) mpi: (u64, u64),
    pub(super) below_mpi: (u64, u64),
    /// Requests and bytes through streams.
    pub(super) streams: (u64, u64),
    /// All that are known by name, until those to be listed are left; those with the most bytes first.
    pub(super) files: Vec<BusyFile>,
    /// With those that a log has in its sums only.
    pub(super) file_count: u64,
    /// Bytes read and written in equal slices of the run.
    pub(super) timeline: Vec<[f64; 2]>,
}

/// Requests and bytes of two sums.
pub(super) fn both(one: (u64, u64), two: (u64, u64)) -> (u64, u64) {
    (one.0.saturating_add(two.0), one.1.saturating_add(two.1))
}

/// Files by path, each once, those with the most bytes first.
fn joined(files: impl Iterator<Item = BusyFile>) -> Vec<BusyFile> {
    let mut known: HashMap<String, usize> = HashMap::new();
    let mut joined: Vec<BusyFile> = Vec::new();
    for file in files {
        match known.entry(file.path.clone()) {
            Entry::Occupied(place) => joined[*place.get()].add(file),
            Entry::Vacant(place) => {
                place.insert(joined.len());
                joined.push(file);
            }
        }
    }
    joined.sort_by_key(|file| Reverse(file.bytes()));
    joined
}

/// A time line of a run in as many slices of a longer one that began with it.
fn spread_over(timeline: &[[f64; 2]], run_s: f64, longest_s: f64) -> Vec<[f64; 2]> {
    let is_shorter = run_s < longest_s;
    if !is_shorter || timeline.is_empty() {
        return timeline.to_vec();
    }
    let share = run_s.max(0.0) / longest_s;
    let mut spread = vec![[0.0; 2]; timeline.len()];
    for (slice, [read, write]) in timeline.iter().enumerate() {
        let (from, to) = (slice as f64 * share, (slice + 1) as f64 * share);
        // A slice of a shorter run is no longer than one of the longer: it lies in one or two.
        let first = (from as usize).min(spread.len() - 1);
        let next = (first + 1) as f64;
        let beyond = if to > next { (to - next) / (to - from) } else { 0.0 };
        for (place, part) in [(first, 1.0 - beyond), (first + 1, beyond)].into_iter().filter(|(_, part)| *part > 0.0) {
            let place = place.min(spread.len() - 1);
            spread[place] = [spread[place][0] + read * part, spread[place][1] + write * part];
        }
    }
    spread
}

impl Requests {
    fn add_level(&mut self, level: &LevelCounters, direction: Direction) {
        let found = level.direction(direction);
        self.count = self.count.saturating_add(found.requests);
        self.bytes = self.bytes.saturating_add(found.bytes);
        self.bins.iter_mut().zip(found.bins).for_each(|(sum, count)| *sum = sum.saturating_add(count));
        if found.knows_order {
            // The first request of a rank counts as forward where it does not begin at 0.
            self.forward = self.forward.saturating_add(found.sequential.min(found.ordered));
            self.ordered = self.ordered.saturating_add(found.ordered);
        }
    }

    fn merge(&mut self, other: &Self) {
        self.count = self.count.saturating_add(other.count);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.bins.iter_mut().zip(other.bins).for_each(|(sum, count)| *sum = sum.saturating_add(count));
        self.forward = self.forward.saturating_add(other.forward);
        self.ordered = self.ordered.saturating_add(other.ordered);
    }

    /// `is_forward`: in its file; `None` where that is not known.
    pub(super) fn add(&mut self, bytes: u64, is_forward: Option<bool>) {
        self.count += 1;
        self.bytes = self.bytes.saturating_add(bytes);
        self.bins[bin_of(bytes)] += 1;
        self.forward += u64::from(is_forward == Some(true));
        self.ordered += u64::from(is_forward.is_some());
    }
}

impl Activity {
    /// Several logs of one program, which begin together: what ran side by side is added up.
    pub(super) fn of_all(mut logs: Vec<Self>) -> Self {
        let longest_s = logs.iter().map(|log| log.run_s).fold(0.0, f64::max);
        logs.iter_mut().for_each(|log| log.timeline = spread_over(&log.timeline, log.run_s, longest_s));
        logs.into_iter().reduce(Self::merge).unwrap_or_default()
    }

    /// Of time lines of equal length.
    fn merge(mut self, other: Self) -> Self {
        self.run_s = self.run_s.max(other.run_s);
        let (here, there) = (f64::from(self.processes), f64::from(other.processes));
        let mean = |one: f64, two: f64| (one * here + two * there) / (here + there).max(1.0);
        self.mean_s = mean(self.mean_s, other.mean_s);
        self.mean_bytes = mean(self.mean_bytes, other.mean_bytes);
        if other.busiest_s > self.busiest_s {
            self.busiest_s = other.busiest_s;
            (self.busiest_data_s, self.busiest_bytes) = (other.busiest_data_s, other.busiest_bytes);
        }
        self.most_data_s = self.most_data_s.max(other.most_data_s);
        self.processes = self.processes.saturating_add(other.processes);
        self.read.merge(&other.read);
        self.write.merge(&other.write);
        self.data_s += other.data_s;
        self.metadata_s += other.metadata_s;
        self.opens += other.opens;
        self.syncs += other.syncs;
        self.not_aligned += other.not_aligned;
        self.alignable += other.alignable;
        self.alignment = self.alignment.max(other.alignment);
        self.collective += other.collective;
        self.independent += other.independent;
        self.mpi = both(self.mpi, other.mpi);
        self.below_mpi = both(self.below_mpi, other.below_mpi);
        self.streams = both(self.streams, other.streams);
        let listed = self.files.len() + other.files.len();
        self.files = joined(std::mem::take(&mut self.files).into_iter().chain(other.files));
        // Files of both logs are counted once. Which those are of the ones in sums only, nobody knows.
        let shared = (listed - self.files.len()) as u64;
        self.file_count = (self.file_count + other.file_count).saturating_sub(shared);
        if self.timeline.len() == other.timeline.len() {
            for (sum, more) in self.timeline.iter_mut().zip(other.timeline) {
                (sum[0], sum[1]) = (sum[0] + more[0], sum[1] + more[1]);
            }
        }
        self
    }

    /// Of a Darshan log's counters.
    pub(super) fn of_darshan(log: &DarshanLog) -> Self {
        let (near_servers, busiest, mean) = (&log.near_servers, log.shares.busiest(), log.shares.mean());
        let mut activity = Self {
            run_s: log.job.run_s,
            processes: log.processes(),
            data_s: near_servers.data_s(),
            metadata_s: near_servers.metadata_s,
            opens: near_servers.opens,
            syncs: near_servers.syncs,
            busiest_s: busiest.time_s,
            busiest_data_s: busiest.data_s,
            busiest_bytes: busiest.bytes,
            most_data_s: log.shares.most_data_s(),
            mean_s: mean.time_s,
            mean_bytes: mean.bytes,
            timeline: log.timeline.clone(),
            file_count: log.files.iter().filter(|file| file.data_level().is_some()).count() as u64 + log.left_out,
            ..Self::default()
        };
        activity.read.add_level(near_servers, Direction::Read);
        activity.write.add_level(near_servers, Direction::Write);
        if let Some(posix) = log.totals.get(&Interface::Posix) {
            activity.not_aligned = posix.not_aligned;
            activity.alignable = posix.requests();
            activity.alignment = posix.alignment;
        }
        if let Some(streams) = log.totals.get(&Interface::Stdio) {
            activity.streams = (streams.requests(), streams.bytes());
        }
        for file in &log.files {
            if let Some(mpi) = file.level(Interface::MpiIo) {
                if mpi.ranks > 1 {
                    activity.collective = activity.collective.saturating_add(file.mpi_calls.collective);
                    activity.independent = activity.independent.saturating_add(file.mpi_calls.independent);
                }
                activity.mpi = both(activity.mpi, (mpi.requests(), mpi.bytes()));
                let below = file.level(Interface::Posix).map_or((0, 0), |posix| (posix.requests(), posix.bytes()));
                activity.below_mpi = both(activity.below_mpi, below);
            }
        }
        let busy = log.files.iter().filter_map(|file| Some((file, file.data_level()?.1)));
        activity.files = busy
            .map(|(file, level)| BusyFile {
                path: file.path.clone(),
                read_bytes: level.read.bytes,
                write_bytes: level.write.bytes,
                requests: level.requests(),
                processes: level.ranks,
                time_s: Some(level.time_s()),
                file_system: log.file_system_of(&file.path).map(str::to_owned),
            })
            .collect();
        activity
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, read_bytes: u64) -> BusyFile {
        BusyFile {
            path: path.to_owned(),
            read_bytes,
            write_bytes: 0,
            requests: 1,
            processes: 4,
            time_s: Some(1.0),
            file_system: None,
        }
    }

    fn log(run_s: f64, timeline: &[[f64; 2]], files: &[BusyFile], left_out: u64) -> Activity {
        let file_count = files.len() as u64 + left_out;
        Activity { run_s, timeline: timeline.to_vec(), files: files.to_vec(), file_count, ..Activity::default() }
    }

    #[test]
    fn slices_of_a_shorter_run_lie_where_they_are_in_the_longest() {
        let even = [[8.0, 4.0]; 4];
        let merged = |logs: &[(f64, [[f64; 2]; 4])]| {
            Activity::of_all(logs.iter().map(|(run_s, timeline)| log(*run_s, timeline, &[], 0)).collect()).timeline
        };
        let nothing = (100.0, [[0.0; 2]; 4]);
        assert_eq!(merged(&[(50.0, even), nothing]), [[16.0, 8.0], [16.0, 8.0], [0.0; 2], [0.0; 2]]);
        assert_eq!(merged(&[nothing, (100.0, even)]), even);
        // Slices of 18.75 s in such of 25 s: the second one lies in two of them, a third in the first.
        let spread = merged(&[(75.0, even), nothing]).concat();
        let expected = [8.0 + 8.0 / 3.0, 4.0 + 4.0 / 3.0].repeat(3).into_iter().chain([0.0, 0.0]);
        assert!(spread.iter().zip(expected).all(|(found, wanted)| (found - wanted).abs() < 1e-9), "{spread:?}");
        // A run of no time is a moment, and the order of logs does not matter.
        assert_eq!(merged(&[(0.0, even), nothing])[0], [32.0, 16.0]);
        let three = [(10.0, even), (100.0, even), (50.0, even)];
        let reversed = [three[2], three[1], three[0]];
        let (one, other) = (merged(&three).concat(), merged(&reversed).concat());
        assert!(one.iter().zip(other).all(|(one, other)| (one - other).abs() < 1e-9), "{one:?}");
    }

    #[test]
    fn a_file_that_several_logs_have_is_one_file() {
        let first = log(1.0, &[], &[file("/a", 100), file("/shared", 60)], 3);
        let second = log(1.0, &[], &[file("/b", 90), file("/shared", 50)], 2);
        let merged = Activity::of_all(vec![first, second]);
        assert_eq!(merged.file_count, 8, "three by name, and those in sums only");
        let found: Vec<(&str, u64, u32)> =
            merged.files.iter().map(|file| (file.path.as_str(), file.read_bytes, file.processes)).collect();
        assert_eq!(found, [("/shared", 110, 8), ("/a", 100, 4), ("/b", 90, 4)]);
        assert_eq!((merged.files[0].requests, merged.files[0].time_s), (2, Some(2.0)));
    }
}
