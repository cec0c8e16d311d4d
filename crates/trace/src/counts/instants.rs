//! Time as the counting sees it: windows, their slices, and the instants at which simultaneous requests are looked at.
//!
//! The recorded part of every window, from its start to its end or to the last record, is cut into equal *parts*, a multiple of the
//! slices. Parts are numbered through all windows. Whether a record lies in the part of the one before it is two comparisons of ticks,
//! so only the few records that begin another part cost more.

use super::{CountOptions, WINDOW_LIMIT};
use crate::access::SLICES;
use crate::trace::{TickRange, TraceTime};

/// Instants of a window at most, at which the requests of all processes are compared.
const INSTANTS: u64 = 512;
/// Requests noted for that, over all windows and processes, at most (about 100 MB).
const NOTES: u64 = 1 << 21;

/// The windows of a trace and their parts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Instants {
    window_ns: u64,
    duration_ns: u64,
    /// In each window: a power of two, at least [`SLICES`].
    parts: u64,
    /// Every so many parts there is an instant.
    stride: u64,
}

/// Where a record begins.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) window: u32,
    /// The bit of its slice.
    pub(super) slice: u64,
    /// Numbered through all windows.
    pub(super) part: u32,
}

impl Instants {
    /// Of a run that lasts so long and has so many processes.
    pub(super) fn new(options: &CountOptions, duration: TraceTime, processes: usize) -> Self {
        let window_ns = ((options.window_s * 1e9).round() as u64).max(1);
        let duration_ns = duration.0;
        let windows = (duration_ns / window_ns + 1).min(u64::from(WINDOW_LIMIT));
        let wanted = NOTES / (windows * processes.max(1) as u64);
        let instants = INSTANTS.min(wanted.max(1));
        let instants = 1 << instants.ilog2();
        let parts = instants.max(u64::from(SLICES));
        Self { window_ns, duration_ns, parts, stride: parts / instants }
    }

    /// When part `number` of any window begins.
    fn begin(&self, window: u64, number: u64) -> TraceTime {
        let start = window.saturating_mul(self.window_ns);
        let recorded = self.recorded(start);
        let into = (u128::from(recorded) * u128::from(number)).div_ceil(u128::from(self.parts));
        TraceTime(start.saturating_add(into as u64))
    }

    fn recorded(&self, start: u64) -> u64 {
        self.window_ns.min(self.duration_ns.saturating_sub(start)).max(1)
    }

    fn window_of(&self, time: TraceTime) -> u64 {
        (time.0 / self.window_ns).min(u64::from(WINDOW_LIMIT) - 1)
    }

    /// Seconds of a slice.
    pub(super) fn slice_s(&self, window: u32) -> f64 {
        self.recorded(u64::from(window) * self.window_ns) as f64 * 1e-9 / f64::from(SLICES)
    }

    /// Where a record that begins at `time` lies.
    pub(super) fn place(&self, time: TraceTime) -> Place {
        let window = self.window_of(time);
        let start = window * self.window_ns;
        let into = u128::from(time.0 - start) * u128::from(self.parts) / u128::from(self.recorded(start));
        let part = (into as u64).min(self.parts - 1);
        let slice = 1 << (part * u64::from(SLICES) / self.parts);
        Place { window: window as u32, slice, part: (window * self.parts + part) as u32 }
    }

    /// As [`Self::place`], for ticks of a process, with all the ticks of the same part.
    pub(super) fn place_of_ticks(&self, process: &crate::trace::Process, ticks: u64) -> (Place, TickRange) {
        let timeline = process.timeline();
        let place = self.place(timeline.trace_time(ticks));
        let (window, part) = (u64::from(place.window), u64::from(place.part) % self.parts);
        let to = if part + 1 < self.parts {
            Some(self.begin(window, part + 1))
        } else if window + 1 < u64::from(WINDOW_LIMIT) {
            Some(TraceTime((window + 1).saturating_mul(self.window_ns)))
        } else {
            None
        };
        (place, timeline.ticks_between(self.begin(window, part), to))
    }

    /// The window of a part.
    pub(super) fn window_of_part(&self, part: u32) -> u32 {
        (u64::from(part) / self.parts) as u32
    }

    /// Whether there may be an instant among the begins of the parts after `after` up to `last`.
    pub(super) fn is_any_between(&self, after: u32, last: u32) -> bool {
        u64::from(after) / self.stride != u64::from(last) / self.stride
    }

    /// The instants among the begins of the parts after `after` up to `last`, with their times. The begin of a window is none: what
    /// went on there belongs to the window before.
    pub(super) fn instants(&self, after: u32, last: u32) -> impl Iterator<Item = (u32, TraceTime)> {
        let instants = *self;
        // Damaged records may begin after the end of the run; their number of instants is not limited.
        let last = last.min(self.last_part());
        (u64::from(after) / self.stride + 1..=u64::from(last) / self.stride)
            .map(move |number| number * instants.stride)
            .filter(move |part| part % instants.parts != 0)
            .map(move |part| (part as u32, instants.begin(part / instants.parts, part % instants.parts)))
    }

    /// The last part in which anything can begin or be in flight.
    pub(super) fn last_part(&self) -> u32 {
        (self.window_of(TraceTime(self.duration_ns)) * self.parts + self.parts - 1) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_no_instants_after_the_end() {
        let options = CountOptions { window_s: 0.01, ..CountOptions::default() };
        for (windows, processes) in [(0, 1), (3, 2), (70_000, 1)] {
            let end = TraceTime(windows * 10_000_000 + 5_000_000);
            let instants = Instants::new(&options, end, processes);
            let far = instants.place(TraceTime(u64::MAX)).part;
            assert_eq!(far, WINDOW_LIMIT * instants.parts as u32 - 1);
            let found: Vec<TraceTime> = instants.instants(0, far).map(|(_, time)| time).collect();
            let most = (windows + 1).min(u64::from(WINDOW_LIMIT)) * INSTANTS;
            assert!(!found.is_empty() && (found.len() as u64) < most.min(NOTES / processes as u64), "{windows}");
            assert!(found.is_sorted() && found.last() <= Some(&end), "{windows}");
        }
    }
}
