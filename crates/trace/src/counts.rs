//! Trace to counts: for every file, window and region, how many requests of each class, and from how many processes.
//!
//! The slots are cut into chunks that are counted side by side, each into tables of its own. A chunk cannot know whether its first
//! request on a file continues the one before the chunk, so it sets that one aside; the merge, which sees the chunks of a process in
//! order, decides it. What is counted:
//!
//! - Reads and writes that succeeded and moved bytes, of the level that [`TracedFile::data_level`](crate::TracedFile::data_level) says.
//! - A request is *sequential* when it begins where the process's last request on the file ended, or up to
//!   [`forward_skip_bytes`](CountOptions::forward_skip_bytes) behind that, whatever the directions of the two; otherwise, and when it
//!   is the first, *random*. "Last" is by record, which is by end of the call.
//! - A request that crosses regions counts in each, with the length of its piece there as its size and its own order.
//! - A request belongs to the window in which it starts.

mod chunk;
mod classes;
mod merge;
#[cfg(test)]
mod tests;

use crate::access::FileAccess;
use crate::trace::{CHUNK_SLOTS, Trace};
use rayon::prelude::*;
use stripewise_layout::ByteCount;

/// How a trace is counted.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct CountOptions {
    /// Seconds of a window; 600 unless told otherwise (H2DP section 3.2).
    pub window_s: f64,
    /// 64 MiB unless told otherwise.
    pub region_size: ByteCount,
    /// More classes of a file than this are merged, the rarest and nearest first. At least 4, so that directions and orders stay apart.
    pub class_limit: u16,
    /// A request that begins at most so many bytes after the end of the last one still continues it; 64 KiB unless told otherwise.
    pub forward_skip_bytes: u64,
}

impl Default for CountOptions {
    fn default() -> Self {
        Self { window_s: 600.0, region_size: ByteCount(64 << 20), class_limit: 32, forward_skip_bytes: 64 << 10 }
    }
}

#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum CountError {
    #[error("a window of {window_s} s cannot be; give at least 0.000001 and at most 1000000000")]
    Window { window_s: f64 },
    #[error("a region of 0 bytes cannot be; 64MiB is usual")]
    Region,
    #[error("at most {class_limit} classes are too few; give at least 4")]
    Classes { class_limit: u16 },
}

/// Windows beyond this number count as the last one: a damaged record must not make millions of empty windows.
pub(crate) const WINDOW_LIMIT: u32 = 1 << 16;

/// Counts every file of the trace that data moved to or from, in order of path. All of them have the same windows.
///
/// # Errors
/// When an option makes no sense.
pub fn count(trace: &Trace, options: &CountOptions) -> Result<Vec<FileAccess>, CountError> {
    if !(1e-6..=1e9).contains(&options.window_s) {
        return Err(CountError::Window { window_s: options.window_s });
    }
    if options.region_size.0 == 0 {
        return Err(CountError::Region);
    }
    if options.class_limit < 4 {
        return Err(CountError::Classes { class_limit: options.class_limit });
    }
    Ok(count_in_chunks(trace, options, CHUNK_SLOTS))
}

fn count_in_chunks(trace: &Trace, options: &CountOptions, chunk_slots: usize) -> Vec<FileAccess> {
    let chunks = trace.chunks(chunk_slots);
    let counted = chunks.into_par_iter().map(|chunk| chunk::count(trace, options, &chunk)).collect();
    merge::merge(trace, options, counted)
}
