//! Programs that run at the same time: their accesses added up.
//!
//! All are taken to start together, so window 0 of one is window 0 of the others, and slices are shares of the longest run that reads or writes. A file
//! that several of them access has the sum of their requests and processes.

use crate::access::{
    AccessClass, ClassIndex, Company, FileAccess, ProcessCount, RegionAccess, Slices, Synchronizations, WindowAccess,
    WindowProcesses,
};
use crate::counts::classes::{ClassKey, Classes};
use crate::counts::{CountError, CountOptions, Counted, count_lasting};
use crate::trace::{Trace, TraceTime};
use std::collections::BTreeMap;
use stripewise_layout::Order;

/// Why accesses cannot be added up.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum MergeError {
    /// No parts were given.
    #[error("nothing to merge: give at least one file's accesses")]
    Nothing,
    /// Parts are of different files.
    #[error("{path} and {other} are different files")]
    Files {
        /// Path of the first part that differs.
        path: String,
        /// Path of the first part.
        other: String,
    },
    /// Parts were counted in regions of different sizes.
    #[error("{path}: counted in regions of {found} and of {expected} bytes; count all with the same region size")]
    Regions {
        /// Path of the file.
        path: String,
        /// Region size in bytes of the first part that differs.
        found: u64,
        /// Region size in bytes of the first part.
        expected: u64,
    },
    /// Parts were counted with different windows.
    #[error(
        "{path}: window {window} lies from {found} s on in one count and from {expected} s on in another; count all with the same windows"
    )]
    Windows {
        /// Path of the file.
        path: String,
        /// The first window that differs, from 0.
        window: usize,
        /// Its start in one part, in seconds.
        found: f64,
        /// Its start in the part with the most windows, in seconds.
        expected: f64,
    },
}

/// Counts traces of programs that run at the same time, from their starts on: the files of all, in order of path, all with the same
/// windows, and those that several access added up.
///
/// # Errors
/// When an option makes no sense.
pub fn count_together(traces: &[Trace], options: &CountOptions) -> Result<Counted, CountError> {
    // A program that only opens files has no part in what is accessed when.
    let has_data = |trace: &&Trace| trace.files.iter().any(|file| file.data_level().is_some());
    let longest = traces.iter().filter(has_data).map(Trace::duration).max().unwrap_or(TraceTime(0));
    let mut impossible = 0;
    let mut by_path: BTreeMap<String, Vec<FileAccess>> = BTreeMap::new();
    // By window: programs that run at the same time have processes of their own.
    let mut of_run: Vec<ProcessCount> = Vec::new();
    for trace in traces {
        let counted = count_lasting(trace, options, longest)?;
        impossible += counted.impossible;
        let of_trace = counted.files.first().map_or(&[][..], |file| &file.windows);
        of_run.resize(of_run.len().max(of_trace.len()), ProcessCount::default());
        of_run.iter_mut().zip(of_trace).for_each(|(sum, window)| *sum = sum.with(window.processes.run));
        for file in counted.files {
            by_path.entry(file.path.clone()).or_default().push(file);
        }
    }
    let windows = by_path.values().flatten().map(|file| file.windows.len()).max().unwrap_or(0);
    let mut files = Vec::with_capacity(by_path.len());
    for parts in by_path.into_values() {
        // Cannot fail: the parts are of one file and were counted with the same options.
        let Ok(mut file) = FileAccess::merge(parts, options.class_limit) else { continue };
        for number in file.windows.len()..windows {
            file.windows.push(WindowAccess {
                start_s: number as f64 * options.window_s,
                end_s: (number + 1) as f64 * options.window_s,
                company: Company::default(),
                processes: WindowProcesses::default(),
                synchronizations: Synchronizations::default(),
                regions: Vec::new(),
            });
        }
        for (window, run) in file.windows.iter_mut().zip(&of_run) {
            window.processes.run = *run;
        }
        files.push(file);
    }
    Ok(Counted { files, impossible })
}

impl ProcessCount {
    /// With another program's processes: batch systems give a node to one program at a time.
    fn with(self, other: Self) -> Self {
        Self { processes: self.processes.saturating_add(other.processes), per_node: self.per_node.max(other.per_node) }
    }
}

