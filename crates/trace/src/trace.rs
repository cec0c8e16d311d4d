//! A trace as it is worked on: processes with their slots, and the files they share.
//!
//! Building a [`Trace`] scans every slot once, in parallel: definitions are collected, files of all processes merged by their absolute
//! path, clocks brought to one time line. Events stay where they are and are decoded on the way.

mod scan;
mod slots;
mod timeline;

use crate::manifest::Manifest;
use crate::warning::Warning;
use rayon::prelude::*;
use scan::Scan;
pub(crate) use slots::Slots;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use stripewise_capture::call::{Call, Level, Operation};
use stripewise_capture::clock::Clock;
use stripewise_capture::format::{
    ASSUMED_WRITE_CLASS, CommunicatorKey, FileKey, Header, RawEvent, SLOT_BYTES, Slot, slot_from_bytes,
};
use stripewise_layout::text::lossless;
use stripewise_layout::{FileOffset, RequestKind, WriteClass};
use timeline::Timeline;
pub(crate) use timeline::{ClockFacts, TickRange};

/// Position in [`Trace::processes`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ProcessIndex(pub u32);

/// Position in [`Trace::files`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FileIndex(pub u32);

/// Position in [`Trace::nodes`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NodeIndex(pub u32);

/// Nanoseconds since the first record of the trace.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct TraceTime(pub u64);

impl TraceTime {
    /// As seconds.
    #[must_use]
    pub fn seconds(self) -> f64 {
        self.0 as f64 * 1e-9
    }
}

/// One call, placed in its trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Event {
    /// Who called.
    pub process: ProcessIndex,
    /// What was called; tells interface and operation.
    pub call: Call,
    /// The open made the file.
    pub created: bool,
    /// See [`RawEvent::write_class`].
    pub write_class: Option<WriteClass>,
    /// 0 for success.
    pub errno: u32,
    /// The communicator of an MPI file, as the process numbers it; 0 at POSIX calls.
    pub communicator: CommunicatorKey,
    /// None for calls without a file, or on one whose definition is missing.
    pub file: Option<FileIndex>,
    /// See [`RawEvent::offset`]; a rename's new name is not resolved here.
    pub offset: FileOffset,
    /// Bytes that moved; 0 for failed calls.
    pub bytes: u64,
    /// When the call was entered.
    pub start: TraceTime,
    /// When it returned; before `start` in a damaged record only.
    pub end: TraceTime,
}

impl Event {
    /// The operation, opens that created their file told apart.
    #[must_use]
    pub fn operation(&self) -> Operation {
        match self.call.operation() {
            Operation::Open if self.created => Operation::Create,
            other => other,
        }
    }

    /// What a read or write is; `None` for other calls. A write of unknown class is taken as buffered.
    #[must_use]
    pub fn request_kind(&self) -> Option<RequestKind> {
        match self.operation() {
            Operation::Read => Some(RequestKind::Read),
            Operation::Write => Some(RequestKind::Write(self.write_class.unwrap_or(ASSUMED_WRITE_CLASS))),
            _ => None,
        }
    }
}

/// A file that the trace names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TracedFile {
    /// Bytes that are not UTF-8 stand as `\xNN`.
    pub path: String,
    /// `st_dev` where the trace knows it; 0 otherwise.
    pub device: u64,
    /// `st_ino` where the trace knows it; 0 otherwise.
    pub inode: u64,
    has_posix_data: bool,
    has_mpi_data: bool,
    has_unclassed_posix_writes: bool,
    has_unclassed_mpi_writes: bool,
}

impl TracedFile {
    /// The level whose reads and writes say what the file went through: POSIX where any were captured, as those below MPI-IO are what
    /// the servers see; none for a file that was only opened, renamed and the like.
    #[must_use]
    pub fn data_level(&self) -> Option<Level> {
        match (self.has_posix_data, self.has_mpi_data) {
            (true, _) => Some(Level::Posix),
            (false, true) => Some(Level::MpiIo),
            (false, false) => None,
        }
    }

    /// Whether writes of [`Self::data_level`] are taken as buffered because the trace does not say what they waited for: traces of
    /// format 1, of other tools, and of MPI-IO calls alone.
    #[must_use]
    pub fn has_assumed_writes(&self) -> bool {
        match self.data_level() {
            Some(Level::Posix) => self.has_unclassed_posix_writes,
            Some(Level::MpiIo) => self.has_unclassed_mpi_writes,
            None => false,
        }
    }
}

/// A communicator as one process knows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Communicator {
    /// As `MPI_Comm_get_name` gave it; may be empty.
    pub name: String,
    /// Equal in all its processes.
    pub hash: u64,
    /// Processes in it.
    pub size: u32,
    /// Of the process in it.
    pub rank: u32,
}

