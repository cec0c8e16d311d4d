//! Buffered writes: done at once for the process, and written back in order of place.
//!
//! The clients' dirty data of a server stands in one queue. The next stretch is the first behind the last one written, as
//! an elevator goes, with all that adjoins it; a few are on their way at a time, so that link and device are busy at once.
//! Above the limit a process waits until enough is written back, and the run ends when nothing is dirty.
//!
//! A synchronization waits until everything of its file that was dirty when it began has been written. That is then sent before
//! all else. What is dirtied meanwhile is not waited for.

use super::Engine;
use super::travel::{Sending, WRITE_BACK};
use crate::addresses::Extents;
use crate::places::Part;
use std::collections::{BTreeMap, VecDeque};
use stripewise_layout::{Direction, RegionIndex};

/// Most bytes written back at a time.
const STRETCH_BYTES: u64 = 1 << 20;

/// Stretches on their way to one server, at most.
const MAX_ON_THEIR_WAY: u32 = 4;

/// Where a stretch begins: file, region, and position in the object.
type Begin = (usize, u32, u64);

const START: Begin = (0, 0, 0);

/// Dirty bytes side by side.
#[derive(Clone, Copy)]
struct Stretch {
    bytes: u64,
    turn: u32,
    /// The node of the process that wrote first.
    node: u32,
    extents: Option<Extents>,
}

/// What a synchronization waits for on one server.
struct Syncing {
    process: u32,
    /// Of the places that may be on their way to the server, those that were; a bit each.
    on_their_way: u8,
    /// Where dirty bytes begin that were not, and the position behind them.
    dirty: BTreeMap<Begin, u64>,
}

impl Syncing {
    /// What lay in this place and was sent to the server is written.
    fn written(&mut self, place: u32, begin: Begin, bytes: u64) {
        if self.on_their_way >> place & 1 == 1 {
            // Bytes that were dirtied again in the meantime are written again.
            self.on_their_way &= !(1 << place);
            return;
        }
        let (file, region, start) = begin;
        let end = start + bytes;
        let touched = self.dirty.range((file, region, 0)..(file, region, end)).filter(|(_, behind)| **behind > start);
        let touched: Vec<(Begin, u64)> = touched.map(|(begin, behind)| (*begin, *behind)).collect();
        for (known, behind) in touched {
            self.dirty.remove(&known);
            if known.2 < start {
                self.dirty.insert(known, start);
            }
            if behind > end {
                self.dirty.insert((file, region, end), behind);
            }
        }
    }

    fn is_over(&self) -> bool {
        self.on_their_way == 0 && self.dirty.is_empty()
    }
}

/// The dirty data of one server.
#[derive(Default)]
struct Dirty {
    stretches: BTreeMap<Begin, Stretch>,
    /// Of the stretches and of what is on its way.
    bytes: u64,
    /// What was sent, and how many bytes of it.
    on_their_way: [Option<(Begin, u64)>; MAX_ON_THEIR_WAY as usize],
    /// Where the last stretch ended.
    cursor: Begin,
    /// Processes that wait for less to be dirty.
    throttled: VecDeque<u32>,
    syncing: Vec<Syncing>,
}

impl Dirty {
    /// Adds bytes, joined with those that they overlap or adjoin.
    fn add(&mut self, begin: Begin, mut stretch: Stretch) {
        let (file, region, mut start) = begin;
        let mut end = start + stretch.bytes;
        let before = self.stretches.range(..=begin).next_back().map(|(place, known)| (*place, *known));
        let behind = |place: &Begin| place.0 == file && place.1 == region;
        if let Some((place, known)) = before.filter(|(place, known)| behind(place) && place.2 + known.bytes >= start) {
            self.remove(place);
            (start, end) = (place.2, end.max(place.2 + known.bytes));
        }
        while let Some((place, known)) = self
            .stretches
            .range((file, region, start)..=(file, region, end))
            .next()
            .map(|(place, known)| (*place, *known))
        {
            self.remove(place);
            end = end.max(place.2 + known.bytes);
        }
        stretch.bytes = end - start;
        self.bytes += stretch.bytes;
        self.stretches.insert((file, region, start), stretch);
    }

    fn remove(&mut self, place: Begin) {
        if let Some(known) = self.stretches.remove(&place) {
            self.bytes -= known.bytes;
        }
    }

    /// Takes the next stretch out; it stays dirty until it is written.
    fn next(&mut self) -> Option<(Begin, Stretch)> {
        let ahead = || self.stretches.range(self.cursor..).next().or_else(|| self.stretches.iter().next());
        let next = self.awaited(self.cursor).or_else(|| self.awaited(START)).or_else(ahead);
        let (begin, stretch) = next.map(|(begin, stretch)| (*begin, *stretch))?;
        self.stretches.remove(&begin);
        let taken = Stretch { bytes: stretch.bytes.min(STRETCH_BYTES), ..stretch };
        self.cursor = (begin.0, begin.1, begin.2 + taken.bytes);
        if stretch.bytes > taken.bytes {
            self.stretches.insert(self.cursor, Stretch { bytes: stretch.bytes - taken.bytes, ..stretch });
        }
        Some((begin, taken))
    }

