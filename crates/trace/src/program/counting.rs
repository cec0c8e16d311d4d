//! The accesses of a program by window, region and class, as [`crate::count`] gives them of a trace.
//!
//! A program knows no time, so its phases are the windows, each of a nominal length, and the slices of a window are equal shares of
//! each process's requests. What is simultaneous is taken from the processes' positions: a process that has made a tenth of its
//! requests of a phase meets the others where they have made a tenth of theirs.
//!
//! The steps of every process are gone through twice, once to know how many requests each phase has. Nothing but the counts is kept,
//! so a program may be as long as it likes.

use super::{Program, Step};
use crate::access::{Company, FileAccess, ProcessCount, SLICES, Synchronizations, WindowAccess, WindowProcesses};
use crate::counts::classes::{ClassKey, Classes, Limits};
use crate::counts::rows::{Processes, Rows};
use crate::trace::{NodeIndex, ProcessIndex};
use stripewise_layout::{ByteCount, RegionGeometry};

/// How a program is counted.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ProgramCountOptions {
    /// Bytes of a region, more than 0; 64 MiB unless told otherwise.
    pub region_size: ByteCount,
    /// Nominal seconds of a phase.
    pub window_s: f64,
    /// As [`crate::CountOptions::forward_skip_bytes`].
    pub forward_skip_bytes: u64,
    /// As [`crate::CountOptions::class_limit`].
    pub class_limit: u16,
}

impl Default for ProgramCountOptions {
    fn default() -> Self {
        Self { region_size: ByteCount(64 << 20), window_s: 600.0, forward_skip_bytes: 64 << 10, class_limit: 32 }
    }
}

/// Most positions of a phase that its company is looked for in.
const INSTANTS: u64 = 512;
/// Requests noted for that, over all phases and processes, at most (about 50 MB).
const NOTES: u64 = 1 << 21;

/// The accesses of every file of the program, in the order of [`Program::files`]; files without accesses have empty windows.
///
/// # Panics
/// When `region_size` is 0.
#[must_use]
pub fn count_program(program: &dyn Program, options: &ProgramCountOptions) -> Vec<FileAccess> {
    let phases = program.phases().max(1) as usize;
    let limits = Limits::new(options.class_limit.max(4));
    let geometry = RegionGeometry::new(options.region_size.0);
    let noted = u64::from(program.processes()) * phases as u64;
    let instants = (NOTES / noted.max(1)).clamp(1, INSTANTS);
    let mut files: Vec<FileCounts> = program.files().iter().map(|_| FileCounts::new(phases)).collect();
    let mut of_run = vec![Processes::default(); phases];
    let mut ends: Vec<Option<u64>> = Vec::new();
    for process in 0..program.processes() {
        let who = (ProcessIndex(process), NodeIndex(program.node_of(process)));
        let totals = requests_by_phase(program, process, phases);
        ends.clear();
        ends.resize(files.len(), None);
        let (mut phase, mut number) = (0, 0);
        for step in program.steps(process) {
            let request = match step {
                Step::Access(request) => request,
                Step::Phase => {
                    (phase, number) = ((phase + 1).min(phases - 1), 0);
                    continue;
                }
                Step::Think { .. } | Step::Until { .. } | Step::Synchronize(_) | Step::Barrier => continue,
            };
            let (place, total) = (request.file.0 as usize, totals[phase]);
            of_run[phase].see(who.0, who.1);
            let file = &mut files[place];
            let skip = ends[place].and_then(|end| request.offset.0.checked_sub(end));
            let is_random = skip.is_none_or(|gap| gap > options.forward_skip_bytes);
            ends[place] = Some(request.offset.0 + request.bytes);
            let slice = 1 << share(number, total, u64::from(SLICES));
            for piece in geometry.pieces(request.offset, request.bytes) {
                let class = ClassKey::new(request.kind, is_random, piece.length);
                file.add(&limits, phase, piece.region.0, class, slice, who);
            }
            // The instants at which the process is at this request.
            for instant in share_begin(number, total, instants)..share_begin(number + 1, total, instants) {
                file.met[phase].push((instant as u32, request.offset.0, request.bytes));
            }
            number += 1;
        }
    }
    let of_run: Vec<ProcessCount> = of_run.iter().map(Processes::count).collect();
    let counted = program.files().iter().zip(files);
    counted.map(|(shape, file)| file.finish(shape.path.clone(), shape.size_bytes, options, &of_run)).collect()
}