/// A process of the trace.
#[derive(Debug)]
pub struct Process {
    /// The file it was read from.
    pub source: PathBuf,
    /// On its machine.
    pub pid: u32,
    /// On its machine; 0 when unknown.
    pub parent_pid: u32,
    /// The machine that it ran on.
    pub node: NodeIndex,
    /// Path of the program.
    pub program: String,
    /// Rank in `MPI_COMM_WORLD`; `None` outside MPI.
    pub mpi_rank: Option<u32>,
    /// 0 when unknown.
    pub mpi_size: u32,
    /// Records that it could not write.
    pub lost: u64,
    /// Whether it finished its trace.
    pub finished: bool,
    /// Its calls.
    pub events: u64,
    /// By [`CommunicatorKey`], from 1.
    pub communicators: HashMap<CommunicatorKey, Communicator>,
    slots: Slots,
    /// By [`FileKey`].
    files: Vec<Option<FileIndex>>,
    timeline: Timeline,
}

/// A captured run.
#[derive(Debug)]
pub struct Trace {
    /// `None` for formats that have no manifest, and where the directory has lost it.
    pub manifest: Option<Manifest>,
    /// In the order of their files' names, or of their first lines in a text format.
    pub processes: Vec<Process>,
    /// In order of path.
    pub files: Vec<TracedFile>,
    /// Names, in order.
    pub nodes: Vec<String>,
    /// What was odd and read all the same.
    pub warnings: Vec<Warning>,
    origin_unix_ns: u64,
    duration: TraceTime,
    gives_back: bool,
}

/// What a reader hands over for each process.
#[derive(Debug)]
pub(crate) struct ProcessSource {
    pub(crate) path: PathBuf,
    pub(crate) pid: u32,
    pub(crate) parent_pid: u32,
    pub(crate) node: String,
    pub(crate) program: String,
    pub(crate) mpi_rank: Option<u32>,
    pub(crate) mpi_size: u32,
    pub(crate) lost: u64,
    pub(crate) finished: bool,
    pub(crate) clock: ClockFacts,
    pub(crate) slots: Slots,
}

impl ProcessSource {
    pub(crate) fn new(path: &Path, header: &Header<'_>, slots: Slots) -> Self {
        Self {
            path: path.to_owned(),
            pid: header.pid,
            parent_pid: header.parent_pid,
            node: lossless(header.node),
            program: lossless(header.program),
            mpi_rank: header.mpi_rank,
            mpi_size: header.mpi_size,
            lost: header.lost,
            finished: header.finished,
            clock: ClockFacts {
                counts_ns: header.clock == Clock::Monotonic,
                start_wall_ns: header.start_wall_ns,
                start_monotonic_ns: header.start_monotonic_ns,
                start_ticks: header.start_ticks,
                last: header.last_pair().map(|pair| (pair.ticks, pair.monotonic_ns)),
                ticks_per_second: header.ticks_per_second,
            },
            slots,
        }
    }
}

impl Trace {
    /// Joins what the readers found.
    pub(crate) fn assemble(
        manifest: Option<Manifest>,
        sources: Vec<ProcessSource>,
        mut warnings: Vec<Warning>,
    ) -> Self {
        let gives_back = sources.iter().map(|source| source.slots.byte_len()).sum::<u64>() > KEPT_BYTES;
        let scans: Vec<Scan> = sources.par_iter().map(|source| scan::scan(&source.slots, gives_back)).collect();
        for (source, scan) in sources.iter().zip(&scans) {
            if scan.skipped > 0 {
                warnings.push(Warning::Skipped { path: source.path.clone(), slots: scan.skipped });
            }
        }
        let mut nodes: Vec<String> = sources.iter().map(|source| source.node.clone()).collect();
        nodes.sort();
        nodes.dedup();
        let node_of = |name: &str| NodeIndex(nodes.partition_point(|node| node.as_str() < name) as u32);
        let timelines = timeline::unify(&sources);
        let (files, file_maps) = merge_files(&scans);

        let spans = timelines.iter().zip(&scans).filter(|(_, scan)| scan.events > 0);
        let (first, last) = spans.fold((u64::MAX, 0), |(first, last), (timeline, scan)| {
            (first.min(timeline.unix_ns(scan.first_tick)), last.max(timeline.unix_ns(scan.last_tick)))
        });
        let origin_unix_ns = if first == u64::MAX { 0 } else { first };
        let mut processes = Vec::with_capacity(sources.len());
        for (((source, scan), files), timeline) in sources.into_iter().zip(scans).zip(file_maps).zip(timelines) {
            processes.push(Process {
                pid: source.pid,
                parent_pid: source.parent_pid,
                node: node_of(&source.node),
                program: source.program,
                mpi_rank: source.mpi_rank,
                mpi_size: source.mpi_size,
                lost: source.lost,
                finished: source.finished,
                events: scan.events,
                communicators: scan.communicators,
                slots: source.slots,
                source: source.path,
                files,
                timeline: timeline.since_origin(origin_unix_ns),
            });
        }
        let duration = TraceTime(last.saturating_sub(origin_unix_ns));
        Self { manifest, processes, files, nodes, warnings, origin_unix_ns, duration, gives_back }
    }

