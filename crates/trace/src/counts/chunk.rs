//! Counts one chunk of slots: the inner loop.

use super::classes::ClassKey;
use super::{CountOptions, WINDOW_LIMIT};
use crate::call::{Call, Level, Operation};
use crate::format::{NO_OFFSET, flag, slot_from_bytes};
use crate::trace::{Chunk, FileIndex, ProcessIndex, Trace, WindowBounds, decode_at};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// What a record's first byte means to the counting.
mod kind {
    pub(super) const DATA: u8 = 1;
    pub(super) const WRITE: u8 = 2;
    pub(super) const RESIZE: u8 = 4;
    pub(super) const POSIX: u8 = 8;
    pub(super) const MPI: u8 = 16;
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
    pub(super) is_write: bool,
    pub(super) window: u32,
}

/// What a chunk says of one file.
pub(super) struct ChunkFile {
    pub(super) file: FileIndex,
    pub(super) first: Option<FirstRequest>,
    /// End of the last request.
    pub(super) last_end: u64,
    pub(super) largest_end: u64,
    /// Classes by their number in the tables.
    pub(super) classes: Vec<ClassKey>,
    class_numbers: HashMap<ClassKey, u32, Quick>,
    pub(super) windows: Vec<(u32, Table)>,
    current: usize,
}

/// What a chunk says.
pub(super) struct CountedChunk {
    pub(super) process: ProcessIndex,
    pub(super) files: Vec<ChunkFile>,
}

/// A multiplication is all that these keys need; their words differ in the low bits.
#[derive(Default)]
pub(super) struct MultiplyHasher(u64);
type Quick = BuildHasherDefault<MultiplyHasher>;

const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;

impl Hasher for MultiplyHasher {
    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }
    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(SPREAD);
    }
    fn write_u32(&mut self, word: u32) {
        self.write_u64(u64::from(word));
    }
}

/// Requests by region and class: a plain grid while that stays small, a map beyond.
pub(super) enum Table {
    Grid { counts: Vec<u32>, class_bits: u32 },
    Map(HashMap<(u32, u32), u32, Quick>),
}

/// Cells of a grid at most: 4 MiB.
const GRID_LIMIT: u64 = 1 << 20;

impl Table {
    const EMPTY: Self = Self::Grid { counts: Vec::new(), class_bits: 1 };

    #[inline]
    fn add(&mut self, region: u32, class: u32) {
        if let Self::Grid { counts, class_bits } = self
            && class >> *class_bits == 0
            && let Some(cell) = counts.get_mut(((region as usize) << *class_bits) | class as usize)
        {
            *cell += 1;
            return;
        }
        self.add_with_room(region, class);
    }

    #[cold]
    fn add_with_room(&mut self, region: u32, class: u32) {
        if let Self::Grid { counts, class_bits } = self {
            let mut bits = *class_bits;
            while class >> bits != 0 {
                bits += 1;
            }
            let rows = (u64::from(region) + 1).next_power_of_two().max((counts.len() >> *class_bits) as u64);
            if rows.checked_shl(bits).is_some_and(|cells| cells <= GRID_LIMIT) {
                let mut wider = vec![0; (rows << bits) as usize];
                for (index, count) in counts.iter().enumerate() {
                    let row = index >> *class_bits;
                    wider[(row << bits) | (index & ((1 << *class_bits) - 1))] = *count;
                }
                wider[((region as usize) << bits) | class as usize] += 1;
                *self = Self::Grid { counts: wider, class_bits: bits };
                return;
            }
            let mut map = HashMap::default();
            self.for_each(|region, class, count| {
                map.insert((region, class), count);
            });
            *self = Self::Map(map);
        }
        if let Self::Map(map) = self {
            *map.entry((region, class)).or_insert(0) += 1;
        }
    }

    /// Region, class and count of every cell in use; regions ascend in a grid.
    pub(super) fn for_each(&self, mut use_cell: impl FnMut(u32, u32, u32)) {
        match self {
            Self::Grid { counts, class_bits } => {
                for (index, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
                    use_cell((index >> class_bits) as u32, (index & ((1 << class_bits) - 1)) as u32, *count);
                }
            }
            Self::Map(map) => map.iter().for_each(|((region, class), count)| use_cell(*region, *class, *count)),
        }
    }
}

/// Regions of a file, by shift where their size allows.
#[derive(Clone, Copy)]
pub(super) struct Regions {
    bytes: u64,
    shift: Option<u32>,
}

impl Regions {
    pub(super) fn new(region_bytes: u64) -> Self {
        Self { bytes: region_bytes, shift: region_bytes.is_power_of_two().then(|| region_bytes.trailing_zeros()) }
    }

    #[inline]
    fn of(self, offset: u64) -> u64 {
        match self.shift {
            Some(shift) => offset >> shift,
            None => offset / self.bytes,
        }
    }

    /// Whether a request can be placed at all: within what the kernel's signed offsets and 2^32 regions reach.
    #[inline]
    pub(super) fn can_hold(self, offset: u64, bytes: u64) -> bool {
        offset != NO_OFFSET.0
            && offset.checked_add(bytes).is_some_and(|end| end < 1 << 62 && self.of(end - 1) <= u64::from(u32::MAX))
    }
}

