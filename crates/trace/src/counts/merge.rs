//! Joins the counts of chunks into the accesses of files.

use super::chunk::{ChunkFile, CountedChunk, Regions};
use super::{CountOptions, classes};
use crate::access::{ClassIndex, Company, FileAccess, RegionAccess, Slices, WindowAccess};
use crate::trace::{FileIndex, NodeIndex, ProcessIndex, Trace};
use rayon::prelude::*;
use std::collections::{BTreeMap, HashMap};
use stripewise_layout::RegionIndex;

struct Part {
    process: ProcessIndex,
    node: NodeIndex,
    file: ChunkFile,
}

pub(super) fn merge(trace: &Trace, options: &CountOptions, chunks: Vec<CountedChunk>) -> Vec<FileAccess> {
    let mut by_file: BTreeMap<FileIndex, Vec<Part>> = BTreeMap::new();
    for chunk in chunks {
        let node = trace.process(chunk.process).node;
        for file in chunk.files {
            by_file.entry(file.file).or_default().push(Part { process: chunk.process, node, file });
        }
    }
    let regions = Regions::new(options.region_size.0);
    by_file.par_iter_mut().for_each(|(_, parts)| {
        decide_first_requests(parts, regions, options.forward_skip_bytes);
        // Processes of a node follow each other; the chunks of a process stay in order.
        parts.sort_by_key(|part| (part.node, part.process));
    });
    let all_windows = by_file.values().flatten().flat_map(|part| &part.file.windows);
    let windows = all_windows.map(|(number, _)| number + 1).max().unwrap_or(0);
    let merged: Vec<FileAccess> = by_file
        .into_par_iter()
        .map(|(file, parts)| merge_file(trace.file(file).path.clone(), options, &parts, windows))
        .collect();
    merged.into_iter().filter(|file| !file.classes.is_empty()).collect()
}

fn decide_first_requests(parts: &mut [Part], regions: Regions, forward_skip_bytes: u64) {
    let mut last: Option<(ProcessIndex, u64)> = None;
    for part in parts {
        let Some(first) = part.file.first else { continue };
        let before = last.filter(|(process, _)| *process == part.process);
        let is_random = before.is_none_or(|(_, end)| first.offset.wrapping_sub(end) > forward_skip_bytes);
        part.file.add(regions, &first, is_random);
        last = Some((part.process, part.file.last_end));
    }
}

fn merge_file(path: String, options: &CountOptions, parts: &[Part], windows: u32) -> FileAccess {
    let mut requests = BTreeMap::new();
    for part in parts {
        let mut of_class = vec![0u64; part.file.classes.len()];
        for (_, table) in &part.file.windows {
            table.for_each(|_, class, count| of_class[class as usize] += u64::from(count));
        }
        for (key, count) in part.file.classes.iter().zip(of_class) {
            *requests.entry(*key).or_insert(0) += count;
        }
    }
    let (classes, map) = classes::settle(&requests, usize::from(options.class_limit));
    let mut of_window: Vec<RegionRows> = (0..windows).map(|_| RegionRows::new(classes.len())).collect();
    for part in parts {
        let settled: Vec<ClassIndex> = part.file.classes.iter().map(|key| map[key]).collect();
        for (window, table) in &part.file.windows {
            let rows = &mut of_window[*window as usize];
            table.for_each(|region, class, count| {
                rows.add(region, settled[class as usize], u64::from(count), part.process, part.node);
            });
        }
    }
    let window_s = options.window_s;
    let windows = of_window.into_iter().enumerate().map(|(number, rows)| WindowAccess {
        start_s: number as f64 * window_s,
        end_s: (number + 1) as f64 * window_s,
        company: Company::default(),
        regions: rows.finish(),
    });
    FileAccess {
        path,
        size_bytes: parts.iter().map(|part| part.file.largest_end).max().unwrap_or(0),
        region_size: options.region_size,
        classes,
        windows: windows.collect(),
    }
}

/// The regions of one window, in order of appearance.
struct RegionRows {
    classes: usize,
    /// Region to row plus one, below the first limit by place.
    near: Vec<u32>,
    far: HashMap<u32, u32>,
    rows: Vec<Row>,
    counts: Vec<u64>,
}

struct Row {
    region: u32,
    last_process: Option<ProcessIndex>,
    last_node: Option<NodeIndex>,
    processes: u32,
    on_node: u32,
    on_node_most: u32,
}

const NEAR_LIMIT: u32 = 1 << 20;

impl RegionRows {
    fn new(classes: usize) -> Self {
        Self { classes, near: Vec::new(), far: HashMap::new(), rows: Vec::new(), counts: Vec::new() }
    }

    fn row(&mut self, region: u32) -> usize {
        let place = if region < NEAR_LIMIT {
            let index = region as usize;
            if self.near.len() <= index {
                self.near.resize((index + 1).next_power_of_two(), 0);
            }
            &mut self.near[index]
        } else {
            self.far.entry(region).or_insert(0)
        };
        if *place == 0 {
            self.rows.push(Row {
                region,
                last_process: None,
                last_node: None,
                processes: 0,
                on_node: 0,
                on_node_most: 0,
            });
            self.counts.resize(self.counts.len() + self.classes, 0);
            *place = self.rows.len() as u32;
        }
        *place as usize - 1
    }

    /// Parts come node by node and process by process, so a change of process or node is seen by looking at the last one.
    fn add(&mut self, region: u32, class: ClassIndex, count: u64, process: ProcessIndex, node: NodeIndex) {
        let index = self.row(region);
        self.counts[index * self.classes + usize::from(class.0)] += count;
        let row = &mut self.rows[index];
        if row.last_process != Some(process) {
            row.last_process = Some(process);
            row.processes += 1;
            if row.last_node != Some(node) {
                row.last_node = Some(node);
                row.on_node = 0;
            }
            row.on_node += 1;
            row.on_node_most = row.on_node_most.max(row.on_node);
        }
    }

    fn finish(self) -> Vec<RegionAccess> {
        let counts = self.counts.chunks_exact(self.classes.max(1));
        let mut regions: Vec<RegionAccess> = self
            .rows
            .iter()
            .zip(counts)
            .map(|(row, counts)| {
                let in_use = counts.iter().enumerate().filter(|(_, count)| **count > 0);
                RegionAccess {
                    region: RegionIndex(row.region),
                    counts: in_use.map(|(class, count)| (ClassIndex(class as u16), *count)).collect(),
                    processes: row.processes,
                    processes_per_node: row.on_node_most,
                    slices: Slices::ALL,
                }
            })
            .collect();
        regions.sort_by_key(|region| region.region);
        regions
    }
}