    /// The first stretch from there on that holds what a synchronization waits for.
    fn awaited(&self, from: Begin) -> Option<(&Begin, &Stretch)> {
        let is_before = |begin: &Begin, behind: u64, at: &Begin| (begin.0, begin.1) == (at.0, at.1) && behind > at.2;
        // None where the bytes are on their way.
        let at = |at: Begin| {
            let stretch = self.stretches.range(..=at).next_back();
            stretch.filter(|(begin, stretch)| is_before(begin, begin.2 + stretch.bytes, &at))
        };
        let of_one = |syncing: &Syncing| {
            let around =
                syncing.dirty.range(..from).next_back().filter(|(begin, behind)| is_before(begin, **behind, &from));
            let behind = syncing.dirty.range(from..).map(|(begin, _)| *begin);
            around.map(|_| from).into_iter().chain(behind).find_map(at)
        };
        self.syncing.iter().filter_map(of_one).min_by_key(|(begin, _)| **begin)
    }

    /// What a synchronization of a file that begins now has to wait for, if there is anything.
    fn syncing(&self, process: u32, file: usize) -> Option<Syncing> {
        let is_of_file = |sent: &Option<(Begin, u64)>| sent.is_some_and(|((of, ..), _)| of == file);
        let sent = self.on_their_way.iter().enumerate().filter(|(_, sent)| is_of_file(sent));
        let on_their_way = sent.fold(0, |bits, (place, _)| bits | 1 << place);
        let stretches = self.stretches.range((file, 0, 0)..(file + 1, 0, 0));
        let dirty = stretches.map(|(begin, stretch)| (*begin, begin.2 + stretch.bytes)).collect();
        Some(Syncing { process, on_their_way, dirty }).filter(|syncing| !syncing.is_over())
    }
}

/// What waits to be written back, by server.
pub(super) struct WriteBack {
    limit_bytes: u64,
    servers: Vec<Dirty>,
}

impl WriteBack {
    pub(super) fn new(limit_bytes: u64, servers: usize) -> Self {
        Self { limit_bytes, servers: (0..servers).map(|_| Dirty::default()).collect() }
    }

    pub(super) fn is_clean(&self) -> bool {
        self.servers.iter().all(|dirty| dirty.bytes == 0)
    }

    /// Makes a process wait if too much is dirty on any of the servers that it just wrote to; false if it need not.
    pub(super) fn throttle(&mut self, process: u32, mut servers: impl Iterator<Item = u32>) -> bool {
        let full = servers.find(|server| self.servers[*server as usize].bytes > self.limit_bytes);
        if let Some(server) = full {
            self.servers[server as usize].throttled.push_back(process);
        }
        full.is_some()
    }

    /// Has a process told when what is dirty now of the file has been written; returns on how many servers something is.
    pub(super) fn synchronize(&mut self, process: u32, file: usize) -> u32 {
        let mut servers = 0;
        for dirty in &mut self.servers {
            if let Some(syncing) = dirty.syncing(process, file) {
                dirty.syncing.push(syncing);
                servers += 1;
            }
        }
        servers
    }
}

impl Engine<'_> {
    /// Takes a part of a buffered write in.
    pub(super) fn keep_dirty(&mut self, sending: &Sending, part: Part) {
        let Some(write_back) = &mut self.write_back else { return };
        let stretch = Stretch { bytes: part.bytes, turn: part.turn, node: sending.node, extents: sending.extents };
        write_back.servers[part.server as usize].add((sending.file, sending.region.0, part.offset), stretch);
        self.write_next(part.server);
    }

    fn write_next(&mut self, server: u32) {
        let Some(write_back) = &mut self.write_back else { return };
        let dirty = &mut write_back.servers[server as usize];
        let Some(place) = dirty.on_their_way.iter().position(Option::is_none) else { return };
        let Some((begin @ (file, region, offset), stretch)) = dirty.next() else { return };
        dirty.on_their_way[place] = Some((begin, stretch.bytes));
        let Stretch { bytes, turn, node, extents } = stretch;
        let region = RegionIndex(region);
        let owner = WRITE_BACK - (server * MAX_ON_THEIR_WAY + place as u32);
        let sending = Sending { owner, node, direction: Direction::Write, file, region, extents };
        self.send(&sending, Part { turn, server, offset, bytes });
    }

    /// A stretch that was on its way is written; its number says to which server, and which of those on their way it was.
    pub(super) fn written_back(&mut self, stretch: u32) {
        self.outcome.events += 1;
        let (server, place) = (stretch / MAX_ON_THEIR_WAY, stretch % MAX_ON_THEIR_WAY);
        let Some(write_back) = &mut self.write_back else { return };
        let limit_bytes = write_back.limit_bytes;
        let dirty = &mut write_back.servers[server as usize];
        let mut go_on = Vec::new();
        if let Some((begin, bytes)) = dirty.on_their_way[place as usize].take() {
            dirty.bytes -= bytes;
            dirty.syncing.iter_mut().for_each(|syncing| syncing.written(place, begin, bytes));
            go_on.extend(dirty.syncing.extract_if(.., |syncing| syncing.is_over()).map(|syncing| syncing.process));
        }
        if dirty.bytes <= limit_bytes {
            go_on.extend(std::mem::take(&mut dirty.throttled));
        }
        for process in go_on {
            self.part_done(process, self.now);
        }
        self.write_next(server);
    }
}
