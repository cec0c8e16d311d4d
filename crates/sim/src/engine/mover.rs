//! Regions that change their place at a border.
//!
//! The mover copies one region after the other, each chunk read from the old servers and then written to the new ones, through the same
//! stations as the program's requests. [`crate::Migration::Copied`] says what reads and writes see meanwhile.

use super::travel::{MOVER, NO_NODE, Sending};
use super::{Engine, Event};
use crate::addresses::Extents;
use crate::scenario::Migration;
use crate::timeline::Moved;
use std::collections::VecDeque;
use stripewise_device::{DeviceSpec, Nanos};
use stripewise_layout::{Direction, RegionIndex, RegionPiece};

/// A region that shall get a new layout.
#[derive(Clone, Copy, Debug)]
struct Move {
    file: usize,
    region: RegionIndex,
    cycle: u32,
    /// Share of the region that comes to SSDs minus the share that lies there: negative leaves them.
    towards_ssd: f64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Doing {
    Reading,
    Writing,
    /// Waits, so that the bandwidth is kept.
    Pausing,
}

/// The region that is being copied.
#[derive(Clone, Copy, Debug)]
struct Copying {
    target: Move,
    extents: Option<Extents>,
    used_bytes: u64,
    /// Bytes that are copied.
    copied: u64,
    /// Of the chunk on its way.
    chunk_bytes: u64,
    began: Nanos,
    doing: Doing,
    /// The chunk was written to meanwhile.
    is_marked: bool,
    /// The region shall lie elsewhere by now.
    is_abandoned: bool,
}

#[derive(Default)]
pub(super) struct Mover {
    pending: VecDeque<Move>,
    copying: Option<Copying>,
    outstanding: u32,
    end: Nanos,
}

impl Engine<'_> {
    /// Enters `window` of a file.
    pub(super) fn enter_window(&mut self, file: usize, window: usize) {
        let changes = self.places.enter(file, window);
        if self.scenario.options.migration == Migration::Free {
            for (region, cycle) in changes {
                let bytes = self.places.files[file].region_bytes(region);
                self.outcome.moved_bytes += bytes;
                if let Some(addresses) = &mut self.addresses {
                    let extents = addresses.allocate(self.places.cycle(cycle), bytes);
                    addresses.set(file, region, extents);
                }
                self.places.set(file, region, cycle);
            }
            return;
        }
        let servers = &self.scenario.system.servers;
        let is_ssd = |server: u32| matches!(servers[server as usize].device, DeviceSpec::Ssd(_));
        self.mover.pending.retain(|pending| pending.file != file);
        let mut wanted_of_current = None;
        for (region, cycle) in changes {
            if let Some(copying) = &self.mover.copying
                && (copying.target.file, copying.target.region) == (file, region)
                && copying.target.cycle == cycle
            {
                wanted_of_current = Some(cycle);
                continue;
            }
            let now = self.places.cycle(self.places.cycle_number(file, region)).share_on(is_ssd);
            let towards_ssd = self.places.cycle(cycle).share_on(is_ssd) - now;
            self.mover.pending.push_back(Move { file, region, cycle, towards_ssd });
        }
        if let Some(copying) = &mut self.mover.copying
            && copying.target.file == file
        {
            copying.is_abandoned = wanted_of_current.is_none();
        }
        // Stable: regions of equal rank in order.
        self.mover.pending.make_contiguous().sort_by(|left, right| left.towards_ssd.total_cmp(&right.towards_ssd));
        if self.mover.copying.is_none() {
            self.next_move();
        }
    }

    fn next_move(&mut self) {
        self.take_next();
        if self.mover.copying.is_some() {
            self.read_chunk();
        }
    }

    /// Takes the next region in hand that holds any bytes.
    fn take_next(&mut self) {
        while let Some(target) = self.mover.pending.pop_front() {
            let used_bytes = self.places.files[target.file].region_bytes(target.region);
            let cycle = self.places.cycle(target.cycle);
            let extents = self.addresses.as_mut().map(|addresses| addresses.allocate(cycle, used_bytes));
            let copying = Copying {
                target,
                extents,
                used_bytes,
                copied: 0,
                chunk_bytes: 0,
                began: self.now,
                doing: Doing::Pausing,
                is_marked: false,
                is_abandoned: false,
            };
            if used_bytes > 0 {
                self.mover.copying = Some(copying);
                return;
            }
            self.settle(&copying);
        }
    }

    /// The region lies in its new place.
    fn settle(&mut self, copying: &Copying) {
        let Move { file, region, cycle, .. } = copying.target;
        self.places.set(file, region, cycle);
        if let (Some(addresses), Some(extents)) = (&mut self.addresses, copying.extents) {
            addresses.set(file, region, extents);
        }
    }

