//! The first look at the slots of a process: definitions, and what the merge needs to know of the records.

use super::{Communicator, Slots, decode_at};
use rayon::prelude::*;
use std::collections::HashMap;
use stripewise_capture::call::{Call, Level, Operation};
use stripewise_capture::format::{
    CONTINUATION_BYTES, CommunicatorKey, Definition, FileKey, SLOT_BYTES, definition_slots, flag, slot_from_bytes, tag,
};
use stripewise_layout::text::lossless;

pub(super) const POSIX_DATA: u8 = 1;
pub(super) const MPI_DATA: u8 = 2;
/// Writes whose records do not say what they waited for.
pub(super) const POSIX_UNCLASSED: u8 = 4;
pub(super) const MPI_UNCLASSED: u8 = 8;

pub(super) struct FoundFile {
    pub(super) path: String,
    pub(super) device: u64,
    pub(super) inode: u64,
}

#[derive(Default)]
pub(super) struct Scan {
    pub(super) events: u64,
    pub(super) skipped: u64,
    pub(super) first_tick: u64,
    pub(super) last_tick: u64,
    /// In order of appearance.
    pub(super) files: Vec<(FileKey, FoundFile)>,
    pub(super) communicators: HashMap<CommunicatorKey, Communicator>,
    /// By file key: which levels moved data, and of which the class of writes is not known.
    pub(super) levels: Vec<u8>,
}

/// What a first byte stands for: 0 nothing, else bits.
const RECORD: u8 = 1;
const OTHER: u8 = 2;
const UNKNOWN: u8 = 4;
const DATA_POSIX: u8 = 8;
const DATA_MPI: u8 = 16;
const DEFINITION: u8 = 32;
const WRITE: u8 = 64;

const KINDS: [u8; 256] = {
    let mut kinds = [UNKNOWN; 256];
    let mut index = 0;
    while index < Call::ALL.len() {
        let call = Call::ALL[index];
        let data = match (call.operation().is_data(), call.level()) {
            (false, _) => 0,
            (true, Level::Posix) => DATA_POSIX,
            (true, Level::MpiIo) => DATA_MPI,
        };
        let write = if matches!(call.operation(), Operation::Write) { WRITE } else { 0 };
        kinds[call.code() as usize] = RECORD | data | write;
        index += 1;
    }
    kinds[tag::EMPTY as usize] = OTHER;
    kinds[tag::EXTENSION as usize] = OTHER;
    kinds[tag::CONTINUATION as usize] = OTHER;
    kinds[tag::DEFINE_FILE as usize] = DEFINITION;
    kinds[tag::DEFINE_COMMUNICATOR as usize] = DEFINITION;
    kinds
};

/// Looks at all slots; `gives_back`: and lets go of their memory on the way.
pub(super) fn scan(source: &Slots, gives_back: bool) -> Scan {
    let slots = source.get();
    let chunks = slots.len().div_ceil(super::CHUNK_SLOTS);
    let parts: Vec<Scan> = (0..chunks)
        .into_par_iter()
        .map(|chunk| {
            let start = chunk * super::CHUNK_SLOTS;
            let range = start..slots.len().min(start + super::CHUNK_SLOTS);
            let scan = scan_range(slots, range.clone());
            if gives_back {
                source.give_back(&range);
            }
            scan
        })
        .collect();
    let mut whole = Scan { first_tick: u64::MAX, ..Scan::default() };
    for part in parts {
        whole.events += part.events;
        whole.skipped += part.skipped;
        whole.first_tick = whole.first_tick.min(part.first_tick);
        whole.last_tick = whole.last_tick.max(part.last_tick);
        whole.files.extend(part.files);
        whole.communicators.extend(part.communicators);
        if whole.levels.len() < part.levels.len() {
            whole.levels.resize(part.levels.len(), 0);
        }
        for (target, levels) in whole.levels.iter_mut().zip(part.levels) {
            *target |= levels;
        }
    }
    whole
}

/// Heads (first words) of records that fit one slot and whose level is noted already. Programs repeat a few calls on a few files, so
/// nearly every record is one of these, and only its times are left to look at.
struct KnownHeads([u64; 64]);

