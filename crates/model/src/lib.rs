//! The calibrated profile and the cost equations over it, one module per paper.
//!
//! A policy first reduces the profile to [`ClassParameters`], the symbols of the papers, and then costs a request class under a stripe
//! pair `<h, s>` with [`h2dp`], [`padp`] or [`psa`]; [`cost_intelligent`] and [`segment`] know one kind of server
//! ([`UniformParameters`]). [`striped`] costs a request under any layout with every server's own line; it is what predictions are made
//! with. All functions are pure. `docs/equations.md` lists every equation with its source and errata.
#![forbid(unsafe_code)]
#![deny(missing_docs, clippy::missing_errors_doc)]
#![deny(clippy::print_stdout)]

mod caveat;
pub mod cost_intelligent;
pub mod fit;
pub mod h2dp;
mod offsets;
pub mod padp;
mod parameters;
mod profile;
pub mod psa;
pub mod queueing;
pub mod segment;
pub mod striped;

pub use caveat::Caveat;
pub use offsets::{greatest_common_divisor, touched_share};
pub use parameters::{
    ClassParameters, Coefficients, Concurrency, Picoseconds, RequestCost, StripePair, UniformParameters,
    most_bytes_on_one_server,
};
pub use profile::{
    Line, NetworkProfile, NetworkSource, OrderedLines, PROFILE_VERSION, Profile, ProfileError, ServerProfile,
};
