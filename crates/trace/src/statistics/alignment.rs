//! How many requests do not fit the stripes: Table 1 of iBridge.

use crate::trace::{FileIndex, Trace};
use rayon::prelude::*;
use stripewise_capture::format::NO_OFFSET;
use stripewise_layout::ByteCount;

/// Requests below this size are random in iBridge's sense: 20 KiB.
pub const SMALL_REQUEST: ByteCount = ByteCount(20 << 10);

/// Requests by how they lie on stripes. Both kinds of trouble exclude each other while `small` is not larger than the stripe.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Alignment {
    /// Reads and writes that moved bytes.
    pub requests: u64,
    /// Larger than a stripe, with a begin or an end off a stripe's border.
    pub unaligned: u64,
    /// Smaller than the threshold, whatever their place.
    pub random: u64,
}

impl Alignment {
    fn per_cent(&self, part: u64) -> f64 {
        if self.requests == 0 { 0.0 } else { part as f64 * 100.0 / self.requests as f64 }
    }

    /// Per cent of all requests.
    #[must_use]
    pub fn unaligned_per_cent(&self) -> f64 {
        self.per_cent(self.unaligned)
    }

    /// Per cent of all requests.
    #[must_use]
    pub fn random_per_cent(&self) -> f64 {
        self.per_cent(self.random)
    }

    /// Both together, as the table's last column.
    #[must_use]
    pub fn total_per_cent(&self) -> f64 {
        self.per_cent(self.unaligned + self.random)
    }

    fn plus(self, other: Self) -> Self {
        Self {
            requests: self.requests + other.requests,
            unaligned: self.unaligned + other.unaligned,
            random: self.random + other.random,
        }
    }
}

/// Looks at the data requests to `file`, or to all files, on stripes of `stripe`. The paper's table has `stripe` 64 KiB and `small` 20
/// KiB ([`SMALL_REQUEST`]). A request that would count as both (with `small` above `stripe`) counts as unaligned. A stripe of 0 bytes
/// has no borders: nothing is unaligned.
#[must_use]
pub fn alignment(trace: &Trace, file: Option<FileIndex>, stripe: ByteCount, small: ByteCount) -> Alignment {
    let one = |requests, unaligned, random| Alignment { requests, unaligned, random };
    trace
        .par_events()
        .map(|event| {
            let counts = event.operation().is_data()
                && event.errno == 0
                && event.bytes > 0
                && event.offset != NO_OFFSET
                && event.file.is_some_and(|found| {
                    file.is_none_or(|wanted| wanted == found)
                        && trace.file(found).data_level() == Some(event.call.level())
                });
            if !counts {
                return Alignment::default();
            }
            let is_off = |place: u64| stripe.0 > 0 && !place.is_multiple_of(stripe.0);
            let is_unaligned =
                event.bytes > stripe.0 && (is_off(event.offset.0) || is_off(event.offset.0.wrapping_add(event.bytes)));
            one(1, u64::from(is_unaligned), u64::from(!is_unaligned && event.bytes < small.0))
        })
        .reduce(Alignment::default, Alignment::plus)
}
