//! How synchronizations lay among the buffered writes of a file.
//!
//! Processes are counted apart and learn of each other's synchronizations only where they are joined, so writes and synchronizations are
//! noted by the slices of a window. A synchronization ends an interval with the slice in which it began, and is under way from the next
//! slice to the one in which it ended. Processes that synchronize together, as after a barrier, end one interval: of a slice in which
//! several processes synchronized, the synchronizations of one count.

use super::instants::{Instants, Place};
use crate::access::{SLICES, Synchronizations};
use crate::trace::ProcessIndex;
use std::collections::BTreeMap;
use stripewise_layout::{RequestKind, WriteClass};

/// Window, and slice in it.
type SliceNumber = (u32, u32);

fn slice_of(place: Place) -> SliceNumber {
    (place.window, place.slice.trailing_zeros())
}

/// What one chunk says of one file, by slice.
#[derive(Default)]
pub(super) struct SyncNotes {
    at: SliceNumber,
    /// Buffered writes that are not noted yet, and their ticks.
    written: u64,
    ticks: u64,
    noted: Vec<(SliceNumber, Noted)>,
    /// By window, the bits of the slices in which a synchronization was under way.
    under_way: BTreeMap<u32, u64>,
    /// Set when the chunk is through.
    pub(super) seconds_per_tick: f64,
}

#[derive(Clone, Copy, Default)]
struct Noted {
    written: u64,
    ticks: u64,
    synced: u64,
}

impl SyncNotes {
    /// The next requests begin at `place`.
    pub(super) fn go_to(&mut self, place: Place) {
        self.note();
        self.at = slice_of(place);
    }

    /// A request that moved bytes.
    #[inline]
    pub(super) fn add(&mut self, kind: RequestKind, ticks: u64) {
        if kind == RequestKind::Write(WriteClass::Buffered) {
            self.written += 1;
            self.ticks = self.ticks.saturating_add(ticks);
        }
    }

    /// A synchronization.
    pub(super) fn sync(&mut self, begin: Place, end: Place) {
        self.go_to(begin);
        self.put(Noted { synced: 1, ..Noted::default() });
        let behind = |place: Place| u64::MAX.checked_shl(slice_of(place).1 + 1).unwrap_or(0);
        if end.window == begin.window {
            *self.under_way.entry(begin.window).or_insert(0) |= behind(begin) & !behind(end);
        } else {
            *self.under_way.entry(begin.window).or_insert(0) |= behind(begin);
            *self.under_way.entry(end.window).or_insert(0) |= !behind(end);
        }
    }

    /// Notes the writes since the last note.
    pub(super) fn note(&mut self) {
        let (written, ticks) = (std::mem::take(&mut self.written), std::mem::take(&mut self.ticks));
        if written > 0 {
            self.put(Noted { written, ticks, synced: 0 });
        }
    }

    fn put(&mut self, more: Noted) {
        match self.noted.last_mut() {
            Some((at, noted)) if *at == self.at => {
                noted.written += more.written;
                noted.ticks = noted.ticks.saturating_add(more.ticks);
                noted.synced += more.synced;
            }
            _ => self.noted.push((self.at, more)),
        }
    }
}

/// What all chunks say of one file.
#[derive(Default)]
pub(super) struct Synchronized {
    slices: BTreeMap<SliceNumber, OfSlice>,
    /// By window, the bits of the slices.
    under_way: BTreeMap<u32, u64>,
    /// By window, processes with buffered writes, and the last of them.
    writers: BTreeMap<u32, (u64, ProcessIndex)>,
}

#[derive(Clone, Copy, Default)]
struct OfSlice {
    written: u64,
    written_ns: u64,
    synced: u64,
    /// Processes that synchronized, and the last of them.
    processes: u64,
    last: Option<ProcessIndex>,
}

/// Adds up the shares of intervals.
#[derive(Default)]
struct Intervals {
    squares: f64,
    current: f64,
}

impl Intervals {
    fn end(&mut self) {
        self.squares += std::mem::take(&mut self.current).powi(2);
    }

    fn count(mut self, written: f64) -> f64 {
        self.end();
        if self.squares > 0.0 { (written * written / self.squares).max(1.0) } else { 1.0 }
    }
}

impl Synchronized {
    /// Takes up chunks, those of a process one after the other.
    pub(super) fn absorb(&mut self, process: ProcessIndex, notes: &SyncNotes) {
        for (at, noted) in &notes.noted {
            let slice = self.slices.entry(*at).or_default();
            slice.written += noted.written;
            slice.written_ns += (noted.ticks as f64 * notes.seconds_per_tick * 1e9) as u64;
            slice.synced += noted.synced;
            if noted.synced > 0 && slice.last != Some(process) {
                slice.processes += 1;
                slice.last = Some(process);
            }
            if noted.written > 0 {
                let (writers, last) = self.writers.entry(at.0).or_insert((1, process));
                *writers += u64::from(*last != process);
                *last = process;
            }
        }
        for (window, slices) in &notes.under_way {
            *self.under_way.entry(*window).or_insert(0) |= slices;
        }
    }

    /// Of one window.
    pub(super) fn of_window(&self, window: u32, instants: &Instants) -> Synchronizations {
        let of_window = || self.slices.range((window, 0)..(window, SLICES)).map(|((_, slice), found)| (*slice, found));
        if of_window().all(|(_, found)| found.synced == 0) {
            return Synchronizations::default();
        }
        let under_way = self.under_way.get(&window).copied().unwrap_or(0);
        let is_under_way = |slice: u32| under_way >> slice & 1 == 1;
        let (mut apart, mut every) = (Intervals::default(), Intervals::default());
        let (mut written, mut meanwhile, mut waited, mut idle_ns) = (0.0, 0.0, 0.0, 0.0);
        // The current interval of those apart: it ends where no synchronization is under way any more.
        let mut is_ended = false;
        for (slice, found) in of_window() {
            let in_slice = found.written as f64;
            written += in_slice;
            if is_under_way(slice) {
                let before = (0..slice).rev().find(|before| !is_under_way(*before)).unwrap_or(0);
                meanwhile += in_slice;
                waited += in_slice * f64::from(slice - before);
            } else {
                idle_ns += found.written_ns as f64;
            }
            // What every process does in turn is seen of one.
            let rounds = found.synced.div_ceil(found.processes.max(1));
            let each = in_slice / rounds.max(1) as f64;
            let between = rounds.saturating_sub(1) as f64 * each * each;
            every.current += each;
            every.squares += between;
            if rounds > 0 {
                every.end();
            }
            if is_under_way(slice) {
                apart.current += in_slice;
                continue;
            }
            if std::mem::take(&mut is_ended) {
                apart.end();
            }
            apart.current += each;
            apart.squares += between;
            is_ended = rounds > 0;
        }
        let writers = self.writers.get(&window).map_or(1, |(writers, _)| *writers);
        Synchronizations {
            apart: apart.count(written),
            intervals: every.count(written),
            under_way_s: if meanwhile > 0.0 { waited / meanwhile * instants.slice_s(window) } else { 0.0 },
            idle_s: idle_ns * 1e-9 / writers as f64,
        }
    }
}

#[cfg(test)]
mod tests;
