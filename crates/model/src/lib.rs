//! The calibrated profile and the cost equations over it, one module per paper.
#![forbid(unsafe_code)]

mod profile;

pub use profile::{Line, NetworkProfile, NetworkSource, PROFILE_VERSION, Profile, ServerProfile};
