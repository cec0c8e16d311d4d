//! Counts one chunk of slots: the inner loop.

use super::CountOptions;
use super::classes::{ClassKey, Classes, Limits};
use super::hashing::{Quick, SPREAD};
use super::instants::{Instants, Place};
use super::synchronized::SyncNotes;
use super::table::{Slice, Small, Table};
use crate::trace::{Chunk, FileIndex, ProcessIndex, TickRange, Trace, TraceTime, decode_at};
use std::collections::HashMap;
use stripewise_capture::call::{Call, Level, Operation};
use stripewise_capture::format::{NO_OFFSET, RawEvent, flag, slot_from_bytes};
use stripewise_layout::RequestKind;

/// What a record's first byte means to the counting.
mod kind {
    pub(super) const DATA: u8 = 1;
    pub(super) const WRITE: u8 = 2;
    pub(super) const RESIZE: u8 = 4;
    pub(super) const POSIX: u8 = 8;
    pub(super) const MPI: u8 = 16;
    pub(super) const SYNC: u8 = 32;
}

const KINDS: [u8; 256] = {
    let mut kinds = [0; 256];
    let mut index = 0;
    while index < Call::ALL.len() {
        let call = Call::ALL[index];
        let level = match call.level() {
            Level::Posix => kind::POSIX,
            Level::MpiIo => kind::MPI,
        };
        kinds[call.code() as usize] = match call.operation() {
            Operation::Read => level | kind::DATA,
            Operation::Write => level | kind::DATA | kind::WRITE,
            Operation::Truncate => level | kind::RESIZE,
            // What stdio holds back goes to the kernel, not to a server.
            Operation::Sync if !matches!(call, Call::Fflush) => level | kind::SYNC,
            _ => 0,
        };
        index += 1;
    }
    kinds
};

/// A request whose order the merge has to decide.
#[derive(Clone, Copy, Debug)]
pub(super) struct FirstRequest {
    pub(super) offset: u64,
    pub(super) bytes: u64,
    pub(super) kind: RequestKind,
    pub(super) place: Place,
    pub(super) start: TraceTime,
}

/// The last request of a process on a file before the process came to other parts of a window.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    pub(super) offset: u64,
    pub(super) bytes: u64,
    pub(super) start: TraceTime,
    pub(super) end: TraceTime,
    /// It was the last one at the begin of the parts after `from` up to `to`.
    pub(super) from: u32,
    pub(super) to: u32,
}

/// What a chunk says of one file.
pub(super) struct ChunkFile {
    pub(super) file: FileIndex,
    pub(super) first: Option<FirstRequest>,
    /// End of the last request.
    pub(super) last_end: u64,
    pub(super) largest_end: u64,
    pub(super) requests: u64,
    pub(super) classes: Classes,
    pub(super) windows: Vec<(u32, Table)>,
    window_places: HashMap<u32, usize, Quick>,
    /// Of the first tables.
    small: Small,
    /// The place in `windows` of the window that the last request began in.
    current: usize,
    /// The part that the last request began in, [`NO_PART`] as long as `current` is not known.
    part: u32,
    pub(super) held: Vec<Held>,
    /// The latest part that a request began in.
    pub(super) last_part: u32,
    last_index: usize,
    /// The last request.
    pub(super) last: Option<Held>,
    pub(super) synced: SyncNotes,
}

/// What a chunk says.
pub(super) struct CountedChunk {
    pub(super) process: ProcessIndex,
    pub(super) files: Vec<ChunkFile>,
    /// Requests that no file can hold.
    pub(super) impossible: u64,
}

/// A request over more regions is damage: POSIX moves at most 2 GiB at once.
const REGIONS_OF_REQUEST: u64 = 1 << 16;

/// Regions of a file, by shift where their size allows.
#[derive(Clone, Copy)]
pub(super) struct Regions {
    bytes: u64,
    shift: Option<u32>,
    /// No request ends beyond: what the kernel's signed offsets and 2^32 regions reach.
    end_limit: u64,
}

impl Regions {
    pub(super) fn new(region_bytes: u64) -> Self {
        Self {
            bytes: region_bytes,
            shift: region_bytes.is_power_of_two().then(|| region_bytes.trailing_zeros()),
            end_limit: region_bytes.saturating_mul(1 << 32).min((1 << 62) - 1),
        }
    }

    #[inline]
    fn of(self, offset: u64) -> u64 {
        match self.shift {
            Some(shift) => offset >> shift,
            None => offset / self.bytes,
        }
    }

    /// The first and the last region of a request that moves bytes; none if it cannot be placed at all: beyond any end, or over more
    /// regions than any call moves bytes for.
    #[inline]
    pub(super) fn of_request(self, offset: u64, bytes: u64) -> Option<(u64, u64)> {
        // No bytes wrap to the most.
        if bytes.wrapping_sub(1) >= self.end_limit || offset > self.end_limit - bytes {
            return None;
        }
        let (first, last) = (self.of(offset), self.of(offset + bytes - 1));
        (last - first < REGIONS_OF_REQUEST).then_some((first, last))
    }
}

