//! How long an HDD, an SSD and a network link take for a request: parameters of named devices and the arithmetic of their queues.
//!
//! A server is three stations in a row. A request first takes one of the device's parallel *channels* for its startup (SSD only),
//! then the device's *serial* stage for its transfer (on an HDD for startup and transfer), then the server's own *link*. Every
//! station serves in order of issue. A station is no more than the time at which it is next free, so many processes can share one
//! through a word of memory; [`StationState`] is that state for one thread, and the store keeps the same words as atomics.
//!
//! Service times are means, without random draws: the same accesses in the same order always take the same time.
//! Reservation at issue is exact where all startups that overlap on one SSD are equal (all reads, or all writes, of any size), and on
//! every HDD: requests then reach each station in the order in which they were issued. Where reads and writes overlap on an
//! SSD, a request may be served up to the difference of the two startups later than by service in order of arrival.
//!
//! Beside these means stand models in more detail, for the simulator alone: a disk by its mechanics ([`Disk`]), an SSD by its dies
//! ([`Flash`]) and a server's page cache ([`PageCache`]). They too are pure state: times go in, times come out.
#![forbid(unsafe_code)]
#![deny(missing_docs, clippy::missing_errors_doc)]
#![deny(clippy::print_stdout)]

mod disk;
mod flash;
mod model;
mod named;
mod page_cache;
mod random;
mod spec;
mod station;
mod streams;

pub use disk::{Chosen, Disk, DiskOrder, DiskQueue, DiskService, DiskSpec};
pub use flash::{Flash, FlashService, FlashSpec};
pub use model::DeviceModel;
pub use named::{
    DEVICES, DISKS, DRIVES, LINKS, Named, UnknownName, lookup_device, lookup_disk, lookup_flash, lookup_link,
};
pub use page_cache::{Lookup, PageCache, PageCacheSpec, Span};
pub use spec::{Access, Demand, DeviceSpec, DiskPlace, ExtentId, HddSpec, LinkSpec, MAX_CHANNELS, Service, SsdSpec};
pub use station::{Reservation, StationState};
pub use streams::{MAX_STREAMS, Placed, RecentStreams, place};

/// Nanoseconds: an instant on whatever clock the caller keeps, or a span.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Nanos(pub u64);

impl Nanos {
    /// From seconds, rounded to the nearest nanosecond; negative or absurd values saturate.
    #[must_use]
    pub fn from_seconds(seconds: f64) -> Self {
        Self((seconds * 1e9).round() as u64)
    }

    /// As seconds, exact up to 2^53 ns (104 days).
    #[must_use]
    pub fn seconds(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// The span from `earlier` to here; 0 if `earlier` is later.
    #[must_use]
    pub fn saturating_sub(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }
}

impl std::ops::Add for Nanos {
    type Output = Self;
    fn add(self, span: Self) -> Self {
        Self(self.0.saturating_add(span.0))
    }
}
