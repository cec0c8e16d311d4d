//! What a simulated run did.

use serde::{Deserialize, Serialize};

/// Percentiles of the time from issue to completion of requests, in seconds.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Latency {
    /// Exact; 0 without requests, as the others.
    pub mean_s: f64,
    /// Median, at most 0.4 % off as the other percentiles.
    pub p50_s: f64,
    /// Not exceeded by 95 % of the requests.
    pub p95_s: f64,
    /// Not exceeded by 99 % of the requests.
    pub p99_s: f64,
    /// Exact.
    pub max_s: f64,
}

/// The requests of one direction.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct DirectionOutcome {
    /// Completed requests.
    pub requests: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Million bytes per second over the whole run.
    pub mb_per_s: f64,
    /// From issue to completion.
    pub latency: Latency,
}

/// What one server did during the run.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct ServerOutcome {
    /// Seconds that the device and the link were busy, of the program's requests and of migration together. A device of several stages is as
    /// busy as its busiest: an SSD's channels count with their mean.
    pub device_busy_s: f64,
    /// As `device_busy_s`, of the server's own link; 0 without one.
    pub link_busy_s: f64,
    /// Of the program's requests, as `sub_requests`.
    pub bytes: u64,
    /// Parts of requests that this server served; fragments count where they lie.
    pub sub_requests: u64,
    /// Sub-requests that the page cache answered without the device.
    pub cache_hits: u64,
    /// Bytes that the page cache still has to write back at the end of the run.
    pub dirty_bytes: u64,
    /// Pages programmed for each page written, of an SSD that is modelled in parts; 0 for others.
    pub write_amplification: f64,
}

/// One phase of the program.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct PhaseOutcome {
    /// Seconds from the start of the run to the barrier that began the phase; 0 for the first.
    pub start_s: f64,
    /// Seconds from the start of the run to the barrier that ended it; for the last, to the end of
    /// the run.
    pub end_s: f64,
    /// Bytes of its reads.
    pub read_bytes: u64,
    /// Bytes of its writes.
    pub write_bytes: u64,
}

/// One slice of the time line.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct TimeSlice {
    /// Seconds from the start of the run; the next slice's start, or the run's end, ends it.
    pub start_s: f64,
    /// Bytes of reads completed in the slice.
    pub read_bytes: u64,
    /// Bytes of writes completed in the slice.
    pub write_bytes: u64,
    /// Bytes that migration wrote to new places in the slice.
    pub moved_bytes: u64,
    /// Share of the slice that each server's device was busy, 0 to 1.
    pub device_busy: Vec<f64>,
}

/// Everything measured in one simulated run.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Outcome {
    /// From the start to the completion of the last request, in seconds.
    pub time_s: f64,
    /// Million bytes per second, both directions.
    pub mb_per_s: f64,
    /// Reads of the program, without those of migration.
    pub read: DirectionOutcome,
    /// Writes of the program, without those of migration.
    pub write: DirectionOutcome,
    /// Of both directions together.
    pub latency: Latency,
    /// Mean number of requests on their way, measured as the time integral of their number.
    pub in_flight: f64,
    /// In the order of the system's servers.
    pub servers: Vec<ServerOutcome>,
    /// In the order of the program's phases.
    pub phases: Vec<PhaseOutcome>,
    /// Empty when no slices were asked for ([`crate::SimOptions::slice_s`]).
    pub timeline: Vec<TimeSlice>,
    /// Bytes of regions that changed their placement during the run. Copied: bytes written to the new places, repetitions included.
    pub moved_bytes: u64,
    /// Bytes of regions whose move was not finished when the program was.
    pub unmoved_bytes: u64,
    /// Events that the engine handled: a sub-request that arrives at a station, or a process, a device or the mover that goes on.
    pub events: u64,
}

impl DirectionOutcome {
    /// Whether there was any request.
    #[must_use]
    pub fn any(&self) -> bool {
        self.requests > 0
    }
}
