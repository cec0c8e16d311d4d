//! A recorded trace as a program: what its processes read and wrote, in order, at its own times or as fast as the storage allows.
//!
//! Taken are the requests that [`count`](crate::count) counts: reads and writes that succeeded and moved bytes, of each file's
//! [`data_level`](crate::TracedFile::data_level). A process's requests follow each other in the order of their records, which is that
//! of their ends: requests that several threads of a process had in flight at once come one after the other. Where asked for, the
//! synchronizations that succeeded are steps too. Barriers leave no record
//! and are not known; with [`Pacing::OwnTimes`] the times keep processes together as they were.

use super::{FileShape, IoRequest, Program, ProgramFile, Step};
use crate::trace::{Event, FileIndex, ProcessIndex, Trace};
use rayon::prelude::*;
use std::collections::HashMap;
use stripewise_capture::{Call, Operation};
use stripewise_layout::RequestKind;

/// When a process makes its next request.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Pacing {
    /// No earlier than in the trace, counted from its begin, all times multiplied by the scale.
    OwnTimes {
        /// 0 to 10^6; 1 keeps the trace's times.
        scale: f64,
    },
    /// When the one before is done and as much time has passed as lay between the two in the trace, multiplied by the scale.
    Gaps {
        /// 0 to 10^6; 1 keeps the trace's gaps.
        scale: f64,
    },
    /// As soon as the one before is done.
    AtOnce,
}

/// How a trace becomes a program.
#[derive(Clone, PartialEq, Debug)]
pub struct RecordedOptions {
    /// When requests are made.
    pub pacing: Pacing,
    /// Seconds of the trace that are a phase, as [`CountOptions::window_s`](crate::CountOptions::window_s); None: all is one phase.
    pub window_s: Option<f64>,
    /// The files whose requests are taken; None: all.
    pub files: Option<Vec<FileIndex>>,
    /// Whether synchronizations are steps; otherwise a process computes for as long as they took.
    pub synchronizations: bool,
}

impl Default for RecordedOptions {
    fn default() -> Self {
        Self { pacing: Pacing::Gaps { scale: 1.0 }, window_s: None, files: None, synchronizations: false }
    }
}

/// Why a trace is no program.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum RecordedError {
    /// None of the wanted files has a request that counts.
    #[error(
        "the trace has no read or write of {of}; trace a run that does I/O, or see what it holds with `stripewise trace show`"
    )]
    NoRequests {
        /// The files that were wanted, for people.
        of: String,
    },
    /// The scale of [`Pacing`] is out of range.
    #[error("times cannot be multiplied by {scale}; give at least 0 and at most 1000000")]
    Scale {
        /// The scale asked for.
        scale: f64,
    },
    /// [`RecordedOptions::window_s`] is out of range.
    #[error("a window of {window_s} s cannot be; give at least 0.000001 and at most 1000000000")]
    Window {
        /// The seconds asked for.
        window_s: f64,
    },
}

/// No more than so many phases, as when counting.
const MAX_PHASES: u64 = crate::counts::WINDOW_LIMIT as u64;
/// No request reaches beyond, as when counting.
const LARGEST_END: u64 = 1 << 62;

/// A trace as a program.
#[derive(Debug)]
pub struct TraceProgram<'t> {
    trace: &'t Trace,
    pacing: Pacing,
    synchronizations: bool,
    window_ns: Option<u64>,
    phases: u32,
    /// Those with requests, by MPI rank and then as in the trace.
    processes: Vec<ProcessIndex>,
    nodes: u32,
    /// Of each process, from 0 in order of first appearance.
    node_numbers: Vec<u32>,
    files: Vec<FileShape>,
    /// By [`FileIndex`].
    file_numbers: Vec<Option<ProgramFile>>,
}

/// What one process does.
#[derive(Default)]
struct Extent {
    requests: u64,
    last_start_ns: u64,
    /// The end of the largest request on each file.
    ends: HashMap<FileIndex, u64>,
}