impl ChunkFile {
    fn new(file: FileIndex, small: Small) -> Self {
        Self {
            file,
            small,
            first: None,
            last_end: 0,
            largest_end: 0,
            requests: 0,
            classes: Classes::default(),
            windows: Vec::new(),
            window_places: HashMap::default(),
            current: usize::MAX,
            part: NO_PART,
            held: Vec::new(),
            last_part: 0,
            last_index: usize::MAX,
            last: None,
            synced: SyncNotes::default(),
        }
    }

    /// Requests of each class so far.
    pub(super) fn requests_by_class(&self) -> Vec<u64> {
        let mut requests = vec![0u64; self.classes.len()];
        for (_, table) in &self.windows {
            table.for_each(|_, class, count, _| requests[class as usize] += u64::from(count));
        }
        requests
    }

    /// Of a class that is new or that sizes are rounded for.
    #[cold]
    fn class_number(&mut self, key: ClassKey, limits: &Limits) -> u32 {
        // A bound that holds without counting cells: those of the file are limited where its chunks are joined.
        while self.classes.is_too_fine(limits, 0) {
            let requests = self.requests_by_class();
            let map = self.classes.coarsen(&requests);
            self.windows.iter_mut().for_each(|(_, table)| table.renumber(&map));
        }
        self.classes.number(key)
    }

    fn table(&mut self, window: u32) -> &mut Table {
        if self.windows.get(self.current).is_none_or(|(number, _)| *number != window) {
            self.go_to(window);
        }
        &mut self.windows[self.current].1
    }

    #[cold]
    fn go_to(&mut self, window: u32) {
        self.current = *self.window_places.entry(window).or_insert_with(|| {
            let small = if self.windows.len() < FEW { self.small } else { Small::FOR_MANY };
            self.windows.push((window, Table::new(small)));
            self.windows.len() - 1
        });
    }

    /// Adds a request, cut at region borders.
    pub(super) fn add(&mut self, regions: Regions, request: &FirstRequest, is_random: bool, limits: &Limits) {
        let end = request.offset + request.bytes;
        let mut start = request.offset;
        while start < end {
            let region = regions.of(start);
            let piece_end = end.min((region + 1).saturating_mul(regions.bytes));
            let class = self.class_number(ClassKey::new(request.kind, is_random, piece_end - start), limits);
            self.table(request.place.window).add(region as u32, class, Slice::of(request.place.slice));
            start = piece_end;
        }
    }

    /// The process has come to another part: goes to its window, and notes, if that is of interest, that the last request stood until
    /// now.
    #[cold]
    fn enter(
        &mut self,
        now: Place,
        instants: &Instants,
        at: impl Fn(usize) -> Option<(RawEvent, TraceTime, TraceTime)>,
    ) {
        self.table(now.window);
        self.synced.go_to(now);
        self.part = now.part;
        let (from, to) = (self.last_part, now.part);
        if to <= from {
            return;
        }
        if instants.is_any_between(from, to)
            && let Some((event, start, end)) = at(self.last_index)
        {
            self.held.push(Held { offset: event.offset.0, bytes: event.bytes, start, end, from, to });
        }
        self.last_part = to;
    }
}

/// The last class numbers used, by a multiplication of the class and its file.
struct RecentClasses([(u64, u32, u32); 256]);

impl RecentClasses {
    const NONE: Self = Self([(0, UNSEEN, 0); 256]);

    #[inline]
    fn number(&mut self, slot: u32, key: ClassKey, file: &mut ChunkFile, limits: &Limits) -> u32 {
        let word = key.word();
        let place = ((word ^ u64::from(slot) << 56).wrapping_mul(SPREAD) >> 56) as usize;
        let entry = self.0[place];
        if entry.0 == word && entry.1 == slot {
            return entry.2;
        }
        let number = file.class_number(key, limits);
        // Rounded classes add up their bytes, so every request has to be seen.
        if file.classes.level() == 0 {
            self.0[place] = (word, slot, number);
        } else {
            self.forget(slot);
        }
        number
    }

    fn forget(&mut self, slot: u32) {
        self.0.iter_mut().filter(|entry| entry.1 == slot).for_each(|entry| entry.1 = UNSEEN);
    }
}

/// Files of a chunk, and windows of each, whose tables are the few of [`Small::FOR_FEW`].
const FEW: usize = 4;

/// No part has this number: there are at most 2^16 windows of 512 parts.
const NO_PART: u32 = u32::MAX;

/// No file of the chunk yet.
const UNSEEN: u32 = u32::MAX;