/// In which of `parts` equal shares of `total` requests the request `number` begins.
fn share(number: u64, total: u64, parts: u64) -> u64 {
    (u128::from(number) * u128::from(parts) / u128::from(total.max(1))) as u64
}

/// The first instant of `instants` at which a process of `total` requests has reached `number`: instant k is at request k total / instants.
fn share_begin(number: u64, total: u64, instants: u64) -> u64 {
    (u128::from(number) * u128::from(instants)).div_ceil(u128::from(total.max(1))) as u64
}

fn requests_by_phase(program: &dyn Program, process: u32, phases: usize) -> Vec<u64> {
    let mut totals = vec![0; phases];
    let mut phase = 0;
    for step in program.steps(process) {
        match step {
            Step::Access(_) => totals[phase] += 1,
            Step::Phase => phase = (phase + 1).min(phases - 1),
            Step::Think { .. } | Step::Until { .. } | Step::Synchronize(_) | Step::Barrier => {}
        }
    }
    totals
}

/// One file, while it is counted.
struct FileCounts {
    classes: Classes,
    /// By class number.
    requests: Vec<u64>,
    /// By phase.
    windows: Vec<Rows>,
    /// By phase: instant, offset and bytes of the requests that processes were at.
    met: Vec<Vec<(u32, u64, u64)>>,
}

impl FileCounts {
    fn new(phases: usize) -> Self {
        Self {
            classes: Classes::default(),
            requests: Vec::new(),
            windows: (0..phases).map(|_| Rows::default()).collect(),
            met: vec![Vec::new(); phases],
        }
    }

    fn add(
        &mut self,
        limits: &Limits,
        phase: usize,
        region: u32,
        class: ClassKey,
        slice: u64,
        (process, node): (ProcessIndex, NodeIndex),
    ) {
        let known = self.classes.len();
        let number = self.classes.number(class);
        if self.classes.len() > known {
            self.requests.resize(self.classes.len(), 0);
        }
        self.requests[number as usize] += 1;
        self.windows[phase].reserve(self.classes.len());
        self.windows[phase].add(region, number, 1, slice, process, node);
        // Cells only grow too many when a class is new, or a region is in a file of too many classes: rarely worth the sum.
        if self.classes.len() > limits.classes
            && self.classes.is_too_fine(limits, self.windows.iter().map(Rows::filled).sum())
        {
            let map = self.classes.coarsen(&self.requests);
            let mut requests = vec![0; self.classes.len()];
            map.iter().zip(&self.requests).for_each(|(class, count)| requests[*class as usize] += count);
            self.requests = requests;
            let classes = self.classes.len();
            self.windows.iter_mut().for_each(|rows| rows.renumber(&map, classes));
        }
    }

    /// `of_run`: processes of all files by phase.
    fn finish(
        self,
        path: String,
        size_bytes: u64,
        options: &ProgramCountOptions,
        of_run: &[ProcessCount],
    ) -> FileAccess {
        let (classes, map) = self.classes.settle(&self.requests, usize::from(options.class_limit.max(4)));
        let phases = self.windows.into_iter().zip(self.met).enumerate();
        let windows = phases.map(|(phase, (rows, mut met))| {
            met.sort_unstable();
            let instants = met.chunk_by(|left, right| left.0 == right.0);
            let instants = instants.map(|instant| instant.iter().map(|met| (met.1, met.2)).collect());
            WindowAccess {
                start_s: phase as f64 * options.window_s,
                end_s: (phase + 1) as f64 * options.window_s,
                company: Company::of_instants(instants, options.region_size.0, options.forward_skip_bytes),
                processes: WindowProcesses { file: rows.processes(), run: of_run[phase] },
                synchronizations: Synchronizations::default(),
                regions: rows.finish(&map),
            }
        });
        let windows = windows.collect();
        FileAccess { path, size_bytes, region_size: options.region_size, classes, windows }
    }
}

#[cfg(test)]
mod tests;
