//! The run cut into slices of equal length: bytes completed, and how busy each server's device was.
//!
//! A run whose length nobody knows beforehand gets at most [`MAX_SLICES`]: whenever it outlasts them, neighbours are joined and the
//! slices are twice as long from there on.

use crate::outcome::TimeSlice;
use stripewise_device::Nanos;
use stripewise_layout::Direction;

pub(crate) const MAX_SLICES: usize = 512;

#[derive(Clone, Copy)]
pub(crate) enum Moved {
    Program(Direction),
    /// By migration.
    Region,
}

/// The part of a device that is busy.
#[derive(Clone, Copy)]
pub(crate) enum Part {
    /// One of its channels.
    Channel,
    Serial,
}

pub(crate) struct Timeline {
    slice_ns: u64,
    /// Two for each server: see [`Part`].
    columns: usize,
    /// Of each slice: read, written, moved.
    bytes: Vec<[u64; 3]>,
    /// Of each slice and column, ns.
    busy: Vec<u64>,
}

impl Timeline {
    /// `None` when no slices are wanted.
    pub(crate) fn new(slice_s: f64, servers: usize) -> Option<Self> {
        let slice_ns = Nanos::from_seconds(slice_s).0;
        (slice_ns > 0).then(|| Self { slice_ns, columns: 2 * servers, bytes: Vec::new(), busy: Vec::new() })
    }

    fn slice_of(&mut self, at_ns: u64) -> usize {
        while at_ns / self.slice_ns >= MAX_SLICES as u64 {
            self.join();
        }
        let slice = (at_ns / self.slice_ns) as usize;
        if slice >= self.bytes.len() {
            self.bytes.resize(slice + 1, [0; 3]);
            self.busy.resize((slice + 1) * self.columns, 0);
        }
        slice
    }

    fn join(&mut self) {
        self.slice_ns *= 2;
        let joined = self.bytes.len().div_ceil(2);
        for slice in 0..self.bytes.len() {
            let from = std::mem::take(&mut self.bytes[slice]);
            self.bytes[slice / 2].iter_mut().zip(from).for_each(|(sum, bytes)| *sum += bytes);
            for column in 0..self.columns {
                let from = std::mem::take(&mut self.busy[slice * self.columns + column]);
                self.busy[slice / 2 * self.columns + column] += from;
            }
        }
        self.bytes.truncate(joined);
        self.busy.truncate(joined * self.columns);
    }

    pub(crate) fn note_bytes(&mut self, at: Nanos, moved: Moved, bytes: u64) {
        // What is completed at a border happened before it.
        let slice = self.slice_of(at.0.saturating_sub(1));
        let column = match moved {
            Moved::Program(Direction::Read) => 0,
            Moved::Program(Direction::Write) => 1,
            Moved::Region => 2,
        };
        self.bytes[slice][column] += bytes;
    }

    /// A part of a server's device is busy from `start` to `end`.
    pub(crate) fn note_busy(&mut self, server: usize, part: Part, start: Nanos, end: Nanos) {
        let column = 2 * server + usize::from(matches!(part, Part::Serial));
        if end <= start {
            return;
        }
        self.slice_of(end.0 - 1);
        let mut at = start.0;
        while at < end.0 {
            let slice = at / self.slice_ns;
            let until = ((slice + 1) * self.slice_ns).min(end.0);
            self.busy[slice as usize * self.columns + column] += until - at;
            at = until;
        }
    }

    /// A part of a server's device is busy for `busy` in all, around `at`.
    pub(crate) fn note_sum(&mut self, server: usize, part: Part, at: Nanos, busy: Nanos) {
        let column = 2 * server + usize::from(matches!(part, Part::Serial));
        let slice = self.slice_of(at.0.saturating_sub(1));
        self.busy[slice * self.columns + column] += busy.0;
    }

    /// The slices of a run that ended at `end`; `channels` of each server's device, 0 when it has none.
    pub(crate) fn slices(mut self, end: Nanos, channels: &[usize]) -> Vec<TimeSlice> {
        // A run may end long after its last byte.
        let used = end.0.checked_sub(1).map_or(0, |last| self.slice_of(last) + 1);
        let rows = self.bytes[..used].iter().zip(self.busy.chunks(self.columns)).enumerate();
        rows.map(|(slice, (bytes, busy))| {
            let start_ns = slice as u64 * self.slice_ns;
            let length_ns = (end.0 - start_ns).min(self.slice_ns) as f64;
            TimeSlice {
                start_s: Nanos(start_ns).seconds(),
                read_bytes: bytes[0],
                write_bytes: bytes[1],
                moved_bytes: bytes[2],
                device_busy: (busy.chunks(2).zip(channels))
                    .map(|(busy, channels)| {
                        let busy_ns = (busy[0] as f64 / (*channels).max(1) as f64).max(busy[1] as f64);
                        (busy_ns / length_ns).min(1.0)
                    })
                    .collect(),
            }
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_ends_idle_has_slices_to_its_end() {
        let mut line = Timeline::new(1e-9, 1).unwrap();
        line.note_bytes(Nanos(1), Moved::Region, 7);
        let slices = line.slices(Nanos(5), &[1]);
        assert_eq!(slices.iter().map(|slice| slice.moved_bytes).collect::<Vec<_>>(), [7, 0, 0, 0, 0]);
        assert!(Timeline::new(1e-9, 1).unwrap().slices(Nanos(0), &[1]).is_empty());
    }

    #[test]
    fn slices_are_joined_when_the_run_outlasts_them() {
        let mut line = Timeline::new(1e-9, 2).unwrap();
        let end = Nanos(3 * MAX_SLICES as u64);
        for at in 0..end.0 {
            line.note_bytes(Nanos(at + 1), Moved::Program(Direction::Read), 1);
            line.note_busy(1, Part::Serial, Nanos(at), Nanos(at + 1));
        }
        line.note_busy(0, Part::Channel, Nanos(2), Nanos(end.0));
        line.note_busy(0, Part::Channel, Nanos(2), Nanos(end.0));
        let slices = line.slices(end, &[2, 0]);
        assert_eq!(slices.len(), MAX_SLICES * 3 / 4);
        assert!(slices.iter().all(|slice| slice.read_bytes == 4 && slice.device_busy[1] == 1.0));
        assert_eq!((slices[0].device_busy[0], slices[1].device_busy[0]), (0.5, 1.0));
        assert!(Timeline::new(0.0, 1).is_none());
    }
}
