//! Joins the counts of chunks into the accesses of files, batch after batch.

use super::CountOptions;
use super::chunk::{ChunkFile, CountedChunk, FirstRequest, Held, Regions};
use super::classes::{Classes, Limits};
use super::instants::Instants;
use super::rows::{Processes, Rows};
use super::synchronized::Synchronized;
use crate::access::{Company, FileAccess, WindowAccess, WindowProcesses};
use crate::trace::{FileIndex, NodeIndex, ProcessIndex, Trace, TraceTime};
use rayon::prelude::*;
use std::collections::BTreeMap;

/// A request counts as in company for so many typical gaps between its process's requests on the file, or as long as it is in flight.
const GAPS_HELD: u64 = 8;

/// All files, as far as batches have been taken up.
pub(super) struct Joined<'a> {
    options: &'a CountOptions,
    instants: Instants,
    limits: Limits,
    files: BTreeMap<FileIndex, JoinedFile>,
    /// By window, of all files.
    processes: BTreeMap<u32, Processes>,
    pub(super) impossible: u64,
}

struct JoinedFile {
    largest_end: u64,
    classes: Classes,
    /// By class number.
    requests: Vec<u64>,
    windows: BTreeMap<u32, Rows>,
    process: Option<ProcessOnFile>,
    /// Part, offset and bytes of the requests that processes had at instants.
    met: Vec<(u32, u64, u64)>,
    synced: Synchronized,
}

/// The process whose chunks are being taken up.
struct ProcessOnFile {
    process: ProcessIndex,
    requests: u64,
    first_start: TraceTime,
    last_end: u64,
    last: Option<Held>,
    last_part: u32,
    held: Vec<Held>,
}

impl<'a> Joined<'a> {
    pub(super) fn new(options: &'a CountOptions, instants: Instants, limits: Limits) -> Self {
        Self { options, instants, limits, files: BTreeMap::new(), processes: BTreeMap::new(), impossible: 0 }
    }

    /// Takes up chunks, which must come in order of node, process and slots.
    pub(super) fn absorb(&mut self, trace: &Trace, chunks: Vec<CountedChunk>) {
        let mut parts: BTreeMap<FileIndex, Vec<(ProcessIndex, NodeIndex, ChunkFile)>> = BTreeMap::new();
        for chunk in chunks {
            self.impossible += chunk.impossible;
            let node = trace.process(chunk.process).node;
            for file in chunk.files {
                // The first request is not in the tables yet.
                let first = file.first.map(|first| first.place.window);
                for window in file.windows.iter().map(|(window, _)| *window).chain(first) {
                    self.processes.entry(window).or_default().see(chunk.process, node);
                }
                parts.entry(file.file).or_default().push((chunk.process, node, file));
            }
        }
        for file in parts.keys() {
            self.files.entry(*file).or_insert_with(JoinedFile::new);
        }
        let (options, instants, limits) = (self.options, self.instants, self.limits);
        // Both maps are in order of file.
        let mut joined: Vec<_> = self.files.iter_mut().filter(|(file, _)| parts.contains_key(file)).collect();
        joined.par_iter_mut().zip(parts.into_par_iter().collect::<Vec<_>>()).for_each(|((_, joined), (_, parts))| {
            for (process, node, part) in parts {
                joined.absorb(options, &instants, &limits, process, node, part);
            }
        });
    }

    /// The files with accesses, in order of path; all with the same windows.
    pub(super) fn finish(self, trace: &Trace) -> Vec<FileAccess> {
        let Self { options, instants, files, processes, .. } = self;
        let last = files.values().filter_map(|file| file.windows.last_key_value()).map(|(window, _)| window + 1);
        let windows = last.max().unwrap_or(0);
        let finished: Vec<Option<FileAccess>> = files
            .into_par_iter()
            .map(|(file, joined)| joined.finish(trace.file(file).path.clone(), options, &instants, windows, &processes))
            .collect();
        finished.into_iter().flatten().collect()
    }
}

impl JoinedFile {
    fn new() -> Self {
        Self {
            largest_end: 0,
            classes: Classes::default(),
            requests: Vec::new(),
            windows: BTreeMap::new(),
            process: None,
            met: Vec::new(),
            synced: Synchronized::default(),
        }
    }