    /// From now on, files of those paths count as ones that no data moved to or from.
    pub fn disregard_data(&mut self, is_meant: impl Fn(&str) -> bool) {
        for file in self.files.iter_mut().filter(|file| is_meant(&file.path)) {
            (file.has_posix_data, file.has_mpi_data) = (false, false);
        }
    }

    /// When the first call began, in nanoseconds since 1970-01-01 UTC; 0 for a trace without records.
    #[must_use]
    pub fn origin_unix_ns(&self) -> u64 {
        self.origin_unix_ns
    }

    /// From the begin of the first call to the end of the last.
    #[must_use]
    pub fn duration(&self) -> TraceTime {
        self.duration
    }

    /// All calls.
    #[must_use]
    pub fn event_count(&self) -> u64 {
        self.processes.iter().map(|process| process.events).sum()
    }

    /// Number of MPI processes: what the manifest says, else the processes; 0 outside MPI.
    #[must_use]
    pub fn mpi_size(&self) -> u32 {
        let said = self.manifest.as_ref().and_then(|manifest| manifest.mpi_size);
        said.unwrap_or_else(|| self.processes.iter().map(|process| process.mpi_size).max().unwrap_or(0))
    }

    /// The file of that index.
    ///
    /// # Panics
    ///
    /// If the index is another trace's and out of range.
    #[must_use]
    pub fn file(&self, index: FileIndex) -> &TracedFile {
        &self.files[index.0 as usize]
    }

    /// The process of that index.
    ///
    /// # Panics
    ///
    /// If the index is another trace's and out of range.
    #[must_use]
    pub fn process(&self, index: ProcessIndex) -> &Process {
        &self.processes[index.0 as usize]
    }

    /// Indices of all processes.
    pub fn process_indices(&self) -> impl Iterator<Item = ProcessIndex> + use<> {
        (0..self.processes.len() as u32).map(ProcessIndex)
    }

    /// The calls of one process in the order of their records: by end, roughly.
    pub fn events_of(&self, index: ProcessIndex) -> impl Iterator<Item = Event> + '_ {
        self.chunks_of(index, CHUNK_SLOTS).flat_map(|chunk| self.events_of_chunk(chunk))
    }

    /// The calls of a piece, whose memory is given back behind the last one.
    fn events_of_chunk(&self, chunk: Chunk) -> impl Iterator<Item = Event> + '_ {
        let process = self.process(chunk.process);
        let (index, events) = (chunk.process, process.raw_events(chunk.slots.clone()));
        let through = std::iter::from_fn(move || {
            self.is_through(&chunk);
            None
        });
        events.map(move |raw| process.place(index, &raw)).chain(through)
    }

    /// All calls, process after process.
    pub fn events(&self) -> impl Iterator<Item = Event> + '_ {
        self.process_indices().flat_map(|process| self.events_of(process))
    }

    /// All calls on all cores, in no order.
    pub fn par_events(&self) -> impl ParallelIterator<Item = Event> + '_ {
        self.chunks(CHUNK_SLOTS).into_par_iter().flat_map_iter(|chunk| self.events_of_chunk(chunk))
    }

    /// All calls by start time, those of one instant in order of process; in memory.
    #[must_use]
    pub fn events_by_start(&self) -> Vec<Event> {
        let mut events: Vec<Event> = self.events().collect();
        events.par_sort_by_key(|event| event.start);
        events
    }

    /// To be called when the slots of a chunk have been gone through: the memory of a large trace is given back.
    pub(crate) fn is_through(&self, chunk: &Chunk) {
        if self.gives_back {
            self.process(chunk.process).slots.give_back(&chunk.slots);
        }
    }

    /// The slots of all processes in pieces of at most `slots`, in order.
    pub(crate) fn chunks(&self, slots: usize) -> Vec<Chunk> {
        self.process_indices().flat_map(|process| self.chunks_of(process, slots)).collect()
    }

    fn chunks_of(&self, process: ProcessIndex, slots: usize) -> impl Iterator<Item = Chunk> + use<> {
        let total = self.process(process).slots.get().len();
        let starts = (0..total).step_by(slots);
        starts.map(move |start| Chunk { process, slots: start..total.min(start + slots) })
    }
}

