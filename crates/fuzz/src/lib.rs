//! What Stripewise reads of strangers, each kind a plain function over bytes.
//!
//! `tests/targets.rs` runs every [`Target`] on stable Rust over its stored corpus and mutations of it; `make fuzz` runs them under `cargo-fuzz`. A new
//! target is a module below `targets/`, a row of [`TARGETS`], a directory of small inputs in `corpus/`, and the three lines of a file in
//! `fuzz/fuzz_targets/`; a test names what is missing.
//!
//! A function panics when a property does not hold. Those of all targets: no input makes a reader panic; what was read can be used; and what was
//! read, written again, is read as the same. What a reader may allocate is the test's to bound.
#![deny(clippy::print_stdout)]
#![forbid(unsafe_code)]

mod directory;
mod layouts;
pub mod mutation;
pub mod targets;

use mutation::Kind;
use std::path::PathBuf;

/// What became of an input. A target whose every mutant is refused tests little.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    Read,
    Refused,
}

/// One kind of input.
pub struct Target {
    /// Of its directory in `corpus/` and of its file in `fuzz/fuzz_targets/`.
    pub name: &'static str,
    /// What mutations respect in part of their cases.
    pub kind: Kind,
    pub run: fn(&[u8]) -> Outcome,
    /// Bytes that one run may have allocated at any time, beside 64 for each byte of the input.
    pub max_held_bytes: usize,
}

impl Target {
    /// Where its stored inputs are.
    #[must_use]
    pub fn corpus(&self) -> PathBuf {
        PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/corpus")).join(self.name)
    }
}

const MIB: usize = 1 << 20;

/// Counts of a trace have bounds of their own: windows, regions of one request, and what is noted of simultaneous requests.
const COUNTING: usize = 192 * MIB;

/// All kinds of input, by name.
pub const TARGETS: &[Target] = &[
    Target { name: "cluster", kind: Kind::Toml, run: targets::cluster::run, max_held_bytes: MIB },
    Target { name: "csv", kind: Kind::Text, run: targets::trace::run_csv, max_held_bytes: COUNTING },
    Target { name: "description", kind: Kind::Text, run: targets::description::run, max_held_bytes: MIB },
    Target { name: "detection", kind: Kind::Text, run: targets::site::run_detection, max_held_bytes: 4 * MIB },
    Target { name: "dftracer", kind: Kind::Text, run: targets::trace::run_dftracer, max_held_bytes: COUNTING },
    Target { name: "iosig", kind: Kind::Text, run: targets::trace::run_iosig, max_held_bytes: COUNTING },
    Target { name: "link", kind: Kind::Binary, run: targets::link::run, max_held_bytes: 4 * MIB },
    Target { name: "manifest", kind: Kind::Json, run: targets::manifest::run, max_held_bytes: MIB },
    Target { name: "plan", kind: Kind::Json, run: targets::plan::run, max_held_bytes: MIB },
    Target { name: "profile", kind: Kind::Json, run: targets::profile::run, max_held_bytes: MIB },
    Target { name: "record", kind: Kind::Binary, run: targets::record::run, max_held_bytes: MIB },
    Target { name: "recorder", kind: Kind::Binary, run: targets::trace::run_recorder, max_held_bytes: COUNTING },
    Target { name: "reply", kind: Kind::Binary, run: targets::packet::run_reply, max_held_bytes: 8 * MIB },
    Target { name: "request", kind: Kind::Binary, run: targets::packet::run_request, max_held_bytes: 8 * MIB },
    Target { name: "site", kind: Kind::Toml, run: targets::site::run, max_held_bytes: 4 * MIB },
    Target { name: "stub", kind: Kind::Text, run: targets::stub::run, max_held_bytes: MIB },
    Target { name: "table", kind: Kind::Binary, run: targets::table::run, max_held_bytes: 4 * MIB },
    Target { name: "trace", kind: Kind::Binary, run: targets::trace::run, max_held_bytes: COUNTING },
];

/// Runs the target of that name: what `fuzz/fuzz_targets/` call.
///
/// # Panics
/// When there is no such target, or a property does not hold.
pub fn run(name: &str, bytes: &[u8]) {
    let target = TARGETS.iter().find(|target| target.name == name);
    (target.unwrap_or_else(|| panic!("no target is named {name}")).run)(bytes);
}
