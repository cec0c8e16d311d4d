//! DXT's segments as the slots of a trace.
//!
//! A log has first all writes of a file by a rank, then all reads, file by file: the requests of a rank are sorted by their ends when all are
//! there. Beyond [`HELD_BYTES`] slots go to files that have no name any more, and are mapped.
#![allow(unsafe_code, reason = "files that nobody else can reach are mapped")]

use super::Interface;
use super::shares::Traced;
use crate::slots::SlotBuffer;
use crate::trace::{ClockFacts, ProcessSource, Slots, Trace, decode_at};
use crate::warning::Warning;
use memmap2::Mmap;
use std::cmp::Reverse;
use std::collections::binary_heap::{BinaryHeap, PeekMut};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::io::{BufWriter, Result, Write};
use std::ops::Range;
use std::path::Path;
use stripewise_capture::call::Call;
use stripewise_capture::clock::Ticks;
use stripewise_capture::format::{FileKey, HEADER_BYTES, NO_OFFSET, RawEvent, SLOT_BYTES};
use stripewise_darshan::{Job, Segment};
use stripewise_layout::FileOffset;
use stripewise_layout::text::bytes_of;

/// Slots of all processes in memory before they go to files.
const HELD_BYTES: usize = if cfg!(test) { 64 << 10 } else { 256 << 20 };

#[derive(Default)]
struct Gathered {
    events: SlotBuffer,
    /// Begins with space for a header, as trace files do.
    spilled: Option<File>,
    last_end: u64,
    is_in_order: bool,
    /// By key, from 1.
    files: Vec<u64>,
    keys: HashMap<u64, FileKey>,
}

impl Gathered {
    fn key(&mut self, id: u64) -> FileKey {
        *self.keys.entry(id).or_insert_with(|| {
            self.files.push(id);
            FileKey(self.files.len() as u32)
        })
    }

    fn spill(&mut self) -> Result<()> {
        let bytes = std::mem::take(&mut self.events).into_bytes();
        if bytes.is_empty() {
            return Ok(());
        }
        if self.spilled.is_none() {
            self.spilled = Some(begun_file()?);
        }
        match &mut self.spilled {
            Some(file) => file.write_all(&bytes),
            None => Ok(()),
        }
    }
}

fn begun_file() -> Result<File> {
    let mut file = tempfile::tempfile()?;
    file.write_all(&[0; HEADER_BYTES])?;
    Ok(file)
}

fn mapped(file: &File) -> Result<Slots> {
    // SAFETY: the file has no name, and this process does not write to it any more.
    Ok(Slots::mapped(unsafe { Mmap::map(file) }?))
}

/// What the segments that come belong to.
struct Current {
    process: (String, i64),
    key: FileKey,
    is_mpi: bool,
    writes_left: u64,
    id: u64,
    /// Its counters do not tell ranks apart.
    is_shared: bool,
}

/// What there is of a file.
#[derive(Default)]
struct OfFile {
    name: String,
    posix: u64,
    mpi: u64,
    /// Behind the last byte that a segment accesses.
    end: u64,
}

impl OfFile {
    fn path(&self, id: u64) -> String {
        if self.name.is_empty() { super::nameless_path(id) } else { self.name.clone() }
    }
}

/// A file with fewer segments than requests: DXT's memory was full, or it was set to leave some out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PartlyTraced {
    /// Its segments.
    pub segments: u64,
    /// Its requests, by its counters.
    pub requests: u64,
    /// Behind the last byte that a segment accesses.
    pub end: u64,
}

#[derive(Default)]
pub(super) struct Segments {
    processes: BTreeMap<(String, i64), Gathered>,
    current: Option<Current>,
    files: HashMap<u64, OfFile>,
    held_bytes: usize,
    /// Of files whose counters do not tell ranks apart.
    shared: HashMap<u64, BTreeMap<u32, Traced>>,
}

impl Segments {
    #[expect(clippy::too_many_arguments, reason = "the parts of a record")]
    pub(super) fn begin(
        &mut self,
        is_mpi: bool,
        is_shared: bool,
        id: u64,
        rank: i64,
        host: &str,
        writes: u64,
        reads: u64,
    ) {
        if writes.saturating_add(reads) == 0 {
            self.current = None;
            return;
        }
        self.files.entry(id).or_default();
        let process = (host.to_owned(), rank);
        let begin = || Gathered { is_in_order: true, ..Gathered::default() };
        let key = self.processes.entry(process.clone()).or_insert_with(begin).key(id);
        self.current = Some(Current { process, key, is_mpi, writes_left: writes, id, is_shared });
    }

