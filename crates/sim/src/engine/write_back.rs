//! Buffered writes: done at once for the process, and written back in order of place.
//!
//! The clients' dirty data of a server stands in one queue. The next stretch is the first behind the last one written, as
//! an elevator goes, with all that adjoins it; a few are on their way at a time, so that link and device are busy at once.
//! Above the limit a process waits until enough is written back, and the run ends when nothing is dirty.

use super::Engine;
use super::travel::{Sending, WRITE_BACK};
use crate::addresses::Extents;
use crate::places::Part;
use std::collections::{BTreeMap, VecDeque};
use stripewise_layout::{Direction, RegionIndex};

/// Most bytes written back at a time.
const STRETCH_BYTES: u64 = 1 << 20;

/// Stretches on their way to one server, at most.
const MAX_ON_THEIR_WAY: usize = 4;

/// Where a stretch begins: file, region, and position in the object.
type Begin = (usize, u32, u64);

/// Dirty bytes side by side.
#[derive(Clone, Copy)]
struct Stretch {
    bytes: u64,
    turn: u32,
    /// The node of the process that wrote first.
    node: u32,
    extents: Option<Extents>,
}

/// The dirty data of one server.
#[derive(Default)]
struct Dirty {
    stretches: BTreeMap<Begin, Stretch>,
    /// Of the stretches and of what is on its way.
    bytes: u64,
    /// Bytes of each, as sent.
    on_their_way: VecDeque<u64>,
    /// Where the last stretch ended.
    cursor: Begin,
    /// Processes that wait for less to be dirty.
    throttled: VecDeque<u32>,
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
        let ahead = self.stretches.range(self.cursor..).next().or_else(|| self.stretches.iter().next());
        let (begin, stretch) = ahead.map(|(begin, stretch)| (*begin, *stretch))?;
        self.stretches.remove(&begin);
        let taken = Stretch { bytes: stretch.bytes.min(STRETCH_BYTES), ..stretch };
        self.cursor = (begin.0, begin.1, begin.2 + taken.bytes);
        if stretch.bytes > taken.bytes {
            self.stretches.insert(self.cursor, Stretch { bytes: stretch.bytes - taken.bytes, ..stretch });
        }
        Some((begin, taken))
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
        if dirty.on_their_way.len() >= MAX_ON_THEIR_WAY {
            return;
        }
        let Some(((file, region, offset), stretch)) = dirty.next() else { return };
        dirty.on_their_way.push_back(stretch.bytes);
        let Stretch { bytes, turn, node, extents } = stretch;
        let region = RegionIndex(region);
        let sending = Sending { owner: WRITE_BACK, node, direction: Direction::Write, file, region, extents };
        self.send(&sending, Part { turn, server, offset, bytes });
    }

    /// One of the stretches that were on their way to a server is written.
    pub(super) fn written_back(&mut self, server: u32) {
        self.outcome.events += 1;
        let Some(write_back) = &mut self.write_back else { return };
        let limit_bytes = write_back.limit_bytes;
        let dirty = &mut write_back.servers[server as usize];
        dirty.bytes -= dirty.on_their_way.pop_front().unwrap_or(0);
        if dirty.bytes <= limit_bytes {
            for process in std::mem::take(&mut dirty.throttled) {
                self.part_done(process, self.now);
            }
        }
        self.write_next(server);
    }
}