impl<'t> TraceProgram<'t> {
    /// Goes through the trace once for sizes; steps are read from it as they are asked for.
    ///
    /// # Errors
    /// When an option makes no sense, or no request is left.
    pub fn new(trace: &'t Trace, options: &RecordedOptions) -> Result<Self, RecordedError> {
        if let Pacing::OwnTimes { scale } | Pacing::Gaps { scale } = options.pacing
            && !(0.0..=1e6).contains(&scale)
        {
            return Err(RecordedError::Scale { scale });
        }
        if let Some(window_s) = options.window_s.filter(|window_s| !(1e-6..=1e9).contains(window_s)) {
            return Err(RecordedError::Window { window_s });
        }
        let mut wanted = vec![options.files.is_none(); trace.files.len()];
        for file in options.files.iter().flatten() {
            wanted[file.0 as usize] = true;
        }
        let indices: Vec<ProcessIndex> = trace.process_indices().collect();
        let extents: Vec<Extent> = indices.par_iter().map(|index| extent(trace, *index, &wanted)).collect();
        let mut ends: HashMap<FileIndex, u64> = HashMap::new();
        let mut last_start_ns = 0;
        for extent in &extents {
            last_start_ns = last_start_ns.max(extent.last_start_ns);
            for (file, end) in &extent.ends {
                let largest = ends.entry(*file).or_insert(0);
                *largest = (*largest).max(*end);
            }
        }
        let mut processes: Vec<ProcessIndex> = indices
            .into_iter()
            .zip(&extents)
            .filter(|(_, extent)| extent.requests > 0)
            .map(|(index, _)| index)
            .collect();
        if processes.is_empty() {
            let of = options.files.as_ref().map_or("any file".to_owned(), |files| {
                files.iter().map(|file| trace.file(*file).path.clone()).collect::<Vec<_>>().join(", ")
            });
            return Err(RecordedError::NoRequests { of });
        }
        processes.sort_by_key(|index| (trace.process(*index).mpi_rank.unwrap_or(u32::MAX), *index));
        let (files, file_numbers) = number_files(trace, &ends);
        let (nodes, node_numbers) = number_nodes(trace, &processes);
        let window_ns = options.window_s.map(|window_s| (window_s * 1e9).round().max(1.0) as u64);
        let phases = window_ns.map_or(1, |window_ns| (last_start_ns / window_ns + 1).min(MAX_PHASES) as u32);
        let RecordedOptions { pacing, synchronizations, .. } = *options;
        Ok(Self {
            trace,
            pacing,
            synchronizations,
            window_ns,
            phases,
            processes,
            nodes,
            node_numbers,
            files,
            file_numbers,
        })
    }

    /// The process of the trace that a process of the program is.
    #[must_use]
    pub fn process_in_trace(&self, process: u32) -> ProcessIndex {
        self.processes[process as usize]
    }

    fn phase_of(&self, start_ns: u64) -> u32 {
        self.window_ns.map_or(0, |window_ns| (start_ns / window_ns).min(u64::from(self.phases) - 1) as u32)
    }
}

/// The request that an event is, if it counts and its file is wanted.
fn request_of<'e>(trace: &Trace, event: &'e Event) -> Option<(FileIndex, RequestKind, &'e Event)> {
    let kind = event.request_kind()?;
    let file = event.file.filter(|_| event.errno == 0 && event.bytes > 0)?;
    let reaches = event.offset.0.checked_add(event.bytes).is_some_and(|end| end <= LARGEST_END);
    let counts = reaches && trace.file(file).data_level() == Some(event.call.level());
    counts.then_some((file, kind, event))
}

/// The file that an event synchronizes.
fn synchronized(trace: &Trace, event: &Event) -> Option<FileIndex> {
    // What `fflush` hands over goes to the kernel, not to a server.
    let is_one = event.operation() == Operation::Sync && event.call != Call::Fflush && event.errno == 0;
    event.file.filter(|file| is_one && trace.file(*file).data_level() == Some(event.call.level()))
}

fn extent(trace: &Trace, index: ProcessIndex, wanted: &[bool]) -> Extent {
    let mut extent = Extent::default();
    for event in trace.events_of(index) {
        let Some((file, _, event)) = request_of(trace, &event) else { continue };
        if wanted[file.0 as usize] {
            extent.requests += 1;
            extent.last_start_ns = extent.last_start_ns.max(event.start.0);
            let end = extent.ends.entry(file).or_insert(0);
            *end = (*end).max(event.offset.0 + event.bytes);
        }
    }
    extent
}