    fn read_chunk(&mut self) {
        let Migration::Copied { chunk, .. } = self.scenario.options.migration else { return };
        let Some(copying) = &mut self.mover.copying else { return };
        copying.chunk_bytes = chunk.0.min(copying.used_bytes - copying.copied);
        (copying.began, copying.doing, copying.is_marked) = (self.now, Doing::Reading, false);
        let Move { file, region, .. } = copying.target;
        let extents = self.addresses.as_ref().and_then(|addresses| addresses.extents(file, region));
        self.copy(Direction::Read, self.places.cycle_number(file, region), extents);
    }

    /// Sends the parts of the chunk on their way.
    fn copy(&mut self, direction: Direction, cycle: u32, extents: Option<Extents>) {
        let Some(Copying { target, copied, chunk_bytes, .. }) = self.mover.copying else { return };
        let mut parts = std::mem::take(&mut self.parts);
        parts.clear();
        self.places.cycle(cycle).split(copied, chunk_bytes, &mut parts);
        // One more than are on their way, until all have been sent.
        (self.mover.outstanding, self.mover.end) = (parts.len() as u32 + 1, self.now);
        let Move { file, region, .. } = target;
        let sending = Sending { owner: MOVER, node: NO_NODE, direction, file, region, extents };
        for part in &parts {
            self.send(&sending, *part);
        }
        self.parts = parts;
        self.mover_part_done(self.now);
    }

    pub(super) fn mover_part_done(&mut self, end: Nanos) {
        let mover = &mut self.mover;
        mover.end = mover.end.max(end);
        mover.outstanding -= 1;
        if mover.outstanding == 0 {
            self.queue.push(mover.end, Event::Mover.pack());
        }
    }

    pub(super) fn mover_goes_on(&mut self) {
        self.outcome.events += 1;
        let Some(copying) = &mut self.mover.copying else { return };
        if copying.is_abandoned {
            self.mover.copying = None;
            self.next_move();
            return;
        }
        match copying.doing {
            Doing::Pausing => self.read_chunk(),
            Doing::Reading => {
                copying.doing = Doing::Writing;
                let (cycle, extents) = (copying.target.cycle, copying.extents);
                self.copy(Direction::Write, cycle, extents);
            }
            Doing::Writing => self.chunk_copied(),
        }
    }

    fn chunk_copied(&mut self) {
        let Some(copying) = &mut self.mover.copying else { return };
        let bytes = copying.chunk_bytes;
        self.outcome.moved_bytes += bytes;
        if let Some(timeline) = &mut self.timeline {
            timeline.note_bytes(self.now, Moved::Region, bytes);
        }
        if !copying.is_marked {
            copying.copied += bytes;
        }
        copying.chunk_bytes = 0;
        copying.doing = Doing::Pausing;
        let began = copying.began;
        if copying.copied == copying.used_bytes {
            let done = *copying;
            self.settle(&done);
            self.mover.copying = None;
        }
        let earliest = match self.scenario.options.migration {
            Migration::Copied { bandwidth_bytes_per_s: Some(rate), .. } => {
                began + Nanos::from_seconds(bytes as f64 / rate)
            }
            _ => self.now,
        };
        if self.mover.copying.is_none() {
            self.take_next();
        }
        if self.mover.copying.is_some() {
            if earliest > self.now {
                self.queue.push(earliest, Event::Mover.pack());
            } else {
                self.read_chunk();
            }
        }
    }

    /// A program writes a piece of a region: sends the part of it that must go to the region's new place too, and marks the chunk on its way.
    pub(super) fn write_to_new_place(&mut self, piece: &RegionPiece, sending: &Sending) {
        let Some(copying) = &mut self.mover.copying else { return };
        let target = (copying.target.file, copying.target.region);
        if target != (sending.file, piece.region) || copying.is_abandoned {
            return;
        }
        let (start, end) = (piece.offset.0, piece.offset.0 + piece.length);
        copying.is_marked |= start < copying.copied + copying.chunk_bytes && end > copying.copied;
        if start >= copying.copied {
            return;
        }
        let bytes = end.min(copying.copied) - start;
        let (cycle, extents) = (copying.target.cycle, copying.extents);
        let mut parts = Vec::new();
        self.places.cycle(cycle).split(start, bytes, &mut parts);
        self.processes[sending.owner as usize].outstanding += parts.len() as u32;
        for part in &parts {
            self.send(&Sending { extents, ..*sending }, *part);
        }
    }

    /// Bytes of regions whose move has not been finished.
    pub(super) fn unmoved_bytes(&self) -> u64 {
        let pending =
            self.mover.pending.iter().map(|pending| self.places.files[pending.file].region_bytes(pending.region));
        let copying = self.mover.copying.iter().filter(|copying| !copying.is_abandoned);
        pending.sum::<u64>() + copying.map(|copying| copying.used_bytes).sum::<u64>()
    }
}