    /// What each rank did to files whose counters do not tell ranks apart.
    pub(super) fn take_shared(&mut self) -> HashMap<u64, BTreeMap<u32, Traced>> {
        std::mem::take(&mut self.shared)
    }

    pub(super) fn end_module(&mut self) {
        self.current = None;
    }

    pub(super) fn name(&mut self, id: u64, name: String) {
        if let Some(known) = self.files.get_mut(&id) {
            known.name = name;
        }
    }

    /// By path the files with fewer segments than `requests` says by number and interface.
    pub(super) fn partly_traced(
        &self,
        requests: impl Fn(u64, Interface) -> Option<u64>,
    ) -> BTreeMap<String, PartlyTraced> {
        let of_file = |(id, file): (&u64, &OfFile)| {
            let (interface, segments) =
                if file.posix > 0 { (Interface::Posix, file.posix) } else { (Interface::MpiIo, file.mpi) };
            let requests = requests(*id, interface).filter(|requests| segments < *requests)?;
            Some((file.path(*id), PartlyTraced { segments, requests, end: file.end }))
        };
        self.files.iter().filter_map(of_file).collect()
    }

    pub(super) fn take(&mut self, segments: &mut dyn Iterator<Item = Segment>) -> Result<()> {
        let Some(current) = &mut self.current else { return Ok(()) };
        let Some(process) = self.processes.get_mut(&current.process) else { return Ok(()) };
        let (mut traced, mut last) = (Traced::default(), 0);
        for segment in segments {
            let is_write = current.writes_left > 0;
            current.writes_left = current.writes_left.saturating_sub(1);
            let Ok(bytes) = u64::try_from(segment.length) else { continue };
            let call = match (current.is_mpi, is_write) {
                (false, false) => Call::Pread,
                (false, true) => Call::Pwrite,
                (true, false) => Call::MpiReadAt,
                (true, true) => Call::MpiWriteAt,
            };
            let offset = u64::try_from(segment.offset).map_or(NO_OFFSET, FileOffset);
            if offset != NO_OFFSET {
                last = last.max(offset.0.saturating_add(bytes));
            }
            let (start, end) = (nanoseconds(segment.start_s), nanoseconds(segment.end_s.max(segment.start_s)));
            traced.requests += 1;
            traced.bytes = traced.bytes.saturating_add(bytes);
            traced.data_s += (end - start) as f64 * 1e-9;
            process.is_in_order &= end >= process.last_end;
            process.last_end = end;
            process.events.push_event(&RawEvent::new(call, current.key, offset, bytes, Ticks(start), Ticks(end)));
            self.held_bytes += SLOT_BYTES;
        }
        if let Some(file) = self.files.get_mut(&current.id) {
            *(if current.is_mpi { &mut file.mpi } else { &mut file.posix }) += traced.requests;
            file.end = file.end.max(last);
        }
        if let (true, Ok(rank)) = (current.is_shared, u32::try_from(current.process.1)) {
            self.shared.entry(current.id).or_default().entry(rank).or_default().add(&traced);
        }
        if self.held_bytes >= HELD_BYTES {
            self.held_bytes = 0;
            self.processes.values_mut().try_for_each(Gathered::spill)?;
        }
        Ok(())
    }

    /// The trace and the paths of its files; none without segments.
    pub(super) fn finish(
        self,
        path: &Path,
        job: &Job,
        warnings: Vec<Warning>,
    ) -> Result<(Option<Trace>, HashSet<String>)> {
        if self.processes.is_empty() {
            return Ok((None, HashSet::new()));
        }
        let files = self.files;
        let name = |id: &u64| files.get(id).map_or_else(|| super::nameless_path(*id), |file| file.path(*id));
        let traced = files.iter().map(|(id, file)| file.path(*id)).collect();
        let program = job.command.split_whitespace().next().unwrap_or_default();
        // A program outside MPI counts as one process of rank 0.
        let mpi_size = u32::try_from(job.processes).unwrap_or(0);
        let source = |((host, rank), process): ((String, i64), Gathered)| {
            let rank = u32::try_from(rank).unwrap_or(0);
            Ok(ProcessSource {
                path: path.to_owned(),
                pid: rank,
                parent_pid: 0,
                node: host,
                program: program.to_owned(),
                mpi_rank: (mpi_size > 1).then_some(rank),
                mpi_size: if mpi_size > 1 { mpi_size } else { 0 },
                lost: 0,
                finished: true,
                clock: ClockFacts::nanoseconds(),
                slots: slots(process, name)?,
            })
        };
        let sources = self.processes.into_iter().map(source).collect::<Result<Vec<ProcessSource>>>()?;
        Ok((Some(Trace::assemble(None, sources, warnings)), traced))
    }
}