fn number_files(trace: &Trace, ends: &HashMap<FileIndex, u64>) -> (Vec<FileShape>, Vec<Option<ProgramFile>>) {
    let mut files = Vec::with_capacity(ends.len());
    let mut numbers = vec![None; trace.files.len()];
    for (index, file) in trace.files.iter().enumerate() {
        if let Some(end) = ends.get(&FileIndex(index as u32)) {
            numbers[index] = Some(ProgramFile(files.len() as u32));
            files.push(FileShape { path: file.path.clone(), size_bytes: *end });
        }
    }
    (files, numbers)
}

fn number_nodes(trace: &Trace, processes: &[ProcessIndex]) -> (u32, Vec<u32>) {
    let mut known = HashMap::new();
    let numbers = processes.iter().map(|index| {
        let next = known.len() as u32;
        *known.entry(trace.process(*index).node).or_insert(next)
    });
    let numbers = numbers.collect();
    (known.len() as u32, numbers)
}

impl Program for TraceProgram<'_> {
    fn files(&self) -> &[FileShape] {
        &self.files
    }

    fn processes(&self) -> u32 {
        self.processes.len() as u32
    }

    fn nodes(&self) -> u32 {
        self.nodes
    }

    fn phases(&self) -> u32 {
        self.phases
    }

    fn steps(&self, process: u32) -> Box<dyn Iterator<Item = Step> + Send + '_> {
        let events = self.trace.events_of(self.process_in_trace(process));
        let steps = Steps { program: self, events, phase: 0, due: 0, wait: None, step: None, last_end_ns: 0 };
        Box::new(steps)
    }

    /// As in the trace, not in blocks.
    fn node_of(&self, process: u32) -> u32 {
        self.node_numbers[process as usize]
    }
}

struct Steps<'p, E> {
    program: &'p TraceProgram<'p>,
    events: E,
    phase: u32,
    /// Phase marks to be passed before what follows.
    due: u32,
    wait: Option<Step>,
    step: Option<Step>,
    /// Of the steps so far.
    last_end_ns: u64,
}

impl<E: Iterator<Item = Event>> Steps<'_, E> {
    fn take(&mut self, event: &Event) {
        let program = self.program;
        let number = |file: FileIndex| program.file_numbers[file.0 as usize];
        let step = match request_of(program.trace, event) {
            Some((file, kind, _)) => number(file)
                .map(|file| Step::Access(IoRequest { file, kind, offset: event.offset, bytes: event.bytes })),
            None if program.synchronizations => {
                synchronized(program.trace, event).and_then(number).map(Step::Synchronize)
            }
            None => None,
        };
        if step.is_none() {
            return;
        }
        let scaled = |ns: u64, scale: f64| if scale == 1.0 { ns } else { (ns as f64 * scale).round() as u64 };
        self.due = program.phase_of(event.start.0).saturating_sub(self.phase);
        self.wait = match program.pacing {
            Pacing::OwnTimes { scale } => Some(Step::Until { nanoseconds: scaled(event.start.0, scale) }),
            Pacing::Gaps { scale } => {
                let nanoseconds = scaled(event.start.0.saturating_sub(self.last_end_ns), scale);
                (nanoseconds > 0).then_some(Step::Think { nanoseconds })
            }
            Pacing::AtOnce => None,
        };
        self.last_end_ns = self.last_end_ns.max(event.end.0);
        self.step = step;
    }
}

impl<E: Iterator<Item = Event>> Iterator for Steps<'_, E> {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        loop {
            if self.due > 0 {
                self.due -= 1;
                self.phase += 1;
                return Some(Step::Phase);
            }
            if let Some(wait) = self.wait.take() {
                return Some(wait);
            }
            if let Some(step) = self.step.take() {
                return Some(step);
            }
            match self.events.next() {
                Some(event) => self.take(&event),
                None => {
                    self.due = self.program.phases - 1 - self.phase;
                    if self.due == 0 {
                        return None;
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
