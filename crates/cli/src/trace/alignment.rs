//! Requests against a stripe size, as iBridge's Table 1: how many are unaligned, how many random.
//!
//! *Unaligned*: larger than the stripe, with an end off a multiple of it. *Random*: smaller than 20 KiB (iBridge section 1: "requests
//! smaller than 20KB"). The two exclude each other for stripes of 20 KiB and more; for smaller ones a request counts as unaligned first.

use stripewise_trace::{Event, FileIndex, NO_OFFSET, Operation, Trace};

/// Below this a request counts as random.
pub(super) const RANDOM_BELOW_BYTES: u64 = 20 << 10;

/// Requests of one file or of all.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Alignment {
    pub(super) requests: u64,
    pub(super) unaligned: u64,
    pub(super) random: u64,
}

impl Alignment {
    pub(super) fn add(&mut self, offset: u64, bytes: u64, stripe_bytes: u64) {
        self.requests += 1;
        let end_is_off =
            !offset.is_multiple_of(stripe_bytes) || !offset.saturating_add(bytes).is_multiple_of(stripe_bytes);
        if bytes > stripe_bytes && end_is_off {
            self.unaligned += 1;
        } else if bytes < RANDOM_BELOW_BYTES {
            self.random += 1;
        }
    }

    /// Unaligned, random and both together, in per cent.
    pub(super) fn percent(&self) -> [f64; 3] {
        let of = |count: u64| if self.requests == 0 { 0.0 } else { count as f64 * 100.0 / self.requests as f64 };
        [of(self.unaligned), of(self.random), of(self.unaligned + self.random)]
    }
}

/// The requests of every file of the trace, by its number.
pub(super) fn of_files(trace: &Trace, stripe_bytes: u64) -> Vec<Alignment> {
    let mut files = vec![Alignment::default(); trace.files.len()];
    for (file, event) in data_requests(trace) {
        files[file.0 as usize].add(event.offset.0, event.bytes, stripe_bytes);
    }
    files
}

/// Reads and writes that moved bytes, of the level that says what the servers see.
pub(super) fn data_requests(trace: &Trace) -> impl Iterator<Item = (FileIndex, Event)> + '_ {
    trace.events().filter_map(|event| {
        let file = event.file?;
        let counts = matches!(event.operation(), Operation::Read | Operation::Write)
            && event.errno == 0
            && event.bytes > 0
            && event.offset != NO_OFFSET
            && trace.file(file).data_level() == Some(event.call.level());
        counts.then_some((file, event))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_fall_into_the_classes_of_the_paper() {
        const K: u64 = 1 << 10;
        let mut alignment = Alignment::default();
        for (offset, bytes) in [
            (0, 64 * K),     // one stripe
            (0, 128 * K),    // whole stripes
            (0, 65 * K),     // its end is off
            (K, 64 * K),     // off, but not larger than a stripe
            (K, 127 * K),    // its start is off
            (5 * K, 4 * K),  // random
            (7, 20 * K),     // neither: 20 KiB are not below 20 KiB
            (7, 20 * K - 1), // random
        ] {
            alignment.add(offset, bytes, 64 * K);
        }
        assert_eq!(alignment, Alignment { requests: 8, unaligned: 2, random: 2 });
        assert_eq!(alignment.percent(), [25.0, 25.0, 50.0]);
        assert_eq!(Alignment::default().percent(), [0.0; 3]);
    }
}