/// A trace beyond this size is not kept in memory between one pass over it and the next.
const KEPT_BYTES: u64 = if cfg!(test) { 32 << 20 } else { 512 << 20 };

/// Slots of a piece of work: 8 MiB.
pub(crate) const CHUNK_SLOTS: usize = 1 << 18;

/// A run of slots of one process.
#[derive(Clone, Debug)]
pub(crate) struct Chunk {
    pub(crate) process: ProcessIndex,
    pub(crate) slots: std::ops::Range<usize>,
}

impl Process {
    /// The calls recorded in those slots. An extension just beyond them is still found.
    pub(crate) fn raw_events(&self, range: std::ops::Range<usize>) -> impl Iterator<Item = RawEvent> + '_ {
        let slots = self.slots.get();
        range.filter_map(move |index| decode_at(slots, index))
    }

    pub(crate) fn slots(&self) -> &[[u8; SLOT_BYTES]] {
        self.slots.get()
    }

    pub(crate) fn file_index(&self, key: FileKey) -> Option<FileIndex> {
        self.files.get(key.0 as usize).copied().flatten()
    }

    pub(crate) fn files_by_key(&self) -> &[Option<FileIndex>] {
        &self.files
    }

    pub(crate) fn timeline(&self) -> &Timeline {
        &self.timeline
    }

    /// The file of the new name, for a rename.
    #[must_use]
    pub fn renamed_to(&self, event: &Event) -> Option<FileIndex> {
        let key = u32::try_from(event.offset.0).ok().filter(|_| event.operation() == Operation::Rename)?;
        self.file_index(FileKey(key))
    }

    fn place(&self, process: ProcessIndex, raw: &RawEvent) -> Event {
        Event {
            process,
            call: raw.call,
            created: raw.created,
            write_class: raw.write_class,
            errno: raw.errno,
            communicator: raw.communicator,
            file: self.file_index(raw.file),
            offset: raw.offset,
            bytes: raw.bytes,
            start: self.timeline.trace_time(raw.start.0),
            end: self.timeline.trace_time(raw.end.0),
        }
    }
}

/// The event of slot `index`, if that is a record.
#[inline]
pub(crate) fn decode_at(slots: &[[u8; SLOT_BYTES]], index: usize) -> Option<RawEvent> {
    let slot = slot_from_bytes(slots.get(index)?);
    // Only records of more than 32 bits need the next slot.
    let next: Option<Slot> = if (slot[0] >> 8) as u8 & stripewise_capture::format::flag::EXTENDED == 0 {
        None
    } else {
        slots.get(index + 1).map(slot_from_bytes)
    };
    RawEvent::decode(&slot, next.as_ref())
}

/// The files of all processes by path, and each process's map from key to index.
fn merge_files(scans: &[Scan]) -> (Vec<TracedFile>, Vec<Vec<Option<FileIndex>>>) {
    let mut files: Vec<TracedFile> = Vec::new();
    let mut by_path: HashMap<&str, usize> = HashMap::new();
    let mut maps = Vec::with_capacity(scans.len());
    for scan in scans {
        let mut map = Vec::new();
        for (key, found) in &scan.files {
            let index = *by_path.entry(&found.path).or_insert_with(|| {
                files.push(TracedFile {
                    path: found.path.clone(),
                    device: found.device,
                    inode: found.inode,
                    has_posix_data: false,
                    has_mpi_data: false,
                    has_unclassed_posix_writes: false,
                    has_unclassed_mpi_writes: false,
                });
                files.len() - 1
            });
            let levels = scan.levels.get(key.0 as usize).copied().unwrap_or(0);
            files[index].has_posix_data |= levels & scan::POSIX_DATA != 0;
            files[index].has_mpi_data |= levels & scan::MPI_DATA != 0;
            files[index].has_unclassed_posix_writes |= levels & scan::POSIX_UNCLASSED != 0;
            files[index].has_unclassed_mpi_writes |= levels & scan::MPI_UNCLASSED != 0;
            let place = key.0 as usize;
            if map.len() <= place {
                map.resize(place + 1, None);
            }
            map[place] = Some(FileIndex(index as u32));
        }
        maps.push(map);
    }
    let mut order: Vec<usize> = (0..files.len()).collect();
    order.sort_by(|left, right| files[*left].path.cmp(&files[*right].path));
    let mut rank = vec![0; files.len()];
    for (place, index) in order.iter().enumerate() {
        rank[*index] = place as u32;
    }
    for index in maps.iter_mut().flatten().flatten() {
        *index = FileIndex(rank[index.0 as usize]);
    }
    let sorted = order.iter().map(|index| files[*index].clone()).collect();
    (sorted, maps)
}
