//! Turns what a trace says of files, a profile and the servers' room into a [`Plan`].
//!
//! [`plan`] runs one policy, [`compare`] several; both are pure and give the same result for the same input and seed on any number of
//! threads. A policy only chooses layouts ([`policy`]); prediction, room, moves and verdict are worked out in one place for all of them.
#![forbid(unsafe_code)]
#![deny(missing_docs, clippy::missing_errors_doc)]
#![deny(clippy::print_stdout)]

mod capacity;
mod compare;
pub mod explain;
pub mod file_system;
mod fit;
mod map;
mod moves;
pub mod native;
mod plan;
pub mod policy;
mod predict;
mod promises;
mod render;
mod request;
mod served;
mod servers;
pub mod site;
mod sources;
mod verdict;

pub use capacity::Capacity;
pub use compare::{Comparison, ComparisonRow, compare, plan, predict_laid, recommended};
pub use map::{RegionSpan, layout_text, region_map, segment_list};
pub use moves::{Move, MoveKind};
pub use plan::{
    Gain, Gains, Match, NameMatch, PLAN_VERSION, Plan, PlanError, PlannedFile, PlannedServer, PlannedWindow, Verdict,
    nearest,
};
pub use policy::online::{Guess, History, OnlineStep, OnlineWindow, online_step, online_step_by};
pub use policy::{About, Optimum, PolicyName, Replica, ServerPrices, Source, UnknownPolicy, reference, region_bytes};
pub use predict::{Laid, MODEL_SPREAD, Prediction, Throughput, predict, within};
pub use render::{comparison_text, headline_text, plan_text};
pub use request::{MAX_REGIONS, Online, PlanOptions, PlanRequest, RequestError};
pub use sources::{InputPaths, PlanKey, PlannedProgram, Sources};
pub use verdict::copying_seconds;