pub(super) fn count(
    trace: &Trace,
    options: &CountOptions,
    instants: &Instants,
    limits: &Limits,
    chunk: &Chunk,
) -> CountedChunk {
    let process = trace.process(chunk.process);
    let slots = process.slots();
    let regions = Regions::new(options.region_size.0);
    let mut files: Vec<ChunkFile> = Vec::new();
    let mut place_of_file = HashMap::new();
    // By file key: the place in `files`, and the kinds that count for the file.
    let mut places: Vec<(u32, u8)> = process
        .files_by_key()
        .iter()
        .map(|file| {
            let level = file.and_then(|file| trace.file(file).data_level());
            let kinds = match level {
                Some(Level::Posix) => kind::POSIX,
                Some(Level::MpiIo) => kind::MPI,
                None => 0,
            };
            (UNSEEN, kinds)
        })
        .collect();
    let event_at = |index: usize| {
        let event = decode_at(slots, index)?;
        Some((event, process.timeline().trace_time(event.start.0), process.timeline().trace_time(event.end.0)))
    };
    let mut recent = RecentClasses::NONE;
    let mut now = Place { window: 0, slice: 1, part: 0 };
    let mut slice = Slice::of(now.slice);
    let mut ticks = TickRange::NONE;
    let mut impossible = 0;
    for index in chunk.slots.clone() {
        let slot = slot_from_bytes(&slots[index]);
        let kind = KINDS[usize::from(slot[0] as u8)];
        let flags = (slot[0] >> 8) as u8;
        let Some((place, level)) = places.get_mut((slot[0] >> 32) as usize) else { continue };
        if kind & *level == 0 || flags & flag::FAILED != 0 {
            continue;
        }
        let offset = slot[1];
        let (bytes, ticks_in_call) = if flags & flag::EXTENDED == 0 {
            (slot[2] & 0xFFFF_FFFF, slot[2] >> 32)
        } else {
            let Some(event) = decode_at(slots, index) else { continue };
            (event.bytes, event.end.0.saturating_sub(event.start.0))
        };
        if *place == UNSEEN {
            let Some(file) = process.files_by_key()[(slot[0] >> 32) as usize] else { continue };
            // Several keys of a process may be one file.
            *place = *place_of_file.entry(file).or_insert_with(|| {
                let small = if files.len() < FEW { Small::FOR_FEW } else { Small::FOR_MANY };
                files.push(ChunkFile::new(file, small));
                files.len() as u32 - 1
            });
        }
        let file = &mut files[*place as usize];
        if kind & kind::DATA == 0 {
            if kind & kind::SYNC != 0 {
                if let Some((_, start, end)) = event_at(index) {
                    file.synced.sync(instants.place(start), instants.place(end));
                }
            } else {
                file.largest_end = file.largest_end.max(if offset < 1 << 62 { offset } else { 0 });
            }
            continue;
        }
        let Some((region, last_region)) = regions.of_request(offset, bytes) else {
            impossible += u64::from(bytes > 0 && offset != NO_OFFSET.0);
            continue;
        };
        if !ticks.holds(slot[3]) {
            (now, ticks) = instants.place_of_ticks(process, slot[3]);
            slice = Slice::of(now.slice);
        }
        let end = offset + bytes;
        file.largest_end = file.largest_end.max(end);
        file.requests += 1;
        let request =
            if kind & kind::WRITE == 0 { RequestKind::Read } else { RequestKind::Write(flag::write_class(flags)) };
        if now.part != file.part {
            if file.first.is_none() {
                file.synced.go_to(now);
                file.synced.add(request, ticks_in_call);
                let start = process.timeline().trace_time(slot[3]);
                file.first = Some(FirstRequest { offset, bytes, kind: request, place: now, start });
                (file.last_end, file.last_part, file.last_index) = (end, now.part, index);
                continue;
            }
            file.enter(now, instants, event_at);
        }
        file.synced.add(request, ticks_in_call);
        let is_random = offset.wrapping_sub(file.last_end) > options.forward_skip_bytes;
        (file.last_end, file.last_index) = (end, index);
        if region == last_region {
            let class = recent.number(*place, ClassKey::new(request, is_random, bytes), file, limits);
            file.windows[file.current].1.add(region as u32, class, slice);
        } else {
            let request = FirstRequest { offset, bytes, kind: request, place: now, start: TraceTime(0) };
            let level = file.classes.level();
            file.add(regions, &request, is_random, limits);
            if file.classes.level() != level {
                recent.forget(*place);
            }
        }
    }
    for file in &mut files {
        file.synced.note();
        file.synced.seconds_per_tick = process.timeline().seconds_per_tick();
        file.last = event_at(file.last_index).map(|(event, start, end)| {
            let (from, to) = (file.last_part, instants.last_part());
            Held { offset: event.offset.0, bytes: event.bytes, start, end, from, to }
        });
    }
    CountedChunk { process: chunk.process, files, impossible }
}
