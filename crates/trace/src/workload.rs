//! Workload generators: the requests of every rank of a synthetic program, the same ones on every machine and in every language.
//!
//! [`Benchmark`] is one of the field's benchmarks with its parameters, read from a text such as `ior:pattern=random,transfer=64KiB`,
//! and makes a [`Program`]. [`Workload`] is the plain form of one pass over one file, which `demo/zipf_io.c` makes as well.
//!
//! # The sequence, so that a C program can produce it
//! - `splitmix64`: `state += 0x9E3779B97F4A7C15; z = state; z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9; z = (z ^ z >> 27) *
//!   0x94D049BB133111EB; return z ^ z >> 31;` in 64-bit arithmetic that wraps.
//! - The order of regions: `order[i] = i`; with a state of `seed`, for i from n - 1 down to 1: j = next() mod (i + 1), swap `order[i]`
//!   and `order[j]`.
//! - Zipf: `weight[k] = 1 / pow(k + 1, a)` and their running sums as doubles in order of k; `limit[k] = floor(sum[k] / sum[n - 1] x
//!   2^32)`, the last one 2^32. (Rounding to 32 bits makes the last bit of `pow` irrelevant in practice.)
//! - A rank starts with the state `splitmix64` gives when its own state is `seed + (rank + 1) x 0xD1B54A32D192ED03`. Each request takes
//!   two numbers: `u = next() >> 32` chooses the first k with `u < limit[k]` (binary search), so region `order[k]`; `next() mod
//!   (region_bytes / request_bytes)` chooses the aligned slot within the region.
//!
//! With a = 0.8 this is the workload of H2DP section 5.2.1 (IOR changed to a Zipf distribution over the parts of a file). The paper
//! does not say how the popular parts lie in the file; here a shuffle spreads them. Its "access frequencies change at run-time" is
//! the `phases` of [`Ior`].

mod benchmark;
mod btio;
mod checkpoint;
mod chombo;
mod collective;
#[cfg(test)]
mod dummy;
mod hpio;
mod ior;
mod mpi_io_test;
mod parameters;
mod random;
mod sequence;
mod stages;
mod synthetic;
mod tile;
mod zipf;

pub use benchmark::{Benchmark, help, reference};
pub use btio::Btio;
pub use checkpoint::Checkpoint;
pub use chombo::Chombo;
pub use hpio::Hpio;
pub use ior::Ior;
pub use mpi_io_test::MpiIoTest;
pub use parameters::ParseBenchmarkError;
pub use sequence::{Generator, Pattern, Request, Workload};
pub use synthetic::{TraceShape, write_trace};
pub use tile::TileIo;

use crate::manifest::ManifestError;
use std::path::PathBuf;
use stripewise_layout::ByteCount;

#[cfg(doc)]
use crate::program::Program;

/// Why a workload cannot be made or written.
#[derive(Debug, thiserror::Error)]
pub enum WorkloadError {
    /// A request is empty, or larger than what it has to lie in.
    #[error(
        "requests of {request_size} do not fit {place} of {place_size}; make requests smaller (at least 1 byte) or {place} larger"
    )]
    Request {
        /// Size of the request, or of the region that does not fit.
        request_size: ByteCount,
        /// What it does not fit, with its article.
        place: &'static str,
        /// Size of that.
        place_size: ByteCount,
    },
    /// [`Pattern::Zipf`]'s exponent is out of range.
    #[error("a Zipf exponent of {exponent} cannot be; give 0 (uniform) to 100, 0.8 is H2DP's")]
    Exponent {
        /// The exponent asked for.
        exponent: f64,
    },
    /// [`Workload::ranks`] is 0.
    #[error("{ranks} ranks cannot be; give at least 1")]
    Ranks {
        /// The ranks asked for.
        ranks: u32,
    },
    /// A benchmark's parameter is out of range, or contradicts another one.
    #[error("{benchmark}: {key}={value} cannot be; want {want}")]
    Parameter {
        /// Name of the benchmark.
        benchmark: &'static str,
        /// The parameter's key in the text form.
        key: &'static str,
        /// Its value, in the text form.
        value: String,
        /// What it may be, to follow "want".
        want: String,
    },
    /// A file of the trace could not be written.
    #[error("{path}: {source}")]
    Io {
        /// That file.
        path: PathBuf,
        /// Its cause.
        source: std::io::Error,
    },
    /// The manifest of the trace could not be written.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
}

impl WorkloadError {
    fn of(benchmark: &'static str, key: &'static str, value: String, want: &str) -> Self {
        Self::Parameter { benchmark, key, value, want: want.to_owned() }
    }
}

/// The size, if a file can have it: file offsets are signed numbers of 64 bits.
fn largest_file(bytes: u64) -> Option<u64> {
    (bytes <= i64::MAX as u64).then_some(bytes)
}

#[cfg(test)]
mod checks;
#[cfg(test)]
mod tests;