    fn absorb(
        &mut self,
        options: &CountOptions,
        instants: &Instants,
        limits: &Limits,
        process: ProcessIndex,
        node: NodeIndex,
        mut part: ChunkFile,
    ) {
        self.largest_end = self.largest_end.max(part.largest_end);
        self.synced.absorb(process, &part.synced);
        let Some(first) = part.first else { return };
        if self.process.as_ref().is_none_or(|before| before.process != process) {
            self.close_process(instants);
            self.process = Some(ProcessOnFile::new(process, &first));
        }
        if let Some(current) = &mut self.process {
            let continues =
                current.requests > 0 && first.offset.wrapping_sub(current.last_end) <= options.forward_skip_bytes;
            part.add(Regions::new(options.region_size.0), &first, !continues, limits);
            current.take(&part, &first);
        }
        while self.classes.level() < part.classes.level() {
            self.coarsen();
        }
        let requests = part.requests_by_class();
        let map = self.classes.absorb(&part.classes, &requests);
        self.requests.resize(self.classes.len(), 0);
        map.iter().zip(&requests).for_each(|(class, count)| self.requests[*class as usize] += count);
        for (window, table) in &part.windows {
            let rows = self.windows.entry(*window).or_default();
            rows.reserve(self.classes.len());
            table.for_each(|region, class, count, slices| {
                rows.add(region, map[class as usize], u64::from(count), slices, process, node);
            });
        }
        while self.classes.is_too_fine(limits, self.windows.values().map(|rows| rows.filled()).sum()) {
            self.coarsen();
        }
    }

    fn coarsen(&mut self) {
        let map = self.classes.coarsen(&self.requests);
        let mut requests = vec![0; self.classes.len()];
        map.iter().zip(&self.requests).for_each(|(class, count)| requests[*class as usize] += count);
        self.requests = requests;
        let classes = self.classes.len();
        self.windows.values_mut().for_each(|rows| rows.renumber(&map, classes));
    }

    fn close_process(&mut self, instants: &Instants) {
        let Some(mut process) = self.process.take() else { return };
        let Some(last) = process.last else { return };
        process.held.push(last);
        let span = last.start.0.saturating_sub(process.first_start.0);
        let gap = span / process.requests.saturating_sub(1).max(1);
        for held in &process.held {
            let until = held.end.max(TraceTime(held.start.0.saturating_add(gap.saturating_mul(GAPS_HELD))));
            let met = instants.instants(held.from, held.to).take_while(|(_, time)| *time <= until);
            self.met.extend(met.map(|(part, _)| (part, held.offset, held.bytes)));
        }
    }

    /// `of_run`: processes of all files by window.
    fn finish(
        mut self,
        path: String,
        options: &CountOptions,
        instants: &Instants,
        windows: u32,
        of_run: &BTreeMap<u32, Processes>,
    ) -> Option<FileAccess> {
        self.close_process(instants);
        if self.windows.is_empty() {
            return None;
        }
        let (classes, map) = self.classes.settle(&self.requests, usize::from(options.class_limit));
        self.met.sort_unstable();
        let mut company: BTreeMap<u32, Company> = BTreeMap::new();
        for met in self.met.chunk_by(|left, right| instants.window_of_part(left.0) == instants.window_of_part(right.0))
        {
            let at_instants = met.chunk_by(|left, right| left.0 == right.0);
            let requests = at_instants.map(|instant| instant.iter().map(|met| (met.1, met.2)).collect());
            let found = Company::of_instants(requests, options.region_size.0, options.forward_skip_bytes);
            company.insert(instants.window_of_part(met[0].0), found);
        }
        let windows = (0..windows).map(|number| {
            let rows = self.windows.remove(&number);
            let processes = WindowProcesses {
                file: rows.as_ref().map(Rows::processes).unwrap_or_default(),
                run: of_run.get(&number).map(Processes::count).unwrap_or_default(),
            };
            let regions = rows.map(|rows| rows.finish(&map));
            WindowAccess {
                start_s: f64::from(number) * options.window_s,
                end_s: f64::from(number + 1) * options.window_s,
                company: regions.as_ref().and_then(|_| company.get(&number).copied()).unwrap_or_default(),
                processes,
                synchronizations: self.synced.of_window(number, instants),
                regions: regions.unwrap_or_default(),
            }
        });
        let windows = windows.collect();
        Some(FileAccess { path, size_bytes: self.largest_end, region_size: options.region_size, classes, windows })
    }
}

impl ProcessOnFile {
    fn new(process: ProcessIndex, first: &FirstRequest) -> Self {
        let (first_start, last_part) = (first.start, first.place.part);
        Self { process, requests: 0, first_start, last_end: 0, last: None, last_part, held: Vec::new() }
    }

    fn take(&mut self, part: &ChunkFile, first: &FirstRequest) {
        let between = self.last.map(|last| Held { to: first.place.part, ..last });
        for held in between.iter().chain(&part.held) {
            // A chunk does not know which parts were reached before it.
            let from = held.from.max(self.last_part);
            if held.to > from {
                self.held.push(Held { from, ..*held });
                self.last_part = held.to;
            }
        }
        self.last_part = self.last_part.max(part.last_part);
        self.requests += part.requests;
        self.last_end = part.last_end;
        self.last = part.last.map(|last| Held { from: last.from.max(self.last_part), ..last });
    }
}
