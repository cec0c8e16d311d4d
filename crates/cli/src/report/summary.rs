//! What the report says of a trace: files with their heat, request sizes, who ran what when.

use super::heat::Heat;
use crate::figures::utc;
use std::collections::BTreeMap;
use stripewise_layout::{Direction, FileOffset, RegionGeometry};
use stripewise_trace::{FileIndex, NO_OFFSET, Operation, Trace};

/// A traced run in the report's terms.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct TraceSummary {
    pub(super) command: String,
    pub(super) host: String,
    pub(super) started: String,
    pub(super) duration_s: f64,
    pub(super) processes: usize,
    pub(super) mpi_size: u32,
    pub(super) nodes: usize,
    pub(super) records: u64,
    pub(super) warnings: Vec<String>,
    /// Files with reads or writes, those with the most bytes first.
    pub(super) files: Vec<FileSummary>,
}

/// One file of it.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct FileSummary {
    pub(super) path: String,
    /// The end of the farthest request.
    pub(super) size_bytes: u64,
    pub(super) heat: Heat,
    /// Bytes accessed in each region.
    pub(super) by_region: Vec<f64>,
    /// Requests and bytes by direction and request size.
    pub(super) sizes: BTreeMap<(Direction, u64), (u64, u64)>,
}

impl FileSummary {
    pub(super) fn new(path: &str, size_bytes: u64, duration_s: f64, region_bytes: u64) -> Self {
        let regions = RegionGeometry::new(region_bytes).count_for(size_bytes);
        Self {
            path: path.to_owned(),
            size_bytes,
            heat: Heat::new(path, size_bytes, duration_s),
            by_region: vec![0.0; regions as usize],
            sizes: BTreeMap::new(),
        }
    }

    pub(super) fn add(
        &mut self,
        direction: Direction,
        start_s: f64,
        offset: u64,
        bytes: u64,
        geometry: RegionGeometry,
    ) {
        self.heat.add(direction, start_s, offset, bytes);
        let (requests, total) = self.sizes.entry((direction, bytes)).or_default();
        *requests += 1;
        *total += bytes;
        for piece in geometry.pieces(FileOffset(offset), bytes) {
            if let Some(sum) = self.by_region.get_mut(piece.region.0 as usize) {
                *sum += piece.length as f64;
            }
        }
    }
}

impl TraceSummary {
    /// Reads every event twice: for the files' sizes, then for their cells. Failed calls and those without an offset do not count.
    pub(super) fn of(trace: &Trace, region_bytes: u64) -> Self {
        let geometry = RegionGeometry::new(region_bytes);
        let data = || {
            trace.events().filter_map(|event| {
                let file = event.file?;
                let direction = match event.operation() {
                    Operation::Read => Direction::Read,
                    Operation::Write => Direction::Write,
                    _ => return None,
                };
                let counts = event.errno == 0
                    && event.bytes > 0
                    && event.offset != NO_OFFSET
                    && trace.file(file).data_level() == Some(event.call.level());
                counts.then_some((file, direction, event))
            })
        };
        let mut ends: BTreeMap<FileIndex, u64> = BTreeMap::new();
        for (file, _, event) in data() {
            let end = ends.entry(file).or_default();
            *end = (*end).max(event.offset.0.saturating_add(event.bytes));
        }
        let duration_s = trace.duration().seconds();
        let mut files: BTreeMap<FileIndex, FileSummary> = ends
            .into_iter()
            .map(|(file, end)| (file, FileSummary::new(&trace.file(file).path, end, duration_s, region_bytes)))
            .collect();
        for (file, direction, event) in data() {
            if let Some(summary) = files.get_mut(&file) {
                summary.add(direction, event.start.seconds(), event.offset.0, event.bytes, geometry);
            }
        }
        let mut files: Vec<FileSummary> = files.into_values().collect();
        files.sort_by(|a, b| b.heat.total_bytes().total_cmp(&a.heat.total_bytes()));
        let manifest = trace.manifest.as_ref();
        Self {
            command: manifest.map_or_else(String::new, |manifest| manifest.command.join(" ")),
            host: manifest.map_or_else(|| trace.nodes.join(", "), |manifest| manifest.host.clone()),
            started: utc(trace.origin_unix_ns() / 1_000_000_000),
            duration_s,
            processes: trace.processes.len(),
            mpi_size: trace.mpi_size(),
            nodes: trace.nodes.len(),
            records: trace.event_count(),
            warnings: trace.warnings.iter().map(ToString::to_string).collect(),
            files,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_get_the_bytes_that_lie_in_them() {
        let mut file = FileSummary::new("/f", 250, 1.0, 100);
        file.add(Direction::Read, 0.0, 90, 120, RegionGeometry::new(100));
        assert_eq!(file.by_region, [10.0, 100.0, 10.0]);
        assert_eq!(file.sizes[&(Direction::Read, 120)], (1, 120));
    }
}
