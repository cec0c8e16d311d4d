//! What the report says of a trace: files with their heat, request sizes, who ran what when.

use super::date::utc;
use super::heat::{COLUMNS, Heat, ROWS};
use std::path::Path;
use stripewise_layout::{ByteCount, Direction, RegionGeometry};
use stripewise_trace::data_files::is_data;
use stripewise_trace::statistics::{AccessPattern, SizeCount};
use stripewise_trace::{CountError, CountOptions, FileAccess, FileStatistics, Trace, count, heat_map, statistics};

/// Files whose pictures are shown; the others are counted.
pub(super) const FILES_SHOWN: usize = 3;
/// A file with less than one part in this many of the largest one's bytes is not worth a picture.
pub(super) const MIN_SHARE: u64 = 50;
/// Columns of the finest map that is cut.
const MAX_COLUMNS: usize = 20_000;
/// Request sizes that are told for each file.
const SIZES: usize = 8;

/// A traced run in the report's terms.
#[derive(Clone, PartialEq, Debug)]
pub struct TraceSummary {
    /// The command that was traced, with its arguments; empty where the trace does not tell.
    pub command: String,
    pub(super) host: String,
    pub(super) started: String,
    pub(super) duration_s: f64,
    pub(super) processes: usize,
    pub(super) mpi_size: u32,
    pub(super) nodes: usize,
    pub(super) records: u64,
    /// What was wrong with the trace.
    pub warnings: Vec<String>,
    /// Files of data with reads or writes, those with the most bytes first.
    pub(super) files: Vec<FileSummary>,
}

/// One file of it.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct FileSummary {
    pub(super) path: String,
    /// The end of the farthest request.
    pub(super) size_bytes: u64,
    pub(super) read_requests: u64,
    pub(super) write_requests: u64,
    /// Bytes of all requests.
    pub(super) moved_bytes: u64,
    /// Only of the first files.
    pub(super) heat: Option<Heat>,
    /// Bytes accessed in each region.
    pub(super) by_region: Vec<f64>,
    /// The most frequent request sizes.
    pub(super) sizes: Vec<SizeCount>,
    /// Of reads and of writes, each with its processes, most first.
    pub(super) patterns: [Vec<(AccessPattern, u32)>; 2],
}

impl TraceSummary {
    /// The summary of `trace`, its heat by regions of `region_size`.
    ///
    /// # Errors
    /// When the trace's requests cannot be counted.
    pub fn of(trace: &Trace, region_size: ByteCount) -> Result<Self, CountError> {
        // One window: the heat of a region is that of the whole run.
        let whole_s = trace.duration().seconds().max(1.0) * 2.0;
        let options = CountOptions { window_s: whole_s, region_size, ..CountOptions::default() };
        let found = statistics(trace, &options, SIZES)?;
        let counted = count(trace, &options)?;
        let is_of_program = |file: &&FileStatistics| file.requests() > 0 && is_data(Path::new(&file.path));
        let with_data: Vec<&FileStatistics> = found.files.iter().filter(is_of_program).collect();
        let moved = |file: &FileStatistics| file.read_bytes.saturating_add(file.write_bytes);
        let least = with_data.first().map_or(0, |file| moved(file) / MIN_SHARE);
        let files = with_data.into_iter().enumerate().map(|(number, file)| {
            let accesses = counted.iter().find(|accesses| accesses.path == file.path);
            let is_shown = number < FILES_SHOWN && moved(file) >= least;
            file_summary(file, accesses, is_shown.then(|| heat_of(trace, file)))
        });
        let files = files.collect();
        let manifest = trace.manifest.as_ref();
        Ok(Self {
            command: manifest.map_or_else(String::new, |manifest| manifest.command.join(" ")),
            host: manifest.map_or_else(|| trace.nodes.join(", "), |manifest| manifest.host.clone()),
            started: utc(trace.origin_unix_ns()),
            duration_s: found.duration_s,
            processes: trace.processes.len(),
            mpi_size: trace.mpi_size(),
            nodes: trace.nodes.len(),
            records: found.events,
            warnings: trace.warnings.iter().map(ToString::to_string).collect(),
            files,
        })
    }
}

impl TraceSummary {
    /// What the pictures of the first files show.
    pub fn heats(&self) -> impl Iterator<Item = &Heat> {
        self.files.iter().filter_map(|file| file.heat.as_ref())
    }
}

/// The heat of the time in which the file was accessed: programs start slowly and end late.
fn heat_of(trace: &Trace, file: &FileStatistics) -> Heat {
    let whole_s = trace.duration().seconds();
    let span_s = (file.last.seconds() - file.first.seconds()).max(1e-9);
    // As many columns over the whole run as give enough within the span.
    let columns = (COLUMNS as f64 * whole_s / span_s).ceil().clamp(COLUMNS as f64, MAX_COLUMNS as f64) as usize;
    let map = heat_map(trace, file.file, columns, ROWS);
    Heat::new(&file.path, &map, file.first.seconds(), file.last.seconds())
}

fn file_summary(file: &FileStatistics, accesses: Option<&FileAccess>, heat: Option<Heat>) -> FileSummary {
    FileSummary {
        path: file.path.clone(),
        size_bytes: accesses.map_or(0, |accesses| accesses.size_bytes),
        read_requests: file.read_requests,
        write_requests: file.write_requests,
        moved_bytes: file.read_bytes.saturating_add(file.write_bytes),
        heat,
        by_region: accesses.map_or_else(Vec::new, bytes_by_region),
        sizes: file.sizes.clone(),
        patterns: [Direction::Read, Direction::Write].map(|direction| file.patterns(direction).to_vec()),
    }
}

fn bytes_by_region(accesses: &FileAccess) -> Vec<f64> {
    let regions = RegionGeometry::new(accesses.region_size.0).count_for(accesses.size_bytes);
    let mut bytes = vec![0.0; regions as usize];
    for region in accesses.windows.iter().flat_map(|window| &window.regions) {
        if let Some(sum) = bytes.get_mut(region.region.0 as usize) {
            for (class, requests) in &region.counts {
                *sum += accesses.class(*class).request_bytes as f64 * *requests as f64;
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use stripewise_layout::{Order, RegionIndex};
    use stripewise_trace::{
        AccessClass, ClassIndex, Company, RegionAccess, Slices, Synchronizations, WindowAccess, WindowProcesses,
    };

    #[test]
    fn regions_get_the_bytes_of_all_classes_and_windows() {
        let class = |request_bytes| AccessClass { kind: Direction::Read.into(), request_bytes, order: Order::Random };
        let region = |region, counts: &[(u16, u64)]| RegionAccess {
            region: RegionIndex(region),
            counts: counts.iter().map(|(class, count)| (ClassIndex(*class), *count)).collect(),
            processes: 1,
            processes_per_node: 1,
            slices: Slices::ALL,
        };
        let window = |regions| WindowAccess {
            start_s: 0.0,
            end_s: 1.0,
            company: Company::default(),
            processes: WindowProcesses::default(),
            synchronizations: Synchronizations::default(),
            regions,
        };
        let accesses = FileAccess {
            path: "/f".into(),
            size_bytes: 250,
            region_size: ByteCount(100),
            classes: vec![class(10), class(30)],
            windows: vec![window(vec![region(0, &[(0, 2)]), region(2, &[(1, 1)])]), window(vec![region(0, &[(1, 1)])])],
        };
        assert_eq!(bytes_by_region(&accesses), [50.0, 0.0, 30.0]);
    }
}