impl ChunkFile {
    fn new(file: FileIndex) -> Self {
        Self {
            file,
            first: None,
            last_end: 0,
            largest_end: 0,
            classes: Vec::new(),
            class_numbers: HashMap::default(),
            windows: Vec::new(),
            current: usize::MAX,
        }
    }

    fn class_number(&mut self, key: ClassKey) -> u32 {
        *self.class_numbers.entry(key).or_insert_with(|| {
            self.classes.push(key);
            self.classes.len() as u32 - 1
        })
    }

    #[inline]
    fn table(&mut self, window: u32) -> &mut Table {
        if self.windows.get(self.current).is_none_or(|(number, _)| *number != window) {
            self.current = self.windows.iter().position(|(number, _)| *number == window).unwrap_or_else(|| {
                self.windows.push((window, Table::EMPTY));
                self.windows.len() - 1
            });
        }
        &mut self.windows[self.current].1
    }

    /// Adds a request, cut at region borders.
    pub(super) fn add(&mut self, regions: Regions, request: &FirstRequest, is_random: bool) {
        let end = request.offset + request.bytes;
        let mut start = request.offset;
        while start < end {
            let region = regions.of(start);
            let piece_end = end.min((region + 1).saturating_mul(regions.bytes));
            let class = self.class_number(ClassKey::new(request.is_write, is_random, piece_end - start));
            self.table(request.window).add(region as u32, class);
            start = piece_end;
        }
    }
}

/// The last class numbers used, by a multiplication of the class and its file.
struct RecentClasses([(u64, u32, u32); 256]);

impl RecentClasses {
    #[inline]
    fn number(&mut self, slot: u32, key: ClassKey, file: &mut ChunkFile) -> u32 {
        let word = key.word();
        let place = ((word ^ u64::from(slot) << 56).wrapping_mul(SPREAD) >> 56) as usize;
        let entry = &mut self.0[place];
        if entry.0 != word || entry.1 != slot {
            *entry = (word, slot, file.class_number(key));
        }
        entry.2
    }
}

/// No file of the chunk yet.
const UNSEEN: u32 = u32::MAX;

pub(super) fn count(trace: &Trace, options: &CountOptions, chunk: &Chunk) -> CountedChunk {
    let process = trace.process(chunk.process);
    let slots = process.slots();
    let regions = Regions::new(options.region_size.0);
    let window_ns = window_ns(options);
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
    let mut recent = RecentClasses([(0, UNSEEN, 0); 256]);
    let mut window = 0;
    let mut bounds = WindowBounds::NONE;
    for index in chunk.slots.clone() {
        let slot = slot_from_bytes(&slots[index]);
        let kind = KINDS[usize::from(slot[0] as u8)];
        let flags = (slot[0] >> 8) as u8;
        let Some((place, level)) = places.get_mut((slot[0] >> 32) as usize) else { continue };
        if kind & *level == 0 || flags & flag::FAILED != 0 {
            continue;
        }
        let offset = slot[1];
        let bytes = if flags & flag::EXTENDED == 0 {
            slot[2] & 0xFFFF_FFFF
        } else {
            let Some(event) = decode_at(slots, index) else { continue };
            event.bytes
        };
        if *place == UNSEEN {
            let Some(file) = process.files_by_key()[(slot[0] >> 32) as usize] else { continue };
            // Several keys of a process may be one file.
            *place = *place_of_file.entry(file).or_insert_with(|| {
                files.push(ChunkFile::new(file));
                files.len() as u32 - 1
            });
        }
        let file = &mut files[*place as usize];
        if kind & kind::RESIZE != 0 {
            file.largest_end = file.largest_end.max(if offset < 1 << 62 { offset } else { 0 });
            continue;
        }
        if bytes == 0 || !regions.can_hold(offset, bytes) {
            continue;
        }
        if !bounds.holds(slot[3]) {
            (window, bounds) = process.timeline().window(slot[3], window_ns, WINDOW_LIMIT - 1);
        }
        let end = offset + bytes;
        file.largest_end = file.largest_end.max(end);
        let is_write = kind & kind::WRITE != 0;
        if file.first.is_none() {
            file.first = Some(FirstRequest { offset, bytes, is_write, window });
            file.last_end = end;
            continue;
        }
        let is_random = offset.wrapping_sub(file.last_end) > options.forward_skip_bytes;
        file.last_end = end;
        let region = regions.of(offset);
        if region == regions.of(end - 1) {
            let class = recent.number(*place, ClassKey::new(is_write, is_random, bytes), file);
            file.table(window).add(region as u32, class);
        } else {
            file.add(regions, &FirstRequest { offset, bytes, is_write, window }, is_random);
        }
    }
    CountedChunk { process: chunk.process, files }
}

pub(super) fn window_ns(options: &CountOptions) -> u64 {
    ((options.window_s * 1e9).round() as u64).max(1)
}
