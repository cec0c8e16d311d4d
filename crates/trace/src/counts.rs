//! Trace to counts: for every file, window and region, how many requests of each class, from how many processes, and when; and what
//! company simultaneous requests keep.
//!
//! The slots are cut into chunks that are counted side by side, each into tables of its own. A chunk cannot know whether its first
//! request on a file continues the one before the chunk, so it sets that one aside; the merge, which sees the chunks of a process in
//! order, decides it. Chunks come in batches, and what a batch mapped of the trace's files is given back, so that memory holds a batch
//! and the counts, however long the trace. What is counted:
//!
//! - Reads and writes that succeeded and moved bytes, of the level that [`TracedFile::data_level`](crate::TracedFile::data_level) says.
//! - A request is *sequential* when it begins where the process's last request on the file ended, or up to
//!   [`forward_skip_bytes`](CountOptions::forward_skip_bytes) behind that, whatever the directions of the two; otherwise, and when it
//!   is the first, *random*. "Last" is by record, which is by end of the call.
//! - A request that crosses regions counts in each, with the length of its piece there as its size and its own order.
//! - A request belongs to the window in which it starts, and to one of the 64 equal slices of the window's recorded part.
//! - [`Company`](crate::Company) is found at up to 512 instants within a window: what lies there together is the last request of every
//!   process on the file (by record), if it was in flight, or began no longer ago than 8 times the process's mean gap between
//!   requests on the file.

mod chunk;
pub(crate) mod classes;
mod hashing;
mod instants;
mod merge;
pub(crate) mod rows;
mod synchronized;
mod table;
#[cfg(test)]
mod tests;

use crate::access::FileAccess;
use crate::trace::{CHUNK_SLOTS, Chunk, Trace, TraceTime};
use classes::Limits;
use instants::Instants;
use rayon::prelude::*;
use stripewise_layout::ByteCount;

/// How a trace is counted.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct CountOptions {
    /// Seconds of a window; 600 unless told otherwise (H2DP section 3.2).
    pub window_s: f64,
    /// 64 MiB unless told otherwise.
    pub region_size: ByteCount,
    /// More classes of a file than this are merged, the rarest and nearest first. At least 4. Kinds and orders stay apart, of which a file may have eight.
    pub class_limit: u16,
    /// A request that begins at most so many bytes after the end of the last one still continues it; 64 KiB unless told otherwise.
    pub forward_skip_bytes: u64,
}

impl Default for CountOptions {
    fn default() -> Self {
        Self { window_s: 600.0, region_size: ByteCount(64 << 20), class_limit: 32, forward_skip_bytes: 64 << 10 }
    }
}

/// An option of counting that makes no sense.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum CountError {
    /// [`CountOptions::window_s`] is out of range.
    #[error("a window of {window_s} s cannot be; give at least 0.000001 and at most 1000000000")]
    Window {
        /// The seconds asked for.
        window_s: f64,
    },
    /// [`CountOptions::region_size`] is 0.
    #[error("a region of 0 bytes cannot be; 64MiB is usual")]
    Region,
    /// [`CountOptions::class_limit`] cannot keep directions and orders apart.
    #[error("at most {class_limit} classes are too few; give at least 4")]
    Classes {
        /// The limit asked for.
        class_limit: u16,
    },
}

/// Windows beyond this number count as the last one: a damaged record must not make millions of empty windows.
pub(crate) const WINDOW_LIMIT: u32 = 1 << 16;

/// What counting found.
#[derive(Clone, PartialEq, Debug)]
pub struct Counted {
    /// In order of path; all with the same windows.
    pub files: Vec<FileAccess>,
    /// Requests left out because they cannot be: beyond 2^62 bytes or 2^32 regions, or over more than 65,536 regions at once.
    pub impossible: u64,
}

/// Counts every file of the trace that data moved to or from, in order of path. All of them have the same windows.
///
/// # Errors
/// When an option makes no sense.
pub fn count(trace: &Trace, options: &CountOptions) -> Result<Vec<FileAccess>, CountError> {
    count_and_report(trace, options).map(|counted| counted.files)
}

/// As [`count`], and says what was left out.
///
/// # Errors
/// When an option makes no sense.
pub fn count_and_report(trace: &Trace, options: &CountOptions) -> Result<Counted, CountError> {
    count_lasting(trace, options, trace.duration())
}

/// As [`count_and_report`], with slices of a run that lasts so long.
pub(crate) fn count_lasting(trace: &Trace, options: &CountOptions, duration: TraceTime) -> Result<Counted, CountError> {
    if !(1e-6..=1e9).contains(&options.window_s) {
        return Err(CountError::Window { window_s: options.window_s });
    }
    if options.region_size.0 == 0 {
        return Err(CountError::Region);
    }
    if options.class_limit < 4 {
        return Err(CountError::Classes { class_limit: options.class_limit });
    }
    let instants = Instants::new(options, duration, trace.processes.len());
    Ok(count_in_chunks(trace, options, &instants, &Limits::new(options.class_limit), CHUNK_SLOTS, BATCH_SLOTS))
}

/// Slots that are counted before their chunks are joined: 256 MiB.
const BATCH_SLOTS: usize = 32 * CHUNK_SLOTS;

fn count_in_chunks(
    trace: &Trace,
    options: &CountOptions,
    instants: &Instants,
    limits: &Limits,
    chunk_slots: usize,
    batch_slots: usize,
) -> Counted {
    let mut joined = merge::Joined::new(options, *instants, *limits);
    let mut chunks = trace.chunks(chunk_slots);
    // Stable: the chunks of a process stay in order.
    chunks.sort_by_key(|chunk| (trace.process(chunk.process).node, chunk.process));
    let mut rest = &chunks[..];
    while !rest.is_empty() {
        let mut slots = 0;
        let is_beyond = |chunk: &Chunk| {
            slots += chunk.slots.len();
            slots >= batch_slots
        };
        let length = rest.iter().position(is_beyond).map_or(rest.len(), |last| last + 1);
        let (batch, later) = rest.split_at(length);
        let count = |chunk: &Chunk| {
            let counted = chunk::count(trace, options, instants, limits, chunk);
            trace.is_through(chunk);
            counted
        };
        joined.absorb(trace, batch.par_iter().map(count).collect());
        rest = later;
    }
    Counted { impossible: joined.impossible, files: joined.finish(trace) }
}