impl FileAccess {
    /// The accesses that several programs make to one file at the same time: requests and processes added, slices joined, the company of
    /// a window averaged by its requests, with at most `class_limit` classes (at least 4). Processes per node are the most of any
    /// program: batch systems give a node to one program at a time. Parts with fewer windows end earlier.
    ///
    /// # Errors
    /// When the parts are of different files, or were counted with different regions or windows.
    pub fn merge(mut parts: Vec<FileAccess>, class_limit: u16) -> Result<FileAccess, MergeError> {
        let Some(first) = parts.first() else { return Err(MergeError::Nothing) };
        let (path, region_size) = (first.path.clone(), first.region_size);
        if parts.len() == 1 {
            return Ok(parts.swap_remove(0));
        }
        check(&parts)?;
        let mut all = Classes::default();
        let mut requests = Vec::new();
        let mut maps = Vec::new();
        for part in &parts {
            let of_class = requests_by_class(part);
            let numbers: Vec<u32> = part.classes.iter().map(|class| all.number(key_of(class))).collect();
            requests.resize(all.len(), 0u64);
            numbers.iter().zip(of_class).for_each(|(number, count)| requests[*number as usize] += count);
            maps.push(numbers);
        }
        let (classes, settled) = all.settle(&requests, usize::from(class_limit.max(4)));
        let windows = parts.iter().map(|part| part.windows.len()).max().unwrap_or(0);
        let windows = (0..windows).map(|number| {
            let of_parts = parts.iter().zip(&maps);
            let present = of_parts.filter_map(|(part, map)| Some((part.windows.get(number)?, map))).collect::<Vec<_>>();
            merge_window(&present, &settled)
        });
        let windows = windows.collect();
        let size_bytes = parts.iter().map(|part| part.size_bytes).max().unwrap_or(0);
        Ok(FileAccess { path, size_bytes, region_size, classes, windows })
    }
}

fn key_of(class: &AccessClass) -> ClassKey {
    ClassKey::new(class.kind, class.order == Order::Random, class.request_bytes)
}

fn check(parts: &[FileAccess]) -> Result<(), MergeError> {
    let first = &parts[0];
    let longest = parts.iter().max_by_key(|part| part.windows.len()).unwrap_or(first);
    for part in parts {
        let path = part.path.clone();
        if path != first.path {
            return Err(MergeError::Files { path, other: first.path.clone() });
        }
        if part.region_size != first.region_size {
            return Err(MergeError::Regions { path, found: part.region_size.0, expected: first.region_size.0 });
        }
        for (window, (found, expected)) in part.windows.iter().zip(&longest.windows).enumerate() {
            if (found.start_s, found.end_s) != (expected.start_s, expected.end_s) {
                return Err(MergeError::Windows { path, window, found: found.start_s, expected: expected.start_s });
            }
        }
    }
    Ok(())
}

fn requests_by_class(part: &FileAccess) -> Vec<u64> {
    let mut requests = vec![0; part.classes.len()];
    for (class, count) in part.windows.iter().flat_map(|window| &window.regions).flat_map(|region| &region.counts) {
        requests[usize::from(class.0)] += count;
    }
    requests
}

/// One window of several parts, with the map from each part's classes to common numbers; `settled` leads from those to the classes.
fn merge_window(parts: &[(&WindowAccess, &Vec<u32>)], settled: &[ClassIndex]) -> WindowAccess {
    let mut regions: BTreeMap<_, (BTreeMap<ClassIndex, u64>, u32, u32, u64)> = BTreeMap::new();
    let (mut requests, mut same_region, mut adjoining) = (0u64, 0.0, 0.0);
    // A mean of distances is none that any part has seen: those of the part with most requests count.
    let mut distances = (0, 0, 0);
    let mut processes = WindowProcesses::default();
    let mut synchronizations = Synchronizations::default();
    for (window, map) in parts {
        let mut of_window = 0;
        for region in &window.regions {
            let (counts, processes, per_node, slices) = regions.entry(region.region).or_default();
            for (class, count) in &region.counts {
                *counts.entry(settled[map[usize::from(class.0)] as usize]).or_insert(0) += count;
                of_window += count;
            }
            *processes = processes.saturating_add(region.processes);
            *per_node = (*per_node).max(region.processes_per_node);
            *slices |= region.slices.0;
        }
        processes.file = processes.file.with(window.processes.file);
        processes.run = processes.run.with(window.processes.run);
        requests += of_window;
        same_region += window.company.same_region * of_window as f64;
        adjoining += window.company.adjoining * of_window as f64;
        synchronizations = synchronizations.with(window.synchronizations);
        distances = distances.max((of_window, window.company.skip_bytes, window.company.apart_bytes));
    }
    let share = |sum: f64| if requests == 0 { 0.0 } else { sum / requests as f64 };
    let regions = regions.into_iter().map(|(region, (counts, processes, processes_per_node, slices))| RegionAccess {
        region,
        counts: counts.into_iter().collect(),
        processes,
        processes_per_node,
        slices: Slices(slices),
    });
    WindowAccess {
        start_s: parts[0].0.start_s,
        end_s: parts[0].0.end_s,
        company: Company {
            same_region: share(same_region),
            adjoining: share(adjoining),
            skip_bytes: distances.1,
            apart_bytes: distances.2,
        },
        processes,
        synchronizations,
        regions: regions.collect(),
    }
}

#[cfg(test)]
mod tests;