/// Of a time since the program's start, which no damaged record may make one beyond what traces hold.
fn nanoseconds(seconds: f64) -> u64 {
    /// A hundred years.
    const LATEST_S: f64 = 3.2e9;
    (seconds.clamp(0.0, LATEST_S) * 1e9).round() as u64
}

/// The slots of a process in order, its files' names behind its events.
fn slots(mut process: Gathered, name: impl Fn(&u64) -> String) -> Result<Slots> {
    let is_spilled = process.spilled.is_some();
    if is_spilled {
        process.spill()?;
    }
    let mut definitions = SlotBuffer::default();
    for id in &process.files {
        definitions.define_file(&bytes_of(&name(id)));
    }
    let definitions = definitions.into_bytes();
    let Some(mut file) = process.spilled else {
        let mut bytes = process.events.into_bytes();
        if !process.is_in_order {
            let unordered = Slots::owned(bytes);
            bytes = Vec::with_capacity(unordered.byte_len() as usize + definitions.len());
            write_in_order(&unordered, &mut bytes)?;
        }
        bytes.extend_from_slice(&definitions);
        return Ok(Slots::owned(bytes));
    };
    if !process.is_in_order {
        let unordered = mapped(&file)?;
        let mut ordered = BufWriter::with_capacity(1 << 20, begun_file()?);
        write_in_order(&unordered, &mut ordered)?;
        file = ordered.into_inner().map_err(std::io::IntoInnerError::into_error)?;
    }
    file.write_all(&definitions)?;
    mapped(&file)
}

/// Slots that are gone through before their memory is given back: 1 MiB.
const THROUGH_SLOTS: usize = 1 << 15;

/// A part of a rank's requests whose ends rise: what it wrote to one file, or read.
struct Run {
    rest: Range<usize>,
    /// What of it may still be in memory begins here.
    held: usize,
}

impl Run {
    /// The next event: its end and where it is.
    fn first(&mut self, slots: &[[u8; SLOT_BYTES]]) -> Option<(u64, usize)> {
        let found = self.rest.by_ref().find_map(|place| Some((decode_at(slots, place)?.end.0, place)));
        self.rest.start -= usize::from(found.is_some());
        found
    }

    fn pass(&mut self, unordered: &Slots, slots: usize) {
        self.rest.start += slots;
        if self.rest.start - self.held >= THROUGH_SLOTS {
            unordered.give_back(&(self.held..self.rest.start));
            self.held = self.rest.start;
        }
    }
}

fn runs(unordered: &Slots) -> Vec<Run> {
    let slots = unordered.get();
    let (mut runs, mut begin, mut last) = (Vec::new(), 0, 0);
    let mut whole = Run { rest: 0..slots.len(), held: 0 };
    while let Some((end, place)) = whole.first(slots) {
        if end < last {
            runs.push(Run { rest: begin..place, held: begin });
            begin = place;
        }
        last = end;
        whole.pass(unordered, 1);
    }
    runs.push(Run { rest: begin..slots.len(), held: begin });
    runs
}

/// By end; of one end in the order of the log. Merges runs, so that memory does not grow with the number of requests.
fn write_in_order(unordered: &Slots, to: &mut impl Write) -> Result<()> {
    let slots = unordered.get();
    let mut runs = runs(unordered);
    let firsts = runs.iter_mut().enumerate().filter_map(|(number, run)| Some(Reverse((run.first(slots)?, number))));
    let mut heap: BinaryHeap<Reverse<((u64, usize), usize)>> = firsts.collect();
    while let Some(mut first) = heap.peek_mut() {
        let Reverse(((_, place), number)) = *first;
        let length = match decode_at(slots, place).map(|event| event.encode()) {
            Some((_, Some(_))) => 2,
            _ => 1,
        };
        to.write_all(slots[place..place + length].as_flattened())?;
        runs[number].pass(unordered, length);
        match runs[number].first(slots) {
            Some(next) => first.0.0 = next,
            None => drop(PeekMut::pop(first)),
        }
    }
    Ok(())
}