impl KnownHeads {
    /// No record: the first byte is that of an empty slot.
    const NONE: u64 = tag::EMPTY as u64;

    #[inline]
    fn place(head: u64) -> usize {
        (head.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 58) as usize
    }

    #[inline]
    fn holds(&self, head: u64) -> bool {
        self.0[Self::place(head)] == head && head != Self::NONE
    }
}

fn scan_range(slots: &[[u8; SLOT_BYTES]], range: std::ops::Range<usize>) -> Scan {
    let mut scan = Scan { first_tick: u64::MAX, ..Scan::default() };
    // Keys count up from 1 and every definition takes a slot, so larger keys are damage.
    let key_limit = slots.len() + 1;
    let mut known = KnownHeads([KnownHeads::NONE; 64]);
    let (mut events, mut first_tick, mut last_tick) = (0, u64::MAX, 0);
    let begin = range.start;
    for (place, slot) in slots[range].iter().enumerate() {
        let slot = slot_from_bytes(slot);
        let (mut start, mut end) = (slot[3], slot[3].saturating_add(slot[2] >> 32));
        if !known.holds(slot[0]) {
            let index = begin + place;
            let kind = KINDS[usize::from(slot[0] as u8)];
            if kind & RECORD == 0 {
                if kind & UNKNOWN != 0 || kind & DEFINITION != 0 && !define(&mut scan, slots, index) {
                    scan.skipped += 1;
                }
                continue;
            }
            if (slot[0] >> 8) as u8 & flag::EXTENDED == 0 {
                known.0[KnownHeads::place(slot[0])] = slot[0];
            } else if let Some(event) = decode_at(slots, index) {
                (start, end) = (event.start.0, event.end.0);
            } else {
                scan.skipped += 1;
                continue;
            }
            let is_classed = kind & WRITE == 0 || flag::has_write_class((slot[0] >> 8) as u8);
            note_level(&mut scan.levels, kind, is_classed, (slot[0] >> 32) as usize, key_limit);
        }
        events += 1;
        first_tick = start.min(first_tick);
        last_tick = end.max(last_tick);
    }
    Scan { events, first_tick, last_tick, ..scan }
}

fn note_level(levels: &mut Vec<u8>, kind: u8, is_classed: bool, key: usize, key_limit: usize) {
    let level = match (kind & (DATA_POSIX | DATA_MPI), is_classed) {
        (0, _) => return,
        (DATA_POSIX, true) => POSIX_DATA,
        (DATA_POSIX, false) => POSIX_DATA | POSIX_UNCLASSED,
        (_, true) => MPI_DATA,
        (_, false) => MPI_DATA | MPI_UNCLASSED,
    };
    if key >= levels.len() && key < key_limit {
        levels.resize(key + 1, 0);
    }
    if let Some(levels) = levels.get_mut(key) {
        *levels |= level;
    }
}

/// Takes up the definition at `index`; false when part of it is missing.
fn define(scan: &mut Scan, slots: &[[u8; SLOT_BYTES]], index: usize) -> bool {
    let Some(definition) = Definition::decode(&slot_from_bytes(&slots[index])) else { return false };
    let name_bytes = definition.name_bytes();
    let Some(parts) = slots.get(index + 1..index + definition_slots(name_bytes)) else { return false };
    if parts.iter().any(|part| part[0] != tag::CONTINUATION) {
        return false;
    }
    let mut name = Vec::with_capacity(parts.len() * CONTINUATION_BYTES);
    for part in parts {
        name.extend_from_slice(&part[1..]);
    }
    name.truncate(name_bytes);
    let name = lossless(&name);
    match definition {
        Definition::File { key, device, inode, .. } if (key.0 as usize) <= slots.len() => {
            scan.files.push((key, FoundFile { path: name, device, inode }));
        }
        Definition::File { .. } => return false,
        Definition::Communicator { key, hash, size, rank, .. } => {
            scan.communicators.insert(key, Communicator { name, hash, size, rank });
        }
    }
    true
}
